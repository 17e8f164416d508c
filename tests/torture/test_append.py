"""Append under torture: all new records or none, and the next run adds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from tests.kernel.frames import framed
from tests.tfrecord.samples import flipped
from tests.torture.data_cases import (
    OLD,
    A,
    B,
    case,
    judge_states,
    prepare_files,
    prepare_version,
    records,
)
from tests.torture.data_commands import NAME
from tests.torture.sweep import torture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.sweep import Outcome

pytestmark = pytest.mark.sweep(keep=6, of="torture")


def judge_new(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, records, [], [*A, *B])


def judge_more(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, records, OLD, [*OLD, *A, *B])


def prepare_damaged(folder: Path) -> None:
    prepare_version(folder)
    (folder / "damaged.tfrecord").write_bytes(flipped(framed(*A), 8 * 60))


def with_quarantine(folder: Path) -> tuple[list[bytes], list[int]]:
    """Return the records, and the quarantined rows that the log lists, as read from their file."""
    version = Version(folder / "root", NAME)
    found = []
    for _, entry in version.log.replay():
        for told in entry.parameters.get("quarantine", ()):
            lines = [
                line for name in told["files"] for line in version.store.read(name).splitlines()
            ]
            assert told["rows"] == len(lines)
            found += [json.loads(line)["row"] for line in lines]
    return records(folder), found


def judge_damaged(folder: Path, outcome: Outcome) -> None:
    new = ([*OLD, *A[:1], *A[2:]], [1])
    judge_states(folder, outcome, with_quarantine, (OLD, []), new)


def test_an_append_to_a_new_version_is_done_or_not(tmp_path: Path) -> None:
    torture(case("append_files", judge_new, prepare_files), tmp_path, sampled=2)


def test_an_append_to_a_version_with_records_is_done_or_not(tmp_path: Path) -> None:
    torture(case("append_files", judge_more, prepare_version), tmp_path, sampled=2)


def test_an_append_with_a_quarantine_is_done_or_not(tmp_path: Path) -> None:
    torture(case("append_with_quarantine", judge_damaged, prepare_damaged), tmp_path, sampled=2)
