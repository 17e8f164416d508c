"""Coverage: which pairs of shards the shards of a combination contain, and which are missing.

An entry of a combination stores the coverage of each shard that it adds, in `outputs`. A coverage
has the positions of shards in the two snapshots that are the `inputs` of the entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import LogError
from shardline.log.parameters import CombineParameters
from shardline.log.version import StoredVersion
from shardline.pairing.pair_grid import PairEstimate, locate_triangle_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.canonical_json import Json
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.log.state import State
    from shardline.log.version import DerivedFrom
    from shardline.pairing.pair_grid import PairGrid


COMBINE_OPERATION = "combine"


@dataclass(frozen=True, slots=True)
class _EntryCoverage:
    """Coverage of the shards of an entry, and the current positions of its input shards.

    The position of a shard that was removed is -1.
    """

    covers: dict[str, Coverage]
    left: IntArray
    right: IntArray


def list_covering_shards(
    into: StoredVersion,
    state: State,
    origins: tuple[DerivedFrom, DerivedFrom],
    required: Json,
    covered: CoveredPairs,
    *,
    matched: bool,
) -> list[Shard]:
    """List the live shards whose pairs are still valid, in order, and add them to `covered`.

    Leaves out shards that failed a check, that have pairs of a removed shard, or whose entry does
    not have the `required` parameters. If records are `matched` by keys, the right side must be
    unchanged.
    """
    if not state.snapshot:
        return []
    reader = _EntryReader(into, origins, required)
    right_count = len(covered.grid.right) if matched else None
    valid = []
    for interval in state.shard_history.at(state.snapshot):
        if interval.failed:
            continue
        entry = reader.entry(interval.added_entry)
        cover = None if entry is None else entry.covers.get(interval.shard.name)
        if entry is None or cover is None:
            continue
        if right_count is None:
            is_valid = covered.add(cover, entry.left, entry.right)
        else:
            is_valid = _covers_all(entry.right, cover, right_count)
            is_valid = is_valid and covered.add_rows(cover, entry.left)
        valid += [interval.shard] if is_valid else []
    return valid


def _covers_all(right: IntArray, cover: Coverage, count: int) -> bool:
    """Return True if a coverage contains all right shards, and these are the current ones."""
    return cover.right == (0, count) and np.array_equal(right, np.arange(count))


def has_rule(entry: Entry) -> bool:
    """Return True if an entry has the rule of a combination."""
    return "rule" not in entry.read(CombineParameters).problems


def get_coverage(entry: Entry, position: int) -> Coverage | None:
    """Return the coverage of an added shard, None if the entry does not store it."""
    outputs = entry.read(CombineParameters).outputs
    if outputs is None or len(outputs) != len(entry.added):
        return None
    return Coverage.from_json(outputs[position])


class _EntryReader:
    """Reader of the entries of a combination, each once."""

    def __init__(
        self, into: StoredVersion, origins: tuple[DerivedFrom, DerivedFrom], required: Json
    ) -> None:
        self._into = into
        self._required = required
        self._origins = origins
        self._positions = [
            {
                (shard.name, shard.content): index
                for index, shard in enumerate(origin.snapshot.shards)
            }
            for origin in origins
        ]
        self._entries: dict[int, _EntryCoverage | None] = {}

    def entry(self, number: int) -> _EntryCoverage | None:
        """Return the coverage of an entry, None if it is of another combination or invalid."""
        if number not in self._entries:
            self._entries[number] = self._read(self._into.log.entry(number))
        return self._entries[number]

    def _read(self, entry: Entry) -> _EntryCoverage | None:
        outputs = entry.read(CombineParameters).outputs
        if (
            entry.operation != COMBINE_OPERATION
            or not self._required.items() <= entry.parameters.items()
            or len(entry.inputs) != len(self._origins)
            or outputs is None
            or len(outputs) != len(entry.added)
        ):
            return None
        left, right = (
            self._find_positions(*side)
            for side in zip(entry.inputs, self._origins, self._positions, strict=True)
        )
        if left is None or right is None:
            return None
        names = (item.shard.name for item in entry.added)
        try:
            covers = dict(zip(names, map(Coverage.from_json, outputs), strict=True))
        except ValueError:
            return None
        is_outside = any(
            cover.left[1] > len(left) or cover.right[1] > len(right) for cover in covers.values()
        )
        return None if is_outside else _EntryCoverage(covers, left, right)

    def _find_positions(
        self, recorded: Input, origin: DerivedFrom, positions: dict[tuple[str, str], int]
    ) -> IntArray | None:
        """Return the current positions of the shards of an input, None for another dataset."""
        version = origin.version
        if recorded.dataset != version.log.dataset:
            return None
        if recorded.label != version.name:
            version = StoredVersion(version.store, recorded.label)
        try:
            snapshot = version.snapshot(recorded.snapshot)
        except LogError:
            return None
        if version.log.entry(snapshot.entry).digest != recorded.entry:
            return None
        current = (positions.get((shard.name, shard.content), -1) for shard in snapshot.shards)
        return np.fromiter(current, np.int64, len(snapshot.shards))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The pairs in a shard: half-open ranges of positions of left and of right shards.

    With `span`, it has only these records of a single left shard. With unordered pairs, a left
    shard is not paired with earlier right ones.
    """

    left: tuple[int, int]
    right: tuple[int, int]
    span: tuple[int, int] | None = None

    def to_json(self) -> list[int]:
        """Serialize to log-entry JSON: `[l0, l1, r0, r1]`, and `first` and `last` of a span."""
        return [*self.left, *self.right, *(self.span or ())]

    @classmethod
    def from_json(cls, value: object) -> Coverage:
        """Parse log-entry JSON. Raises ValueError for anything else."""
        numbers = value if isinstance(value, list) else []
        is_valid = all(type(number) is int and number >= 0 for number in numbers)
        if len(numbers) not in {4, 6} or not is_valid:
            raise ValueError("invalid pairs of shards: expected 4 or 6 numbers")
        ranges = list(zip(numbers[::2], numbers[1::2], strict=True))
        return cls(ranges[0], ranges[1], ranges[2] if len(ranges) > 2 else None)


def estimate(grid: PairGrid, cover: Coverage) -> PairEstimate:
    """Return the number of pairs of a coverage, and of their bytes."""
    pairs = size = 0
    columns = slice(*cover.right)
    for row in range(*cover.left):
        counts, sizes = grid.row(row)
        pairs += int(counts[columns].sum())
        size += int(sizes[columns].sum())
    if cover.span is None:
        return PairEstimate(pairs, size)
    span_pairs = _count_span_pairs(grid, cover)
    return PairEstimate(span_pairs, size * span_pairs // max(pairs, 1))


def _count_span_pairs(grid: PairGrid, cover: Coverage) -> int:
    first, last = cover.span or (0, 0)
    count = grid.right[cover.right[0]].records
    if grid.unordered and cover.left[0] == cover.right[0]:
        before_first, before_last = (row * (2 * count - row - 1) // 2 for row in (first, last))
        return before_last - before_first
    return (last - first) * count


@dataclass(frozen=True)
class CoveredPairs:
    """The pairs of shards that exist: `whole`, or in `spans` for some of the left records."""

    grid: PairGrid
    whole: NDArray[np.bool_]
    spans: dict[int, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)

    @classmethod
    def empty(cls, grid: PairGrid) -> CoveredPairs:
        """Return the coverage without any pair."""
        return cls(grid, np.zeros((len(grid.left), len(grid.right)), np.bool_))

    def add(self, cover: Coverage, left: IntArray, right: IntArray) -> bool:
        """Add the coverage of a shard. Returns False if some pairs are invalid or exist already.

        `left` and `right` are the current positions of its input shards, -1 for a removed one.
        """
        rows, columns = left[slice(*cover.left)][:, None], right[slice(*cover.right)][None, :]
        covered = np.ones(np.broadcast_shapes(rows.shape, columns.shape), np.bool_)
        if self.grid.unordered:
            covered = np.arange(*cover.left)[:, None] <= np.arange(*cover.right)[None, :]
        valid = (rows >= 0) & (columns >= 0)
        if self.grid.unordered:
            valid &= rows <= columns
        if not valid[covered].all() or self.whole[rows, columns][covered].any():
            return False
        if cover.span is None:
            cells = (
                np.broadcast_to(rows, covered.shape)[covered],
                np.broadcast_to(columns, covered.shape)[covered],
            )
            listed = zip(cells[0].tolist(), cells[1].tolist(), strict=True)
            if any(column in self.spans.get(row, {}) for row, column in listed):
                return False
            self.whole[cells] = True
            return True
        return self._add_span((int(rows[0, 0]), int(columns[0, 0])), cover.span)

    def add_rows(self, cover: Coverage, left: IntArray) -> bool:
        """Add the coverage of records that are matched with all right shards, as column 0."""
        rows = left[slice(*cover.left)].tolist()
        if min(rows, default=0) < 0:
            return False
        spans = [cover.span or (0, self.grid.left[row].records) for row in rows]
        if any(self._is_covered((row, 0), span) for row, span in zip(rows, spans, strict=True)):
            return False
        for row, span in zip(rows, spans, strict=True):
            self._add_span((row, 0), span)
        return True

    def _is_covered(self, cell: tuple[int, int], span: tuple[int, int]) -> bool:
        known = self.spans.get(cell[0], {}).get(cell[1], ())
        return any(low < span[1] and span[0] < high for low, high in known)

    def _add_span(self, cell: tuple[int, int], span: tuple[int, int]) -> bool:
        if self._is_covered(cell, span):
            return False
        self.spans.setdefault(cell[0], {}).setdefault(cell[1], []).append(span)
        return True

    def gaps(self, row: int, column: int) -> list[tuple[int, int]]:
        """Return the spans of a left shard whose pairs with a right one are missing."""
        gaps, end = [], 0
        for first, last in sorted(self.spans.get(row, {}).get(column, ())):
            if first > end:
                gaps.append((end, first))
            end = last
        records = self.grid.left[row].records
        return [*gaps, (end, records)] if end < records else gaps


def list_missing_coverages(
    covered: CoveredPairs, target: int
) -> Iterator[tuple[Coverage, PairEstimate]]:
    """List the missing coverages in order, each of about the target size."""
    for cover in _iter_missing(covered, target):
        estimated = estimate(covered.grid, cover)
        if estimated.pairs:
            yield cover, estimated


def _iter_missing(covered: CoveredPairs, target: int) -> Iterator[Coverage]:
    waiting: _PendingCoverage | None = None
    for row in range(len(covered.grid.left)):
        covers = list(_split_row(covered, row, target))
        whole = covers[0] if len(covers) == 1 and covers[0].span is None else None
        if waiting is not None:
            if whole is not None and waiting.takes(covered.grid, whole, target):
                continue
            yield waiting.cover
            waiting = None
        if whole is not None:
            waiting = _PendingCoverage(whole, estimate(covered.grid, whole).bytes)
        else:
            yield from covers
    if waiting is not None:
        yield waiting.cover


@dataclass(slots=True)
class _PendingCoverage:
    """A coverage of whole rows, to which the next row may be added."""

    cover: Coverage
    bytes: int

    def takes(self, grid: PairGrid, row: Coverage, target: int) -> bool:
        """Add a row if it has the same right shards and fits the target size."""
        begin, end = self.cover.right
        begin = max(begin, row.left[0]) if grid.unordered else begin
        size = estimate(grid, row).bytes
        if row.right != (begin, end) or self.bytes + size > target:
            return False
        self.cover = Coverage((self.cover.left[0], row.left[1]), self.cover.right)
        self.bytes += size
        return True


def _split_row(covered: CoveredPairs, row: int, target: int) -> Iterator[Coverage]:
    """Yield the missing coverages of a left shard."""
    _, sizes = covered.grid.row(row)
    free = ~covered.whole[row]
    if covered.grid.unordered:
        free[:row] = False
    alone = free & (sizes > target)
    for column in covered.spans.get(row, ()):
        alone[column] = free[column]
    run: list[int] = []
    for column in np.flatnonzero(free).tolist():
        if run and (alone[column] or column != run[-1] + 1):
            yield from _split_run(row, run, sizes, target)
            run = []
        if alone[column]:
            for gap in covered.gaps(row, column):
                yield from _split_gap(covered.grid, row, column, gap, target)
        else:
            run.append(column)
    if run:
        yield from _split_run(row, run, sizes, target)


def _split_run(row: int, run: Sequence[int], sizes: IntArray, target: int) -> Iterator[Coverage]:
    """Split a row of consecutive right shards evenly. No size is over the target, no part is."""
    ends = np.cumsum(sizes[run[0] : run[-1] + 1])
    even = max(1, int(ends[-1]) // max(1, -(-int(ends[-1]) // target)))
    first = 0
    while first < len(run):
        done = int(ends[first - 1]) if first else 0
        enough = int(np.searchsorted(ends, done + even)) + 1
        fits = int(np.searchsorted(ends, done + target, "right"))
        last = min(enough, fits, len(run))
        yield Coverage((row, row + 1), (run[0] + first, run[0] + last))
        first = last


def _split_gap(
    grid: PairGrid, row: int, column: int, gap: tuple[int, int], target: int
) -> Iterator[Coverage]:
    """Split the pairs of a span of a left shard with a right one evenly, by whole records."""
    cover = Coverage((row, row + 1), (column, column + 1), gap)
    estimated = estimate(grid, cover)
    pieces = max(1, -(-estimated.bytes // target))
    records = grid.left[row].records
    if pieces == 1 and gap == (0, records):
        yield Coverage(cover.left, cover.right)
        return
    first, last = gap
    if grid.unordered and row == column:
        before = first * (2 * records - first - 1) // 2
        marks = (before + estimated.pairs * number // pieces for number in range(1, pieces))
        inner = [locate_triangle_row(records, mark) for mark in marks]
    else:
        inner = [first + (last - first) * number // pieces for number in range(1, pieces)]
    for span in pairwise(sorted({first, *inner, last})):
        yield Coverage(cover.left, cover.right, span)


def list_missing_rows(covered: CoveredPairs) -> list[tuple[int, tuple[int, int]]]:
    """List the spans of left shards that are not matched with all right shards yet."""
    return [(row, gap) for row in range(len(covered.grid.left)) for gap in covered.gaps(row, 0)]


def list_matched_coverages(
    grid: PairGrid, rows: Iterable[tuple[int, tuple[int, int], int]], target: int
) -> Iterator[tuple[Coverage, PairEstimate]]:
    """List the coverages of left records that are matched with all right shards.

    `rows` are positions of left shards, each with a span of its records and their number of pairs.
    """
    for cover, pairs in _iter_matched(grid, rows, target):
        yield cover, PairEstimate(pairs, grid.bytes_of(pairs))


def _iter_matched(
    grid: PairGrid, rows: Iterable[tuple[int, tuple[int, int], int]], target: int
) -> Iterator[tuple[Coverage, int]]:
    whole = (0, len(grid.right))
    run: list[int] = []
    total = 0
    for row, gap, pairs in rows:
        size = grid.bytes_of(pairs)
        alone = gap != (0, grid.left[row].records) or size > target
        if run and (alone or row != run[-1] + 1 or grid.bytes_of(total) + size > target):
            yield Coverage((run[0], run[-1] + 1), whole), total
            run, total = [], 0
        if not alone:
            run.append(row)
            total += pairs
            continue
        records = gap[1] - gap[0]
        pieces = max(1, min(-(-size // target), records))
        cuts = [gap[0] + records * number // pieces for number in range(pieces + 1)]
        for span in pairwise(cuts):
            yield Coverage((row, row + 1), whole, span), pairs * (span[1] - span[0]) // records
    if run:
        yield Coverage((run[0], run[-1] + 1), whole), total


def list_first_coverages(
    covers: Iterable[tuple[Coverage, PairEstimate]], limit: int
) -> Iterator[tuple[Coverage, PairEstimate]]:
    """List the coverages of the first pairs, with the number of these in each."""
    for cover, estimated in covers:
        pairs = min(estimated.pairs, limit)
        yield cover, PairEstimate(pairs, estimated.bytes * pairs // max(estimated.pairs, 1))
        limit -= pairs
        if not limit:
            return
