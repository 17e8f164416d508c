"""Row map of a shard: the source records or rows of each of its records.

A shard has a row map if its rows do not follow from the record numbers: for selected pairs, text
with blank lines, or a salvaged shard. All entries have the same width, so an entry is found by its
position.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.errors import ObjectNotFoundError, ShardlineError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import IntArray
    from shardline.storage import Store
    from shardline.storage.store import ObjectWriter

NO_RECORD = -1
"""Entry without a record: the right side of a record without a match."""
_MAGIC = b"SHARDRM1"
_HEADER = struct.Struct("<8sBBHI")
_BLOCK = 512
_CRC_BYTES = 4
_BLOCKS_AT_ONCE = 256


class RowMapError(ShardlineError):
    """Missing or corrupt row map."""

    code = "corrupt-row-map"


def choose_width(limit: int) -> int:
    """Return the number of bytes per number, for numbers below `limit`."""
    return 4 if limit < 2**32 else 8


class RowMapWriter:
    """Writer of a row map with `columns` numbers of `width` bytes per entry."""

    def __init__(self, file: ObjectWriter, columns: int, width: int) -> None:
        self.bytes = 0
        self._file = file
        self._columns = columns
        self._width = width
        self._hash = hashlib.sha256()
        self._left = b""
        head = _HEADER.pack(_MAGIC, columns, width, 0, 0)[:-_CRC_BYTES]
        self._write(head + struct.pack("<I", kernel.crc32c(head)))

    def add(self, *numbers: IntArray) -> None:
        """Add the entries of several records: an array per column. -1 means none."""
        rows = np.stack(numbers, axis=1)
        self._left += rows.astype(f"<i{self._width}").tobytes()
        size = _BLOCK * self._columns * self._width
        written = 0
        while len(self._left) - written >= size:
            self._write_block(self._left[written : written + size])
            written += size
        self._left = self._left[written:]

    def finish(self) -> None:
        """Write the remaining entries."""
        if self._left:
            self._write_block(self._left)
            self._left = b""

    @property
    def sha256(self) -> str:
        """SHA-256 of the written bytes."""
        return self._hash.hexdigest()

    def _write_block(self, data: bytes) -> None:
        self._write(data + struct.pack("<I", kernel.crc32c(data)))

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self.bytes += len(data)
        self._file.write(data)


@dataclass(frozen=True, slots=True)
class RowMap:
    """Row map at `name` of a shard with `records` records. It must have `columns` columns."""

    store: Store
    name: str
    records: int
    columns: int

    def find(self, record: int) -> tuple[int, ...]:
        """Return the numbers of one record. Reads only the header and one block.

        Raises RowMapError if the row map is missing or corrupt.
        """
        block = record // _BLOCK
        width = self._width(self._read((0, _HEADER.size)))
        data = self._read(self._span(block, block + 1, width))
        rows = self._numbers(data, width)
        return tuple(int(number) for number in rows[record - block * _BLOCK])

    def blocks(self) -> Iterator[tuple[int, IntArray]]:
        """Yield all entries in blocks: the number of the first record, and rows of numbers.

        Raises RowMapError if the row map is missing or corrupt.
        """
        blocks = -(-self.records // _BLOCK)
        width = self._width(self._read((0, _HEADER.size))) if blocks else 8
        for first in range(0, blocks, _BLOCKS_AT_ONCE):
            last = min(first + _BLOCKS_AT_ONCE, blocks)
            data = self._read(self._span(first, last, width))
            size = _BLOCK * self.columns * width + _CRC_BYTES
            parts = [data[start : start + size] for start in range(0, len(data), size)]
            rows = np.concatenate([self._numbers(part, width) for part in parts])
            yield first * _BLOCK, rows

    def _span(self, first: int, last: int, width: int) -> tuple[int, int]:
        """Return the offset and size of a range of blocks."""
        entry_bytes = self.columns * width
        size = _BLOCK * entry_bytes + _CRC_BYTES
        records = min(last * _BLOCK, self.records) - first * _BLOCK
        return _HEADER.size + first * size, records * entry_bytes + (last - first) * _CRC_BYTES

    def _read(self, span: tuple[int, int]) -> bytes:
        try:
            return self.store.read_ranges(self.name, [span])[0]
        except ObjectNotFoundError:
            raise RowMapError(
                "its row map is missing: deleted, or never written by an early release",
                code="row-map-not-found",
                path=self.name,
            ) from None
        except StorageError as error:
            raise RowMapError(
                f"its row map cannot be read ({error.message})",
                code="row-map-unreadable",
                path=self.name,
            ) from None

    def _width(self, head: bytes) -> int:
        magic, columns, width, _, checksum = _HEADER.unpack(head)
        is_intact = kernel.crc32c(head[:-_CRC_BYTES]) == checksum
        if not is_intact or magic != _MAGIC or columns != self.columns or width not in {4, 8}:
            raise RowMapError(f"its row map is corrupt ({self.name})", path=self.name)
        return int(width)

    def _numbers(self, block: bytes, width: int) -> IntArray:
        data, checksum = block[:-_CRC_BYTES], block[-_CRC_BYTES:]
        if struct.pack("<I", kernel.crc32c(data)) != checksum:
            raise RowMapError(f"its row map is corrupt ({self.name})", path=self.name)
        # All bits set means none, in 4 bytes as in 8.
        kind = "<u4" if width == 4 else "<i8"
        rows = np.frombuffer(data, kind).astype(np.int64).reshape(-1, self.columns)
        return np.where(rows == 2**32 - 1, NO_RECORD, rows) if width == 4 else rows
