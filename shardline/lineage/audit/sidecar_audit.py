"""Are the things there that lie beside the data: receipts, refused rows, and the sources?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from shardline.errors import ShardlineError
from shardline.hints import Command, Hint
from shardline.lineage.audit.finding import Finding
from shardline.lineage.audit.name_audit import has_known_parameters
from shardline.log.model import RECEIPT, REFUSED, ROWS, get_sidecar_shard, sidecar_path
from shardline.log.parameters import AppendParameters, EntryParameters, RepairParameters
from shardline.pairing.combine_spec import has_pair_selection
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapError
from shardline.sources import open_source
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs, ShardToRead
    from shardline.lineage.audit.finding import Severity
    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.sidecars.receipt import Receipt
    from shardline.sources.source_format import SourceFormat


_REFUSED = (
    "which told the records of its input that gave none: its records cannot be traced to those "
    "that they were made of"
)
_RECEIPTS = {
    "append": "which told the rows of its source that gave no record: its records cannot be traced "
    "to their rows",
    "extend": _REFUSED,
    "migrate": _REFUSED,
    "erase": _REFUSED,
    "rebuild": "by which it was found made; nothing is traced by that",
    "combine": "by which it was found made; nothing is traced by that",
}
"""What the receipts of shards tell, by what made these."""
_LEFT_WITH_ERASURE = Hint.of("nothing to do if the source was changed for that erasure")
_OF_OVERLAY = "which told of which records no new fields could be made, if there were such"


def find_missing_sidecars(history: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Receipts and quarantine files that should be there and are not."""
    shards = logs.files(history.dataset, "shards")
    aside = logs.files(history.dataset, "quarantine")
    ledger, explained = history.ledger, None
    for entry in history.data:
        with_receipts = entry.operation in _RECEIPTS and has_known_parameters(entry)
        for one in entry.added if with_receipts else ():
            shard = one.shard
            if shard.virtual or ledger.shard_names[shard.name] < 0:
                continue
            if f"{shard.name}{RECEIPT}" not in shards and not logs.is_in_doubt(
                history, history, "whether vacuum took the shards whose receipts are gone"
            ):
                told_by = _RECEIPTS[entry.operation] if shard.base is None else _OF_OVERLAY
                what = f"its receipt is gone, {told_by}"
                yield _make_missing_sidecar_finding(
                    history, entry, "missing-receipt", f"shard {shard.name}", what
                )
        for rows in entry.read(EntryParameters).quarantine:
            for file in rows.files:
                if file.rpartition("/")[2] in aside:
                    continue
                explained = _get_erased_files(history, logs) if explained is None else explained
                if file not in explained and not _has_unreadable_erasures(history, logs):
                    yield _make_missing_sidecar_finding(
                        history,
                        entry,
                        "missing-quarantine",
                        file,
                        "the rows that were refused are gone, so it cannot be proved which",
                    )


def _make_missing_sidecar_finding(
    history: AuditedLog, entry: Entry, kind: str, place: str, detail: str
) -> Finding:
    advice = Hint.of("restore the file from a copy of the root: nothing else depends on it")
    where = f"entry {entry.number}, {place}"
    return Finding("warning", kind, history.name, where, detail, advice, entry.number)


def _get_erased_files(history: AuditedLog, logs: AuditedLogs) -> set[str]:
    """What erasures in any version of the dataset say of files: those may be gone."""
    found: set[str] = set()
    for name in logs.names():
        other = logs.of(name) if name.startswith(f"{history.dataset}/") else None
        for entry in other.data if other is not None else ():
            if entry.operation == "erase":
                found.update(_iter_texts(entry.parameters))
    return found


def _has_unreadable_erasures(history: AuditedLog, logs: AuditedLogs) -> bool:
    """Whether an erasure may stand in a log of the dataset that cannot be read to its end."""
    others = [logs.of(name) for name in logs.names()]
    ours = [one for one in others if one is not None and one.dataset == history.dataset]
    what = "whether an erasure took refused rows"
    return any(logs.is_in_doubt(history, other, what) for other in ours)


def _iter_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _iter_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_texts(inner)


def find_changed_sources(
    history: AuditedLog, logs: AuditedLogs, *, read: bool, since: int
) -> Iterator[Finding]:
    """Files that records came from and that are gone, or others by now; with `read` by content.

    A path under which something else landed since is no finding: it was written anew. One whose
    records were erased gets a note: they had to leave it too.
    """
    erased = _get_source_erasures(history)
    landed: dict[str, tuple[Entry, Source]] = {}
    for entry in history.data:
        if entry.operation == "append":
            for source in entry.sources:
                if source.path is not None:
                    landed[source.path] = (entry, source)
    for path, (entry, source) in landed.items():
        if entry.number < since:
            continue
        kind, what = _check_source(path, entry, source, read=read)
        later = f"whether something else landed from {path} since"
        if kind == "changed-source" and logs.is_in_doubt(history, history, later):
            continue
        if not kind:
            continue
        severity: Severity = "warning"
        skip = Command.of("audit", history.name, "--no-sources")
        advice = Hint.of("restore it to keep sources; to audit without sources, run ", skip)
        if source.key in erased:
            severity, advice = "note", _LEFT_WITH_ERASURE
            what += f"; records of it were erased in entry {erased[source.key]}"
        place = f"entry {entry.number}, source {path}"
        yield Finding(severity, kind, history.name, place, what, advice, entry.number)


def _get_source_erasures(history: AuditedLog) -> dict[str, int]:
    """The sources of which records were erased, by their keys, and the entry that says so."""
    found: dict[str, int] = {}
    for entry in history.data:
        if entry.operation == "erase":
            rows = (row for name in entry.condemned for row in history.ledger.named.get(name, ()))
            keys = (row.shard.source for row in rows)
            found |= {key: entry.number for key in keys if key is not None}
    return found


def _check_source(path: str, entry: Entry, source: Source, *, read: bool) -> tuple[str, str]:
    missing = "missing-source", "it is gone: what was made of it cannot be proved from it any more"
    changed = "changed-source", "it is not the file that landed: its content is another"
    if "://" not in path:
        place = Path(path)
        if not place.is_absolute():
            return "", ""  # who landed it knows from where
        if not place.exists():
            return missing
        if place.is_file() and place.stat().st_size != source.size:
            return changed
    if not read:
        return "", ""
    parameters = entry.read(AppendParameters)
    try:
        found = open_source(
            path if "://" in path else Path(path),
            format=cast("SourceFormat | None", parameters.format),
            salvage=parameters.salvage,
        ).identity()
    except (ShardlineError, OSError):
        return missing
    return changed if found != source else ("", "")


_BY_COPY = Hint.of("restore the row map from a copy of the root: nothing else depends on it")
_PAIRED = Hint.of(
    _BY_COPY,
    "; without a copy, combine into a new version, whose shards get row maps: this version reuses "
    "its shards unchanged",
)
_RECEIPT = Hint.of(
    "restore the receipt from a copy of the root: traces need it to find the rows of records"
)

_CHANGED = Hint.of(
    "find out who wrote it, and restore the file from a copy of the root: traces, repairs and "
    "erasures do not use it"
)
_STALE = Hint.of("run the erase again: it finishes what was stopped")

_NUMBERED = {
    "combine": "two records",
    "repair": "records of the damaged shard",
    "append": "rows of its source",
}


def find_shard_sidecar_faults(
    one: ShardToRead, logs: AuditedLogs, *, read: bool = True
) -> Iterator[Finding]:
    """Receipts and row maps that are not what was written; unless `read`, maps that are gone."""
    shard = one.row.shard
    entry = one.history.entry(one.row.landed)
    if shard.virtual:
        return
    receipt = None
    if read and f"{shard.name}{RECEIPT}" in logs.files(one.history.dataset, "shards"):
        (data,) = logs.store.read_many([f"{one.name}{RECEIPT}"])
        receipt = parse_receipt(data)
        # That of an attempt under a drawn name tells of the same shard under that name.
        if receipt is None or receipt.shard is None or receipt.shard.sha256 != shard.sha256:
            yield _make_sidecar_finding(
                one,
                "wrong-receipt",
                "its receipt is damaged, or tells of another shard than the log",
                _RECEIPT,
            )
            return
        yield from _compare_sidecar(one.history, logs, f"{shard.name}{RECEIPT}")
    found = []
    if entry is not None:
        found = list(
            _audit_row_map(one, logs, _get_row_map_subject(one, entry, receipt), read=read)
        )
    if read and not found:
        found = list(_compare_sidecar(one.history, logs, f"{shard.name}{ROWS}"))
    yield from found


def find_sidecar_mismatches(history: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Compare the sidecars that no shard to read accounts for with their committed digests.

    These are quarantine files, and the receipts and row maps of shards that are deleted or that
    have no records: by these, records are traced and erased.
    """
    names = history.ledger.shard_names
    for name in history.sidecars:
        if name.endswith(REFUSED) or names.get(get_sidecar_shard(name), -1) < 0:
            yield from _compare_sidecar(history, logs, name)


def _compare_sidecar(history: AuditedLog, logs: AuditedLogs, name: str) -> Iterator[Finding]:
    """Compare a sidecar with its committed digests; one that is missing is told elsewhere."""
    committed = history.sidecars.get(name, ())
    path = sidecar_path(history.dataset, name)
    folder = path.split("/")[1]
    if not committed or name not in logs.files(history.dataset, folder):
        return
    digest = hash_object(logs.store, path)
    entry, latest = committed[-1]
    if digest is None or digest == latest:
        return
    place = (
        f"entry {entry}, {path}" if folder == "quarantine" else f"shard {get_sidecar_shard(name)}"
    )
    if any(digest == earlier for _, earlier in committed):
        what = f"{name} is an earlier file than entry {entry} committed: an erase was stopped"
        yield Finding("warning", "stale-sidecar", history.name, place, what, _STALE, entry)
        return
    what = f"{name} is not the file that entry {entry} committed"
    yield Finding("error", "changed-sidecar", history.name, place, what, _CHANGED, entry)


def _get_row_map_subject(one: ShardToRead, entry: Entry, receipt: Receipt | None) -> str:
    """What its row map should tell the numbers of; empty if it needs none."""
    records = one.row.shard.records
    needed = {
        "combine": has_known_parameters(entry) and has_pair_selection(entry.parameters),
        "repair": entry.read(RepairParameters).is_salvage,
        "append": one.row.shard.source is not None
        and receipt is not None
        and not receipt.counts(records),
    }
    return _NUMBERED[entry.operation] if records and needed.get(entry.operation) else ""


def _audit_row_map(
    one: ShardToRead, logs: AuditedLogs, what: str, *, read: bool
) -> Iterator[Finding]:
    if not what:
        return
    shard, pairs = one.row.shard, what == _NUMBERED["combine"]
    cannot = f"of which {what} its records are cannot be told"
    advice = _PAIRED if pairs else _BY_COPY
    if f"{shard.name}{ROWS}" not in logs.files(one.history.dataset, "shards"):
        # Vacuum keeps row maps; where the log is damaged, an erasure may have been behind that.
        if not logs.is_in_doubt(one.history, one.history, f"whether {shard.name} is still held"):
            yield _make_sidecar_finding(
                one, "missing-row-map", f"its row map is gone: {cannot}", advice
            )
        return
    row_map = RowMap(logs.store, f"{one.name}{ROWS}", shard.records, 2 if pairs else 1)
    try:
        for _ in row_map.lots() if read else ():
            pass
    except RowMapError as error:
        yield _make_sidecar_finding(one, "damaged-row-map", f"{error}: {cannot}", advice)


def _make_sidecar_finding(one: ShardToRead, kind: str, detail: str, advice: Hint) -> Finding:
    place = f"shard {one.row.shard.name}"
    return Finding("warning", kind, one.history.name, place, detail, advice, one.entry)
