"""The offset index beside a TFRecord file: where each record begins, for random access.

The file `NAME.index` holds a header, the offset of every record in the unpacked file and the end
of the last one, and for packed files where each member begins (in the file, in the unpacked
bytes). All numbers are little-endian uint64. It is derived: delete it and make it again at will.
A record read through it is checked against its own checksums, and the file against its size, time
and ends when it is opened.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Self

import numpy as np

from shardline import kernel
from shardline.errors import (
    DamagedFileError,
    IndexMismatchError,
    RecordNotFoundError,
    StorageError,
)
from shardline.files.compression import Compression, CompressionError
from shardline.files.opened import open_regular
from shardline.files.packed import PackedStream
from shardline.files.reader import DEFAULT_LIMITS, Limits, RecordFile
from shardline.hints import Hint, file_argument
from shardline.kernel.types import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from shardline.paths import local_path
from shardline.storage.local import DurableFile
from shardline.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from shardline.files.opened import OpenFile
    from shardline.kernel.types import Buffer, IntArray
    from shardline.storage.store import ObjectWriter, Store

_MAGIC = b"SHARDIX1"
_SKIP_BYTES = 1024 * 1024
_OFFSETS_AT_ONCE = 128 * 1024
_HEADER = struct.Struct("<8sQQQQQII")
"""Magic, the file's size and time, compression, records, members, fingerprint, own crc32c."""
_FINGERPRINT_BYTES = 64 * 1024
_COMPRESSIONS = tuple(Compression)


def index_path(path: Path) -> Path:
    """Where the index of a file lies."""
    return path.with_name(path.name + ".index")


def write_index(
    path: Path | str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Check every record of a file and write its index; gives the number of records.

    An index that is there is replaced. Raises DamagedFileError, and writes none, if the file is
    damaged.
    """
    path = local_path(path)
    end = 0
    with (
        RecordFile(path, limits=limits) as source,
        DurableFile(index_path(path), overwrite=True) as file,
    ):
        index = IndexWriter(file)
        for block in source.blocks():
            index.add(block.starts + (block.offset - HEADER_BYTES))
            end = block.offset + len(block.data)
            if progress is not None:
                progress(source.stream.position)
        with open_regular(path) as indexed:
            fingerprint = fingerprint_of(indexed, source.stream.size)
        index.finish(
            end=end,
            members=source.stream.members if isinstance(source.stream, PackedStream) else [],
            size=source.stream.size,
            written=path.stat().st_mtime_ns,
            compression=source.compression,
            fingerprint=fingerprint,
        )
    return index.records


class IndexWriter:
    """An index being written, while the file that it belongs to is read or written."""

    def __init__(self, file: ObjectWriter) -> None:
        self.records = 0
        self._file = file
        self._file.write(bytes(_HEADER.size))

    def add(self, offsets: IntArray) -> None:
        """Tell where the next records begin in the unpacked file."""
        self._file.write(offsets.astype("<u8").tobytes())
        self.records += len(offsets)

    def finish(
        self,
        *,
        end: int,
        members: Sequence[tuple[int, int]],
        size: int,
        compression: Compression,
        fingerprint: int,
        written: int = 0,
    ) -> None:
        """Tell what is known only at the end. `written` is the file's time; 0: never mind it."""
        self._file.write(struct.pack("<Q", end))
        self._file.write(np.array(members, "<u8").tobytes())
        fields = (size, written, _COMPRESSIONS.index(compression), self.records, len(members))
        header = _HEADER.pack(_MAGIC, *fields, fingerprint, 0)
        self._file.rewrite(0, header[:-4] + struct.pack("<I", kernel.crc32c(header[:-4])))


class Fingerprint:
    """The fingerprint of a file that is being written."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: Buffer) -> None:
        """Take in what comes next in the file."""
        view = memoryview(data)
        if len(self._head) < _FINGERPRINT_BYTES:
            self._head += view[: _FINGERPRINT_BYTES - len(self._head)]
        self._tail += view[-_FINGERPRINT_BYTES:]
        if len(self._tail) > 2 * _FINGERPRINT_BYTES:
            del self._tail[:-_FINGERPRINT_BYTES]

    @property
    def value(self) -> int:
        """The fingerprint of what was written."""
        return kernel.crc32c(
            bytes(self._tail[-_FINGERPRINT_BYTES:]), kernel.crc32c(bytes(self._head))
        )


def fingerprint_of(file: OpenFile, size: int) -> int:
    """A checksum of the file's first and last bytes, by which a rewritten file is known.

    It is looked at only if the file's time has changed: a copy may have another, and damage that
    came without a write must not keep anyone from the intact records.
    """
    head = file.pread(_FINGERPRINT_BYTES, 0)
    tail = file.pread(_FINGERPRINT_BYTES, max(size - _FINGERPRINT_BYTES, 0))
    return kernel.crc32c(tail, kernel.crc32c(head))


def read_fingerprint(store: Store, name: str, size: int) -> int | None:
    """The checksum of a file's first and last bytes, as its index tells: see `Fingerprint`.

    None if it has no index, or one that is damaged or of a file of another size.
    """
    try:
        (data,) = store.read_ranges(f"{name}.index", [(0, _HEADER.size)])
    except StorageError:
        return None
    magic, of_size, _, _, _, _, fingerprint, checksum = _HEADER.unpack(data)
    told = (magic, of_size, checksum) == (_MAGIC, size, kernel.crc32c(data[:-4]))
    return int(fingerprint) if told else None


def read_offsets(store: Store, name: str, size: int, records: int) -> Iterator[IntArray]:
    """Where the records of a file of a store begin and the last one ends, some at a time.

    Raises IndexMismatchError, maybe late, if it has no index, or one that is damaged or of a file
    of another size or number of records.
    """
    index = f"{name}.index"
    info = store.info(index)
    if info is None:
        raise IndexMismatchError(f"{index}: index not found", code="index-not-found", path=index)
    if info.size < _HEADER.size:
        raise IndexMismatchError(f"{index}: truncated index", code="corrupt-index", path=index)
    (header,) = store.read_ranges(index, [(0, _HEADER.size)])
    magic, of_size, _, _, of_records, members, _, checksum = _HEADER.unpack(header)
    if (
        (magic, of_size, of_records) != (_MAGIC, size, records)
        or checksum != kernel.crc32c(header[:-4])
        or info.size != _HEADER.size + 8 * (records + 1 + 2 * members)
    ):
        raise IndexMismatchError(f"{index}: index is corrupt or of another file", path=index)
    last = -FRAME_BYTES
    for first in range(0, records + 1, _OFFSETS_AT_ONCE):
        count = min(_OFFSETS_AT_ONCE, records + 1 - first)
        (data,) = store.read_ranges(index, [(_HEADER.size + 8 * first, 8 * count)])
        offsets = np.frombuffer(data, "<i8").astype(np.int64)
        if (np.diff(offsets, prepend=last) < FRAME_BYTES).any():
            raise IndexMismatchError(
                f"{index}: invalid record offsets", code="corrupt-index", path=index
            )
        last = int(offsets[-1])
        yield offsets


class IndexedFile:
    """A TFRecord file with its index: `file[i]` reads and checks one record.

    Nothing but the index's header is read when it is opened. In a packed file a record costs the
    unpacking of the member that holds it: files written by Shardline have small members, files
    written by TensorFlow have one.
    """

    def __init__(self, path: Path | str, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = local_path(path)
        self._limits = limits
        self._file = open_regular(self.path)
        try:
            self._compression, self._offsets, self._members = self._load()
        except BaseException:
            self._file.close()
            raise

    def _load(self) -> tuple[Compression, NDArray[np.uint64], NDArray[np.uint64]]:
        index = index_path(self.path)
        if not index.exists():
            raise IndexMismatchError(
                f"{self.path}: index not found",
                code="index-not-found",
                hint=Hint.run("index", file_argument(self.path)),
                path=index,
            )
        with index.open("rb") as file:
            header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise self._mismatch("truncated index", "corrupt-index")
        *fields, fingerprint, checksum = _HEADER.unpack(header)
        magic, size, written, compression, records, members = fields
        if magic != _MAGIC or checksum != kernel.crc32c(header[:-4]):
            raise self._mismatch("not an index, or corrupt", "corrupt-index")
        if size != self._file.size:
            raise self._mismatch("index of a file of another size")
        touched = self.path.stat().st_mtime_ns != written
        if touched and fingerprint != fingerprint_of(self._file, size):
            raise self._mismatch("file changed after it was indexed")
        if index.stat().st_size != _HEADER.size + 8 * (records + 1 + 2 * members):
            raise self._mismatch("truncated index", "corrupt-index")
        if compression >= len(_COMPRESSIONS) or (compression and records and not members):
            raise self._mismatch("not an index, or corrupt", "corrupt-index")
        numbers = np.memmap(index, "<u8", "r", offset=_HEADER.size)
        offsets, starts = numbers[: records + 1], numbers[records + 1 :]
        return _COMPRESSIONS[compression], offsets, starts.reshape(-1, 2)

    def _mismatch(self, problem: str, code: str | None = None) -> IndexMismatchError:
        index = index_path(self.path)
        hint = Hint.run("index", file_argument(self.path))
        return IndexMismatchError(f"{index}: {problem}", code=code, hint=hint, path=index)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, record: int) -> bytes:
        """One record's payload, checked; negative numbers count from the end."""
        number = record + len(self) if record < 0 else record
        if not 0 <= number < len(self):
            raise RecordNotFoundError(
                f"{self.path}: record {record} not found ({counted(len(self), 'record')})",
                path=self.path,
                record=record,
            )
        return next(self.read(number))

    def read(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Payloads from record `start` up to `stop`, each checked."""
        stop = len(self) if stop is None else min(stop, len(self))
        packed: PackedStream | None = None
        for record in range(start, stop):
            offset, end = int(self._offsets[record]), int(self._offsets[record + 1])
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
                raise DamagedFileError(
                    str(self.path),
                    "compression",
                    record,
                    error.offset,
                    error.detail,
                    code=error.code,
                ) from None
            scan = kernel.scan(frame, max_record_bytes=self._limits.max_record_bytes)
            if scan.consumed != end - offset or len(scan.starts) != 1:
                raise self._damaged(record, offset)
            yield frame[HEADER_BYTES:-FOOTER_BYTES]

    def _unpack_from(self, offset: int) -> PackedStream:
        """The unpacked bytes from `offset` on, which is entered by the last member before it."""
        member = int(np.searchsorted(self._members[:, 1], offset, "right")) - 1
        in_file, unpacked = (int(number) for number in self._members[max(member, 0)])
        if in_file > self._file.size or unpacked > offset:
            raise self._mismatch("index does not fit the file")
        stream = PackedStream(
            self._file,
            self._compression,
            start=in_file,
            max_unpacked_bytes=self._limits.max_unpacked_bytes,
        )
        to_skip = offset - unpacked
        while to_skip > 0:
            skipped = len(_take(stream, min(to_skip, _SKIP_BYTES)))
            if not skipped:
                raise self._mismatch("index does not fit the file")
            to_skip -= skipped
        return stream

    def _damaged(self, record: int, offset: int) -> DamagedFileError:
        detail = (
            "the record the index points at is not intact: the file is damaged, or the index is "
            "not of this file"
        )
        return DamagedFileError(str(self.path), "data-crc", record, offset, detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _take(stream: PackedStream, size: int) -> bytes:
    """The next `size` bytes, or fewer at the end."""
    taken = bytearray(size)
    filled = 0
    while filled < size:
        count = stream.readinto(memoryview(taken)[filled:])
        if not count:
            break
        filled += count
    return bytes(taken[:filled])
