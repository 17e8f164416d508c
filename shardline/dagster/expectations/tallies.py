"""Tallies of rules on a whole snapshot, updated chunk by chunk.

A tally sees every row once. Its metrics have the names that Great Expectations uses, so that its
own code decides the rule. Values are included only if the rule itself names them.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shardline.dagster.expectations.rules import EVALUATIONS, Evaluation
from shardline.dagster.expectations.spool import (
    BUDGET_BYTES,
    KeyCounts,
    NumberSpool,
    convert_numbers,
    is_number,
)
from shardline.dagster.expectations.suite import ExpectationSpec

if TYPE_CHECKING:
    import pandas as pd


_OTHER = "\0other"
"""Represents all values that a rule does not name."""

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
_ALL_MISSING, _ANY_MISSING = "all_values_are_missing", "any_value_is_missing"


class NotNumbersError(TypeError):
    """A column of texts where a rule needs numbers."""

    def __init__(self, column: str) -> None:
        super().__init__(f"column {column!r} contains text, not numbers")


class Tally(Protocol):
    """Sums up the rows of a snapshot for a rule."""

    def add(self, frame: "pd.DataFrame") -> None:
        """Add a chunk of rows."""

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of all rows, as Great Expectations names them."""


def create_tally(
    expected: ExpectationSpec, folder: Path, name: str, budget_bytes: int = BUDGET_BYTES
) -> Tally:
    """Return the tally for a rule on a whole snapshot.

    Data above `budget_bytes` is kept in files of `folder` whose names start with `name`.
    """
    kwargs, evaluation = expected.kwargs, EVALUATIONS[expected.type]
    column = str(kwargs.get("column", ""))
    if evaluation is Evaluation.NUMBERS:
        return _NumberTally(column, numeric=not _fits_text(expected.type))
    if evaluation is Evaluation.ORDER:
        return _RankTally(column, kwargs, NumberSpool(folder, name, budget_bytes=budget_bytes))
    if evaluation is Evaluation.VALUES:
        return _ValueTally(column, _convert_list(kwargs.get("value_set")))
    if evaluation is Evaluation.SHARES:
        return _create_share_tally(column, kwargs["partition_object"])
    keys = KeyCounts(folder, name, budget_bytes=budget_bytes)
    if expected.type == "expect_compound_columns_to_be_unique":
        ignored = str(kwargs.get("ignore_row_if", _ALL_MISSING))
        return _RowTally(expected.columns, ignored, keys)
    return _CountTally(column, _convert_list(kwargs.get("value_set")), keys)


def _create_share_tally(column: str, partition: Mapping[str, Any]) -> Tally:
    if "values" in partition:
        return _CategoryTally(column, _convert_list(partition["values"]))
    return _BinTally(column, _convert_list(partition["bins"]))


def _fits_text(kind: str) -> bool:
    """Return True for rules that also apply to texts."""
    return kind in {
        "expect_column_min_to_be_between",
        "expect_column_max_to_be_between",
        "expect_column_proportion_of_non_null_values_to_be_between",
    }


def _convert_list(values: object) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else []


class _NumberTally:
    """Presence, minimum, maximum, sum, mean and standard deviation of a column.

    Sums of integers are exact, sums of floats are rounded once per chunk.
    """

    def __init__(self, column: str, *, numeric: bool) -> None:
        self._column, self._numeric = column, numeric
        self._rows = self._present = 0
        self._minimum: Any = None
        self._maximum: Any = None
        self._whole = 0
        self._sums: list[float] = []
        self._is_float = False
        self._mean = self._squares = 0.0

    def add(self, frame: "pd.DataFrame") -> None:
        series = frame[self._column]
        present = series.dropna()
        self._rows += len(series)
        if len(present):
            minimum, maximum = present.min(), present.max()
            self._minimum = minimum if self._minimum is None else min(self._minimum, minimum)
            self._maximum = maximum if self._maximum is None else max(self._maximum, maximum)
        if is_number(series):
            self._add_numbers(convert_numbers(present))
        elif self._numeric:
            raise NotNumbersError(self._column)
        self._present += len(present)

    def _add_numbers(self, values: NDArray[Any]) -> None:

        self._is_float = values.dtype.kind == "f"
        if not len(values):
            return
        if self._is_float:
            self._sums.append(_sum_floats(values))
        else:
            high = int((values >> 32).sum(dtype=np.int64))
            low = int((values & 0xFFFFFFFF).sum(dtype=np.int64))
            self._whole += (high << 32) + low
        with np.errstate(invalid="ignore", over="ignore"):
            mean = float(values.mean(dtype=np.float64))
            squares = float(np.square(values.astype(np.float64) - mean).sum())
        before, added = self._present, len(values)
        shift = mean - self._mean
        self._mean += shift * added / (before + added)
        self._squares += squares + shift * shift * before * added / (before + added)

    def metrics(self) -> dict[str, Any]:
        total = _sum_floats(self._sums) if self._is_float else self._whole
        deviation = math.nan
        if self._present > 1 and not math.isnan(self._squares):
            deviation = math.sqrt(self._squares / (self._present - 1))
        return {
            "column.min": self._minimum,
            "column.max": self._maximum,
            "column.sum": total,
            "column.mean": total / self._present if self._present else None,
            "column.standard_deviation": deviation,
            "column.non_null_proportion": self._present / self._rows if self._rows else 0,
        }


class _RankTally:
    """Median and quantiles of a column."""

    def __init__(self, column: str, kwargs: Mapping[str, Any], spool: NumberSpool) -> None:
        ranges = kwargs.get("quantile_ranges")
        self._column, self._spool = column, spool
        self._quantiles = (
            _convert_list(ranges.get("quantiles")) if isinstance(ranges, Mapping) else []
        )
        self._how = str(kwargs.get("allow_relative_error") or "nearest")

    def add(self, frame: "pd.DataFrame") -> None:
        series = frame[self._column]
        if not is_number(series):
            raise NotNumbersError(self._column)
        self._spool.add(convert_numbers(series.dropna()))

    def metrics(self) -> dict[str, Any]:
        if not self._spool.count:
            empty = [math.nan] * len(self._quantiles)
            return {"column.median": None, "column.quantile_values": empty}
        if self._quantiles:
            values = [self._quantile(float(share)) for share in self._quantiles]
            return {"column.quantile_values": values}
        middle = self._spool.count - 1
        low, high = (self._spool.at_rank(rank) for rank in (middle // 2, (middle + 1) // 2))
        return {"column.median": (float(low) + float(high)) / 2 if low != high else float(low)}

    def _quantile(self, share: float) -> float:

        position = (self._spool.count - 1) * (share * 100 / 100)
        lower, upper = math.floor(position), math.ceil(position)
        if self._how == "nearest":
            return float(self._spool.at_rank(round(position)))
        ends = [float(self._spool.at_rank(rank)) for rank in (lower, upper)]
        method: Any = self._how
        return float(np.quantile(ends, position - lower if upper > lower else 0.0, method=method))


class _ValueTally:
    """Occurrence of the values that a rule names, and of others."""

    def __init__(self, column: str, named: Sequence[Any]) -> None:
        self._column, self._named = column, set(named)
        self._seen: set[Any] = set()
        self._others = 0

    def add(self, frame: "pd.DataFrame") -> None:
        values = set(frame[self._column].dropna().unique())
        self._seen |= values & self._named
        self._others = max(self._others, len(values - self._named))

    def metrics(self) -> dict[str, Any]:
        # The count of unnamed values is a lower bound.
        return {
            "column.distinct_values.not_in_set.count": self._others,
            "column.distinct_values.not_in_set": [],
            "column.distinct_values.missing_from_column.count": len(self._named - self._seen),
            "column.distinct_values.missing_from_column": [],
        }


class _CategoryTally:
    """Counts of the values of a partition, and of all others together."""

    def __init__(self, column: str, named: Sequence[Any]) -> None:
        self._column, self._named = column, list(dict.fromkeys(named))
        self._counts: dict[Any, int] = {}
        self._present = 0

    def add(self, frame: "pd.DataFrame") -> None:
        counts = frame[self._column].value_counts()
        present = int(counts.sum())
        for value, count in counts[counts.index.isin(self._named)].items():
            self._counts[value] = self._counts.get(value, 0) + int(count)
        self._present += present

    def metrics(self) -> dict[str, Any]:
        import pandas as pd  # noqa: PLC0415 - takes a second to load

        counts = {value: self._counts[value] for value in self._named if value in self._counts}
        others = self._present - sum(counts.values())
        if others:
            counts[_OTHER] = others
        index = pd.Index(list(counts), dtype=object)
        return {
            "column.value_counts": pd.Series(list(counts.values()), index, name="count"),
            "column_values.nonnull.count": self._present,
        }


class _BinTally:
    """Counts of numbers in each bin of a partition, below it and above it."""

    def __init__(self, column: str, bins: Sequence[float]) -> None:
        self._column, self._bins = column, bins
        self._counts: Any = 0
        self._below = self._above = self._present = 0

    def add(self, frame: "pd.DataFrame") -> None:
        series = frame[self._column]
        if not is_number(series):
            raise NotNumbersError(self._column)
        values = convert_numbers(series.dropna())
        counts, _ = np.histogram(values, self._bins)
        self._counts = self._counts + counts
        self._below += int((values < self._bins[0]).sum())
        self._above += int((values > self._bins[-1]).sum())
        self._present += len(values)

    def metrics(self) -> dict[str, Any]:
        return {
            "column.histogram": list(self._counts),
            "below_partition": self._below,
            "above_partition": self._above,
            "column_values.nonnull.count": self._present,
        }


class _CountTally:
    """Counts of distinct, duplicate and most common values of a column."""

    def __init__(self, column: str, named: Sequence[Any], keys: KeyCounts) -> None:
        self._column, self._named, self._keys = column, named, keys
        self._rows = self._present = 0
        self._is_text = True
        self._is_float = False

    def add(self, frame: "pd.DataFrame") -> None:
        present = frame[[self._column]].dropna()
        dtype = frame[self._column].dtype
        self._is_text, self._is_float = not is_number(present[self._column]), dtype.kind == "f"
        self._rows += len(frame)
        self._present += len(present)
        if len(present):
            self._keys.add(present)

    def metrics(self) -> dict[str, Any]:
        # The most common values include only values that the rule names.
        named = self._named_keys()
        distinct = duplicated = highest = winners = 0
        modes: list[Any] = []
        for part in self._keys.sum_up():
            counts = part["count"]
            distinct += len(counts)
            duplicated += int(counts[counts > 1].sum())
            top = int(counts.max())
            if top > highest:
                highest, winners, modes = top, 0, []
            if top == highest:
                tops = part[counts == top]
                winners += len(tops)
                modes += [value for key, value in named.items() if _contains_key(tops, key)]
        return {
            "table.row_count": self._rows,
            "column_values.nonnull.unexpected_count": self._rows - self._present,
            "column_values.unique.unexpected_count": duplicated,
            "column.distinct_values.count": distinct,
            "column.unique_proportion": distinct / self._present if self._present else 0,
            "column.most_common_value": modes + [_OTHER] * min(winners - len(modes), 2),
        }

    def _named_keys(self) -> dict[tuple[int, int], Any]:
        """Return the values that the rule names and that fit the column, by their keys."""
        import pandas as pd  # noqa: PLC0415 - takes a second to load

        fitting = [value for value in self._named if self._fits(value)]
        if not fitting:
            return {}
        kind = object if self._is_text else "float64" if self._is_float else "int64"
        keys = self._keys.hash_values(pd.Series(fitting, dtype=kind))
        return {
            (int(key["high"]), int(key["low"])): value
            for key, value in zip(keys, fitting, strict=True)
        }

    def _fits(self, value: object) -> bool:
        if self._is_text:
            return isinstance(value, str)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if self._is_float:
            return abs(value) < 2**1023 and float(value) == value
        return value == int(value) and -(2**63) <= value < 2**63


class _RowTally:
    """Count of rows that equal another row in several columns."""

    def __init__(self, columns: Sequence[str], ignored: str, keys: KeyCounts) -> None:
        self._columns, self._ignored, self._keys = list(columns), ignored, keys
        self._rows = self._counted = 0

    def add(self, frame: "pd.DataFrame") -> None:
        rows = frame[self._columns]
        if self._ignored == _ALL_MISSING:
            rows = rows.dropna(how="all")
        elif self._ignored == _ANY_MISSING:
            rows = rows.dropna(how="any")
        self._rows += len(frame)
        self._counted += len(rows)
        if len(rows):
            self._keys.add(rows)

    def metrics(self) -> dict[str, Any]:
        parts = (part["count"] for part in self._keys.sum_up())
        return {
            "table.row_count": self._rows,
            "compound_columns.unique.filtered_row_count": self._counted,
            "compound_columns.unique.unexpected_count": sum(
                int(counts[counts > 1].sum()) for counts in parts
            ),
        }


def _contains_key(keys: NDArray[Any], key: tuple[int, int]) -> bool:
    """Return True if sorted keys contain a key."""
    high, low = map(np.uint64, key)
    first, last = (int(np.searchsorted(keys["high"], high, side)) for side in _SIDES)
    lows = keys["low"][first:last]
    position = int(np.searchsorted(lows, low))
    return position < len(lows) and bool(lows[position] == low)


def _sum_floats(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Add floats, rounded once. Infinities and NaN add up as floats do."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return float(sum(map(float, values)))
