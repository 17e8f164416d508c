"""Overlays: every reader joins them with what they lie beside, and reads no more than it needs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.api import Version
from shardline.errors import (
    ColumnError,
    CorruptFileError,
    ExampleError,
    ObjectNotFoundError,
    StorageError,
    UnreadableSnapshotError,
    WrongShardError,
)
from shardline.hints import Command
from shardline.log.model import Attestation
from shardline.operations.check import check_version
from shardline.readers.records import list_records
from shardline.schema.schema import Feature, Schema, Text
from shardline.tfrecord.reader import DEFAULT_LIMITS
from tests.errors import raises
from tests.kernel.examples import example
from tests.kernel.frames import framed
from tests.kernel.parsers import read_by_protobuf
from tests.log.schemas import Content, records, schemas
from tests.readers.forms import expected_of, in_arrow, in_tensorflow, plain
from tests.readers.overlays import (
    SCORE,
    SIZES,
    checked,
    extended,
    lay,
    mixed,
    score,
    scored,
    tagged,
    tags,
    whole,
)
from tests.readers.readings import arrow_records, batched_records, pandas_records, single_records
from tests.readers.snapshots import NUMBERS, number, numbers, published
from tests.sampling import drawn
from tests.tfrecord.samples import example_of, flipped, sequence_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from shardline.api import Snapshot

COMPRESSIONS = ("none", "gzip", "zlib")


def part_of(content: Content, keys: set[tuple[bool, str]]) -> Content:
    """Some features of a record."""
    return Content(
        {name: told for name, told in content.context.items() if (False, name) in keys},
        {name: told for name, told in content.lists.items() if (True, name) in keys},
    )


def by_our_reader(snapshot: Snapshot, block_bytes: int = 1 << 20) -> list[bytes]:
    """Every whole record, by the reader that joins layers itself."""
    return [
        bytes(payload)
        for one in list_records(snapshot)
        for block in one.blocks(limits=DEFAULT_LIMITS, block_bytes=block_bytes)
        for payload in block.payloads()
    ]


def layer_files(snapshot: Snapshot) -> list[Path]:
    """The files of the layers of its last shard, the lowest first."""
    return [Path(file.path) for file in list_records(snapshot)[-1].files]


@pytest.mark.sweep
@settings(max_examples=drawn(12))
@given(st.data())
def test_every_reader_gives_what_was_written_in_layers(data: st.DataObject) -> None:
    schema = data.draw(schemas().filter(lambda schema: len(schema.features) > 1))
    contents = data.draw(st.lists(records(schema), min_size=1, max_size=7))
    cut = data.draw(st.integers(0, len(contents)))
    shards = contents[:cut], contents[cut:]
    features = data.draw(st.permutations(schema.features))
    ends = data.draw(st.sets(st.integers(1, len(features) - 1), min_size=1, max_size=2))
    cuts = [0, *sorted(ends), len(features)]
    with TemporaryDirectory() as root:
        snapshot = None
        for layer, (first, last) in enumerate(pairwise(cuts), 1):
            declared = Schema(tuple(features[:last]), schema.payload)
            keys = {feature.key for feature in features[first:last]}
            payloads = [[part_of(one, keys).payload() for one in part] for part in shards]
            packed = data.draw(st.permutations(COMPRESSIONS))
            if snapshot is None:
                snapshot = published(root, declared, *payloads, compressions=packed)
            else:
                version = lay(
                    snapshot, f"digits/v{layer}", declared, *payloads, compressions=packed
                )
                snapshot = checked(version)
        assert snapshot is not None
        in_tf = expected_of(schema, contents, in_tensorflow)
        assert single_records(snapshot) == in_tf
        assert batched_records(snapshot, data.draw(st.integers(1, 4))) == in_tf
        in_columns = expected_of(schema, contents, in_arrow)
        assert arrow_records(snapshot) == in_columns
        payloads_of = [read_by_protobuf(one.payload()) for one in contents]
        raw = list(snapshot.to_tf(parse=False).as_numpy_iterator())
        assert [read_by_protobuf(payload) for payload in raw] == payloads_of
        ours = by_our_reader(snapshot, data.draw(st.sampled_from([64, 1 << 20])))
        assert [read_by_protobuf(payload) for payload in ours] == payloads_of
        for row in in_columns:
            for feature in schema.features:
                if (feature.kind, feature.shape, feature.sequence) == ("float", (), False):
                    row[feature.key] = None if row[feature.key] == "nan" else row[feature.key]
        assert pandas_records(snapshot) == in_columns


@pytest.mark.parametrize("root", ["disk", "memory://layers"])
@pytest.mark.parametrize("compressions", [("none",), ("gzip", "none"), COMPRESSIONS])
def test_stacked_overlays_are_one_record_to_every_reader(
    tmp_path: Path, root: str, compressions: tuple[str, ...]
) -> None:
    place = str(tmp_path) if root == "disk" else f"{root}-{len(compressions)}"
    snapshot = tagged(place, compressions=compressions)
    expected = [
        {
            "x": x,
            "name": f"größe {x}".encode(),
            "score": x / 4,
            "tags": [b"tag %d" % n for n in range(x % 3 + 1)],
        }
        for x in range(sum(SIZES))
    ]
    for interleave in (False, True):
        dataset = snapshot.to_tf(interleave=interleave, deterministic=True)
        assert dataset.cardinality().numpy() == len(expected)
        found = [{k: np.asarray(v).tolist() for k, v in one.items()} for one in dataset]
        assert sorted(found, key=lambda one: one["x"]) == expected
    batched = snapshot.to_tf(batch=4)
    assert batched.cardinality().numpy() == 3
    assert [one["tags"].to_list() for one in batched] == [
        [one["tags"] for one in expected[first : first + 4]] for first in (0, 4, 8)
    ]
    assert by_our_reader(snapshot) == [in_one_message(x) for x in range(9)]
    table = snapshot.to_arrow().read_all()
    assert table["score"].to_pylist() == [one["score"] for one in expected]
    assert table["x"].to_pylist() == [one["x"] for one in expected]
    frames = list(snapshot.to_pandas(["tags", "name"]))
    assert [name for frame in frames for name in frame["name"]] == [f"größe {x}" for x in range(9)]


def in_one_message(x: int) -> bytes:
    """Record `x` of digits/v3, what its layers hold behind each other in a single message."""
    return example(*(payload[2:] for payload in (number(x), score(x), tags(x))))


def test_shards_of_different_depths_are_read_together(tmp_path: Path) -> None:
    snapshot = mixed(tmp_path)
    assert {len(one.files) for one in list_records(snapshot)} == {1, 2, 3}
    every = list(range(20))
    for options in ({}, {"batch": 3}, {"interleave": True}, {"interleave": True, "batch": 6}):
        dataset = snapshot.to_tf(**options)
        found = [one for part in dataset for one in np.atleast_1d(part["x"].numpy()).tolist()]
        assert sorted(found) == every
        assert found == every or options.get("interleave")
        scores = [one for part in dataset for one in np.atleast_1d(part["score"].numpy()).tolist()]
        assert sorted(scores) == [x / 4 for x in every]
    raw = list(snapshot.to_tf(parse=False).as_numpy_iterator())
    assert [read_by_protobuf(one) for one in raw] == [read_by_protobuf(whole(x)) for x in every]
    assert snapshot.to_arrow(["tags", "x"]).read_all()["x"].to_pylist() == every


def test_a_deterministic_interleave_gives_the_same_order_each_time(tmp_path: Path) -> None:
    snapshot = mixed(tmp_path)
    dataset = snapshot.to_tf(parse=False, interleave=True, deterministic=True)
    first = list(dataset.as_numpy_iterator())
    assert first == list(dataset.as_numpy_iterator())
    assert len(set(first)) == 20


@pytest.mark.parametrize(
    ("columns", "needed"),
    [
        (["x"], [0]),
        (["score"], [1]),
        (["tags"], [2]),
        (["x", "name"], [0]),
        (["tags", "x"], [0, 2]),
        (["score", "tags"], [1, 2]),
    ],
)
def test_only_the_layers_that_hold_what_is_asked_for_are_opened(
    tmp_path: Path, columns: list[str], needed: list[int]
) -> None:
    snapshot = tagged(tmp_path)
    assert snapshot.shards
    whole_table = snapshot.to_arrow(columns).read_all()
    layers = [[Path(file.path) for file in one.files] for one in list_records(snapshot)]
    for files in layers:
        for place, file in enumerate(files):
            if place not in needed:
                file.unlink()
    assert snapshot.to_arrow(columns).read_all() == whole_table
    frames = snapshot.to_pandas(columns)
    assert sum(len(frame) for frame in frames) == 9
    found = [np.asarray(one[columns[0]]).tolist() for one in snapshot.to_tf(columns=columns)]
    assert found == [row if columns[0] != "name" else row.encode() for row in _plain(whole_table)]
    assert snapshot.take([8, 0], columns).to_pylist() == whole_table.take([8, 0]).to_pylist()
    with pytest.raises(ObjectNotFoundError):
        snapshot.to_arrow().read_all()


def _plain(table: pa.Table) -> list[Any]:
    rows = table.column(0).to_pylist()
    return [[one.encode() for one in row] if isinstance(row, list) else row for row in rows]


def test_without_overlays_no_log_is_opened(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, numbers(0, 3))
    assert len(snapshot.shards) == 1
    for entry in (tmp_path / "digits" / "v1" / "log").iterdir():
        entry.unlink()
    assert snapshot.to_arrow().read_all().num_rows == 3


def test_damage_is_told_of_the_layer_that_has_it(tmp_path: Path) -> None:
    snapshot = tagged(tmp_path)
    for place, payloads in enumerate(([number(8)], [score(8)], [tags(8)])):
        path = layer_files(snapshot)[place]
        sound = path.read_bytes()
        offset = len(sound) - len(framed(*payloads))
        path.write_bytes(flipped(sound, 8 * (offset + 14)))
        with pytest.raises(CorruptFileError) as caught:
            snapshot.to_arrow().read_all()
        error = caught.value
        assert (error.path, error.record, error.offset) == (str(path), 4, offset)
        where = {"path": str(path), "version": "digits/v3", "snapshot": 1}
        with raises(CorruptFileError, "corrupt-file", **where) as caught:
            snapshot.take([8])
        assert (caught.value.record, caught.value.offset) == (4, offset)
        path.write_bytes(sound)
    assert snapshot.to_arrow().read_all().num_rows == 9


def test_so_is_a_payload_that_is_no_example(tmp_path: Path) -> None:
    snapshot = unchecked_scores(tmp_path, [score(0), score(1)[:-1], score(2)])
    path = layer_files(snapshot)[-1]
    with pytest.raises(CorruptFileError) as caught:
        snapshot.to_arrow().read_all()
    error = caught.value
    assert (error.path, error.kind, error.record) == (str(path), "example", 1)
    assert error.offset == len(framed(score(0)))
    with raises(ExampleError, "invalid-example", record=1, path=str(path)):
        snapshot.take([0, 1])


def unchecked_scores(root: Path, payloads: list[bytes], count: int = 3) -> Snapshot:
    """Three numbers, and beside them these records, at which no check has looked."""
    base = published(root, NUMBERS, numbers(0, count))
    return lay(base, "digits/v2", extended(NUMBERS, SCORE), payloads).latest()


@pytest.mark.parametrize("name", ["x", "other"])
def test_a_feature_that_is_not_the_layers_own_is_never_joined(tmp_path: Path, name: str) -> None:
    bad = example_of(score=0.5, **{name: 7})
    snapshot = unchecked_scores(tmp_path, [score(0), score(1), bad])
    path = str(layer_files(snapshot)[-1])
    readers: list[Callable[[], Any]] = [snapshot.to_arrow().read_all, lambda: snapshot.take([2])]
    for read in readers:
        with pytest.raises(ColumnError) as caught:
            read()
        error = caught.value
        assert (error.record, error.feature, error.path) == (2, name, path)
        assert "schema" in error.detail


def file_of(name: str, count: int, size: int) -> bytes:
    """A file of so many records and so many bytes."""
    first = framed(*[example_of(**{name: b""})] * (count - 1))
    room = size - len(first)
    padded = (framed(example_of(**{name: bytes(room - n)})) for n in range(16, 64))
    return first + next(data for data in padded if len(data) == room)


@pytest.mark.parametrize("size", [90, 600_000])
@pytest.mark.parametrize("records", [1, 3, 4])
@pytest.mark.parametrize("layer", [0, 1])
def test_layer_count_differs_from_log_raises(
    tmp_path: Path, layer: int, records: int, size: int
) -> None:
    fillers = Feature("a", "bytes"), Feature("b", "bytes")
    payloads = [[example_of(**{one.name: bytes(size)})] * 2 for one in fillers]
    base = published(tmp_path, Schema(fillers[:1]), payloads[0])
    snapshot = checked(lay(base, "digits/v2", Schema(fillers), payloads[1]))
    path = layer_files(snapshot)[layer]
    path.write_bytes(file_of(fillers[layer].name, records, path.stat().st_size))
    with raises(WrongShardError, "shard-mismatch", path=str(path), snapshot=1):
        snapshot.to_arrow().read_all()
    for batch in (None, 1, 2):
        with raises(WrongShardError, "shard-mismatch", path=str(path), snapshot=1):
            snapshot.to_tf(batch=batch)


def test_a_file_that_is_not_there_or_cut_is_told_at_once(tmp_path: Path) -> None:
    for place in (0, 1, 2):
        snapshot = tagged(tmp_path / str(place))
        path = layer_files(snapshot)[place]
        path.write_bytes(path.read_bytes()[:-1])
        where = {"path": str(path), "version": "digits/v3", "snapshot": 1}
        with raises(StorageError, "shard-mismatch", **where):
            snapshot.to_tf()
        path.unlink()
        with raises(ObjectNotFoundError, "object-not-found", **where):
            snapshot.to_tf()


def test_a_base_that_has_not_passed_its_checks_is_kept_from_tensorflow(tmp_path: Path) -> None:
    snapshot = scored(tmp_path)
    below = Version(tmp_path, "digits/v1")
    name = below.latest().shards[0].name
    below.attest([Attestation("integrity", passed=False, shards=(name,), detail="rot")])
    where = {"path": f"digits/shards/{name}", "version": "digits/v2", "snapshot": 1}
    with raises(UnreadableSnapshotError, "check-failed", **where) as caught:
        snapshot.to_tf()
    assert "'integrity'" in caught.value.message
    assert caught.value.hint is not None
    assert Command.of("repair", "digits/v1") in caught.value.hint.commands
    assert len(list(snapshot.to_tf(columns=["score"]))) == 9, "for that it is not read"
    assert len(list(snapshot.to_tf(unchecked=True))) == 9
    assert check_version(below, recheck=True).ok
    assert len(list(snapshot.to_tf())) == 9


def test_the_feature_lists_of_sequence_examples_are_joined_too(tmp_path: Path) -> None:
    places = Feature("place", "float", (2,), sequence=True)
    steps = Feature("steps", "int64", (None,), sequence=True)
    walker, speed = Feature("walker", "bytes", meaning=Text()), Feature("speed", "float")
    base = published(
        tmp_path,
        Schema((walker, places), "sequence_example"),
        [
            sequence_of({"walker": b"ann"}, place=[[0.0, 1.0], [2.0, 3.0]]),
            sequence_of({"walker": b"bo"}, place=[[4.0, 5.0]]),
        ],
        compressions=["gzip"],
    )
    first = Schema((walker, places, speed), "sequence_example")
    snapshot = checked(
        lay(base, "digits/v2", first, [sequence_of({"speed": 1.5}), sequence_of({"speed": 2.5})])
    )
    both = Schema((walker, places, speed, steps), "sequence_example")
    last = [sequence_of({}, steps=[[1, 2], []]), sequence_of({}, steps=[])]
    snapshot = checked(lay(snapshot, "digits/v3", both, last))
    found = [
        ({k: plain(v) for k, v in context.items()}, {k: plain(v) for k, v in lists.items()})
        for context, lists in snapshot.to_tf()
    ]
    assert found == [
        (
            {"walker": b"ann", "speed": "1.5"},
            {"place": [["0.0", "1.0"], ["2.0", "3.0"]], "steps": [[1, 2], []]},
        ),
        ({"walker": b"bo", "speed": "2.5"}, {"place": [["4.0", "5.0"]], "steps": []}),
    ]
    rows = snapshot.to_arrow().read_all().to_pylist()
    assert [row["steps"] for row in rows] == [[[1, 2], []], []]
    assert [row["speed"] for row in rows] == [1.5, 2.5]
    raw = list(snapshot.to_tf(parse=False).as_numpy_iterator())
    assert list(map(read_by_protobuf, raw)) == list(map(read_by_protobuf, by_our_reader(snapshot)))


def test_large_records_are_joined_across_blocks_that_do_not_match(tmp_path: Path) -> None:
    filler = Feature("a", "bytes")
    sizes = [n * 7919 % 60_000 for n in range(60)]
    payloads = [example_of(a=bytes(size)) for size in sizes]
    base = published(tmp_path, Schema((filler,)), payloads)
    snapshot = checked(
        lay(base, "digits/v2", extended(base.schema, SCORE), [score(x) for x in range(60)])
    )
    for size in (1000, 50_000, 1 << 20):
        table = snapshot.to_arrow(batch_bytes=size).read_all()
        assert [len(one) for one in table["a"].to_pylist()] == sizes
        assert table["score"].to_pylist() == [x / 4 for x in range(60)]
    (one,) = list_records(snapshot)
    blocks = list(one.blocks(limits=DEFAULT_LIMITS, block_bytes=100_000))
    assert len(blocks) > 5
    assert [block.record for block in blocks] == list(
        np.cumsum([0, *(len(block.starts) for block in blocks)])[:-1]
    )
    data = b"".join(bytes(block.data) for block in blocks)
    assert [block.offset for block in blocks] == list(
        np.cumsum([0, *(len(block.data) for block in blocks)])[:-1]
    )
    path = tmp_path / "joined.tfrecord"
    path.write_bytes(data)
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == by_our_reader(snapshot)
