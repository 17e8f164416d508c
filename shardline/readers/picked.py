"""Some records of a file, by their numbers, for those who want a sample and not all of it.

A plain shard is read through its index, as many bytes as the records have. So is a GZIP shard on a
local disk, where a run of records costs the member that it begins in. A lost or corrupt index is
written again. Any other shard, a small one, and one whose index cannot be written is read from its
start up to the last record that is wanted.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.errors import DamagedFileError, IndexMismatchError
from shardline.kernel.types import FRAME_BYTES
from shardline.readers.content import SMALL_BYTES, is_committed, rebuild_index
from shardline.tfrecord.index import IndexedFile, read_offsets
from shardline.tfrecord.reader import Picked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from shardline.kernel.types import IntArray
    from shardline.readers.shards import ShardFile
    from shardline.tfrecord.reader import Limits

_PIECE_BYTES = 1024 * 1024
_SPAN_BYTES = 32 * 1024 * 1024
"""Parts of an object that lie close together come in one answer, with what is between them."""


def pick(file: ShardFile, numbers: IntArray, *, limits: Limits) -> Generator[Picked, None, None]:
    """See `ShardFile.pick`."""
    if not len(numbers):
        return
    file.look()
    read = _through_index(file)
    if read is None:
        yield from _streamed(file, numbers, limits)
        return
    done = 0
    try:
        for picked in read(file, numbers, limits):
            yield picked
            done += len(picked.numbers)
    except (IndexMismatchError, DamagedFileError) as error:
        # The index or the shard is corrupt: reading all of the shard tells which.
        if rebuild_index(file, limits):
            yield from read(file, numbers[done:], limits)
        elif isinstance(error, DamagedFileError):
            raise
        else:
            yield from _streamed(file, numbers[done:], limits)


def _through_index(
    file: ShardFile,
) -> Callable[[ShardFile, IntArray, Limits], Iterator[Picked]] | None:
    """Return how to read a shard through its index; None if it has no random access.

    What it returns raises IndexMismatchError, maybe late, if the index is lost or corrupt.
    """
    if file.shard.bytes <= SMALL_BYTES:
        return None
    local = file.file.store.local_path(file.file.name) is not None
    if file.shard.compression == "none" and not local:
        return _from_afar
    return None if file.shard.compression == "zlib" or not local else _from_disk


def _from_disk(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[Picked]:
    with IndexedFile(file.path, limits=limits, sha256=file.shard.sha256) as indexed:
        if len(indexed) != file.shard.records:
            raise IndexMismatchError(f"{file.path}: index of another file", path=file.path)
        if indexed.is_plain:
            done = 0
            for data, starts, lengths in indexed.frames(numbers, _PIECE_BYTES):
                yield Picked(data, starts, lengths, numbers[done : done + len(starts)])
                done += len(starts)
            return
        payloads: list[bytes] = []
        size = done = 0
        for first, last in _runs(numbers):
            for payload in indexed.read(first, last):
                payloads.append(payload)
                size += len(payload)
                if size >= _PIECE_BYTES:
                    yield _joined(payloads, numbers[done:])
                    done += len(payloads)
                    payloads, size = [], 0
        if payloads:
            yield _joined(payloads, numbers[done:])


def _runs(numbers: IntArray) -> Iterator[tuple[int, int]]:
    """Numbers that follow each other together, as the first and the one behind the last."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        yield int(run[0]), int(run[-1]) + 1


def _joined(payloads: list[bytes], numbers: IntArray) -> Picked:
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    starts = np.cumsum(lengths) - lengths
    return Picked(b"".join(payloads), starts, lengths, numbers[: len(payloads)])


def _from_afar(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[Picked]:
    """Parts of an object, each asked for with those near it."""
    with closing(file.file.open()) as opened:
        if not is_committed(file, opened):
            raise IndexMismatchError(f"{file.path}: index of another file", path=file.path)
    begins, ends = _spans(file, numbers)
    longest = limits.max_record_bytes + FRAME_BYTES
    if (ends - begins > longest).any():
        raise IndexMismatchError(f"{file.path}: index has too large records", path=file.path)
    first = 0
    while first < len(numbers):
        within = np.searchsorted(ends, begins[first] + _SPAN_BYTES, "right")
        some = slice(first, max(int(within), first + 1))
        ranges = list(zip(begins[some].tolist(), (ends - begins)[some].tolist(), strict=True))
        data = b"".join(file.file.store.read_ranges(file.file.name, ranges))
        scan = kernel.scan(data, max_record_bytes=limits.max_record_bytes)
        if scan.consumed != len(data) or len(scan.starts) != len(ranges):
            bad = first + min(len(scan.starts), len(ranges) - 1)
            raise DamagedFileError(
                file.path,
                "data-crc",
                int(numbers[bad]),
                int(begins[bad]),
                "the indexed record is not intact (corrupt file, or index of another file)",
            )
        yield Picked(data, scan.starts, scan.lengths, numbers[some])
        first = some.stop


def _spans(file: ShardFile, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Where the frames of these records begin and end."""
    begins, ends = np.zeros_like(numbers), np.zeros_like(numbers)
    first = 0
    shard = file.shard
    stored = file.file
    known = read_offsets(stored.store, stored.name, shard.bytes, shard.records, shard.sha256)
    for offsets in known:
        for found, wanted in ((begins, numbers), (ends, numbers + 1)):
            low, high = np.searchsorted(wanted, (first, first + len(offsets)))
            found[low:high] = offsets[wanted[low:high] - first]
        first += len(offsets)
        if first > numbers[-1] + 1:
            break
    return begins, ends


def _streamed(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[Picked]:
    done = 0
    for block in file.blocks(limits=limits, block_bytes=_PIECE_BYTES):
        last = int(np.searchsorted(numbers, block.record + len(block.starts)))
        if last > done:
            chosen = numbers[done:last] - block.record
            yield Picked(
                block.data, block.starts[chosen], block.lengths[chosen], numbers[done:last]
            )
        done = last
        if done == len(numbers):
            return
