"""The sha256 of a file, made of the bytes that are read from it anyway."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.files.opened import OpenFile

_CHUNK_BYTES = 1024 * 1024


class HashedFile:
    """An open file that hashes what is read from it, as far as that is in order.

    A RecordFile over it reads in order, so that `finish` has nothing left to read unless the
    reading stopped early. What is hashed is handed to `also`, if that is given.
    """

    def __init__(self, file: OpenFile, also: Callable[[memoryview], None] | None = None) -> None:
        self._file = file
        self._also = also
        self._position = 0
        self._hash = hashlib.sha256()
        self._hashed = 0
        self.size = file.size

    def __str__(self) -> str:
        return str(self._file)

    def finish(self) -> str:
        """The digest of the whole file, in hex: reads what was not read yet."""
        while self._hashed < self.size and self.pread(_CHUNK_BYTES, self._hashed):
            pass
        return self._hash.hexdigest()

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes and say how many."""
        count = self._file.readinto(buffer)
        self._note(self._position, buffer[:count])
        self._position += count
        return count

    def seek(self, offset: int, /) -> int:
        """Go on at another place."""
        self._position = self._file.seek(offset)
        return self._position

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on, without moving the position."""
        data = self._file.pread(size, offset)
        self._note(offset, memoryview(data))
        return data

    def again(self) -> OpenFile:
        """The same file, opened once more and not hashed."""
        return self._file.again()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _note(self, offset: int, data: memoryview) -> None:
        """Hash what comes next; what was hashed before, or lies farther on, is passed over."""
        known = self._hashed - offset
        if 0 <= known < len(data):
            self._hash.update(data[known:])
            if self._also is not None:
                self._also(data[known:])
            self._hashed = offset + len(data)
