"""The benchmarks can be run: every line has its sides and finds its place in the table."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import append_lines, lines, log_lines, memory, table

pytestmark = pytest.mark.xdist_group("benchmarks")  # one worker, since they share the rows

_WITHOUT_TENSORFLOW = (
    "salvage",
    "log:",
    "append: from TFRecord",
    "append: 1,000",
    "append: a CSV",
    "append: 20,000",
)
_WITHOUT_LIMIT = "append: from Parquet"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[lines.Row]:
    folder = tmp_path_factory.mktemp("benchmarks")
    measured = [once(line) for line in lines.all_lines(folder, megabytes=1)]
    assert not list(folder.iterdir())
    measured += map(
        once, append_lines.all_lines(folder, 200_000, history=20, appends=3, columns=50, files=5)
    )
    assert not list(folder.iterdir())
    measured += map(once, log_lines.all_lines(small=10, large=200, commits=20))
    return measured


def once(line: lines.Line) -> lines.Row:
    """Let each side work once, after it warmed up."""
    return lines.measure(line, rounds=1, turn_seconds=0)


@pytest.mark.slow
def test_every_line_is_done_by_us_by_the_limit_and_where_it_can_by_tensorflow(
    rows: list[lines.Row],
) -> None:
    for row in rows:
        assert row.ours.records_per_second > 0
        assert (row.limit is None) == row.name.startswith(_WITHOUT_LIMIT)
        assert (row.tensorflow is None) == row.name.startswith(_WITHOUT_TENSORFLOW)


@pytest.mark.slow
def test_each_target_of_the_plan_stands_beside_a_line(rows: list[lines.Row]) -> None:
    targets = {row.name: row.target for row in rows}
    planned = {
        "verify, 180-byte records": lines.Target(50, 0.7),
        "verify, 50 KB records": lines.Target(4, 0.7),
        "facts, all features, in memory": lines.Target(10),
        "decode to Arrow, in memory": lines.Target(10),
        "encode from Arrow and write": lines.Target(30),
        "append: from Parquet, 180-byte rows": lines.Target(30),
        "append: from TFRecord, 50 KB records": lines.Target(None, 0.4),
        "append: 1,000 records to 5,000 snapshots": lines.Target(None, 1 / 1.2),
        "rebuild: 50 KB records into one file": lines.Target(5, 0.7),
        "log: open the head": lines.Target(None, 1 / 3),
        "log: commit an append": lines.Target(None, 1 / 1.2),
    }
    assert {name: targets[name] for name in planned} == planned


def test_only_the_lines_asked_for_are_made() -> None:
    assert not list(log_lines.all_lines("salvage"))
    done = [line.ours.run() for line in log_lines.all_lines("list the shards", small=2, large=200)]
    assert len(done) == 1
    assert done[0] >= 200


@pytest.mark.slow
def test_the_table_and_the_json_hold_every_line(rows: list[lines.Row]) -> None:
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(table.as_table(rows, "title"))
    shown = console.export_text()
    told = json.loads(json.dumps(table.as_json(rows)))
    assert [line["name"] for line in told] == [row.name for row in rows]
    assert all(row.name in shown for row in rows)


@pytest.mark.sweep(keep=1, of="long runs")
def test_peak_memory_is_measured_for_each_operation(tmp_path: Path) -> None:
    peaks = memory.measure_peaks(tmp_path, 1, 2)
    assert [peak.operation for peak in peaks] == list(memory.OPERATIONS)
    assert all(peak.small > 0 and peak.large > 0 for peak in peaks)
