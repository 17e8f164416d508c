"""What was made of a record: every shard of the root that holds it, or something made of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.provenance.consumers import CONSUMER_PREFIX, all_consumers
from shardline.provenance.downstream_rows import Outcome, made_into, none_told, taken_by
from shardline.provenance.log_index import Untold
from shardline.provenance.steps import Making, Place, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.shard_history import Stay
    from shardline.provenance.log_index import Histories

Holder: TypeAlias = "tuple[str, str]"
"""A version and a shard of it."""
Spans: TypeAlias = "tuple[tuple[int, int], ...]"


class Descent:
    """The entries of a root by what they read, found once."""

    def __init__(self, histories: Histories) -> None:
        self.histories = histories
        self._readers: dict[str, list[Entry]] = defaultdict(list)
        self._in_place: dict[Holder, list[Entry]] = defaultdict(list)
        for name in histories.catalog.names():
            for entry in histories.catalog.entries(name):
                for read in dict.fromkeys(one.shown for one in entry.inputs):
                    self._readers[read].append(entry)
                for shard in taken_by(histories, entry):
                    self._in_place[name, shard].append(entry)
        self.held = cache(self._held)
        self.seen_by = cache(self._seen_by)

    def of(self, version: str, stay: Stay, inside: int, most: int | None = None) -> Descendants:
        """The record itself and all that was made of it, the nearest first.

        All are counted, and so many of each version can be listed. A record that is found takes 8
        bytes of memory, and one that is listed 16 more.
        """
        found = Descendants(self, most)
        entry = self.histories.entry(version, stay.landed)
        itself = np.array([inside], np.int64)
        waiting = {(version, stay.shard.name): [itself]}
        found.take(entry, Outcome(stay.shard.name, itself, itself), None)
        while waiting:
            holder = next(iter(waiting))
            records = np.concatenate(waiting.pop(holder))
            for entry, outcome in self._made(holder, records):
                new = found.take(entry, outcome, holder)
                if len(new):
                    waiting.setdefault((entry.shown, outcome.shard), []).append(new)
        return found

    def _made(self, holder: Holder, records: IntArray) -> Iterator[tuple[Entry, Outcome]]:
        version, shard = holder
        for entry in (*self._in_place[holder], *self._readers[version]):
            try:
                for outcome in made_into(self.histories, entry, version, shard, records):
                    yield entry, outcome
            except Untold as error:
                yield entry, none_told("", records, error)

    def _held(self, version: str, shard: str) -> Spans:
        """The snapshots that hold a shard, as spans of first and last."""
        state = self.histories.catalog.version(version).state
        spans = state.stays.spans(shard)
        return merged((since, min(until - 1, state.snapshot)) for since, until in spans)

    def _seen_by(self, version: str, shard: str) -> tuple[str, ...]:
        """Who registered on a snapshot that holds a shard; who was released too."""
        pins = self.histories.catalog.version(version).state.pins
        seen = {
            name.removeprefix(CONSUMER_PREFIX): hold.snapshot
            for name, hold in pins.items()
            if name.startswith(CONSUMER_PREFIX)
        }
        for one in all_consumers(version, self.histories.catalog.entries(version)):
            if one.released is not None:
                seen[f"{one.pin.removeprefix(CONSUMER_PREFIX)} (released)"] = one.snapshot
        spans = self._held(version, shard)
        return tuple(
            sorted(
                name
                for name, number in seen.items()
                if any(first <= (number or 0) <= last for first, last in spans)
            )
        )


@dataclass(frozen=True, slots=True)
class _Lot:
    """Records of a shard that are listed, and of which records of another each is made."""

    entry: Entry
    outcome: Outcome
    of: Holder | None


@dataclass
class Descendants:
    """What was made of a record: how much in each version, and the places of the first of it."""

    descent: Descent
    most: int | None
    _known: dict[Holder, IntArray] = field(default_factory=dict)
    _lots: list[_Lot] = field(default_factory=list)
    _listed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _gaps: dict[str, dict[tuple[str, str], None]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, entry: Entry, outcome: Outcome, of: Holder | None) -> IntArray:
        """Count what an entry made of records of a shard; gives those that are new."""
        version = entry.shown
        if outcome.why:
            gap = (outcome.shard, outcome.why)
            if gap not in self._gaps[version]:
                self._gaps[version][gap] = None
                self._lots.append(_Lot(entry, outcome, of))
            return outcome.records
        holder = (version, outcome.shard)
        known = self._known.get(holder)
        records, places = np.unique(outcome.records, return_index=True)
        if known is not None:
            new = ~np.isin(records, known, assume_unique=True)
            records, places = records[new], places[new]
        if not len(records):
            return records
        self._known[holder] = records if known is None else np.union1d(known, records)
        left = None if self.most is None else max(self.most - self._listed[version], 0)
        if left is None or left:
            listed = Outcome(outcome.shard, outcome.of[places][:left], records[:left])
            self._lots.append(_Lot(entry, listed, of))
            self._listed[version] += len(listed.records)
        return records

    @property
    def versions(self) -> list[Spread]:
        """How much of it each version has, in the order in which they were found."""
        catalog = self.descent.histories.catalog
        shards: dict[str, list[str]] = {version: [] for version in self._gaps}
        for version, shard in self._known:
            shards.setdefault(version, []).append(shard)
        order = dict.fromkeys(lot.entry.shown for lot in self._lots)
        found = []
        for version in order:
            newest = catalog.version(version).state.snapshot
            held = {one: self.descent.held(version, one) for one in shards[version]}
            counts = {one: len(self._known[version, one]) for one in shards[version]}
            found.append(
                Spread(
                    version,
                    sum(count for one, count in counts.items() if held[one][-1][1] == newest),
                    sum(counts.values()),
                    merged(sorted(span for spans in held.values() for span in spans)),
                    tuple(
                        dict.fromkeys(
                            name for one in held for name in self.descent.seen_by(version, one)
                        )
                    ),
                    len(self._gaps[version]),
                    self._listed[version],
                )
            )
        return found

    @property
    def told(self) -> bool:
        """Whether there is nothing of which it cannot be told what became of it."""
        return not any(lot.outcome.untold for lot in self._lots)

    def places(self, version: str | None = None) -> Iterator[Place]:
        """Those that are listed, one after the other: of all versions, or of one."""
        for lot in self._lots:
            if version in {None, lot.entry.shown}:
                yield from self._places(lot)

    def _places(self, lot: _Lot) -> Iterator[Place]:
        version, shard = lot.entry.shown, lot.outcome.shard
        why = lot.outcome.why
        held = self.descent.held(version, shard) if shard else ()
        if why:
            of = None if lot.of is None else (*lot.of, int(lot.outcome.of[0]))
            yield Place(
                version,
                shard,
                None,
                Making.of(lot.entry),
                held=held,
                of=of,
                why=why,
                code=lot.outcome.code,
                hint=lot.outcome.hint,
            )
            return
        histories = self.descent.histories
        # Not the entry that was found, which may only have reused it.
        made = Making.of(histories.entry(version, histories.first_landed(version, shard)))
        first = histories.listing(version, held[-1][1]).number(shard, 0) or 0
        consumers = self.descent.seen_by(version, shard)
        for before, record in zip(lot.outcome.of, lot.outcome.records, strict=True):
            of = None if lot.of is None else (*lot.of, int(before))
            yield Place(
                version,
                shard,
                int(record),
                made,
                held=held,
                record=first + int(record),
                of=of,
                consumers=consumers,
            )


def merged(spans: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> Spans:
    """Spans of first and last in order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for first, last in spans:
        if found and found[-1][1] + 1 >= first:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)
