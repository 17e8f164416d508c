from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import shardline
from shardline.dagster.checks.log_checks import check_volume
from tests.dagster.rows import NAME, append_rows, digits

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.dagster.checks.check_outcome import CheckOutcome


def volume_of(root: Path, *counts: int) -> CheckOutcome:
    version = append_rows(root, *[digits(0, count) for count in counts])
    return check_volume(version, version.latest())


def test_first_append_passes(tmp_path: Path) -> None:
    outcome = volume_of(tmp_path, 30)
    assert outcome.passed
    assert re.findall(r"\d+", outcome.description) == ["30"]
    assert outcome.metadata == {
        "shardline/added_rows": 30,
        "shardline/rows": 30,
        "shardline/compared_appends": 0,
    }


def test_append_is_compared_with_earlier_ones(tmp_path: Path) -> None:
    outcome = volume_of(tmp_path, 20, 30, 50, 45)
    assert (outcome.passed, outcome.warns) == (True, False)
    assert re.findall(r"\d+", outcome.description) == ["45", "30", "20", "50", "3"]
    assert outcome.metadata == {
        "shardline/added_rows": 45,
        "shardline/rows": 145,
        "shardline/compared_appends": 3,
        "shardline/usual_rows": 30.0,
        "shardline/usual_spread": 10.0,
    }


@pytest.mark.parametrize(
    ("added", "warns"), [(300, True), (3, True), (1, True), (299, False), (4, False)]
)
def test_tenfold_or_tenth_of_usual_warns(tmp_path: Path, added: int, *, warns: bool) -> None:
    outcome = volume_of(tmp_path, 30, 30, 30, added)
    assert (outcome.passed, outcome.warns) == (not warns, warns)
    assert outcome.metadata["shardline/added_rows"] == added


def test_two_appends_are_too_few(tmp_path: Path) -> None:
    assert volume_of(tmp_path, 2, 2, 300).passed


def test_last_twenty_appends_are_compared(tmp_path: Path) -> None:
    counts = [100, *[5] * 11, *[7] * 11, 9]
    version = append_rows(tmp_path, *[digits(0, count) for count in counts])
    outcome = check_volume(version, version.snapshot(23))
    assert outcome.metadata["shardline/compared_appends"] == 20
    assert (outcome.metadata["shardline/added_rows"], outcome.metadata["shardline/usual_rows"]) == (
        7,
        6.0,
    )
    assert re.findall(r"\d+", outcome.description) == ["7", "6", "5", "7", "20"]


def test_rejected_appends_do_not_count(tmp_path: Path) -> None:
    version = append_rows(tmp_path, digits(0, 10), digits(0, 11), digits(0, 12), digits(0, 900))
    version.reject(4, reason="for this test")
    append_rows(tmp_path, digits(0, 13))
    version = shardline.Version(tmp_path, NAME)
    outcome = check_volume(version, version.latest())
    assert (
        outcome.metadata["shardline/compared_appends"],
        outcome.metadata["shardline/usual_rows"],
    ) == (3, 11.0)


def test_rebuild_is_not_compared(tmp_path: Path) -> None:
    version = append_rows(tmp_path, digits(0, 30), digits(0, 30))
    version.check()
    version.rebuild()
    outcome = check_volume(version, version.latest())
    assert outcome.passed
    assert "rebuild" in outcome.description
    assert outcome.metadata["shardline/added_rows"] == 0


def test_volume_reads_only_the_log(tmp_path: Path) -> None:
    version = append_rows(tmp_path, digits(0, 30), digits(0, 30))
    for shard in (tmp_path / "digits" / "shards").iterdir():
        shard.unlink()
    assert check_volume(version, version.latest()).metadata["shardline/added_rows"] == 30
