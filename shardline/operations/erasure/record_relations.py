"""Which pairs of a combination are made of given records: by counting, or as its row map tells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from shardline.log.model import RECEIPT, ROWS
from shardline.log.parameters import CombineParameters, EraseParameters, RepairParameters
from shardline.pairing.combine_spec import has_pair_selection
from shardline.pairing.coverage import Coverage, estimate, get_coverage, has_rule
from shardline.pairing.pair_grid import PairGrid, RecordExtent
from shardline.provenance.dataset_history import ERASE
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapError
from shardline.sidecars.sidecar_reader import SidecarMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.provenance.dataset_history import DatasetHistory, VersionHistory
    from shardline.sidecars.sidecar_reader import SidecarReader


ShardNames: TypeAlias = "tuple[str | None, ...]"
"""The shards of a side, in order; None for one of which no rows are carried on."""


@dataclass(frozen=True)
class GridRelation:
    """A shard of all pairs of some shards of two lists, as a combination covers them.

    A `virtual` one is a plan: it may have far more pairs than anyone could list.
    """

    name: str
    left: ShardNames
    right: ShardNames
    grid: PairGrid
    cover: Coverage
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
            before = Coverage(self.cover.left, self.cover.right, (0, span[0]))
            start = -estimate(self.grid, before).pairs
        for at in range(*self.cover.left):
            low, high = span or (0, self.grid.left[at].records)
            pairs = self.grid.row(at)[0]
            lefts = rows[(rows >= low) & (rows < high)] if self.left[at] == name else rows[:0]
            for column in range(first, last):
                rights = rows if self.right[column] == name else rows[:0]
                count = self.grid.right[column].records
                triangle = self.grid.unordered and column == at
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


def count_pairs(plans: Sequence[GridRelation], rows: Mapping[str, IntArray]) -> int:
    """How many pairs of one plan follow from rows of its sides, without listing them.

    `plans` are all that is known of it: each may tell of other shards of its sides.
    """
    grid, cover = plans[0].grid, plans[0].cover
    lefts = {at: _collect_rows(rows, {one.left[at] for one in plans}) for at in range(*cover.left)}
    rights = {
        at: _collect_rows(rows, {one.right[at] for one in plans}) for at in range(*cover.right)
    }
    total = 0
    for at, left in lefts.items():
        for column, right in rights.items():
            high, wide = grid.left[at].records, grid.right[column].records
            if grid.unordered and column == at:
                # Each two once: a pair with both is one of those before the right in the left.
                both = int(np.searchsorted(left, right).sum())
                total += int((wide - 1 - left).sum()) + int(right.sum()) - both
            elif not grid.unordered or column > at:
                total += len(left) * wide + len(right) * high - len(left) * len(right)
    return total


def _collect_rows(rows: Mapping[str, IntArray], names: set[str | None]) -> IntArray:
    """The rows of one shard, whatever names they were found under."""
    found = [rows[name] for name in names if name is not None and name in rows]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


@dataclass(frozen=True)
class RowMapRelation:
    """A shard of some of the pairs, each told by its row map.

    `firsts` are the numbers, on each side, from which that counts.
    """

    name: str
    left: ShardNames
    right: ShardNames
    grid: PairGrid
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


def _numbers(
    name: str, rows: IntArray, names: ShardNames, extents: Sequence[RecordExtent]
) -> IntArray:
    """The numbers that rows of a shard have among all records of a side."""
    firsts = _firsts(extents)
    found = [rows + first for first, other in zip(firsts, names, strict=False) if other == name]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _firsts(extents: Sequence[RecordExtent]) -> list[int]:
    return list(accumulate((one.records for one in extents), initial=0))


def list_pair_relations(
    history: DatasetHistory, entry: Entry
) -> Iterator[GridRelation | RowMapRelation]:
    """What the shards of a combination are made of, if one of its sides is of this dataset."""
    if entry.operation != "combine" or not has_rule(entry) or len(entry.inputs) != 2:
        return
    ours = [history.of_input(told) is not None for told in entry.inputs]
    if not any(ours):
        return
    listed = [_list_input_shards(history, told) for told in entry.inputs]
    extents = [tuple(RecordExtent(shard.records, 0) for shard in side) for side in listed]
    grid = PairGrid(extents[0], extents[1], entry.read(CombineParameters).is_unordered)
    left, right = (
        tuple(shard.name if own else None for shard in side)
        for own, side in zip(ours, listed, strict=True)
    )
    chosen = has_pair_selection(entry.parameters)
    for at, added in enumerate(entry.added):
        shard = added.shard
        cover = get_coverage(entry, at)
        if chosen:
            path = f"{history.dataset}/shards/{shard.name}{ROWS}"
            row_map = RowMap(history.store, path, shard.records, 2)
            begin = (0, 0) if cover is None else (cover.left[0], cover.right[0])
            firsts = (_firsts(grid.left)[begin[0]], _firsts(grid.right)[begin[1]])
            if _is_row_map_intact(row_map, history.versions[entry.version].sidecars):
                yield RowMapRelation(shard.name, left, right, grid, firsts, row_map)
        elif cover is not None and estimate(grid, cover).pairs == shard.records:
            yield GridRelation(shard.name, left, right, grid, cover, shard.virtual)


def _is_row_map_intact(row_map: RowMap, sidecars: SidecarReader) -> bool:
    """Whether a row map is there and is the committed one."""
    try:
        sidecars.compare(row_map.name.rpartition("/")[2])
        for _ in row_map.lots():
            pass
    except (RowMapError, SidecarMismatchError):
        return False
    return True


def _list_input_shards(history: DatasetHistory, told: Input) -> tuple[Shard, ...]:
    """The shards of an input of a combination, of this dataset or another."""
    side = history.of_input(told)
    if side is not None:
        return side.listed(told.snapshot)
    return history.index.version(told.shown).snapshot(told.snapshot).shards


ShardRows: TypeAlias = "dict[str, IntArray]"


class Relation(Protocol):
    """How the records of some shards follow from those of others."""

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        ...

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        ...

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        ...


@dataclass(frozen=True, slots=True)
class AlignedRelation:
    """Two shards of the same records in the same order; those in `gone` are in the first only."""

    first: str
    second: str
    gone: tuple[tuple[int, int], ...] = ()

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        return self.first, self.second

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        return self.names()

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        gone = expand_spans(self.gone)
        if name == self.first:
            kept = np.setdiff1d(rows, gone)
            yield self.second, kept - np.searchsorted(gone, kept)
        else:
            # Before row r of the second so many of the first are gone that stand at or before it.
            shifted = gone - np.arange(len(gone))
            yield self.first, rows + np.searchsorted(shifted, rows, "right")


@dataclass(frozen=True, slots=True)
class LayoutRelation:
    """The same records, laid out in two lists of shards; each shard with its first row."""

    one: tuple[tuple[str, int, int], ...]
    other: tuple[tuple[str, int, int], ...]

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        return (name for name, _, _ in (*self.one, *self.other))

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        return self.names()

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        for here, there in ((self.one, self.other), (self.other, self.one)):
            for found, first, _ in here:
                if found != name:
                    continue
                places = rows + first
                for other, begin, end in there:
                    low, high = np.searchsorted(places, (begin, end))
                    if high > low:
                        yield other, places[low:high] - begin


def expand_spans(spans: Sequence[tuple[int, int]]) -> IntArray:
    """All rows of spans of first and last."""
    parts = [np.arange(first, last + 1) for first, last in spans]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def collapse_rows(rows: IntArray) -> list[tuple[int, int]]:
    """Rows, which ascend, as spans of first and last."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(rows, cuts)]


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """Rows with all that follow from them.

    Of plans from which nothing follows, `pairs` tells how many pairs are meant, and `rows` only
    that there are some.
    """

    rows: ShardRows
    pairs: dict[str, int]


def spread_rows(found: Mapping[str, IntArray], relations: Iterable[Relation]) -> RelatedRows:
    """The rows with all that follow from them, until nothing more does."""
    relations = list(relations)
    rows: ShardRows = {name: some for name, some in found.items() if len(some)}
    going_on = {name for relation in relations for name in relation.names()} | set(rows)
    plans: dict[str, list[GridRelation]] = {}
    touching: dict[str, list[Relation]] = {}
    for relation in relations:
        if (
            isinstance(relation, GridRelation)
            and relation.virtual
            and relation.name not in going_on
        ):
            plans.setdefault(relation.name, []).append(relation)
            continue
        for name in set(relation.names()):
            touching.setdefault(name, []).append(relation)
    waiting = deque(rows)
    while waiting:
        name = waiting.popleft()
        for relation in touching.get(name, ()):
            for other, more in relation.carry(name, rows[name]):
                known = rows.get(other)
                merged = np.unique(more) if known is None else np.union1d(known, more)
                if len(merged) > (0 if known is None else len(known)):
                    rows[other] = merged
                    waiting.append(other)
    pairs = {name: count_pairs(some, rows) for name, some in plans.items()}
    pairs = {name: count for name, count in pairs.items() if count}
    return RelatedRows(rows | dict.fromkeys(pairs, np.zeros(0, np.int64)), pairs)


def list_reached_shards(from_names: Iterable[str], relations: Iterable[Relation]) -> set[str]:
    """The shards whose rows follow, one way or another, from those of some."""
    touching: dict[str, list[Relation]] = {}
    for relation in relations:
        for name in set(relation.names()):
            touching.setdefault(name, []).append(relation)
    found = set(from_names)
    waiting = deque(found)
    while waiting:
        for relation in touching.get(waiting.popleft(), ()):
            more = set(relation.reaches())
            waiting.extend(more - found)
            found |= more
    return found


def get_erased_rows(history: DatasetHistory) -> ShardRows:
    """The rows of old shards that an earlier erase took out, as the receipts of the new ones tell.

    Of shards that were given up and not written anew its entry tells, unless they are too many. So
    whatever was made of them and is still there is found, also if that erase was stopped.
    """
    found: ShardRows = {}
    for relation in _list_operation_relations(history, ERASE):
        if isinstance(relation, AlignedRelation) and relation.gone:
            found[relation.first] = expand_spans(relation.gone)
    for one in history.versions.values():
        for entry in one.entries:
            if entry.operation == ERASE:
                older = entry.read(EraseParameters).older
                found |= {name: expand_spans(spans) for name, spans in older.items()}
    return found


def list_relations(history: DatasetHistory) -> list[Relation]:
    """All that the logs of a dataset tell."""
    return list(_list_operation_relations(history, None))


def _list_operation_relations(history: DatasetHistory, operation: str | None) -> Iterator[Relation]:
    pending: list[tuple[Shard, Shard]] = []
    for one in history.versions.values():
        for entry in one.entries:
            if not entry.added or operation not in {None, entry.operation}:
                continue
            yield from _list_layouts(history, one, entry)
            yield from list_pair_relations(history, entry)
            pending += _list_replaced_shards(history, entry)
    yield from align_shards(history, pending)


def _list_replaced_shards(history: DatasetHistory, entry: Entry) -> Iterator[tuple[Shard, Shard]]:
    """Shards that an entry adds, with the one that each is made of."""
    of = list(entry.bases)
    if entry.operation == "repair" and not entry.read(RepairParameters).lost_records:
        of = list(entry.removed)
    for place, one in enumerate(entry.added):
        shard = one.shard
        if shard.base is not None and shard.base.name in history.shards:
            yield history.shards[shard.base.name], shard
        if place < len(of) and (shard.base is None or of[place] != shard.base.name):
            first = history.shards.get(of[place])
            if first is not None:
                yield first, shard


def align_shards(
    history: DatasetHistory, pairs: Sequence[tuple[Shard, Shard]]
) -> Iterator[Relation]:
    """Each two as they stand to each other; where some are missing, a receipt must tell which.

    The second of each two is of this dataset, the first may be of another. Raises
    SidecarMismatchError for a receipt that differs from the committed one.
    """
    cut = [pair for pair in pairs if pair[0].records != pair[1].records]
    for first, second in pairs:
        if first.records == second.records:
            yield AlignedRelation(first.name, second.name)
    contents = _read_receipts(history, [second.name for _, second in cut])
    for first, second in cut:
        receipt = parse_receipt(contents[second.name])
        if receipt is None or receipt.first:
            continue
        if first.records - receipt.refused_rows == second.records:
            yield AlignedRelation(first.name, second.name, receipt.refused)


def _read_receipts(history: DatasetHistory, shards: Sequence[str]) -> dict[str, bytes | None]:
    """Read the receipts of shards; raises SidecarMismatchError for one that was not committed."""
    by_owner: dict[str, list[str]] = {}
    for shard in shards:
        by_owner.setdefault(history.owner(shard).name, []).append(shard)
    found: dict[str, bytes | None] = {}
    for names in by_owner.values():
        receipts = [f"{name}{RECEIPT}" for name in names]
        contents = history.owner(names[0]).sidecars.read(receipts)
        found |= dict(zip(names, contents, strict=True))
    return found


def _list_layouts(history: DatasetHistory, one: VersionHistory, entry: Entry) -> Iterator[Relation]:
    """What a rebuild laid out anew, in place or in another version."""
    if entry.operation != "rebuild":
        return
    if not entry.inputs:
        before = [one.shards[name] for name in entry.removed]
        after = [added.shard for added in entry.added]
    else:
        base = history.of_input(entry.inputs[0])
        if base is None or entry.inputs[0].snapshot > base.version.state.snapshot:
            return
        before = list(base.listed(entry.inputs[0].snapshot))
        after = list(one.listed(entry.snapshot))
    yield from make_layout(before, after, entry)


def make_layout(
    before: Sequence[Shard], after: Sequence[Shard], entry: Entry
) -> Iterator[LayoutRelation]:
    """Where the records stand in the shards that an entry adds, and stood before."""
    if sum(shard.records for shard in before) != sum(shard.records for shard in after):
        return
    new = {added.shard.name for added in entry.added}
    placed = [place for place in _number_shards(after) if place[0] in new]
    if placed:
        low, high = placed[0][1], placed[-1][2]
        old = [place for place in _number_shards(before) if place[2] > low and place[1] < high]
        yield LayoutRelation(tuple(old), tuple(placed))


def _number_shards(shards: Sequence[Shard]) -> list[tuple[str, int, int]]:
    """Shards with the first row of each, and that behind its last."""
    ends = list(accumulate((shard.records for shard in shards), initial=0))
    return [(shard.name, ends[at], ends[at + 1]) for at, shard in enumerate(shards)]
