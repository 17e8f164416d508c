"""Validation and feature facts in plain Python: part of the specification."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.kernel.reference_wire import Entry, Values, is_utf8, numbers, records_of, strings
from shardline.kernel.types import KINDS, Buffer, FeatureFacts

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray


def validate(data: Buffer, starts: IntArray, lengths: IntArray) -> None:
    """Check that each payload is an Example or SequenceExample on which all parsers agree.

    Raises ExampleError for the first invalid payload. Concatenated Examples in one payload are a
    valid Example: overlays are read that way.
    """
    for _ in records_of(data, starts, lengths):
        pass


@dataclass(slots=True)
class _Tally:
    present: int = 0
    fewest_steps: float = math.inf
    most_steps: int = 0
    shortest: float = math.inf
    longest: int = 0
    low: float | None = None
    high: float | None = None
    nans: int = 0
    smallest: float = math.inf
    largest: int = 0
    utf8: bool = True

    def add(self, data: memoryview, entry: Entry) -> None:
        self.present += 1
        self.fewest_steps = min(self.fewest_steps, len(entry.lists))
        self.most_steps = max(self.most_steps, len(entry.lists))
        for values in entry.lists:
            is_bytes = KINDS[values.kind] == "bytes"
            count = self.add_strings(data, values) if is_bytes else self.add_numbers(data, values)
            self.shortest = min(self.shortest, count)
            self.longest = max(self.longest, count)

    def add_strings(self, data: memoryview, values: Values) -> int:
        count = 0
        for value in strings(data, values):
            count += 1
            self.smallest = min(self.smallest, len(value))
            self.largest = max(self.largest, len(value))
            self.utf8 = self.utf8 and is_utf8(value)
        return count

    def add_numbers(self, data: memoryview, values: Values) -> int:
        count = 0
        for value in numbers(data, values):
            count += 1
            if value != value:  # noqa: PLR0124 - true for NaN alone
                self.nans += 1
                continue
            if self.low is None or value < self.low:
                self.low = value
            if self.high is None or value > self.high:
                self.high = value
        return count

    def facts(self, *, sequence: bool, name: bytes, kind: int | None) -> FeatureFacts:
        return FeatureFacts(
            name=name.decode(),
            sequence=sequence,
            kind=None if kind is None else KINDS[kind],
            present=self.present,
            steps=_range(self.fewest_steps, self.most_steps) if sequence else None,
            lengths=_range(self.shortest, self.longest),
            low=_unsigned_zero(self.low),
            high=_unsigned_zero(self.high),
            nans=self.nans,
            sizes=_range(self.smallest, self.largest),
            utf8=self.utf8,
        )


def _unsigned_zero(value: float | None) -> float | None:
    """Return 0.0 for -0.0, so that facts do not depend on the order of records."""
    return value + 0.0 if isinstance(value, float) else value


def _range(low: float, high: int) -> tuple[int, int] | None:
    return None if low == math.inf else (int(low), high)


def facts(data: Buffer, starts: IntArray, lengths: IntArray) -> list[FeatureFacts]:
    """Return the facts of each feature, context first, in name order. Validates the records."""
    tallies: dict[tuple[bool, bytes, int], _Tally] = {}
    for _, view, entries in records_of(data, starts, lengths):
        for entry in entries:
            if entry.is_unset:
                continue
            kind = entry.lists[0].kind if entry.lists else -1
            tallies.setdefault((entry.sequence, entry.name, kind), _Tally()).add(view, entry)
    return [
        tally.facts(sequence=sequence, name=name, kind=None if kind < 0 else kind)
        for (sequence, name, kind), tally in sorted(tallies.items(), key=lambda item: item[0])
    ]
