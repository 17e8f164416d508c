"""Follow one record through every operation, back to its source and on to what was made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardline.errors import RecordNotFoundError
from shardline.lineage.fates import fate_of
from shardline.lineage.trace_down import Descent
from shardline.provenance.log_index import Histories, Untold
from shardline.provenance.steps import Making, Step, Unknown
from shardline.provenance.upstream_rows import Held, made_of
from shardline.text import counted

if TYPE_CHECKING:
    from shardline.lineage.trace_down import Descendants
    from shardline.log.entry import Entry
    from shardline.log.shard_history import Stay
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.catalog import Catalog
    from shardline.provenance.steps import Cause, Place, SourceRow
    from shardline.provenance.upstream_rows import Made


def trace(catalog: Catalog, snapshot: StoredSnapshot, record: int) -> Step:
    """Where a record came from: a tree of steps, whose leaves are rows of sources.

    `record` is a number as `Snapshot.take` has them, counted from 0 over all shards; IndexError if
    there is none. However large the snapshot is, few and small objects are read: logs, receipts,
    and a block of a row map. What cannot be told is said to be unknown.
    """
    return Tracer(catalog).back(snapshot, record)


def trace_down(catalog: Catalog, snapshot: StoredSnapshot, record: int) -> list[Place]:
    """What was made of a record, in every version of the root: first itself, then the nearest.

    All logs are read for that, and no shard.
    """
    return Tracer(catalog).down(snapshot, record)


class Tracer:
    """Traces records of one catalog; what was read for one is not read again for the next."""

    def __init__(self, catalog: Catalog) -> None:
        self._histories = Histories(catalog)
        self._descent: Descent | None = None

    def back(self, snapshot: StoredSnapshot, record: int) -> Step:
        """See `trace`."""
        _refuse_missing(snapshot, record)
        # Not by recursion: a record that was rebuilt each day has come a long way.
        found: list[Step] = []
        before: list[list[int | Cause]] = []
        waiting = [Held(snapshot.version, snapshot.number, record)]
        while len(found) < len(waiting):
            step, of = self._step(waiting[len(found)])
            places: list[int | Cause] = []
            for one in of:
                if isinstance(one, Held):
                    places.append(len(waiting))
                    waiting.append(one)
                else:
                    places.append(one)
            found.append(step)
            before.append(places)
        for at in reversed(range(len(found))):
            of_it = (found[one] if isinstance(one, int) else one for one in before[at])
            step = replace(found[at], of=tuple(of_it))
            found[at] = replace(step, fate=fate_of(self._histories, step))
        return found[0]

    def down(self, snapshot: StoredSnapshot, record: int) -> list[Place]:
        """See `trace_down`."""
        return list(self.descendants(snapshot, record).places())

    def descendants(
        self, snapshot: StoredSnapshot, record: int, most: int | None = None
    ) -> Descendants:
        """What was made of a record, counted; so many places of each version can be listed."""
        _refuse_missing(snapshot, record)
        listing = self._histories.listing(snapshot.version, snapshot.number)
        stay, inside = listing.locate(record)
        if self._descent is None:
            self._descent = Descent(self._histories)
        return self._descent.of(snapshot.version, stay, inside, most)

    def _step(self, held: Held) -> tuple[Step, tuple[Held | SourceRow | Unknown, ...]]:
        """A step, and what it was made of."""
        listing = self._histories.listing(held.version, held.snapshot)
        stay, inside = listing.locate(held.record)
        first = self._histories.first_landed(held.version, stay.shard.name)
        entry = self._histories.entry(held.version, first)
        of: tuple[Held | SourceRow | Unknown, ...]
        try:
            made = self._made_of(entry, stay, inside)
            of, remark = made.of, made.remark
        except Untold as error:
            of, remark = (Unknown(error.message, error.code, error.hint),), ""
        step = Step(
            held.version,
            held.snapshot,
            held.record,
            stay.shard.name,
            inside,
            Making.of(entry),
            fields=self._histories.origins(entry) if entry.inputs else {},
            remark=remark,
            reused=stay.landed if stay.landed != first else None,
        )
        return step, of

    def _made_of(self, entry: Entry, stay: Stay, inside: int) -> Made:
        """By the entry that a shard first came by; if that does not tell, by what reused it."""
        try:
            return made_of(self._histories, entry, stay.shard, inside)
        except Untold:
            if stay.landed == entry.number:
                raise
        again = self._histories.entry(entry.shown, stay.landed)
        return made_of(self._histories, again, stay.shard, inside)


def _refuse_missing(snapshot: StoredSnapshot, record: int) -> None:
    if not 0 <= record < snapshot.records:
        raise RecordNotFoundError(
            f"{snapshot}: no record {record} ({counted(snapshot.records, 'record')}, from 0)",
            record=record,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
