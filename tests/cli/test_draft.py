from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardline
from shardline.dagster.expectations.sample import NumberSummary, take_sample
from shardline.dagster.expectations.suite import read_suite
from shardline.dagster.expectations.suite_check import check_expectations
from shardline.dagster.expectations.suite_draft import _round_outward, _widen_range, draft_suite
from tests.cli.command import Result
from tests.cli.command import shardline as shardline_command
from tests.cli.datasets import on
from tests.dagster.rows import NAME, append_rows, digit, digits, snapshot_of

if TYPE_CHECKING:
    from pathlib import Path


def draft(tmp_path: Path, *arguments: str, reference: str = f"{NAME}@latest") -> Result:
    return on(tmp_path / "root", "draft", reference, *arguments)


def test_drafted_suite_fails_on_shifted_data(tmp_path: Path) -> None:
    version = append_rows(tmp_path / "root", digits(0, 200))
    path = tmp_path / "suite.json"
    assert draft(tmp_path, "--output", str(path)).code == 0
    verdict = check_expectations(version.latest(), path, docs=None)
    assert verdict.passed, verdict.description
    shifted = [digit(number, weight=5.0, writer="eve", scan=b"x" * 99) for number in range(200)]
    append_rows(tmp_path / "root", shifted)
    verdict = check_expectations(
        shardline.Version(tmp_path / "root", NAME).latest(), path, docs=None
    )
    assert (verdict.passed, verdict.warns) == (False, True)
    records = verdict.metadata["shardline/expectation_results"].records  # type: ignore[union-attr]
    failed = [one for one in records if not one.data["passed"]]
    assert sorted({str(one.data["column"]) for one in failed}) == [
        "scan__bytes",
        "weight",
        "writer",
    ]


def test_draft_severity_follows_the_schema(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, digits(0, 200))
    suite = draft_suite(snapshot, take_sample(snapshot))
    told = [(one.columns, one.type, one.severity) for one in suite.expectations]
    assert told[0] == ((), "expect_table_row_count_to_be_between", "critical")
    assert {severity for _, kind, severity in told if kind == "expect_column_to_exist"} == {
        "critical"
    }
    assert ((("label",), "expect_column_values_to_be_in_set", "critical")) in told
    assert ((("pixels__len",), "expect_column_values_to_be_between", "critical")) in told
    assert ((("strokes__len",), "expect_column_values_to_not_be_null", "critical")) in told
    assert ((("age",), "expect_column_values_to_not_be_null", "warning")) in told
    assert ((("writer",), "expect_column_values_to_be_in_set", "warning")) in told
    assert ((("weight",), "expect_column_mean_to_be_between", "warning")) in told
    assert {severity for _, kind, severity in told if "mean" in kind} == {"warning"}


def test_suite_file_is_deterministic(tmp_path: Path) -> None:
    append_rows(tmp_path / "root", digits(0, 100))
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        draft(tmp_path, "--output", str(path))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    suite = read_suite(paths[0])
    assert suite.name == "digits_v1"
    assert suite.meta["drafted_from"].split(", ") == ["digits/v1@1", "all 100 rows"]
    lines = [line for line in paths[0].read_text().splitlines() if '"type"' in line]
    assert len(lines) == len(suite.expectations) > 20
    assert suite.to_text() == paths[0].read_text()
    assert '"id"' not in paths[0].read_text()


def test_draft_command_prints_path(tmp_path: Path) -> None:
    append_rows(tmp_path / "root", digits(0, 100), digits(100, 150))
    path = tmp_path / "new" / "suite.json"
    result = draft(tmp_path, "--output", str(path), reference=f"{NAME}@1")
    assert result.code == 0, result.err
    (label,) = (line for line in result.out.splitlines() if line.startswith("label "))
    assert label.strip().endswith(", one of 10")
    assert "digits/v1@1, all 100" in result.out
    assert str(path) in result.out + result.err
    assert "ada" not in result.out + result.err


def test_draft_existing_suite_requires_overwrite(tmp_path: Path) -> None:
    append_rows(tmp_path / "root", digits(0, 50))
    path = tmp_path / "suite.json"
    path.write_text("edited by hand")
    result = draft(tmp_path, "--output", str(path))
    assert result.code == 2
    assert str(path) in result.out + result.err
    assert "`--overwrite`" in result.out + result.err
    assert path.read_text() == "edited by hand"
    assert draft(tmp_path, "--output", str(path), "--overwrite").code == 0
    assert json.loads(path.read_text())["name"] == "digits_v1"


def test_draft_of_missing_version_fails(tmp_path: Path) -> None:
    append_rows(tmp_path / "root", digits(0, 5))
    result = draft(tmp_path, "--output", str(tmp_path / "x"), reference="digits/v2")
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert "digits/v2" in result.out + result.err
    assert not (tmp_path / "x").exists()


def test_draft_help_has_example() -> None:
    text = shardline_command("draft", "--help").out
    for taught in (
        "shardline draft digits/v1",
        "critical",
        "warning",
        "NAME__len",
        "edit",
    ):
        assert taught in text


def test_draft_of_opaque_records_uses_sizes(tmp_path: Path) -> None:
    source = tmp_path / "some.tfrecord"
    shardline.files.write_records(source, [bytes(size) for size in range(20, 90)])
    version = shardline.Version(tmp_path / "root", NAME)
    version.append(source, schema=shardline.Schema.opaque())
    snapshot = version.latest()
    suite = draft_suite(snapshot, take_sample(snapshot))
    assert {name for one in suite.expectations for name in one.columns} == {"record__bytes"}
    assert suite.expectations[-1].kwargs["min_value"] == 10
    assert suite.expectations[-1].kwargs["max_value"] == 178


@given(
    one=st.floats(-1e30, 1e30, allow_subnormal=False),
    other=st.floats(-1e30, 1e30, allow_subnormal=False),
    whole=st.booleans(),
)
def test_drafted_range_includes_observed_values(one: float, other: float, *, whole: bool) -> None:
    low, high = sorted((float(int(one)), float(int(other))) if whole else (one, other))
    least, most = _widen_range(NumberSummary(2, low, high, (low + high) / 2, 1.0), whole=whole)
    assert least <= low <= high <= most
    assert not (low >= 0 > least)


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0.876543, 1.723456, (0.87, 1.73)),
        (-1234.5, 98765.4, (-2000.0, 99000.0)),
        (1e18, 1e18, (1e18, 1e18)),
    ],
)
def test_bounds_are_rounded_outward(low: float, high: float, told: tuple[float, float]) -> None:
    assert _round_outward(low, high) == told
