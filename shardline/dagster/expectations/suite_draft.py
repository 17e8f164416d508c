"""A drafted suite for a version, from the rows of a snapshot.

Promises of the schema are `critical`: columns, presence, labels, fixed lengths. Observations are
`warning`, with some room: ranges, means, small sets of values, lengths. The same snapshot gives the
same suite.
"""

import math
from collections.abc import Iterable, Iterator

from shardline.dagster.expectations.columns import FlatColumn
from shardline.dagster.expectations.sample import (
    ColumnProfile,
    NumberSummary,
    Sample,
    profile_sample,
)
from shardline.dagster.expectations.suite import ExpectationSpec, Suite
from shardline.log.snapshot import StoredSnapshot
from shardline.schema import shapes
from shardline.schema.schema import Feature

MAX_SET = 20
_MAX_LABELS = 1000
_ROOM = 0.1
_PRESENCE_ROOM = 0.05
_SDS = 0.5


def draft_suite(snapshot: StoredSnapshot, sample: Sample) -> Suite:
    """Return a suite that holds on the sampled rows, to be edited."""
    expectations = [ExpectationSpec("expect_table_row_count_to_be_between", {"min_value": 1})]
    for profile in profile_sample(sample).values():
        expectations += _draft_expectations(profile.column, profile)
    name = snapshot.version.replace("/", "_")
    return Suite(name, tuple(expectations), {"drafted_from": f"{snapshot}, {sample.extent}"})


def _draft_expectations(column: FlatColumn, profile: ColumnProfile) -> Iterator[ExpectationSpec]:
    name, feature = column.name, column.feature
    yield ExpectationSpec("expect_column_to_exist", {"column": name})
    if column.measure in {"", "len", "bytes"}:
        yield from _expect_presence(column, profile)
    if column.measure == "len" and feature.shape and _is_fixed(feature):
        values = shapes.unit(feature.shape)
        yield _expect_between(name, values, values, "critical")
        return
    if column.labels is not None:
        yield _expect_labels(name, feature, column.labels)
        return
    if not profile.present or profile.numbers is None:
        return
    if profile.is_category and len(profile.counts) <= MAX_SET:
        yield _expect_one_of(name, sorted(profile.counts), "warning")
    elif profile.kind == "text":
        yield _expect_lengths(name, *_widen_counts(profile.numbers), "warning")
    elif column.measure in {"len", "bytes"}:
        yield _expect_between(name, *_widen_counts(profile.numbers))
    else:
        yield _expect_between(name, *_widen_range(profile.numbers, whole=profile.kind == "whole"))
        if column.measure in {"", "mean"} and profile.numbers.spread > 0:
            yield _expect_mean(name, profile.numbers)


def _is_fixed(feature: Feature) -> bool:
    return not feature.sequence and shapes.is_fixed(feature.shape)


def _expect_presence(column: FlatColumn, profile: ColumnProfile) -> Iterator[ExpectationSpec]:
    """Yield a rule for values in all rows, or in about the observed share of rows."""
    kwargs: dict[str, str | float] = {"column": column.name}
    if column.feature.required and not (column.feature.nan and not column.measure):
        yield ExpectationSpec("expect_column_values_to_not_be_null", kwargs)
        return
    mostly = math.floor((profile.presence - _PRESENCE_ROOM) * 100) / 100
    if mostly > 0:
        kwargs["mostly"] = mostly
        yield ExpectationSpec("expect_column_values_to_not_be_null", kwargs, "warning")


def _expect_labels(name: str, feature: Feature, labels: tuple[str, ...]) -> ExpectationSpec:
    if feature.kind == "int64":
        if len(labels) <= MAX_SET:
            return _expect_one_of(name, range(len(labels)), "critical")
        return _expect_between(name, 0, len(labels) - 1, "critical")
    if len(labels) <= _MAX_LABELS:
        return _expect_one_of(name, sorted(labels), "critical")
    return _expect_lengths(name, min(map(len, labels)), max(map(len, labels)), "critical")


def _expect_one_of(name: str, values: Iterable[int | str], severity: str) -> ExpectationSpec:
    kwargs = {"column": name, "value_set": list(values)}
    return ExpectationSpec("expect_column_values_to_be_in_set", kwargs, severity)


def _expect_lengths(name: str, low: int, high: int, severity: str) -> ExpectationSpec:
    kwargs = {"column": name, "min_value": low, "max_value": high}
    return ExpectationSpec("expect_column_value_lengths_to_be_between", kwargs, severity)


def _expect_between(
    name: str, low: float, high: float, severity: str = "warning"
) -> ExpectationSpec:
    kwargs = {"column": name, "min_value": low, "max_value": high}
    return ExpectationSpec("expect_column_values_to_be_between", kwargs, severity)


def _expect_mean(name: str, summary: NumberSummary) -> ExpectationSpec:
    low, high = _round_outward(
        summary.mean - _SDS * summary.spread, summary.mean + _SDS * summary.spread
    )
    kwargs = {"column": name, "min_value": low, "max_value": high}
    return ExpectationSpec("expect_column_mean_to_be_between", kwargs, "warning")


def _widen_counts(summary: NumberSummary) -> tuple[int, int]:
    """Return half of the minimum and twice the maximum."""
    return math.ceil(summary.low / 2), int(2 * summary.high)


def _widen_range(summary: NumberSummary, *, whole: bool) -> tuple[float, float]:
    """Return the range with room at both ends. It does not cross zero unless values do."""
    room = _ROOM * (summary.high - summary.low) or _ROOM * abs(summary.low) or 1.0
    low, high = _round_outward(summary.low - room, summary.high + room)
    low = max(low, 0.0) if summary.low >= 0 else low
    high = min(high, 0.0) if summary.high <= 0 > summary.low else high
    return (math.floor(low), math.ceil(high)) if whole else (low, high)


def _round_outward(low: float, high: float) -> tuple[float, float]:
    """Return the range rounded outward to two or three significant digits, for readability."""
    if high <= low:
        return low, high  # no number between them at this magnitude
    digits = 2 - math.ceil(math.log10(high - low))
    step = 10.0**-digits
    lower = round(math.floor(low / step) * step, digits)
    upper = round(math.ceil(high / step) * step, digits)
    return min(lower, low), max(upper, high)
