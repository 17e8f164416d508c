"""What the check of expectations judges, attests and rejects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import shardline
from shardline.dagster.checks.check_outcome import EXPECTATIONS
from shardline.dagster.checks.check_run import CheckRun, list_unchecked_shards
from shardline.dagster.checks.version_checks import VersionChecks
from shardline.dagster.expectations.suite import read_suite
from shardline.log.model import Attestation
from shardline.operations.extend import extend
from shardline.udf import record_udf
from tests.dagster.rows import DIGITS, NAME, digits

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Version
    from shardline.dagster.checks.check_outcome import CheckOutcome


def expect(kind: str, severity: str = "critical", **kwargs: object) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "severity": severity}


LABELS = expect("column_values_to_be_between", column="label", min_value=0, max_value=8)
WEIGHTS = expect("column_values_to_be_between", column="weight", max_value=2)
MOSTLY = expect("column_values_to_be_between", column="weight", max_value=2, mostly=0.9)
UNIQUE = expect("column_values_to_be_unique", column="writer")


def suite_of(tmp_path: Path, *rules: dict[str, Any], notes: str = "") -> Path:
    path = tmp_path / "digits_v1.json"
    given = [{**rule, "notes": notes} if notes else rule for rule in rules]
    path.write_text(json.dumps({"expectations": given}))
    return path


def append(tmp_path: Path, name: str, first: int, last: int, **other: object) -> Version:
    version = shardline.Version(tmp_path / "root", NAME)
    checks = VersionChecks(NAME, tmp_path / "digits_v1.json").required
    rows = digits(first, last, **other)
    version.append([rows], schema=DIGITS, batch=name, checks=checks)
    return version


def check(tmp_path: Path, version: Version, number: int | None = None) -> CheckOutcome:
    version.refresh()
    snapshot = version.latest() if number is None else version.snapshot(number)
    suite = tmp_path / "digits_v1.json"
    no_folder = suite  # so that no time goes into a page
    selected = ("integrity", "schema", EXPECTATIONS)
    examination = CheckRun(version, snapshot, suite, no_folder, 1000, selected)
    outcome = [examination.run(name) for name in selected][-1]
    version.refresh()
    return outcome


def rows_checked(tmp_path: Path, version: Version, number: int | None = None) -> object:
    return check(tmp_path, version, number).metadata["shardline/checked_rows"]


def test_bad_batch_after_good_rows_is_rejected(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "good", 0, 300)
    assert check(tmp_path, version).passed
    append(tmp_path, "bad", 0, 3, weight=5.0)
    outcome = check(tmp_path, version)
    assert (outcome.passed, outcome.warns) == (False, False)
    assert version.snapshot(2).rejected
    assert version.published().records == version.latest().records == 300
    append(tmp_path, "next", 300, 310)
    assert check(tmp_path, version).passed
    assert version.state.published == version.latest().number


def test_one_bad_row_among_many_is_found(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "good", 0, 30)
    assert check(tmp_path, version).passed
    rows = digits(0, 500)
    rows[321]["weight"] = 2.5
    version.append([rows], batch="bad")
    outcome = check(tmp_path, version)
    assert not outcome.passed
    (row,) = outcome.metadata["shardline/expectation_results"].records  # type: ignore[union-attr]
    assert row.data["unexpected"] == "0.20%"
    assert version.published().records == 30


@pytest.mark.parametrize(("bad", "passed"), [(1, True), (2, False)])
def test_mostly_counts_added_rows(tmp_path: Path, bad: int, *, passed: bool) -> None:
    suite_of(tmp_path, MOSTLY)
    version = append(tmp_path, "good", 0, 300)
    assert check(tmp_path, version).passed
    rows = [*digits(0, 10 - bad), *digits(0, bad, weight=3.0)]
    version.append([rows], batch="mixed")
    assert check(tmp_path, version).passed is passed


def test_unchanged_suite_evaluates_only_new_rows(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "a", 0, 30)
    assert rows_checked(tmp_path, version) == 30
    append(tmp_path, "b", 30, 37)
    assert rows_checked(tmp_path, version) == 7
    append(tmp_path, "c", 37, 39)
    assert rows_checked(tmp_path, version) == 2
    assert rows_checked(tmp_path, version) == 2, "a check that is run again looks again"
    suite_of(tmp_path, WEIGHTS, notes="why")
    assert rows_checked(tmp_path, version) == 2
    assert rows_checked(tmp_path, version, 1) == 30
    attested = [
        attestation for entry in version.log.entries(1) for attestation in entry.attestations
    ]
    digests = {one.detail for one in attested if one.check == EXPECTATIONS}
    assert digests == {f"suite sha256:{read_suite(suite).digest}"}


def test_changed_suite_evaluates_all_rows(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "a", 0, 9)
    assert check(tmp_path, version).passed
    append(tmp_path, "b", 10, 17)
    version.refresh()
    warning = {**WEIGHTS, "severity": "warning"}
    for changed in ([WEIGHTS], [LABELS], [warning], [WEIGHTS, WEIGHTS], [MOSTLY]):
        digest = read_suite(suite_of(tmp_path, *changed)).digest
        shards = list_unchecked_shards(version, version.latest(), digest)
        assert len(shards) == (1 if changed == [WEIGHTS] else 2)


def test_changed_suite_keeps_published_rows(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "a", 0, 30)
    assert check(tmp_path, version).passed
    suite_of(tmp_path, WEIGHTS, LABELS)
    append(tmp_path, "b", 40, 45)
    assert not check(tmp_path, version).passed
    assert not version.latest().rejected, "its own rows hold"
    assert (version.latest().records, version.state.published) == (35, 1)
    suite_of(tmp_path, WEIGHTS)
    assert check(tmp_path, version).passed
    assert version.state.published == 2


def test_unevaluated_earlier_batch_is_rejected(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "a", 0, 30)
    assert check(tmp_path, version).passed
    append(tmp_path, "bad", 0, 3, weight=5.0)
    append(tmp_path, "good", 30, 40)
    assert not check(tmp_path, version).passed
    assert [version.snapshot(number).rejected for number in (2, 3)] == [True, False]
    assert version.latest().records == 40
    assert check(tmp_path, version).passed
    assert version.published().records == 40


def test_attestation_without_digest_does_not_count(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "a", 0, 30)
    content = version.latest().content
    version.attest([Attestation(EXPECTATIONS, passed=True, content=content)])
    append(tmp_path, "b", 30, 37)
    version.refresh()
    digest = read_suite(suite).digest
    assert (
        sum(shard.records for shard in list_unchecked_shards(version, version.latest(), digest))
        == 37
    )


def test_rebuilt_rows_are_evaluated_again(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    version = append(tmp_path, "a", 0, 30)
    append(tmp_path, "b", 30, 40)
    assert check(tmp_path, version).passed
    version.rebuild()
    assert len(version.latest().shards) == 1
    assert rows_checked(tmp_path, version) == 40


def test_aggregates_see_rows_of_all_batches(tmp_path: Path) -> None:
    suite_of(tmp_path, UNIQUE, expect("table_row_count_to_be_between", max_value=12))
    version = append(tmp_path, "a", 0, 4)
    assert check(tmp_path, version).passed
    append(tmp_path, "b", 4, 6, writer="ada")
    outcome = check(tmp_path, version)
    assert not outcome.passed
    assert version.snapshot(2).rejected
    assert outcome.metadata["shardline/checked_rows"] == 2
    table = outcome.metadata["shardline/expectation_results"]
    (unique,) = [record.data for record in table.records if not record.data["passed"]]  # type: ignore[union-attr]
    assert unique["unexpected"] == "50.00%"


def test_extended_rows_are_evaluated_with_bases(tmp_path: Path) -> None:
    suite_of(tmp_path, WEIGHTS)
    base = append(tmp_path, "a", 0, 30)
    assert check(tmp_path, base).passed
    twice = expect("column_pair_values_a_to_be_greater_than_b", column_A="half", column_B="weight")
    suite_of(tmp_path, {**twice, "kwargs": {**twice["kwargs"], "or_equal": True}})
    version = shardline.Version(tmp_path / "root", "digits/v2")

    @record_udf(shardline.Feature("half", "float"), reads=["weight"], code="1")
    def half(record: dict[str, Any]) -> dict[str, Any]:
        return {"half": record["weight"] / 2}

    checks = VersionChecks("digits/v2", tmp_path / "digits_v1.json").required
    extend(base, half, version, checks=checks)
    outcome = check(tmp_path, version)
    assert not outcome.passed
    (row,) = outcome.metadata["shardline/expectation_results"].records  # type: ignore[union-attr]
    assert (outcome.metadata["shardline/checked_rows"], row.data["unexpected"]) == (30, "100.00%")
    assert version.state.published is None


def test_drift_of_small_batch_is_found(tmp_path: Path) -> None:
    suite_of(tmp_path, LABELS)
    version = append(tmp_path, "a", 0, 900)
    version.check()
    version.require(shardline.Checks())
    version = append(tmp_path, "b", 900, 1000)
    version.check()
    version.append([digits(0, 12, weight=9.0)], batch="c")
    version.refresh()
    version.check()
    snapshot = version.latest()
    examination = CheckRun(version, snapshot, None, tmp_path, 50, ("drift", "volume"))
    outcome = examination.run("drift")
    assert (outcome.passed, outcome.warns) == (False, True)
    names = (
        "shardline/new_rows",
        "shardline/compared_new_rows",
        "shardline/published_rows",
        "shardline/compared_published_rows",
    )
    assert [outcome.metadata[name] for name in names] == [12, 12, 1000, 50]
    told = examination.run("volume").metadata
    assert (told["shardline/added_rows"], told["shardline/rows"]) == (12, 1012)
