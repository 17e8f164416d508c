"""A file as one stream of unpacked bytes, and the ways in which files are packed."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from isal import igzip_lib, isal_zlib

from shardline.arguments import validate_choice
from shardline.errors import InvalidArgumentError, ShardlineError
from shardline.hints import Hint, Option
from shardline.kernel.types import FOOTER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.kernel.types import Buffer, IntArray
    from shardline.tfrecord.open_file import OpenFile


DEFAULT_MAX_UNPACKED_BYTES = 256 * 1024**3


class Compression(Enum):
    """How a file is packed, named as in reports and options."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"

    @classmethod
    def _missing_(cls, value: object) -> Compression:
        """TensorFlow's spelling, in capitals, is taken too."""
        known = {member.value: member for member in cls}
        if isinstance(value, str) and value.lower() in known:
            return known[value.lower()]
        raise InvalidArgumentError(
            f"unknown compression {value!r}, expected {', '.join(known)}",
            code="unknown-compression",
        )


class CompressionError(ShardlineError, ValueError):
    """Packed data that cannot be unpacked from `offset` of the file on."""

    code = "corrupt-file"
    offset: int

    def __init__(self, offset: int, detail: str, *, code: str | None = None) -> None:
        super().__init__(f"offset {offset}: {detail}", code=code, offset=offset)
        self.detail = detail


class Stream(Protocol):
    """The unpacked bytes of a file, in order.

    `readinto` gives 0 at the end and raises CompressionError where it cannot go on; `resume` then
    moves behind the damage and says where in the file it goes on, or None if nowhere.
    `position` is how much of the file, of `size` bytes, has been read.
    """

    size: int

    @property
    def position(self) -> int:
        """How much of the file has been read."""
        ...

    def readinto(self, view: memoryview) -> int:
        """Fill `view` with the next bytes and say how many; 0 at the end."""
        ...

    def resume(self) -> int | None:
        """Move behind damage; gives where in the file, or None."""
        ...


class PlainStream:
    """A file that is not packed."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.size = file.size
        self.position = file.seek(0)

    def readinto(self, view: memoryview) -> int:
        """Fill `view` as far as the file reaches; 0 at the end."""
        count = self._file.readinto(view)
        self.position += count
        return count

    def seek(self, position: int) -> None:
        """Go on at another place of the file."""
        self.position = self._file.seek(position)

    def resume(self) -> int | None:
        """There is no packing that could be damaged."""
        return None


MEMBER_BYTES = 1024 * 1024
_LEVEL = 2  # of 0 to 3: the best ratio that still writes faster than most disks


class Packer:
    """Packs frames and hands the bytes of the file to `put`.

    `packed` and `unpacked` count the bytes of the file so far and of the frames in them; `members`
    tells where each GZIP member, or the one ZLIB stream, begins in both.
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
        """How many bytes of frames until the GZIP member that is being filled ends."""
        return MEMBER_BYTES - len(self._member)

    def add(self, frames: Buffer, ends: IntArray) -> None:
        """Add whole frames, which end at `ends` of the buffer."""
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
            place = int(np.searchsorted(ends, start + self.room))
            end = int(ends[place]) if place < len(ends) else len(frames)
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
        """Make ready for a whole GZIP file as it is."""
        if self._member:
            self._end_member()
        self._base = self.packed

    def add_packed(self, data: Buffer) -> None:
        """Add bytes of that GZIP file."""
        self._write(data)

    def end_packed(self, members: Sequence[tuple[int, int]], unpacked: int) -> None:
        """Tell where in that GZIP file its members begin, and its unpacked size."""
        self.members += [(self._base + start, self.unpacked + at) for start, at in members]
        self.unpacked += unpacked

    def _write(self, data: Buffer) -> None:
        if len(data):
            self._put(data)
            self.packed += len(data)

    def finish(self) -> None:
        """Put what is left. A packed file with no record is still a packed file."""
        if self.compression is Compression.ZLIB:
            self._write(self._zlib.flush())
        elif self.compression is Compression.GZIP and (self._member or not self.packed):
            self._end_member()


def frame_ends(starts: IntArray, lengths: IntArray) -> IntArray:
    """Where the frames of payloads end."""
    return starts + lengths + FOOTER_BYTES


def parse_compression(value: Compression | str) -> Compression:
    """Return the compression of this name. Raises InvalidArgumentError if there is none."""
    try:
        return Compression(value)
    except ValueError:
        validate_choice("compression", value, [one.value for one in Compression])
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
