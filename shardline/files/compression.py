"""A file as one stream of unpacked bytes, and the ways in which files are packed."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from shardline.errors import InvalidArgumentError, ShardlineError

if TYPE_CHECKING:
    from shardline.files.opened import OpenFile

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
