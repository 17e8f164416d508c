"""Snapshots in Arrow: types known up front, order kept, and no damage passed over."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from shardline.errors import (
    ColumnError,
    CorruptFileError,
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
)
from shardline.hints import Command
from shardline.log.append_change import Append
from shardline.schema.schema import Array, Category, Embedding, Feature, Image, Schema, Text
from tests.errors import raises
from tests.kernel.frames import framed
from tests.log.versions import source_of
from tests.readers.snapshots import (
    NUMBERS,
    make_version,
    number,
    numbers,
    overwrite,
    published,
    write_shard,
)
from tests.tfrecord.samples import ROOT, example_of, flipped, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.schema.schema import Payload

SHARDS = [numbers(0, 300), [], numbers(300, 301), numbers(301, 1500), numbers(1500, 2000)]
TYPES = {
    Feature("a", "int64"): pa.int64(),
    Feature("a", "float"): pa.float32(),
    Feature("a", "bytes"): pa.binary(),
    Feature("a", "bytes", meaning=Text()): pa.string(),
    Feature("a", "bytes", meaning=Category(("x", "y"))): pa.string(),
    Feature("a", "int64", meaning=Category(("x", "y"))): pa.int64(),
    Feature("a", "bytes", meaning=Image("png")): pa.binary(),
    Feature("a", "bytes", meaning=Array("int32", (2, 3))): pa.binary(),
    Feature("a", "float", (3,), meaning=Embedding()): pa.list_(pa.float32(), 3),
    Feature("a", "int64", (2, 3)): pa.list_(pa.list_(pa.int64(), 3), 2),
    Feature("a", "bytes", (None,), meaning=Text()): pa.list_(pa.string()),
    Feature("a", "float", (None, 3)): pa.list_(pa.list_(pa.float32(), 3)),
    Feature("a", "float", (None, 3, 2)): pa.list_(pa.list_(pa.list_(pa.float32(), 2), 3)),
    Feature("a", "int64", sequence=True): pa.list_(pa.int64()),
    Feature("a", "int64", (2,), sequence=True): pa.list_(pa.list_(pa.int64(), 2)),
    Feature("a", "bytes", (None,), sequence=True): pa.list_(pa.list_(pa.binary())),
    Feature("a", "bytes", (None, 2), sequence=True, meaning=Text()): pa.list_(
        pa.list_(pa.list_(pa.string(), 2))
    ),
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Two thousand records in shards of every compression."""
    folder = tmp_path_factory.mktemp("mixed")
    return published(folder, NUMBERS, *SHARDS, compressions=("none", "gzip", "zlib"))


@pytest.mark.parametrize("feature", TYPES, ids=str)
def test_the_type_of_each_feature_is_known_before_anything_is_read(
    tmp_path: Path, feature: Feature
) -> None:
    for required in (True, False):
        told = replace(feature, required=required)
        payload: Payload = "sequence_example" if feature.sequence else "example"
        record = sequence_of({}, a=[]) if feature.sequence else example_of(a=1)
        snapshot = make_version(
            tmp_path / str(required), Schema((told,), payload), [record]
        ).latest()
        snapshot.store.delete(snapshot.shard_name(snapshot.shards[0]))
        schema = snapshot.to_arrow().schema
        assert schema.equals(pa.schema([pa.field("a", TYPES[feature], nullable=not required)]))
        meta = json.loads(schema.field("a").metadata[b"shardline.feature"])
        assert Feature.from_dict(meta) == told


@pytest.mark.parametrize("workers", [None, 1, 2, 5])
@pytest.mark.parametrize("batch_bytes", [1, 1000, 10_000_000, None])
def test_records_of_all_shards_come_in_order(
    mixed: Snapshot, workers: int | None, batch_bytes: int | None
) -> None:
    table = mixed.to_arrow(workers=workers, batch_bytes=batch_bytes).read_all()
    table.validate(full=True)
    assert table["x"].to_pylist() == list(range(2000))
    assert table["name"].to_pylist() == [f"größe {x}" for x in range(2000)]


def test_what_is_missing_is_null(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("one", "int64", required=False),
            Feature("text", "bytes", required=False, meaning=Text()),
            Feature("grid", "float", (2, 2), required=False),
            Feature("list", "bytes", (None,), required=False),
        )
    )
    full = example_of(one=1, text=b"t", grid=[1.0, 2, 3, 4], list=[b"x", b"y"])
    table = published(tmp_path, schema, [full, example_of(), full]).to_arrow().read_all()
    row = {"one": 1, "text": "t", "grid": [[1, 2], [3, 4]], "list": [b"x", b"y"]}
    assert table.to_pylist() == [row, dict.fromkeys(row), row]


def test_chosen_columns_come_in_the_order_asked_for(mixed: Snapshot) -> None:
    assert mixed.to_arrow(["x"]).schema.names == ["x"]
    table = mixed.to_arrow(["x", "name"]).read_all()
    assert table.schema.names == ["x", "name"]
    assert table["x"].to_pylist() == list(range(2000))


def test_columns_that_cannot_be_are_refused_at_once(mixed: Snapshot, tmp_path: Path) -> None:
    with raises(SchemaMismatchError, "unknown-feature", feature="y") as unknown:
        mixed.to_arrow(["y"])
    assert all(repr(one.name) in str(unknown.value.hint) for one in mixed.schema.features)
    with raises(InvalidArgumentError, "invalid-argument") as caught:
        mixed.to_arrow("x")
    assert "['x']" in str(caught.value.hint)
    with raises(SchemaMismatchError, "no-features"):
        mixed.to_arrow([])
    with raises(InvalidArgumentError, "invalid-argument") as caught:
        mixed.to_arrow(batch_bytes=0)
    assert "batch_bytes 0" in caught.value.message
    opaque = make_version(tmp_path, Schema.opaque(), [b"a"]).latest()
    with raises(SchemaMismatchError, "opaque-records") as refused_all:
        opaque.to_arrow()
    assert "to_tf(parse=False)" in str(refused_all.value.hint)


def test_name_on_both_sides_is_two_columns(tmp_path: Path) -> None:
    schema = Schema(
        (Feature("a", "int64"), Feature("a", "int64", sequence=True)), "sequence_example"
    )
    snapshot = published(tmp_path, schema, [sequence_of({"a": 1}, a=[[2], [3]])])
    table = snapshot.to_arrow(["a"]).read_all()
    assert [column.to_pylist() for column in table.columns] == [[1], [[2, 3]]]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_damaged_record_is_named_behind_all_that_come_before_it(
    tmp_path: Path, workers: int
) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS)
    data = framed(*SHARDS[3])
    offset = len(framed(*SHARDS[3][:700]))
    path = overwrite(snapshot, 3, flipped(data, 8 * (offset + 14)))
    found: list[int] = []
    reader = snapshot.to_arrow(workers=workers, batch_bytes=1000)
    with pytest.raises(CorruptFileError) as caught:
        found.extend(x for batch in reader for x in batch["x"].to_pylist())
    error = caught.value
    assert (error.path, error.kind, error.record, error.offset) == (path, "data-crc", 700, offset)
    assert found == list(range(301 + 700))


def test_so_is_damage_in_a_packed_file(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, SHARDS[0], compressions=["gzip"])
    data = snapshot.store.read(snapshot.shard_name(snapshot.shards[0]))
    path = overwrite(snapshot, 0, flipped(data, 8 * (len(data) - 20)))
    with pytest.raises(CorruptFileError) as caught:
        snapshot.to_arrow().read_all()
    assert caught.value.path == path


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, *SHARDS)
    path = snapshot.files()[4]
    snapshot.store.delete(snapshot.shard_name(snapshot.shards[4]))
    where = {"path": path, "version": "digits/v1", "snapshot": 1}
    with raises(ObjectNotFoundError, "object-not-found", **where) as caught:
        snapshot.to_arrow().read_all()
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("verify", "digits/v1@1"),)


@pytest.mark.parametrize("told", [299, 301])
def test_record_count_differs_from_log_raises(tmp_path: Path, told: int) -> None:
    version = make_version(tmp_path, NUMBERS, numbers(0, 1))
    shard = replace(write_shard(version, "wrong", SHARDS[0]), records=told)
    version.commit(Append(shards=[shard], sources=[source_of("wrong")]))
    snapshot = version.latest()
    where = {"path": snapshot.files()[-1], "version": "digits/v1", "snapshot": 2}
    with raises(StorageError, "shard-mismatch", **where) as caught:
        snapshot.to_arrow().read_all()
    assert all(f"{count}" in caught.value.message for count in (300, told))


def test_a_file_of_another_length_is_refused_before_its_records_are_read(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, SHARDS[0])
    overwrite(snapshot, 0, framed(*SHARDS[0], number(5)))
    reader = snapshot.to_arrow()
    with raises(StorageError, "shard-mismatch", path=snapshot.files()[0], snapshot=1):
        reader.read_next_batch()


def refused(root: Path, feature: Feature, good: bytes, bad: bytes) -> ColumnError:
    """What is raised for the fifth record of a file, published or not."""
    schema = Schema((feature,), "sequence_example" if feature.sequence else "example")
    snapshot = make_version(root, schema, [*[good] * 4, bad, good]).latest()
    with pytest.raises(ColumnError) as caught:
        snapshot.to_arrow(batch_bytes=100).read_all()
    assert caught.value.path == snapshot.files()[0]
    assert (caught.value.record, caught.value.feature) == (4, "a")
    return caught.value


def test_violation_names_record_without_values(tmp_path: Path) -> None:
    text = Feature("a", "bytes", meaning=Text())
    error = refused(tmp_path / "text", text, example_of(a=b"x"), example_of(a=b"secret\xff"))
    assert error.code == "invalid-utf8"
    assert "secret" not in str(error)
    error = refused(tmp_path / "gone", Feature("a", "int64"), example_of(a=1), example_of(b=1))
    assert error.code == "missing-feature"
    error = refused(tmp_path / "kind", Feature("a", "int64"), example_of(a=1), example_of(a=b"x"))
    assert "not int64" in error.detail
    pairs = Feature("a", "int64", (None, 2))
    error = refused(tmp_path / "rows", pairs, example_of(a=[1, 2]), example_of(a=[1, 2, 3]))
    assert error.code == "length-mismatch"
    assert "3 values" in error.detail
    steps = Feature("a", "int64", (2,), sequence=True)
    error = refused(
        tmp_path / "steps",
        steps,
        sequence_of({}, a=[[1, 2], [3, 4]]),
        sequence_of({}, a=[[1, 2], [3]]),
    )
    assert error.code == "length-mismatch"
    assert "1 value in" in error.detail
    words = Feature("a", "bytes", (None,), sequence=True, meaning=Text())
    error = refused(
        tmp_path / "words",
        words,
        sequence_of({}, a=[[b"x", b"y"], []]),
        sequence_of({}, a=[[b"x"], [b"y", b"\xff"]]),
    )
    assert error.code == "invalid-utf8"


def test_a_payload_that_is_no_example_is_damage(tmp_path: Path) -> None:
    snapshot = make_version(tmp_path, NUMBERS, [*SHARDS[0], b"\xff\xff"]).latest()
    with pytest.raises(CorruptFileError) as caught:
        snapshot.to_arrow().read_all()
    error = caught.value
    assert (error.kind, error.record, error.offset) == ("example", 300, len(framed(*SHARDS[0])))


def our_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("shardline")]


def test_nothing_is_left_running_when_a_reader_is_dropped(mixed: Snapshot) -> None:
    reader = mixed.to_arrow(workers=4, batch_bytes=500)
    reader.read_next_batch()
    assert our_threads() != []
    del reader
    gc.collect()
    assert our_threads() == []


def test_a_program_ends_with_a_reader_half_read(mixed: Snapshot) -> None:
    program = """
import sys
from shardline.api import Version
reader = Version(sys.argv[1], "digits/v1").latest().to_arrow(workers=4, batch_bytes=500)
print(reader.read_next_batch().num_rows > 0)
"""
    result = subprocess.run(
        [sys.executable, "-c", program, mixed.store.uri],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=ROOT,
    )
    assert (result.stdout, result.stderr) == ("True\n", "")
