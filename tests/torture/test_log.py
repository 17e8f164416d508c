"""The log under torture: a commit, a checkpoint and a vacuum are done or not, never half."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.operations.verify_log import verify_log
from tests.log.versions import NAME, append, attest_shards, facts_of, held, make_version, shard_name
from tests.torture.log_commands import NEW
from tests.torture.sweep import (
    Case,
    Outcome,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
    torture,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.sweep(keep=6, of="torture")

COMMANDS = Path(__file__).with_name("log_commands.py")
LONG_AGO = datetime.now(UTC) - timedelta(days=30)


def command(verb: str, folder: Path) -> Sequence[str]:
    return [sys.executable, str(COMMANDS), verb, str(folder)]


def read(folder: Path) -> Version:
    """Return the version as on disk, with verified entries and a checkpoint equal to the log."""
    version = Version(folder, NAME)
    report = verify_log(version.log)
    assert not report.problems, report.problems
    replayed = None
    for state, _ in version.log.replay():
        replayed = state
    if replayed is not None:
        assert facts_of(version.state) == facts_of(replayed)
    return version


def labels(folder: Path) -> list[str]:
    version = read(folder)
    return held(version) if version.state.snapshot else []


def judge_commit(folder: Path, outcome: Outcome, old: Sequence[str], new: Sequence[str]) -> None:
    """Assert the old or the new list. The next run leads to the new one, only once."""
    found = labels(folder)
    assert found in (old, new), f"neither the old list nor the new one: {found}"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == new, "it was said to be done and is not"
    assert_error_names(outcome, folder / NAME, folder / "digits" / "shards")
    assert_failed_sync_is_final(outcome.calls)
    again = outcome.again()
    assert again.returncode == 0, again.stderr
    assert labels(folder) == new


def judge_append(folder: Path, outcome: Outcome) -> None:
    judge_commit(folder, outcome, ["one", "two"], ["one", "two", NEW])
    assert_success_is_synced(outcome)


def judge_create(folder: Path, outcome: Outcome) -> None:
    judge_commit(folder, outcome, [], [NEW])
    assert_success_is_synced(outcome)


def judge_restore(folder: Path, outcome: Outcome) -> None:
    judge_commit(folder, outcome, ["one", "two"], ["one"])
    assert_success_is_synced(outcome)


def judge_attest(folder: Path, outcome: Outcome) -> None:
    published = read(folder).state.published
    assert published in {None, 1}
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert published == 1, "it was said to be done and is not"
    assert_error_names(outcome, folder / NAME)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    again = outcome.again()
    assert again.returncode == 0, again.stderr
    assert read(folder).state.published == 1


def judge_checkpoint(folder: Path, outcome: Outcome) -> None:
    """Assert that a failed checkpoint does not fail the commit before it."""
    many = [f"shard {number}" for number in range(CHECKPOINT_INTERVAL - 2)]
    judge_commit(folder, outcome, many, [*many, NEW])
    touched_checkpoint = "checkpoint" in outcome.point.path
    if touched_checkpoint and not outcome.killed and not outcome.point.persistent:
        assert outcome.exit_code == 0, outcome.stderr


def prepare_two(folder: Path) -> None:
    version = make_version(folder)
    append(version, "one")
    append(version, "two")
    attest_shards(version, "one", "two")


def prepare_unattested(folder: Path) -> None:
    append(make_version(folder), NEW)


def prepare_nearly_a_checkpoint(folder: Path) -> None:
    version = make_version(folder)
    for number in range(CHECKPOINT_INTERVAL - 2):
        append(version, f"shard {number}")


DOOMED = {
    f"shards/{shard_name('gone')}",
    f"shards/{shard_name('gone')}.index",
    f"shards/{shard_name('orphan')}",
    "shards/.x.tfrecord.0123456789ab.tmp",
    "v1/log/.x.json.0123456789ab.tmp",
}


def prepare_vacuum(folder: Path) -> None:
    """Write a version with a rejected shard, an uncommitted shard and leftovers."""
    version = make_version(folder)
    append(version, "kept")
    attest_shards(version, "kept")
    append(version, "gone")
    version.reject(2)
    for name in DOOMED - {f"shards/{shard_name('gone')}"}:
        (folder / "digits" / name).write_bytes(b"left")
    for name in DOOMED:
        os.utime(folder / "digits" / name, (LONG_AGO.timestamp(),) * 2)


def judge_vacuum(folder: Path, outcome: Outcome) -> None:
    """Assert that needed files stay, and that the others are deleted after success."""
    assert labels(folder) == ["kept"]
    left = {name for name in DOOMED if (folder / "digits" / name).exists()}
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert not left, f"it was said to be done and is not: {left}"
    assert_error_names(outcome, folder / "digits")
    assert_failed_sync_is_final(outcome.calls)
    again = outcome.again()
    assert again.returncode == 0, again.stderr
    assert not any((folder / "digits" / name).exists() for name in DOOMED)
    assert labels(folder) == ["kept"]


def case(verb: str, judge: object, prepare: object = None) -> Case:
    return Case(
        name=verb,
        command=lambda folder: command(verb, folder),
        judge=judge,  # type: ignore[arg-type]
        **({} if prepare is None else {"prepare": prepare}),  # type: ignore[arg-type]
    )


def test_the_first_commit_of_a_version_is_done_or_not(tmp_path: Path) -> None:
    torture(case("create_and_append", judge_create), tmp_path)


def test_an_append_is_done_or_not(tmp_path: Path) -> None:
    torture(case("append_new", judge_append, prepare_two), tmp_path)


def test_an_attestation_is_done_or_not(tmp_path: Path) -> None:
    torture(case("attest_new", judge_attest, prepare_unattested), tmp_path, sampled=2)


def test_a_restore_is_done_or_not(tmp_path: Path) -> None:
    torture(case("restore_first", judge_restore, prepare_two), tmp_path, sampled=2)


def test_a_checkpoint_is_written_or_not_and_never_in_the_way(tmp_path: Path) -> None:
    torture(case("append_new", judge_checkpoint, prepare_nearly_a_checkpoint), tmp_path)


def test_a_vacuum_deletes_only_what_is_not_needed(tmp_path: Path) -> None:
    torture(case("vacuum_all", judge_vacuum, prepare_vacuum), tmp_path)
