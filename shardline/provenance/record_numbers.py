"""Which row became which record, where all but some became one: counting tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from shardline.pairing.coverage import estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.kernel.types import IntArray
    from shardline.pairing.coverage import Coverage
    from shardline.pairing.pair_grid import PairGrid


def map_record_to_row(first: int, refused: Sequence[tuple[int, int]], record: int) -> int:
    """The row that became a record, of rows from `first` on without the refused spans."""
    row = first + record
    for begin, end in refused:
        if begin > row:
            break
        row += end - begin + 1
    return row


def map_rows_to_records(first: int, refused: Sequence[tuple[int, int]], rows: IntArray) -> IntArray:
    """The records that rows became; -1 for one that was refused."""
    spans = np.array(refused, np.int64).reshape(-1, 2)
    counts = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0] + 1)))
    before = np.searchsorted(spans[:, 0], rows, "right")
    ends = np.concatenate(([-1], spans[:, 1]))
    left_out = (rows < first) | (rows <= ends[before])
    return np.where(left_out, -1, rows - first - counts[before])


def refused_before(refused: Sequence[tuple[int, int]], row: int) -> int:
    """How many rows before this one were refused."""
    return sum(min(end, row - 1) - begin + 1 for begin, end in refused if begin < row)


Row = TypeVar("Row", int, "IntArray")


def count_pairs(grid: PairGrid, cover: Coverage) -> int:
    """How many pairs a shard covers."""
    return estimate(grid, cover).pairs


def locate_pair(grid: PairGrid, cover: Coverage, place: int) -> tuple[int, int]:
    """The numbers of the two records of the pair at a place."""
    places = np.array([place + _count_pairs_before_span(grid, cover)], np.int64)
    lefts, rights = grid.locate(places, cover.left, cover.right)
    return int(lefts[0]), int(rights[0])


def iter_left_positions(
    grid: PairGrid, cover: Coverage, shard: int, record: int
) -> Iterator[IntArray]:
    """The places of the pairs whose left is a record of the left shard at this place."""
    if not cover.left[0] <= shard < cover.left[1] or not _is_in_span(cover, record):
        return
    start = _count_pairs_before_shard(grid, cover, shard) - _count_pairs_before_span(grid, cover)
    pairs = grid.row(shard)[0]
    for column in range(*cover.right):
        width = grid.right[column].records
        if grid.unordered and column == shard:
            first = start + _count_pairs_before_row(width, record)
            yield np.arange(first, first + width - 1 - record)
        elif not grid.unordered or column > shard:
            yield np.arange(start + record * width, start + (record + 1) * width)
        start += int(pairs[column])


def iter_right_positions(
    grid: PairGrid, cover: Coverage, shard: int, record: int
) -> Iterator[IntArray]:
    """The places of the pairs whose right is a record of the right shard at this place."""
    if not cover.right[0] <= shard < cover.right[1]:
        return
    width = grid.right[shard].records
    begin = -_count_pairs_before_span(grid, cover)
    for row in range(*cover.left):
        if grid.unordered and row > shard:
            return
        pairs = grid.row(row)[0]
        start = begin + int(pairs[cover.right[0] : shard].sum())
        begin += int(pairs[slice(*cover.right)].sum())
        first, last = cover.span or (0, grid.left[row].records)
        if grid.unordered and row == shard:
            lefts = np.arange(first, min(last, record))
            yield start + _count_pairs_before_row(width, lefts) + record - lefts - 1
        else:
            yield start + np.arange(first, last) * width + record


def _is_in_span(cover: Coverage, record: int) -> bool:
    return cover.span is None or cover.span[0] <= record < cover.span[1]


def _count_pairs_before_shard(grid: PairGrid, cover: Coverage, shard: int) -> int:
    """How many pairs the left shards before this one have."""
    columns = slice(*cover.right)
    return sum(int(grid.row(row)[0][columns].sum()) for row in range(cover.left[0], shard))


def _count_pairs_before_span(grid: PairGrid, cover: Coverage) -> int:
    """How many pairs the records of the one left shard have that stand before the span."""
    if cover.span is None:
        return 0
    width = grid.right[cover.right[0]].records
    if grid.unordered and cover.left[0] == cover.right[0]:
        return _count_pairs_before_row(width, cover.span[0])
    return cover.span[0] * width


def _count_pairs_before_row(count: int, row: Row) -> Row:
    """How many pairs have a lower first one, where each two of so many are paired once."""
    return row * (2 * count - row - 1) // 2
