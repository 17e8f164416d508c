"""The check `drift`: compares new rows with those of the last published snapshot.

The check never blocks, because a change may be intended. Each measure is divided by its threshold
plus the noise expected for the number of rows. A score above 1 is a finding.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import CheckOutcome
from shardline.dagster.expectations.sample import (
    ColumnProfile,
    NumberSummary,
    Sample,
    profile_sample,
)

_BY_CHANCE = 3.0
_MAX_SCORE = 100.0
_MAX_NAMES = 3
_MAX_ROWS = 500


@dataclass(frozen=True, slots=True)
class DriftThresholds:
    """How much a column may change.

    Attributes:
        mean: Change of the mean, in standard deviations of the old values.
        reach: Distance of new values from the old range, as a share of its width.
        presence: Change of the share of rows that have a value.
        shares: Total variation distance of category shares.
        unseen: Share of the rows in new categories.
    """

    mean: float = 0.5
    reach: float = 0.5
    presence: float = 0.1
    shares: float = 0.2
    unseen: float = 0.02


DEFAULT_THRESHOLDS = DriftThresholds()


@dataclass(frozen=True, slots=True)
class DriftMeasure:
    """The change of one measure of a column: its score, and a description."""

    score: float
    description: str


@dataclass(frozen=True, slots=True)
class _ColumnDrift:
    name: str
    old: str
    new: str
    measures: tuple[DriftMeasure, ...]

    @property
    def score(self) -> float:
        return max((measure.score for measure in self.measures), default=0.0)

    @property
    def findings(self) -> str:
        return "; ".join(measure.description for measure in self.measures if measure.score > 1)


def check_drift(
    new: Sample, last: Sample | None, *, thresholds: DriftThresholds = DEFAULT_THRESHOLDS
) -> CheckOutcome:
    """Compare new rows with those of the last published snapshot.

    Both are independent samples, so that few new rows count as much as many.
    """
    metadata = {keys.MAX_DRIFT: 0.0, keys.DRIFTED_COLUMNS: 0, keys.NEW_ROWS: new.of}
    if last is None or not last.rows:
        reason = "no earlier published snapshot"
        return CheckOutcome(passed=True, description=reason, metadata=metadata)
    metadata |= {
        keys.PUBLISHED_ROWS: last.of,
        keys.COMPARED_NEW_ROWS: new.rows,
        keys.COMPARED_PUBLISHED_ROWS: last.rows,
    }
    if not new.rows:
        reason = "no new rows"
        return CheckOutcome(passed=True, description=reason, metadata=metadata)
    columns = _compare_columns(profile_sample(new), profile_sample(last), thresholds)
    columns.sort(key=lambda column: -column.score)
    drifted = [column for column in columns if column.score > 1]
    compared = f"{new.extent} added, {last.extent} published"
    metadata[keys.MAX_DRIFT] = round(max((column.score for column in columns), default=0.0), 3)
    metadata[keys.DRIFTED_COLUMNS] = len(drifted)
    return CheckOutcome(
        passed=not drifted,
        description=_format_description(drifted, columns, compared),
        metadata={**metadata, keys.COMPARED: compared, keys.COLUMN_DRIFT: _build_table(columns)},
        warns=bool(drifted),
    )


def _compare_columns(
    new: dict[str, ColumnProfile], old: dict[str, ColumnProfile], thresholds: DriftThresholds
) -> list[_ColumnDrift]:
    columns = []
    for name in dict.fromkeys((*old, *new)):
        if name not in new or name not in old:
            side = "added rows" if name in new else "published rows"
            descriptions = (_format_column(old.get(name)), _format_column(new.get(name)))
            columns.append(
                _ColumnDrift(name, *descriptions, (DriftMeasure(_MAX_SCORE, f"only in {side}"),))
            )
            continue
        measures = tuple(_measure_column(old[name], new[name], thresholds))
        columns.append(
            _ColumnDrift(name, _format_column(old[name]), _format_column(new[name]), measures)
        )
    return columns


def _measure_column(
    old: ColumnProfile, new: ColumnProfile, thresholds: DriftThresholds
) -> Iterator[DriftMeasure]:
    less = new.presence - old.presence
    pooled = (old.present + new.present) / (old.rows + new.rows)
    chance = math.sqrt(pooled * (1 - pooled)) * _estimate_noise(old.rows, new.rows)
    description = f"{abs(less):.1%} {'fewer' if less < 0 else 'more'} rows have a value"
    yield _create_measure(abs(less), thresholds.presence + chance, description)
    if not old.present or not new.present:
        return
    if old.is_category:
        yield from _measure_categories(old, new, thresholds)
    if old.is_declared or (old.is_category and old.kind == "text"):
        return
    if old.numbers is not None and new.numbers is not None:
        label = "length" if old.kind == "text" else "mean"
        yield from _measure_numbers(old.numbers, new.numbers, thresholds, label)


def _measure_numbers(
    old: NumberSummary, new: NumberSummary, thresholds: DriftThresholds, measure: str
) -> Iterator[DriftMeasure]:
    # Values that never differed have no spread: any other value scores the maximum.
    spread = max(old.spread, 1e-9 * max(abs(old.mean), 1.0))
    sds = (new.mean - old.mean) / spread
    description = (
        f"the {measure} moved by {_format_number(sds)} standard deviations"
        if old.spread > 0
        else (
            f"the {measure} was always {_format_number(old.mean)}, now "
            f"{_format_number(new.mean)} on average"
        )
    )
    yield _create_measure(
        abs(sds), thresholds.mean + _estimate_noise(old.count, new.count), description
    )
    width = old.high - old.low
    outside = max(old.low - new.low, new.high - old.high, 0.0)
    if width > 0:
        description = (
            f"values exceed the old range by {_format_number(outside / width)} of its width"
        )
        yield _create_measure(outside / width, thresholds.reach, description)


def _measure_categories(
    old: ColumnProfile, new: ColumnProfile, thresholds: DriftThresholds
) -> Iterator[DriftMeasure]:
    before, after = old.shares, new.shares
    distance = sum(abs(after.get(v, 0.0) - before.get(v, 0.0)) for v in {**before, **after}) / 2
    noise = _estimate_noise(old.present, new.present)
    # Twice the mean distance between samples of the same distribution.
    chance = sum(math.sqrt(2 / math.pi * p * (1 - p)) for p in before.values()) * noise / _BY_CHANCE
    description = f"the shares of categories moved by {distance:.0%} of the rows"
    yield _create_measure(distance, thresholds.shares + chance, description)
    fresh, vanished = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    unseen = sum(share for value, share in after.items() if value not in before)
    noun = "category" if fresh == 1 else "categories"
    description = f"{fresh:,} new {noun} in {unseen:.1%} of the rows, {vanished:,} vanished"
    yield _create_measure(unseen, thresholds.unseen + _BY_CHANCE / new.present, description)


def _estimate_noise(old: int, new: int) -> float:
    """Return an upper bound for the noise of a mean, in standard deviations."""
    return _BY_CHANCE * math.sqrt(1 / max(old, 1) + 1 / max(new, 1))


def _create_measure(change: float, allowed: float, description: str) -> DriftMeasure:
    if change <= 0:
        return DriftMeasure(0.0, description)
    return DriftMeasure(
        _MAX_SCORE if allowed <= 0 else min(change / allowed, _MAX_SCORE), description
    )


def _format_column(column: ColumnProfile | None) -> str:
    """Return a short description of a column, with no values but the minimum and the maximum."""
    if column is None:
        return "missing"
    present = f"{column.presence:.0%} present"
    if column.is_category:
        noun = "category" if len(column.counts) == 1 else "categories"
        return f"{len(column.counts)} {noun}, {present}"
    if column.numbers is None:
        return present
    numbers = column.numbers
    prefix = "length " if column.kind == "text" else ""
    return (
        f"{prefix}{_format_number(numbers.low)} to {_format_number(numbers.high)}, mean "
        f"{_format_number(numbers.mean)} "
        f"± {_format_number(numbers.spread)}, {present}"
    )


def _format_number(number: float) -> str:
    return f"{number:.4g}"


def _format_description(
    drifted: list[_ColumnDrift], columns: list[_ColumnDrift], compared: str
) -> str:
    if not drifted:
        return f"no drift in {len(columns)} columns ({compared})"
    named = ". ".join(f"{column.name}: {column.findings}" for column in drifted[:_MAX_NAMES])
    more = f". And {len(drifted) - _MAX_NAMES} more" if len(drifted) > _MAX_NAMES else ""
    return f"{len(drifted)} of {len(columns)} columns drifted ({compared}). {named}{more}"


def _build_table(columns: list[_ColumnDrift]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "column": column.name,
                    "published": column.old,
                    "added": column.new,
                    "change": column.findings,
                    "drift": round(column.score, 3),
                }
            )
            for column in columns[:_MAX_ROWS]
        ],
        dg.TableSchema(
            [
                dg.TableColumn("column"),
                dg.TableColumn("published"),
                dg.TableColumn("added"),
                dg.TableColumn("change"),
                dg.TableColumn("drift", "float", description="a score above 1 is a finding"),
            ]
        ),
    )
