"""Versions and loose files for the sweeps of appends and rebuilds, and how to look at them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.verify_log import verify_log
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Schema
from shardline.tfrecord import RecordFile
from shardline.tfrecord.input_file import StoredFile
from tests.kernel.frames import framed
from tests.operations.landings import Payloads
from tests.torture.data_commands import NAME, VERBS
from tests.torture.sweep import (
    Case,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.sweep import Outcome

COMMANDS = Path(__file__).with_name("data_commands.py")
A = [b"record a %d of a few bytes %04d" % (number, number) for number in range(5)]
B = [b"record b %d of a few bytes %04d" % (number, number) for number in range(2)]
OLD = [b"old record %d of a few bytes %03d" % (number, number) for number in range(8)]


def prepare_files(folder: Path) -> None:
    """Two loose files."""
    (folder / "a.tfrecord").write_bytes(framed(*A))
    (folder / "b.tfrecord").write_bytes(framed(*B))


def prepare_version(folder: Path) -> None:
    """A version of three shards, and two loose files."""
    prepare_files(folder)
    version = Version(folder / "root", NAME)
    version.create(Schema.opaque())
    append(version, Payloads("old", OLD), target_bytes=150)
    assert version.latest().totals.shards == 3


def records(folder: Path, name: str = NAME) -> list[bytes]:
    """What a version holds, every entry and every shard proved; nothing if it is not there."""
    version = Version(folder / "root", name)
    if not version.exists:
        return []
    if not version.state.snapshot:
        assert not verify_log(version.log).problems
        return []
    report = verify_version(version)
    assert report.ok, report
    held = []
    for shard in version.latest().shards:
        held += payloads(StoredFile(version.store, version.shard_name(shard)))
    return held


def payloads(file: Path | StoredFile) -> list[bytes]:
    """The records of a file, every one checked."""
    with RecordFile(file) as opened:
        return [bytes(payload) for payload in opened]


def judge_states(
    folder: Path, outcome: Outcome, states: Callable[[Path], object], old: object, new: object
) -> None:
    """It is as before or done, and the next run leads to done, and stays there."""
    found = states(folder)
    assert found in (old, new), f"neither as before nor done: {found}"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == new, "it was said to be done and is not"
    assert_error_names(outcome, folder)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    for _ in range(2):  # not as processes of their own: most of their time would go to imports
        VERBS[outcome.case.name](folder)
        assert states(folder) == new


def case(
    verb: str, judge: Callable[[Path, Outcome], None], prepare: Callable[[Path], object]
) -> Case:
    """The sweep of one verb."""
    return Case(
        name=verb,
        command=lambda folder: [sys.executable, str(COMMANDS), verb, str(folder)],
        judge=judge,
        prepare=prepare,
    )
