"""Exact ranks and counts of columns of any length, in bounded memory.

Numbers and keys are kept in memory up to a budget, then in files of a temporary folder: 8 bytes for
each number, 24 bytes for each distinct value of a chunk.
"""

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

BUDGET_BYTES = 64 * 1024**2
"""Memory limit of a spool."""

_SIGN = np.uint64(1 << 63)
_DIGIT_BITS = 16
_KEY_BITS = 64
_DIGITS = 1 << _DIGIT_BITS
_COUNTED = np.dtype([("high", "<u8"), ("low", "<u8"), ("count", "<i8")])
_HASH_BYTES = 16


class NumberSpool:
    """The numbers of a column, of which `at_rank` returns any in sorted order."""

    def __init__(self, folder: Path, name: str, *, budget_bytes: int = BUDGET_BYTES) -> None:
        self.count = 0
        self._path = folder / f"{name}.numbers"
        self._budget = budget_bytes
        self._blocks: list[NDArray[np.uint64]] = []
        self._is_whole = True
        self._in_memory = 0

    def add(self, values: "NDArray[Any]") -> None:
        """Add numbers without NaN. A spool contains either integers or floats."""
        self._is_whole = values.dtype.kind in "iu"
        self.count += len(values)
        self._blocks.append(_create_sort_keys(values))
        self._in_memory += 8 * len(values)
        if self._in_memory > self._budget:
            with self._path.open("ab") as file:
                for block in self._blocks:
                    file.write(block.tobytes())
            self._blocks, self._in_memory = [], 0

    def at_rank(self, rank: int) -> int | float:
        """Return the number at a rank, counting from 0 for the minimum."""
        prefix, left = 0, rank
        for shift in range(_KEY_BITS - _DIGIT_BITS, -1, -_DIGIT_BITS):
            counts = np.zeros(_DIGITS, np.int64)
            for keys in self._below(prefix, shift + _DIGIT_BITS):
                digits = (keys >> np.uint64(shift)) & np.uint64(_DIGITS - 1)
                counts += np.bincount(digits.astype(np.int64), minlength=_DIGITS)
            ends = np.cumsum(counts)
            digit = int(np.searchsorted(ends, left, "right"))
            left -= int(ends[digit - 1]) if digit else 0
            prefix = (prefix << _DIGIT_BITS) | digit
            if shift and counts[digit] * 8 <= self._budget:
                keys = np.concatenate(list(self._below(prefix, shift)))
                return self._number(int(np.partition(keys, left)[left]))
        return self._number(prefix)

    def _below(self, prefix: int, shift: int) -> Iterator["NDArray[np.uint64]"]:
        """Yield the keys that start with a prefix."""
        for block in self._all():
            if shift == _KEY_BITS:
                yield block
            else:
                yield block[(block >> np.uint64(shift)) == np.uint64(prefix)]

    def _all(self) -> Iterator["NDArray[np.uint64]"]:
        if self._path.exists():
            with self._path.open("rb") as file:
                while data := file.read(max(self._budget // 64, 8) // 8 * 8):
                    yield np.frombuffer(data, np.uint64)
        yield from self._blocks

    def _number(self, key: int) -> int | float:
        bits = np.uint64(key)
        if self._is_whole:
            return int((bits ^ _SIGN).view(np.int64))
        bits = bits ^ _SIGN if bits & _SIGN else ~bits
        return float(bits.view(np.float64))


class KeyCounts:
    """Counts of the values of a column, or of the rows of several columns.

    A text is identified by a keyed hash of 128 bits, a number by itself. `sum_up` iterates over all
    keys once, in parts that fit the budget.
    """

    def __init__(self, folder: Path, name: str, *, budget_bytes: int = BUDGET_BYTES) -> None:
        self._stem = folder / name
        self._budget = budget_bytes
        self._blocks: list[NDArray[Any]] = []
        self._in_memory = 0
        self._written = 0
        self._parts: list[Path] = []
        self._secret = os.urandom(_HASH_BYTES)

    def add(self, frame: "pd.DataFrame") -> None:
        """Count the rows of a frame. A single column must not contain nulls."""
        columns = [frame[name] for name in frame.columns]
        keys = self.hash_values(columns[0]) if len(columns) == 1 else self._hash_rows(columns)
        counted = _merge_keys(keys)
        self._blocks.append(counted)
        self._in_memory += counted.nbytes
        if self._in_memory > self._budget:
            self._spill()

    def hash_values(self, series: "pd.Series[Any]") -> "NDArray[Any]":
        """Return the key of each value of a column without nulls, each with the count 1."""
        keys = np.zeros(len(series), _COUNTED)
        keys["count"] = 1
        if is_number(series):
            keys["low"] = _mix_keys(_create_sort_keys(convert_numbers(series)))
            return keys
        import pandas as pd  # noqa: PLC0415 - takes a second to load

        codes, texts = pd.factorize(series.to_numpy(object))
        hashed = self._hash([str(text).encode() for text in texts])
        keys["high"], keys["low"] = hashed[codes, 0], hashed[codes, 1]
        return keys

    def sum_up(self) -> Iterator["NDArray[Any]"]:
        """Yield all keys with their counts, sorted in each part. Each key is in one part."""
        if self._parts:
            self._spill()
            for path in self._parts:
                if path.exists():
                    yield _merge_keys(np.fromfile(path, _COUNTED))
        elif self._blocks:
            yield _merge_keys(np.concatenate(self._blocks))

    def _hash_rows(self, columns: Sequence["pd.Series[Any]"]) -> "NDArray[Any]":
        """Return a key for each row. Nulls of a column are equal."""
        parts = []
        for series in columns:
            missing = series.isna().to_numpy(bool)
            part = np.zeros((len(series), 3), np.uint64)
            keys = self.hash_values(series[~missing])
            part[~missing, 0], part[~missing, 1] = keys["high"], keys["low"]
            part[:, 2] = missing
            parts.append(part)
        rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
        data, width = rows.tobytes(), rows.shape[1] * 8
        hashed = self._hash(
            [data[offset : offset + width] for offset in range(0, len(data), width)]
        )
        keys = np.ones(len(rows), _COUNTED)
        keys["high"], keys["low"] = hashed[:, 0], hashed[:, 1]
        return keys

    def _hash(self, values: Sequence[bytes]) -> "NDArray[np.uint64]":
        digests = (blake2b(v, digest_size=_HASH_BYTES, key=self._secret).digest() for v in values)
        return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)

    def _spill(self) -> None:
        """Move the keys from memory to files, each key to its own part.

        The number of parts grows with the keys, so that each part fits the budget. Earlier parts
        are divided again.
        """
        block = _merge_keys(np.concatenate(self._blocks)) if self._blocks else np.zeros(0, _COUNTED)
        self._blocks, self._in_memory = [], 0
        self._written += block.nbytes
        part_count = len(self._parts) or 8
        while part_count * self._budget < 2 * self._written:
            part_count *= 8
        if part_count > len(self._parts):
            old = self._parts
            self._parts = [Path(f"{self._stem}.{part_count}.{part}") for part in range(part_count)]
            for path in old:
                if path.exists():
                    self._divide(np.fromfile(path, _COUNTED))
                    path.unlink()
        self._divide(block)

    def _divide(self, block: "NDArray[Any]") -> None:
        part_of = (block["low"] % np.uint64(len(self._parts))).astype(np.int64)
        order = np.argsort(part_of, kind="stable")
        ends = np.cumsum(np.bincount(part_of, minlength=len(self._parts)))
        for path, part in zip(self._parts, np.split(block[order], ends[:-1]), strict=True):
            if len(part):
                with path.open("ab") as file:
                    file.write(part.tobytes())


def _merge_keys(block: "NDArray[Any]") -> "NDArray[Any]":
    """Sort keys, and add up the counts of equal keys."""
    if not len(block):
        return block
    block = block[np.lexsort((block["low"], block["high"]))]
    high, low = block["high"], block["low"]
    starts = np.flatnonzero(
        np.concatenate([[True], (high[1:] != high[:-1]) | (low[1:] != low[:-1])])
    )
    merged = block[starts]
    merged["count"] = np.add.reduceat(block["count"], starts)
    return merged


def is_number(series: "pd.Series[Any]") -> bool:
    """Return True for a column of numbers."""
    return series.dtype.kind in "iuf"


def convert_numbers(series: "pd.Series[Any]") -> "NDArray[Any]":
    """Return numbers without nulls: int64, or float64, which represents each float32 exactly."""
    kind: Any = np.float64 if series.dtype.kind == "f" else np.int64
    numbers: NDArray[Any] = series.to_numpy(dtype=kind)
    return numbers


def _create_sort_keys(values: "NDArray[Any]") -> "NDArray[np.uint64]":
    """Return keys in the order of the numbers. Equal numbers have equal keys."""
    if values.dtype.kind in "iu":
        return values.astype(np.int64).view(np.uint64) ^ _SIGN
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _mix_keys(keys: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    """Spread keys evenly, so that parts have similar sizes. Different keys stay different."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
