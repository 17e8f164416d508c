"""From which row of its source a record came that was appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.provenance.log_index import Untold
from shardline.provenance.row_numbers import refused_before, row_of
from shardline.provenance.steps import SourceRow
from shardline.sidecars.row_map import RowMapError
from shardline.sources.choose import format_of_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Shard, Source
    from shardline.provenance.log_index import Histories

_MAY_BE_BLANK = frozenset({"jsonl", "csv", None})
"""What has lines that are no rows of data."""
_MOST_PARTS = 64
"""Shards of a source whose receipts are read to count what went to quarantine before one."""


def source_row(histories: Histories, entry: Entry, shard: Shard, inside: int) -> SourceRow:
    """The row of record `inside` of a shard that an append brought in; Untold if it is lost."""
    source = next((one for one in entry.sources if one.key == shard.source), None)
    if source is None:
        raise Untold(
            f"entry {entry.number} does not name the source of {shard.name}", version=entry.shown
        )
    try:
        receipt = histories.receipt(entry.shown, shard)
        if receipt.counts(shard.records):
            row = row_of(receipt.first, receipt.refused, inside)
        else:
            (row,) = histories.row_map(entry.shown, shard, 1).find(inside)
    except (Untold, RowMapError) as error:
        raise Untold(
            f"source row unknown: {error.message} (source: {source.shown})",
            code=error.code,
            path=error.path,
            version=entry.shown,
        ) from None
    kind = entry.parameters.get("format") or format_of_source(source)
    parts = [one.shard for one in entry.added if one.shard.source == shard.source]
    place = next(at for at, one in enumerate(parts) if one.name == shard.name)
    records = sum(one.records for one in parts[:place])
    earlier: int | None = receipt.first - records
    told = any(one.get("source") == source.key for one in entry.parameters.get("quarantine", ()))
    if earlier and kind in _MAY_BE_BLANK:
        # Of the shards before it is only known how many rows gave none: some may be blank.
        earlier = _refused_in(histories, entry, parts[:place], receipt.first) if told else 0
    here = refused_before(receipt.refused, row)
    refused = None if earlier is None else here + earlier
    return SourceRow(source, row, words_for(kind, row), row - records - inside, refused)


def _refused_in(
    histories: Histories, entry: Entry, parts: Sequence[Shard], rows: int
) -> int | None:
    """How many of the first rows were refused, of which these shards are; None if too much to ask.

    Rows of which no shard was made have no receipt that could be found.
    """
    if len(parts) > _MOST_PARTS:
        return None
    try:
        receipts = histories.receipts(entry.shown, parts)
    except Untold:
        return None
    covered = sum(receipt.end - receipt.first for receipt in receipts)
    return sum(receipt.refused_rows for receipt in receipts) if covered == rows else None


def format_of_source(source: Source) -> str | None:
    """What a source is, if that is told by its name; rows in memory are none of the formats."""
    if source.path is None:
        return "batch"
    return format_of_name(source.path)


def words_for(kind: str | None, row: int) -> str:
    """A row in the words of its source.

    A cell of a CSV file may hold line ends, so its rows are told by their number, and the files of
    a folder by theirs in the order of their names.
    """
    if kind == "jsonl":
        return f"line {row + 1}"
    if kind == "csv":
        return f"row {row} below the header"
    if kind == "tfrecord":
        return f"record {row}"
    return f"file {row} in order" if kind == "folder" else f"row {row}"
