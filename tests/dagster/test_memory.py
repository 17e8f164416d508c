"""The memory of the check of expectations does not grow with the rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import shardline
from tests.sampling import runs_whole_sweeps

if TYPE_CHECKING:
    from pathlib import Path

RULES = [
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "id", "min_value": 0}},
    {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "name", "regex": "^n"}},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "name"}},
    {"type": "expect_column_median_to_be_between", "kwargs": {"column": "id", "min_value": 0}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "id", "min_value": 0}},
]
PROGRAM = """
import sys
from pathlib import Path
import shardline.dagster.expectations.tallies
from benchmarks.memory import peak_bytes
from shardline.dagster.expectations.suite_check import check_expectations
from shardline import Version

shardline.dagster.expectations.tallies.create_tally.__defaults__ = (256 * 1024,)
for name in ("notes/small", "notes/large"):
    outcome = check_expectations(
        Version(sys.argv[1], name).latest(), Path(sys.argv[2]), docs=None, chunk_rows=5_000
    )
    assert outcome.passed, outcome.description
    print(peak_bytes())
"""


@pytest.mark.sweep
@pytest.mark.skipif(not runs_whole_sweeps(), reason="takes as long as loading a library")
def test_expectations_memory_is_bounded(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"expectations": RULES}))
    for name, rows in (("notes/small", 20_000), ("notes/large", 400_000)):
        ids = pa.array(range(rows))
        names = pa.array([f"note number {number}" for number in range(rows)])
        table = pa.table({"id": ids, "name": names})
        shardline.Version(tmp_path / "root", name).append([table], batch="all")
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "root"), str(suite)],
        check=True,
        capture_output=True,
        text=True,
    )
    small, large = map(int, result.stdout.split())
    assert large - small < 24 * 1024**2
