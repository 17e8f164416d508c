"""Which records of which shards go into which rebuilt shard.

With a target size, a rebuilt shard is full when the next record would take it over the target. So
what was full before stays as it was when more is appended, and only the end is made anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import IndexMismatchError
from shardline.files.index import read_offsets
from shardline.files.reader import DEFAULT_LIMITS, RecordFile
from shardline.files.stored import StoredFile
from shardline.kernel.types import HEADER_BYTES
from shardline.log import canonical
from shardline.operations.copying import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.files.compression import Compression
    from shardline.files.reader import Limits
    from shardline.kernel.types import IntArray
    from shardline.log.facts import Json, Shard
    from shardline.storage import Store


@dataclass(frozen=True, slots=True)
class Slice:
    """A shard that goes into a rebuilt one: `name` in the store, all of it or a span."""

    name: str
    shard: Shard
    span: Span | None = None

    @property
    def records(self) -> int:
        """How many records that is."""
        return self.shard.records if self.span is None else self.span.end - self.span.first

    @property
    def bytes(self) -> int:
        """How many bytes have to be read for it."""
        if self.span is None:
            return self.shard.bytes
        return self.span.end_byte - self.span.start_byte

    def to_json(self) -> Json:
        """What the name of a rebuilt shard depends on."""
        told: Json = {"sha256": self.shard.sha256}
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
        told: Json = {
            "operation": "rebuild",
            "slices": [piece.to_json() for piece in self.slices],
            "compression": compression.value,
        }
        return {**told, "again": self.again} if self.again else told


def numbered(outputs: Sequence[tuple[Slice, ...]]) -> list[Output]:
    """The outputs of a plan, with those told apart that are made of the same bytes."""
    seen: Counter[str] = Counter()
    made = []
    for slices in outputs:
        key = canonical.sha256([piece.to_json() for piece in slices])
        made.append(Output(slices, seen[key]))
        seen[key] += 1
    return made


def plan_rebuild(
    store: Store,
    inputs: Sequence[tuple[str, Shard]],
    target: int | None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[tuple[Slice, ...]]:
    """The slices of each rebuilt shard. The target counts unpacked bytes; None is one shard."""
    if target is None:
        whole = tuple(Slice(name, shard) for name, shard in inputs)
        return [whole] if whole else []
    outputs: list[tuple[Slice, ...]] = []
    current: list[Slice] = []
    room = target
    for name, shard in inputs:
        for piece, size in _pieces(store, name, shard, limits, room=room, target=target):
            if current and size > room:
                outputs.append(tuple(current))
                current, room = [], target
            current.append(piece)
            room -= size
    return [*outputs, tuple(current)] if current else outputs


def _pieces(
    store: Store, name: str, shard: Shard, limits: Limits, *, room: int, target: int
) -> Iterator[tuple[Slice, int]]:
    """A shard cut where a rebuilt one is full, and the unpacked size of each piece."""
    if shard.compression == "none" and shard.bytes <= room:
        yield Slice(name, shard), shard.bytes
        return
    spans = _spans(store, name, shard, limits, room=room, target=target)
    for span in spans:
        whole = len(spans) == 1
        yield Slice(name, shard, None if whole else span), span.end_byte - span.start_byte
    if not spans:
        yield Slice(name, shard), 0


def _spans(
    store: Store, name: str, shard: Shard, limits: Limits, *, room: int, target: int
) -> list[Span]:
    """All records of a shard in spans that fit: by its index, or by reading it if it has none."""
    try:
        known = read_offsets(store, name, shard.bytes, shard.records)
        return list(_cut(known, room=room, target=target))
    except IndexMismatchError:
        found = _offsets(StoredFile(store, name), limits)
        return list(_cut(found, room=room, target=target))


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
