"""Read a file again and refuse any byte that differs from the first reading.

A source is read twice: once for its digest, once for its records. Sizes and times cannot prove that
both readings saw the same bytes, so the first one keeps a checksum of each block and the second one
compares each block before it hands out a byte of it.
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.files.opened import OpenFile
    from shardline.kernel.types import Buffer

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
