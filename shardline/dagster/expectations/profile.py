"""Profiles of columns of a sample: presence, ranges, means and value counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shardline.dagster.expectations.columns import FlatColumn
from shardline.dagster.expectations.sample import Sample
from shardline.schema.logical_types import Category

Kind: TypeAlias = Literal["whole", "real", "text"]

_MAX_DECLARED = 1000
_MAX_SEEN = {"whole": 20, "real": 0, "text": 100}
_MIN_REPEATS = 5
"""Minimum mean count of values that are not a declared category. Below it, they are names or ids.
"""


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """Statistics of the finite numbers of a column, or of the lengths of a text."""

    count: int
    low: float
    high: float
    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """A profile of a column: `present` rows have a value, and `counts` are those of each value.

    Floats and measures such as lengths are not counted.
    """

    column: FlatColumn
    kind: Kind
    rows: int
    present: int
    numbers: NumberSummary | None
    counts: Mapping[Any, int]

    @property
    def presence(self) -> float:
        """Share of the rows that have a value."""
        return self.present / self.rows if self.rows else 0.0

    @property
    def is_declared(self) -> bool:
        """True if the schema declares its values as categories."""
        return isinstance(self.column.feature.meaning, Category) and not self.column.tells

    @property
    def is_category(self) -> bool:
        """True if its values are declared categories, or few values that occur often."""
        if self.is_declared:
            return 0 < len(self.counts) <= _MAX_DECLARED
        return 0 < len(self.counts) <= min(_MAX_SEEN[self.kind], self.present // _MIN_REPEATS)

    @property
    def shares(self) -> dict[Any, float]:
        """Share of each value among the rows that have a value."""
        return {value: count / self.present for value, count in self.counts.items()}


def profile_sample(taken: Sample) -> dict[str, ColumnProfile]:
    """Return the profile of each column, by name."""
    return {
        column.name: _profile_column(column, taken.frame[column.name]) for column in taken.columns
    }


def _profile_column(column: FlatColumn, series: Any) -> ColumnProfile:  # noqa: ANN401 - pandas has no types
    import pandas as pd  # noqa: PLC0415 - takes a second to load

    there = series.dropna()
    kind: Kind = "text"
    if pd.api.types.is_float_dtype(series.dtype):
        kind = "real"
    elif pd.api.types.is_integer_dtype(series.dtype):
        kind = "whole"
    counted = kind != "real" and not column.tells
    return ColumnProfile(
        column,
        kind,
        len(series),
        len(there),
        _summarize_numbers(there.str.len() if kind == "text" else there),
        there.value_counts(sort=False).to_dict() if counted else {},
    )


def _summarize_numbers(values: Any) -> NumberSummary | None:  # noqa: ANN401 - pandas has no types
    import numpy as np  # noqa: PLC0415 - only when data is read

    numbers = values.to_numpy(dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    return NumberSummary(
        len(numbers),
        float(numbers.min()),
        float(numbers.max()),
        float(numbers.mean()),
        float(numbers.std()),
    )
