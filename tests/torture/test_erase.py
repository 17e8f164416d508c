"""An erase under torture: each version as before or done, and the next run finishes it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from shardline.log.version import Version
from tests.torture.derive_commands import BASE, DERIVED
from tests.torture.sweep import (
    Case,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
    torture,
)
from tests.torture.test_derive import COMMANDS, EXTENDED, NUMBERS, held, prepare_overlays

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.sweep import Outcome

pytestmark = pytest.mark.sweep(keep=6, of="torture")

ERASED = 4
LEFT = [number for number in NUMBERS if number != ERASED]
AFTER = {"double": [2 * number for number in LEFT], "x": LEFT}


def states(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both versions hold."""
    return held(folder, BASE), held(folder, DERIVED)


def shards(folder: Path) -> set[str]:
    """Shards that were made, and have their receipts."""
    receipts = (folder / "root/digits/shards").glob("*.receipt")
    return {path.name.removesuffix(".receipt") for path in receipts}


def judge(folder: Path, outcome: Outcome) -> None:
    """The base is done first; whatever was finished is used by the next run, which ends it."""
    before, done = ({"x": NUMBERS}, EXTENDED), ({"x": LEFT}, AFTER)
    found = states(folder)
    assert found in (before, (done[0], before[1]), done), f"neither as before nor done: {found}"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == done, "it was said to be done and is not"
    assert_error_names(outcome, folder)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    made = shards(folder)
    subprocess.run(outcome.case.command(folder), check=True)
    assert states(folder) == done
    versions = [Version(folder / "root", name) for name in (BASE, DERIVED)]
    listed = {name for one in versions for name in one.state.stays.names().to_pylist()}
    assert made <= listed, "a shard that was finished was written again"


def test_records_are_gone_from_a_version_or_not_and_the_next_run_ends_it(tmp_path: Path) -> None:
    case = Case(
        name="erase_records",
        command=lambda folder: [sys.executable, str(COMMANDS), "erase_records", str(folder)],
        judge=judge,
        prepare=prepare_overlays,
    )
    torture(case, tmp_path, sampled=1)
