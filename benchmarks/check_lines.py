"""Lines about checks: evaluating a suite of expectations, and only reading the rows."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.data import small_table
from benchmarks.lines import Line, Target
from benchmarks.timing import Side
from shardline.api import Version
from shardline.dagster.expectations.suite_check import check_expectations
from shardline.operations.append import append

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.api import Snapshot

_ROW_BYTES = 180
_COLUMNS = ("id", "label", "weight")
_ON_ROWS: list[dict[str, Any]] = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": name}} for name in _COLUMNS
] + [
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": name, "min_value": 0}}
    for name in _COLUMNS
]
_ON_ALL: list[dict[str, Any]] = [
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id", "mostly": 0.5}},
    {"type": "expect_column_median_to_be_between", "kwargs": {"column": "weight", "min_value": 0}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "label", "min_value": 0}},
]
_SUITES = {
    "expectations: 6 rules on rows, 180-byte records": _ON_ROWS,
    "expectations: unique, median and mean, 180-byte records": _ON_ALL,
}


def all_lines(folder: Path, size: int, only: str = "") -> Iterator[Line]:
    """Yield every line whose name contains `only`."""
    names = [name for name in _SUITES if only in name]
    if not names:
        return
    version = Version(folder / "root", "bench/v1")
    append(version, [small_table(size // _ROW_BYTES)], batch="all")
    snapshot = version.latest()
    limit = Side("its columns read by to_arrow", partial(_read, snapshot))
    for number, name in enumerate(names):
        suite = folder / f"suite{number}.json"
        suite.write_text(json.dumps({"expectations": _SUITES[name]}))
        ours = Side("judge", partial(_judge, snapshot, suite))
        yield Line(name, _ROW_BYTES, (), (limit,), ours, Target())
    shutil.rmtree(folder / "root")


def _read(snapshot: Snapshot) -> int:
    return sum(batch.num_rows for batch in snapshot.to_arrow(_COLUMNS))


def _judge(snapshot: Snapshot, suite: Path) -> int:
    verdict = check_expectations(snapshot, suite, docs=None)
    if not verdict.passed:
        raise RuntimeError(f"the suite should hold: {verdict.description}")
    return snapshot.records
