"""The sha256 of a file, made of the bytes that are read from it or written to it anyway."""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.errors import NotAFileError, ObjectNotFoundError
from shardline.tfrecord.open_file import StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from shardline.kernel.types import Buffer
    from shardline.storage.store import Store
    from shardline.tfrecord.open_file import OpenFile


_BEHIND = 4
_CHUNK_BYTES = 1024 * 1024


class BackgroundHash:
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
class FileContent:
    """The bytes of a file that was read, which can be known again in a copy."""

    checksum: Checksum
    sha256: str


class ContentMismatchError(Exception):
    """What was written is not what was expected, so that nobody knows its sha256."""


class ExpectedHash:
    """The sha256 of bytes that should be a copy of a file that was hashed already."""

    def __init__(self, expected: FileContent) -> None:
        self._expected = expected
        self._checksum = Checksum()

    def update(self, data: Buffer) -> None:
        """Add what comes next."""
        self._checksum.update(data)

    def hexdigest(self) -> str:
        """The sha256 of the file; ContentMismatchError if it is not what was added."""
        if self._checksum != self._expected.checksum:
            raise ContentMismatchError
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
    except (ObjectNotFoundError, NotAFileError):
        return None
    try:
        return HashedFile(file).finish() if size in {None, file.size} else None
    finally:
        file.close()


BLOCK_BYTES = 512 * 1024


def checksum(data: Buffer, value: int = 0) -> int:
    """Return the checksum of bytes, continued from `value`: the fastest one at hand."""
    # Without the compiled kernel a crc32c takes longer than the sha256 of the same bytes.
    return zlib.crc32(data, value) if kernel.NAME == "reference" else kernel.crc32c(data, value)


@dataclass(slots=True)
class BlockChecksums:
    """Checksums of the blocks of a file, in order; 4 bytes for each 512 KiB."""

    size: int = 0
    sums: array[int] = field(default_factory=lambda: array("I"))

    def update(self, data: memoryview) -> None:
        """Add the bytes that follow."""
        done = 0
        while done < len(data):
            inside = self.size % BLOCK_BYTES
            piece = data[done : done + BLOCK_BYTES - inside]
            if inside:
                self.sums[-1] = checksum(piece, self.sums[-1])
            else:
                self.sums.append(checksum(piece))
            self.size += len(piece)
            done += len(piece)

    def summed(self) -> int:
        """Return a single checksum of all of them, to compare files read whole."""
        return checksum(self.sums.tobytes())

    def joined(self) -> int:
        """Return the crc32c of the whole file, which the sums of its blocks make up."""
        value, left = 0, self.size
        for one in self.sums:
            value = kernel.crc32c_combine(value, one, min(left, BLOCK_BYTES))
            left -= BLOCK_BYTES
        return value

    def match(self, offset: int, data: memoryview) -> bool:
        """Return True if these are the bytes of whole blocks from `offset` on."""
        first = offset // BLOCK_BYTES
        pieces = range(0, len(data), BLOCK_BYTES)
        return all(
            first + number < len(self.sums)
            and checksum(data[begin : begin + BLOCK_BYTES]) == self.sums[first + number]
            for number, begin in enumerate(pieces)
        )


class VerifiedFile:
    """An open file whose blocks are compared with checksums before they are handed out.

    `changed` builds the error to raise for bytes that differ.
    """

    def __init__(
        self, file: OpenFile, sums: BlockChecksums, changed: Callable[[], Exception]
    ) -> None:
        self._file = file
        self._sums = sums
        self._changed = changed
        self._position = 0
        self._held = memoryview(b"")
        self._held_at = 0
        self.size = file.size
        if file.size != sums.size:
            file.close()
            raise changed()

    def __str__(self) -> str:
        return str(self._file)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes and return their number; 0 only at the end."""
        view = memoryview(buffer).cast("B")
        position, whole = self._position, len(view) // BLOCK_BYTES * BLOCK_BYTES
        if whole and not position % BLOCK_BYTES:
            count = self._fill(view[: min(whole, self.size - position)], position)
        else:
            data = self._look(position, min(len(view), BLOCK_BYTES))[: len(view)]
            view[: len(data)] = data
            count = len(data)
        self._position += count
        return count

    def seek(self, offset: int, /) -> int:
        """Continue at another offset."""
        self._position = offset
        return offset

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on, without moving the position."""
        return bytes(self._look(offset, size)[:size])

    def again(self) -> VerifiedFile:
        """Open the same file once more."""
        return VerifiedFile(self._file.again(), self._sums, self._changed)

    def close(self) -> None:
        """Close the file."""
        self._held = memoryview(b"")
        self._file.close()

    def _fill(self, view: memoryview, offset: int) -> int:
        """Read whole blocks straight into a buffer."""
        self._file.seek(offset)
        done = 0
        while done < len(view) and (count := self._file.readinto(view[done:])):
            done += count
        if done < len(view) or not self._sums.match(offset, view):
            raise self._changed()
        return done

    def _look(self, offset: int, size: int) -> memoryview:
        """Return verified bytes from `offset` on: `size` of them, if the file has so many."""
        end = min(offset + size, self.size)
        if offset >= end:
            return memoryview(b"")
        if not self._held_at <= offset < end <= self._held_at + len(self._held):
            begin = offset // BLOCK_BYTES * BLOCK_BYTES
            stop = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self.size)
            view = memoryview(bytearray(stop - begin))
            known = self._known(begin, view)
            self._fill(view[known:], begin + known)
            self._held, self._held_at = view.toreadonly(), begin
        return self._held[offset - self._held_at :]

    def _known(self, begin: int, view: memoryview) -> int:
        """Copy what is held of the blocks from `begin` on, and return how many bytes that is."""
        inside = begin - self._held_at
        if not 0 <= inside < len(self._held):
            return 0
        # Only the last block of a file is shorter, and nothing follows that.
        known = self._held[inside : inside + len(view)]
        view[: len(known)] = known
        return len(known)
