"""Compression: detection, and decompressed streams of files."""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from isal import igzip_lib, isal_zlib

from shardline import kernel
from shardline.arguments import validate_choice
from shardline.errors import InvalidArgumentError, ShardlineError
from shardline.hints import Hint, Option
from shardline.kernel.types import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.kernel.types import Buffer, IntArray
    from shardline.tfrecord.input_file import OpenFile


DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024**3


class Compression(Enum):
    """Compression of a file, named as in reports and options."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"

    @classmethod
    def _missing_(cls, value: object) -> Compression:
        """Accept TensorFlow's spelling in capitals."""
        known = {member.value: member for member in cls}
        if isinstance(value, str) and value.lower() in known:
            return known[value.lower()]
        raise InvalidArgumentError(
            f"unknown compression {value!r}, expected {', '.join(known)}",
            code="unknown-compression",
        )


class CompressionError(ShardlineError, ValueError):
    """Compressed data that cannot be decompressed from `offset` of the file on."""

    code = "corrupt-file"
    offset: int

    def __init__(self, offset: int, detail: str, *, code: str | None = None) -> None:
        super().__init__(f"offset {offset}: {detail}", code=code, offset=offset)
        self.detail = detail


class Stream(Protocol):
    """Decompressed bytes of a file, in order.

    `readinto` returns 0 at the end and raises CompressionError where it cannot continue. `resume`
    then skips the corruption and returns the new position in the file, or None if no data can be
    read. `position` is the number of bytes read from the file, of `size` in total.
    """

    size: int

    @property
    def position(self) -> int:
        """Number of bytes read from the file."""
        ...

    def readinto(self, view: memoryview) -> int:
        """Fill `view` with the next bytes and return their number, 0 at the end."""
        ...

    def resume(self) -> int | None:
        """Skip corruption. Returns the new position in the file, or None."""
        ...


class PlainStream:
    """Stream of an uncompressed file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.size = file.size
        self.position = file.seek(0)

    def readinto(self, view: memoryview) -> int:
        """Fill `view` as far as the file reaches. Returns 0 at the end."""
        count = self._file.readinto(view)
        self.position += count
        return count

    def seek(self, position: int) -> None:
        """Continue at another position of the file."""
        self.position = self._file.seek(position)

    def resume(self) -> int | None:
        """Return None: an uncompressed file has no corrupt compression."""
        return None


MEMBER_BYTES = 1024 * 1024
_LEVEL = 2  # of 0 to 3: the best ratio that still writes faster than most disks


class Compressor:
    """Compressor of frames that passes the bytes of the file to `put`.

    `packed` and `unpacked` count the bytes of the file and of its frames so far. `members` has the
    start of each GZIP member, or of the single ZLIB stream, in both.
    """

    def __init__(self, put: Callable[[Buffer], None], compression: Compression) -> None:
        self.compression = compression
        self.packed = 0
        self.unpacked = 0
        self.members = [(0, 0)] if compression is Compression.ZLIB else []
        self._put = put
        self._member = bytearray()
        self._base = 0

    @cached_property
    def _zlib(self) -> Any:  # noqa: ANN401 - isal has no types
        return isal_zlib.compressobj(_LEVEL)  # allocates hundreds of KB

    @property
    def room(self) -> int:
        """Number of bytes of frames that the current GZIP member still takes."""
        return MEMBER_BYTES - len(self._member)

    def add(self, frames: Buffer, ends: IntArray) -> None:
        """Add whole frames, which end at the offsets `ends` of the buffer."""
        if self.compression is Compression.NONE:
            self.unpacked += len(frames)
            self._write(frames)
        elif self.compression is Compression.ZLIB:
            self.unpacked += len(frames)
            self._write(self._zlib.compress(frames))
        else:
            self._add_to_members(memoryview(frames), ends)

    def _add_to_members(self, frames: memoryview, ends: IntArray) -> None:
        start = 0
        while start < len(frames):
            index = int(np.searchsorted(ends, start + self.room))
            end = int(ends[index]) if index < len(ends) else len(frames)
            self._member += frames[start:end]
            start = end
            if len(self._member) >= MEMBER_BYTES:
                self._end_member()

    def _end_member(self) -> None:
        self.members.append((self.packed, self.unpacked))
        self.unpacked += len(self._member)
        self._write(igzip_lib.compress(self._member, _LEVEL, igzip_lib.COMP_GZIP))
        self._member.clear()

    def begin_packed(self) -> None:
        """Prepare for a whole GZIP file that is copied unchanged."""
        if self._member:
            self._end_member()
        self._base = self.packed

    def add_packed(self, data: Buffer) -> None:
        """Add bytes of the copied GZIP file."""
        self._write(data)

    def end_packed(self, members: Sequence[tuple[int, int]], unpacked: int) -> None:
        """Record where the members of the copied GZIP file begin, and its decompressed size."""
        self.members += [(self._base + start, self.unpacked + offset) for start, offset in members]
        self.unpacked += unpacked

    def _write(self, data: Buffer) -> None:
        if len(data):
            self._put(data)
            self.packed += len(data)

    def finish(self) -> None:
        """Write the remaining data. Even a file without records gets valid compressed data."""
        if self.compression is Compression.ZLIB:
            self._write(self._zlib.flush())
        elif self.compression is Compression.GZIP and (self._member or not self.packed):
            self._end_member()


def get_frame_ends(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return where the frames of payloads end."""
    return starts + lengths + FOOTER_BYTES


def parse_compression(value: Compression | str) -> Compression:
    """Return the compression with this name. Raises InvalidArgumentError if it is unknown."""
    try:
        return Compression(value)
    except ValueError:
        validate_choice("compression", value, [compression.value for compression in Compression])
        raise


def validate_shard_compression(compression: Compression | None) -> None:
    """Raise InvalidArgumentError for ZLIB, whose files cannot be concatenated."""
    if compression is Compression.ZLIB:
        raise InvalidArgumentError(
            "compression: shards cannot be ZLIB",
            code="unsupported-compression",
            hint=Hint.of(
                "set ", Option("compression", "gzip"), " or ", Option("compression", "none")
            ),
        )


GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_RESERVED_FLAGS = 0xE0
_CHUNK_BYTES = 128 * 1024
_RESCUE_STEP_BYTES = 64
_InflateError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stub errs


class CompressedStream:
    """Stream of a GZIP file with one or many members, or of a ZLIB file.

    `start` is the position in the file to begin at. It must be the start of a member.
    """

    def __init__(
        self,
        file: OpenFile,
        compression: Compression,
        *,
        start: int = 0,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self._file = file
        self._compression = compression
        self._max_decompressed = max_decompressed_bytes
        self.size = file.size
        self._unpacked = 0
        self._next = start
        self._member: _Member | None = None
        self._left = b""
        self._pending: CompressionError | None = None
        self._search_from: int | None = None
        self.members: list[tuple[int, int]] = []
        """Start of each member, in the file and in the decompressed bytes."""

    @property
    def position(self) -> int:
        """Number of bytes read from the file."""
        return self._member.fed if self._member else self._next

    def readinto(self, view: memoryview) -> int:
        """Decompress into `view`. Returns 0 at the end, raises CompressionError if corrupt."""
        while True:
            if self._left:
                return self._copy_to(self._left, view)
            self._raise_pending()
            if self._member is None:
                if self._next >= self.size:
                    return 0
                self._begin_next()
            count = self._unpack(view)
            if count:
                return count

    def _raise_pending(self) -> None:
        if self._unpacked > self._max_decompressed:
            self._search_from = None
            raise CompressionError(
                self.position,
                f"decompresses to more than {self._max_decompressed} bytes",
                code="decompressed-too-large",
            )
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    def _begin_next(self) -> None:
        if self._compression is Compression.ZLIB and self.members:
            self._search_from = self._next
            raise CompressionError(
                self._next,
                "bytes behind the end of the ZLIB stream, which TensorFlow silently ignores",
            )
        self._search_from = self._next + 1
        self._begin(self._next)

    def _begin(self, start: int) -> None:
        self._member = _Member(self._file, start, self._compression)
        self.members.append((start, self._unpacked))

    def _unpack(self, view: memoryview) -> int:
        member = self._member
        if member is None:
            return 0
        data = b""
        try:
            data = member.unpack(len(view))
            if member.ended:
                self._next = member.end
                self._member = None
                member.check(more_follows=self._next < self.size)
        except CompressionError as error:
            data = data or member.rescued
            self._pending = error
            self._search_from = member.doubtful_from
            self._next = max(self._next, member.doubtful_from)
            self._member = None
        self._unpacked += len(data)
        return self._copy_to(data, view)

    def _copy_to(self, data: bytes, view: memoryview) -> int:
        """Copy what fits into `view`. Rescued data may be larger than requested."""
        piece, self._left = data[: len(view)], data[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def member_at(self, offset: int) -> int:
        """Return the number of the member that holds this offset of the decompressed bytes."""
        return bisect_right(self.members, offset, key=lambda member: member[1]) - 1

    def is_sound(self, member: int) -> bool:
        """Return True if a member decompresses to its end and matches its checksum."""
        member_reader = _Member(self._file, self.members[member][0], self._compression)
        try:
            while not member_reader.ended:
                member_reader.unpack(_CHUNK_BYTES)
            member_reader.check(more_follows=False)
        except CompressionError:
            return False
        return True

    def resume(self) -> int | None:
        """Begin at the next member that can be decompressed. Returns its position, or None."""
        position = self._search_from
        while position is not None and position < self.size:
            if self._compression is Compression.GZIP:
                position = self._find_magic(position)
                if position is None:
                    return None
            try:
                _Member(self._file, position, self._compression).unpack(1)
            except CompressionError:
                if self._compression is Compression.ZLIB:
                    return None
                position += 1
                continue
            self._search_from = position + 1
            self._begin(position)
            return position
        return None

    def _find_magic(self, position: int) -> int | None:
        while True:
            chunk = self._file.pread(_CHUNK_BYTES, position)
            index = chunk.find(GZIP_MAGIC)
            if index >= 0:
                return position + index
            if len(chunk) < _CHUNK_BYTES:
                return None
            position += len(chunk) - len(GZIP_MAGIC) + 1


def members_of(stream: Stream) -> list[tuple[int, int]]:
    """Return where the members of a stream begin. Empty for an uncompressed file."""
    return stream.members if isinstance(stream, CompressedStream) else []


class _Member:
    """GZIP member, or ZLIB stream, during decompression."""

    def __init__(self, file: OpenFile, start: int, compression: Compression) -> None:
        self._file = file
        self._start = start
        self._compression = compression
        gzip = compression is Compression.GZIP
        self._data_start = (_gzip_header if gzip else _zlib_header)(file, start)
        self._inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
        self._sum = isal_zlib.crc32 if gzip else isal_zlib.adler32
        self._checksum = self._sum(b"")
        self._unpacked = 0
        self.fed = self._data_start
        self.rescued = b""

    @property
    def ended(self) -> bool:
        """Return True if the deflate data has ended."""
        return bool(self._inflate.eof)

    @property
    def _data_end(self) -> int:
        return self.fed - len(self._inflate.unused_data)

    @property
    def end(self) -> int:
        """Position in the file where the member ends, valid once it has ended."""
        return self._data_end + (8 if self._compression is Compression.GZIP else 4)

    @property
    def doubtful_from(self) -> int:
        """Earliest position of the next member if this member is corrupt."""
        if self.ended and self._compression is Compression.ZLIB:
            return self.end
        return max(self._data_start, self.fed - 2 * _CHUNK_BYTES)

    def unpack(self, limit: int) -> bytes:
        """Return the next bytes, at most `limit`. Empty only at the end."""
        while True:
            chunk = b""
            if self._inflate.needs_input:
                chunk = self._file.pread(_CHUNK_BYTES, self.fed)
                self.fed += len(chunk)
            try:
                data: bytes = self._inflate.decompress(chunk, limit)
            except _InflateError as error:
                raise self._make_error(f"cannot be unpacked ({error})") from None
            self._checksum = self._sum(data, self._checksum)
            self._unpacked += len(data)
            if data or self.ended:
                return data
            # The decoder may request input while it holds decompressed bytes back. The data is
            # truncated only if both are exhausted.
            if not chunk and self._inflate.needs_input:
                raise self._make_error("is cut off")

    def _make_error(self, problem: str) -> CompressionError:
        self.rescued, offset = self._rescue()
        return CompressionError(offset, f"the {self._compression.value.upper()} data {problem}")

    def _rescue(self) -> tuple[bytes, int]:
        """Return the bytes decompressed by the failed call, and where in the file it failed.

        Decompresses again with the standard library, which returns every byte up to the corruption
        if asked for one at a time.
        """
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        offset, skipped, rescued = self._data_start, 0, bytearray()
        while not inflate.eof:
            skipping = self._unpacked - skipped
            piece = self._file.pread(_CHUNK_BYTES if skipping else _RESCUE_STEP_BYTES, offset)
            try:
                data = inflate.decompress(piece, min(skipping, _CHUNK_BYTES) or 1)
            except zlib.error:
                break
            offset += len(piece) - len(inflate.unconsumed_tail)
            if skipping:
                skipped += len(data)
            else:
                rescued += data
            if not (piece or data):
                break
        return bytes(rescued), offset

    def check(self, *, more_follows: bool) -> None:
        """Compare the decompressed data with the checksum that follows it.

        An empty GZIP member before other data is rejected too: TensorFlow may take it for the end
        of the file. Raises CompressionError.
        """
        stored = self._file.pread(self.end - self._data_end, self._data_end)
        if self._compression is Compression.GZIP:
            expected = struct.pack("<II", self._checksum, self._unpacked & 0xFFFFFFFF)
        else:
            expected = struct.pack(">I", self._checksum)
        name = self._compression.value.upper()
        if len(stored) < len(expected):
            raise CompressionError(self._data_end, f"the {name} data is cut off in its checksum")
        if stored != expected:
            raise CompressionError(
                self._data_end, f"the unpacked {name} data does not match its checksum"
            )
        if more_follows and not self._unpacked and self._compression is Compression.GZIP:
            raise CompressionError(
                self.end,
                "an empty GZIP member before others, at which TensorFlow may silently stop",
            )


def _gzip_header(file: OpenFile, start: int) -> int:
    """Return where the deflate data of the GZIP member at `start` begins."""
    head = file.pread(_CHUNK_BYTES, start)
    if not head.startswith(GZIP_MAGIC[: len(head)]):
        raise CompressionError(start, "bytes that are not GZIP data")
    try:
        flags = head[3]
        if flags & _GZIP_RESERVED_FLAGS:
            raise CompressionError(start, "a GZIP header with unknown flags")
        end = 10
        if flags & 4:
            end += 2 + int.from_bytes(head[end : end + 2], "little")
        for flag in (8, 16):
            if flags & flag:
                end = head.index(0, end) + 1
        end += 2 if flags & 2 else 0
        if end > len(head):
            raise IndexError
    except (IndexError, ValueError) as error:
        if isinstance(error, CompressionError):
            raise
        raise CompressionError(start, "the GZIP data is cut off in its header") from None
    return start + end


def _zlib_header(file: OpenFile, start: int) -> int:
    """Return where the deflate data of the ZLIB stream at `start` begins."""
    head = file.pread(2, start)
    if not is_zlib_header(head) or head[1] & 0x20:
        raise CompressionError(start, "bytes that are not ZLIB data")
    return start + 2


def is_zlib_header(head: bytes) -> bool:
    """Return True if these bytes can begin a ZLIB stream."""
    if len(head) < 2:
        return False
    method, flags = head[0], head[1]
    return method & 0x0F == 8 and method >> 4 <= 7 and not (method << 8 | flags) % 31


_GLANCE_BYTES = 4 * 1024
_HEAD_BYTES = 128 * 1024


def detect_compression(file: OpenFile) -> Compression:
    """Detect the compression of a file from its first bytes."""
    if begins_with_record(file.pread(_GLANCE_BYTES, 0)):  # true for most files
        return Compression.NONE
    head = file.pread(_HEAD_BYTES, 0)
    size = file.size
    if head.startswith(GZIP_MAGIC) or (head and GZIP_MAGIC.startswith(head)):
        return Compression.NONE if _leads_to_record(file, head, size) else Compression.GZIP
    if is_zlib_header(head) and (_unpacks_to_header(head) or not _plausible_length(head, size)):
        return Compression.ZLIB
    return Compression.NONE


def begins_with_record(data: bytes) -> bool:
    """Return True if these are the first bytes of a plain TFRecord file."""
    search = kernel.scan(data[:HEADER_BYTES], max_record_bytes=2**64 - 1, final=False)
    return len(data) >= HEADER_BYTES and search.fault is None


def _unpacks_to_header(head: bytes) -> bool:
    try:
        return begins_with_record(zlib.decompressobj().decompress(head, HEADER_BYTES))
    except zlib.error:
        return False


def _plausible_length(head: bytes, size: int) -> bool:
    """Return True if the first bytes may be a record length in a corrupt plain file."""
    return len(head) >= 8 and int.from_bytes(head[:8], "little") <= size


def _leads_to_record(file: OpenFile, head: bytes, size: int) -> bool:
    """Return True if the first bytes, read as a length, lead to a record or to the end."""
    end = int.from_bytes(head[:8], "little") + FRAME_BYTES
    return end == size or (end < size and begins_with_record(file.pread(HEADER_BYTES, end)))


def open_stream(
    file: OpenFile,
    compression: Compression | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> tuple[Compression, Stream]:
    """Open the decompressed stream of a file. Detects the compression unless it is given."""
    compression = compression or detect_compression(file)
    if compression is Compression.NONE:
        return compression, PlainStream(file)
    return compression, CompressedStream(
        file, compression, max_decompressed_bytes=max_decompressed_bytes
    )
