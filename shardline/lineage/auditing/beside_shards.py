"""Is what lies beside a shard whole: its receipt, and the row map where counting does not tell?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Hint
from shardline.lineage.auditing.names import is_ours
from shardline.lineage.findings import Finding
from shardline.log.sidecar_names import RECEIPT, REFUSED, ROWS, shard_of, sidecar_path
from shardline.provenance.pair_numbers import chooses
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapError
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.auditing.audited_logs import AuditedLogs, History
    from shardline.lineage.auditing.listed import ShardToRead
    from shardline.log.entry import Entry
    from shardline.sidecars.receipt import Receipt

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


def beside_shard_findings(
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
            yield _found(
                one,
                "wrong-receipt",
                "its receipt is damaged, or tells of another shard than the log",
                _RECEIPT,
            )
            return
        yield from _compare(one.history, logs, f"{shard.name}{RECEIPT}")
    found = []
    if entry is not None:
        found = list(_row_map(one, logs, _of_what(one, entry, receipt), read=read))
    if read and not found:
        found = list(_compare(one.history, logs, f"{shard.name}{ROWS}"))
    yield from found


def sidecar_findings(history: History, logs: AuditedLogs) -> Iterator[Finding]:
    """Compare the sidecars that no shard to read accounts for with their committed digests.

    These are quarantine files, and the receipts and row maps of shards that are deleted or that
    have no records: by these, records are traced and erased.
    """
    names = history.ledger.shard_names
    for name in history.sidecars:
        if name.endswith(REFUSED) or names.get(shard_of(name), -1) < 0:
            yield from _compare(history, logs, name)


def _compare(history: History, logs: AuditedLogs, name: str) -> Iterator[Finding]:
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
    place = f"entry {entry}, {path}" if folder == "quarantine" else f"shard {shard_of(name)}"
    if any(digest == earlier for _, earlier in committed):
        what = f"{name} is an earlier file than entry {entry} committed: an erase was stopped"
        yield Finding("warning", "stale-sidecar", history.name, place, what, _STALE, entry)
        return
    what = f"{name} is not the file that entry {entry} committed"
    yield Finding("error", "changed-sidecar", history.name, place, what, _CHANGED, entry)


def _of_what(one: ShardToRead, entry: Entry, receipt: Receipt | None) -> str:
    """What its row map should tell the numbers of; empty if it needs none."""
    records, told = one.row.shard.records, entry.parameters
    needed = {
        "combine": is_ours(entry) and chooses(told),
        "repair": told.get("how") == "salvage",
        "append": one.row.shard.source is not None
        and receipt is not None
        and not receipt.counts(records),
    }
    return _NUMBERED[entry.operation] if records and needed.get(entry.operation) else ""


def _row_map(one: ShardToRead, logs: AuditedLogs, what: str, *, read: bool) -> Iterator[Finding]:
    if not what:
        return
    shard, pairs = one.row.shard, what == _NUMBERED["combine"]
    cannot = f"of which {what} its records are cannot be told"
    advice = _PAIRED if pairs else _BY_COPY
    if f"{shard.name}{ROWS}" not in logs.files(one.history.dataset, "shards"):
        # Vacuum keeps row maps; where the log is damaged, an erasure may have been behind that.
        if not logs.is_in_doubt(one.history, one.history, f"whether {shard.name} is still held"):
            yield _found(one, "missing-row-map", f"its row map is gone: {cannot}", advice)
        return
    row_map = RowMap(logs.store, f"{one.name}{ROWS}", shard.records, 2 if pairs else 1)
    try:
        for _ in row_map.lots() if read else ():
            pass
    except RowMapError as error:
        yield _found(one, "damaged-row-map", f"{error}: {cannot}", advice)


def _found(one: ShardToRead, kind: str, detail: str, advice: Hint) -> Finding:
    place = f"shard {one.row.shard.name}"
    return Finding("warning", kind, one.history.name, place, detail, advice, one.entry)
