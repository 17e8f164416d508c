"""Trace of a record: upstream to its source rows, and downstream to all its descendants."""

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
    Removal,
    TraceGap,
    TraceStep,
)
from shardline.provenance.consumers import CONSUMER_PREFIX, list_all_consumers
from shardline.provenance.log_index import (
    LogIndex,
    TraceGapError,
    group_by_input,
    is_in_place_entry,
)
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
    from collections.abc import Iterable, Iterator

    from shardline.kernel.types import IntArray
    from shardline.lineage.trace_step import TraceOrigin
    from shardline.log.entry import Entry
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.row_mapping import RecordOrigin, SourceRow

ShardKey: TypeAlias = "tuple[str, str]"
"""A version and a shard of it."""
Spans: TypeAlias = "tuple[tuple[int, int], ...]"


def trace(index: LogIndex, snapshot: StoredSnapshot, record: int) -> TraceStep:
    """Trace a record to its source rows.

    Reads few small objects, however large the snapshot is: logs, receipts, and blocks of row maps.

    Args:
        index: The logs of the root.
        snapshot: The snapshot.
        record: The number of the record, from 0 over all shards, as in `Snapshot.take`.

    Returns:
        The step of the record, whose upstream steps end in source rows and gaps.
    """
    return RecordTracer(index).trace_upstream(snapshot, record)


def trace_descendants(
    index: LogIndex, snapshot: StoredSnapshot, record: int
) -> list[DescendantRecord]:
    """Trace a record to its descendants in all versions: the record itself, then the nearest.

    Reads all logs, but no shard.
    """
    return list(RecordTracer(index).trace_downstream(snapshot, record).records())


class RecordTracer:
    """Traces records of a root, and reads each log and receipt once for all of them."""

    def __init__(self, index: LogIndex) -> None:
        self._index = index
        self._downstream: DownstreamIndex | None = None

    def trace_upstream(self, snapshot: StoredSnapshot, record: int) -> TraceStep:
        """Trace a record to its source rows, as `trace` does."""
        _validate_record(snapshot, record)
        # A loop, since a record that was rebuilt every day has many steps.
        steps: list[TraceStep] = []
        origins: list[list[int | TraceOrigin]] = []
        pending = [SnapshotRecord(snapshot.version, snapshot.number, record)]
        while len(steps) < len(pending):
            step, upstream = self._trace_step(pending[len(steps)])
            step_origins: list[int | TraceOrigin] = []
            for origin in upstream:
                if isinstance(origin, SnapshotRecord):
                    step_origins.append(len(pending))
                    pending.append(origin)
                else:
                    step_origins.append(origin)
            steps.append(step)
            origins.append(step_origins)
        for number in reversed(range(len(steps))):
            linked = (
                steps[origin] if isinstance(origin, int) else origin for origin in origins[number]
            )
            step = replace(steps[number], upstream=tuple(linked))
            steps[number] = replace(step, removal=_find_removal(self._index, step))
        return steps[0]

    def trace_downstream(
        self, snapshot: StoredSnapshot, record: int, limit: int | None = None
    ) -> Descendants:
        """Trace a record to its descendants: all are counted, `limit` of each version listed."""
        _validate_record(snapshot, record)
        interval, inside = self._index.get_listing(snapshot.version, snapshot.number).locate(record)
        if self._downstream is None:
            self._downstream = DownstreamIndex(self._index)
        return self._downstream.trace(snapshot.version, interval, inside, limit)

    def _trace_step(
        self, record: SnapshotRecord
    ) -> tuple[TraceStep, tuple[SnapshotRecord | SourceRow | TraceGap, ...]]:
        """Return the step of a record, and its upstream records and rows."""
        listing = self._index.get_listing(record.version, record.snapshot)
        interval, inside = listing.locate(record.record)
        first = self._index.get_first_entry(record.version, interval.shard.name)
        entry = self._index.entry(record.version, first)
        upstream: tuple[SnapshotRecord | SourceRow | TraceGap, ...]
        try:
            origin = self._map_up(entry, interval, inside)
            upstream, remark = origin.upstream, origin.remark
        except TraceGapError as error:
            upstream, remark = (TraceGap(error.message, error.code, error.hint),), ""
        step = TraceStep(
            record.version,
            record.snapshot,
            record.record,
            interval.shard.name,
            inside,
            EntryRef.of(entry),
            features=self._index.get_origins(entry) if entry.inputs else {},
            remark=remark,
            reused=interval.added_entry if interval.added_entry != first else None,
        )
        return step, upstream

    def _map_up(self, entry: Entry, interval: ShardInterval, inside: int) -> RecordOrigin:
        """Map a record by the entry that added its shard first, else by the one that reused it."""
        try:
            return map_record_up(self._index, entry, interval.shard, inside)
        except TraceGapError:
            if interval.added_entry == entry.number:
                raise
        reusing = self._index.entry(entry.label, interval.added_entry)
        return map_record_up(self._index, reusing, interval.shard, inside)


class DownstreamIndex:
    """The entries of a root by the versions and shards that they read."""

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self._replacing: dict[ShardKey, list[Entry]] = defaultdict(list)
        names = index.list_versions()
        self._readers = group_by_input(entry for name in names for entry in index.entries(name))
        for name in names:
            for entry in index.entries(name):
                for shard in list_replaced_shards(index, entry):
                    self._replacing[name, shard].append(entry)
        self.get_snapshots = cache(self._get_snapshots)
        self.get_consumers = cache(self._get_consumers)

    def trace(
        self, version: str, interval: ShardInterval, inside: int, limit: int | None = None
    ) -> Descendants:
        """Find the descendants of a record, the record itself first, then the nearest.

        A descendant takes 8 bytes of memory, and a listed one 16 more.
        """
        descendants = Descendants(self, limit)
        entry = self.index.entry(version, interval.added_entry)
        itself = np.array([inside], np.int64)
        pending = {(version, interval.shard.name): [itself]}
        descendants.add(entry, RecordOutcome(interval.shard.name, itself, itself), None)
        while pending:
            key = next(iter(pending))
            records = np.concatenate(pending.pop(key))
            for reader, outcome in self._iter_outcomes(key, records):
                new = descendants.add(reader, outcome, key)
                if len(new):
                    pending.setdefault((reader.label, outcome.shard), []).append(new)
        return descendants

    def _iter_outcomes(
        self, key: ShardKey, records: IntArray
    ) -> Iterator[tuple[Entry, RecordOutcome]]:
        version, shard = key
        for entry in (*self._replacing[key], *self._readers.get(version, ())):
            try:
                for outcome in map_records_down(self.index, entry, version, shard, records):
                    yield entry, outcome
            except TraceGapError as error:
                yield entry, make_unknown_outcome("", records, error)

    def _get_snapshots(self, version: str, shard: str) -> Spans:
        """Return the snapshots that contain a shard, as spans of first and last."""
        state = self.index.version(version).state
        spans = state.shard_history.spans(shard)
        return merge_spans((since, min(until - 1, state.snapshot)) for since, until in spans)

    def _get_consumers(self, version: str, shard: str) -> tuple[str, ...]:
        """Return the consumers of snapshots that contain a shard, released ones included."""
        numbers = {
            name.removeprefix(CONSUMER_PREFIX): pin.snapshot
            for name, pin in self.index.version(version).state.pins.items()
            if name.startswith(CONSUMER_PREFIX)
        }
        for consumer in list_all_consumers(version, self.index.entries(version)):
            if consumer.released is not None:
                label = f"{consumer.pin.removeprefix(CONSUMER_PREFIX)} (released)"
                numbers[label] = consumer.snapshot
        spans = self._get_snapshots(version, shard)
        return tuple(
            sorted(
                name
                for name, number in numbers.items()
                if any(first <= (number or 0) <= last for first, last in spans)
            )
        )


@dataclass(frozen=True, slots=True)
class _ListedRecords:
    """Listed records of a shard, or a gap, with the upstream shard."""

    entry: Entry
    outcome: RecordOutcome
    upstream: ShardKey | None


@dataclass
class Descendants:
    """The descendants of a record: all are counted, and at most `limit` of a version listed."""

    downstream: DownstreamIndex
    limit: int | None
    _known: dict[ShardKey, IntArray] = field(default_factory=dict)
    _listed: list[_ListedRecords] = field(default_factory=list)
    _listed_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _gaps: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))

    def add(self, entry: Entry, outcome: RecordOutcome, upstream: ShardKey | None) -> IntArray:
        """Add the outcome of an entry. Returns the records that are new."""
        version = entry.label
        if outcome.reason:
            gap = (outcome.shard, outcome.reason)
            if gap not in self._gaps[version]:
                self._gaps[version].add(gap)
                self._listed.append(_ListedRecords(entry, outcome, upstream))
            return outcome.records
        key = (version, outcome.shard)
        known = self._known.get(key)
        records, positions = np.unique(outcome.records, return_index=True)
        if known is not None:
            new = ~np.isin(records, known, assume_unique=True)
            records, positions = records[new], positions[new]
        if not len(records):
            return records
        self._known[key] = records if known is None else np.union1d(known, records)
        left = None if self.limit is None else max(self.limit - self._listed_counts[version], 0)
        if left is None or left:
            listed = RecordOutcome(
                outcome.shard, outcome.source_records[positions][:left], records[:left]
            )
            self._listed.append(_ListedRecords(entry, listed, upstream))
            self._listed_counts[version] += len(listed.records)
        return records

    @property
    def versions(self) -> list[DescendantCounts]:
        """The counts of each version, in the order of the trace."""
        shards: dict[str, list[str]] = {version: [] for version in self._gaps}
        for version, shard in self._known:
            shards.setdefault(version, []).append(shard)
        order = dict.fromkeys(listed.entry.label for listed in self._listed)
        return [self._count(version, shards[version]) for version in order]

    def _count(self, version: str, shards: list[str]) -> DescendantCounts:
        latest = self.downstream.index.version(version).state.snapshot
        snapshots = {shard: self.downstream.get_snapshots(version, shard) for shard in shards}
        counts = {shard: len(self._known[version, shard]) for shard in shards}
        consumers = (
            name for shard in shards for name in self.downstream.get_consumers(version, shard)
        )
        return DescendantCounts(
            version,
            sum(count for shard, count in counts.items() if snapshots[shard][-1][1] == latest),
            sum(counts.values()),
            merge_spans(sorted(span for spans in snapshots.values() for span in spans)),
            tuple(dict.fromkeys(consumers)),
            len(self._gaps[version]),
            self._listed_counts[version],
        )

    @property
    def is_complete(self) -> bool:
        """True if the outcome of every record is known."""
        return not any(listed.outcome.is_unknown for listed in self._listed)

    def records(self, version: str | None = None) -> Iterator[DescendantRecord]:
        """Yield the listed records of all versions, or of one version."""
        for listed in self._listed:
            if version in {None, listed.entry.label}:
                yield from self._iter_records(listed)

    def _iter_records(self, listed: _ListedRecords) -> Iterator[DescendantRecord]:
        version, outcome = listed.entry.label, listed.outcome
        shard, upstream = outcome.shard, listed.upstream
        snapshots = self.downstream.get_snapshots(version, shard) if shard else ()
        if outcome.reason:
            yield DescendantRecord(
                version,
                shard,
                None,
                EntryRef.of(listed.entry),
                snapshots=snapshots,
                upstream=None if upstream is None else (*upstream, int(outcome.source_records[0])),
                reason=outcome.reason,
                code=outcome.code,
                hint=outcome.hint,
            )
            return
        index = self.downstream.index
        # The listed entry may only have reused the shard.
        origin = EntryRef.of(index.entry(version, index.get_first_entry(version, shard)))
        first = index.get_listing(version, snapshots[-1][1]).number(shard, 0) or 0
        consumers = self.downstream.get_consumers(version, shard)
        for before, record in zip(outcome.source_records, outcome.records, strict=True):
            yield DescendantRecord(
                version,
                shard,
                int(record),
                origin,
                snapshots=snapshots,
                record=first + int(record),
                upstream=None if upstream is None else (*upstream, int(before)),
                consumers=consumers,
            )


def merge_spans(spans: Iterable[tuple[int, int]]) -> Spans:
    """Merge ascending spans of first and last that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        if merged and merged[-1][1] + 1 >= first:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _validate_record(snapshot: StoredSnapshot, record: int) -> None:
    if not 0 <= record < snapshot.records:
        raise RecordNotFoundError(
            f"{snapshot}: no record {record} ({format_count(snapshot.records, 'record')}, from 0)",
            record=record,
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def _find_removal(index: LogIndex, step: TraceStep) -> Removal | None:
    """Return the removal of the shard of a step, whose `upstream` is known, or None.

    A record is erased if an erase removed it, or a later copy of it in its version. It is also
    erased if it came from an erased record, and an erase removed its shard.
    """
    version = index.version(step.version)
    number = version.state.get_tombstone(step.shard)
    if number is None:
        return None
    erasures = [
        entry
        for entry in index.entries(step.version)
        if step.shard in entry.tombstones and entry.operation == "erase"
    ]
    entry = erasures[0] if erasures else index.entry(step.version, number)
    is_erased = bool(erasures) and (
        _is_erased(index, step.version, step.shard, step.shard_record)
        or any(isinstance(origin, TraceStep) and origin.is_erased for origin in step.upstream)
    )
    file_exists = version.store.info(version.shard_name(step.shard)) is not None
    return Removal(entry.number, entry.operation, entry.time, is_erased, file_exists)


def _is_erased(index: LogIndex, version: str, shard: str, record: int) -> bool:
    """Return True if an erase removed a record, or a later copy of it in its version."""
    pending = [(shard, record)]
    for name, number in pending:  # Grows while it is read.
        for entry in _list_removing_entries(index, version, name):
            numbers = np.array([number], np.int64)
            try:
                outcomes = list(map_records_down(index, entry, version, name, numbers))
            except TraceGapError:
                continue
            for outcome in outcomes:
                if outcome.reason and entry.operation == "erase":
                    return True
                copies = [(outcome.shard, int(copy)) for copy in outcome.records]
                pending += [copy for copy in copies if copy not in pending]
    return False


def _list_removing_entries(index: LogIndex, version: str, shard: str) -> list[Entry]:
    """Return the entries that replaced a shard by others of its version."""
    state = index.version(version).state
    entries = [
        index.entry(version, state.snapshot_history.get_row(until).entry)
        for _, until in state.shard_history.spans(shard)
        if until <= state.snapshot
    ]
    # An interval also ends where a shard only changes its position.
    return [entry for entry in entries if is_in_place_entry(entry) and shard in entry.removed]
