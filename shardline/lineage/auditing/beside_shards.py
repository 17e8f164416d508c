"""Is what lies beside a shard whole: its receipt, and the row map where counting does not tell?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Hint
from shardline.lineage.auditing.names import is_ours
from shardline.lineage.findings import Finding
from shardline.lineage.pair_places import chooses
from shardline.operations.receipt import RECEIPT, told_by_receipts
from shardline.operations.row_map import ROWS, RowMap, RowMapError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.auditing.audited_logs import AuditedLogs
    from shardline.lineage.auditing.listed import ShardToRead
    from shardline.log.entry import Entry
    from shardline.operations.receipt import Receipt

_BY_COPY = Hint.of("restore the row map from a copy of the root: nothing else depends on it")
_PAIRED = Hint.of(
    _BY_COPY,
    "; without a copy, combine into a new version, whose shards get row maps: this version reuses "
    "its shards unchanged",
)
_RECEIPT = Hint.of(
    "restore the receipt from a copy of the root: traces need it to find the rows of records"
)

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
        (receipt,) = told_by_receipts(logs.store, [f"{one.name}{RECEIPT}"])
        # That of an attempt under a drawn name tells of the same shard under that name.
        if receipt is None or receipt.shard is None or receipt.shard.sha256 != shard.sha256:
            yield _found(
                one,
                "wrong-receipt",
                "its receipt is damaged, or tells of another shard than the log",
                _RECEIPT,
            )
            return
    if entry is not None:
        yield from _row_map(one, logs, _of_what(one, entry, receipt), read=read)


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
