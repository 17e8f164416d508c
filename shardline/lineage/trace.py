"""What was made of a record: every shard of the root that holds it, or something made of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.errors import RecordNotFoundError
from shardline.lineage.trace_step import (
    DescendantCounts,
    DescendantRecord,
    EntryRef,
    TraceGap,
    TraceStep,
    find_removal,
)
from shardline.provenance.consumers import CONSUMER_PREFIX, list_all_consumers
from shardline.provenance.log_index import LogIndex, TraceGapError
from shardline.provenance.row_mapping import (
    RecordOutcome,
    SnapshotRecord,
    list_replaced_shards,
    make_unknown_outcome,
    map_record_up,
    map_records_down,
)
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import IntArray
    from shardline.lineage.trace_step import TraceOrigin
    from shardline.log.entry import Entry
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.row_mapping import RecordOrigin, SourceRow


Holder: TypeAlias = "tuple[str, str]"
"""A version and a shard of it."""
Spans: TypeAlias = "tuple[tuple[int, int], ...]"


class DownstreamIndex:
    """The entries of a root by what they read, found once."""

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self._readers: dict[str, list[Entry]] = defaultdict(list)
        self._in_place: dict[Holder, list[Entry]] = defaultdict(list)
        for name in index.names():
            for entry in index.entries(name):
                for read in dict.fromkeys(one.shown for one in entry.inputs):
                    self._readers[read].append(entry)
                for shard in list_replaced_shards(index, entry):
                    self._in_place[name, shard].append(entry)
        self.held = cache(self._held)
        self.seen_by = cache(self._seen_by)

    def of(
        self, version: str, stay: ShardInterval, inside: int, most: int | None = None
    ) -> Descendants:
        """The record itself and all that was made of it, the nearest first.

        All are counted, and so many of each version can be listed. A record that is found takes 8
        bytes of memory, and one that is listed 16 more.
        """
        found = Descendants(self, most)
        entry = self.index.entry(version, stay.landed)
        itself = np.array([inside], np.int64)
        waiting = {(version, stay.shard.name): [itself]}
        found.take(entry, RecordOutcome(stay.shard.name, itself, itself), None)
        while waiting:
            holder = next(iter(waiting))
            records = np.concatenate(waiting.pop(holder))
            for entry, outcome in self._made(holder, records):
                new = found.take(entry, outcome, holder)
                if len(new):
                    waiting.setdefault((entry.shown, outcome.shard), []).append(new)
        return found

    def _made(self, holder: Holder, records: IntArray) -> Iterator[tuple[Entry, RecordOutcome]]:
        version, shard = holder
        for entry in (*self._in_place[holder], *self._readers[version]):
            try:
                for outcome in map_records_down(self.index, entry, version, shard, records):
                    yield entry, outcome
            except TraceGapError as error:
                yield entry, make_unknown_outcome("", records, error)

    def _held(self, version: str, shard: str) -> Spans:
        """The snapshots that hold a shard, as spans of first and last."""
        state = self.index.version(version).state
        spans = state.stays.spans(shard)
        return merge_spans((since, min(until - 1, state.snapshot)) for since, until in spans)

    def _seen_by(self, version: str, shard: str) -> tuple[str, ...]:
        """Who registered on a snapshot that holds a shard; who was released too."""
        pins = self.index.version(version).state.pins
        seen = {
            name.removeprefix(CONSUMER_PREFIX): hold.snapshot
            for name, hold in pins.items()
            if name.startswith(CONSUMER_PREFIX)
        }
        for one in list_all_consumers(version, self.index.entries(version)):
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
class _RecordSpans:
    """Records of a shard that are listed, and of which records of another each is made."""

    entry: Entry
    outcome: RecordOutcome
    of: Holder | None


@dataclass
class Descendants:
    """What was made of a record: how much in each version, and the places of the first of it."""

    descent: DownstreamIndex
    most: int | None
    _known: dict[Holder, IntArray] = field(default_factory=dict)
    _lots: list[_RecordSpans] = field(default_factory=list)
    _listed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _gaps: dict[str, dict[tuple[str, str], None]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, entry: Entry, outcome: RecordOutcome, of: Holder | None) -> IntArray:
        """Count what an entry made of records of a shard; gives those that are new."""
        version = entry.shown
        if outcome.why:
            gap = (outcome.shard, outcome.why)
            if gap not in self._gaps[version]:
                self._gaps[version][gap] = None
                self._lots.append(_RecordSpans(entry, outcome, of))
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
            listed = RecordOutcome(outcome.shard, outcome.of[places][:left], records[:left])
            self._lots.append(_RecordSpans(entry, listed, of))
            self._listed[version] += len(listed.records)
        return records

    @property
    def versions(self) -> list[DescendantCounts]:
        """How much of it each version has, in the order in which they were found."""
        index = self.descent.index
        shards: dict[str, list[str]] = {version: [] for version in self._gaps}
        for version, shard in self._known:
            shards.setdefault(version, []).append(shard)
        order = dict.fromkeys(lot.entry.shown for lot in self._lots)
        found = []
        for version in order:
            newest = index.version(version).state.snapshot
            held = {one: self.descent.held(version, one) for one in shards[version]}
            counts = {one: len(self._known[version, one]) for one in shards[version]}
            found.append(
                DescendantCounts(
                    version,
                    sum(count for one, count in counts.items() if held[one][-1][1] == newest),
                    sum(counts.values()),
                    merge_spans(sorted(span for spans in held.values() for span in spans)),
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

    def places(self, version: str | None = None) -> Iterator[DescendantRecord]:
        """Those that are listed, one after the other: of all versions, or of one."""
        for lot in self._lots:
            if version in {None, lot.entry.shown}:
                yield from self._places(lot)

    def _places(self, lot: _RecordSpans) -> Iterator[DescendantRecord]:
        version, shard = lot.entry.shown, lot.outcome.shard
        why = lot.outcome.why
        held = self.descent.held(version, shard) if shard else ()
        if why:
            of = None if lot.of is None else (*lot.of, int(lot.outcome.of[0]))
            yield DescendantRecord(
                version,
                shard,
                None,
                EntryRef.of(lot.entry),
                held=held,
                of=of,
                why=why,
                code=lot.outcome.code,
                hint=lot.outcome.hint,
            )
            return
        index = self.descent.index
        # Not the entry that was found, which may only have reused it.
        made = EntryRef.of(index.entry(version, index.first_landed(version, shard)))
        first = index.listing(version, held[-1][1]).number(shard, 0) or 0
        consumers = self.descent.seen_by(version, shard)
        for before, record in zip(lot.outcome.of, lot.outcome.records, strict=True):
            of = None if lot.of is None else (*lot.of, int(before))
            yield DescendantRecord(
                version,
                shard,
                int(record),
                made,
                held=held,
                record=first + int(record),
                of=of,
                consumers=consumers,
            )


def merge_spans(spans: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> Spans:
    """Spans of first and last in order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for first, last in spans:
        if found and found[-1][1] + 1 >= first:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def trace(index: LogIndex, snapshot: StoredSnapshot, record: int) -> TraceStep:
    """Where a record came from: a tree of steps, whose leaves are rows of sources.

    `record` is a number as `Snapshot.take` has them, counted from 0 over all shards; IndexError if
    there is none. However large the snapshot is, few and small objects are read: logs, receipts,
    and a block of a row map. What cannot be told is said to be unknown.
    """
    return RecordTracer(index).back(snapshot, record)


def trace_descendants(
    index: LogIndex, snapshot: StoredSnapshot, record: int
) -> list[DescendantRecord]:
    """What was made of a record, in every version of the root: first itself, then the nearest.

    All logs are read for that, and no shard.
    """
    return RecordTracer(index).down(snapshot, record)


class RecordTracer:
    """Traces records of one index; what was read for one is not read again for the next."""

    def __init__(self, index: LogIndex) -> None:
        self._index = index
        self._descent: DownstreamIndex | None = None

    def back(self, snapshot: StoredSnapshot, record: int) -> TraceStep:
        """See `trace`."""
        _validate_record(snapshot, record)
        # Not by recursion: a record that was rebuilt each day has come a long way.
        found: list[TraceStep] = []
        before: list[list[int | TraceOrigin]] = []
        waiting = [SnapshotRecord(snapshot.version, snapshot.number, record)]
        while len(found) < len(waiting):
            step, of = self._step(waiting[len(found)])
            places: list[int | TraceOrigin] = []
            for one in of:
                if isinstance(one, SnapshotRecord):
                    places.append(len(waiting))
                    waiting.append(one)
                else:
                    places.append(one)
            found.append(step)
            before.append(places)
        for at in reversed(range(len(found))):
            of_it = (found[one] if isinstance(one, int) else one for one in before[at])
            step = replace(found[at], of=tuple(of_it))
            found[at] = replace(step, fate=find_removal(self._index, step))
        return found[0]

    def down(self, snapshot: StoredSnapshot, record: int) -> list[DescendantRecord]:
        """See `trace_descendants`."""
        return list(self.descendants(snapshot, record).places())

    def descendants(
        self, snapshot: StoredSnapshot, record: int, most: int | None = None
    ) -> Descendants:
        """What was made of a record, counted; so many places of each version can be listed."""
        _validate_record(snapshot, record)
        listing = self._index.listing(snapshot.version, snapshot.number)
        stay, inside = listing.locate(record)
        if self._descent is None:
            self._descent = DownstreamIndex(self._index)
        return self._descent.of(snapshot.version, stay, inside, most)

    def _step(
        self, held: SnapshotRecord
    ) -> tuple[TraceStep, tuple[SnapshotRecord | SourceRow | TraceGap, ...]]:
        """A step, and what it was made of."""
        listing = self._index.listing(held.version, held.snapshot)
        stay, inside = listing.locate(held.record)
        first = self._index.first_landed(held.version, stay.shard.name)
        entry = self._index.entry(held.version, first)
        of: tuple[SnapshotRecord | SourceRow | TraceGap, ...]
        try:
            made = self._made_of(entry, stay, inside)
            of, remark = made.of, made.remark
        except TraceGapError as error:
            of, remark = (TraceGap(error.message, error.code, error.hint),), ""
        step = TraceStep(
            held.version,
            held.snapshot,
            held.record,
            stay.shard.name,
            inside,
            EntryRef.of(entry),
            fields=self._index.origins(entry) if entry.inputs else {},
            remark=remark,
            reused=stay.landed if stay.landed != first else None,
        )
        return step, of

    def _made_of(self, entry: Entry, stay: ShardInterval, inside: int) -> RecordOrigin:
        """By the entry that a shard first came by; if that does not tell, by what reused it."""
        try:
            return map_record_up(self._index, entry, stay.shard, inside)
        except TraceGapError:
            if stay.landed == entry.number:
                raise
        again = self._index.entry(entry.shown, stay.landed)
        return map_record_up(self._index, again, stay.shard, inside)


def _validate_record(snapshot: StoredSnapshot, record: int) -> None:
    if not 0 <= record < snapshot.records:
        raise RecordNotFoundError(
            f"{snapshot}: no record {record} ({format_count(snapshot.records, 'record')}, from 0)",
            record=record,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
