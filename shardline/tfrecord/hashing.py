"""Hashes of files, computed from the bytes that are read or written anyway."""

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
from shardline.tfrecord.input_file import StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from shardline.kernel.types import Buffer
    from shardline.storage.store import Store
    from shardline.tfrecord.input_file import OpenFile


_BEHIND = 4
_CHUNK_BYTES = 1024 * 1024


class BackgroundHash:
    """SHA-256 computed on a separate thread, a few pieces after the caller."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="shardline-hash")
        self._begun: deque[Future[None]] = deque()

    def update(self, data: Buffer) -> None:
        """Add the next bytes. Bytes that could change meanwhile are copied."""
        own = data if memoryview(data).readonly else bytes(data)
        self._begun.append(self._pool.submit(self._hash.update, own))
        if len(self._begun) > _BEHIND:
            self._begun.popleft().result()

    def hexdigest(self) -> str:
        """Return the digest of all added bytes. Nothing can be added afterwards."""
        while self._begun:
            self._begun.popleft().result()
        self.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Stop the thread. Pieces that it has not started are dropped."""
        self._pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class Checksum:
    """Number of bytes and their crc32c, at a tenth of the cost of a SHA-256.

    It detects accidental changes in a copy of a file, but not deliberate changes.
    """

    bytes: int = 0
    crc32c: int = 0

    def update(self, data: Buffer) -> None:
        """Add the next bytes."""
        self.bytes += len(data)
        self.crc32c = kernel.crc32c(data, self.crc32c)


@dataclass(frozen=True, slots=True)
class FileContent:
    """Checksum and SHA-256 of a file that was read, by which a copy is recognized."""

    checksum: Checksum
    sha256: str


class ContentMismatchError(Exception):
    """Written bytes that differ from the expected bytes, so that their SHA-256 is unknown."""


class ExpectedHash:
    """SHA-256 of bytes that should be a copy of a file with a known SHA-256."""

    def __init__(self, expected: FileContent) -> None:
        self._expected = expected
        self._checksum = Checksum()

    def update(self, data: Buffer) -> None:
        """Add the next bytes."""
        self._checksum.update(data)

    def hexdigest(self) -> str:
        """Return the SHA-256 of the file. Raises ContentMismatchError if the bytes differ."""
        if self._checksum != self._expected.checksum:
            raise ContentMismatchError
        return self._expected.sha256


class HashedFile:
    """Open file that hashes the bytes read from it in order.

    A RecordFile over it reads in order, so `finish` has to read bytes only if reading stopped
    early. Hashed bytes are also passed to `also`, if it is given.
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
        """Return the hex digest of the whole file. Reads the bytes that were not read yet."""
        while self._hashed < self.size and self.pread(_CHUNK_BYTES, self._hashed):
            pass
        return self._hash.hexdigest()

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes and return their number."""
        count = self._file.readinto(buffer)
        self._note(self._position, buffer[:count])
        self._position += count
        return count

    def seek(self, offset: int, /) -> int:
        """Continue at another offset."""
        self._position = self._file.seek(offset)
        return self._position

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on, without moving the position."""
        data = self._file.pread(size, offset)
        self._note(offset, memoryview(data))
        return data

    def reopen(self) -> OpenFile:
        """Open the same file once more, without hashing."""
        return self._file.reopen()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _note(self, offset: int, data: memoryview) -> None:
        """Hash the next bytes. Skips bytes that were hashed before or are farther on."""
        known = self._hashed - offset
        if 0 <= known < len(data):
            self._hash.update(data[known:])
            if self._also is not None:
                self._also(data[known:])
            self._hashed = offset + len(data)


def hash_object(store: Store, name: str, size: int | None = None) -> str | None:
    """Return the SHA-256 of an object. None if no object has this name and `size`."""
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
    """Return the checksum of bytes, continued from `value`, by the fastest available method."""
    # Without the compiled kernel, a crc32c takes longer than the SHA-256 of the same bytes.
    return zlib.crc32(data, value) if kernel.NAME == "reference" else kernel.crc32c(data, value)


@dataclass(slots=True)
class BlockChecksums:
    """Checksums of the blocks of a file, in order: 4 bytes per 512 KiB."""

    size: int = 0
    sums: array[int] = field(default_factory=lambda: array("I"))

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
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
        """Return a single checksum of all block checksums, to compare files read whole."""
        return checksum(self.sums.tobytes())

    def joined(self) -> int:
        """Return the crc32c of the whole file, combined from those of its blocks."""
        value, left = 0, self.size
        for block_sum in self.sums:
            value = kernel.crc32c_combine(value, block_sum, min(left, BLOCK_BYTES))
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
    """Open file whose blocks are compared with checksums before they are returned.

    `changed` builds the error to raise for bytes that differ.
    """

    def __init__(
        self, file: OpenFile, sums: BlockChecksums, changed: Callable[[], Exception]
    ) -> None:
        self._file = file
        self._sums = sums
        self._changed = changed
        self._position = 0
        self._window = memoryview(b"")
        self._window_offset = 0
        self.size = file.size
        if file.size != sums.size:
            file.close()
            raise changed()

    def __str__(self) -> str:
        return str(self._file)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes and return their number, 0 only at the end."""
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

    def reopen(self) -> VerifiedFile:
        """Open the same file once more."""
        return VerifiedFile(self._file.reopen(), self._sums, self._changed)

    def close(self) -> None:
        """Close the file."""
        self._window = memoryview(b"")
        self._file.close()

    def _fill(self, view: memoryview, offset: int) -> int:
        """Read whole blocks directly into a buffer, and verify them."""
        self._file.seek(offset)
        done = 0
        while done < len(view) and (count := self._file.readinto(view[done:])):
            done += count
        if done < len(view) or not self._sums.match(offset, view):
            raise self._changed()
        return done

    def _look(self, offset: int, size: int) -> memoryview:
        """Return verified bytes from `offset` on: at least `size`, unless the file ends."""
        end = min(offset + size, self.size)
        if offset >= end:
            return memoryview(b"")
        if not self._window_offset <= offset < end <= self._window_offset + len(self._window):
            begin = offset // BLOCK_BYTES * BLOCK_BYTES
            stop = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self.size)
            view = memoryview(bytearray(stop - begin))
            known = self._known(begin, view)
            self._fill(view[known:], begin + known)
            self._window, self._window_offset = view.toreadonly(), begin
        return self._window[offset - self._window_offset :]

    def _known(self, begin: int, view: memoryview) -> int:
        """Copy the bytes held of the blocks from `begin` on, and return their number."""
        inside = begin - self._window_offset
        if not 0 <= inside < len(self._window):
            return 0
        # Only the last block of a file is shorter, and nothing follows it.
        known = self._window[inside : inside + len(view)]
        view[: len(known)] = known
        return len(known)
