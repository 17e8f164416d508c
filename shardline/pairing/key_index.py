"""Match records by key features, exactly: the keys of the right, sorted, and who looks into them.

A key becomes a number, and together with the number of its record one that can be sorted. So the
records of a key lie together, in their order, and a binary search finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.pairing.pairs import LOT_PAIRS, Chosen, chosen_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import Column, IntArray
    from shardline.pairing.build_side import Held
    from shardline.pairing.sides import Keys, Part
    from shardline.pairing.spec import How


@dataclass(frozen=True, slots=True)
class Matches:
    """For each record of a part of the left, where its matches begin and how many there are."""

    begins: IntArray
    counts: IntArray


class _Numbers:
    """The values of one int64 feature, as numbers from 0 on."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._known = np.unique(values.drop_null().to_numpy())
        self.count = len(self._known)

    def codes(self, values: pa.Array) -> IntArray:
        """The number of each value; -1 for one that is not known, or not there."""
        if not self.count:
            return np.full(len(values), -1, np.int64)
        found = np.asarray(pc.fill_null(values, 0))
        places = np.minimum(np.searchsorted(self._known, found), self.count - 1)
        known = (self._known[places] == found) & np.asarray(values.is_valid())
        return np.where(known, places, -1)


class _Texts:
    """The values of one bytes feature, as numbers from 0 on."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._known = pc.unique(values.drop_null())
        self.count = len(self._known)

    def codes(self, values: pa.Array) -> IntArray:
        """The number of each value; -1 for one that is not known, or not there."""
        found = pc.index_in(values, value_set=self._known, skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1)).astype(np.int64)


class KeyIndex:
    """The keys of all records of the right; what has no key, or only a part of one, has no match.

    It is in memory, some 8 bytes for each record beside the keys themselves.
    """

    def __init__(self, columns: Sequence[Column], parts: Sequence[Keys]) -> None:
        self.records = sum(map(len, parts))
        self._features: list[_Numbers | _Texts] = []
        self._steps: list[IntArray] = []
        codes = np.zeros(self.records, np.int64)
        for place, column in enumerate(columns):
            kind = pa.int64() if column.kind == "int64" else pa.binary()
            values = pa.chunked_array([keys.columns[place] for keys in parts], kind)
            feature = _Numbers(values) if column.kind == "int64" else _Texts(values)
            own = [feature.codes(keys.columns[place]) for keys in parts]
            codes = _both(codes, np.concatenate(own) if own else codes, feature.count)
            self._features.append(feature)
            # Numbers from 0 on again: with another feature they would soon be too large.
            step = np.unique(codes[codes >= 0])
            self._steps.append(step)
            codes = _places(step, codes)
        rows = np.flatnonzero(codes >= 0)
        self._sorted = np.sort(codes[rows] * self.records + rows)

    def match(self, keys: Keys, *, once: bool) -> Matches:
        """The matches of some records; with `once` only those of a higher number."""
        codes = np.zeros(len(keys), np.int64)
        for feature, step, values in zip(self._features, self._steps, keys.columns, strict=True):
            codes = _places(step, _both(codes, feature.codes(values), feature.count))
        known = codes >= 0
        low = codes * self.records
        high = low + self.records
        if once:
            low += np.minimum(np.arange(keys.first, keys.first + len(keys)) + 1, self.records)
        begins = np.searchsorted(self._sorted, low)
        ends = np.searchsorted(self._sorted, high)
        return Matches(np.where(known, begins, 0), np.where(known, ends - begins, 0))

    def pairs(
        self, part: Part, right: Held, matches: Matches, how: How, most: int
    ) -> Iterator[Chosen]:
        """The pairs of a part's records with their matches, in order, in lots of `most` bytes."""
        counts = np.maximum(matches.counts, 1) if how == "left" else matches.counts
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, LOT_PAIRS):
            place = np.arange(first, min(first + LOT_PAIRS, total))
            lefts = np.searchsorted(ends, place, "right")
            at = matches.begins[lefts] + place - (ends - counts)[lefts]
            alone = matches.counts[lefts] == 0
            rights = np.full(len(place), -1, np.int64)
            rights[~alone] = self._sorted[at[~alone]] % self.records
            numbers = (lefts + part.first, rights)
            yield from chosen_pairs(part, right, (lefts, rights), numbers, most=most)


def _both(codes: IntArray, more: IntArray, count: int) -> IntArray:
    """The number of a key that has one more feature; -1 where either has none."""
    return np.where((codes >= 0) & (more >= 0), codes * count + more, -1)


def _places(known: IntArray, codes: IntArray) -> IntArray:
    """The places of numbers among those that are known; -1 for others."""
    if not len(known):
        return np.full(len(codes), -1, np.int64)
    places: IntArray = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == codes
    return np.where(found, places, -1)
