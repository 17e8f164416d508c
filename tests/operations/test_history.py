"""The history of a version: the last entries of its log, and no more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.log.log import Log
from shardline.operations.verify_log import LogProblem, read_log_history
from tests.log.versions import append, make_version

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Version


class Behind(Log):
    """A log in which three entries are committed right after the head was found."""

    def head_number(self) -> int:
        return super().head_number() - 3


def tagged(root: Path, entries: int) -> Version:
    version = make_version(root)
    append(version, "one")
    for number in range(entries - 2):
        version.tag(f"tag-{number}", 1)
    return version


def numbers(log: Log, count: int | None = None) -> list[int]:
    return [
        one.entry if isinstance(one, LogProblem) else one.number
        for one in read_log_history(log, count)
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 63, 64, 65, 128, 129, 130, 131, 1000, None])
def test_history_has_latest_entries_first(tmp_path: Path, count: int | None) -> None:
    log = tagged(tmp_path, 130).log
    expected = list(range(130, 0, -1))[:count]
    assert numbers(log, count) == expected
    assert numbers(Behind(log.store, log.dataset, log.version), count) == expected


def test_history_of_missing_version_is_empty(tmp_path: Path) -> None:
    assert numbers(Log(make_version(tmp_path).store, "digits", "v2")) == []


@pytest.mark.parametrize("gap", [1, 2, 3, 4, 5, 6, 7])
def test_history_reports_missing_entry(tmp_path: Path, gap: int) -> None:
    log = tagged(tmp_path, 8).log
    log.store.delete(log.entry_name(gap))
    (problem,) = [one for one in read_log_history(log) if isinstance(one, LogProblem)]
    assert (problem.entry, problem.kind) == (gap, "missing-entry")
