"""Consumers: who read a snapshot is in the log, and vacuum keeps what they read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import InvalidNameError, SnapshotNotFoundError, TombstonedShardError
from shardline.operations.extend import extend
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_log import verify_log
from shardline.provenance.consumers import (
    Consumer,
    list_all_consumers,
    list_consumers,
    register,
    release,
    select_consumers,
)
from tests.errors import raises
from tests.log import versions
from tests.log.versions import NAME, Clock, shard_name
from tests.operations.extensions import base_of, double, table, version_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def version(tmp_path: Path, clock: Clock) -> Version:
    """Snapshot 1 holds a and b, snapshot 2 the rebuilt r, snapshot 3 also c; all published."""
    version = versions.make_version(tmp_path, clock=clock)
    versions.append(version, "a", "b")
    versions.attest_shards(version, "a", "b")
    versions.rebuild(version, "ab", "r")
    versions.attest_shards(version, "r")
    versions.append(version, "c")
    versions.attest_shards(version, "c")
    return version


def there(root: Path) -> set[str]:
    return {path.read_text() for path in (root / "digits" / "shards").glob("*.tfrecord")}


def test_a_training_job_registers_in_one_line_and_reads_on(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 3))
    read = base.published().consumed_by("cnn", run="run/42", commit="1f3c").to_arrow()
    assert read.read_all().num_rows == 3
    base.refresh()
    assert list_consumers(base) == [Consumer("digits/v1", 1, "cnn", "run/42", "1f3c")]
    entry = base.log.entry(base.state.number)
    assert (entry.commit_info.run, entry.commit_info.code) == ("run/42", "1f3c")
    assert (entry.operation, entry.changes_data) == ("consume", False)
    assert entry.parameters == {"name": "cnn", "run": "run/42", "commit": "1f3c"}
    assert entry.pin is not None
    assert entry.pin.name.split() == ["consumer", "cnn", "run/42", "on", "1"]
    assert entry.pin.snapshot == 1
    assert verify_log(base.log).problems == ()


def test_registering_the_same_again_changes_nothing(version: Version) -> None:
    assert register(version, 1, "cnn", run="1") is not None
    number = version.state.number
    for _ in range(2):
        assert register(version, 1, "cnn", run="1") is None
    version.snapshot(1).consumed_by("cnn", run="1")
    assert version.refresh() == []
    assert version.state.number == number


def test_another_run_another_snapshot_and_another_commit_are_told_apart(version: Version) -> None:
    register(version, 1, "cnn", run="1", commit="aaa")
    register(version, 3, "cnn", run="1", commit="aaa")
    register(version, 3, "cnn", run="2")
    register(version, 3, "cnn")
    register(version, 3, "cnn", run="2", commit="bbb")
    assert [(one.snapshot, one.run, one.commit) for one in list_consumers(version)] == [
        (1, "1", "aaa"),
        (3, "", ""),
        (3, "1", "aaa"),
        (3, "2", "bbb"),
    ]


def test_vacuum_keeps_what_a_consumer_read_until_a_week_after_it_is_released(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    register(version, 1, "cnn", run="1")
    clock.move(days=30)
    vacuum(tmp_path, "digits", dry_run=False, clock=clock)
    vacuum(tmp_path, "digits", dry_run=False, clock=clock)
    assert there(tmp_path) == {"a", "b", "r", "c"}
    version.refresh()
    assert [one.snapshot for one in release(version, "cnn")] == [1]
    vacuum(tmp_path, "digits", dry_run=False, clock=clock)
    assert there(tmp_path) == {"a", "b", "r", "c"}
    clock.move(days=8)
    vacuum(tmp_path, "digits", dry_run=False, clock=clock)
    assert there(tmp_path) == {"r", "c"}
    version.refresh()
    with raises(TombstonedShardError, "tombstoned-shard"):
        register(version, 1, "cnn", run="2")


def test_an_overlay_that_a_consumer_read_keeps_its_base_too(tmp_path: Path) -> None:
    base, wide = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    extend(base, [double], wide, snapshot="latest")
    wide.snapshot(1).consumed_by("cnn", run="1")
    later = Clock(wide.latest().time + timedelta(days=60))
    vacuum(tmp_path / "root", "digits", dry_run=False, clock=later)
    assert table(Version(tmp_path / "root", "digits/v2").snapshot(1), ["double", "id"]) == {
        "double": [0, 2],
        "id": [0, 1],
    }


def test_the_log_remembers_who_was_released_and_when(version: Version, clock: Clock) -> None:
    register(version, 1, "cnn", run="1", commit="aaa")
    began = clock.now
    clock.move(days=1)
    register(version, 3, "tree")
    release(version, "cnn", run="1")
    ended = clock.now
    assert list_consumers(version) == [Consumer(NAME, 3, "tree")]
    ever = list_all_consumers(NAME, version.log.entries(1))
    assert ever == [
        Consumer(NAME, 1, "cnn", "1", "aaa", since=began, released=ended),
        Consumer(NAME, 3, "tree", since=ended),
    ]
    register(version, 1, "cnn", run="1", commit="aaa")
    assert list_all_consumers(NAME, version.log.entries(1))[0].released is None


def test_which_models_saw_a_shard_has_an_answer(version: Version) -> None:
    register(version, 1, "old")
    register(version, 2, "middle")
    register(version, 3, "new")
    release(version, "old")
    ever = list_all_consumers(NAME, version.log.entries(1))

    def saw(*labels: str) -> list[str]:
        return [one.name for one in select_consumers(version, map(shard_name, labels), ever)]

    assert saw("a") == ["old"]
    assert saw("r") == ["middle", "new"]
    assert saw("c") == ["new"]
    assert saw("a", "r") == ["old", "middle", "new"]
    assert saw("elsewhere") == []


def test_pins_of_others_are_no_consumers(version: Version) -> None:
    version.pin("digits/v2 on 1", 1, "digits/v2 is read with it")
    version.pin("someone", 2)
    assert list_consumers(version) == []
    with raises(SnapshotNotFoundError, "consumer-not-found", version=version.name):
        release(version, "someone")


@pytest.mark.parametrize("told", ["", "my model", "x" * 81, "a\nb", "\x1b[31m", "a\u2028b"])
def test_a_name_that_would_not_be_read_back_is_refused(version: Version, told: str) -> None:
    before = version.state.number
    with raises(InvalidNameError, "invalid-name") as caught:
        register(version, 1, told)
    assert "invalid name of" in str(caught.value)
    with raises(SnapshotNotFoundError, "snapshot-not-found") as unknown:
        register(version, 9, "cnn")
    assert "snapshot 9" in str(unknown.value)
    if told:
        with pytest.raises(InvalidNameError, match="invalid run of"):
            register(version, 1, "cnn", run=told)
    assert version.state.number == before
