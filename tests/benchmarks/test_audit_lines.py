"""The root that the audit is measured on is in order: the audit of it finds nothing."""

from __future__ import annotations

from benchmarks.audit_lines import all_lines


def test_each_side_of_the_lines_does_all_of_the_work() -> None:
    for line in all_lines(versions=5, entries=5 * 200):
        assert [side.run() for side in (*line.limit, line.ours)] == [1000, 1000]
