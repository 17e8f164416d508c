"""A set of digests, each with a number, that finds one among millions by binary search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_MAX_NEW = 4096


class Keys:
    """Maps sha256 digests to numbers. `load` gives what a checkpoint knew, when it is needed."""

    def __init__(self, load: Callable[[], pa.Table] | None = None) -> None:
        self._load = load
        self._base: tuple[NDArray[np.uint64], memoryview, NDArray[np.int64]] | None = None
        self._new: dict[str, int] = {}

    def put(self, key: str, number: int) -> None:
        """Set the number of a key."""
        self._new[key] = number

    def get(self, key: str) -> int | None:
        """The number of a key, None if it is not there."""
        if key in self._new:
            return self._new[key]
        place, there = self._place(bytes.fromhex(key))
        return int(self._sorted()[2][place]) if there else None

    def items(self) -> Iterator[tuple[str, int]]:
        """All keys with their numbers."""
        table = self.to_table()
        pairs = zip(table["key"].to_pylist(), table["number"].to_pylist(), strict=True)
        for key, number in pairs:
            yield key.hex(), number

    def to_table(self) -> pa.Table:
        """All of it, sorted, for a checkpoint: new keys are put between the sorted ones."""
        prefixes, keys, numbers = self._sorted()
        rows = np.frombuffer(keys, "V32")
        if self._new:
            numbers = numbers.copy()
            places, new = [], []
            for key, number in sorted(self._new.items()):
                place, there = self._place(bytes.fromhex(key))
                if there:
                    numbers[place] = number
                else:
                    places.append(place)
                    new.append((bytes.fromhex(key), number))
            rows = np.insert(rows, places, np.frombuffer(b"".join(k for k, _ in new), "V32"))
            numbers = np.insert(numbers, places, [number for _, number in new])
            data = rows.tobytes()
            prefixes = np.frombuffer(data, ">u8")[::4].astype(np.uint64)
            self._base, self._new = (prefixes, memoryview(data), numbers), {}
        buffer = pa.py_buffer(self._sorted()[1])
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(rows), [None, buffer])
        return pa.table({"key": fixed, "number": pa.array(numbers)})

    def fork(self) -> Keys:
        """A copy that can go its own way."""
        if len(self._new) > _MAX_NEW:
            self.to_table()
        other = Keys(self._load)
        other._base, other._new = self._base, dict(self._new)
        return other

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
