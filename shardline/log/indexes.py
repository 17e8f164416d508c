"""A set of digests, each with a number, that finds one among millions by binary search."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.log.model import Source


_MAX_NEW = 4096


_REMOVED = 0


class DigestIndex:
    """Maps sha256 digests to numbers. `load` gives what a checkpoint knew, when it is needed.

    A checkpoint that an earlier release wrote may have none `stored`; then the log is replayed.
    """

    def __init__(self, load: Callable[[], pa.Table] | None = None, *, stored: bool = True) -> None:
        self.stored = stored
        self._load = load
        self._base: tuple[NDArray[np.uint64], memoryview, NDArray[np.int64]] | None = None
        self._new: dict[str, int] = {}

    def put(self, key: str, number: int) -> None:
        """Set the number of a key; it is not 0."""
        self._new[key] = number

    def remove(self, key: str) -> None:
        """Remove a key, if it is there."""
        if self._load is None and self._base is None:
            self._new.pop(key, None)
        else:
            self._new[key] = _REMOVED

    def get(self, key: str) -> int | None:
        """The number of a key, None if it is not there."""
        number = self._new.get(key)
        if number is not None:
            return number or None
        if self._load is None and self._base is None:
            return None
        place, there = self._place(bytes.fromhex(key))
        return int(self._sorted()[2][place]) if there else None

    def get_many(self, keys: bytes) -> NDArray[np.int64]:
        """Return the numbers of many keys, 32 bytes each; 0 for a key that is not there.

        It costs a binary search in compiled code for each, and no Python object.
        """
        if self._new:
            self.to_table()
        rows, there = self._find(keys)
        found = np.zeros(len(rows), np.int64)
        found[there] = self._sorted()[2][rows[there]]
        return found

    def items(self) -> Iterator[tuple[str, int]]:
        """All keys with their numbers."""
        table = self.to_table()
        pairs = zip(table["key"].to_pylist(), table["number"].to_pylist(), strict=True)
        for key, number in pairs:
            yield key.hex(), number

    def to_table(self) -> pa.Table:
        """All of it, sorted, for a checkpoint: new keys are put between the sorted ones."""
        _, keys, numbers = self._sorted()
        rows = np.frombuffer(keys, "V32")
        if self._new:
            numbers = numbers.copy()
            ordered = sorted(self._new)
            new_keys = bytes.fromhex("".join(ordered))
            new_numbers = np.array([self._new[key] for key in ordered], np.int64)
            places, there = self._find(new_keys)
            numbers[places[there]] = new_numbers[there]
            inserted = ~there & (new_numbers != _REMOVED)
            places = places[inserted]
            rows = np.insert(rows, places, np.frombuffer(new_keys, "V32")[inserted])
            numbers = np.insert(numbers, places, new_numbers[inserted])
            rows, numbers = rows[numbers != _REMOVED], numbers[numbers != _REMOVED]
            data = rows.tobytes()
            prefixes = np.frombuffer(data, ">u8")[::4].astype(np.uint64)
            self._base, self._new = (prefixes, memoryview(data), numbers), {}
        buffer = pa.py_buffer(self._sorted()[1])
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(rows), [None, buffer])
        return pa.table({"key": fixed, "number": pa.array(numbers)})

    def fork(self) -> DigestIndex:
        """A copy that can go its own way."""
        if len(self._new) > _MAX_NEW:
            self.to_table()
        other = DigestIndex(self._load, stored=self.stored)
        other._base, other._new = self._base, dict(self._new)
        return other

    def _find(self, keys: bytes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where each of many keys stands or would stand, and whether it does."""
        prefixes, known, _ = self._sorted()
        wanted = np.frombuffer(keys, ">u8").reshape(-1, 4)
        rows = np.searchsorted(prefixes, wanted[:, 0].astype(np.uint64))
        there = np.zeros(len(rows), np.bool_)
        inside = np.flatnonzero(rows < len(prefixes))
        stored = np.frombuffer(known, ">u8").reshape(-1, 4)[rows[inside]]
        there[inside] = (stored == wanted[inside]).all(axis=1)
        # Where other keys have the same first eight bytes, the search found the first of them.
        shared = inside[(stored[:, 0] == wanted[inside, 0]) & ~there[inside]]
        for at in shared.tolist():
            rows[at], there[at] = self._place(keys[at * 32 : at * 32 + 32])
        return rows, there

    def _place(self, key: bytes) -> tuple[int, bool]:
        """Where a key stands or would stand, and whether it does."""
        prefixes, keys, _ = self._sorted()
        if not len(prefixes):
            return 0, False
        prefix = np.uint64(int.from_bytes(key[:8], "big"))
        row = int(np.searchsorted(prefixes, prefix))
        while row < len(prefixes) and prefixes[row] == prefix:
            found = bytes(keys[row * 32 : row * 32 + 32])
            if found >= key:
                return row, found == key
            row += 1
        return row, False

    def _sorted(self) -> tuple[NDArray[np.uint64], memoryview, NDArray[np.int64]]:
        """First eight bytes of each key, the keys one after the other, and their numbers."""
        if self._base is None:
            if self._load is None:
                data, numbers = b"", np.empty(0, np.int64)
            else:
                table = self._load()
                column = table["key"].combine_chunks()
                if isinstance(column, pa.ChunkedArray):
                    column = pa.concat_arrays(column.chunks)
                start = column.offset * 32
                data = bytes(memoryview(column.buffers()[1])[start : start + 32 * len(column)])
                numbers = table["number"].to_numpy()
            words = np.frombuffer(data, ">u8").reshape(-1, 4)
            self._base = words[:, 0].astype(np.uint64), memoryview(data), numbers
        return self._base


Columns: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.int64]]


def hash_location(source: Source) -> int:
    """Return the hash of where a source comes from: its path, or the name of the batch."""
    return int(source.location_key[:16], 16)


def hash_content(source: Source) -> int | None:
    """Return the hash of what a file contains; None for a batch, whose name is all that counts."""
    return None if source.sha256 is None else int(source.sha256[:16], 16)


class SourceIndex:
    """Maps hashes of places and contents to the entries that they landed with.

    `load` returns the table of a checkpoint when it is needed. One that an earlier release wrote
    has none `stored`, and the log is replayed instead.
    """

    def __init__(self, load: Callable[[], pa.Table] | None = None, *, stored: bool = True) -> None:
        self.stored = stored
        self._load = load
        self._base: Columns | None = None
        self._new: dict[int, tuple[int, ...]] = {}

    def add(self, source: Source, entry: int) -> None:
        """Note that a source landed with an entry."""
        for hashed in (hash_location(source), hash_content(source)):
            known = () if hashed is None else self._new.get(hashed, ())
            if hashed is not None and entry not in known[-1:]:
                self._new[hashed] = (*known, entry)

    def find(self, hashed: int) -> list[int]:
        """Return the entries in which a source of this hash may have landed, oldest first."""
        hashes, entries = self._sorted()
        if not len(hashes):
            return list(self._new.get(hashed, ()))
        key = np.uint64(hashed)
        first = last = int(hashes.searchsorted(key))
        if first < len(hashes) and hashes[first] == key:
            last = int(hashes.searchsorted(key, "right"))
        return [*entries[first:last].tolist(), *self._new.get(hashed, ())]

    def since(self, source: Source, entry: int) -> bool:
        """Return True if the path, batch or content may have landed after an entry."""
        hashes = (hash_location(source), hash_content(source))
        return any(max(self.find(one), default=0) > entry for one in hashes if one is not None)

    def to_table(self) -> pa.Table:
        """Return all of it, sorted by hash, for a checkpoint."""
        hashes, entries = self._sorted()
        if self._new:
            rows = sorted((hashed, n) for hashed, some in self._new.items() for n in some)
            new = np.array([hashed for hashed, _ in rows], np.uint64)
            # Entries only grow: behind those of the same hash.
            places = np.searchsorted(hashes, new, "right")
            hashes = np.insert(hashes, places, new)
            entries = np.insert(entries, places, [number for _, number in rows])
            self._base, self._new = (hashes, entries), {}
        return pa.table({"hash": pa.array(hashes), "entry": pa.array(entries)})

    def fork(self) -> SourceIndex:
        """Return a copy that can diverge."""
        if len(self._new) > _MAX_NEW:
            self.to_table()
        other = SourceIndex(self._load, stored=self.stored)
        other._base, other._new = self._base, dict(self._new)
        return other

    def _sorted(self) -> Columns:
        if self._base is None:
            if self._load is None:
                self._base = np.empty(0, np.uint64), np.empty(0, np.int64)
            else:
                table = self._load()
                self._base = table["hash"].to_numpy(), table["entry"].to_numpy()
        return self._base
