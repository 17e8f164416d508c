"""Records of a Dagster instance: materializations, check results and runs."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.private import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionResolvedStatus,
    LoadingContext,
)
from shardline.errors import DagsterRecordMissingError
from shardline.hints import Hint
from shardline.lineage.audit.dagster_record import RecordedMaterialization

_BATCH_SIZE = 1000
_DATA_VERSION = "dagster/data_version"
_STORAGE_KEYS = frozenset({"storage", "event_log_storage"})
"""Keys of a dagster.yaml that store the records outside DAGSTER_HOME."""


def open_instance(home: Path) -> dg.DagsterInstance:
    """Open the instance of a DAGSTER_HOME.

    Raises DagsterRecordMissingError instead of creating an instance, as Dagster would.
    """
    config = home / "dagster.yaml"
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else None
    is_external = isinstance(settings, dict) and not _STORAGE_KEYS.isdisjoint(settings)
    if not is_external and not (home / "history").is_dir():
        raise DagsterRecordMissingError(
            f"{home}: no Dagster records, neither a history folder nor storage in dagster.yaml",
            hint=Hint.of("name the DAGSTER_HOME of the instance that materialized the datasets"),
            path=home,
        )
    return dg.DagsterInstance.from_config(str(home))


class InstanceRecords:
    """The records of a Dagster instance, as plain data for an audit."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._keys = {key.to_user_string(): key for key in sorted(instance.get_asset_keys())}

    def assets(self) -> list[str]:
        """Return the asset keys, sorted, as `prefix/name`."""
        return list(self._keys)

    def materializations(self, asset: str) -> Iterator[RecordedMaterialization]:
        """Yield the materializations of an asset that name a snapshot, oldest first."""
        cursor: str | None = None
        while True:
            page = self._instance.fetch_materializations(
                self._keys[asset], limit=_BATCH_SIZE, cursor=cursor, ascending=True
            )
            for record in page.records:
                event = _parse_materialization(record.asset_materialization, record.timestamp)
                if event is not None:
                    yield event
            if not page.has_more:
                return
            cursor = page.cursor

    def has_run(self, run: str) -> bool:
        """Return True if the instance has a run with this id."""
        return self._instance.has_run(run)


def _parse_materialization(
    materialization: dg.AssetMaterialization | None, time: float
) -> RecordedMaterialization | None:
    if materialization is None:
        return None
    metadata: dict[str, Any] = {key: value.value for key, value in materialization.metadata.items()}
    snapshot = metadata.get(keys.SNAPSHOT)
    if not isinstance(snapshot, int):
        return None
    content = (
        (materialization.tags or {}).get(_DATA_VERSION) or metadata.get(keys.CONTENT_DIGEST) or ""
    )
    entry = metadata.get(keys.ENTRY)
    return RecordedMaterialization(
        snapshot,
        entry if isinstance(entry, int) else None,
        str(content),
        metadata.get(keys.ENTRY_DIGEST),
        str(metadata.get("dagster/uri") or ""),
        tuple(_parse_upstream(materialization.metadata.get(keys.UPSTREAM_SNAPSHOTS))),
        time,
    )


def _parse_upstream(table: Any) -> Iterator[tuple[str, int, str]]:  # noqa: ANN401 - any metadata
    for record in getattr(table, "records", ()):
        row = record.data
        if {"version", "snapshot", "digest"} <= row.keys():
            yield str(row["version"]), int(row["snapshot"]), str(row["digest"])


_ENDS = frozenset({dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE})


class CheckState(Enum):
    """State of a check on the latest materialization of its asset."""

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
    """The state of a check on the latest materialization of its asset.

    `time` is when it was evaluated, 0 if it was not. `run_id` is the latest run that was to execute
    it on that materialization, empty if there is none.
    """

    state: CheckState
    time: float = 0.0
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class AssetEvents:
    """The latest materialization of an asset, and the latest run that was to materialize it.

    `storage_id` is 0 if the asset has no materialization.
    """

    storage_id: int = 0
    metadata: Mapping[str, Any] | None = None
    run_id: str = ""

    def get_metadata(self, name: str) -> object:
        """Return a value of the latest materialization's metadata, None if it is missing."""
        value = (self.metadata or {}).get(name)
        return None if value is None else value.value


class _RecordLoader(LoadingContext):
    """A loader that reads each record once."""

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
    """Return the blocking checks of an asset, each with the checks that must run with it.

    Checks that only the step of the asset can run are left out.
    """
    graph = repository.asset_graph
    blocking = {}
    for check in sorted(graph.get(key).check_keys):
        execution_set = graph.get_execution_set_asset_and_check_keys(check)
        checks = frozenset(
            member for member in execution_set if isinstance(member, dg.AssetCheckKey)
        )
        if graph.get(check).blocking and checks == frozenset(execution_set):
            blocking[check] = checks
    return blocking


def get_check_results(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, CheckResult]:
    """Return the states of checks on the latest materializations of their assets.

    Dagster itself decides whether a check result counts, so that the answer agrees with
    `AutomationCondition.all_deps_blocking_checks_passed`.
    """

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
    time = record.event.timestamp if evaluated and record.event else 0.0
    return CheckResult(state, time, record.run_id)


def get_asset_events(
    instance: dg.DagsterInstance, keys: Collection[dg.AssetKey]
) -> dict[dg.AssetKey, AssetEvents]:
    """Return the recorded events of some assets."""
    events = dict.fromkeys(keys, AssetEvents())
    for record in instance.get_asset_records(list(keys)):
        entry = record.asset_entry
        latest = entry.last_materialization_record
        materialization = None if latest is None else latest.asset_materialization
        events[entry.asset_key] = AssetEvents(
            0 if latest is None else latest.storage_id,
            None if materialization is None else materialization.metadata,
            entry.last_run_id or "",
        )
    return events


def is_unfinished(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return True for a run of this instance that has not ended."""
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is not None and not run.is_finished


def get_step_time(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey) -> float:
    """Return when a run started the step of an asset, 0 if that step did not end."""
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


def get_run_tag(instance: dg.DagsterInstance, run_id: str, tag: str) -> str:
    """Return a tag of a run, empty if the run or the tag is missing."""
    run = instance.get_run_by_id(run_id)
    return "" if run is None else run.tags.get(tag, "")


def count_runs(instance: dg.DagsterInstance, tag: str, value: str) -> int:
    """Return the number of runs with a tag."""
    return instance.get_runs_count(dg.RunsFilter(tags={tag: value}))


def get_reported_snapshot(event: dg.EventLogEntry | None) -> int | None:
    """Return the snapshot of a materialization event, None if it names none."""
    materialization = None if event is None else event.asset_materialization
    value = None if materialization is None else materialization.metadata.get(keys.SNAPSHOT)
    number = None if value is None else value.value
    return number if isinstance(number, int) else None


def find_run_snapshot(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey) -> int | None:
    """Return the snapshot that a run reported for an asset, None if it reported none."""
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
    """Return the snapshot to check: the one that this run reported, else the latest."""
    number = find_run_snapshot(instance, run_id, key)
    if number is not None:
        return version.snapshot(number)
    return version.latest() if version.exists and version.state.snapshot else None
