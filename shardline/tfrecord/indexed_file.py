"""Random access to the records of a TFRecord file through its index."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Self

import numpy as np

from shardline import kernel
from shardline.arguments import parse_local_path
from shardline.errors import CorruptFileError, IndexMismatchError, RecordNotFoundError, StorageError
from shardline.hints import Hint, file_argument
from shardline.kernel.types import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from shardline.text import format_count
from shardline.tfrecord.compression import CompressedStream, Compression, CompressionError
from shardline.tfrecord.index import (
    INDEX_BLOCK_BYTES,
    INDEX_BLOCK_NUMBERS,
    INDEX_HEADER,
    SMALL_INDEX_BYTES,
    IndexHeader,
    compute_fingerprint,
    fill_index,
    index_path,
    parse_header,
    parse_table,
    validate_blocks,
    write_index,
)
from shardline.tfrecord.input_file import open_regular
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.kernel.types import Buffer, IntArray


_SKIP_BYTES = 1024 * 1024


class IndexedFile:
    """TFRecord file with its index: `file[i]` reads and verifies one record.

    Opening does not read the offsets of a large index. In a compressed file, reading a record
    decompresses the member that holds it. Files written by Shardline have small members, files
    written by TensorFlow a single member.
    """

    def __init__(
        self, path: Path | str, *, limits: Limits = DEFAULT_LIMITS, sha256: str | None = None
    ) -> None:
        """Open a file with its index.

        Args:
            path: the file.
            limits: the largest record and decompressed size to accept.
            sha256: digest of a committed shard. An index of another file, or a corrupt index,
                is then rejected. For a standalone file, a corrupt index is rewritten.
        """
        self.path = parse_local_path(path)
        self._index = str(index_path(self.path))
        self._limits = limits
        self._sha256 = sha256
        self._file = open_regular(self.path)
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        try:
            self._load()
        except IndexMismatchError as error:
            if self._sha256 is not None or error.code != "corrupt-index":
                raise
            self._rebuild(error)

    def _rebuild(self, error: IndexMismatchError) -> None:
        """Rewrite a corrupt index, or rebuild it in memory if it cannot be written."""
        try:
            write_index(self.path, limits=self._limits)
            self._load()
        except CorruptFileError:
            raise error from None
        except (OSError, StorageError):
            memory = _InMemory()
            fill_index(memory, self.path, limits=self._limits)
            header = parse_header(str(self.path), bytes(memory.data[: INDEX_HEADER.size]))
            self._take(header, bytes(memory.data))

    def _load(self) -> None:
        try:
            descriptor = os.open(self._index, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise IndexMismatchError(
                f"{self.path}: index not found",
                code="index-not-found",
                hint=Hint.run("index", file_argument(self.path)),
                path=self._index,
            ) from None
        try:
            size = os.fstat(descriptor).st_size
            start = os.pread(descriptor, SMALL_INDEX_BYTES, 0)
            header = parse_header(self._index, start)
            self._check(header, size)
            self._take(header, start if len(start) == size else _map(descriptor))
        finally:
            os.close(descriptor)

    def _check(self, header: IndexHeader, size: int) -> None:
        """Raise IndexMismatchError for an index of another file or of the wrong size."""
        if header.size != self._file.size:
            raise self._mismatch("index of a file of another size")
        if self._sha256 is not None and header.sha256 not in {"", self._sha256}:
            raise self._mismatch("index of another file")
        touched = self._sha256 is not None or self.path.stat().st_mtime_ns != header.written
        if touched and header.fingerprint != compute_fingerprint(self._file, header.size):
            raise self._mismatch("file changed after it was indexed")
        if not header.is_checked:
            raise self._mismatch("index without checksums", "corrupt-index")
        if size != header.bytes:
            raise self._mismatch("truncated index", "corrupt-index")

    def _take(self, header: IndexHeader, data: Buffer | mmap.mmap) -> None:
        view = memoryview(data)
        end = header.offset + 8 * header.numbers
        self._checksums = parse_table(self._index, header, view[end:])
        self._compared = bytearray(header.blocks)
        self._body = view[header.offset : end]
        numbers = np.frombuffer(self._body, "<u8")
        self._compression = header.compression
        self._offsets = numbers[: header.records + 1]
        self._members = numbers[header.records + 1 :].reshape(-1, 2)
        for block in range((header.records + 1) // INDEX_BLOCK_NUMBERS, header.blocks):
            self._compare(block)  # the blocks with the members, which are few

    def _compare(self, block: int) -> None:
        """Compare a block of the index with its checksum before its first use."""
        stored = self._body[block * INDEX_BLOCK_BYTES : (block + 1) * INDEX_BLOCK_BYTES]
        validate_blocks(self._index, stored, self._checksums, block)
        self._compared[block] = 1

    def _mismatch(self, problem: str, code: str | None = None) -> IndexMismatchError:
        hint = Hint.run("index", file_argument(self.path))
        return IndexMismatchError(
            f"{self._index}: {problem}", code=code, hint=hint, path=self._index
        )

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, record: int) -> bytes:
        """Return the verified payload of one record. Negative numbers count from the end."""
        number = record + len(self) if record < 0 else record
        if not 0 <= number < len(self):
            raise RecordNotFoundError(
                f"{self.path}: record {record} not found ({format_count(len(self), 'record')})",
                path=self.path,
                record=record,
            )
        return next(self.read(number))

    def read(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Yield the verified payloads from record `start` up to `stop`."""
        stop = len(self) if stop is None else min(stop, len(self))
        packed: CompressedStream | None = None
        for record in range(start, stop):
            offset, end = self._bounds(record)
            if not FRAME_BYTES <= end - offset <= self._limits.max_record_bytes + FRAME_BYTES:
                raise self._mismatch("index does not fit the file")
            if self._compression is Compression.NONE and end > self._file.size:
                raise self._mismatch("index does not fit the file")
            try:
                if self._compression is Compression.NONE:
                    frame = self._file.pread(end - offset, offset)
                else:
                    packed = packed or self._unpack_from(offset)
                    frame = _take(packed, end - offset)
            except CompressionError as error:
                raise CorruptFileError(
                    str(self.path),
                    "compression",
                    record,
                    error.offset,
                    error.detail,
                    code=error.code,
                ) from None
            scan = kernel.scan(frame, max_record_bytes=self._limits.max_record_bytes)
            if scan.consumed != end - offset or len(scan.starts) != 1:
                raise self._make_corrupt_error(record, offset)
            yield frame[HEADER_BYTES:-FOOTER_BYTES]

    @property
    def is_plain(self) -> bool:
        """Return True if the file is not compressed."""
        return self._compression is Compression.NONE

    def frames(
        self, numbers: IntArray, piece_bytes: int
    ) -> Iterator[tuple[bytes, IntArray, IntArray]]:
        """Yield frames, starts and lengths of records of a plain file, in pieces.

        A piece has about `piece_bytes`. The starts and lengths are those of the payloads. The
        numbers ascend. Raises CorruptFileError for a record that is not intact.
        """
        for block in np.union1d(
            numbers // INDEX_BLOCK_NUMBERS, (numbers + 1) // INDEX_BLOCK_NUMBERS
        ):
            if not self._compared[block]:
                self._compare_or_rebuild(int(block))
        begins, ends = (self._offsets[index].astype(np.int64) for index in (numbers, numbers + 1))
        sizes = ends - begins
        longest = self._limits.max_record_bytes + FRAME_BYTES
        fits = (begins >= 0) & (sizes >= FRAME_BYTES) & (sizes <= longest)
        if not fits.all() or ends.max(initial=0) > self._file.size:
            raise self._mismatch("index does not fit the file")
        done, total = 0, np.cumsum(sizes)
        while done < len(numbers):
            before = int(total[done - 1]) if done else 0
            last = max(int(np.searchsorted(total, before + piece_bytes, "right")), done + 1)
            part = slice(done, last)
            yield self._frames(numbers[part], begins[part], ends[part])
            done = last

    def _frames(
        self, numbers: IntArray, begins: IntArray, ends: IntArray
    ) -> tuple[bytes, IntArray, IntArray]:
        cuts = np.flatnonzero(begins[1:] != ends[:-1]) + 1  # neighbors are read together
        firsts, lasts = begins[[0, *cuts]].tolist(), ends[[*(cuts - 1), -1]].tolist()
        data = b"".join(
            self._file.pread(last - first, first) for first, last in zip(firsts, lasts, strict=True)
        )
        sizes = ends - begins
        expected = np.cumsum(sizes) - sizes + HEADER_BYTES
        scan = kernel.scan(data, max_record_bytes=self._limits.max_record_bytes)
        if scan.consumed != int(sizes.sum()) or not np.array_equal(scan.starts, expected):
            same = min(len(scan.starts), len(numbers))
            wrong = np.flatnonzero(scan.starts[:same] != expected[:same])
            # If a frame has the expected start but another length, the next start is wrong.
            bad = min(int(wrong[0]) - 1 if len(wrong) else same, len(numbers) - 1)
            raise self._make_corrupt_error(int(numbers[max(bad, 0)]), int(begins[max(bad, 0)]))
        return data, scan.starts, scan.lengths

    def _bounds(self, record: int) -> tuple[int, int]:
        """Return where a record begins and ends in the decompressed file."""
        if not self._compared[record // INDEX_BLOCK_NUMBERS]:
            self._compare_or_rebuild(record // INDEX_BLOCK_NUMBERS)
        if not self._compared[(record + 1) // INDEX_BLOCK_NUMBERS]:
            self._compare_or_rebuild((record + 1) // INDEX_BLOCK_NUMBERS)
        return int(self._offsets[record]), int(self._offsets[record + 1])

    def _compare_or_rebuild(self, block: int) -> None:
        try:
            self._compare(block)
        except IndexMismatchError as error:
            if self._sha256 is not None:
                raise
            self._rebuild(error)
            self._compare(block)

    def _unpack_from(self, offset: int) -> CompressedStream:
        """Return the decompressed stream at `offset`, entered at the last member before it."""
        member = int(np.searchsorted(self._members[:, 1], offset, "right")) - 1
        in_file, unpacked = (int(number) for number in self._members[max(member, 0)])
        if in_file > self._file.size or unpacked > offset:
            raise self._mismatch("index does not fit the file")
        stream = CompressedStream(
            self._file,
            self._compression,
            start=in_file,
            max_decompressed_bytes=self._limits.max_decompressed_bytes,
        )
        to_skip = offset - unpacked
        while to_skip > 0:
            skipped = len(_take(stream, min(to_skip, _SKIP_BYTES)))
            if not skipped:
                raise self._mismatch("index does not fit the file")
            to_skip -= skipped
        return stream

    def _make_corrupt_error(self, record: int, offset: int) -> CorruptFileError:
        detail = (
            "the record the index points at is not intact: the file is damaged, or the index is "
            "not of this file"
        )
        return CorruptFileError(str(self.path), "data-crc", record, offset, detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _map(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


class _InMemory:
    """Index in memory, if no file can be written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: Buffer) -> None:
        self.data += data

    def rewrite(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data


def _take(stream: CompressedStream, size: int) -> bytes:
    """Return the next `size` bytes, or fewer at the end."""
    taken = bytearray(size)
    filled = 0
    while filled < size:
        count = stream.readinto(memoryview(taken)[filled:])
        if not count:
            break
        filled += count
    return bytes(taken[:filled])
