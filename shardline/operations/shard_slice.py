"""Copy records from one TFRecord file into another, byte for byte, checked on the way."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline import canonical_json as canonical
from shardline.errors import IndexMismatchError, WrongShardError
from shardline.execution.threads import prefetch
from shardline.hints import Command, Hint
from shardline.kernel.types import HEADER_BYTES
from shardline.readers.records import list_records
from shardline.text import format_count
from shardline.tfrecord.compression import CompressedStream, Compression, detect_compression
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import Fingerprint, read_offsets
from shardline.tfrecord.input_file import StoredFile, open_file
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.records import Records
    from shardline.readers.shard_file import ShardFile
    from shardline.storage import Store
    from shardline.tfrecord.input_file import OpenFile, Source
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock
    from shardline.tfrecord.writer import RecordSink


_BLOCK_BYTES = 2 * 1024 * 1024
_SIZE_BYTES = 4
"""A GZIP member ends with the size of its data."""


@dataclass(frozen=True, slots=True)
class Span:
    """The records of a file from `first` up to `end`, which lie at these bytes when unpacked."""

    first: int
    end: int
    start_byte: int
    end_byte: int


def copy_file(
    source: Source,
    sink: RecordSink,
    *,
    sha256: str | None = None,
    records: int | None = None,
    fingerprint: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> int:
    """Copy every record of a file, and say how many.

    A GZIP file goes into a GZIP file as it is, unless its last member is empty; whatever else is
    packed is unpacked. `sha256` and `records` are what the file must have. Of a plain file that
    has the `fingerprint`, the sha256 is not made: the checksums of its records, their number and
    its ends tell damage and another file, and only someone who means to deceive gets past them.
    Raises CorruptFileError or WrongShardError if it is not as told; then what went into the sink
    is no good. `tell` hears of the bytes read and the records.
    """
    count = unpacked = 0
    ends = Fingerprint()
    with closing(open_file(source)) as opened:
        packing = detect_compression(opened)
        as_it_is = packing is sink.compression is Compression.GZIP and not _ends_with_empty_member(
            opened
        )
        quick = fingerprint is not None and packing is Compression.NONE
        file = HashedFile(opened, sink.add_packed if as_it_is else None)
        if as_it_is:
            sink.begin_packed()
        read = RecordFile(
            opened if quick else file, limits=limits, block_bytes=_BLOCK_BYTES, compression=packing
        )
        for block, position in _read_ahead(read, workers=1 if as_it_is or quick else workers):
            if quick:
                ends.add(block.data)
            if as_it_is:
                sink.note_packed(block.starts, len(block.data))
            else:
                sink.add(block.data, block.starts, block.lengths)
            count += len(block.starts)
            unpacked += len(block.data)
            if tell is not None:
                tell(position, count)
        digest = sha256 if quick and ends.value == fingerprint else file.finish()
        if as_it_is and isinstance(read.stream, CompressedStream):
            sink.end_packed(read.stream.members, unpacked)
    validate_copied_content(source, digest, count, sha256=sha256, records=records)
    return count


def _ends_with_empty_member(file: OpenFile) -> bool:
    """Whether the last GZIP member of a file is empty: TensorFlow may stop there, if more follows.

    One of 4 GiB looks the same, and loses nothing by being packed anew.
    """
    return not any(file.pread(_SIZE_BYTES, max(file.size - _SIZE_BYTES, 0)))


def _read_ahead(read: RecordFile, *, workers: int | None) -> Iterator[tuple[RecordBlock, int]]:
    """The blocks of a file and how far it was read for each.

    With more than one worker they are read, hashed and checked while those before are written. A
    file that is not hashed while it is read is not worth another thread.
    """
    if (workers or os.cpu_count() or 1) == 1:
        return ((block, read.stream.position) for block in read.blocks())
    return prefetch((block, read.stream.position) for block in read.blocks())


def copy_span(
    source: Source,
    span: Span,
    sink: RecordSink,
    *,
    limits: Limits = DEFAULT_LIMITS,
    tell: Callable[[int, int], None] | None = None,
) -> int:
    """Copy the records of a span, and say how many. Raises as `copy_file` does.

    What lies outside the span is not looked at: it is for the caller to know that the file is the
    one that was committed.
    """
    count = 0
    with RecordFile(source, limits=limits) as read:
        for block in _blocks(read, span):
            sink.add(block.data, block.starts, block.lengths)
            count += len(block.starts)
            if tell is not None:
                tell(block.offset + len(block.data) - span.start_byte, count)
    if count != span.end - span.first:
        found = format_count(count, "record")
        raise _make_content_error(source, f"a span of it has {found}, not {span.end - span.first}")
    return count


def fold_layers(
    records: Records,
    sink: RecordSink,
    limits: Limits = DEFAULT_LIMITS,
    tell: Callable[[int, int], None] | None = None,
) -> int:
    """Write records that lie in layers as whole ones, and say how many. Raises as readers do."""
    count = 0
    size = sum(file.shard.bytes for file in records.files)
    for block in records.blocks(limits=limits, block_bytes=_BLOCK_BYTES):
        sink.add(block.data, block.starts, block.lengths)
        count += len(block.starts)
        if tell is not None:
            tell(size * count // max(records.shard.records, 1), count)
    return count


def _blocks(read: RecordFile, span: Span) -> Iterator[RecordBlock]:
    if read.compression is Compression.NONE:
        yield from read.blocks_between(
            span.start_byte, span.end_byte, record=span.first, search=False
        )
        return
    for block in read.blocks():
        if block.offset >= span.end_byte:
            return
        kept = block.skip(len(block.before(span.start_byte))).before(span.end_byte)
        if len(kept.starts):
            yield kept


def validate_copied_content(
    source: Source, digest: str | None, count: int, *, sha256: str | None, records: int | None
) -> None:
    """Refuse a file that has another digest or number of records than the one committed."""
    if records is not None and count != records:
        raise _make_content_error(
            source, f"it has {format_count(count, 'record')} and should have {records}"
        )
    if sha256 is not None and digest != sha256:
        raise _make_content_error(source, "its sha256 is not the one that was committed")


def _make_content_error(source: Source, what: str) -> WrongShardError:
    return WrongShardError(
        f"{source}: not the committed file: {what}",
        hint=_repair_hint(source),
        path=str(source),
        version=_get_version(source),
    )


def _repair_hint(source: Source) -> Hint | None:
    """Return how to check and repair the version of a shard; None for a standalone file."""
    version = _get_version(source)
    if version is None:
        return None
    verify, repair = Command.of("verify", version), Command.of("repair", version)
    return Hint.of("run ", verify, ", then ", repair)


def _get_version(source: Source) -> str | None:
    """Return the version that a stored shard belongs to, by its name."""
    if not isinstance(source, StoredFile) or "/shards/" not in source.name:
        return None
    dataset, _, leaf = source.name.partition("/shards/")
    return f"{dataset}/{leaf.split('.')[0]}"


@dataclass(frozen=True, slots=True)
class ShardSlice:
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

    def to_dict(self) -> Json:
        """What the name of a rebuilt shard depends on."""
        told: Json = {"sha256": self.shard.content}
        if self.span is not None:
            told["records"] = [self.span.first, self.span.end]
        return told


@dataclass(frozen=True, slots=True)
class RebuildOutput:
    """A rebuilt shard and its slices. `again` is how many before it are made of the same bytes."""

    slices: tuple[ShardSlice, ...]
    again: int = 0

    def identity(self, compression: Compression) -> Json:
        """What its name is a hash of: all that can make a difference, and which of several."""
        pieces = [piece.to_dict() for piece in self.slices]
        return make_rebuild_identity(pieces, compression.value, self.again)


def make_rebuild_identity(pieces: list[Json], compression: str, again: int = 0) -> Json:
    """What the name of a rebuilt shard depends on; each piece as `Slice` tells it."""
    told: Json = {"operation": "rebuild", "slices": pieces, "compression": compression}
    return {**told, "again": again} if again else told


def number_outputs(outputs: Sequence[tuple[ShardSlice, ...]]) -> list[RebuildOutput]:
    """The outputs of a plan, with those told apart that are made of the same bytes."""
    seen: Counter[str] = Counter()
    made = []
    for slices in outputs:
        key = canonical.sha256([piece.to_dict() for piece in slices])
        made.append(RebuildOutput(slices, seen[key]))
        seen[key] += 1
    return made


def list_whole_slices(snapshot: StoredSnapshot) -> list[ShardSlice]:
    """Each shard of a snapshot, whole."""
    return [
        ShardSlice(
            snapshot.shard_name(shard),
            shard,
            layered=records if shard.base is not None or shard.virtual else None,
        )
        for shard, records in zip(snapshot.shards, list_records(snapshot), strict=True)
    ]


def plan_rebuild(
    store: Store,
    inputs: Sequence[ShardSlice],
    target: int | None,
    limits: Limits = DEFAULT_LIMITS,
) -> list[tuple[ShardSlice, ...]]:
    """The slices of each rebuilt shard. The target counts unpacked bytes; None is one shard.

    An overlay is not cut: how large its records are is known when they are joined.
    """
    if target is None:
        return [tuple(inputs)] if inputs else []
    outputs: list[tuple[ShardSlice, ...]] = []
    current: list[ShardSlice] = []
    room = target
    for whole in inputs:
        for piece, size in _split_shard(store, whole, limits, room=room, target=target):
            if current and size > room:
                outputs.append(tuple(current))
                current, room = [], target
            current.append(piece)
            room -= size
    return [*outputs, tuple(current)] if current else outputs


def _split_shard(
    store: Store, whole: ShardSlice, limits: Limits, *, room: int, target: int
) -> Iterator[tuple[ShardSlice, int]]:
    """A shard cut where a rebuilt one is full, and the unpacked size of each piece."""
    name, shard = whole.name, whole.shard
    if whole.layered is not None or (shard.compression == "none" and shard.bytes <= room):
        yield whole, whole.bytes
        return
    spans = _split_spans(store, name, shard, limits, room=room, target=target)
    for span in spans:
        alone = len(spans) == 1
        yield ShardSlice(name, shard, None if alone else span), span.end_byte - span.start_byte
    if not spans:
        yield ShardSlice(name, shard), 0


def _split_spans(
    store: Store, name: str, shard: Shard, limits: Limits, *, room: int, target: int
) -> list[Span]:
    """All records of a shard in spans that fit: by its index, or by reading it if it has none."""
    try:
        known = read_offsets(store, name, shard.bytes, shard.records, shard.sha256)
        return list(_find_cuts(known, room=room, target=target))
    except IndexMismatchError:
        found = _read_offsets(StoredFile(store, name), limits)
        return list(_find_cuts(found, room=room, target=target))


def get_span(store: Store, piece: ShardSlice, first: int, end: int, limits: Limits) -> Span:
    """The records of a shard from `first` up to `end`, by its index or by reading it."""
    shard = piece.shard
    try:
        known = read_offsets(store, piece.name, shard.bytes, shard.records, shard.sha256)
        places = np.concatenate(list(known))
    except IndexMismatchError:
        places = np.concatenate(list(_read_offsets(StoredFile(store, piece.name), limits)))
    return Span(first, end, int(places[first]), int(places[end]))


def _find_cuts(offsets: Iterable[IntArray], *, room: int, target: int) -> Iterator[Span]:
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


def _read_offsets(file: StoredFile, limits: Limits) -> Iterator[IntArray]:
    """Where each record begins in the unpacked shard, and where the last one ends."""
    end = 0
    with RecordFile(file, limits=limits) as read:
        for block in read.blocks():
            yield block.starts + (block.offset - HEADER_BYTES)
            end = block.offset + len(block.data)
    yield np.array([end], np.int64)
