"""How many pairs there are of the units of two sides, how many bytes, and which pair is the nth.

The pairs stand in the order of the units: those of the first left unit with the first right one,
then with the second, and so on; within, the record of the left is the outer one.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shardline.arguments import validate_minimum
from shardline.errors import BudgetError, InvalidArgumentError
from shardline.hints import Hint, Option
from shardline.kernel.types import FRAME_BYTES
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from shardline.kernel.types import IntArray


_MAX_PAIRS = 2**62
"""Pairs that can be numbered."""


@dataclass(frozen=True, slots=True)
class RecordExtent:
    """How many records a unit has, and how many bytes of features, about."""

    records: int
    bytes: int


def estimate_extent(records: int, payloads: int, grown: int = 0) -> RecordExtent:
    """The extent of records with so many bytes of payload.

    `grown` is by how much the names of their features get longer in each.
    """
    header = 1 + _varint(payloads // records) if records else 0
    return RecordExtent(records, max(payloads - records * header, 0) + records * grown)


def _varint(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


@dataclass(frozen=True)
class PairGrid:
    """The units of two sides; with `unordered` they are the same, and pairs ascend."""

    left: tuple[RecordExtent, ...]
    right: tuple[RecordExtent, ...]
    unordered: bool = False

    @cached_property
    def _records(self) -> tuple[IntArray, IntArray]:
        return _numbers([one.records for one in self.left]), _numbers(
            [one.records for one in self.right]
        )

    @cached_property
    def _bytes(self) -> tuple[IntArray, IntArray]:
        return _numbers([one.bytes for one in self.left]), _numbers(
            [one.bytes for one in self.right]
        )

    @cached_property
    def each(self) -> int:
        """What a pair has beside the features of its records: the frame and a header."""
        sides = [sum(one.bytes for one in side) for side in (self.left, self.right)]
        counts = [sum(one.records for one in side) for side in (self.left, self.right)]
        size = sum(total // max(count, 1) for total, count in zip(sides, counts, strict=True))
        return FRAME_BYTES + 1 + _varint(size)

    def row(self, at: int) -> tuple[IntArray, IntArray]:
        """The pairs, and their bytes, of a left unit with each right one."""
        records, sizes = int(self._records[0][at]), int(self._bytes[0][at])
        pairs = records * self._records[1]
        total = records * self._bytes[1] + sizes * self._records[1]
        if self.unordered:
            pairs[:at] = total[:at] = 0
            pairs[at] = records * (records - 1) // 2
            total[at] = max(records - 1, 0) * (sizes + int(self._bytes[1][at])) // 2
        return pairs, total + pairs * self.each

    @cached_property
    def pairs(self) -> int:
        """How many there are."""
        left, right = (sum(one.records for one in side) for side in (self.left, self.right))
        return left * (left - 1) // 2 if self.unordered else left * right

    @cached_property
    def bytes(self) -> int:
        """How many bytes they have, about."""
        return sum(sum(self.row(at)[1].tolist()) for at in range(len(self.left)))

    def bytes_of(self, pairs: int) -> int:
        """How many bytes so many of the pairs have, about."""
        if self.pairs:
            return self.bytes * pairs // self.pairs
        alone = sum(unit.bytes for unit in self.left)  # of the left without a match
        return alone * pairs // max(sum(unit.records for unit in self.left), 1)

    def sample(self, count: int, seed: int) -> IntArray:
        """The places of so many pairs, in order: all alike, and the same on every machine."""
        if self.pairs >= _MAX_PAIRS:
            raise InvalidArgumentError(
                f"sample: cannot number {self.pairs:,} pairs (limit: {_MAX_PAIRS:,})",
                code="too-many-pairs",
                hint=Hint.of("combine fewer records of a side"),
            )
        chosen = random.Random(seed).sample(  # noqa: S311 - it has to be the same again
            range(self.pairs), min(count, self.pairs)
        )
        return np.sort(_numbers(chosen))

    def locate(
        self,
        places: IntArray,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> tuple[IntArray, IntArray]:
        """The numbers of the two records of the pairs at these places, each on its side.

        The places are those among the pairs of some left and right units, of all if none are told;
        the numbers are those among all records of a side.
        """
        low, high = rows or (0, len(self.left))
        first, last = columns or (0, len(self.right))
        cells = np.concatenate([self.row(at)[0][first:last] for at in range(low, high)])
        ends = np.cumsum(cells)
        cell = np.searchsorted(ends, places, "right")
        within = places - (ends - cells)[cell]
        left, right = np.divmod(cell, last - first)
        left, right = left + low, right + first
        width = self._records[1][right]
        row, column = np.divmod(within, width)
        if self.unordered:
            same = left == right
            row[same], column[same] = _locate_in_triangle(within[same], width[same])
        firsts = [np.cumsum(counts) - counts for counts in self._records]
        return firsts[0][left] + row, firsts[1][right] + column


def _locate_in_triangle(within: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """The two of so many that are the nth to be paired, each two once and in order."""
    low, high = np.zeros_like(within), np.maximum(count - 1, 0)
    # By halving, in whole numbers: the root of a square as large as these is not exact.
    for _ in range(int(count.max(initial=0)).bit_length()):
        middle = (low + high + 1) // 2
        fits = _count_before(middle, count) <= within
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low, within - _count_before(low, count) + low + 1


def _count_before(row: IntArray, count: IntArray) -> IntArray:
    """How many pairs have a lower first one."""
    return row * (2 * count - row - 1) // 2


def locate_triangle_row(count: int, pairs: int) -> int:
    """The first row before which there are so many pairs or more, of so many records."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if middle * (2 * count - middle - 1) // 2 < pairs:
            low = middle + 1
        else:
            high = middle
    return low


def _numbers(values: Sequence[int]) -> IntArray:
    return np.array(values, np.int64)


BUDGET_BYTES = 100 * 10**9


@dataclass(frozen=True, slots=True)
class PairEstimate:
    """How many pairs there will be and how many bytes, about, before they are packed.

    With `most`, there may be fewer of both: that is known only when the pairs have been looked at.
    """

    pairs: int = 0
    bytes: int = 0
    most: bool = False

    def __str__(self) -> str:
        most = "at most " if self.most else ""
        return f"{most}{format_count(self.pairs, 'pair')}, about {format_count(self.bytes, 'byte')}"


def sum_estimates(found: Iterable[PairEstimate]) -> PairEstimate:
    """Several estimates as one."""
    listed = list(found)
    return PairEstimate(
        sum(one.pairs for one in listed),
        sum(one.bytes for one in listed),
        any(one.most for one in listed),
    )


def validate_budget(
    what: str,
    found: PairEstimate,
    budget: int | None,
    folder: Path | None,
    *,
    of_files: bool = False,
) -> None:
    """Refuse to write more than the budget, or if there is none, than the disk or 100 GB hold.

    `folder` is where it would be written, None if that is no local disk. Pairs `of_files` cannot
    be left to those who read them.
    """
    validate_minimum("budget_bytes", budget, 1)
    limit, why = BUDGET_BYTES, "default budget"
    if budget is not None:
        limit, why = budget, "budget"
    elif folder is not None and (free := shutil.disk_usage(folder).free) < limit:
        limit, why = free, f"free space of {folder}"
    if found.bytes > limit:
        virtual = () if of_files else (", or set ", Option("mode", "virtual"))
        raise BudgetError(
            f"{what}: would write {found} ({why}: {limit:,} bytes)",
            found.pairs,
            found.bytes,
            hint=Hint.of(
                "raise ",
                Option("budget_bytes"),
                ", take fewer pairs with ",
                Option("limit"),
                ", ",
                Option("sample"),
                " or ",
                Option("on"),
                *virtual,
            ),
        )
