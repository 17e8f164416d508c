"""Of which two records each pair of a combined shard is made: by counting, or by its row map."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.pairing.coverage import has_rule
from shardline.provenance.log_index import TraceGapError
from shardline.provenance.related_rows import (
    align_shards,
    list_mappings,
    make_pair_grid,
    open_row_map,
    spread_rows,
)
from shardline.provenance.shard_mapping import (
    NO_ROWS,
    AlignedMapping,
    LayoutMapping,
    make_layout,
    make_pair_mapping,
)
from shardline.sidecars.row_map import RowMapError
from shardline.sidecars.sidecar_reader import SidecarMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.pairing.pair_grid import PairGrid
    from shardline.provenance.log_index import DatasetHistory, LogIndex, VersionHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.provenance.shard_mapping import ShardMapping
    from shardline.schema.predicate import Mask


_UNKNOWN_PAIRS = (RowMapError, SidecarMismatchError, TraceGapError)


@dataclass(frozen=True)
class PairedInputs:
    """The shards of the two snapshots that a combination paired."""

    version: VersionHistory
    entry: Entry
    listed: tuple[tuple[Shard, ...], tuple[Shard, ...]]

    @cached_property
    def _grid(self) -> PairGrid:
        return make_pair_grid(*self.listed, self.entry)

    @cached_property
    def firsts(self) -> tuple[IntArray, IntArray]:
        """The number of the first record of each shard, on each side."""
        counts = [np.array([shard.records for shard in side], np.int64) for side in self.listed]
        return np.cumsum(counts[0]) - counts[0], np.cumsum(counts[1]) - counts[1]

    def list_records(
        self, position: int, pairs: IntArray | None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield pairs of an added shard with the numbers of their records; all, or only these.

        Raises one of `_UNKNOWN_PAIRS` where the records are unknown.
        """
        mapping = make_pair_mapping(
            self.entry, position, self._grid, ((), ()), partial(open_row_map, self.version)
        )
        yield from mapping.list_records(pairs)

    def list_rows(self, side: int, numbers: IntArray) -> Iterator[tuple[str, IntArray]]:
        """Yield the shards of a side that hold records of these numbers, and their rows."""
        known = np.unique(numbers[numbers >= 0])
        firsts = self.firsts[side]
        # Of shards that begin with the same number all but the last are empty.
        positions = np.searchsorted(firsts, known, "right") - 1
        for position in np.unique(positions).tolist():
            rows = known[positions == position] - firsts[position]
            yield self.listed[side][position].name, rows


AncestorKey: TypeAlias = "tuple[str, str]"
"""A dataset, and a shard of it."""


def list_input_shards(index: LogIndex, told: Input) -> tuple[Shard, ...]:
    """Return the shards of an input; none if it is not known any more."""
    one = index.dataset(told.dataset).versions.get(told.version)
    if one is None or told.snapshot > one.version.state.snapshot:
        return ()
    return one.list_shards(told.snapshot)


@dataclass
class RecordAncestry:
    """What the rows of one dataset were made of, in others: `every` one of their rows.

    Those in `alone` nothing else is made of that stays, those in `shared` others too. What the
    inputs in `maybe` hold of them cannot be told.
    """

    history: DatasetHistory
    every: dict[AncestorKey, IntArray] = field(default_factory=dict)
    alone: dict[AncestorKey, IntArray] = field(default_factory=dict)
    shared: set[AncestorKey] = field(default_factory=set)
    maybe: set[Input] = field(default_factory=set)

    def look(self, rows: ShardRows, unread: set[str], *, plans: bool, others: bool = True) -> None:
        """Go through all entries that read other datasets; `plans` are followed where asked.

        Without `others` it is not looked what else is made of the same: all count as alone.
        """
        pairs: list[tuple[PairedInputs, int]] = []
        meant = {name: some for name, some in rows.items() if len(some)}
        for one in self.history.versions.values():
            for entry in one.entries:
                if all(told.dataset == self.history.dataset for told in entry.inputs):
                    continue
                added = [
                    (at, place.shard)
                    for at, place in enumerate(entry.added)
                    if plans or not place.shard.virtual
                ]
                if any(shard.name in unread for _, shard in added):
                    self._may(entry)
                hit = [shard for _, shard in added if shard.name in meant]
                if entry.operation == "combine":
                    sides = self._sides(entry)
                    pairs += [
                        (sides, at)
                        for at, shard in added
                        if sides is not None and (others or shard in hit)
                    ]
                    if hit and sides is None:
                        self._may(entry)
                elif hit:
                    self._follow(one, entry, hit, meant)
        if any(_shard(one).name in meant for one in pairs):
            self._pairs([one for one in pairs if _shard(one).name not in unread], meant)

    def by_dataset(self) -> dict[str, ShardRows]:
        """What is alone, for each dataset."""
        found: dict[str, ShardRows] = {}
        for (dataset, name), rows in self.alone.items():
            if dataset != self.history.dataset and len(rows):
                found.setdefault(dataset, {})[name] = rows
        return found

    def _may(self, entry: Entry) -> None:
        self.maybe |= {told for told in entry.inputs if told.dataset != self.history.dataset}

    def _sides(self, entry: Entry) -> PairedInputs | None:
        listed = [list_input_shards(self.history.index, told) for told in entry.inputs]
        if len(listed) != 2 or not all(listed) or not has_rule(entry):
            return None
        version = self.history.versions[entry.version]
        return PairedInputs(version, entry, (listed[0], listed[1]))

    def _follow(
        self, one: VersionHistory, entry: Entry, hit: Iterable[Shard], rows: ShardRows
    ) -> None:
        """What was extended, migrated or rebuilt into another dataset."""
        before, dataset = (
            list_input_shards(self.history.index, entry.inputs[0]),
            entry.inputs[0].dataset,
        )
        by_name = {shard.name: shard for shard in before}
        layout = make_layout(before, one.list_shards(entry.snapshot), entry)
        relations: list[ShardMapping] = [] if layout is None else [layout]
        for shard in hit:
            place = [added.shard.name for added in entry.added].index(shard.name)
            base = by_name.get(entry.bases[place]) if place < len(entry.bases) else None
            if entry.operation != "rebuild":
                relations = list(align_shards(self.history, [(base, shard)] if base else []))
            found = [
                mapped
                for relation in relations
                for mapped in relation.map_rows(shard.name, rows[shard.name])
            ]
            for mapped in found:
                self._add(self.alone, (dataset, mapped.shard), mapped.rows)
                self._add(self.every, (dataset, mapped.shard), mapped.rows)
            if not found:
                self._may(entry)

    def _pairs(self, pairs: list[tuple[PairedInputs, int]], rows: ShardRows) -> None:
        """The records of pairs that are meant, apart from those that other pairs are of too."""
        meant: dict[AncestorKey, IntArray] = {}
        others: dict[AncestorKey, IntArray] = {}
        for one in pairs:
            try:
                for gone, numbers in _iter_pair_batches(one, rows):
                    for place, some in _placed(one[0], numbers[gone]):
                        self._add(meant, place, some)
                    for place, some in _placed(one[0], numbers[~gone]):
                        self._add(others, place, some)
            except _UNKNOWN_PAIRS:
                if _shard(one).name in rows:
                    self._may(one[0].entry)
        alone = {p: np.setdiff1d(some, others.get(p, NO_ROWS)) for p, some in meant.items()}
        for place, some in meant.items():
            self._add(self.every, place, some)
            self._add(self.alone, place, alone[place])
        for one in (one for one in pairs if _shard(one).name in rows):
            self._add_if_none_is_alone(one, rows, alone)
        self.shared |= {place for place in meant if not len(self.alone.get(place, NO_ROWS))}

    def _add_if_none_is_alone(
        self, one: tuple[PairedInputs, int], rows: ShardRows, alone: Mapping[AncestorKey, IntArray]
    ) -> None:
        """Both records of a pair count if each is in others too: together they bring it back."""
        sides = one[0]
        numbers_alone = [_numbers(sides, side, alone) for side in (0, 1)]
        try:
            for gone, numbers in _iter_pair_batches(one, rows):
                some = numbers[gone]
                has = [np.isin(some[:, side], numbers_alone[side]) for side in (0, 1)]
                for place, more in _placed(sides, some[~(has[0] | has[1])]):
                    self._add(self.alone, place, more)
        except _UNKNOWN_PAIRS:
            return

    def _add(self, to: dict[AncestorKey, IntArray], place: AncestorKey, rows: IntArray) -> None:
        to[place] = np.union1d(to.get(place, NO_ROWS), rows)


def _shard(one: tuple[PairedInputs, int]) -> Shard:
    return one[0].entry.added[one[1]].shard


def _iter_pair_batches(
    one: tuple[PairedInputs, int], rows: ShardRows
) -> Iterator[tuple[Mask, IntArray]]:
    """The pairs of a shard, some at a time: which are meant, and of which records they are.

    Of a plan, which may have more than anyone can list, only those that are meant.
    """
    shard = _shard(one)
    wanted = rows.get(shard.name, NO_ROWS)
    if shard.virtual and not len(wanted):
        return
    for places, numbers in one[0].list_records(one[1], wanted if shard.virtual else None):
        yield np.isin(places, wanted), numbers


def _placed(sides: PairedInputs, numbers: IntArray) -> Iterator[tuple[AncestorKey, IntArray]]:
    for side, told in enumerate(sides.entry.inputs):
        for name, rows in sides.list_rows(side, numbers[:, side]):
            yield (told.dataset, name), rows


def _numbers(sides: PairedInputs, side: int, found: Mapping[AncestorKey, IntArray]) -> IntArray:
    """The numbers of these rows among all records of a side."""
    dataset = sides.entry.inputs[side].dataset
    parts = [
        found.get((dataset, shard.name), NO_ROWS) + first
        for shard, first in zip(sides.listed[side], sides.firsts[side].tolist(), strict=True)
    ]
    return np.concatenate([NO_ROWS, *parts])


@dataclass
class RemainingRecords:
    """Asks of shards whether they are made of some of these rows of a dataset."""

    history: DatasetHistory
    rows: ShardRows
    _relations: dict[str, list[ShardMapping]] = field(init=False, default_factory=dict)
    _known: dict[str, bool] = field(init=False, default_factory=dict)

    def hold(self, dataset: str, shard: Shard) -> bool:
        """Whether a shard of another dataset is; also if that cannot be told."""
        key = f"{dataset}/{shard.name}"
        if key not in self._known:
            self._known[key] = self._hold(dataset, {shard.name: np.arange(shard.records)})
        return self._known[key]

    def _hold(self, dataset: str, rows: ShardRows) -> bool:
        known = {dataset: rows}
        waiting = deque([dataset])
        while waiting:
            name = waiting.popleft()
            one = self.history.index.dataset(name)
            here = spread_rows(known[name], self._one_by_one(one)).rows
            found = RecordAncestry(one)
            found.look(here, set(), plans=True, others=False)
            if found.maybe or _is_paired_within(one, here):
                return True
            for (other, shard), some in found.every.items():
                if other == self.history.dataset:
                    if np.isin(some, self.rows.get(shard, NO_ROWS)).any():
                        return True
                    continue
                before = known.setdefault(other, {}).get(shard, NO_ROWS)
                merged = np.union1d(before, some)
                if len(merged) > len(before):
                    known[other][shard] = merged
                    waiting.append(other)
        return False

    def _one_by_one(self, history: DatasetHistory) -> list[ShardMapping]:
        """How records follow from one another; a pair tells nothing of others of its records."""
        if history.dataset not in self._relations:
            self._relations[history.dataset] = [
                one
                for one in list_mappings(history)
                if isinstance(one, AlignedMapping | LayoutMapping)
            ]
        return self._relations[history.dataset]


def _is_paired_within(history: DatasetHistory, rows: ShardRows) -> bool:
    """Whether some of these are pairs of records of their own dataset, which are not followed."""
    return any(
        added.shard.name in rows
        for one in history.versions.values()
        for entry in one.entries
        if entry.operation == "combine"
        and any(told.dataset == history.dataset for told in entry.inputs)
        for added in entry.added
    )
