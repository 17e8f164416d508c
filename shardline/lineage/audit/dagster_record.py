"""Compare what Dagster recorded of its materializations with the logs.

A materialization names the snapshot that it made, its content digest, and the entries of its
parents. Dagster keeps these records outside the root, so whoever rewrites a log must rewrite them
too. The records arrive as plain data: this module does not import Dagster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardline.hints import Hint, Option
from shardline.lineage.audit.finding import Finding
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
    """What the asset of a version is called in Dagster."""
    return _NOT_IN_NAMES.sub("_", version.replace("/", "_"))


@dataclass(frozen=True, slots=True)
class RecordedMaterialization:
    """A materialization of a version, as Dagster recorded it.

    `place` is the URI of the version, `parents` are version, snapshot and entry digest of each.
    """

    snapshot: int
    entry: int | None
    content: str
    digest: str | None
    place: str
    parents: tuple[tuple[str, int, str], ...]
    time: float


class DagsterRecords(Protocol):
    """The records of a Dagster instance, as far as an audit compares them with the logs."""

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
    """What holding the record against the logs found, and of which versions it knows nothing."""

    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]


def compare_with_dagster(
    names: Collection[str], logs: AuditedLogs, records: DagsterRecords, root: str | None = None
) -> DagsterComparison:
    """Where the record and the logs of some versions differ.

    `root` is where the datasets lay when Dagster recorded them, if that was somewhere else.
    """
    place = (logs.store.uri if root is None else str(parse_location(root))).rstrip("/")
    known: set[str] = set()
    findings = list(_iter_findings(names, logs, records, place, known))
    unknown = [name for name in names if name not in known]
    findings += [one for name in unknown for one in _find_unrecorded(logs.of(name))]
    return DagsterComparison(tuple(findings), tuple(unknown))


def _iter_findings(
    names: Collection[str],
    logs: AuditedLogs,
    records: DagsterRecords,
    root: str,
    known: set[str],
) -> Iterator[Finding]:
    """Where they differ; the versions that Dagster knows become `known`."""
    assets = {get_asset_name(name): name for name in logs.names()}
    for key in records.assets():
        asset = key.rpartition("/")[2]
        events = list(records.materializations(key))
        name = assets.get(asset) or _find_recorded_version(events, root)
        if name is None or (name not in names and name in assets.values()):
            continue
        ours = [one for one in events if one.place in {"", f"{root}/{name}"}]
        if ours:
            known.add(name)
        history = logs.of(name)
        if history is None:
            if ours:
                yield _make_missing_log_finding(name, ours[-1], "has no log")
            continue
        yield from _compare_events(history, ours, logs)
        if ours:
            told = {one.snapshot for one in ours}
            yield from _find_unreported(history, told, records)
        if len(ours) < len(events):
            yield Finding(
                "note",
                "other-root",
                name,
                f"asset {asset}",
                f"{len(events) - len(ours)} of {len(events)} materializations tell of another root "
                "and are not compared",
                Hint.of("nothing to do if the instance serves several roots; ", _MOVED),
            )


def _find_recorded_version(events: list[RecordedMaterialization], root: str) -> str | None:
    """The version that the asset is of, if no log tells: by where its data is said to lie."""
    places = [one.place for one in events if one.place.startswith(f"{root}/")]
    return places[-1].removeprefix(f"{root}/") if places else None


def _find_unrecorded(history: AuditedLog | None) -> Iterator[Finding]:
    """A version that runs have made, and of which Dagster knows nothing."""
    made = [] if history is None else [entry for entry in history.data if entry.maker.run]
    if history is not None and made:
        yield Finding(
            "warning",
            "unrecorded-version",
            history.name,
            "Dagster's record",
            f"Dagster has no materialization of it here, and runs have made {len(made)} of its "
            f"{len(history.data)} snapshots",
            Hint.of(_MOVED, "; otherwise the record is of other datasets, or was deleted"),
        )


def _make_missing_log_finding(name: str, event: RecordedMaterialization, why: str) -> Finding:
    return Finding(
        "error",
        "event-without-snapshot",
        name,
        f"snapshot {event.snapshot}",
        f"Dagster recorded that it was materialized, and {name} {why}",
        Hint.of(_COMPARE, "; its latest entries may have been removed"),
        event.entry or 0,
    )


def _compare_events(
    history: AuditedLog, events: list[RecordedMaterialization], logs: AuditedLogs
) -> Iterator[Finding]:
    for event in {(one.snapshot, one.content, one.digest): one for one in events}.values():
        made = history.made(event.snapshot)
        if made is not None:
            yield from _compare_event(history, made, event)
        elif not logs.is_in_doubt(history, history, "which snapshots Dagster recorded"):
            yield _make_missing_log_finding(
                history.name, event, f"has {history.ledger.snapshot} snapshots"
            )
    parents = {parent for event in events for parent in event.parents}
    for name, snapshot, digest in sorted(parents):
        origin = logs.of(name)
        made = None if origin is None else origin.made(snapshot)
        if made is not None and made.digest != digest:
            what = f"as a parent of {history.name}, with entry {digest[:12]}…, and the log has "
            yield _make_difference_finding(name, made, f"{what}{made.digest[:12]}…")


def _compare_event(
    history: AuditedLog, made: ReplayedSnapshot, event: RecordedMaterialization
) -> Iterator[Finding]:
    if event.content and event.content != made.content:
        what = f"with the content {event.content[:12]}…, and the log has {made.content[:12]}…"
        yield _make_difference_finding(history.name, made, what)
    elif event.entry is not None and event.entry != made.entry:
        what = f"as made by entry {event.entry}, and by the log it was entry {made.entry}"
        yield _make_difference_finding(history.name, made, what)
    elif event.digest is not None and event.digest != made.digest:
        what = f"with entry {event.digest[:12]}…, and the log has {made.digest[:12]}…"
        yield _make_difference_finding(history.name, made, what)


def _make_difference_finding(name: str, made: ReplayedSnapshot, what: str) -> Finding:
    place = f"snapshot {made.number}"
    detail = f"Dagster recorded it {what}"
    return Finding("error", "dagster-differs", name, place, detail, _COMPARE, made.entry)


def _find_unreported(
    history: AuditedLog, told: set[int], records: DagsterRecords
) -> Iterator[Finding]:
    """Snapshots that Dagster was not told of; one that a run made and could not report is a note.

    A rejection is told by the check that failed.
    """
    for entry in history.data:
        if entry.snapshot in told or entry.operation == "reject":
            continue
        by_run = bool(entry.maker.run) and records.has_run(entry.maker.run)
        how = "the run that made it was stopped" if by_run else "no run of this instance made it"
        yield Finding(
            "note" if by_run else "warning",
            "unreported-snapshot",
            history.name,
            f"snapshot {entry.snapshot}",
            f"Dagster has no materialization of it: {how}",
            Hint.of("if it was committed outside Dagster on purpose, turn on the reconciler"),
            entry.number,
        )
