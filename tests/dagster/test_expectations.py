from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

import shardline.dagster.expectations.suite
from shardline.dagster.expectations.data_docs import write_page
from shardline.dagster.expectations.suite import SuiteError, get_suite_path, read_suite
from shardline.dagster.expectations.suite_check import check_expectations
from tests.dagster.rows import digit, digits, snapshot_of
from tests.errors import raises

if TYPE_CHECKING:
    from shardline.api import Snapshot
    from shardline.dagster.checks.check_outcome import CheckOutcome

CANARY = "canary-5f1c"
ROWS_EXIST = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}


def expect(kind: str, severity: str = "critical", **kwargs: object) -> dict[str, Any]:
    return {"type": f"expect_{kind}", "kwargs": kwargs, "severity": severity}


LABELS_LOW = expect("column_values_to_be_between", "critical", column="label", max_value=4)
WEIGHT_LOW = expect("column_mean_to_be_between", "warning", column="weight", max_value=1)
AGE_THERE = expect("column_values_to_not_be_null", "info", column="age")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    rows = [digit(number, writer=CANARY if number == 50 else "ada") for number in range(100)]
    return snapshot_of(tmp_path_factory.mktemp("root"), rows)


def suite_of(tmp_path: Path, *expectations: object) -> Path:
    path = tmp_path / "digits_v1.json"
    path.write_text(json.dumps({"name": "digits_v1", "expectations": expectations}))
    return path


def judged(snapshot: Snapshot, tmp_path: Path, *expectations: object) -> CheckOutcome:
    return check_expectations(snapshot, suite_of(tmp_path, *expectations), docs=None)


def rows_of(outcome: CheckOutcome) -> list[dict[str, Any]]:
    table = outcome.metadata["shardline/expectation_results"]
    assert isinstance(table, dg.TableMetadataValue)
    return [dict(record.data) for record in table.records]


def test_passing_suite_passes(snapshot: Snapshot, tmp_path: Path) -> None:
    in_set = expect("column_values_to_be_in_set", column="label", value_set=list(range(10)))
    outcome = judged(snapshot, tmp_path, ROWS_EXIST, in_set)
    assert (outcome.passed, outcome.warns) == (True, False)
    assert re.findall(r"\d+", outcome.description) == ["2", "100"]
    numbers = {
        name: outcome.metadata[name]
        for name in ("shardline/expectations", "shardline/failed_expectations")
    }
    assert numbers == {"shardline/expectations": 2, "shardline/failed_expectations": 0}
    assert (outcome.metadata["shardline/rows"], outcome.metadata["shardline/checked_rows"]) == (
        100,
        100,
    )
    assert rows_of(outcome)[0] == {
        "expectation": "expect_table_row_count_to_be_between",
        "column": "",
        "severity": "critical",
        "passed": True,
        "observed": "100",
        "unexpected": "",
        "problem": "",
    }
    result = outcome.result(dg.AssetKey("digits_v1"), "expectations")
    assert (result.passed, result.severity) == (True, dg.AssetCheckSeverity.ERROR)


@pytest.mark.parametrize(
    ("failing", "passed", "warns"),
    [
        ([LABELS_LOW], False, False),
        ([WEIGHT_LOW], False, True),
        ([AGE_THERE], True, False),
        ([WEIGHT_LOW, AGE_THERE, LABELS_LOW], False, False),
        ([AGE_THERE, WEIGHT_LOW], False, True),
    ],
)
def test_highest_failed_severity_decides(
    snapshot: Snapshot, tmp_path: Path, failing: list[Any], *, passed: bool, warns: bool
) -> None:
    outcome = judged(snapshot, tmp_path, ROWS_EXIST, *failing)
    assert (outcome.passed, outcome.warns) == (passed, warns)
    assert outcome.metadata["shardline/failed_expectations"] == len(failing)
    assert [row["passed"] for row in rows_of(outcome)] == [False] * len(failing) + [True]
    worst = rows_of(outcome)[0]["severity"]
    counts, reasons = outcome.description.split(". ", 1)
    assert re.findall(r"\d+", counts) == [str(len(failing)), str(len(failing) + 1), "100"]
    assert reasons.startswith(f"{worst}: expect")


def test_failure_is_described_in_numbers(snapshot: Snapshot, tmp_path: Path) -> None:
    found = rows_of(judged(snapshot, tmp_path, LABELS_LOW, WEIGHT_LOW, AGE_THERE))
    assert [(row["observed"], row["unexpected"]) for row in found] == [
        ("", "50.00%"),
        ("1.295", ""),
        ("", "20.00%"),
    ]
    numbers = [re.findall(r"[\d.]+", row["problem"]) for row in found]
    assert numbers == [["50", "100"], ["1.295", "1"], ["20", "100"]]


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_missing_column_fails_with_its_severity(
    snapshot: Snapshot, tmp_path: Path, severity: str
) -> None:
    outcome = judged(
        snapshot,
        tmp_path,
        expect("column_values_to_be_unique", severity, column="shape"),
        expect("column_to_exist", severity, column="shape"),
        expect("column_pair_values_to_be_equal", severity, column_A="label", column_B="shape"),
    )
    assert (outcome.passed, outcome.warns) == (False, severity == "warning")
    assert all("unknown column 'shape'" in row["problem"] for row in rows_of(outcome))
    assert len(rows_of(outcome)) == 3


def test_raised_expectation_fails_with_its_severity(snapshot: Snapshot, tmp_path: Path) -> None:
    mean_of_text = expect("column_mean_to_be_between", "warning", column="writer", min_value=0)
    outcome = judged(snapshot, tmp_path, ROWS_EXIST, mean_of_text)
    assert (outcome.passed, outcome.warns) == (False, True)
    assert rows_of(outcome)[0]["problem"].endswith(": NotNumbersError")


def test_results_contain_no_data_values(snapshot: Snapshot, tmp_path: Path) -> None:
    expectations = [
        expect("column_values_to_be_in_set", column="writer", value_set=["ada"]),
        expect("column_distinct_values_to_be_in_set", column="writer", value_set=["ada"]),
        expect("column_distinct_values_to_equal_set", column="writer", value_set=["ada"]),
        expect("column_most_common_value_to_be_in_set", column="writer", value_set=["ben"]),
        expect("column_value_lengths_to_equal", column="writer", value=3),
        expect("column_values_to_match_regex", column="writer", regex="^a"),
        expect("column_values_to_be_unique", column="writer"),
        expect("column_mean_to_be_between", column="writer", min_value=0),
        expect("column_max_to_be_between", column="writer", min_value=0),
        expect("column_values_to_be_between", column="writer", min_value=0),
        expect("column_pair_values_to_be_equal", column_A="writer", column_B="label"),
        expect("compound_columns_to_be_unique", column_list=["writer", "label"]),
    ]
    suite = suite_of(tmp_path, *expectations)
    outcome = check_expectations(snapshot, suite, docs=tmp_path / "docs")
    assert outcome.metadata["shardline/failed_expectations"] == len(expectations)
    page = tmp_path / "docs" / "digits_v1" / "1" / "expectations.html"
    told = outcome.description + repr(dict(outcome.metadata)) + page.read_text()
    assert CANARY not in told
    assert "Traceback" not in told


def test_data_docs_page_needs_no_network(snapshot: Snapshot, tmp_path: Path) -> None:
    outcome = check_expectations(
        snapshot, suite_of(tmp_path, ROWS_EXIST, LABELS_LOW), docs=tmp_path / "docs"
    )
    path = outcome.metadata["shardline/data_docs"]
    assert isinstance(path, dg.PathMetadataValue)
    assert path.path == str(tmp_path / "docs" / "digits_v1" / "1" / "expectations.html")
    page = (tmp_path / "docs" / "digits_v1" / "1" / "expectations.html").read_text()
    for told in ("digits_v1", "digits/v1@1", "all 100 rows", "label"):
        assert told in page
    for foreign in ("<script", "<link", "<img", 'src="', "https://", 'href="..'):
        assert foreign not in page
    assert page.index("Content-Security-Policy") < page.index("<title>")


def test_old_data_docs_pages_are_deleted(snapshot: Snapshot, tmp_path: Path) -> None:
    from great_expectations.core.expectation_validation_result import (  # noqa: PLC0415
        ExpectationSuiteValidationResult,
    )

    (tmp_path / "digits_v1" / "no snapshot").mkdir(parents=True)
    for number in (8, 9, 10, 11):
        (tmp_path / "digits_v1" / str(number)).mkdir()
    result = ExpectationSuiteValidationResult(
        success=True, results=[], suite_name="digits_v1", statistics={}, meta={}
    )
    write_page(result, snapshot, "all 100 rows", tmp_path, max_pages=3)
    left = sorted(folder.name for folder in (tmp_path / "digits_v1").iterdir())
    assert left == ["1", "10", "11", "9", "no snapshot"], "the page just written stays"


def test_unwritable_data_docs_do_not_fail(snapshot: Snapshot, tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("a file where a folder should be")
    outcome = check_expectations(snapshot, suite_of(tmp_path, ROWS_EXIST), docs=tmp_path / "docs")
    assert outcome.passed
    assert not isinstance(outcome.metadata["shardline/data_docs"], dg.PathMetadataValue)
    assert str(tmp_path / "docs") in str(outcome.metadata["shardline/data_docs"])


def test_threads_evaluate_concurrently(snapshot: Snapshot, tmp_path: Path) -> None:
    suite = suite_of(tmp_path, LABELS_LOW)

    def one(chunk_rows: int) -> tuple[object, str]:
        outcome = check_expectations(snapshot, suite, docs=tmp_path / "docs", chunk_rows=chunk_rows)
        return outcome.metadata["shardline/checked_rows"], rows_of(outcome)[0]["problem"]

    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(one, [33, 50, 99, 100, 1000]))
    assert [rows for rows, _ in found] == [100] * 5
    assert [re.findall(r"\d+", wrong) for _, wrong in found] == [["50", "100"]] * 5


def test_missing_suite_hint_names_draft_command(snapshot: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with raises(SuiteError, "suite-not-found", path=str(path)) as caught:
        check_expectations(snapshot, path, docs=None)
    command = f"`shardline draft digits/v1 --output {path}`"
    assert command in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ('{"name": "a",', "invalid-json", "line 1, column 14"),
        ("\xff", "invalid-json", ""),
        ("[]", "invalid-suite", "'expectations'"),
        ('{"expectations": []}', "suite-empty", ""),
        ('{"name": "", "expectations": [1]}', "invalid-suite", "'name'"),
        ('{"expectations": [{"kwargs": {}}]}', "invalid-expectation", "'type'"),
        ('{"expectations": [{"type": "a", "sevrity": 1}]}', "invalid-expectation", "'sevrity'"),
        ('{"expectations": [{"type": "a", "severity": "x"}]}', "invalid-expectation", "severity"),
        ('{"expectations": [{"type": "a", "kwargs": []}]}', "invalid-expectation", "'kwargs'"),
    ],
)
def test_invalid_suite_file_raises(tmp_path: Path, text: str, code: str, named: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text.encode("latin-1"))
    expectation = 1 if code == "invalid-expectation" else None
    with raises(SuiteError, code, path=str(path), expectation=expectation) as caught:
        read_suite(path)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "code", "named"),
    [
        (expect("column_to_shine", column="label"), "unknown-expectation", ""),
        (expect("column_to_exist", colum="label"), "invalid-expectation", "colum"),
        (
            expect("column_values_to_be_between", column="label", min_value="low"),
            "invalid-expectation",
            "min_value",
        ),
    ],
)
def test_invalid_expectation_raises(
    snapshot: Snapshot, tmp_path: Path, bad: dict[str, Any], code: str, named: str
) -> None:
    path = suite_of(tmp_path, ROWS_EXIST, bad)
    with raises(SuiteError, code, path=str(path), expectation=2) as caught:
        check_expectations(snapshot, path, docs=None)
    assert bad["type"] in str(caught.value)
    assert named in str(caught.value)


def test_suite_path_is_in_checks_folder() -> None:
    path = get_suite_path("digits/v1")
    assert path.parts[-3:] == ("checks", "expectations", "digits_v1.json")


def test_check_modules_import_nothing_slow() -> None:
    folder = Path(shardline.dagster.expectations.suite.__file__).parent
    ours = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    package = "shardline.dagster.expectations"
    imports = ", ".join(f"{package}.{name}" for name in ours)
    program = f"import sys, {imports}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    modules = set(result.stdout.split())
    assert "shardline.dagster.expectations.suite_check" in modules
    assert modules.isdisjoint({"great_expectations", "pandas", "tensorflow", "matplotlib"})


def test_missing_optional_number_is_valid(tmp_path: Path) -> None:
    found = judged(
        snapshot_of(tmp_path / "root", digits(0, 50)),
        tmp_path,
        expect("column_values_to_be_between", column="age", min_value=20, max_value=50),
        expect("column_values_to_be_in_set", column="strokes__min", value_set=[0]),
    )
    assert found.passed, found.description
