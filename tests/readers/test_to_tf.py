"""Snapshots in tf.data: the records in order, their number, and features in their shapes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from shardline.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
    UnreadableSnapshotError,
    WrongShardError,
)
from shardline.hints import Command, Option
from shardline.log.changes import Derive
from shardline.log.model import Checks
from shardline.operations.check import check_version
from shardline.schema.logical_types import ITEM_BYTES
from shardline.schema.schema import Array, Feature, Image, Schema, Text
from tests.errors import raises
from tests.kernel.frames import framed
from tests.readers.forms import plain
from tests.readers.snapshots import NUMBERS, make_version, numbers, overwrite, published
from tests.tfrecord.samples import example_of, flipped, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Snapshot

SHARDS = [numbers(0, 300), [], numbers(300, 301), numbers(301, 1500), numbers(1500, 2000)]
ALL = 2000
COMPRESSIONS = ("none", "gzip", "zlib", "zlib")
FLAT = Schema(
    (
        Feature("label", "int64"),
        Feature("image", "float", (2, 3)),
        Feature("name", "bytes", required=False, meaning=Text()),
        Feature("mask", "int64", (2, 2), required=False),
        Feature("tags", "bytes", (None,)),
        Feature("boxes", "float", (None, 3)),
        Feature("photo", "bytes", meaning=Image("png")),
        Feature("pixels", "bytes", meaning=Array("uint8", (2, 2))),
        Feature("sound", "bytes", (2,), meaning=Array("int16", (None,))),
    )
)
PNG = b"\x89PNG\r\n\x1a\n"
FLAT_RECORDS = [
    example_of(label=1, image=[0.0, 1, 2, 3, 4, 5], name=b"a", mask=[1, 2, 3, 4], tags=[b"x", b"y"],
               boxes=[1.0, 2, 3, 4, 5, 6], photo=PNG, pixels=b"\0\1\2\xff",
               sound=[b"\1\0\2\0", b""]),
    example_of(label=2, image=[5.0, 4, 3, 2, 1, 0], tags=[b"z"], boxes=[7.0, 8, 9], photo=PNG,
               pixels=b"abcd", sound=[b"", b"\xff\xff"]),
]  # fmt: skip
STEPS = Schema(
    (
        Feature("id", "int64"),
        Feature("note", "bytes", required=False),
        Feature("frames", "float", (2,), sequence=True),
        Feature("marks", "int64", sequence=True, required=False),
        Feature("words", "bytes", (None,), sequence=True),
        Feature("boxes", "int64", (None, 2), sequence=True, required=False),
        Feature("id", "bytes", sequence=True, meaning=Array("int32", (2,))),
    ),
    "sequence_example",
)
STEPS_RECORDS = [
    sequence_of({"id": 1, "note": b"n"}, frames=[[1.0, 2], [3, 4]], marks=[[1], [2], [3]],
                words=[[b"a", b"b"], []], boxes=[[1, 2, 3, 4], [5, 6]], id=[[b"\1\0\0\0\2\0\0\0"]]),
    sequence_of({"id": 2}, frames=[[5.0, 6]], words=[[b"c"]], id=[]),
]  # fmt: skip


def lists(element: Any) -> Any:  # noqa: ANN401 - dicts of tensors
    if isinstance(element, dict):
        return {name: lists(value) for name, value in element.items()}
    return tuple(map(lists, element)) if isinstance(element, tuple) else plain(element)


def xs(dataset: tf.data.Dataset) -> list[int]:
    return [int(x) for element in dataset for x in np.atleast_1d(element["x"].numpy())]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Two thousand records in shards of every compression."""
    return published(tmp_path_factory.mktemp("mixed"), NUMBERS, *SHARDS, compressions=COMPRESSIONS)


def test_raw_records_come_in_order_as_they_were_written(mixed: Snapshot) -> None:
    whole = numbers(0, ALL)
    assert list(mixed.to_tf(parse=False).as_numpy_iterator()) == whole
    batches = list(mixed.to_tf(parse=False, batch=7).as_numpy_iterator())
    assert {len(batch) for batch in batches[:-1]} == {7}
    assert [record for batch in batches for record in batch] == whole


@pytest.mark.parametrize("batch", [None, 1, 64, 1999, 2000, 5000])
def test_parsed_records_come_in_order_in_batches_of_any_size(
    mixed: Snapshot, batch: int | None
) -> None:
    dataset = mixed.to_tf(batch=batch)
    assert xs(dataset) == list(range(ALL))
    assert xs(dataset) == list(range(ALL)), "a second time too"


@pytest.mark.parametrize("asked", [{}, {"parse": False}, {"interleave": True}], ids=str)
@pytest.mark.parametrize(
    ("batches", "count"),
    [
        ({}, 2000),
        ({"batch": 7}, 286),
        ({"batch": 7, "drop_remainder": True}, 285),
        ({"batch": 2000, "drop_remainder": True}, 1),
        ({"batch": 2001, "drop_remainder": True}, 0),
    ],
    ids=str,
)
def test_the_number_of_elements_is_known(
    mixed: Snapshot, asked: dict[str, Any], batches: dict[str, Any], count: int
) -> None:
    dataset = mixed.to_tf(**asked, **batches)
    assert dataset.cardinality().numpy() == count
    assert sum(1 for _ in dataset) == count


@pytest.mark.parametrize("batch", [None, 32])
def test_interleaved_records_are_the_same_ones(mixed: Snapshot, batch: int | None) -> None:
    assert sorted(xs(mixed.to_tf(batch=batch, interleave=True))) == list(range(ALL))
    raw = mixed.to_tf(parse=False, interleave=True).as_numpy_iterator()
    assert Counter(raw) == Counter(numbers(0, ALL))


def test_interleaved_in_a_set_order_they_are_mixed_and_always_the_same(mixed: Snapshot) -> None:
    orders = [xs(mixed.to_tf(interleave=True, deterministic=True, batch=9)) for _ in range(3)]
    assert orders[0] == orders[1] == orders[2]
    assert sorted(orders[0]) == list(range(ALL))
    assert orders[0] != list(range(ALL))


def test_a_batch_has_the_shapes_declared_and_the_rest_is_ragged(tmp_path: Path) -> None:
    snapshot = published(tmp_path, FLAT, FLAT_RECORDS)
    dataset = snapshot.to_tf(batch=2)
    assert {name: spec.shape.as_list() for name, spec in dataset.element_spec.items()} == {
        "label": [None],
        "image": [None, 2, 3],
        "name": [None, None],
        "mask": [None, None, 2],
        "tags": [None, None],
        "boxes": [None, None, 3],
        "photo": [None],
        "pixels": [None, 2, 2],
        "sound": [None, 2, None],
    }
    (batch,) = list(dataset)
    assert lists(batch) == {
        "label": [1, 2],
        "image": [[plain([0.0, 1.0, 2.0]), plain([3.0, 4.0, 5.0])],
                  [plain([5.0, 4.0, 3.0]), plain([2.0, 1.0, 0.0])]],
        "name": [[b"a"], []],
        "mask": [[[1, 2], [3, 4]], []],
        "tags": [[b"x", b"y"], [b"z"]],
        "boxes": [[plain([1.0, 2.0, 3.0]), plain([4.0, 5.0, 6.0])], [plain([7.0, 8.0, 9.0])]],
        "photo": [PNG, PNG],
        "pixels": [[[0, 1], [2, 255]], [[97, 98], [99, 100]]],
        "sound": [[[1, 2], []], [[], [-1]]],
    }  # fmt: skip
    assert batch["pixels"].dtype == tf.uint8


def test_a_single_record_is_dense_where_it_can_be(tmp_path: Path) -> None:
    snapshot = published(tmp_path, FLAT, FLAT_RECORDS)
    first, second = list(snapshot.to_tf())
    assert lists(first)["sound"] == [[1, 2], []]
    dense = {
        name: value for name, value in second.items() if not isinstance(value, tf.RaggedTensor)
    }
    assert {name: value.shape.as_list() for name, value in dense.items()} == {
        "label": [],
        "image": [2, 3],
        "name": [0],
        "mask": [0, 2],
        "tags": [1],
        "boxes": [1, 3],
        "photo": [],
        "pixels": [2, 2],
    }


def test_sequences_are_pair_without_padding(
    tmp_path: Path,
) -> None:
    snapshot = published(tmp_path, STEPS, STEPS_RECORDS)
    (batch,) = list(snapshot.to_tf(batch=5))
    context, steps = lists(batch)
    assert context == {"id": [1, 2], "note": [[b"n"], []]}
    assert steps == {
        "frames": [[plain([1.0, 2.0]), plain([3.0, 4.0])], [plain([5.0, 6.0])]],
        "marks": [[1, 2, 3], []],
        "words": [[[b"a", b"b"], []], [[b"c"]]],
        "boxes": [[[[1, 2], [3, 4]], [[5, 6]]], []],
        "id": [[[1, 2]], []],
    }
    _, single = list(snapshot.to_tf())[1]
    assert single["frames"].shape.as_list() == [1, 2]
    assert single["marks"].shape.as_list() == [0]


def test_only_the_context_or_only_the_steps_can_be_asked_for(tmp_path: Path) -> None:
    snapshot = published(tmp_path, STEPS, STEPS_RECORDS)
    (batch,) = list(snapshot.to_tf(batch=5, columns=["note"]))
    assert lists(batch) == ({"note": [[b"n"], []]}, {})
    (batch,) = list(snapshot.to_tf(batch=5, columns=["marks"]))
    assert lists(batch) == ({}, {"marks": [[1, 2, 3], []]})
    (batch,) = list(snapshot.to_tf(batch=5, columns=["id"]))
    assert lists(batch) == ({"id": [1, 2]}, {"id": [[[1, 2]], []]}), "a name in both is both"


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("shape", [(2, 2), (), (None,), (None, 2)])
def test_raw_arrays_of_every_dtype_are_decoded(
    tmp_path: Path, dtype: str, shape: tuple[int | None, ...]
) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    edges = [True, False] * 2 if dtype == "bool" else np.frombuffer(b"\xff\x7f\x01\x80" * 8, kind)
    sizes = [n or -1 for n in shape]
    flat = np.array(edges, kind)[: 4 if shape else 1]
    arrays = [flat.reshape(sizes), np.ones_like(flat).reshape(sizes)]
    meaning = Array(dtype, shape)
    schema = Schema((Feature("a", "bytes", meaning=meaning),))
    payloads = [example_of(a=meaning.encode(array)) for array in arrays]
    found = [element["a"] for element in published(tmp_path, schema, payloads).to_tf()]
    for tensor, array in zip(found, arrays, strict=True):
        assert (tensor.dtype.name, tensor.shape) == (dtype, array.shape)
        assert tensor.numpy().tobytes() == array.tobytes()


def test_some_columns_are_parsed_alone(mixed: Snapshot) -> None:
    dataset = mixed.to_tf(columns=["name"])
    assert list(dataset.element_spec) == ["name"]
    assert next(iter(dataset))["name"].numpy().decode() == "größe 0"


def test_a_column_that_is_not_there_is_refused_before_anything_is_read(mixed: Snapshot) -> None:
    with raises(SchemaMismatchError, "unknown-feature", feature="y"):
        mixed.to_tf(columns=["x", "y"])
    with raises(InvalidArgumentError, "invalid-argument") as caught:
        mixed.to_tf(columns="name")
    assert "['name']" in str(caught.value.hint)
    with raises(SchemaMismatchError, "duplicate-feature", feature="x"):
        mixed.to_tf(columns=["x", "x"])
    with raises(SchemaMismatchError, "no-features"):
        mixed.to_tf(columns=[])
    with raises(InvalidArgumentError, "invalid-argument") as caught:
        mixed.to_tf(parse=False, columns=["x"])
    assert caught.value.hint is not None
    assert Option("parse", value=False) in caught.value.hint.parts
    with raises(InvalidArgumentError, "invalid-argument") as caught:
        mixed.to_tf(batch=0)
    assert "batch 0" in caught.value.message


def test_opaque_records_are_read_as_they_are_only(tmp_path: Path) -> None:
    snapshot = published(tmp_path, Schema.opaque(), [b"one", b"", b"two"])
    assert list(snapshot.to_tf(parse=False).as_numpy_iterator()) == [b"one", b"", b"two"]
    with raises(SchemaMismatchError, "opaque-records") as caught:
        snapshot.to_tf()
    assert caught.value.hint is not None
    assert Option("parse", value=False) in caught.value.hint.parts


def test_records_larger_than_a_chunk_are_read_one_by_one(tmp_path: Path) -> None:
    payloads = [bytes([n]) * 3_000_000 for n in range(4)]
    snapshot = published(tmp_path, Schema.opaque(), payloads[:3], payloads[3:])
    assert list(snapshot.to_tf(parse=False).as_numpy_iterator()) == payloads


def test_a_snapshot_of_nothing_has_no_element_of_the_same_kind(tmp_path: Path) -> None:
    version = make_version(tmp_path, FLAT, FLAT_RECORDS)
    full = version.latest()
    names = [shard.name for shard in full.shards]
    version.commit(Derive(head=1, removed=names, added=[], operation="erase"))
    empty = version.latest()
    assert empty.records == 0
    assert empty.files() == []
    assert empty.compression == ""
    for batch in (None, 8):
        dataset = empty.to_tf(batch=batch, unchecked=True)
        assert dataset.element_spec == full.to_tf(batch=batch, unchecked=True).element_spec
        assert dataset.cardinality().numpy() == 0
        assert list(dataset) == []


def test_unpublished_snapshot_raises_by_default(
    tmp_path: Path,
) -> None:
    version = make_version(tmp_path, NUMBERS, numbers(0, 5))
    for parse in (True, False):
        where = {"version": "digits/v1", "snapshot": 1}
        with raises(UnreadableSnapshotError, "snapshot-unpublished", **where) as caught:
            version.latest().to_tf(parse=parse)
        assert caught.value.hint is not None
        assert caught.value.hint.commands == (Command.of("check", "digits/v1"),)
        assert Option("unchecked", value=True) in caught.value.hint.parts
    assert xs(version.latest().to_tf(unchecked=True)) == [0, 1, 2, 3, 4]
    assert check_version(version).ok
    assert xs(version.published().to_tf()) == [0, 1, 2, 3, 4]


def test_so_is_one_that_was_published_without_a_look_at_its_bytes(tmp_path: Path) -> None:
    version = make_version(tmp_path, NUMBERS, numbers(0, 5), checks=Checks(("integrity",)))
    assert check_version(version).ok
    with raises(UnreadableSnapshotError, "check-missing", snapshot=1) as caught:
        version.published().to_tf()
    assert "'schema'" in caught.value.message
    assert xs(version.published().to_tf(unchecked=True)) == [0, 1, 2, 3, 4]


def test_a_missing_file_is_told_at_once(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS[:3])
    gone = snapshot.files()[2]
    snapshot.store.delete(snapshot.shard_name(snapshot.shards[2]))
    where = {"path": gone, "version": "digits/v1", "snapshot": 1}
    with raises(ObjectNotFoundError, "object-not-found", **where):
        snapshot.to_tf()


def test_so_is_a_file_of_another_length(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS[:3])
    path = overwrite(snapshot, 0, framed(*SHARDS[0][:-1]))
    where = {"path": path, "version": "digits/v1", "snapshot": 1}
    with raises(StorageError, "shard-mismatch", **where) as caught:
        snapshot.to_tf()
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("verify", "digits/v1@1"),)


def test_fewer_records_than_the_log_says_are_never_taken_for_all(tmp_path: Path) -> None:
    one = framed(b"", b"")
    snapshot = published(tmp_path, Schema.opaque(), [b"", b""], [b"a"])
    overwrite(snapshot, 0, framed(bytes(len(one) - 16)))
    for batch in (None, 1, 10):
        with raises(WrongShardError, "shard-mismatch"):
            list(snapshot.to_tf(parse=False, batch=batch))


def test_a_damaged_record_raises_and_ends_the_dataset(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS[:3])
    data = framed(*SHARDS[0])
    overwrite(snapshot, 0, flipped(data, 8 * (len(data) - 10)))
    with pytest.raises(tf.errors.DataLossError):
        list(snapshot.to_tf(batch=10))
