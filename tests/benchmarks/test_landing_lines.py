"""Each line about landing does the work that its name says."""

from __future__ import annotations

from benchmarks.landing_lines import NEW, all_lines


def test_each_side_looks_at_all_files() -> None:
    remarks = []
    for line in all_lines(files=300):
        expected = 300 + NEW if "10 files" in line.name else 300
        assert [side.run() for side in (*line.limit, line.ours)] == [expected] * 2
        remarks.append(line.remark)
    requested = [remark.split(", ")[1] for remark in remarks]
    assert requested == ["200 requested", "0 requested", "10 requested"]
