"""Find keys in a table: whole columns at once, however large the table is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows: TypeAlias = NDArray[np.int64]

Doubled: TypeAlias = Literal["fail", "first", "last"]
"""What to do with a key that stands in a table more than once."""

_FEW_KEYS = 2000
"""Arrow hashes the keys for each column that is looked up: that pays for few of them only."""


class DoubledKeys(Exception):  # noqa: N818 - it is raised and caught within this package
    """How many keys stand in a table more than once, and the first two rows of the first."""

    def __init__(self, count: int, first: int, second: int) -> None:
        super().__init__(count, first, second)
        self.count = count
        self.first = first
        self.second = second


class Lookup(ABC):
    """The rows of a table by their keys: int64 or binary, none of them null."""

    @abstractmethod
    def rows(self, column: pa.Array) -> Rows:
        """The row of each key, -1 where there is none; null is no key."""


def lookup(keys: pa.Array, doubled: Doubled) -> Lookup:
    """The keys of a table; DoubledKeys if one stands there twice, and that is not allowed."""
    encoded = keys.dictionary_encode()
    codes, unique = np.asarray(encoded.indices), encoded.dictionary
    firsts = np.unique(codes, return_index=True)[1]
    rows = firsts
    if len(unique) < len(keys):
        if doubled == "fail":
            again = np.delete(np.arange(len(keys)), firsts)[0]
            count = int((np.bincount(codes) > 1).sum())
            raise DoubledKeys(count, int(firsts[codes[again]]), int(again))
        if doubled == "last":
            rows = len(keys) - 1 - np.unique(codes[::-1], return_index=True)[1]
    if pa.types.is_int64(keys.type):
        return _SortedNumbers(np.asarray(unique), rows)
    return _FewTexts(unique, rows) if len(unique) <= _FEW_KEYS else _ManyTexts(unique, rows)


class _SortedNumbers(Lookup):
    def __init__(self, keys: Rows, rows: Rows) -> None:
        order = np.argsort(keys)
        self._keys, self._rows = keys[order], rows[order]

    def rows(self, column: pa.Array) -> Rows:
        if not len(self._keys):
            return np.full(len(column), -1)
        asked = np.asarray(pc.fill_null(column, 0) if column.null_count else column)
        places = np.minimum(np.searchsorted(self._keys, asked), len(self._keys) - 1)
        found = (self._keys[places] == asked) & np.asarray(column.is_valid())
        return np.where(found, self._rows[places], -1)


class _FewTexts(Lookup):
    def __init__(self, keys: pa.Array, rows: Rows) -> None:
        self._keys = keys
        self._rows = np.append(rows, -1)

    def rows(self, column: pa.Array) -> Rows:
        places = pc.index_in(column.cast(pa.binary()), value_set=self._keys)
        found: Rows = self._rows[np.asarray(pc.fill_null(places, -1))]
        return found


class _ManyTexts(Lookup):
    def __init__(self, keys: pa.Array, rows: Rows) -> None:
        self._rows: dict[Any, int] = dict(zip(keys.to_pylist(), rows.tolist(), strict=True))

    def rows(self, column: pa.Array) -> Rows:
        asked = column.cast(pa.binary()).to_pylist()
        return np.fromiter(map(self._rows.get, asked, repeat(-1)), np.int64, len(asked))
