"""Which records of which shards go into which rebuilt shard.

With a target size, a rebuilt shard is full when the next record would take it over the target. So
what was full before stays as it was when more is appended, and only the end is made anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline import canonical_json as canonical
from shardline.errors import IndexMismatchError
from shardline.kernel.types import HEADER_BYTES
from shardline.operations.copying import Span
from shardline.readers.records import records_of
from shardline.tfrecord.index import read_offsets
from shardline.tfrecord.open_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, RecordFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.records import Records
    from shardline.readers.shards import ShardFile
    from shardline.storage import Store
    from shardline.tfrecord.compression import Compression
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class Slice:
    """A shard that goes into a rebuilt one: `name` in the store, all of it or a span.

    An overlay goes in with its base, a plan with the pairs of it: `layered` are their records.
    """

    name: str
    shard: Shard
    span: Span | None = None
    layered: Records | None = None

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """The files that these are made of; none of a plain shard, which is one itself."""
        return () if self.layered is None else self.layered.files

    @property
    def records(self) -> int:
        """How many records that is."""
        return self.shard.records if self.span is None else self.span.end - self.span.first

    @property
    def bytes(self) -> int:
        """How many bytes have to be read for it."""
        if self.layered is not None:
            return sum(file.shard.bytes for file in self.files)
        if self.span is None:
            return self.shard.bytes
        return self.span.end_byte - self.span.start_byte

    def to_json(self) -> Json:
        """What the name of a rebuilt shard depends on."""
        told: Json = {"sha256": self.shard.content}
        if self.span is not None:
            told["records"] = [self.span.first, self.span.end]
        return told


@dataclass(frozen=True, slots=True)
class Output:
    """A rebuilt shard and its slices. `again` is how many before it are made of the same bytes."""

    slices: tuple[Slice, ...]
    again: int = 0

    def identity(self, compression: Compression) -> Json:
        """What its name is a hash of: all that can make a difference, and which of several."""
        pieces = [piece.to_json() for piece in self.slices]
        return rebuilt_identity(pieces, compression.value, self.again)


def rebuilt_identity(pieces: list[Json], compression: str, again: int = 0) -> Json:
    """What the name of a rebuilt shard depends on; each piece as `Slice` tells it."""
    told: Json = {"operation": "rebuild", "slices": pieces, "compression": compression}
    return {**told, "again": again} if again else told


def numbered(outputs: Sequence[tuple[Slice, ...]]) -> list[Output]:
    """The outputs of a plan, with those told apart that are made of the same bytes."""
    seen: Counter[str] = Counter()
    made = []
    for slices in outputs:
        key = canonical.sha256([piece.to_json() for piece in slices])
        made.append(Output(slices, seen[key]))
        seen[key] += 1
    return made


def whole_slices(snapshot: StoredSnapshot) -> list[Slice]:
    """Each shard of a snapshot, whole."""
    return [
        Slice(
            snapshot.shard_name(shard),
            shard,
            layered=records if shard.base is not None or shard.virtual else None,
        )
        for shard, records in zip(snapshot.shards, records_of(snapshot), strict=True)
    ]


def plan_rebuild(
    store: Store,
    inputs: Sequence[Slice],
    target: int | None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[tuple[Slice, ...]]:
    """The slices of each rebuilt shard. The target counts unpacked bytes; None is one shard.

    An overlay is not cut: how large its records are is known when they are joined.
    """
    if target is None:
        return [tuple(inputs)] if inputs else []
    outputs: list[tuple[Slice, ...]] = []
    current: list[Slice] = []
    room = target
    for whole in inputs:
        for piece, size in _pieces(store, whole, limits, room=room, target=target):
            if current and size > room:
                outputs.append(tuple(current))
                current, room = [], target
            current.append(piece)
            room -= size
    return [*outputs, tuple(current)] if current else outputs


def _pieces(
    store: Store, whole: Slice, limits: Limits, *, room: int, target: int
) -> Iterator[tuple[Slice, int]]:
    """A shard cut where a rebuilt one is full, and the unpacked size of each piece."""
    name, shard = whole.name, whole.shard
    if whole.layered is not None or (shard.compression == "none" and shard.bytes <= room):
        yield whole, whole.bytes
        return
    spans = _spans(store, name, shard, limits, room=room, target=target)
    for span in spans:
        alone = len(spans) == 1
        yield Slice(name, shard, None if alone else span), span.end_byte - span.start_byte
    if not spans:
        yield Slice(name, shard), 0


def _spans(
    store: Store, name: str, shard: Shard, limits: Limits, *, room: int, target: int
) -> list[Span]:
    """All records of a shard in spans that fit: by its index, or by reading it if it has none."""
    try:
        known = read_offsets(store, name, shard.bytes, shard.records, shard.sha256)
        return list(_cut(known, room=room, target=target))
    except IndexMismatchError:
        found = _offsets(StoredFile(store, name), limits)
        return list(_cut(found, room=room, target=target))


def span_of(store: Store, piece: Slice, first: int, end: int, limits: Limits) -> Span:
    """The records of a shard from `first` up to `end`, by its index or by reading it."""
    shard = piece.shard
    try:
        known = read_offsets(store, piece.name, shard.bytes, shard.records, shard.sha256)
        places = np.concatenate(list(known))
    except IndexMismatchError:
        places = np.concatenate(list(_offsets(StoredFile(store, piece.name), limits)))
    return Span(first, end, int(places[first]), int(places[end]))


def _cut(offsets: Iterable[IntArray], *, room: int, target: int) -> Iterator[Span]:
    """Cut where `room` is used up, and then wherever `target` is; one record always fits that.

    `offsets` tell, some at a time, where each record begins and where the last one ends.
    """
    first = end = start_byte = end_byte = 0
    begun = False
    for lot in offsets:
        ends = lot if begun else lot[1:]
        if not begun:
            start_byte = end_byte = int(lot[0])
            begun = True
        base, done = end, 0
        while done < len(ends):
            fits = int(np.searchsorted(ends, start_byte + room, "right"))
            if fits <= done and end == first:
                # Nothing fits into what is left: the next one begins empty, and takes one record.
                fits = done + 1 if room == target else done
                room = target
            if fits > done:
                done, end, end_byte = fits, base + fits, int(ends[fits - 1])
            if done < len(ends) and end > first:
                yield Span(first, end, start_byte, end_byte)
                first, start_byte, room = end, end_byte, target
    if end > first:
        yield Span(first, end, start_byte, end_byte)


def _offsets(file: StoredFile, limits: Limits) -> Iterator[IntArray]:
    """Where each record begins in the unpacked shard, and where the last one ends."""
    end = 0
    with RecordFile(file, limits=limits) as read:
        for block in read.blocks():
            yield block.starts + (block.offset - HEADER_BYTES)
            end = block.offset + len(block.data)
    yield np.array([end], np.int64)
