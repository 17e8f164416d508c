"""Shards that an erase gave up: nothing that comes behind it brings them back, whoever is first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import ConflictError, LogError, TombstonedShardError
from shardline.log.changes import Derive, Reject, Restore, SetPin, SetTag
from shardline.log.model import Added
from tests.errors import raises
from tests.golden.reader import read_log
from tests.log.versions import (
    NAME,
    append,
    attest_shards,
    make_version,
    rebuild,
    shard_name,
    shard_of,
    write_shard,
)

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.log.entry import Entry


def erase(version: Version, label: str, *others: str) -> Entry | None:
    """Put another shard in the place of one, and give it and others up."""
    labels = [
        interval.shard.name for interval in version.state.shard_history.at(version.state.snapshot)
    ]
    added = [Added(write_shard(version, f"{label}'"), labels.index(shard_name(label)))]
    return version.commit(
        Derive(
            head=version.state.snapshot,
            removed=[shard_name(label)],
            added=added,
            operation="erase",
            tombstones=[shard_name(one) for one in (label, *others)],
        )
    )


def test_whoever_was_about_to_bring_an_erased_shard_back_is_refused(tmp_path: Path) -> None:
    slow = make_version(tmp_path)
    append(slow, "a")
    append(slow, "b")
    rebuild(slow, ["a"], "A")
    late = Version(tmp_path, NAME)
    assert late.state.snapshot == 3
    erase(slow, "b", "a")
    undo = Reject(3, (shard_of("A"),), (shard_of("a"),), (shard_name("A"),))
    for change in (undo, SetTag("old", 2), SetPin("someone", 2)):
        with raises(TombstonedShardError, "tombstoned-shard", version=NAME):
            late.commit(change)
    with raises(ConflictError, "stale-plan", snapshot=4):
        late.commit(Restore(2, 3))
    with pytest.raises(TombstonedShardError):
        late.commit(Restore(2, 4))
    with raises(ConflictError, "cannot-reject-erase", version=NAME, snapshot=4):
        late.reject(4)


def test_an_erase_that_comes_second_is_asked_again(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a")
    append(version, "b")
    late = Version(tmp_path, NAME)
    assert late.state.snapshot == 2
    version.restore(1)
    with raises(ConflictError, "stale-plan", snapshot=3):
        erase(late, "b")
    with raises(LogError, "tombstoned-shard", path=shard_name("a")):
        version.commit(
            Derive(head=3, removed=[], added=[], operation="erase", tombstones=[shard_name("a")])
        )


def test_another_reader_of_the_format_reads_an_erase_as_we_do(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a")
    attest_shards(version, "a")
    append(version, "b")
    attest_shards(version, "b")
    rebuild(version, ["a", "b"], "c")
    assert version.state.published == 2
    # Only older snapshots hold it: no snapshot is made, and yet the published one is another.
    entry = version.commit(
        Derive(head=3, removed=[], added=[], operation="erase", tombstones=[shard_name("b")])
    )
    assert entry is not None
    assert (entry.snapshot, entry.published) == (3, 1)
    erase(version, "c")
    assert read_log(tmp_path, "digits", "v1").published == version.state.published == 1
