"""Which records stand in which pairs: lots of pairs of about a size, in the order of the output.

The order is that of two nested loops, the left one outside. A lot is told by the records that it
covers, and its pairs are listed by whoever works on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardline.pairing.sides import EACH_PAIR_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import IntArray
    from shardline.pairing.build_side import Window
    from shardline.pairing.sides import Part

LOT_BYTES = 4 * 1024 * 1024
LOT_PAIRS = 64 * 1024


class Lot(Protocol):
    """Some pairs that follow each other."""

    def list(self) -> Pairs:
        """The pairs."""
        ...

    def numbers(self, at: int) -> tuple[int, int]:
        """The numbers of the two records of one of them; -1 stands for no record."""
        ...

    def all_numbers(self, listed: Pairs) -> tuple[IntArray, IntArray]:
        """The numbers of the two records of each pair that `list` gave."""
        ...


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of records, by their rows in two parts; -1 stands for no record.

    `places` are theirs in the lot, if that has others too.
    """

    lot: Lot
    left: Part
    right: Part
    lefts: IntArray
    rights: IntArray
    places: IntArray | None = None

    def __len__(self) -> int:
        return len(self.lefts)

    def where(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Some of them."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen) if self.places is None else self.places[chosen]
        return replace(self, lefts=self.lefts[chosen], rights=self.rights[chosen], places=places)

    def numbers(self) -> tuple[IntArray, IntArray]:
        """The numbers of the two records of each; -1 stands for no record."""
        return self.lot.all_numbers(self)

    def shown(self, at: int) -> str:
        """One of them as messages call it."""
        left, right = self.lot.numbers(at if self.places is None else int(self.places[at]))
        told = f"record {left} of the left"
        return told if right < 0 else f"{told} with record {right} of the right"


@dataclass(frozen=True, slots=True)
class Patch:
    """All pairs of the records `rows` of a part with the records `columns` of a window.

    With `once`, only those in which the number of the left record is the lower one.
    """

    left: Part
    right: Window
    rows: tuple[int, int]
    columns: tuple[int, int]
    once: bool

    def list(self) -> Pairs:
        """The pairs, in parts that have no other records."""
        left = self.left.slice(*self.rows)
        right = self.right.load().slice(*self.columns)
        if not self.once:
            lefts = np.repeat(np.arange(left.records), right.records)
            rights = np.tile(np.arange(right.records), left.records)
            return Pairs(self, left, right, lefts, rights)
        lows = _lows(left, right)
        counts = right.records - lows
        lefts = np.repeat(np.arange(left.records), counts)
        before = np.cumsum(counts) - counts
        rights = np.arange(len(lefts)) + np.repeat(lows - before, counts)
        return Pairs(self, left, right, lefts, rights)

    def numbers(self, at: int) -> tuple[int, int]:
        """The numbers of the two records of one of the pairs."""
        pairs = self.list()
        return pairs.left.first + int(pairs.lefts[at]), pairs.right.first + int(pairs.rights[at])

    def all_numbers(self, listed: Pairs) -> tuple[IntArray, IntArray]:
        """Those of their parts, which have no other records."""
        return listed.left.first + listed.lefts, listed.right.first + listed.rights


def _lows(left: Part, right: Window) -> IntArray:
    """For each record of the left the first of the right that has a higher number."""
    numbers = np.arange(left.first, left.first + left.records)
    return np.clip(numbers + 1 - right.first, 0, right.records)


def all_pairs(
    left: Part, windows: Sequence[Window], *, once: bool, most: int = LOT_BYTES
) -> Iterator[Patch]:
    """All pairs of a part with the records of the windows, in lots of `most` bytes, about."""
    if len(windows) == 1:
        yield from _with_one(left, windows[0], once=once, most=most)
        return
    for row in range(left.records):
        one = left.slice(row, row + 1)
        for window in windows:
            if once and window.first + window.records <= one.first + 1:
                continue
            if (one.bytes + EACH_PAIR_BYTES) * window.records + window.bytes <= 2 * most:
                yield Patch(one, window, (0, 1), (0, window.records), once)
            else:
                yield from _with_one(one, window, once=once, most=most)


def _with_one(left: Part, window: Window, *, once: bool, most: int) -> Iterator[Patch]:
    """As many records of the left as fit at a time, each with all of the window, or one with some.

    One pair always fits.
    """
    right = window.load()
    lows = _lows(left, right) if once else np.zeros(left.records, np.int64)
    costs = (right.records - lows) * left.sizes + (right.ends[-1] - right.ends[lows])
    ends = np.cumsum(costs)
    row = 0
    while row < left.records:
        done = int(ends[row - 1]) if row else 0
        last = int(np.searchsorted(ends, done + most, "right"))
        if last > row:
            if ends[last - 1] > done:
                yield Patch(left, window, (row, last), (0, right.records), once)
            row = last
            continue
        cost = right.ends + int(left.sizes[row]) * np.arange(right.records + 1)
        low = int(lows[row])
        while low < right.records:
            high = max(int(np.searchsorted(cost, cost[low] + most, "right")) - 1, low + 1)
            yield Patch(left, window, (row, row + 1), (low, high), once)
            low = high
        row += 1


class Choice(Protocol):
    """Records of one side, of which some are chosen by their rows; -1 stands for none."""

    def sizes_of(self, rows: IntArray) -> IntArray:
        """How many bytes of features each of them has."""
        ...

    def gather(self, rows: IntArray) -> tuple[Part, IntArray]:
        """A part that has them, and their rows in it."""
        ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """Pairs that were chosen one by one: which rows of either side, and their numbers there."""

    left: Choice
    right: Choice
    rows: tuple[IntArray, IntArray]
    records: tuple[IntArray, IntArray]

    def list(self) -> Pairs:
        """The pairs, in parts that may have other records too."""
        left, lefts = self.left.gather(self.rows[0])
        right, rights = self.right.gather(self.rows[1])
        return Pairs(self, left, right, lefts, rights)

    def numbers(self, at: int) -> tuple[int, int]:
        """The numbers of the two records of one of the pairs."""
        return int(self.records[0][at]), int(self.records[1][at])

    def all_numbers(self, listed: Pairs) -> tuple[IntArray, IntArray]:
        """Those that were told when they were chosen."""
        places = slice(None) if listed.places is None else listed.places
        return self.records[0][places], self.records[1][places]


def chosen_pairs(
    left: Choice,
    right: Choice,
    rows: tuple[IntArray, IntArray],
    records: tuple[IntArray, IntArray],
    *,
    most: int = LOT_BYTES,
) -> Iterator[Chosen]:
    """The pairs of these rows, which are the records of these numbers, in lots of `most` bytes."""
    ends = np.cumsum(left.sizes_of(rows[0]) + right.sizes_of(rows[1]) + EACH_PAIR_BYTES)
    first = 0
    while first < len(ends):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + most, "right")), first + 1)
        some = slice(first, last)
        yield Chosen(
            left, right, (rows[0][some], rows[1][some]), (records[0][some], records[1][some])
        )
        first = last
