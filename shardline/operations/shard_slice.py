"""Slices of shards: plan how a rebuild cuts shards, and copy verified records."""

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
"""Size of the last field of a GZIP member: the length of its data."""


@dataclass(frozen=True, slots=True)
class Span:
    """Records of a file from `first` up to `end`, with their offsets in the decompressed data."""

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
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Copy all records of a file. Returns their number.

    A GZIP file is copied to a GZIP file as it is, unless its last member is empty. Other compressed
    data is decompressed.

    Args:
        source: The file to read.
        sink: The file to write. Its content is invalid after an error.
        sha256: Expected SHA-256 of the file.
        records: Expected number of records.
        fingerprint: Expected fingerprint of an uncompressed file. If it matches, the SHA-256 is not
            computed: the checksums of the records, their number and both ends of the file detect
            corruption and other files, except for a deliberate forgery.
        limits: Limits of what is read.
        workers: Number of threads. By default one per core.
        progress: Called with the bytes and the records read so far.

    Raises:
        CorruptFileError: If a record is corrupt.
        WrongShardError: If the file is not the expected one.
    """
    count = data_bytes = 0
    ends = Fingerprint()
    with closing(open_file(source)) as opened:
        compression = detect_compression(opened)
        is_gzip_copy = (
            compression is sink.compression is Compression.GZIP
            and not _ends_with_empty_member(opened)
        )
        is_fingerprinted = fingerprint is not None and compression is Compression.NONE
        file = HashedFile(opened, sink.add_packed if is_gzip_copy else None)
        if is_gzip_copy:
            sink.begin_packed()
        read = RecordFile(
            opened if is_fingerprinted else file,
            limits=limits,
            block_bytes=_BLOCK_BYTES,
            compression=compression,
        )
        threads = 1 if is_gzip_copy or is_fingerprinted else workers
        for block, position in _read_ahead(read, workers=threads):
            if is_fingerprinted:
                ends.add(block.data)
            if is_gzip_copy:
                sink.note_packed(block.starts, len(block.data))
            else:
                sink.add(block.data, block.starts, block.lengths)
            count += len(block.starts)
            data_bytes += len(block.data)
            if progress is not None:
                progress(position, count)
        is_match = is_fingerprinted and ends.value == fingerprint
        digest = sha256 if is_match else file.finish()
        if is_gzip_copy and isinstance(read.stream, CompressedStream):
            sink.end_packed(read.stream.members, data_bytes)
    validate_copied_content(source, digest, count, sha256=sha256, records=records)
    return count


def _ends_with_empty_member(file: OpenFile) -> bool:
    """Return True if the last GZIP member of a file is empty.

    TensorFlow may stop at an empty member that others follow. A member of 4 GiB looks the same, and
    is compressed again in vain.
    """
    return not any(file.pread(_SIZE_BYTES, max(file.size - _SIZE_BYTES, 0)))


def _read_ahead(read: RecordFile, *, workers: int | None) -> Iterator[tuple[RecordBlock, int]]:
    """Yield the blocks of a file, each with the position that was read.

    With more than one worker, blocks are read, hashed and verified while earlier ones are written.
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
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Copy the records of a span. Returns their number. Raises the errors of `copy_file`.

    Other records are not read: the caller must have verified that the file is the committed one.
    """
    count = 0
    with RecordFile(source, limits=limits) as read:
        for block in _iter_blocks(read, span):
            sink.add(block.data, block.starts, block.lengths)
            count += len(block.starts)
            if progress is not None:
                progress(block.offset + len(block.data) - span.start_byte, count)
    expected = span.end - span.first
    if count != expected:
        problem = f"a span of it has {format_count(count, 'record')}, not {expected}"
        raise _make_content_error(source, problem)
    return count


def fold_layers(
    records: Records,
    sink: RecordSink,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Copy the records of overlays or pair plans as whole records. Returns their number."""
    count = 0
    size = sum(file.shard.bytes for file in records.files)
    for block in records.blocks(limits=limits, block_bytes=_BLOCK_BYTES):
        sink.add(block.data, block.starts, block.lengths)
        count += len(block.starts)
        if progress is not None:
            progress(size * count // max(records.shard.records, 1), count)
    return count


def _iter_blocks(read: RecordFile, span: Span) -> Iterator[RecordBlock]:
    if read.compression is Compression.NONE:
        yield from read.blocks_between(
            span.start_byte, span.end_byte, record=span.first, search=False
        )
        return
    for block in read.blocks():
        if block.offset >= span.end_byte:
            return
        part = block.skip(len(block.before(span.start_byte))).before(span.end_byte)
        if len(part.starts):
            yield part


def validate_copied_content(
    source: Source, digest: str | None, count: int, *, sha256: str | None, records: int | None
) -> None:
    """Raise WrongShardError if a file has another digest or number of records."""
    if records is not None and count != records:
        raise _make_content_error(
            source, f"it has {format_count(count, 'record')} and should have {records}"
        )
    if sha256 is not None and digest != sha256:
        raise _make_content_error(source, "its sha256 is not the one that was committed")


def _make_content_error(source: Source, problem: str) -> WrongShardError:
    return WrongShardError(
        f"{source}: not the committed file: {problem}",
        hint=_get_repair_hint(source),
        path=str(source),
        version=_get_version(source),
    )


def _get_repair_hint(source: Source) -> Hint | None:
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
    """All records of a shard, or a span of them. `name` is its name in the store.

    `layered` are the records of an overlay with its base, or the pairs of a plan.
    """

    name: str
    shard: Shard
    span: Span | None = None
    layered: Records | None = None

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """Files of layered records. Other shards have only their own file."""
        return () if self.layered is None else self.layered.files

    @property
    def records(self) -> int:
        """Number of records."""
        return self.shard.records if self.span is None else self.span.end - self.span.first

    @property
    def bytes(self) -> int:
        """Number of bytes to read."""
        if self.layered is not None:
            return sum(file.shard.bytes for file in self.files)
        if self.span is None:
            return self.shard.bytes
        return self.span.end_byte - self.span.start_byte

    def to_dict(self) -> Json:
        """Return the identity of the slice, which is hashed into the name of a rebuilt shard."""
        identity: Json = {"sha256": self.shard.content}
        if self.span is not None:
            identity["records"] = [self.span.first, self.span.end]
        return identity


@dataclass(frozen=True, slots=True)
class RebuildOutput:
    """A rebuilt shard and its slices. `repeat` counts earlier outputs of the same slices."""

    slices: tuple[ShardSlice, ...]
    repeat: int = 0

    def identity(self, compression: Compression) -> Json:
        """Return the identity that its name is a hash of."""
        slices = [part.to_dict() for part in self.slices]
        return make_rebuild_identity(slices, compression.value, self.repeat)


def make_rebuild_identity(slices: list[Json], compression: str, repeat: int = 0) -> Json:
    """Return the identity of a rebuilt shard, from those of its slices."""
    identity: Json = {"operation": "rebuild", "slices": slices, "compression": compression}
    return {**identity, "again": repeat} if repeat else identity


def number_outputs(outputs: Sequence[tuple[ShardSlice, ...]]) -> list[RebuildOutput]:
    """Number the outputs of a plan that have the same slices."""
    seen: Counter[str] = Counter()
    numbered = []
    for slices in outputs:
        key = canonical.sha256([part.to_dict() for part in slices])
        numbered.append(RebuildOutput(slices, seen[key]))
        seen[key] += 1
    return numbered


def list_whole_slices(snapshot: StoredSnapshot) -> list[ShardSlice]:
    """List the shards of a snapshot as slices with all records."""
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
    """Return the slices of each rebuilt shard, a single shard without a target size.

    The target size is that of decompressed data. An overlay is not cut: the size of its records is
    unknown.
    """
    if target is None:
        return [tuple(inputs)] if inputs else []
    outputs: list[tuple[ShardSlice, ...]] = []
    current: list[ShardSlice] = []
    room = target
    for whole in inputs:
        for part, size in _split_shard(store, whole, limits, room=room, target=target):
            if current and size > room:
                outputs.append(tuple(current))
                current, room = [], target
            current.append(part)
            room -= size
    return [*outputs, tuple(current)] if current else outputs


def _split_shard(
    store: Store, whole: ShardSlice, limits: Limits, *, room: int, target: int
) -> Iterator[tuple[ShardSlice, int]]:
    """Yield a shard in slices that fit, each with its decompressed size."""
    name, shard = whole.name, whole.shard
    if whole.layered is not None or (shard.compression == "none" and shard.bytes <= room):
        yield whole, whole.bytes
        return
    spans = _split_spans(store, name, shard, limits, room=room, target=target)
    for span in spans:
        part = ShardSlice(name, shard, None if len(spans) == 1 else span)
        yield part, span.end_byte - span.start_byte
    if not spans:
        yield ShardSlice(name, shard), 0


def _split_spans(
    store: Store, name: str, shard: Shard, limits: Limits, *, room: int, target: int
) -> list[Span]:
    """Split all records of a shard into spans that fit, by its index or by reading it."""
    try:
        indexed = read_offsets(store, name, shard.bytes, shard.records, shard.sha256)
        return list(_find_cuts(indexed, room=room, target=target))
    except IndexMismatchError:
        offsets = _read_offsets(StoredFile(store, name), limits)
        return list(_find_cuts(offsets, room=room, target=target))


def get_span(store: Store, whole: ShardSlice, first: int, end: int, limits: Limits) -> Span:
    """Return the records of a shard from `first` up to `end`, by its index or by reading it."""
    shard = whole.shard
    try:
        indexed = read_offsets(store, whole.name, shard.bytes, shard.records, shard.sha256)
        offsets = np.concatenate(list(indexed))
    except IndexMismatchError:
        offsets = np.concatenate(list(_read_offsets(StoredFile(store, whole.name), limits)))
    return Span(first, end, int(offsets[first]), int(offsets[end]))


def _find_cuts(offsets: Iterable[IntArray], *, room: int, target: int) -> Iterator[Span]:
    """Cut after `room` bytes, then after each `target` bytes. A span has at least one record.

    `offsets` are arrays with the start of each record and the end of the last one.
    """
    first = end = start_byte = end_byte = 0
    has_start = False
    for batch in offsets:
        ends = batch if has_start else batch[1:]
        if not has_start:
            start_byte = end_byte = int(batch[0])
            has_start = True
        base, done = end, 0
        while done < len(ends):
            fits = int(np.searchsorted(ends, start_byte + room, "right"))
            if fits <= done and end == first:
                # No record fits into the room: the next shard begins empty, and takes at least one.
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
    """Yield the start of each record in the decompressed shard, and the end of the last one."""
    end = 0
    with RecordFile(file, limits=limits) as read:
        for block in read.blocks():
            yield block.starts + (block.offset - HEADER_BYTES)
            end = block.offset + len(block.data)
    yield np.array([end], np.int64)
