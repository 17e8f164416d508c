"""The benchmarks can be run: every line has its sides and finds its place in the table."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import lines, memory, table

_WITHOUT_TENSORFLOW = "salvage"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[lines.Row]:
    folder = tmp_path_factory.mktemp("benchmarks")
    measured = [lines.measure(line, rounds=1) for line in lines.all_lines(folder, megabytes=1)]
    assert not list(folder.iterdir())
    return measured


@pytest.mark.slow
def test_every_line_is_done_by_us_by_the_limit_and_where_it_can_by_tensorflow(
    rows: list[lines.Row],
) -> None:
    for row in rows:
        assert row.ours.records_per_second > 0
        assert row.limit is not None
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
    }
    assert {name: targets[name] for name in planned} == planned


@pytest.mark.slow
def test_the_table_and_the_json_hold_every_line(rows: list[lines.Row]) -> None:
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(table.as_table(rows, "title"))
    shown = console.export_text()
    told = json.loads(json.dumps(table.as_json(rows)))
    assert [line["name"] for line in told] == [row.name for row in rows]
    assert all(row.name in shown for row in rows)


def test_peak_memory_is_measured_for_each_operation(tmp_path: Path) -> None:
    peaks = memory.measure_peaks(tmp_path, 1, 2)
    assert [peak.operation for peak in peaks] == ["verify", "schema", "salvage"]
    assert all(peak.small > 0 and peak.large > 0 for peak in peaks)
