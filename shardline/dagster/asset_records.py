"""What Dagster recorded of an asset.

Whether a check result counts is asked of Dagster itself, so that nobody here decides otherwise than
`AutomationCondition.all_deps_blocking_checks_passed`.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.private import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionResolvedStatus,
    LoadingContext,
)

_ENDS = frozenset({dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE})


class CheckState(Enum):
    """What Dagster knows of a check on the latest materialization of its asset."""

    PASSED = "passed"
    FAILED = "failed"
    RUNNING = "running"
    MISSING = "missing"


_STATES = {
    AssetCheckExecutionResolvedStatus.SUCCEEDED: CheckState.PASSED,
    AssetCheckExecutionResolvedStatus.FAILED: CheckState.FAILED,
    AssetCheckExecutionResolvedStatus.IN_PROGRESS: CheckState.RUNNING,
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The state of a check, and when it was evaluated; 0 if it was not."""

    state: CheckState
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class AssetEvents:
    """The latest materialization of an asset, and the latest run that was to materialize it.

    `storage_id` is 0 if the asset has no materialization.
    """

    storage_id: int = 0
    metadata: Mapping[str, Any] | None = None
    run_id: str = ""

    def told(self, name: str) -> object:
        """Return a value of the latest materialization's metadata, None if it is missing."""
        value = (self.metadata or {}).get(name)
        return None if value is None else value.value


class _RecordLoader(LoadingContext):
    """Loads each record once."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._loaders: dict[Any, Any] = {}

    @property
    def instance(self) -> dg.DagsterInstance:
        return self._instance

    @property
    def loaders(self) -> dict[Any, Any]:
        return self._loaders


def list_blocking_checks(
    repository: dg.RepositoryDefinition, key: dg.AssetKey
) -> dict[dg.AssetCheckKey, frozenset[dg.AssetCheckKey]]:
    """Return the blocking checks of an asset, each with those that must be executed with it.

    A check that only the step of its asset can execute is left out.
    """
    graph = repository.asset_graph
    found = {}
    for check in sorted(graph.get(key).check_keys):
        together = graph.get_execution_set_asset_and_check_keys(check)
        checks = frozenset(one for one in together if isinstance(one, dg.AssetCheckKey))
        if graph.get(check).blocking and checks == frozenset(together):
            found[check] = checks
    return found


def get_check_results(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, CheckResult]:
    """Return what Dagster knows of checks on the latest materializations of their assets."""

    async def load() -> dict[dg.AssetCheckKey, CheckResult]:
        loading = _RecordLoader(instance)
        results = await asyncio.gather(*(_result(loading, check) for check in checks))
        return dict(zip(checks, results, strict=True))

    return asyncio.run(load())


async def _result(loading: LoadingContext, check: dg.AssetCheckKey) -> CheckResult:
    record = await AssetCheckExecutionRecord.gen(loading, check)
    if record is None or not await record.targets_latest_materialization(loading):
        return CheckResult(CheckState.MISSING)
    state = _STATES.get(await record.resolve_status(loading), CheckState.MISSING)
    evaluated = state in {CheckState.PASSED, CheckState.FAILED} and record.event is not None
    return CheckResult(state, record.event.timestamp if evaluated and record.event else 0.0)


def asset_events(
    instance: dg.DagsterInstance, keys: Collection[dg.AssetKey]
) -> dict[dg.AssetKey, AssetEvents]:
    """Return what Dagster recorded of some assets."""
    found = dict.fromkeys(keys, AssetEvents())
    for record in instance.get_asset_records(list(keys)):
        entry = record.asset_entry
        latest = entry.last_materialization_record
        made = None if latest is None else latest.asset_materialization
        found[entry.asset_key] = AssetEvents(
            0 if latest is None else latest.storage_id,
            None if made is None else made.metadata,
            entry.last_run_id or "",
        )
    return found


def is_unfinished(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return True for a run of this instance that has not ended."""
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is not None and not run.is_finished


def get_step_time(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey) -> float:
    """Return when a run started the step of an asset; 0 if that step did not end."""
    if not run_id:
        return 0.0
    kinds = {*_ENDS, dg.DagsterEventType.STEP_START}
    started, ended = 0.0, False
    for record in instance.get_records_for_run(run_id, of_type=kinds).records:
        event = record.event_log_entry.dagster_event
        if event is None or event.step_key != "__".join(key.path):
            continue
        if event.event_type in _ENDS:
            ended = True
        else:
            started = record.timestamp
    return started if ended else 0.0


def count_runs(instance: dg.DagsterInstance, tag: str, value: str) -> int:
    """Return how many runs have a tag."""
    return instance.get_runs_count(dg.RunsFilter(tags={tag: value}))


SNAPSHOT = "snapshot"
"""The metadata key under which a materialization tells the number of its snapshot."""


def get_reported_snapshot(event: dg.EventLogEntry | None) -> int | None:
    """The snapshot that a materialization event tells of."""
    told = None if event is None else event.asset_materialization
    value = None if told is None else told.metadata.get(SNAPSHOT)
    number = None if value is None else value.value
    return number if isinstance(number, int) else None


def find_run_snapshot(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey) -> int | None:
    """The snapshot that a run reported for an asset, None if it did not."""
    records = instance.get_records_for_run(
        run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    numbers = [
        get_reported_snapshot(record.event_log_entry)
        for record in records.records
        if record.event_log_entry.get_dagster_event().asset_key == key
    ]
    return numbers[-1] if numbers else None


def find_check_snapshot(
    version: Version, instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey
) -> Snapshot | None:
    """The snapshot to check; None if there is none yet."""
    number = find_run_snapshot(instance, run_id, key)
    if number is not None:
        return version.snapshot(number)
    return version.newest() if version.exists and version.state.snapshot else None
