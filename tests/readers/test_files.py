"""The files of a snapshot, for those who read them with TensorFlow alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.errors import UnreadableSnapshotError
from shardline.hints import Command
from shardline.log.append_change import Append
from tests.errors import raises
from tests.log.versions import source_of
from tests.readers.overlays import scored
from tests.readers.snapshots import (
    NUMBERS,
    make_version,
    numbers,
    published,
    write_shard,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.api import Snapshot

SHARDS = [numbers(0, 3), numbers(3, 4), [], numbers(4, 9)]


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_a_plain_dataset_of_tensorflow_reads_them(tmp_path: Path, compression: str) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS, compressions=[compression])
    files = snapshot.files()
    assert [type(file) for file in files] == [str] * 4
    dataset = tf.data.TFRecordDataset(files, snapshot.compression)
    assert list(dataset.as_numpy_iterator()) == numbers(0, 9)


def test_in_an_object_store_they_are_uris() -> None:
    snapshot = published("memory://files/below", NUMBERS, *SHARDS[:2])
    assert snapshot.files() == [
        f"memory://files/below/digits/shards/{shard.name}" for shard in snapshot.shards
    ]


def test_an_older_snapshot_has_its_own(tmp_path: Path) -> None:
    version = make_version(tmp_path, NUMBERS, SHARDS[0])
    before = version.latest().files()
    later = write_shard(version, "later", SHARDS[1])
    version.commit(Append(shards=[later], sources=[source_of("later")]))
    assert version.snapshot(1).files() == before
    assert version.latest().files() == [*before, str(tmp_path / version.shard_name(later))]


def test_shards_packed_in_several_ways_are_listed_but_have_no_one_compression(
    tmp_path: Path,
) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS, compressions=["zlib", "none"])
    assert len(snapshot.files()) == 4
    where = {"version": "digits/v1", "snapshot": 1}
    with raises(UnreadableSnapshotError, "mixed-compression", **where) as caught:
        snapshot.compression  # noqa: B018 - it is what raises
    assert "(none, zlib)" in caught.value.message
    assert "to_tf()" in str(caught.value.hint)


def test_a_file_of_no_bytes_has_no_say_in_the_compression(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, [], SHARDS[0], [], compressions=["none", "gzip"])
    assert snapshot.compression == "GZIP"
    dataset = tf.data.TFRecordDataset(snapshot.files(), snapshot.compression)
    assert list(dataset.as_numpy_iterator()) == SHARDS[0]


@pytest.mark.parametrize("ask", [lambda s: s.files(), lambda s: s.compression])
def test_a_snapshot_with_overlays_has_no_files_of_whole_records(
    tmp_path: Path, ask: Callable[[Snapshot], Any]
) -> None:
    snapshot = scored(tmp_path)
    overlay = snapshot.shards[0]
    where = {"path": snapshot.shard_name(overlay), "version": "digits/v2", "snapshot": 1}
    with raises(UnreadableSnapshotError, "overlay-snapshot", **where) as caught:
        ask(snapshot)
    assert overlay.base is not None
    assert overlay.name in caught.value.message
    assert overlay.base.name in caught.value.message
    hint = caught.value.hint
    assert hint is not None
    assert "to_tf()" in str(hint)
    assert hint.commands == (Command.of("rebuild", "digits/v2", "--into", "VERSION"),)
    assert ask(Version(tmp_path, "digits/v1").published()) is not None
