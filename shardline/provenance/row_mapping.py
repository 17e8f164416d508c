"""Mapping of single records through an operation, upstream and downstream."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.log.parameters import AppendParameters, EntryParameters, RepairParameters
from shardline.provenance.commands import get_recombine_hint
from shardline.provenance.log_index import TraceGapError, get_base_shard, is_in_place_entry
from shardline.provenance.shard_mapping import (
    AlignedMapping,
    count_missing_before,
    make_layout,
    make_pair_mapping,
    map_records_to_rows,
)
from shardline.sidecars.row_map import NO_RECORD, RowMapError
from shardline.sources.source_format import infer_format_from_name
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.hints import Hint
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard, Source
    from shardline.provenance.log_index import LogIndex, ShardListing
    from shardline.provenance.shard_mapping import PairMapping


_MAY_BE_BLANK = frozenset({"jsonl", "csv", None})
"""Formats with lines that are not rows of data."""
_MAX_PARTS = 64
"""Limit of receipts to read to count the quarantined rows before a shard."""


def trace_source_row(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> SourceRow:
    """Return the source row of record `inside` of an appended shard.

    Raises TraceGapError if it is unknown.
    """
    source = next((source for source in entry.sources if source.key == shard.source), None)
    if source is None:
        raise TraceGapError(
            f"entry {entry.number} does not name the source of {shard.name}", version=entry.label
        )
    try:
        receipt = index.receipt(entry.label, shard)
        if receipt.is_countable(shard.records):
            row = int(map_records_to_rows(receipt.first, receipt.refused, np.array([inside]))[0])
        else:
            (row,) = index.row_map(entry.label, shard, 1).find(inside)
    except (TraceGapError, RowMapError) as error:
        raise TraceGapError(
            f"source row unknown: {error.message} (source: {source.label})",
            code=error.code,
            path=error.path,
            version=entry.label,
        ) from None
    kind = entry.read(AppendParameters).format or infer_format_of_source(source)
    parts = [added.shard for added in entry.added if added.shard.source == shard.source]
    position = next(at for at, part in enumerate(parts) if part.name == shard.name)
    records = sum(part.records for part in parts[:position])
    earlier: int | None = receipt.first - records
    has_quarantine = any(
        rows.source == source.key for rows in entry.read(EntryParameters).quarantine
    )
    if earlier and kind in _MAY_BE_BLANK:
        # Earlier shards only give the number of rows without a record: some may be blank.
        earlier = (
            _count_quarantined_in(index, entry, parts[:position], receipt.first)
            if has_quarantine
            else 0
        )
    refused = None
    if earlier is not None:
        refused = count_missing_before(receipt.refused, row) + earlier
    return SourceRow(source, row, format_row_label(kind, row), row - records - inside, refused)


def _count_quarantined_in(
    index: LogIndex, entry: Entry, parts: Sequence[Shard], rows: int
) -> int | None:
    """Count the quarantined rows among the first rows, which these shards cover.

    Returns None if there are too many shards, or rows without a shard, which have no receipt.
    """
    if len(parts) > _MAX_PARTS:
        return None
    try:
        receipts = index.receipts(entry.label, parts)
    except TraceGapError:
        return None
    covered = sum(receipt.end - receipt.first for receipt in receipts)
    return sum(receipt.refused_rows for receipt in receipts) if covered == rows else None


def infer_format_of_source(source: Source) -> str | None:
    """Return the format that the name of a source implies, or "batch" for rows in memory."""
    if source.path is None:
        return "batch"
    return infer_format_from_name(source.path)


def format_row_label(kind: str | None, row: int) -> str:
    """Return the label of a row in its source.

    Rows of a CSV file are numbered, because a cell may contain line ends. Files of a folder are
    numbered in the order of their names.
    """
    if kind == "jsonl":
        return f"line {row + 1}"
    if kind == "csv":
        return f"row {row} below the header"
    if kind == "tfrecord":
        return f"record {row}"
    return f"file {row} in order" if kind == "folder" else f"row {row}"


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A record of a snapshot, by its number."""

    version: str
    snapshot: int
    record: int


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """The records or the source row that a record derives from, and a remark."""

    upstream: tuple[SnapshotRecord | SourceRow, ...]
    remark: str = ""


def map_record_up(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> RecordOrigin:
    """Return what record `inside` of a shard that this entry added derives from.

    Raises TraceGapError if that is unknown.
    """
    map_up = _BY_OPERATION.get(entry.operation)
    if map_up is None:
        raise TraceGapError(
            f"unknown operation {entry.operation!r}: another release wrote it",
            code="unknown-operation",
            version=entry.label,
        )
    return map_up(index, entry, shard, inside)


def _map_appended_up(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> RecordOrigin:
    if entry.bases and entry.bases[index.get_position(entry, shard.name)]:
        # The shard is the rest of a replaced one.
        return _map_transformed_up(index, entry, shard, inside)
    return RecordOrigin((trace_source_row(index, entry, shard, inside),))


def _map_rebuilt_up(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> RecordOrigin:
    """Map a record by its order among those of the replaced shards, or of a whole snapshot."""
    before, after = _list_rebuilt_shards(index, entry)
    read, written = (sum(shard.records for shard in shards) for shards in (before, after))
    layout = make_layout(before, after, entry)
    if layout is None:
        raise TraceGapError(
            f"entry {entry.number} of {entry.label} wrote {format_count(written, 'record')}, "
            f"expected {read}",
            code="count-mismatch",
            version=entry.label,
        )
    listing = (
        index.get_input(entry.inputs[0]) if entry.inputs else index.get_previous_listing(entry)
    )
    (mapped,) = layout.map_rows(shard.name, np.array([inside]))
    return RecordOrigin((_get_snapshot_record(listing, mapped.shard, int(mapped.rows[0])),))


def _list_rebuilt_shards(index: LogIndex, entry: Entry) -> tuple[Sequence[Shard], Sequence[Shard]]:
    """Return the shards with the records that a rebuild read, and those that have them after."""
    if entry.inputs:
        after = index.get_listing(entry.label, entry.snapshot)
        return index.get_input(entry.inputs[0]).shards, after.shards
    before = index.get_previous_listing(entry)
    removed = [before.intervals[before.positions[name]].shard for name in entry.removed]
    return removed, [added.shard for added in entry.added]


def _map_transformed_up(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> RecordOrigin:
    """Map a record of a shard that has all records of another except the missing ones."""
    old = get_base_shard(entry, index.get_position(entry, shard.name))
    listing = (
        index.get_input(entry.inputs[0]) if entry.inputs else index.get_previous_listing(entry)
    )
    if shard.base is not None and entry.inputs:
        remark = _get_missing_fields_remark(index, entry, shard, inside)
        return RecordOrigin((_get_snapshot_record(listing, old, inside),), remark)
    receipt = index.receipt(entry.label, shard)
    if not receipt.is_countable(shard.records):
        raise TraceGapError(
            f"the receipt of {shard.name} does not cover all its records", code="receipt-mismatch"
        )
    aligned = AlignedMapping(old, shard.name, receipt.refused, receipt.first)
    (mapped,) = aligned.map_rows(shard.name, np.array([inside]))
    return RecordOrigin((_get_snapshot_record(listing, old, int(mapped.rows[0])),))


def _get_missing_fields_remark(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> str:
    """Return a remark on a record of an overlay that has no new features."""
    try:
        receipt = index.receipt(entry.label, shard)
    except TraceGapError:
        return ""
    refused = any(first <= inside <= last for first, last in receipt.refused)
    return f"no new features, quarantined in {receipt.quarantine}" if refused else ""


def _get_snapshot_record(listing: ShardListing, shard: str, inside: int) -> SnapshotRecord:
    record = listing.number(shard, inside)
    if record is None:
        raise TraceGapError(
            f"{shard} is not in its input {listing.version}@{listing.snapshot}",
            code="shard-not-found",
            version=listing.version,
            snapshot=listing.snapshot,
        )
    return SnapshotRecord(listing.version, listing.snapshot, record)


def _map_paired_up(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> RecordOrigin:
    """Map a pair to its two records, or to the left record if that has no match."""
    sides = [index.get_input(side) for side in entry.inputs]
    try:
        mapping = _get_pair_mapping(index, entry, shard)
        ((_, pairs),) = mapping.list_records(np.array([inside]))
    except RowMapError as error:
        raise make_unknown_pairs_error(index, entry, shard, error) from None
    numbers = pairs[0].tolist()
    upstream = tuple(
        SnapshotRecord(side.version, side.snapshot, number)
        for side, number in zip(sides, numbers, strict=True)
        if number >= 0
    )
    remark = "the left record alone: it has no match" if min(numbers) < 0 else ""
    return RecordOrigin(upstream, remark)


def _get_pair_mapping(index: LogIndex, entry: Entry, shard: Shard) -> PairMapping:
    return make_pair_mapping(
        entry,
        index.get_position(entry, shard.name),
        index.grid(entry),
        ((), ()),
        lambda shard: index.row_map(entry.label, shard, 2),
    )


def make_unknown_pairs_error(
    index: LogIndex, entry: Entry, shard: Shard, error: RowMapError
) -> TraceGapError:
    """Build the error that the pairs of a shard are unknown because its row map is."""
    return TraceGapError(
        f"the pairs of {shard.name} are unknown: {error.message}",
        code=error.code,
        hint=get_recombine_hint(index, entry),
        path=error.path,
        version=entry.label,
    )


def _map_repaired_up(index: LogIndex, entry: Entry, shard: Shard, inside: int) -> RecordOrigin:
    """Map a record of a recreated shard to the original, or of a salvaged one by its row map."""
    if not entry.read(RepairParameters).is_salvage:
        first, old = find_first_repair(index, entry)
        listing = index.get_previous_listing(first)
        if listing.intervals[listing.positions[old]].shard.records != shard.records:
            raise TraceGapError(
                f"{shard.name} replaced {old} and has another number of records",
                code="count-mismatch",
            )
        return RecordOrigin((_get_snapshot_record(listing, old, inside),))
    try:
        (number,) = index.row_map(entry.label, shard, 1).find(inside)
    except RowMapError as error:
        raise make_unknown_salvage_error(error) from None
    if number < 0:
        raise TraceGapError("the corruption moved it: its earlier number is unknown")
    return RecordOrigin(
        (
            _get_snapshot_record(
                index.get_previous_listing(entry), entry.read(RepairParameters).shard, number
            ),
        )
    )


def make_unknown_salvage_error(error: RowMapError) -> TraceGapError:
    """Build the error that a row map does not say which records a repair salvaged."""
    message = f"the salvaged records are unknown: {error.message}"
    return TraceGapError(message, code=error.code, path=error.path)


def find_first_repair(index: LogIndex, entry: Entry) -> tuple[Entry, str]:
    """Return the first of several repairs of a shard, and the original shard."""
    old = entry.read(RepairParameters).shard
    listing = index.get_previous_listing(entry)
    position = listing.positions.get(old)
    if position is None:
        raise TraceGapError(
            f"the repaired shard {old} is not in {listing.version}@{listing.snapshot}",
            code="shard-not-found",
            version=listing.version,
            snapshot=listing.snapshot,
        )
    added = index.entry(listing.version, listing.intervals[position].added_entry)
    return find_first_repair(index, added) if added.operation == "repair" else (entry, old)


_BY_OPERATION: dict[str, Callable[[LogIndex, Entry, Shard, int], RecordOrigin]] = {
    "append": _map_appended_up,
    "rebuild": _map_rebuilt_up,
    "extend": _map_transformed_up,
    "migrate": _map_transformed_up,
    "erase": _map_transformed_up,
    "combine": _map_paired_up,
    "repair": _map_repaired_up,
}


_ONE_TO_ONE = frozenset({"append", "extend", "migrate", "erase"})
_REMOVALS = {"append": "replaced", "erase": "erased"}
"""What happened to records that an operation removed from their shards."""


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """Records of a shard that derive from `source_records` at the same positions.

    If there are none, `records` is empty, and `reason` and `code` say why. If they are unknown,
    `is_unknown` is set, with a `hint` if there is a remedy.
    """

    shard: str
    source_records: IntArray
    records: IntArray
    reason: str = ""
    is_unknown: bool = False
    code: str = ""
    hint: Hint | None = None


def make_unknown_outcome(shard: str, records: IntArray, error: TraceGapError) -> RecordOutcome:
    """Return the outcome of records with unknown descendants."""
    return RecordOutcome(
        shard,
        records,
        records[:0],
        error.message,
        is_unknown=True,
        code=error.code,
        hint=error.hint,
    )


def _make_empty_outcome(shard: str, records: IntArray, code: str, reason: str) -> RecordOutcome:
    return RecordOutcome(shard, records, records[:0], reason, code=code)


def list_replaced_shards(index: LogIndex, entry: Entry) -> Sequence[str]:
    """Return the shards of its own version that an entry derived others from."""
    if entry.inputs or not is_in_place_entry(entry):
        return ()
    if entry.operation == "repair" and not entry.read(RepairParameters).is_salvage:
        with suppress(TraceGapError):
            return [find_first_repair(index, entry)[1]]
    return entry.removed


def map_records_down(
    index: LogIndex, entry: Entry, version: str, shard: str, insides: IntArray
) -> Iterator[RecordOutcome]:
    """Yield what an entry derived from these records of a shard of a version.

    Raises TraceGapError if that is unknown.
    """
    if entry.operation in _ONE_TO_ONE:
        yield from _map_transformed_down(index, entry, shard, insides)
    elif entry.operation == "rebuild":
        yield from _map_rebuilt_down(index, entry, shard, insides)
    elif entry.operation == "repair":
        yield from _map_repaired_down(index, entry, insides)
    elif entry.operation == "combine":
        yield from _map_paired_down(index, entry, version, shard, insides)


def _map_transformed_down(
    index: LogIndex, entry: Entry, shard: str, insides: IntArray
) -> Iterator[RecordOutcome]:
    has_result, removal = False, _REMOVALS.get(entry.operation)
    # A replacement of whole shards derives none.
    derives = entry.operation != "append" or entry.bases
    for position, added in enumerate(entry.added if derives else ()):
        if get_base_shard(entry, position) != shard:
            continue
        has_result = True
        new = added.shard
        if new.base is not None and entry.inputs:
            yield RecordOutcome(new.name, insides, insides)
            continue
        receipt = index.receipt(entry.label, new)
        aligned = AlignedMapping(shard, new.name, receipt.refused, receipt.first)
        missing = insides
        for mapped in aligned.map_rows(shard, insides):
            yield RecordOutcome(new.name, mapped.source_rows, mapped.rows)
            missing = insides[~np.isin(insides, mapped.source_rows)]
        if len(missing):
            code = removal or "quarantined"
            reason = removal or f"quarantined in {receipt.quarantine}"
            yield _make_empty_outcome(new.name, missing, code, reason)
    if not has_result and removal is not None:
        yield _make_empty_outcome("", insides, removal, f"{removal} with all of its shard")


def _map_rebuilt_down(
    index: LogIndex, entry: Entry, shard: str, insides: IntArray
) -> Iterator[RecordOutcome]:
    layout = make_layout(*_list_rebuilt_shards(index, entry), entry)
    if layout is not None:
        for mapped in layout.map_rows(shard, insides):
            yield RecordOutcome(mapped.shard, mapped.source_rows, mapped.rows)


def _map_repaired_down(index: LogIndex, entry: Entry, insides: IntArray) -> Iterator[RecordOutcome]:
    if not entry.added:
        yield _make_empty_outcome("", insides, "lost", "lost with all of its shard")
        return
    repaired = entry.added[0].shard
    if not entry.read(RepairParameters).is_salvage:
        yield RecordOutcome(repaired.name, insides, insides)
        return
    lost, has_unknown = insides, False
    try:
        for first, rows in index.row_map(entry.label, repaired, 1).blocks():
            has_unknown |= bool((rows[:, 0] == NO_RECORD).any())
            hits = np.isin(rows[:, 0], insides).nonzero()[0]
            if len(hits):
                salvaged = rows[hits, 0]
                yield RecordOutcome(repaired.name, salvaged, first + hits)
                lost = np.setdiff1d(lost, salvaged)
    except RowMapError as error:
        raise make_unknown_salvage_error(error) from None
    if len(lost) and has_unknown:
        reason = "lost to corruption, or salvaged under an unknown number"
        yield make_unknown_outcome(repaired.name, lost, TraceGapError(reason))
    elif len(lost):
        yield _make_empty_outcome(repaired.name, lost, "lost", "lost to corruption")


def _map_paired_down(
    index: LogIndex, entry: Entry, version: str, shard: str, insides: IntArray
) -> Iterator[RecordOutcome]:
    for side, source in enumerate(entry.inputs):
        position = index.get_input(source).positions.get(shard) if source.label == version else None
        if position is not None:
            for added in entry.added:
                yield from _find_pairs(index, entry, added.shard, (side, position), insides)


def _find_pairs(
    index: LogIndex, entry: Entry, pairs: Shard, position: tuple[int, int], insides: IntArray
) -> Iterator[RecordOutcome]:
    """Yield the pairs of records of the shard at a position of a side."""
    try:
        for mapped in _get_pair_mapping(index, entry, pairs).find_pairs(*position, insides):
            yield RecordOutcome(mapped.shard, mapped.source_rows, mapped.rows)
    except RowMapError as error:
        unknown = make_unknown_pairs_error(index, entry, pairs, error)
        yield make_unknown_outcome(pairs.name, insides, unknown)
    except TraceGapError:
        unknown = TraceGapError(f"entry {entry.number} does not list its pairs")
        yield make_unknown_outcome(pairs.name, insides, unknown)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """The source row of a record.

    `row` counts from 0, and `where` is its label ("line 18"). `without_record` rows before it gave
    no record; `refused` of these are in quarantine, None if that is unknown.
    """

    source: Source
    row: int
    where: str
    without_record: int = 0
    refused: int | None = 0

    def to_dict(self) -> Json:
        """Return the row as JSON."""
        return {
            "source": self.source.to_dict(),
            "row": self.row,
            "where": self.where,
            "without_record_before": self.without_record,
            "refused_before": self.refused,
        }
