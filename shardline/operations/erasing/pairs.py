"""Which pairs of a combination are made of given records: by counting, or as its row map tells."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.log.sidecar_names import ROWS
from shardline.log.version import StoredVersion
from shardline.pairing.coverage import Cover, estimate
from shardline.pairing.grid import Extent, Grid
from shardline.sidecars.reader import SidecarMismatchError
from shardline.sidecars.row_map import RowMap, RowMapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.operations.erasing.history import DatasetHistory
    from shardline.sidecars.reader import SidecarReader

Names: TypeAlias = "tuple[str | None, ...]"
"""The shards of a side, in order; None for one of which no rows are carried on."""
_CHOOSING = ("limit", "sample")


@dataclass(frozen=True)
class Paired:
    """A shard of all pairs of some shards of two lists, as a combination covers them.

    A `virtual` one is a plan: it may have far more pairs than anyone could list.
    """

    name: str
    left: Names
    right: Names
    grid: Grid
    cover: Cover
    virtual: bool = False

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        sides = (self.left[slice(*self.cover.left)], self.right[slice(*self.cover.right)])
        return {name for side in sides for name in side if name is not None}

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow: a pair goes with its records, and not they with it."""
        return (self.name,)

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        found = list(self._places(name, rows))
        if found:
            yield self.name, np.unique(np.concatenate(found))

    def _places(self, name: str, rows: IntArray) -> Iterator[IntArray]:
        """The places of the pairs that one of these rows stands in, for each two shards."""
        first, last = self.cover.right
        span = self.cover.span
        start = 0
        if span is not None:
            before = Cover(self.cover.left, self.cover.right, (0, span[0]))
            start = -estimate(self.grid, before).pairs
        for at in range(*self.cover.left):
            low, high = span or (0, self.grid.left[at].records)
            pairs = self.grid.row(at)[0]
            lefts = rows[(rows >= low) & (rows < high)] if self.left[at] == name else rows[:0]
            for column in range(first, last):
                rights = rows if self.right[column] == name else rows[:0]
                count = self.grid.right[column].records
                triangle = self.grid.once and column == at
                if pairs[column] and (len(lefts) or len(rights)):
                    meant = _triangle if triangle else _rectangle
                    yield start + meant(lefts, rights, (low, high), count)
                start += int(pairs[column])


def _rectangle(lefts: IntArray, rights: IntArray, span: tuple[int, int], count: int) -> IntArray:
    """Where pairs with one of these stand among all of two shards, the right with so many."""
    of_left = lefts[:, None] * count + np.arange(count)
    of_right = np.arange(*span)[:, None] * count + rights
    return np.concatenate([of_left.ravel(), of_right.ravel()])


def _triangle(lefts: IntArray, rights: IntArray, span: tuple[int, int], count: int) -> IntArray:
    """The same of one shard with itself, each two of its records once."""
    every = np.arange(count)
    one = np.concatenate([np.repeat(lefts, count), np.tile(np.arange(*span), len(rights))])
    other = np.concatenate([np.tile(every, len(lefts)), np.repeat(rights, span[1] - span[0])])
    one, other = one[one < other], other[one < other]
    places: IntArray = one * (2 * count - one - 1) // 2 + other - one - 1
    return places


def count_pairs(plans: Sequence[Paired], rows: Mapping[str, IntArray]) -> int:
    """How many pairs of one plan follow from rows of its sides, without listing them.

    `plans` are all that is known of it: each may tell of other shards of its sides.
    """
    grid, cover = plans[0].grid, plans[0].cover
    lefts = {at: _meant(rows, {one.left[at] for one in plans}) for at in range(*cover.left)}
    rights = {at: _meant(rows, {one.right[at] for one in plans}) for at in range(*cover.right)}
    total = 0
    for at, left in lefts.items():
        for column, right in rights.items():
            high, wide = grid.left[at].records, grid.right[column].records
            if grid.once and column == at:
                # Each two once: a pair with both is one of those before the right in the left.
                both = int(np.searchsorted(left, right).sum())
                total += int((wide - 1 - left).sum()) + int(right.sum()) - both
            elif not grid.once or column > at:
                total += len(left) * wide + len(right) * high - len(left) * len(right)
    return total


def _meant(rows: Mapping[str, IntArray], names: set[str | None]) -> IntArray:
    """The rows of one shard, whatever names they were found under."""
    found = [rows[name] for name in names if name is not None and name in rows]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


@dataclass(frozen=True)
class ChosenPairs:
    """A shard of some of the pairs, each told by its row map.

    `firsts` are the numbers, on each side, from which that counts.
    """

    name: str
    left: Names
    right: Names
    grid: Grid
    firsts: tuple[int, int]
    row_map: RowMap

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        return {name for name in (*self.left, *self.right) if name is not None}

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow: a pair goes with its records, and not they with it."""
        return (self.name,)

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        sides = ((self.left, self.grid.left), (self.right, self.grid.right))
        numbers = [
            _numbers(name, rows, names, extents) - first
            for (names, extents), first in zip(sides, self.firsts, strict=True)
        ]
        found = []
        # No match is -1 in a row map, and so must no record be that stands before the firsts.
        numbers = [some[some >= 0] for some in numbers]
        for first, told in self.row_map.lots():
            meant = np.isin(told[:, 0], numbers[0]) | np.isin(told[:, 1], numbers[1])
            found.append(first + np.flatnonzero(meant))
        if found:
            yield self.name, np.concatenate(found)


def _numbers(name: str, rows: IntArray, names: Names, extents: Sequence[Extent]) -> IntArray:
    """The numbers that rows of a shard have among all records of a side."""
    firsts = _firsts(extents)
    found = [rows + first for first, other in zip(firsts, names, strict=False) if other == name]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _firsts(extents: Sequence[Extent]) -> list[int]:
    return list(accumulate((one.records for one in extents), initial=0))


def pairs_of(history: DatasetHistory, entry: Entry) -> Iterator[Paired | ChosenPairs]:
    """What the shards of a combination are made of, if one of its sides is of this dataset."""
    told = entry.parameters
    rule = told.get("rule")
    if entry.operation != "combine" or not isinstance(rule, dict) or len(entry.inputs) != 2:
        return
    ours = [history.of_input(told) is not None for told in entry.inputs]
    if not any(ours):
        return
    listed = [_listed(history, told) for told in entry.inputs]
    extents = [tuple(Extent(shard.records, 0) for shard in side) for side in listed]
    grid = Grid(extents[0], extents[1], bool(rule.get("once")))
    left, right = (
        tuple(shard.name if own else None for shard in side)
        for own, side in zip(ours, listed, strict=True)
    )
    outputs = told.get("outputs")
    covers = [Cover.from_json(one) for one in outputs] if isinstance(outputs, list) else []
    chosen = is_chosen(entry)
    for at, added in enumerate(entry.added):
        shard = added.shard
        cover = covers[at] if len(covers) == len(entry.added) else None
        if chosen:
            path = f"{history.dataset}/shards/{shard.name}{ROWS}"
            row_map = RowMap(history.store, path, shard.records, 2)
            begin = (0, 0) if cover is None else (cover.left[0], cover.right[0])
            firsts = (_firsts(grid.left)[begin[0]], _firsts(grid.right)[begin[1]])
            if _whole(row_map, history.versions[entry.version].sidecars):
                yield ChosenPairs(shard.name, left, right, grid, firsts, row_map)
        elif cover is not None and estimate(grid, cover).pairs == shard.records:
            yield Paired(shard.name, left, right, grid, cover, shard.virtual)


def is_chosen(entry: Entry) -> bool:
    """Whether a combination took some of the pairs, so that a row map tells which."""
    told = entry.parameters
    return bool({"on", "where"} & set(told["rule"])) or bool(set(_CHOOSING) & set(told))


def _whole(row_map: RowMap, sidecars: SidecarReader) -> bool:
    """Whether a row map is there and is the committed one."""
    try:
        sidecars.compare(row_map.name.rpartition("/")[2])
        for _ in row_map.lots():
            pass
    except (RowMapError, SidecarMismatchError):
        return False
    return True


def _listed(history: DatasetHistory, told: Input) -> tuple[Shard, ...]:
    """The shards of an input of a combination, of this dataset or another."""
    side = history.of_input(told)
    if side is not None:
        return side.listed(told.snapshot)
    version = StoredVersion(history.store, told.shown)
    return version.snapshot(told.snapshot).shards
