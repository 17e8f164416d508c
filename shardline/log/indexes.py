"""Indexes from digests and hashes to numbers, by binary search."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardline.log.columns import EditedColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.log.model import Source


_MAX_NEW = 4096
_REMOVED = 0
_SortedDigests: TypeAlias = tuple[NDArray[np.uint64], memoryview, NDArray[np.int64]]
"""First eight bytes of each key, all keys in sequence, and their numbers."""
_SortedHashes: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.int64]]


class DigestIndex(EditedColumns[_SortedDigests, dict[str, int]]):
    """Map from SHA-256 digests to numbers, by binary search.

    If `stored` is False, the checkpoint of an earlier release lacks the table, and the log is
    replayed.
    """

    max_edits = _MAX_NEW

    def __init__(self, load: Callable[[], pa.Table] | None = None, *, stored: bool = True) -> None:
        super().__init__({}, load)
        self.stored = stored

    def put(self, key: str, number: int) -> None:
        """Set the number of a key, which must not be 0."""
        self._edits[key] = number

    def remove(self, key: str) -> None:
        """Remove a key, if it is there."""
        if self._load is None and self._columns is None:
            self._edits.pop(key, None)
        else:
            self._edits[key] = _REMOVED

    def get(self, key: str) -> int | None:
        """Return the number of a key; None if unknown."""
        number = self._edits.get(key)
        if number is not None:
            return number or None
        if self._load is None and self._columns is None:
            return None
        row, exists = self._find_row(bytes.fromhex(key))
        return int(self._get_stored()[2][row]) if exists else None

    def get_many(self, keys: bytes) -> NDArray[np.int64]:
        """Return the numbers of many keys, 32 bytes each; 0 for an unknown key.

        Costs a binary search in compiled code per key, and no Python object.
        """
        stored = self._fold()[2]
        rows, exists = self._find(keys)
        numbers = np.zeros(len(rows), np.int64)
        numbers[exists] = stored[rows[exists]]
        return numbers

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all keys with their numbers."""
        table = self.to_table()
        pairs = zip(table["key"].to_pylist(), table["number"].to_pylist(), strict=True)
        for key, number in pairs:
            yield key.hex(), number

    def to_table(self) -> pa.Table:
        """Return all keys in order with their numbers, for a checkpoint."""
        _, keys, numbers = self._fold()
        buffer = pa.py_buffer(keys)
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(numbers), [None, buffer])
        return pa.table({"key": fixed, "number": pa.array(numbers)})

    def _apply(self, columns: _SortedDigests) -> _SortedDigests:
        _, keys, numbers = columns
        rows, numbers = np.frombuffer(keys, "V32"), numbers.copy()
        ordered = sorted(self._edits)
        new_keys = bytes.fromhex("".join(ordered))
        new_numbers = np.array([self._edits[key] for key in ordered], np.int64)
        positions, exists = self._find(new_keys)
        numbers[positions[exists]] = new_numbers[exists]
        inserted = ~exists & (new_numbers != _REMOVED)
        positions = positions[inserted]
        rows = np.insert(rows, positions, np.frombuffer(new_keys, "V32")[inserted])
        numbers = np.insert(numbers, positions, new_numbers[inserted])
        rows, numbers = rows[numbers != _REMOVED], numbers[numbers != _REMOVED]
        data = rows.tobytes()
        return np.frombuffer(data, ">u8")[::4].astype(np.uint64), memoryview(data), numbers

    def _find(self, keys: bytes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the position of each key, or where to insert it, and whether it exists."""
        prefixes, known, _ = self._get_stored()
        requested = np.frombuffer(keys, ">u8").reshape(-1, 4)
        rows = np.searchsorted(prefixes, requested[:, 0].astype(np.uint64))
        exists = np.zeros(len(rows), np.bool_)
        inside = np.flatnonzero(rows < len(prefixes))
        stored = np.frombuffer(known, ">u8").reshape(-1, 4)[rows[inside]]
        exists[inside] = (stored == requested[inside]).all(axis=1)
        # Among keys with the same first eight bytes, the search returns the first.
        shared = inside[(stored[:, 0] == requested[inside, 0]) & ~exists[inside]]
        for index in shared.tolist():
            rows[index], exists[index] = self._find_row(keys[index * 32 : index * 32 + 32])
        return rows, exists

    def _find_row(self, key: bytes) -> tuple[int, bool]:
        """Return the position of a key, or where to insert it, and whether it exists."""
        prefixes, keys, _ = self._get_stored()
        if not len(prefixes):
            return 0, False
        prefix = np.uint64(int.from_bytes(key[:8], "big"))
        row = int(np.searchsorted(prefixes, prefix))
        while row < len(prefixes) and prefixes[row] == prefix:
            stored = bytes(keys[row * 32 : row * 32 + 32])
            if stored >= key:
                return row, stored == key
            row += 1
        return row, False

    def _read(self, table: pa.Table | None) -> _SortedDigests:
        data, numbers = b"", np.empty(0, np.int64)
        if table is not None:
            column = table["key"].combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
            start = column.offset * 32
            data = bytes(memoryview(column.buffers()[1])[start : start + 32 * len(column)])
            numbers = table["number"].to_numpy()
        parts = np.frombuffer(data, ">u8").reshape(-1, 4)
        return parts[:, 0].astype(np.uint64), memoryview(data), numbers


def hash_location(source: Source) -> int:
    """Return the hash of the path or batch name of a source."""
    return int(source.location_key[:16], 16)


def hash_content(source: Source) -> int | None:
    """Return the hash of the content of a file; None for a batch, identified by its name."""
    return None if source.sha256 is None else int(source.sha256[:16], 16)


class SourceIndex(EditedColumns[_SortedHashes, dict[int, tuple[int, ...]]]):
    """Map from hashes of locations and contents to the entries that appended them.

    If `stored` is False, the checkpoint of an earlier release lacks the table, and the log is
    replayed.
    """

    max_edits = _MAX_NEW

    def __init__(self, load: Callable[[], pa.Table] | None = None, *, stored: bool = True) -> None:
        super().__init__({}, load)
        self.stored = stored

    def add(self, source: Source, entry: int) -> None:
        """Record that an entry appended a source."""
        for hashed in (hash_location(source), hash_content(source)):
            known = () if hashed is None else self._edits.get(hashed, ())
            if hashed is not None and entry not in known[-1:]:
                self._edits[hashed] = (*known, entry)

    def find(self, hashed: int) -> list[int]:
        """Return the entries that may have appended a source of this hash, oldest first."""
        hashes, entries = self._get_stored()
        if not len(hashes):
            return list(self._edits.get(hashed, ()))
        key = np.uint64(hashed)
        first = last = int(hashes.searchsorted(key))
        if first < len(hashes) and hashes[first] == key:
            last = int(hashes.searchsorted(key, "right"))
        return [*entries[first:last].tolist(), *self._edits.get(hashed, ())]

    def since(self, source: Source, entry: int) -> bool:
        """Return True if the path, batch or content may have been appended after an entry."""
        hashes = (hash_location(source), hash_content(source))
        return any(max(self.find(key), default=0) > entry for key in hashes if key is not None)

    def to_table(self) -> pa.Table:
        """Return all hashes in order with their entries, for a checkpoint."""
        hashes, entries = self._fold()
        return pa.table({"hash": pa.array(hashes), "entry": pa.array(entries)})

    def _apply(self, columns: _SortedHashes) -> _SortedHashes:
        hashes, entries = columns
        rows = sorted((key, number) for key, numbers in self._edits.items() for number in numbers)
        new = np.array([key for key, _ in rows], np.uint64)
        # New entries are the latest of their hash.
        positions = np.searchsorted(hashes, new, "right")
        return (
            np.insert(hashes, positions, new),
            np.insert(entries, positions, [number for _, number in rows]),
        )

    def _read(self, table: pa.Table | None) -> _SortedHashes:
        if table is None:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        return table["hash"].to_numpy(), table["entry"].to_numpy()
