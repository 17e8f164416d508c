"""Comparison of Dagster's materializations with the logs.

A materialization records the snapshot, its content digest, and the entries of its inputs. Dagster
keeps these records outside the root, so a forged log disagrees with them. The records arrive as
plain data: this module does not import Dagster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardline.hints import Hint, Option
from shardline.lineage.audit.audit_report import Finding
from shardline.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.log.publication import ReplayedSnapshot

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_COMPARE = Hint.of(
    "compare the log with a copy of the root: it was rewritten, or replaced by an older copy"
)
_MOVED = Hint.of(
    "if the datasets were moved, or this is a copy of them, name the root that Dagster knows with ",
    Option("dagster_root"),
)


def get_asset_name(version: str) -> str:
    """Return the name of a version's asset."""
    return _NOT_IN_NAMES.sub("_", version.replace("/", "_"))


@dataclass(frozen=True, slots=True)
class RecordedMaterialization:
    """A materialization of a version, as Dagster recorded it.

    `uri` is that of the version. `inputs` has version, snapshot and entry digest of each
    input.
    """

    snapshot: int
    entry: int | None
    content: str
    digest: str | None
    uri: str
    inputs: tuple[tuple[str, int, str], ...]
    time: float


class DagsterRecords(Protocol):
    """The records of a Dagster instance that an audit compares with the logs."""

    def assets(self) -> Iterable[str]:
        """Return the asset keys, sorted, as `prefix/name`."""
        ...

    def materializations(self, asset: str) -> Iterable[RecordedMaterialization]:
        """Return the materializations of an asset that name a snapshot, oldest first."""
        ...

    def has_run(self, run: str) -> bool:
        """Return True if the instance has a run with this id."""
        ...


@dataclass(frozen=True, slots=True)
class DagsterComparison:
    """Findings of the comparison, and the versions without a materialization."""

    findings: tuple[Finding, ...]
    unrecorded: tuple[str, ...]


def compare_with_dagster(
    names: Collection[str], logs: AuditedLogs, records: DagsterRecords, root: str | None = None
) -> DagsterComparison:
    """Compare the logs of versions with the records of Dagster.

    Args:
        names: The versions.
        logs: The logs of the root.
        records: The records of Dagster.
        root: The root that Dagster recorded, if this root is a copy.
    """
    uri = (logs.store.uri if root is None else str(parse_location(root))).rstrip("/")
    recorded: set[str] = set()
    findings = list(_iter_findings(names, logs, records, uri, recorded))
    unrecorded = tuple(name for name in names if name not in recorded)
    for name in unrecorded:
        findings += _find_unrecorded_version(logs.get(name))
    return DagsterComparison(tuple(findings), unrecorded)


def _iter_findings(
    names: Collection[str],
    logs: AuditedLogs,
    records: DagsterRecords,
    root: str,
    recorded: set[str],
) -> Iterator[Finding]:
    """Yield the findings about each asset. Adds the versions with a materialization."""
    assets = {get_asset_name(name): name for name in logs.names()}
    for key in records.assets():
        asset = key.rpartition("/")[2]
        events = list(records.materializations(key))
        name = assets.get(asset) or _find_recorded_version(events, root)
        if name is None or (name not in names and name in assets.values()):
            continue
        own = [event for event in events if event.uri in {"", f"{root}/{name}"}]
        if own:
            recorded.add(name)
        log = logs.get(name)
        if log is None:
            if own:
                yield _make_missing_snapshot_finding(name, own[-1], f"{name} has no log")
            continue
        yield from _compare_events(log, own, logs)
        if own:
            yield from _find_unrecorded_snapshots(log, {event.snapshot for event in own}, records)
        if len(own) < len(events):
            yield log.make_finding(
                "other-root",
                f"asset {asset}",
                f"{len(events) - len(own)} of {len(events)} materializations are of another root",
                Hint.of("nothing to do if the instance serves several roots; ", _MOVED),
                severity="note",
            )


def _find_recorded_version(events: list[RecordedMaterialization], root: str) -> str | None:
    """Return the version of an asset without a log, from the recorded URI of its data."""
    uris = [event.uri for event in events if event.uri.startswith(f"{root}/")]
    return uris[-1].removeprefix(f"{root}/") if uris else None


def _find_unrecorded_version(log: AuditedLog | None) -> Iterator[Finding]:
    by_runs = [] if log is None else [entry for entry in log.data if entry.commit_info.run]
    if log is not None and by_runs:
        yield log.make_finding(
            "unrecorded-version",
            "Dagster's record",
            f"Dagster has no materialization, but runs committed {len(by_runs)} of "
            f"{len(log.data)} snapshots",
            Hint.of(_MOVED, "; otherwise the record is of other datasets, or was deleted"),
            severity="warning",
        )


def _make_missing_snapshot_finding(
    name: str, event: RecordedMaterialization, state: str
) -> Finding:
    return Finding(
        "error",
        "event-without-snapshot",
        name,
        f"snapshot {event.snapshot}",
        f"Dagster recorded its materialization, but {state}",
        Hint.of(_COMPARE, "; its latest entries may have been removed"),
        event.entry or 0,
    )


def _compare_events(
    log: AuditedLog, events: list[RecordedMaterialization], logs: AuditedLogs
) -> Iterator[Finding]:
    latest = {(event.snapshot, event.content, event.digest): event for event in events}
    for event in latest.values():
        snapshot = log.snapshot(event.snapshot)
        if snapshot is not None:
            yield from _compare_event(log.name, snapshot, event)
        elif not logs.is_in_doubt(log, log, "which snapshots Dagster recorded"):
            state = f"{log.name} has {log.replay.snapshot} snapshots"
            yield _make_missing_snapshot_finding(log.name, event, state)
    inputs = {source for event in events for source in event.inputs}
    for name, number, digest in sorted(inputs):
        upstream = logs.get(name)
        snapshot = None if upstream is None else upstream.snapshot(number)
        if snapshot is not None and snapshot.digest != digest:
            values = f"{digest[:12]}… as an input of {log.name}", f"{snapshot.digest[:12]}…"
            yield _make_difference_finding(name, snapshot, "entry", *values)


def _compare_event(
    name: str, snapshot: ReplayedSnapshot, event: RecordedMaterialization
) -> Iterator[Finding]:
    if event.content and event.content != snapshot.content:
        values = f"{event.content[:12]}…", f"{snapshot.content[:12]}…"
        yield _make_difference_finding(name, snapshot, "content", *values)
    elif event.entry is not None and event.entry != snapshot.entry:
        values = f"number {event.entry}", f"{snapshot.entry}"
        yield _make_difference_finding(name, snapshot, "entry", *values)
    elif event.digest is not None and event.digest != snapshot.digest:
        values = f"{event.digest[:12]}…", f"{snapshot.digest[:12]}…"
        yield _make_difference_finding(name, snapshot, "entry", *values)


def _make_difference_finding(
    name: str, snapshot: ReplayedSnapshot, label: str, recorded: str, logged: str
) -> Finding:
    subject = f"snapshot {snapshot.number}"
    detail = f"Dagster recorded {label} {recorded}, but the log has {logged}"
    return Finding("error", "dagster-differs", name, subject, detail, _COMPARE, snapshot.entry)


def _find_unrecorded_snapshots(
    log: AuditedLog, recorded: set[int], records: DagsterRecords
) -> Iterator[Finding]:
    """Find snapshots without a materialization: a note if a run was interrupted.

    Leaves out rejections, which the failed check reports.
    """
    for entry in log.data:
        if entry.snapshot in recorded or entry.operation == "reject":
            continue
        by_run = bool(entry.commit_info.run) and records.has_run(entry.commit_info.run)
        origin = "its run was interrupted" if by_run else "no run of this instance committed it"
        yield log.make_finding(
            "unreported-snapshot",
            f"snapshot {entry.snapshot}",
            f"Dagster has no materialization of it: {origin}",
            Hint.of("if it was committed outside Dagster on purpose, turn on the reconciler"),
            entry.number,
            severity="note" if by_run else "warning",
        )
