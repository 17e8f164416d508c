"""Offset index next to a TFRecord file: where each record begins, for random access.

The file `NAME.index` holds a header, the offset of every record in the decompressed file, and the
end of the last record. For compressed files it also holds where each member begins (in the file, in
the decompressed bytes). All numbers are little-endian uint64. Each block of 4,096 numbers has a
checksum, which is compared when the block is first used. An index is derived, so it can be deleted
and rebuilt at any time. A record read through it is verified by its own checksums. When the file is
opened, its size, time and ends are compared with the index.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.arguments import parse_local_path
from shardline.errors import (
    IndexMismatchError,
    InvalidNameError,
    NotAFileError,
    ObjectNotFoundError,
    StorageError,
)
from shardline.kernel.types import FRAME_BYTES, HEADER_BYTES
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression, members_of
from shardline.tfrecord.input_file import LocalFile, StoredFile, open_file
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from shardline.kernel.types import Buffer, IntArray
    from shardline.storage.store import ObjectWriter, Store
    from shardline.tfrecord.input_file import OpenFile, Source
    from shardline.tfrecord.record_block import RecordBlock

_MAGIC = b"SHARDIX2"
_OLD_MAGIC = b"SHARDIX1"
INDEX_BLOCK_NUMBERS = 4096
INDEX_BLOCK_BYTES = 8 * INDEX_BLOCK_NUMBERS
_OFFSETS_AT_ONCE = 32 * INDEX_BLOCK_NUMBERS
INDEX_HEADER = struct.Struct("<8sQQQQQ32sIIII")
"""Fields of the header.

Magic, size and time of the file, compression, records, members, SHA-256 of the file, fingerprint,
crc32c of the block checksums, 0, own crc32c.
"""
_OLD_HEADER = struct.Struct("<8sQQQQQII")
_CRC_BYTES = 4
SMALL_INDEX_BYTES = 64 * 1024
"""Largest index that is read at once."""
_FINGERPRINT_BYTES = 64 * 1024
_COMPRESSIONS = tuple(Compression)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Header of an index: the file that it belongs to, and the length of its body.

    `sha256` is empty if it was unknown. `is_checked` states that the body has checksums, which an
    index of release 0.1 lacks.
    """

    size: int
    written: int
    compression: Compression
    records: int
    members: int
    sha256: str
    fingerprint: int
    checksums: int
    is_checked: bool

    @property
    def numbers(self) -> int:
        """Number of numbers in the body."""
        return self.records + 1 + 2 * self.members

    @property
    def blocks(self) -> int:
        """Number of blocks that have a checksum."""
        return -(-self.numbers // INDEX_BLOCK_NUMBERS) if self.is_checked else 0

    @property
    def offset(self) -> int:
        """Offset of the body."""
        return INDEX_HEADER.size if self.is_checked else _OLD_HEADER.size

    @property
    def bytes(self) -> int:
        """Size of the index in bytes."""
        return self.offset + 8 * self.numbers + _CRC_BYTES * self.blocks


def parse_header(index: str, data: bytes) -> IndexHeader:
    """Parse a header. Raises IndexMismatchError if it is truncated or corrupt."""
    is_checked = data[:8] == _MAGIC
    form = INDEX_HEADER if is_checked else _OLD_HEADER
    header = data[: form.size]
    if len(header) < form.size:
        raise _corrupt(index, "truncated index")
    intact = struct.pack("<I", kernel.crc32c(header[:-_CRC_BYTES])) == header[-_CRC_BYTES:]
    if not intact or header[:8] not in {_MAGIC, _OLD_MAGIC}:
        raise _corrupt(index, "not an index, or corrupt")
    _, size, written, compression, records, members, *rest, _ = form.unpack(header)
    if compression >= len(_COMPRESSIONS) or (compression and records and not members):
        raise _corrupt(index, "not an index, or corrupt")
    sha256, fingerprint, checksums, _ = rest if is_checked else (b"", *rest, 0, 0)
    digest = sha256.hex() if any(sha256) else ""
    counts = (size, written, _COMPRESSIONS[compression], records, members)
    return IndexHeader(*counts, digest, fingerprint, checksums, is_checked)


def _corrupt(index: str, problem: str) -> IndexMismatchError:
    return IndexMismatchError(f"{index}: {problem}", code="corrupt-index", path=index)


def index_path(path: Path) -> Path:
    """Return the path of a file's index. Raises InvalidNameError for a path without a name."""
    if not path.name:
        raise InvalidNameError(f"{str(path)!r}: path has no file name")
    return path.with_name(path.name + ".index")


def write_index(
    path: Path | str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Verify every record of a file and write its index. Returns the number of records.

    An existing index is replaced. Raises CorruptFileError, and writes no index, if the file is
    corrupt.
    """
    path = parse_local_path(path)
    with DurableFile(index_path(path), overwrite=True) as file:
        written = path.stat().st_mtime_ns
        return fill_index(file, path, limits=limits, written=written, progress=progress)


def fill_index(
    file: ObjectWriter,
    source: Source | OpenFile,
    *,
    limits: Limits = DEFAULT_LIMITS,
    written: int = 0,
    finish: Callable[[], str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Verify every record of a file and write its index to `file`. Returns their number.

    `finish` returns the SHA-256 of the file after it was read.
    """
    end = 0
    indexed = open_file(source)
    with RecordFile(indexed, limits=limits) as opened:
        index = IndexWriter(file)
        for block in opened.blocks():
            index.add(block.starts + (block.offset - HEADER_BYTES))
            end = block.offset + len(block.data)
            if progress is not None:
                progress(opened.stream.position)
        sha256 = "" if finish is None else finish()
        index.finish(
            end=end,
            members=members_of(opened.stream),
            size=opened.stream.size,
            written=written,
            compression=opened.compression,
            fingerprint=compute_fingerprint(indexed, opened.stream.size),
            sha256=sha256,
        )
    return index.records


class _BlockSums:
    """Checksums of the blocks of a body that arrives in pieces."""

    def __init__(self) -> None:
        self._checksums: list[int] = []
        self._crc = 0
        self._filled = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        left = memoryview(data)
        while left:
            part = left[: INDEX_BLOCK_BYTES - self._filled]
            self._crc = kernel.crc32c(part, self._crc)
            self._filled += len(part)
            left = left[len(part) :]
            if self._filled == INDEX_BLOCK_BYTES:
                self._end_block()

    def _end_block(self) -> None:
        self._checksums.append(self._crc)
        self._crc = self._filled = 0

    def finish(self) -> bytes:
        """Return the table of all checksums."""
        if self._filled:
            self._end_block()
        return np.array(self._checksums, "<u4").tobytes()


class IndexWriter:
    """Writer of an index, while the file that it belongs to is read or written."""

    def __init__(self, file: ObjectWriter) -> None:
        self.records = 0
        self._file = file
        self._file.write(bytes(INDEX_HEADER.size))
        self._sums = _BlockSums()

    def add(self, offsets: IntArray) -> None:
        """Add the offsets of the next records in the decompressed file."""
        self._write(offsets.astype("<u8").tobytes())
        self.records += len(offsets)

    def _write(self, data: bytes) -> None:
        self._sums.add(data)
        self._file.write(data)

    def finish(
        self,
        *,
        end: int,
        members: Sequence[tuple[int, int]],
        size: int,
        compression: Compression,
        fingerprint: int,
        written: int = 0,
        sha256: str = "",
    ) -> None:
        """Write the data that is known only at the end.

        `written` is the time of the file, or 0 if unknown. `sha256` is that of the file, if known.
        """
        self._write(struct.pack("<Q", end))
        self._write(np.array(members, "<u8").tobytes())
        checksums = self._sums.finish()
        self._file.write(checksums)
        fields = (size, written, _COMPRESSIONS.index(compression), self.records, len(members))
        digest = bytes.fromhex(sha256) if sha256 else bytes(32)
        header = INDEX_HEADER.pack(
            _MAGIC, *fields, digest, fingerprint, kernel.crc32c(checksums), 0, 0
        )
        whole = header[:-_CRC_BYTES] + struct.pack("<I", kernel.crc32c(header[:-_CRC_BYTES]))
        self._file.rewrite(0, whole)


class Fingerprint:
    """Fingerprint of a file that is being written."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: Buffer) -> None:
        """Add the next bytes of the file."""
        view = memoryview(data)
        if len(self._head) < _FINGERPRINT_BYTES:
            self._head += view[: _FINGERPRINT_BYTES - len(self._head)]
        self._tail += view[-_FINGERPRINT_BYTES:]
        if len(self._tail) > 2 * _FINGERPRINT_BYTES:
            del self._tail[:-_FINGERPRINT_BYTES]

    @property
    def value(self) -> int:
        """Fingerprint of the written bytes."""
        return kernel.crc32c(
            bytes(self._tail[-_FINGERPRINT_BYTES:]), kernel.crc32c(bytes(self._head))
        )


def compute_fingerprint(file: OpenFile, size: int) -> int:
    """Return a checksum of the first and last bytes, which reveals a rewritten file.

    It is compared only if the time of the file has changed: a copy may have another time.
    Corruption without a write must not block access to the intact records.
    """
    head = file.pread(_FINGERPRINT_BYTES, 0)
    tail = file.pread(_FINGERPRINT_BYTES, max(size - _FINGERPRINT_BYTES, 0))
    return kernel.crc32c(tail, kernel.crc32c(head))


def fingerprint_in(content: bytes) -> int:
    """Return the fingerprint of a file that holds these bytes."""
    view = memoryview(content)
    return kernel.crc32c(view[-_FINGERPRINT_BYTES:], kernel.crc32c(view[:_FINGERPRINT_BYTES]))


def compute_stored_fingerprint(store: Store, name: str, size: int) -> int:
    """Return the fingerprint of a stored file, by reading its first and last bytes."""
    count = min(size, _FINGERPRINT_BYTES)
    head, tail = store.read_ranges(name, [(0, count), (size - count, count)])
    return kernel.crc32c(tail, kernel.crc32c(head))


def read_header(store: Store, name: str) -> IndexHeader | None:
    """Read the header of a file's index. None if the index is missing or corrupt."""
    index = f"{name}.index"
    try:
        (data,) = store.read_ranges(index, [(0, INDEX_HEADER.size)])
    except ObjectNotFoundError:
        return None
    except StorageError:  # an old index of few records may be shorter
        try:
            (data,) = store.read_ranges(index, [(0, _OLD_HEADER.size)])
        except StorageError:
            return None
    try:
        return parse_header(index, data)
    except IndexMismatchError:
        return None


def _read_start(file: OpenFile | None, size: int) -> bytes | None:
    """Read the first bytes of the index of a local file. Empty if the index is missing.

    Returns None if the file is elsewhere or its index cannot be read: ask the store.
    """
    if not isinstance(file, LocalFile):
        return None
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{file}.index", flags)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
    try:
        return os.read(descriptor, size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_fingerprint(
    store: Store, name: str, size: int, sha256: str = "", file: OpenFile | None = None
) -> int | None:
    """Return the fingerprint of a file from its index. See `Fingerprint`.

    Returns None if the index is missing, corrupt or belongs to another file. `file` is the file
    itself, if it is open.
    """
    start = _read_start(file, INDEX_HEADER.size)
    if start is None:
        header = read_header(store, name)
    else:
        try:
            header = parse_header(f"{name}.index", start)
        except IndexMismatchError:
            return None
    if header is None or header.size != size or header.sha256 not in {"", sha256}:
        return None
    return header.fingerprint


def read_offsets(
    store: Store, name: str, size: int, records: int, sha256: str = ""
) -> Iterator[IntArray]:
    """Yield in pieces where the records of a stored file begin and the last record ends.

    Raises IndexMismatchError, possibly late, if the index is missing, corrupt or without checksums.
    Also raises it if the size, number of records or SHA-256 is that of another file.
    """
    body = _IndexBody.open(store, f"{name}.index")
    header = body.header
    if (header.size, header.records) != (size, records) or header.sha256 not in {"", sha256}:
        raise IndexMismatchError(f"{body.index}: index of another file", path=body.index)
    if not header.is_checked:
        raise _corrupt(body.index, "index without checksums")
    last, left = -FRAME_BYTES, records + 1
    for numbers in body.numbers():
        offsets = numbers[:left].astype(np.int64)
        if (np.diff(offsets, prepend=last) < FRAME_BYTES).any():
            raise _corrupt(body.index, "invalid record offsets")
        last, left = int(offsets[-1]), left - len(offsets)
        yield offsets
        if not left:
            return


@dataclass(frozen=True, slots=True)
class _IndexBody:
    """Body of an index in a store. If the index is small, `data` is all of it."""

    store: Store
    index: str
    header: IndexHeader
    table: list[int]
    data: bytes | None

    @classmethod
    def open(cls, store: Store, index: str) -> _IndexBody:
        """Open an index. Raises IndexMismatchError if it is missing, truncated or corrupt."""
        info = store.info(index)
        if info is None:
            code = "index-not-found"
            raise IndexMismatchError(f"{index}: index not found", code=code, path=index)
        at_once = info.size if info.size <= SMALL_INDEX_BYTES else INDEX_HEADER.size
        (start,) = store.read_ranges(index, [(0, at_once)])
        header = parse_header(index, start)
        if info.size != header.bytes:
            raise _corrupt(index, "truncated index")
        size = _CRC_BYTES * header.blocks
        if at_once == info.size:
            table = start[info.size - size :]
        else:
            (table,) = store.read_ranges(index, [(info.size - size, size)])
        checksums = parse_table(index, header, table) if header.is_checked else []
        return cls(store, index, header, checksums, start if at_once == info.size else None)

    def numbers(self) -> Iterator[NDArray[np.int64]]:
        """Yield all numbers of the body in pieces. Each block is compared with its checksum."""
        for first in range(0, self.header.numbers, _OFFSETS_AT_ONCE):
            count = min(_OFFSETS_AT_ONCE, self.header.numbers - first)
            offset, size = self.header.offset + 8 * first, 8 * count
            if self.data is not None:
                part = self.data[offset : offset + size]
            else:
                (part,) = self.store.read_ranges(self.index, [(offset, size)])
            if self.header.is_checked:
                validate_blocks(self.index, part, self.table, first // INDEX_BLOCK_NUMBERS)
            yield np.frombuffer(part, "<i8")


class IndexCheck:
    """Comparison of the index of a file with the file, while the file is read.

    An index is wrong if any number in it is wrong, whatever its checksums say. A small index, the
    usual case, is read and compared at once. `store` has the index if it is not on a local disk.
    """

    def __init__(self, store: Store, name: str, file: OpenFile, sha256: str) -> None:
        self.problem = ""
        self._file = file
        self._sha256 = sha256
        self._index = f"{name}.index"
        self._expected: list[bytes] = []
        self._large: _LargeIndex | None = None
        small = _read_start(file, SMALL_INDEX_BYTES + 1)
        self._small = b"" if small is None or len(small) > SMALL_INDEX_BYTES else small
        if small is None or len(small) > SMALL_INDEX_BYTES:
            opened = _open_index(store, self._index)
            self._large = None if opened is None else _LargeIndex(self._index, opened)

    def add(self, block: RecordBlock) -> None:
        """Compare the index entries of the next records."""
        if not self._small and (self._large is None or self.problem):
            return
        offsets = (block.starts + (block.offset - HEADER_BYTES)).tobytes()
        if self._large is None:
            self._expected.append(offsets)
            return
        try:
            self._large.compare(offsets)
        except IndexMismatchError as error:
            self.problem = error.message

    def finish(self, end: int, members: Sequence[tuple[int, int]] = ()) -> str:
        """Compare the rest after the last record. The decompressed bytes end at `end`.

        Returns the problem of the index, or an empty string if it is correct or missing.
        """
        last = [end, *(number for member in members for number in member)]
        rest = struct.pack(f"<{len(last)}q", *last)
        try:
            if self._small:
                self._compare_small(self._small, b"".join([*self._expected, rest]))
            elif self._large is not None and not self.problem:
                self._large.compare(rest)
                self._compare_file(self._large.finish())
        except IndexMismatchError as error:
            self.problem = error.message
        return self.problem

    def close(self) -> None:
        """Close a large index."""
        if self._large is not None:
            self._large.close()

    def _compare_small(self, data: bytes, expected: bytes) -> None:
        if self._is_exact(data, expected):
            return
        header = parse_header(self._index, data)
        start, end = header.offset, header.offset + 8 * header.numbers
        if len(data) != header.bytes or data[start:end] != expected:
            raise _corrupt(self._index, "wrong record offsets")
        if header.is_checked:
            table = parse_table(self._index, header, data[end:])
            validate_blocks(self._index, expected, table, 0)
        self._compare_file(header)

    def _is_exact(self, data: bytes, expected: bytes) -> bool:
        """Return True if an index of one block, the usual case, has the expected bytes."""
        table = INDEX_HEADER.size + len(expected)
        if len(data) != table + _CRC_BYTES or len(expected) > INDEX_BLOCK_BYTES:
            return False
        magic, size, _, packed, records, members, sha256, _, checksums, _, own = (
            INDEX_HEADER.unpack_from(data)
        )
        return (
            magic == _MAGIC
            and kernel.crc32c(data[: INDEX_HEADER.size - _CRC_BYTES]) == own
            and size == self._file.size
            and packed == 0
            and members == 0
            and 8 * (records + 1) == len(expected)
            and sha256 == bytes.fromhex(self._sha256)
            and data[INDEX_HEADER.size : table] == expected
            and data[table:] == kernel.crc32c(expected).to_bytes(_CRC_BYTES, "little")
            and kernel.crc32c(data[table:]) == checksums
        )

    def _compare_file(self, header: IndexHeader) -> None:
        same = header.size == self._file.size and header.sha256 in {"", self._sha256}
        if same and not header.sha256:
            same = header.fingerprint == compute_fingerprint(self._file, header.size)
        if not same:
            raise _corrupt(self._index, "index of another file")


class _LargeIndex:
    """Index that is compared in pieces. Raises IndexMismatchError if it is wrong."""

    def __init__(self, index: str, file: OpenFile) -> None:
        self._index = index
        self._file = file
        self._header: IndexHeader | None = None
        self._position = 0
        self._sums = _BlockSums()

    def _begin(self) -> IndexHeader:
        """Read the header before the first comparison."""
        header = parse_header(self._index, self._file.pread(INDEX_HEADER.size, 0))
        if self._file.size != header.bytes:
            raise _corrupt(self._index, "truncated index")
        self._position = header.offset
        return header

    def compare(self, expected: bytes) -> None:
        """Compare the next bytes of the body."""
        self._header = self._header or self._begin()
        if self._file.pread(len(expected), self._position) != expected:
            raise _corrupt(self._index, "wrong record offsets")
        self._position += len(expected)
        self._sums.add(expected)

    def finish(self) -> IndexHeader:
        """Compare the checksums after the whole body, and return the header."""
        header = self._header or self._begin()
        if self._position != header.offset + 8 * header.numbers:
            raise _corrupt(self._index, "wrong record offsets")
        if header.is_checked:
            table = self._sums.finish()
            is_same = self._file.pread(len(table), self._position) == table
            if not is_same or kernel.crc32c(table) != header.checksums:
                raise _corrupt(self._index, "checksum mismatch")
        return header

    def close(self) -> None:
        """Close the index."""
        self._file.close()


def _open_index(store: Store, index: str) -> OpenFile | None:
    """Open an index of a store. None if it is missing."""
    try:
        return open_file(StoredFile(store, index))
    except ObjectNotFoundError:
        return None
    except NotAFileError:
        store.info(index)  # raises an error for a pipe: only a folder counts as missing
        return None


class NoIndexCheck:
    """Placeholder for a comparison that was not requested."""

    def add(self, block: RecordBlock) -> None:
        """Compare nothing."""

    def finish(self, end: int, members: Sequence[tuple[int, int]] = ()) -> str:  # noqa: ARG002
        """Report no problem."""
        return ""

    def close(self) -> None:
        """Close nothing."""


def parse_table(index: str, header: IndexHeader, table: Buffer) -> list[int]:
    """Return the checksums of the blocks. Raises IndexMismatchError if the table is corrupt."""
    if kernel.crc32c(table) != header.checksums:
        raise _corrupt(index, "checksum mismatch")
    checksums: list[int] = np.frombuffer(table, "<u4").tolist()
    return checksums


def validate_blocks(index: str, data: Buffer, table: Sequence[int], first: int) -> None:
    """Compare whole blocks of the body, starting at number `first`, with their checksums."""
    view = memoryview(data)
    for block, start in enumerate(range(0, len(view), INDEX_BLOCK_BYTES), first):
        if kernel.crc32c(view[start : start + INDEX_BLOCK_BYTES]) != table[block]:
            raise _corrupt(index, "checksum mismatch")
