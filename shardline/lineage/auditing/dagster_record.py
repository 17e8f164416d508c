"""Does what Dagster recorded of its materializations agree with the logs?

A materialization tells which snapshot it made, its content digest, and its parents' entries. It
lies in another place than the root, so who rewrites a log must rewrite that too. Dagster is loaded
only by whoever hands in an instance of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardline.errors import DagsterRecordMissingError
from shardline.hints import Hint, Option
from shardline.lineage.findings import Finding
from shardline.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from dagster import AssetKey, AssetMaterialization, DagsterInstance

    from shardline.lineage.auditing.audited_logs import AuditedLogs, History
    from shardline.log.publication import Made

_AT_ONCE = 1000
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_DATA_VERSION = "dagster/data_version"
_COMPARE = Hint.of(
    "compare the log with a copy of the root: it was rewritten, or replaced by an older copy"
)
_MOVED = Hint.of(
    "if the datasets were moved, or this is a copy of them, name the root that Dagster knows with ",
    Option("recorded_root"),
)


_ELSEWHERE = frozenset({"storage", "event_log_storage"})
"""What in a dagster.yaml says that the record lies somewhere else than beside it."""


def open_instance(home: Path) -> DagsterInstance:
    """The instance whose DAGSTER_HOME a folder is.

    Dagster would make a record where there is none: that is refused.
    """
    import yaml  # noqa: PLC0415 - Dagster brings it along
    from dagster import DagsterInstance  # noqa: PLC0415 - loaded only by who asks for it

    config = home / "dagster.yaml"
    told = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else None
    elsewhere = isinstance(told, dict) and not _ELSEWHERE.isdisjoint(told)
    if not elsewhere and not (home / "history").is_dir():
        raise DagsterRecordMissingError(
            f"{home}: no Dagster records, neither a history folder nor storage in dagster.yaml",
            hint=Hint.of("name the DAGSTER_HOME of the instance that made the datasets"),
            path=home,
        )
    return DagsterInstance.from_config(str(home))


def asset_name(version: str) -> str:
    """What the asset of a version is called in Dagster."""
    return _NOT_IN_NAMES.sub("_", version.replace("/", "_"))


@dataclass(frozen=True, slots=True)
class _Event:
    """What a materialization tells."""

    snapshot: int
    entry: int | None
    content: str
    digest: str | None
    place: str
    parents: tuple[tuple[str, int, str], ...]
    time: float


@dataclass(frozen=True, slots=True)
class Compared:
    """What holding the record against the logs found, and of which versions it knows nothing."""

    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]


def compare_with_dagster(
    names: Collection[str], logs: AuditedLogs, instance: DagsterInstance, root: str | None = None
) -> Compared:
    """Where the record and the logs of some versions differ.

    `root` is where the datasets lay when Dagster recorded them, if that was somewhere else.
    """
    place = (logs.store.uri if root is None else str(parse_location(root))).rstrip("/")
    known: set[str] = set()
    findings = list(_findings(names, logs, instance, place, known))
    unknown = [name for name in names if name not in known]
    findings += [one for name in unknown for one in _unrecorded(logs.of(name))]
    return Compared(tuple(findings), tuple(unknown))


def _findings(
    names: Collection[str],
    logs: AuditedLogs,
    instance: DagsterInstance,
    root: str,
    known: set[str],
) -> Iterator[Finding]:
    """Where they differ; the versions that Dagster knows become `known`."""
    assets = {asset_name(name): name for name in logs.names()}
    for key in sorted(instance.get_asset_keys()):
        events = list(_events(instance, key))
        name = assets.get(key.path[-1]) or _named(events, root)
        if name is None or (name not in names and name in assets.values()):
            continue
        ours = [one for one in events if one.place in {"", f"{root}/{name}"}]
        if ours:
            known.add(name)
        history = logs.of(name)
        if history is None:
            if ours:
                yield _without(name, ours[-1], "has no log")
            continue
        yield from _compared(history, ours, logs)
        if ours:
            told = {one.snapshot for one in ours}
            yield from _unreported(history, told, instance)
        if len(ours) < len(events):
            yield Finding(
                "note",
                "other-root",
                name,
                f"asset {key.path[-1]}",
                f"{len(events) - len(ours)} of {len(events)} materializations tell of another root "
                "and are not compared",
                Hint.of("nothing to do if the instance serves several roots; ", _MOVED),
            )


def _events(instance: DagsterInstance, key: AssetKey) -> Iterator[_Event]:
    """The materializations of an asset that tell of a snapshot, oldest first."""
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(key, limit=_AT_ONCE, cursor=cursor, ascending=True)
        for record in page.records:
            event = _event(record.asset_materialization, record.timestamp)
            if event is not None:
                yield event
        if not page.has_more:
            return
        cursor = page.cursor


def _event(made: AssetMaterialization | None, time: float) -> _Event | None:
    if made is None:
        return None
    told: dict[str, Any] = {name: value.value for name, value in made.metadata.items()}
    snapshot = told.get("snapshot")
    if not isinstance(snapshot, int):
        return None
    content = (made.tags or {}).get(_DATA_VERSION) or told.get("digest") or ""
    return _Event(
        snapshot,
        told.get("entry") if isinstance(told.get("entry"), int) else None,
        str(content),
        told.get("entry_digest"),
        str(told.get("dagster/uri") or ""),
        tuple(_parents(made.metadata.get("parents"))),
        time,
    )


def _parents(table: Any) -> Iterator[tuple[str, int, str]]:  # noqa: ANN401 - any metadata
    for record in getattr(table, "records", ()):
        row = record.data
        if {"version", "snapshot", "digest"} <= row.keys():
            yield str(row["version"]), int(row["snapshot"]), str(row["digest"])


def _named(events: list[_Event], root: str) -> str | None:
    """The version that the asset is of, if no log tells: by where its data is said to lie."""
    places = [one.place for one in events if one.place.startswith(f"{root}/")]
    return places[-1].removeprefix(f"{root}/") if places else None


def _unrecorded(history: History | None) -> Iterator[Finding]:
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


def _without(name: str, event: _Event, why: str) -> Finding:
    return Finding(
        "error",
        "event-without-snapshot",
        name,
        f"snapshot {event.snapshot}",
        f"Dagster recorded that it was materialized, and {name} {why}",
        Hint.of(_COMPARE, "; its latest entries may have been removed"),
        event.entry or 0,
    )


def _compared(history: History, events: list[_Event], logs: AuditedLogs) -> Iterator[Finding]:
    for event in {(one.snapshot, one.content, one.digest): one for one in events}.values():
        made = history.made(event.snapshot)
        if made is not None:
            yield from _differing(history, made, event)
        elif not logs.is_in_doubt(history, history, "which snapshots Dagster recorded"):
            yield _without(history.name, event, f"has {history.ledger.snapshot} snapshots")
    parents = {parent for event in events for parent in event.parents}
    for name, snapshot, digest in sorted(parents):
        origin = logs.of(name)
        made = None if origin is None else origin.made(snapshot)
        if made is not None and made.digest != digest:
            what = f"as a parent of {history.name}, with entry {digest[:12]}…, and the log has "
            yield _differs(name, made, f"{what}{made.digest[:12]}…")


def _differing(history: History, made: Made, event: _Event) -> Iterator[Finding]:
    if event.content and event.content != made.content:
        what = f"with the content {event.content[:12]}…, and the log has {made.content[:12]}…"
        yield _differs(history.name, made, what)
    elif event.entry is not None and event.entry != made.entry:
        what = f"as made by entry {event.entry}, and by the log it was entry {made.entry}"
        yield _differs(history.name, made, what)
    elif event.digest is not None and event.digest != made.digest:
        what = f"with entry {event.digest[:12]}…, and the log has {made.digest[:12]}…"
        yield _differs(history.name, made, what)


def _differs(name: str, made: Made, what: str) -> Finding:
    place = f"snapshot {made.number}"
    detail = f"Dagster recorded it {what}"
    return Finding("error", "dagster-differs", name, place, detail, _COMPARE, made.entry)


def _unreported(history: History, told: set[int], instance: DagsterInstance) -> Iterator[Finding]:
    """Snapshots that Dagster was not told of; one that a run made and could not report is a note.

    A rejection is told by the check that failed.
    """
    for entry in history.data:
        if entry.snapshot in told or entry.operation == "reject":
            continue
        by_run = bool(entry.maker.run) and instance.has_run(entry.maker.run)
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
