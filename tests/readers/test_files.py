"""The files of a snapshot, for those who read them with TensorFlow alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.errors import UnreadableSnapshotError
from shardline.log.facts import Base
from shardline.log.landing import Append
from tests.log.versions import source_of
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

    from shardline.log.snapshot import Snapshot

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
    before = version.newest().files()
    later = write_shard(version, "later", SHARDS[1])
    version.commit(Append(shards=[later], sources=[source_of("later")]))
    assert version.snapshot(1).files() == before
    assert version.newest().files() == [*before, str(tmp_path / version.shard_name(later))]


def test_shards_packed_in_several_ways_are_listed_but_have_no_one_compression(
    tmp_path: Path,
) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS, compressions=["zlib", "none"])
    assert len(snapshot.files()) == 4
    with pytest.raises(UnreadableSnapshotError, match=r"digits/v1@1 .*\(none, zlib\).* to_tf\(\)"):
        snapshot.compression  # noqa: B018 - it is what raises


def test_a_file_of_no_bytes_has_no_say_in_the_compression(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, [], SHARDS[0], [], compressions=["none", "gzip"])
    assert snapshot.compression == "GZIP"
    dataset = tf.data.TFRecordDataset(snapshot.files(), snapshot.compression)
    assert list(dataset.as_numpy_iterator()) == SHARDS[0]


READERS: dict[str, Callable[[Snapshot], Any]] = {
    "files": lambda snapshot: snapshot.files(),
    "to_tf": lambda snapshot: snapshot.to_tf(unchecked=True),
    "to_arrow": lambda snapshot: snapshot.to_arrow(),
    "to_pandas": lambda snapshot: snapshot.to_pandas(),
}


@pytest.mark.parametrize("reader", READERS)
def test_overlays_are_refused_by_every_reader(tmp_path: Path, reader: str) -> None:
    version = make_version(tmp_path, NUMBERS, SHARDS[0])
    base = version.newest().shards[0]
    overlay = write_shard(version, "overlay", SHARDS[0])
    overlay = replace(overlay, base=Base(base.name, base.sha256))
    version.commit(Append(shards=[overlay], sources=[source_of("overlay")]))
    with pytest.raises(UnreadableSnapshotError, match="this release cannot read them") as caught:
        READERS[reader](version.newest())
    assert overlay.name in str(caught.value)
    assert "'rebuild'" in str(caught.value)
    assert READERS[reader](version.snapshot(1)) is not None
