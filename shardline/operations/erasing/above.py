"""What rows of a dataset were made of in others, by row maps, receipts and counting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.operations.erasing.history import read_history
from shardline.operations.erasing.paired_sides import PairedSides
from shardline.operations.erasing.relations import aligned, laid_out
from shardline.sidecars.row_map import RowMapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.operations.erasing.history import DatasetHistory, VersionHistory
    from shardline.operations.erasing.predicate import Mask
    from shardline.operations.erasing.relations import Relation, Rows
    from shardline.storage import Store

Place: TypeAlias = "tuple[str, str]"
"""A dataset, and a shard of it."""
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Histories:
    """The logs of datasets, each read once."""

    store: Store
    known: dict[str, DatasetHistory]

    def of(self, dataset: str) -> DatasetHistory:
        """The log of a dataset."""
        if dataset not in self.known:
            self.known[dataset] = read_history(self.store, dataset)
        return self.known[dataset]

    def listed(self, told: Input) -> tuple[Shard, ...]:
        """The shards of an input; none if it is not known any more."""
        one = self.of(told.dataset).versions.get(told.version)
        if one is None or told.snapshot > one.version.state.snapshot:
            return ()
        return one.listed(told.snapshot)


@dataclass
class Above:
    """What the rows of one dataset were made of, in others: `every` one of their rows.

    Those in `alone` nothing else is made of that stays, those in `shared` others too. What the
    inputs in `maybe` hold of them cannot be told.
    """

    histories: Histories
    history: DatasetHistory
    every: dict[Place, IntArray] = field(default_factory=dict)
    alone: dict[Place, IntArray] = field(default_factory=dict)
    shared: set[Place] = field(default_factory=set)
    maybe: set[Input] = field(default_factory=set)

    def look(self, rows: Rows, unread: set[str], *, plans: bool, others: bool = True) -> None:
        """Go through all entries that read other datasets; `plans` are followed where asked.

        Without `others` it is not looked what else is made of the same: all count as alone.
        """
        pairs: list[tuple[PairedSides, int]] = []
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

    def by_dataset(self) -> dict[str, Rows]:
        """What is alone, for each dataset."""
        found: dict[str, Rows] = {}
        for (dataset, name), rows in self.alone.items():
            if dataset != self.history.dataset and len(rows):
                found.setdefault(dataset, {})[name] = rows
        return found

    def _may(self, entry: Entry) -> None:
        self.maybe |= {told for told in entry.inputs if told.dataset != self.history.dataset}

    def _sides(self, entry: Entry) -> PairedSides | None:
        listed = [self.histories.listed(told) for told in entry.inputs]
        if (
            len(listed) != 2
            or not all(listed)
            or not isinstance(entry.parameters.get("rule"), dict)
        ):
            return None
        sidecars = self.history.versions[entry.version].sidecars
        return PairedSides(self.history.store, entry, (listed[0], listed[1]), sidecars)

    def _follow(self, one: VersionHistory, entry: Entry, hit: Iterable[Shard], rows: Rows) -> None:
        """What was extended, migrated or rebuilt into another dataset."""
        before, dataset = self.histories.listed(entry.inputs[0]), entry.inputs[0].dataset
        by_name = {shard.name: shard for shard in before}
        relations: list[Relation] = list(laid_out(before, one.listed(entry.snapshot), entry))
        for shard in hit:
            place = [added.shard.name for added in entry.added].index(shard.name)
            base = by_name.get(entry.bases[place]) if place < len(entry.bases) else None
            if entry.operation != "rebuild":
                relations = list(aligned(self.history, [(base, shard)] if base else []))
            found = [
                told
                for relation in relations
                for told in relation.carry(shard.name, rows[shard.name])
            ]
            for name, some in found:
                self._add(self.alone, (dataset, name), some)
                self._add(self.every, (dataset, name), some)
            if not found:
                self._may(entry)

    def _pairs(self, pairs: list[tuple[PairedSides, int]], rows: Rows) -> None:
        """The records of pairs that are meant, apart from those that other pairs are of too."""
        meant: dict[Place, IntArray] = {}
        others: dict[Place, IntArray] = {}
        for one in pairs:
            try:
                for gone, numbers in _lots(one, rows):
                    for place, some in _placed(one[0], numbers[gone]):
                        self._add(meant, place, some)
                    for place, some in _placed(one[0], numbers[~gone]):
                        self._add(others, place, some)
            except RowMapError:
                if _shard(one).name in rows:
                    self._may(one[0].entry)
        alone = {p: np.setdiff1d(some, others.get(p, _NONE)) for p, some in meant.items()}
        for place, some in meant.items():
            self._add(self.every, place, some)
            self._add(self.alone, place, alone[place])
        for one in (one for one in pairs if _shard(one).name in rows):
            self._add_if_none_is_alone(one, rows, alone)
        self.shared |= {place for place in meant if not len(self.alone.get(place, _NONE))}

    def _add_if_none_is_alone(
        self, one: tuple[PairedSides, int], rows: Rows, alone: Mapping[Place, IntArray]
    ) -> None:
        """Both records of a pair count if each is in others too: together they bring it back."""
        sides = one[0]
        numbers_alone = [_numbers(sides, side, alone) for side in (0, 1)]
        try:
            for gone, numbers in _lots(one, rows):
                some = numbers[gone]
                has = [np.isin(some[:, side], numbers_alone[side]) for side in (0, 1)]
                for place, more in _placed(sides, some[~(has[0] | has[1])]):
                    self._add(self.alone, place, more)
        except RowMapError:
            return

    def _add(self, to: dict[Place, IntArray], place: Place, rows: IntArray) -> None:
        to[place] = np.union1d(to.get(place, _NONE), rows)


def _shard(one: tuple[PairedSides, int]) -> Shard:
    return one[0].entry.added[one[1]].shard


def _lots(one: tuple[PairedSides, int], rows: Rows) -> Iterator[tuple[Mask, IntArray]]:
    """The pairs of a shard, some at a time: which are meant, and of which records they are.

    Of a plan, which may have more than anyone can list, only those that are meant.
    """
    shard = _shard(one)
    wanted = rows.get(shard.name, _NONE)
    if shard.virtual and not len(wanted):
        return
    for places, numbers in one[0].lots(one[1], wanted if shard.virtual else None):
        yield np.isin(places, wanted), numbers


def _placed(sides: PairedSides, numbers: IntArray) -> Iterator[tuple[Place, IntArray]]:
    for side, told in enumerate(sides.entry.inputs):
        for name, rows in sides.placed(side, numbers[:, side]):
            yield (told.dataset, name), rows


def _numbers(sides: PairedSides, side: int, found: Mapping[Place, IntArray]) -> IntArray:
    """The numbers of these rows among all records of a side."""
    dataset = sides.entry.inputs[side].dataset
    parts = [
        found.get((dataset, shard.name), _NONE) + first
        for shard, first in zip(sides.listed[side], sides.firsts[side].tolist(), strict=True)
    ]
    return np.concatenate([_NONE, *parts])
