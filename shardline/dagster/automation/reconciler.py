"""The reconciler: a sensor that makes Dagster agree with the logs after any failure.

In each tick, for every declared version independently of the others, the reconciler:

- reports commits that no run of this instance reported, such as those of the command line;
- requests the checks that the latest snapshot lacks;
- requests checks again whose results on the latest materialization are missing or differ from the
  log;
- requests a derived version that is missing, broken or outdated, once per snapshot of its inputs.
  Automation comes first, and a run that failed is not requested again.

No tick reads a shard. The cursor only saves work: an empty cursor leads to the same decisions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import dagster as dg

from shardline.api import Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.asset_names import get_asset_key
from shardline.dagster.automation.conditions import get_follow_seconds
from shardline.dagster.automation.reconcile_plan import (
    REPORTS_AT_ONCE,
    DependentView,
    EntryView,
    ReconcileCursor,
    ReconcileRequest,
    ReportPlan,
    VersionView,
    format_notes,
    plan_reports,
    plan_requests,
)
from shardline.dagster.checks.log_checks import get_publication
from shardline.dagster.checks.version_checks import get_required_checks
from shardline.dagster.instance_records import (
    AssetEvents,
    CheckResult,
    count_runs,
    get_asset_events,
    get_check_results,
    get_run_tag,
    get_step_time,
    is_unfinished,
    list_blocking_checks,
)
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.materialization import build_materialization
from shardline.errors import CorruptLogError, ShardlineError
from shardline.log.entry import Entry
from shardline.provenance.commands import find_deriving_entry
from shardline.provenance.dependencies import list_broken_dependencies

RECONCILER = "reconciler"
REQUEST_TAG = "shardline/reconciles"
_MAX_ENTRIES = 2000
_MAX_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class ReconciledVersion:
    """A declared version: the names of its checks, its inputs, and the assets of its exports."""

    name: str
    checks: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    exports: tuple[dg.AssetKey, ...] = ()

    @property
    def key(self) -> dg.AssetKey:
        """Key of the version's asset."""
        return get_asset_key(self.name)


def build_reconciler_sensor(declared: Sequence[ReconciledVersion]) -> dg.SensorDefinition:
    """Return the sensor for some versions. It is on by default."""
    keys = [key for version in declared for key in (version.key, *version.exports)]

    @dg.sensor(
        name=RECONCILER,
        target=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=get_follow_seconds(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Report commits that Dagster does not know. Request checks and derived "
        "versions where Dagster and the logs differ.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, shardline: ShardlineResource
    ) -> dg.SensorResult:
        return _ReconcilerTick(context, shardline, declared).run()

    return sensor


class _ReconcilerTick:
    """A tick of the reconciler."""

    def __init__(
        self,
        context: dg.SensorEvaluationContext,
        shardline: ShardlineResource,
        declared: Sequence[ReconciledVersion],
    ) -> None:
        repository = context.repository_def
        if repository is None:
            raise dg.DagsterInvariantViolationError("the reconciler needs its repository")
        self._context, self._declared = context, declared
        self._instance = context.instance
        self._shardline = shardline
        self._cursor = ReconcileCursor.parse(context.cursor)
        self._opened: dict[str, Version] = {}
        self._blocking = {
            check: together
            for version in declared
            for check, together in list_blocking_checks(repository, version.key).items()
        }
        self._results = get_check_results(self._instance, list(self._blocking))
        keys = [key for version in declared for key in (version.key, *version.exports)]
        self._events = get_asset_events(self._instance, keys)
        self._reports: list[dg.AssetMaterialization] = []

    def run(self) -> dg.SensorResult:
        versions = [self._version_view(version) for version in self._declared]
        dependents = list(self._list_dependent_views())
        plan = plan_requests(
            versions, dependents, self._cursor.seen, self._attempts, self._find_subject
        )
        cursor = ReconcileCursor(self._cursor.entries, dict(plan.seen))
        idle = not plan.requests
        return dg.SensorResult(
            asset_events=self._reports,
            run_requests=[self._run_request(request) for request in plan.requests],
            skip_reason=format_notes(plan.notes) if idle else None,
            cursor=cursor.encode(),
        )

    def _open(self, name: str) -> Version:
        """Open a version, once per tick."""
        if name not in self._opened:
            self._opened[name] = self._shardline.version(name)
        return self._opened[name]

    def _attempts(self, subject: str) -> int:
        return count_runs(self._instance, REQUEST_TAG, subject)

    def _find_subject(self, run_id: str) -> str:
        return get_run_tag(self._instance, run_id, REQUEST_TAG)

    def _run_request(self, request: ReconcileRequest) -> dg.RunRequest:
        key = dg.AssetKey(request.asset)
        tags = {REQUEST_TAG: request.subject}
        if not request.checks:
            return dg.RunRequest(run_key=request.run_key, asset_selection=[key], tags=tags)
        checks: set[dg.AssetCheckKey] = set()
        for name in request.checks:
            check = dg.AssetCheckKey(key, name)
            checks |= self._blocking.get(check, frozenset({check}))
        return dg.RunRequest(
            run_key=request.run_key, asset_selection=[], asset_check_keys=sorted(checks), tags=tags
        )

    def _version_view(self, declared: ReconciledVersion) -> VersionView:
        """Read a version. A fault is logged and does not affect the other versions."""
        events = self._events[declared.key]
        blocking: dict[str, CheckResult] = {
            check.name: result
            for check, result in self._results.items()
            if check.asset_key == declared.key
        }
        view = VersionView(
            declared.name,
            declared.key.to_user_string(),
            declared.checks,
            blocking,
            materialization=events.storage_id,
        )
        try:
            return self._read_version(declared, view, events)
        except CorruptLogError as error:
            self._log_fault(declared.name, error.describe())
            return replace(view, corruption=f"{error.entry} {error.kind}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            reason = error.describe() if isinstance(error, ShardlineError) else repr(error)
            self._log_fault(declared.name, reason)
            return replace(view, is_waiting=f"cannot be read ({type(error).__name__})")

    def _log_fault(self, name: str, reason: str) -> None:
        self._context.log.error("%s: %s", name, reason)

    def _read_version(
        self, declared: ReconciledVersion, view: VersionView, events: AssetEvents
    ) -> VersionView:
        version = self._open(declared.name)
        state = version.state
        if not version.exists or not state.snapshot:
            return view
        reports = self._report(version, declared.key, events)
        if reports.unfinished:
            return replace(view, is_waiting=f"run {reports.unfinished} is in progress")
        if not reports.is_complete:
            return replace(view, is_waiting="the next tick reports more commits")
        declared_checks = get_required_checks(declared.checks)
        publication = get_publication(version, state.snapshot, declared_checks, self._open)
        published = publication.published
        return replace(
            view,
            latest=state.snapshot,
            is_open=publication.is_open,
            unchecked=publication.unchecked,
            published=published,
            content=state.snapshot_history.get_row(published).content if published else "",
            is_reported=bool(reports.entries),
        )

    def _report(self, version: Version, key: dg.AssetKey, events: AssetEvents) -> ReportPlan:
        """Report the commits of a version that Dagster does not know."""
        since = self._cursor.entries.get(version.name)
        first = 1 if since is None else min(since, version.state.number) + 1
        read = list(islice(version.log.entries(first), _MAX_ENTRIES))
        latest = version.log.entry(version.state.snapshot_entry)
        reports = plan_reports(
            [_create_entry_view(entry) for entry in read if entry.changes_data],
            read[-1].number if read else version.state.number,
            _create_entry_view(latest),
            reported=_parse_reported_snapshot(events.metadata),
            known=lambda: self._known(key, everything=since is None),
            is_unfinished=lambda run: is_unfinished(self._instance, run),
        )
        for entry in reports.entries:
            snapshot = version.snapshot(entry.snapshot)
            before = version.snapshot(entry.snapshot - 1).records if entry.snapshot > 1 else 0
            added = max(0, snapshot.records - before) if entry in reports.new else 0
            self._reports.append(build_materialization(key, version, snapshot, added_rows=added))
        self._cursor.entries[version.name] = reports.last_seen
        return reports

    def _known(self, key: dg.AssetKey, *, everything: bool) -> set[tuple[int, str]]:
        """Return the snapshots that Dagster knows: all of them, or the recent ones."""
        known: set[tuple[int, str]] = set()
        limit = _MAX_EVENTS if everything else 2 * REPORTS_AT_ONCE
        cursor: str | None = None
        while True:
            page = self._instance.fetch_materializations(key, limit=limit, cursor=cursor)
            for record in page.records:
                materialization = record.asset_materialization
                reported = (
                    None
                    if materialization is None
                    else _parse_reported_snapshot(materialization.metadata)
                )
                known |= set() if reported is None else {reported}
            if not everything or not page.has_more:
                return known
            cursor = page.cursor

    def _list_dependent_views(self) -> Iterator[DependentView]:
        for declared in self._declared:
            if declared.inputs:
                yield self._create_dependent_view(
                    declared.key, declared.inputs, partial(self._read_derived_version, declared)
                )
            for export in declared.exports:
                yield self._create_dependent_view(
                    export,
                    (declared.name,),
                    partial(self._read_export, declared, export),
                )

    def _create_dependent_view(
        self,
        key: dg.AssetKey,
        inputs: tuple[str, ...],
        read_view: Callable[[DependentView], DependentView],
    ) -> DependentView:
        view = DependentView(key.to_user_string(), inputs)
        run = self._events[key].run_id
        if is_unfinished(self._instance, run):
            return replace(view, is_waiting=f"run {run} is in progress")
        try:
            return read_view(replace(view, attempted=get_step_time(self._instance, run, key)))
        except Exception as error:  # noqa: BLE001 - the version's own view has logged it
            return replace(view, is_waiting=f"cannot be read ({type(error).__name__})")

    def _read_derived_version(
        self, declared: ReconciledVersion, view: DependentView
    ) -> DependentView:
        """Read from the log of a derived version which inputs it has."""
        version = self._open(declared.name)
        if not version.exists or not version.state.snapshot:
            return replace(view, is_missing=True)
        number = version.state.snapshot
        broken = list_broken_dependencies(version, number, self._open)
        entry = find_deriving_entry(version, number)
        input_contents = {
            upstream.label: self._content(upstream.label, upstream.snapshot)
            for upstream in (() if entry is None else entry.inputs)
        }
        return replace(view, is_broken=bool(broken), input_contents=input_contents)

    def _content(self, name: str, snapshot: int) -> str:
        state = self._open(name).state
        known = 1 <= snapshot <= state.snapshot
        return state.snapshot_history.get_row(snapshot).content if known else ""

    def _read_export(
        self, declared: ReconciledVersion, key: dg.AssetKey, view: DependentView
    ) -> DependentView:
        """Read from the latest materialization of an exported file which content it has."""
        events = self._events[key]
        input_contents = {declared.name: str(events.get_metadata(keys.CONTENT_DIGEST) or "")}
        return replace(view, is_missing=not events.storage_id, input_contents=input_contents)


def _create_entry_view(entry: Entry) -> EntryView:
    return EntryView(
        entry.number,
        entry.snapshot,
        entry.digest,
        entry.operation == "reject",
        entry.commit_info.run,
    )


def _parse_reported_snapshot(
    metadata: Mapping[str, dg.MetadataValue[Any]] | None,
) -> tuple[int, str] | None:
    """Return snapshot and entry digest of a materialization, None if it lacks them."""
    values = {} if metadata is None else {name: value.value for name, value in metadata.items()}
    snapshot, digest = values.get(keys.SNAPSHOT), values.get(keys.ENTRY_DIGEST)
    if not isinstance(snapshot, int) or not isinstance(digest, str):
        return None
    return snapshot, digest
