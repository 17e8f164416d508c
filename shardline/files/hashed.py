"""The sha256 of a file, made of the bytes that are read from it or written to it anyway."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.errors import NotAFileError, ObjectMissingError
from shardline.files.stored import StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from shardline.files.opened import OpenFile
    from shardline.kernel.types import Buffer
    from shardline.storage.store import Store

_BEHIND = 4
_CHUNK_BYTES = 1024 * 1024


class HashAside:
    """A sha256 that is made by a thread of its own, a few pieces behind whoever adds them."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="shardline-hash")
        self._begun: deque[Future[None]] = deque()

    def update(self, data: Buffer) -> None:
        """Add what comes next; what could change meanwhile is copied."""
        kept = data if memoryview(data).readonly else bytes(data)
        self._begun.append(self._pool.submit(self._hash.update, kept))
        if len(self._begun) > _BEHIND:
            self._begun.popleft().result()

    def hexdigest(self) -> str:
        """The digest of all that was added; nothing can be added after that."""
        while self._begun:
            self._begun.popleft().result()
        self.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """End the thread; what it has not begun is left."""
        self._pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class Checksum:
    """The number of bytes and their crc32c, at a tenth of the price of a sha256.

    It tells a copy of a file from whatever can happen by accident, but not from what someone made
    who means to deceive.
    """

    bytes: int = 0
    crc32c: int = 0

    def update(self, data: Buffer) -> None:
        """Add what comes next."""
        self.bytes += len(data)
        self.crc32c = kernel.crc32c(data, self.crc32c)


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file that was read, which can be known again in a copy."""

    checksum: Checksum
    sha256: str


class OtherContentError(Exception):
    """What was written is not what was expected, so that nobody knows its sha256."""


class ExpectedHash:
    """The sha256 of bytes that should be a copy of a file that was hashed already."""

    def __init__(self, expected: Content) -> None:
        self._expected = expected
        self._checksum = Checksum()

    def update(self, data: Buffer) -> None:
        """Add what comes next."""
        self._checksum.update(data)

    def hexdigest(self) -> str:
        """The sha256 of the file; OtherContentError if it is not what was added."""
        if self._checksum != self._expected.checksum:
            raise OtherContentError
        return self._expected.sha256


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


def hash_object(store: Store, name: str, size: int | None = None) -> str | None:
    """Return the SHA-256 of an object; None if no object of this name and `size` exists."""
    try:
        file = StoredFile(store, name).open()
    except (ObjectMissingError, NotAFileError):
        return None
    try:
        return HashedFile(file).finish() if size in {None, file.size} else None
    finally:
        file.close()
