from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

import shardline
from shardline.dagster.checks.drift import DriftThresholds, check_drift
from shardline.dagster.expectations.sample import Sample, take_sample
from tests.dagster.rows import append_rows, digit, digits

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.dagster.checks.check_outcome import CheckOutcome

MANY = shardline.Schema(
    (
        shardline.Feature("class", "int64", meaning=shardline.Category()),
        shardline.Feature("size", "float", required=False),
        shardline.Feature("text", "bytes", meaning=shardline.Text()),
    )
)


def random_rows(count: int, seed: int, **other: object) -> list[dict[str, Any]]:
    rng = Random(seed)
    return [
        {
            "class": int(rng.betavariate(1, 3) * 40),
            "size": rng.gauss(10, 2) if rng.random() < 0.7 else None,
            "text": "x" * int(rng.expovariate(0.05)) + str(rng.random()),
            **other,
        }
        for _ in range(count)
    ]


def samples(
    root: Path,
    old: list[dict[str, Any]],
    new: list[dict[str, Any]],
    **options: Any,  # noqa: ANN401
) -> tuple[Sample, Sample]:
    """The rows that were added, and those before."""
    version = append_rows(root, old, new, **options)
    added = [added.shard for added in version.log.entry(version.latest().entry).added]
    return take_sample(version.latest(), shards=added), take_sample(version.snapshot(1))


def found_in(outcome: CheckOutcome) -> dict[str, str]:
    table = outcome.metadata["shardline/column_drift"]
    assert isinstance(table, dg.TableMetadataValue)
    return {
        str(record.data["column"]): str(record.data["change"])
        for record in table.records
        if record.data["change"]
    }


def test_similar_rows_have_no_drift(tmp_path: Path) -> None:
    outcome = check_drift(*samples(tmp_path, digits(0, 300), digits(300, 400)))
    assert (outcome.passed, outcome.warns) == (True, False)
    assert re.findall(r"\d+", outcome.description) == ["13", "100", "300"]
    assert outcome.metadata["shardline/max_drift"] == pytest.approx(0, abs=0.2)
    assert outcome.metadata["shardline/drifted_columns"] == 0
    assert (
        outcome.metadata["shardline/new_rows"],
        outcome.metadata["shardline/published_rows"],
    ) == (100, 300)


@pytest.mark.parametrize("count", [1, 5, 40, 1000])
def test_sampling_noise_is_not_drift(tmp_path: Path, count: int) -> None:
    for seed in range(3):
        taken = samples(
            tmp_path / str(seed),
            random_rows(2000, seed),
            random_rows(count, 100 + seed),
            schema=MANY,
        )
        outcome = check_drift(*taken)
        assert outcome.passed, outcome.description


@pytest.mark.parametrize(
    ("other", "column", "told"),
    [
        ({"weight": 1.9}, "weight", "mean"),
        ({"weight": 9.0}, "weight", "12.33"),
        ({"label": 3}, "label", "90%"),
        ({"writer": "eve"}, "writer", "100.0%"),
        ({"age": None}, "age", "80.0%"),
        ({"strokes": [1] * 50}, "strokes__len", "mean"),
        ({"scan": b"x" * 500}, "scan__bytes", "exceed"),
    ],
)
def test_drifted_column_warns(
    tmp_path: Path, other: dict[str, object], column: str, told: str
) -> None:
    outcome = check_drift(*samples(tmp_path, digits(0, 300), digits(300, 400, **other)))
    assert (outcome.passed, outcome.warns) == (False, True)
    assert told in found_in(outcome)[column]
    assert float(str(outcome.metadata["shardline/max_drift"])) > 1
    assert outcome.metadata["shardline/drifted_columns"] == len(found_in(outcome))
    assert outcome.result(dg.AssetKey("a"), "drift").severity == dg.AssetCheckSeverity.WARN


def test_lengths_of_free_text_are_compared(tmp_path: Path) -> None:
    new = [{**row, "text": "y" * 900 + str(row["text"])} for row in random_rows(200, 2)]
    outcome = check_drift(*samples(tmp_path, random_rows(1000, 1), new, schema=MANY))
    assert "length" in found_in(outcome)["text"]


def test_constant_that_varies_is_drift(tmp_path: Path) -> None:
    old = [digit(number, weight=2.5) for number in range(100)]
    outcome = check_drift(*samples(tmp_path, old, digits(0, 50)))
    assert "weight" in found_in(outcome)
    assert outcome.metadata["shardline/max_drift"] == 100.0, "as far as it is told"


def test_drift_thresholds_can_be_set(tmp_path: Path) -> None:
    taken = samples(tmp_path, digits(0, 300), digits(300, 400, writer="ada"))
    assert not check_drift(*taken).passed
    assert check_drift(*taken, thresholds=DriftThresholds(shares=0.8)).passed
    shifted = samples(tmp_path / "b", digits(0, 300), digits(300, 400, weight=1.4))
    assert check_drift(*shifted, thresholds=DriftThresholds(mean=1.0)).passed
    assert not check_drift(*shifted, thresholds=DriftThresholds(mean=0.05)).passed


def test_drift_names_no_category(tmp_path: Path) -> None:
    old, new = (
        [digit(number, writer=f"canary-{side}") for number in range(100)] for side in ("a", "b")
    )
    outcome = check_drift(*samples(tmp_path, old, new))
    assert "writer" in found_in(outcome)
    assert "canary" not in outcome.description + repr(dict(outcome.metadata))


def test_drift_without_published_snapshot_passes(tmp_path: Path) -> None:
    new, _ = samples(tmp_path, digits(0, 10), digits(10, 30))
    outcome = check_drift(new, None)
    assert (outcome.passed, outcome.warns) == (True, False)
    assert "shardline/published_rows" not in outcome.metadata
    assert outcome.metadata["shardline/max_drift"] == 0.0
    assert outcome.metadata["shardline/new_rows"] == 20


def test_drift_without_new_rows_passes(tmp_path: Path) -> None:
    version = append_rows(tmp_path, digits(0, 10))
    outcome = check_drift(take_sample(version.latest(), shards=[]), take_sample(version.latest()))
    assert outcome.passed
    assert (
        outcome.metadata["shardline/new_rows"],
        outcome.metadata["shardline/published_rows"],
    ) == (0, 10)
    assert "shardline/column_drift" not in outcome.metadata


def test_column_on_one_side_is_drift(tmp_path: Path) -> None:
    snapshot = append_rows(tmp_path, digits(0, 50)).latest()
    outcome = check_drift(take_sample(snapshot), take_sample(snapshot, columns=["label", "weight"]))
    assert "only in added" in found_in(outcome)["age"]
    outcome = check_drift(take_sample(snapshot, columns=["label"]), take_sample(snapshot))
    assert "only in published" in found_in(outcome)["weight"]


def test_changed_constant_has_no_standard_deviation(tmp_path: Path) -> None:
    old, new = (
        [{**row, "text": f"{i:0{n}}"} for i, row in enumerate(random_rows(500, n))] for n in (3, 5)
    )
    outcome = check_drift(*samples(tmp_path, old, new, schema=MANY))
    assert outcome.warns
    assert "always 3" in found_in(outcome)["text"]
    assert "standard deviations" not in found_in(outcome)["text"]
