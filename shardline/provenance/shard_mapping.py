"""Mappings of rows between shards in both directions: aligned, moved, or paired.

Counting suffices where an operation keeps every record or a receipt names the missing ones. Row
maps name the records of selected pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from shardline.pairing.combine_spec import has_pair_selection
from shardline.pairing.coverage import Coverage, estimate, get_coverage
from shardline.provenance.log_index import TraceGapError
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.pairing.pair_grid import PairGrid, RecordExtent
    from shardline.sidecars.row_map import RowMap

_BATCH_PAIRS = 256 * 1024
NO_ROWS = np.zeros(0, np.int64)

Spans: TypeAlias = "Sequence[tuple[int, int]]"
"""Rows as pairs of first and last, ascending."""


def map_rows_to_records(first: int, missing: Spans, rows: IntArray) -> IntArray:
    """Return the records of rows from `first` on without the missing ones; -1 for these."""
    spans = np.array(missing, np.int64).reshape(-1, 2)
    counts = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0] + 1)))
    before = np.searchsorted(spans[:, 0], rows, "right")
    ends = np.concatenate(([-1], spans[:, 1]))
    is_missing = (rows < first) | (rows <= ends[before])
    return np.where(is_missing, -1, rows - first - counts[before])


def map_records_to_rows(first: int, missing: Spans, records: IntArray) -> IntArray:
    """Return the rows of records, the reverse of `map_rows_to_records`."""
    spans = np.array(missing, np.int64).reshape(-1, 2)
    counts = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0] + 1)))
    rows = first + records
    # A span is skipped if it begins at or before the row that follows from earlier spans.
    return rows + counts[np.searchsorted(spans[:, 0] - counts[:-1], rows, "right")]


def count_missing_before(missing: Spans, row: int) -> int:
    """Count the missing rows before a row."""
    return sum(min(last, row - 1) - first + 1 for first, last in missing if first < row)


def expand_spans(spans: Spans) -> IntArray:
    """Return all rows of some spans."""
    return np.concatenate([NO_ROWS, *(np.arange(first, last + 1) for first, last in spans)])


def collapse_rows(rows: IntArray) -> list[tuple[int, int]]:
    """Return ascending rows as spans."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(rows, cuts)]


@dataclass(frozen=True, slots=True)
class MappedRows:
    """Rows of a shard, each of which follows from the source row at the same position."""

    shard: str
    source_rows: IntArray
    rows: IntArray


class ShardMapping(Protocol):
    """Mapping of rows of some shards to the rows of others that follow from them."""

    def list_sources(self) -> Iterable[str]:
        """Return the shards whose rows can be mapped."""
        ...

    def list_targets(self) -> Iterable[str]:
        """Return the shards whose rows follow."""
        ...

    def map_rows(self, shard: str, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the rows of other shards that follow from rows of this one."""
        ...


@dataclass(frozen=True, slots=True)
class AlignedMapping:
    """Two shards with the same records in the same order.

    The second begins with row `begin` of the first and lacks its `missing` rows.
    """

    first: str
    second: str
    missing: Spans = ()
    begin: int = 0

    def list_sources(self) -> Iterable[str]:
        """Return both shards."""
        return self.first, self.second

    def list_targets(self) -> Iterable[str]:
        """Return both shards."""
        return self.list_sources()

    def map_rows(self, shard: str, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the same records in the other shard."""
        if shard == self.second:
            yield MappedRows(self.first, rows, map_records_to_rows(self.begin, self.missing, rows))
            return
        records = map_rows_to_records(self.begin, self.missing, rows)
        exists = records >= 0
        if exists.any():
            yield MappedRows(self.second, rows[exists], records[exists])


@dataclass(frozen=True, slots=True)
class LayoutMapping:
    """The same records in two lists of shards, given with their first row and the row after."""

    before: tuple[tuple[str, int, int], ...]
    after: tuple[tuple[str, int, int], ...]

    def list_sources(self) -> Iterable[str]:
        """Return the shards of both lists."""
        return (name for name, _, _ in (*self.before, *self.after))

    def list_targets(self) -> Iterable[str]:
        """Return the shards of both lists."""
        return self.list_sources()

    def map_rows(self, shard: str, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the same records in the shards of the other list, in ascending order."""
        rows = np.sort(rows)
        for own, others in ((self.before, self.after), (self.after, self.before)):
            for numbers in (rows + first for name, first, _ in own if name == shard):
                for other, begin, end in others:
                    low, high = np.searchsorted(numbers, (begin, end))
                    if high > low:
                        yield MappedRows(other, rows[low:high], numbers[low:high] - begin)


def make_layout(
    before: Sequence[Shard], after: Sequence[Shard], entry: Entry
) -> LayoutMapping | None:
    """Return where a rebuild moved records into shards that it adds; None if counts differ."""
    if sum(shard.records for shard in before) != sum(shard.records for shard in after):
        return None
    added = {added.shard.name for added in entry.added}
    new = [numbered for numbered in _number_rows(after) if numbered[0] in added]
    if not new:
        return None
    low, high = new[0][1], new[-1][2]
    old = tuple(
        numbered for numbered in _number_rows(before) if numbered[2] > low and numbered[1] < high
    )
    return LayoutMapping(old, tuple(new))


def _number_rows(shards: Sequence[Shard]) -> Iterator[tuple[str, int, int]]:
    end = 0
    for shard in shards:
        yield shard.name, end, (end := end + shard.records)


ShardNames: TypeAlias = "tuple[str | None, ...]"
"""The shards of a side, in order; None for a shard whose rows are not mapped."""


@dataclass(frozen=True)
class PairMapping:
    """A shard of pairs of the records of two lists of shards."""

    name: str
    left: ShardNames
    right: ShardNames
    grid: PairGrid

    def list_sources(self) -> Iterable[str]:
        """Return the shards of both sides."""
        return {name for name in (*self.left, *self.right) if name is not None}

    def list_targets(self) -> Iterable[str]:
        """Return the shard of pairs, because pairs follow from records and not the reverse."""
        return (self.name,)

    def map_rows(self, shard: str, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the pairs of these records on either side."""
        for side, names in enumerate((self.left, self.right)):
            for position, name in enumerate(names):
                if name == shard:
                    yield from self.find_pairs(side, position, rows)

    def find_pairs(self, side: int, position: int, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the pairs of records of the shard at a position of a side."""
        raise NotImplementedError

    def list_records(self, pairs: IntArray | None = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield some pairs at a time with the numbers of their two records, -1 for none.

        Numbers count all records of a side. All pairs are listed, or only these.
        """
        raise NotImplementedError

    def _get_starts(self, side: int) -> list[int]:
        extents: Sequence[RecordExtent] = (self.grid.left, self.grid.right)[side]
        return list(accumulate((extent.records for extent in extents), initial=0))


@dataclass(frozen=True)
class GridMapping(PairMapping):
    """A shard of all pairs that a coverage has.

    A `virtual` shard is a plan, which may have too many pairs to list.
    """

    cover: Coverage
    virtual: bool = False

    def list_sources(self) -> Iterable[str]:
        """Return the covered shards of both sides."""
        sides = (self.left[slice(*self.cover.left)], self.right[slice(*self.cover.right)])
        return {name for side in sides for name in side if name is not None}

    @property
    def _skipped(self) -> int:
        """Pairs of the only two shards that come before the span of left records."""
        if self.cover.span is None:
            return 0
        before = Coverage(self.cover.left, self.cover.right, (0, self.cover.span[0]))
        return estimate(self.grid, before).pairs

    def find_pairs(self, side: int, position: int, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the pairs of records of the shard at a position of a side, by counting."""
        if not _is_covered(self.cover, side, position):
            return
        cells = (self._count_right if side else self._count_left)(position, rows)
        parts = [(records, pairs) for records, pairs in cells if len(pairs)]
        if parts:
            records, pairs = (np.concatenate(part) for part in zip(*parts, strict=True))
            order = np.argsort(records, kind="stable")
            yield MappedRows(self.name, records[order], pairs[order] - self._skipped)

    def _count_left(self, position: int, rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        grid, (first, last) = self.grid, self.cover.right
        low, high = self.cover.span or (0, grid.left[position].records)
        rows = rows[(rows >= low) & (rows < high)]
        start = sum(
            int(grid.row(row)[0][first:last].sum()) for row in range(self.cover.left[0], position)
        )
        counts = grid.row(position)[0]
        for column in range(first, last):
            width = grid.right[column].records
            if grid.unordered and column == position:
                sizes = width - 1 - rows
                records = np.repeat(rows, sizes)
                within = np.arange(len(records)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                yield records, start + _count_pairs_before(width, records) + within
            elif not grid.unordered or column > position:
                pairs = start + rows[:, None] * width + np.arange(width)
                yield np.repeat(rows, width), pairs.ravel()
            start += int(counts[column])

    def _count_right(self, position: int, rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        grid, (first, last) = self.grid, self.cover.right
        width, begin = grid.right[position].records, 0
        for row in range(*self.cover.left):
            if grid.unordered and row > position:
                return
            counts = grid.row(row)[0]
            start = begin + int(counts[first:position].sum())
            begin += int(counts[first:last].sum())
            lefts = np.arange(*(self.cover.span or (0, grid.left[row].records)))[:, None]
            records = np.broadcast_to(rows, (len(lefts), len(rows)))
            if grid.unordered and row == position:
                pairs = start + _count_pairs_before(width, lefts) + rows - lefts - 1
                is_pair = lefts < rows
                yield records[is_pair], pairs[is_pair]
            else:
                yield records.ravel(), (start + lefts * width + rows).ravel()

    def list_records(self, pairs: IntArray | None = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield pairs with the numbers of their two records, by counting."""
        total = estimate(self.grid, self.cover).pairs
        batches = (
            np.arange(first, min(first + _BATCH_PAIRS, total))
            for first in range(0, total, _BATCH_PAIRS)
        )
        for batch in batches if pairs is None else (pairs,):
            numbers = self.grid.locate(batch + self._skipped, self.cover.left, self.cover.right)
            yield batch, np.stack(numbers, axis=1)


def _count_pairs_before(count: int, rows: IntArray) -> IntArray:
    """Count the pairs with an earlier first record, each two of so many records paired once."""
    return rows * (2 * count - rows - 1) // 2


def count_pairs(mappings: Sequence[GridMapping], rows: Mapping[str, IntArray]) -> int:
    """Count the pairs of a plan that have one of these rows, without listing them.

    Each mapping of the plan may know other shards of its sides.
    """
    grid, cover = mappings[0].grid, mappings[0].cover
    lefts = {
        position: _join_rows(rows, {mapping.left[position] for mapping in mappings})
        for position in range(*cover.left)
    }
    rights = {
        position: _join_rows(rows, {mapping.right[position] for mapping in mappings})
        for position in range(*cover.right)
    }
    total = 0
    for position, left in lefts.items():
        for column, right in rights.items():
            high, wide = grid.left[position].records, grid.right[column].records
            if grid.unordered and column == position:
                # A pair with both counts once: it comes before the right record in the left.
                both = int(np.searchsorted(left, right).sum())
                total += int((wide - 1 - left).sum()) + int(right.sum()) - both
            elif not grid.unordered or column > position:
                total += len(left) * wide + len(right) * high - len(left) * len(right)
    return total


def _join_rows(rows: Mapping[str, IntArray], names: set[str | None]) -> IntArray:
    """Return the rows of a shard that has several names."""
    known = [rows[name] for name in names if name is not None and name in rows]
    return np.unique(np.concatenate(known)) if known else NO_ROWS


@dataclass(frozen=True)
class SelectedPairMapping(PairMapping):
    """A shard of selected pairs, which a row map lists.

    The row map counts the records of each side from `firsts` on. Raises RowMapError where it is
    missing or corrupt.
    """

    firsts: tuple[int, int]
    row_map: RowMap
    cover: Coverage | None = None

    def map_rows(self, shard: str, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the pairs of these records on either side, reading the row map once."""
        sides = (self.left, self.right)
        positions = (
            (side, position)
            for side in (0, 1)
            for position, name in enumerate(sides[side])
            if name == shard
        )
        yield from self._search(positions, rows)

    def find_pairs(self, side: int, position: int, rows: IntArray) -> Iterator[MappedRows]:
        """Yield the pairs of records of the shard at a position of a side."""
        yield from self._search([(side, position)], rows)

    def _search(self, positions: Iterable[tuple[int, int]], rows: IntArray) -> Iterator[MappedRows]:
        starts = [
            (side, self._get_starts(side)[position] - self.firsts[side])
            for side, position in positions
            if self.cover is None or _is_covered(self.cover, side, position)
        ]
        for first, numbers in self.row_map.blocks() if starts else ():
            for side, start in starts:
                records = numbers[:, side] - start
                pairs = np.flatnonzero(np.isin(records, rows) & (numbers[:, side] >= 0))
                if len(pairs):
                    yield MappedRows(self.name, records[pairs], first + pairs)

    def list_records(self, pairs: IntArray | None = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield pairs with the numbers of their two records, -1 for a record without a match."""
        if pairs is None:
            for first, numbers in self.row_map.blocks():
                yield np.arange(first, first + len(numbers)), self._count_from_zero(numbers)
        else:
            found = [self.row_map.find(pair) for pair in pairs.tolist()]
            yield pairs, self._count_from_zero(np.array(found, np.int64).reshape(-1, 2))

    def _count_from_zero(self, numbers: IntArray) -> IntArray:
        return np.where(numbers < 0, -1, numbers + np.array(self.firsts))


def _is_covered(cover: Coverage, side: int, position: int) -> bool:
    low, high = (cover.left, cover.right)[side]
    return low <= position < high


def make_pair_mapping(
    entry: Entry,
    position: int,
    grid: PairGrid,
    sides: tuple[ShardNames, ShardNames],
    open_row_map: Callable[[Shard], RowMap],
) -> PairMapping:
    """Return the mapping of records to the pairs of an added shard.

    Raises TraceGapError if the entry does not list its pairs.
    """
    shard, cover = entry.added[position].shard, get_coverage(entry, position)
    if has_pair_selection(entry.parameters):
        begins = (0, 0) if cover is None else (cover.left[0], cover.right[0])
        extents = (grid.left[: begins[0]], grid.right[: begins[1]])
        left, right = (sum(extent.records for extent in side) for side in extents)
        row_map = open_row_map(shard)
        return SelectedPairMapping(shard.name, *sides, grid, (left, right), row_map, cover)
    if cover is None:
        raise TraceGapError(
            f"entry {entry.number} does not list the shards that {shard.name} pairs"
        )
    pairs = estimate(grid, cover).pairs
    if pairs != shard.records:
        raise TraceGapError(
            f"{shard.name} has {format_count(shard.records, 'record')}, expected {pairs} pairs",
            code="count-mismatch",
        )
    return GridMapping(shard.name, *sides, grid, cover, shard.virtual)
