"""Snapshots in object stores, which TensorFlow knows nothing of: read by our own reader."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from shardline.errors import CorruptFileError, ObjectNotFoundError
from tests.errors import raises
from tests.kernel.frames import framed
from tests.readers.snapshots import NUMBERS, make_version, number, numbers, overwrite, published
from tests.tfrecord.samples import flipped

if TYPE_CHECKING:
    from shardline.api import Snapshot

SHARDS = [numbers(0, 300), [], numbers(300, 301), numbers(301, 1500), numbers(1500, 2000)]
COMPRESSIONS = ("none", "gzip", "zlib")
ALL = list(range(2000))

PATIENCE = 30
"""Seconds after which a thread that still runs will never end."""


def xs_of(snapshot: Snapshot, *, interleave: bool = False) -> list[int]:
    return [int(element["x"]) for element in snapshot.to_tf(columns=["x"], interleave=interleave)]


def read_in_every_way(snapshot: Snapshot) -> None:
    assert list(snapshot.to_tf(parse=False).as_numpy_iterator()) == numbers(0, 2000)
    assert xs_of(snapshot) == ALL
    assert xs_of(snapshot, interleave=True) == ALL, "here the order is always kept"
    batches = snapshot.to_tf(batch=300)
    assert batches.cardinality().numpy() == 7
    assert [len(batch["x"]) for batch in batches] == [300] * 6 + [200]
    assert [len(batch["x"]) for batch in batches] == [300] * 6 + [200], "a second time too"
    assert snapshot.to_arrow(batch_bytes=1000).read_all()["x"].to_pylist() == ALL
    assert [x for frame in snapshot.to_pandas() for x in frame["x"]] == ALL


def test_a_snapshot_in_an_object_store_is_read_in_every_way() -> None:
    read_in_every_way(published("memory://every-way", NUMBERS, *SHARDS, compressions=COMPRESSIONS))


def test_so_is_one_on_a_real_s3_server(s3_root: str) -> None:
    snapshot = published(s3_root, NUMBERS, *SHARDS, compressions=COMPRESSIONS)
    assert all(file.startswith(f"{s3_root}/digits/shards/v1.") for file in snapshot.files())
    read_in_every_way(snapshot)


def test_damage_in_an_object_is_named_by_every_reader() -> None:
    snapshot = published("memory://damage", NUMBERS, *SHARDS)
    offset = len(framed(*SHARDS[3][:700]))
    path = overwrite(snapshot, 3, flipped(framed(*SHARDS[3]), 8 * (offset + 14)))
    with pytest.raises(CorruptFileError) as caught:
        snapshot.to_arrow().read_all()
    assert (caught.value.path, caught.value.record, caught.value.offset) == (path, 700, offset)
    with pytest.raises(tf.errors.OpError) as wrapped:
        list(snapshot.to_tf())
    parts = (path, "data-crc", "record 700", f"offset {offset}")
    assert all(part in str(wrapped.value) for part in parts)


def test_an_object_that_is_missing_is_named_by_every_reader() -> None:
    snapshot = published("memory://missing", NUMBERS, *SHARDS)
    snapshot.store.delete(snapshot.shard_name(snapshot.shards[2]))
    with raises(ObjectNotFoundError, "object-not-found", path=snapshot.files()[2], snapshot=1):
        snapshot.to_arrow().read_all()
    with pytest.raises(tf.errors.OpError, match=snapshot.files()[2]):
        list(snapshot.to_tf())


def test_a_payload_that_is_no_example_never_reaches_tensorflow() -> None:
    bad = number(1)[:-1] + b"\xff"
    snapshot = make_version("memory://bad", NUMBERS, [number(0), bad]).latest()
    with pytest.raises(tf.errors.OpError, match=r"example\b.*\b1\b") as caught:
        list(snapshot.to_tf(unchecked=True))
    assert "größe" not in str(caught.value)


def test_nothing_is_left_running_when_a_dataset_is_half_read() -> None:
    shards = [numbers(0, 500)] * 1 + [numbers(n, n + 1) for n in range(500, 520)]
    snapshot = published("memory://half", NUMBERS, *shards)
    before = set(threading.enumerate())
    iterator = iter(snapshot.to_tf(parse=False, batch=3))
    next(iterator)
    ours = {one for one in threading.enumerate() if one.name.startswith("shardline")} - before
    del iterator  # TensorFlow ends the reader in a thread of its own
    for thread in ours:
        thread.join(PATIENCE)
    assert [thread.name for thread in ours if thread.is_alive()] == []
