"""DurableFile under torture: the old file or the whole new one, and no false success."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from tests.torture.calls import REMOVING
from tests.torture.sweep import (
    Case,
    Outcome,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
    contents,
    torture,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sweep(keep=6, of="torture")

OLD = b"old"
NEW = b"new!" * 3000

PROGRAM = """
import sys
from shardline.storage.durable_file import DurableFile
with DurableFile(sys.argv[1], overwrite=sys.argv[2] == "overwrite") as file:
    for _ in range(3):
        file.write(b"new!" * 1000)
"""


def command(folder: Path, mode: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(folder / "a"), mode]


def content(folder: Path) -> bytes | None:
    """Return the content under the final name."""
    path = folder / "a"
    return path.read_bytes() if path.exists() else None


def judge_fault(folder: Path, outcome: Outcome, old: bytes | None) -> None:
    """Assert the guarantees for new and for replaced files."""
    found = content(folder)
    assert found in {old, NEW}, "neither the old content nor the new one is there"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == NEW, "it was said to be done and is not"
    assert_error_names(outcome, folder / "a")
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    others = contents(folder).keys() - {"a"}
    assert all(re.fullmatch(r"\.a\.[0-9a-f]{12}\.tmp", name) for name in others), others
    if not outcome.killed and outcome.point.call not in REMOVING:
        assert not others, f"left behind: {others}"


def judge_create(folder: Path, outcome: Outcome) -> None:
    judge_fault(folder, outcome, None)
    is_there = content(folder) is not None
    again = outcome.again()
    # A file that is there already is refused, and that is right.
    assert (again.returncode != 0) == is_there, again.stderr
    assert content(folder) == NEW


def judge_overwrite(folder: Path, outcome: Outcome) -> None:
    judge_fault(folder, outcome, OLD)
    again = outcome.again()
    assert again.returncode == 0, again.stderr
    assert content(folder) == NEW


CREATE = Case(
    name="create a file",
    command=lambda folder: command(folder, "create"),
    judge=judge_create,
)
OVERWRITE = Case(
    name="overwrite a file",
    prepare=lambda folder: (folder / "a").write_bytes(OLD),
    command=lambda folder: command(folder, "overwrite"),
    judge=judge_overwrite,
)


def test_a_new_file_is_whole_or_absent_after_every_fault(tmp_path: Path) -> None:
    torture(CREATE, tmp_path)


def test_an_overwritten_file_is_old_or_new_after_every_fault(tmp_path: Path) -> None:
    torture(OVERWRITE, tmp_path)
