"""A first suite for a version, from what one of its snapshots holds.

What the schema promises is `critical`: columns, presence, labels, fixed lengths. What was merely
seen is a `warning`, with some room around it: ranges, means, small sets of values, lengths. The
same snapshot gives the same suite.
"""

import math
from collections.abc import Iterable, Iterator

from shardline.dagster.expectations.columns import FlatColumn
from shardline.dagster.expectations.profile import ColumnProfile, Numbers, profile
from shardline.dagster.expectations.sample import Sample
from shardline.dagster.expectations.suite import Expected, Suite
from shardline.log.snapshot import StoredSnapshot
from shardline.schema import shapes
from shardline.schema.schema import Feature

MAX_SET = 20
_MAX_LABELS = 1000
_ROOM = 0.1
_PRESENCE_ROOM = 0.05
_SDS = 0.5


def draft_suite(snapshot: StoredSnapshot, taken: Sample) -> Suite:
    """A suite that holds on these rows of a snapshot, to be edited."""
    expectations = [Expected("expect_table_row_count_to_be_between", {"min_value": 1})]
    for told in profile(taken).values():
        expectations += _expected(told.column, told)
    name = snapshot.version.replace("/", "_")
    return Suite(name, tuple(expectations), {"drafted_from": f"{snapshot}, {taken.said}"})


def _expected(column: FlatColumn, told: ColumnProfile) -> Iterator[Expected]:
    name, feature = column.name, column.feature
    yield Expected("expect_column_to_exist", {"column": name})
    if column.tells in {"", "len", "bytes"}:
        yield from _presence(column, told)
    if column.tells == "len" and feature.shape and _is_fixed(feature):
        values = shapes.unit(feature.shape)
        yield _between(name, values, values, "critical")
        return
    if column.labels is not None:
        yield _labels(name, feature, column.labels)
        return
    if not told.present or told.numbers is None:
        return
    if told.is_category and len(told.counts) <= MAX_SET:
        yield _one_of(name, sorted(told.counts), "warning")
    elif told.kind == "text":
        yield _lengths(name, *_counts(told.numbers), "warning")
    elif column.tells in {"len", "bytes"}:
        yield _between(name, *_counts(told.numbers))
    else:
        yield _between(name, *_range(told.numbers, whole=told.kind == "whole"))
        if column.tells in {"", "mean"} and told.numbers.spread > 0:
            yield _mean(name, told.numbers)


def _is_fixed(feature: Feature) -> bool:
    return not feature.sequence and shapes.is_fixed(feature.shape)


def _presence(column: FlatColumn, told: ColumnProfile) -> Iterator[Expected]:
    """A value in each row, or in about as many as have one."""
    kwargs: dict[str, str | float] = {"column": column.name}
    if column.feature.required and not (column.feature.nan and not column.tells):
        yield Expected("expect_column_values_to_not_be_null", kwargs)
        return
    mostly = math.floor((told.presence - _PRESENCE_ROOM) * 100) / 100
    if mostly > 0:
        kwargs["mostly"] = mostly
        yield Expected("expect_column_values_to_not_be_null", kwargs, "warning")


def _labels(name: str, feature: Feature, labels: tuple[str, ...]) -> Expected:
    if feature.kind == "int64":
        if len(labels) <= MAX_SET:
            return _one_of(name, range(len(labels)), "critical")
        return _between(name, 0, len(labels) - 1, "critical")
    if len(labels) <= _MAX_LABELS:
        return _one_of(name, sorted(labels), "critical")
    return _lengths(name, min(map(len, labels)), max(map(len, labels)), "critical")


def _one_of(name: str, values: Iterable[int | str], severity: str) -> Expected:
    kwargs = {"column": name, "value_set": list(values)}
    return Expected("expect_column_values_to_be_in_set", kwargs, severity)


def _lengths(name: str, low: int, high: int, severity: str) -> Expected:
    kwargs = {"column": name, "min_value": low, "max_value": high}
    return Expected("expect_column_value_lengths_to_be_between", kwargs, severity)


def _between(name: str, low: float, high: float, severity: str = "warning") -> Expected:
    kwargs = {"column": name, "min_value": low, "max_value": high}
    return Expected("expect_column_values_to_be_between", kwargs, severity)


def _mean(name: str, told: Numbers) -> Expected:
    low, high = _outward(told.mean - _SDS * told.spread, told.mean + _SDS * told.spread)
    kwargs = {"column": name, "min_value": low, "max_value": high}
    return Expected("expect_column_mean_to_be_between", kwargs, "warning")


def _counts(told: Numbers) -> tuple[int, int]:
    """From half of the least to twice the most; none only where there were such."""
    return math.ceil(told.low / 2), int(2 * told.high)


def _range(told: Numbers, *, whole: bool) -> tuple[float, float]:
    """The range with room at both ends; it does not pass zero where no value does."""
    room = _ROOM * (told.high - told.low) or _ROOM * abs(told.low) or 1.0
    low, high = _outward(told.low - room, told.high + room)
    low = max(low, 0.0) if told.low >= 0 else low
    high = min(high, 0.0) if told.high <= 0 > told.low else high
    return (math.floor(low), math.ceil(high)) if whole else (low, high)


def _outward(low: float, high: float) -> tuple[float, float]:
    """The same, with two or three digits that matter: a draft is read and edited by people."""
    if high <= low:
        return low, high  # numbers so large that there is none between them
    digits = 2 - math.ceil(math.log10(high - low))
    step = 10.0**-digits
    least = round(math.floor(low / step) * step, digits)
    most = round(math.ceil(high / step) * step, digits)
    return min(least, low), max(most, high)
