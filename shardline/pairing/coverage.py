"""What the shards of a combination cover, read back from the entries that they landed with.

An entry of a combination tells its rule, and for each shard that it adds, in the same order, what
that covers: `outputs`, by the places of shards in the snapshots that are its two `inputs`.
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
    """What an entry tells: what its shards cover, and where the shards of its inputs are now."""

    covers: dict[str, Coverage]
    left: IntArray
    right: IntArray


def list_covering_shards(
    into: StoredVersion,
    state: State,
    origins: tuple[DerivedFrom, DerivedFrom],
    told: Json,
    covered: CoveredPairs,
    *,
    matched: bool,
) -> list[Shard]:
    """The shards of the head that still cover what is wanted, in order; noted in `covered`.

    Those that failed a check, of an entry that does not tell the same, or made of a shard that is
    gone, are not among them. If records are `matched`, the right must be what it was, all of it.
    """
    if not state.snapshot:
        return []
    reading = _EntryReader(into, origins, told)
    whole = len(covered.grid.right) if matched else None
    kept = []
    for stay in state.stays.at(state.snapshot):
        if stay.failed:
            continue
        entry = reading.entry(stay.landed)
        cover = None if entry is None else entry.covers.get(stay.shard.name)
        if entry is None or cover is None:
            continue
        if whole is None:
            fits = covered.add(cover, entry.left, entry.right)
        else:
            fits = _covers_all(entry.right, cover, whole) and covered.add_rows(cover, entry.left)
        kept += [stay.shard] if fits else []
    return kept


def _covers_all(right: IntArray, cover: Coverage, count: int) -> bool:
    """Whether what was matched with was just the shards that there are on the right."""
    return cover.right == (0, count) and np.array_equal(right, np.arange(count))


def has_rule(entry: Entry) -> bool:
    """Return True if an entry has the rule of a combination."""
    return "rule" not in entry.read(CombineParameters).problems


def get_coverage(entry: Entry, place: int) -> Coverage | None:
    """Return what the added shard at a place covers; None if the entry does not say."""
    outputs = entry.read(CombineParameters).outputs
    if outputs is None or len(outputs) != len(entry.added):
        return None
    return Coverage.from_json(outputs[place])


class _EntryReader:
    """Entries of a combination, each read once."""

    def __init__(
        self, into: StoredVersion, origins: tuple[DerivedFrom, DerivedFrom], told: Json
    ) -> None:
        self._into = into
        self._told = told
        self._origins = origins
        self._now = [
            {(shard.name, shard.content): at for at, shard in enumerate(origin.snapshot.shards)}
            for origin in origins
        ]
        self._entries: dict[int, _EntryCoverage | None] = {}

    def entry(self, number: int) -> _EntryCoverage | None:
        """What an entry tells, None if that is of no use."""
        if number not in self._entries:
            self._entries[number] = self._read(self._into.log.entry(number))
        return self._entries[number]

    def _read(self, entry: Entry) -> _EntryCoverage | None:
        """What an entry tells, if it is one of the same combination."""
        outputs = entry.read(CombineParameters).outputs
        if (
            entry.operation != COMBINE_OPERATION
            or not self._told.items() <= entry.parameters.items()
            or len(entry.inputs) != len(self._origins)
            or outputs is None
            or len(outputs) != len(entry.added)
        ):
            return None
        left, right = (
            self._places(told, origin, now)
            for told, origin, now in zip(entry.inputs, self._origins, self._now, strict=True)
        )
        if left is None or right is None:
            return None
        names = (one.shard.name for one in entry.added)
        try:
            covers = dict(zip(names, map(Coverage.from_json, outputs), strict=True))
        except ValueError:
            return None
        listed = covers.values()
        outside = any(one.left[1] > len(left) or one.right[1] > len(right) for one in listed)
        return None if outside else _EntryCoverage(covers, left, right)

    def _places(
        self, told: Input, origin: DerivedFrom, now: dict[tuple[str, str], int]
    ) -> IntArray | None:
        """Where the shards of an input are in that of today; None if it is of another dataset."""
        version = origin.version
        if told.dataset != version.log.dataset:
            return None
        name = told.shown
        if name != version.name:
            version = StoredVersion(version.store, name)
        try:
            snapshot = version.snapshot(told.snapshot)
        except LogError:
            return None
        if version.log.entry(snapshot.entry).digest != told.entry:
            return None
        places = (now.get((shard.name, shard.content), -1) for shard in snapshot.shards)
        return np.fromiter(places, np.int64, len(snapshot.shards))


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a shard of a combination covers: left shards and right shards, by their places.

    Both are half open. `span` are the records of the one left shard, if it is one pair of shards
    that is cut. With pairs that ascend, only those are meant whose left shard is not the later.
    """

    left: tuple[int, int]
    right: tuple[int, int]
    span: tuple[int, int] | None = None

    def to_json(self) -> list[int]:
        """As an entry tells it: `[l0, l1, r0, r1]`, and if it is cut, `first` and `last`."""
        return [*self.left, *self.right, *(self.span or ())]

    @classmethod
    def from_json(cls, value: object) -> Coverage:
        """Read it back; refuses with ValueError what is none."""
        listed = value if isinstance(value, list) else []
        if len(listed) not in {4, 6} or not all(type(one) is int and one >= 0 for one in listed):
            raise ValueError("this tells of no pairs of shards")
        pairs = [(listed[at], listed[at + 1]) for at in range(0, len(listed), 2)]
        return cls(pairs[0], pairs[1], pairs[2] if len(pairs) > 2 else None)


def estimate(grid: PairGrid, cover: Coverage) -> PairEstimate:
    """How many pairs a cover has, and how many bytes."""
    pairs = size = 0
    columns = slice(*cover.right)
    for row in range(*cover.left):
        counts, sizes = grid.row(row)
        pairs += int(counts[columns].sum())
        size += int(sizes[columns].sum())
    if cover.span is None:
        return PairEstimate(pairs, size)
    cut = _count_span_pairs(grid, cover)
    return PairEstimate(cut, size * cut // max(pairs, 1))


def _count_span_pairs(grid: PairGrid, cover: Coverage) -> int:
    first, last = cover.span or (0, 0)
    count = grid.right[cover.right[0]].records
    if grid.unordered and cover.left[0] == cover.right[0]:
        return sum(at * (2 * count - at - 1) // 2 * sign for at, sign in ((last, 1), (first, -1)))
    return (last - first) * count


@dataclass(frozen=True)
class CoveredPairs:
    """Which pairs of shards are covered by what is there: whole, or some records of the left."""

    grid: PairGrid
    whole: NDArray[np.bool_]
    spans: dict[int, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)

    @classmethod
    def empty(cls, grid: PairGrid) -> CoveredPairs:
        """Return the coverage without any pair."""
        return cls(grid, np.zeros((len(grid.left), len(grid.right)), np.bool_))

    def add(self, cover: Coverage, left: IntArray, right: IntArray) -> bool:
        """Note what a shard covers, if all of it is wanted and not there yet; says whether it is.

        `left` and `right` tell the places of its shards now; -1 is for one that is gone.
        """
        rows, columns = left[slice(*cover.left)][:, None], right[slice(*cover.right)][None, :]
        meant = np.ones(np.broadcast_shapes(rows.shape, columns.shape), np.bool_)
        if self.grid.unordered:
            meant = np.arange(*cover.left)[:, None] <= np.arange(*cover.right)[None, :]
        wanted = (rows >= 0) & (columns >= 0)
        if self.grid.unordered:
            wanted &= rows <= columns
        if not wanted[meant].all() or self.whole[rows, columns][meant].any():
            return False
        if cover.span is None:
            cells = (
                np.broadcast_to(rows, meant.shape)[meant],
                np.broadcast_to(columns, meant.shape)[meant],
            )
            listed = zip(*(one.tolist() for one in cells), strict=True)
            if any(column in self.spans.get(row, {}) for row, column in listed):
                return False
            self.whole[cells] = True
            return True
        return self._add_span((int(rows[0, 0]), int(columns[0, 0])), cover.span)

    def add_rows(self, cover: Coverage, left: IntArray) -> bool:
        """The same for records that are matched with all right shards, which count as one."""
        rows = left[slice(*cover.left)].tolist()
        if min(rows, default=0) < 0:
            return False
        spans = [cover.span or (0, self.grid.left[row].records) for row in rows]
        if any(self._is_there((row, 0), span) for row, span in zip(rows, spans, strict=True)):
            return False
        for row, span in zip(rows, spans, strict=True):
            self._add_span((row, 0), span)
        return True

    def _is_there(self, cell: tuple[int, int], span: tuple[int, int]) -> bool:
        known = self.spans.get(cell[0], {}).get(cell[1], ())
        return any(low < span[1] and span[0] < high for low, high in known)

    def _add_span(self, cell: tuple[int, int], span: tuple[int, int]) -> bool:
        if self._is_there(cell, span):
            return False
        self.spans.setdefault(cell[0], {}).setdefault(cell[1], []).append(span)
        return True

    def gaps(self, row: int, column: int) -> list[tuple[int, int]]:
        """The records of a left shard whose pairs with a right one are not there."""
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
    """What is to be made so that all pairs are there, in order, each of about the target size."""
    for cover in _iter_missing(covered, target):
        found = estimate(covered.grid, cover)
        if found.pairs:
            yield cover, found


def _iter_missing(covered: CoveredPairs, target: int) -> Iterator[Coverage]:
    waiting: _PendingCoverage | None = None
    for row in range(len(covered.grid.left)):
        found = list(_split_row(covered, row, target))
        whole = found[0] if len(found) == 1 and found[0].span is None else None
        if waiting is not None:
            if whole is not None and waiting.takes(covered.grid, whole, target):
                continue
            yield waiting.cover
            waiting = None
        if whole is not None:
            waiting = _PendingCoverage(whole, estimate(covered.grid, whole).bytes)
        else:
            yield from found
    if waiting is not None:
        yield waiting.cover


@dataclass(slots=True)
class _PendingCoverage:
    """What is to be made of whole rows, to which the next may be added."""

    cover: Coverage
    bytes: int

    def takes(self, grid: PairGrid, row: Coverage, target: int) -> bool:
        """Add a row, if it has the same right shards and there is room for it."""
        begin, end = self.cover.right
        begin = max(begin, row.left[0]) if grid.unordered else begin
        size = estimate(grid, row).bytes
        if row.right != (begin, end) or self.bytes + size > target:
            return False
        self.cover = Coverage((self.cover.left[0], row.left[1]), self.cover.right)
        self.bytes += size
        return True


def _split_row(covered: CoveredPairs, row: int, target: int) -> Iterator[Coverage]:
    """What is to be made of the pairs of one left shard."""
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
    """Pairs of a left shard with right ones that follow each other, in pieces that are even.

    None of the sizes is over the target, and no piece is.
    """
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
    """Pairs of some records of a left shard with a right one, in even pieces of whole records."""
    cover = Coverage((row, row + 1), (column, column + 1), gap)
    found = estimate(grid, cover)
    pieces = max(1, -(-found.bytes // target))
    records = grid.left[row].records
    if pieces == 1 and gap == (0, records):
        yield Coverage(cover.left, cover.right)
        return
    first, last = gap
    if grid.unordered and row == column:
        before = first * (2 * records - first - 1) // 2
        marks = (before + found.pairs * number // pieces for number in range(1, pieces))
        inner = [locate_triangle_row(records, mark) for mark in marks]
    else:
        inner = [first + (last - first) * number // pieces for number in range(1, pieces)]
    for span in pairwise(sorted({first, *inner, last})):
        yield Coverage(cover.left, cover.right, span)


def list_missing_rows(covered: CoveredPairs) -> list[tuple[int, tuple[int, int]]]:
    """The records of left shards that are not there yet, matched with all right ones."""
    return [(row, gap) for row in range(len(covered.grid.left)) for gap in covered.gaps(row, 0)]


def list_matched_coverages(
    grid: PairGrid, rows: Iterable[tuple[int, tuple[int, int], int]], target: int
) -> Iterator[tuple[Coverage, PairEstimate]]:
    """What is to be made of left shards that are matched with all right ones.

    `rows` are places of left shards, the records of them that are meant, and how many pairs these
    have.
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
    """Those that have the first pairs, and how many of these each has."""
    for cover, found in covers:
        pairs = min(found.pairs, limit)
        yield cover, PairEstimate(pairs, found.bytes * pairs // max(found.pairs, 1))
        limit -= pairs
        if not limit:
            return
