"""Numbering and sizes of the pairs of two sides.

Pairs are ordered by units: the first left unit with the first right one, then with the second, and
so on. Within two units, the left record is the outer loop.
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
"""Limit of the numbers of pairs."""


@dataclass(frozen=True, slots=True)
class RecordExtent:
    """Number of records of a unit, and estimated bytes of their features."""

    records: int
    bytes: int


def estimate_extent(records: int, payloads: int, grown: int = 0) -> RecordExtent:
    """Return the extent of records with these bytes of payload.

    `grown` is the number of bytes by which the names of each record grow.
    """
    header = 1 + _varint(payloads // records) if records else 0
    return RecordExtent(records, max(payloads - records * header, 0) + records * grown)


def _varint(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


@dataclass(frozen=True)
class PairGrid:
    """The units of two sides. With `unordered`, both are the same, and the left number is lower."""

    left: tuple[RecordExtent, ...]
    right: tuple[RecordExtent, ...]
    unordered: bool = False

    @cached_property
    def _records(self) -> tuple[IntArray, IntArray]:
        left, right = ([unit.records for unit in side] for side in (self.left, self.right))
        return _to_array(left), _to_array(right)

    @cached_property
    def _bytes(self) -> tuple[IntArray, IntArray]:
        left, right = ([unit.bytes for unit in side] for side in (self.left, self.right))
        return _to_array(left), _to_array(right)

    @cached_property
    def overhead(self) -> int:
        """Bytes of the frame and the header of a pair."""
        size = 0
        for side in (self.left, self.right):
            records = sum(unit.records for unit in side)
            size += sum(unit.bytes for unit in side) // max(records, 1)
        return FRAME_BYTES + 1 + _varint(size)

    def row(self, index: int) -> tuple[IntArray, IntArray]:
        """Return the number of pairs of a left unit with each right one, and their bytes."""
        records, sizes = int(self._records[0][index]), int(self._bytes[0][index])
        pairs = records * self._records[1]
        total = records * self._bytes[1] + sizes * self._records[1]
        if self.unordered:
            pairs[:index] = total[:index] = 0
            pairs[index] = records * (records - 1) // 2
            total[index] = max(records - 1, 0) * (sizes + int(self._bytes[1][index])) // 2
        return pairs, total + pairs * self.overhead

    @cached_property
    def pairs(self) -> int:
        """Number of pairs."""
        left, right = (sum(unit.records for unit in side) for side in (self.left, self.right))
        return left * (left - 1) // 2 if self.unordered else left * right

    @cached_property
    def bytes(self) -> int:
        """Estimated bytes of all pairs."""
        return sum(sum(self.row(index)[1].tolist()) for index in range(len(self.left)))

    def bytes_of(self, pairs: int) -> int:
        """Return the estimated bytes of some of the pairs."""
        if self.pairs:
            return self.bytes * pairs // self.pairs
        unmatched = sum(unit.bytes for unit in self.left)
        return unmatched * pairs // max(sum(unit.records for unit in self.left), 1)

    def sample(self, count: int, seed: int) -> IntArray:
        """Return the numbers of random pairs, ascending. They depend only on the arguments."""
        if self.pairs >= _MAX_PAIRS:
            raise InvalidArgumentError(
                f"sample: cannot number {self.pairs:,} pairs (limit: {_MAX_PAIRS:,})",
                code="too-many-pairs",
                hint=Hint.of("combine fewer records of a side"),
            )
        chosen = random.Random(seed).sample(  # noqa: S311 - must be reproducible
            range(self.pairs), min(count, self.pairs)
        )
        return np.sort(_to_array(chosen))

    def locate(
        self,
        numbers: IntArray,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> tuple[IntArray, IntArray]:
        """Return the numbers of the left and right records of pairs, among all records of a side.

        `numbers` count the pairs of the left units `rows` with the right units `columns`, by
        default of all units.
        """
        low, high = rows or (0, len(self.left))
        first, last = columns or (0, len(self.right))
        cells = np.concatenate([self.row(index)[0][first:last] for index in range(low, high)])
        ends = np.cumsum(cells)
        cell = np.searchsorted(ends, numbers, "right")
        within = numbers - (ends - cells)[cell]
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
    """Return the two records of unordered pairs of `count` records, by the number of the pair."""
    low, high = np.zeros_like(within), np.maximum(count - 1, 0)
    # Binary search: a square root of numbers as large as these is not exact.
    for _ in range(int(count.max(initial=0)).bit_length()):
        middle = (low + high + 1) // 2
        fits = _count_before(middle, count) <= within
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low, within - _count_before(low, count) + low + 1


def _count_before(row: IntArray, count: IntArray) -> IntArray:
    """Return the number of pairs whose first record is before `row`."""
    return row * (2 * count - row - 1) // 2


def locate_triangle_row(count: int, pairs: int) -> int:
    """Return the first row with at least `pairs` unordered pairs before it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if middle * (2 * count - middle - 1) // 2 < pairs:
            low = middle + 1
        else:
            high = middle
    return low


def _to_array(values: Sequence[int]) -> IntArray:
    return np.array(values, np.int64)


BUDGET_BYTES = 100 * 10**9


@dataclass(frozen=True, slots=True)
class PairEstimate:
    """Number of pairs, and estimated bytes before compression.

    With `most`, both are upper bounds: the pairs must be read to count them.
    """

    pairs: int = 0
    bytes: int = 0
    most: bool = False

    def __str__(self) -> str:
        most = "at most " if self.most else ""
        return f"{most}{format_count(self.pairs, 'pair')}, about {format_count(self.bytes, 'byte')}"


def sum_estimates(estimates: Iterable[PairEstimate]) -> PairEstimate:
    """Return the sum of estimates."""
    listed = list(estimates)
    return PairEstimate(
        sum(estimate.pairs for estimate in listed),
        sum(estimate.bytes for estimate in listed),
        any(estimate.most for estimate in listed),
    )


def validate_budget(
    subject: str,
    estimate: PairEstimate,
    budget: int | None,
    folder: Path | None,
    *,
    of_files: bool = False,
) -> None:
    """Raise BudgetError for more bytes than the budget: by default the free space, or 100 GB.

    `folder` is where the pairs would be written, None for an object store. Pairs `of_files` cannot
    be virtual.
    """
    validate_minimum("budget_bytes", budget, 1)
    limit, label = BUDGET_BYTES, "default budget"
    if budget is not None:
        limit, label = budget, "budget"
    elif folder is not None and (free := shutil.disk_usage(folder).free) < limit:
        limit, label = free, f"free space of {folder}"
    if estimate.bytes > limit:
        virtual = () if of_files else (", or set ", Option("mode", "virtual"))
        raise BudgetError(
            f"{subject}: would write {estimate} ({label}: {limit:,} bytes)",
            estimate.pairs,
            estimate.bytes,
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
