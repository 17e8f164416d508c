"""Tables to Examples and back: nothing changed on the way, and TensorFlow reads the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from shardline.errors import ColumnError, CorruptFileError
from shardline.kernel.types import Column
from shardline.operations.example_file import read_examples, write_examples
from shardline.operations.verify_files import verify_file
from shardline.schema.file_schema import feature_spec, infer_schema
from tests.kernel.frames import framed
from tests.tfrecord.samples import (
    bulk_needs_the_compiled_kernel,
    example_of,
    flipped,
    made,
    read_by_tensorflow,
    records_of,
)

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "label": pa.array([1, None, -(2**63), 2**63 - 1], pa.int64()),
        "score": pa.array([0.5, -1.5, None, float("inf")], pa.float32()),
        "name": pa.array([b"cat", b"", None, b"\xff\xfe"], pa.binary()),
        "box": pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int64(), 2)),
        "tags": pa.array([[b"a"], [], None, [b"b", b"", b"c"]], pa.list_(pa.binary())),
        "floats": pa.array([[1.5], None, [], [2.5, 3.5]], pa.list_(pa.float32())),
    }
)
COLUMNS = [
    Column("label", "int64"),
    Column("score", "float"),
    Column("name", "bytes"),
    Column("box", "int64", "fixed", 2),
    Column("tags", "bytes", "variable"),
    Column("floats", "float", "variable"),
]
STEPS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "tokens": pa.array([[[1, 2], [3]], [], None, [[], [4]]], pa.list_(pa.list_(pa.int64()))),
        "words": pa.array([[[b"x"]], [[b"", b"y"]], [], [[]]], pa.list_(pa.list_(pa.binary()))),
    }
)
STEP_COLUMNS = [
    Column("id", "int64"),
    Column("tokens", "int64", "ragged"),
    Column("words", "bytes", "ragged"),
]


def read(path: Path, columns: list[Column]) -> pa.Table:
    return pa.Table.from_batches(list(read_examples(path, columns)))


def journey(path: Path, array: pa.Array, column: Column) -> list[object]:
    """One column written and read back."""
    write_examples(path, pa.table({column.name: array}), overwrite=True)
    assert verify_file(path, examples=True).ok
    return list(read(path, [column])[column.name].to_pylist())


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_a_table_comes_back_as_it_went(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a"
    assert write_examples(path, TABLE, compression=compression) == 4
    back = read(path, COLUMNS)
    assert back.equals(TABLE)
    assert verify_file(path, examples=True).ok


def test_so_does_one_of_feature_lists(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert write_examples(path, STEPS) == 4
    assert read(path, STEP_COLUMNS).equals(STEPS)


def test_tensorflow_reads_the_same_table(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_examples(path, TABLE)
    spec = {
        "label": tf.io.RaggedFeature(tf.int64),
        "score": tf.io.RaggedFeature(tf.float32),
        "name": tf.io.RaggedFeature(tf.string),
        "box": tf.io.RaggedFeature(tf.int64),
        "tags": tf.io.RaggedFeature(tf.string),
        "floats": tf.io.RaggedFeature(tf.float32),
    }
    parsed = tf.io.parse_example(read_by_tensorflow(path), spec)
    assert parsed["label"].to_list() == [[1], [], [-(2**63)], [2**63 - 1]]
    assert parsed["score"].to_list() == [[0.5], [-1.5], [], [float("inf")]]
    assert parsed["name"].to_list() == [[b"cat"], [b""], [], [b"\xff\xfe"]]
    assert parsed["box"].to_list() == [[1, 2], [3, 4], [], [5, 6]]
    assert parsed["tags"].to_list() == [[b"a"], [], [], [b"b", b"", b"c"]]
    assert parsed["floats"].to_list() == [[1.5], [], [], [2.5, 3.5]]


def test_protobuf_reads_the_same_feature_lists(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_examples(path, STEPS)
    messages = [tf.train.SequenceExample.FromString(data) for data in records_of(path)]
    tokens = [
        [list(step.int64_list.value) for step in m.feature_lists.feature_list["tokens"].feature]
        for m in messages
    ]
    assert tokens == [[[1, 2], [3]], [], [], [[], [4]]]
    assert "tokens" not in messages[2].feature_lists.feature_list or tokens[2] == []
    assert [m.context.feature["id"].int64_list.value[0] for m in messages] == [1, 2, 3, 4]


def test_written_examples_parse_by_spec(tmp_path: Path) -> None:
    path = tmp_path / "a"
    table = pa.table(
        {"x": pa.array([1, 2]), "y": pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32()))}
    )
    write_examples(path, table)
    names: dict[str, object] = {"tf": tf}
    exec(feature_spec(infer_schema([path]).merged), names)  # noqa: S102 - our own text
    parsed = tf.io.parse_example(read_by_tensorflow(path), names["features"])
    assert parsed["x"].numpy().tolist() == [1, 2]
    assert parsed["y"].numpy().tolist() == [[1.0, 2.0]] * 2


def test_written_bytes_match_protobuf(
    tmp_path: Path,
) -> None:
    rows = pa.table({"b": [b"x", b"y"], "a": pa.array([1, 2])})
    write_examples(tmp_path / "one", rows)
    write_examples(tmp_path / "two", rows.select(["a", "b"]))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert records_of(tmp_path / "one") == [example_of(a=1, b=b"x"), example_of(a=2, b=b"y")]


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("count", range(5))
def test_write_slice_writes_its_rows(tmp_path: Path, first: int, count: int) -> None:
    part = TABLE.slice(first, count)
    write_examples(tmp_path / "a", part)
    if part.num_rows:
        assert read(tmp_path / "a", COLUMNS).equals(part.combine_chunks())
    steps = STEPS.slice(first, count)
    write_examples(tmp_path / "b", steps)
    if steps.num_rows:
        assert read(tmp_path / "b", STEP_COLUMNS).equals(steps.combine_chunks())


SAME_KIND = {
    "int8": (pa.array([-128, None, 127], pa.int8()), Column("x", "int64"), [-128, None, 127]),
    "uint32": (pa.array([0, 2**32 - 1], pa.uint32()), Column("x", "int64"), [0, 2**32 - 1]),
    "uint64": (pa.array([0, 2**63 - 1], pa.uint64()), Column("x", "int64"), [0, 2**63 - 1]),
    "bool": (pa.array([True, None, False]), Column("x", "int64"), [1, None, 0]),
    "half": (pa.array(np.array([1.5, -2], np.float16)), Column("x", "float"), [1.5, -2.0]),
    "double": (pa.array([0.1, None, -1e300 * 0], pa.float64()), Column("x", "float"),
               [float(np.float32(0.1)), None, 0.0]),
    "string": (pa.array(["größe", None, ""]), Column("x", "bytes"), ["größe".encode(), None, b""]),
    "large string": (pa.array(["a", "b"], pa.large_string()), Column("x", "bytes"), [b"a", b"b"]),
    "large binary": (pa.array([b"a", None], pa.large_binary()), Column("x", "bytes"), [b"a", None]),
    "fixed binary": (pa.array([b"ab", None, b"cd"], pa.binary(2)), Column("x", "bytes"),
                     [b"ab", None, b"cd"]),
    "dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), Column("x", "bytes"),
                   [b"a", b"b", None, b"a"]),
    "list of dictionary": (
        pa.ListArray.from_arrays([0, 2, 3], pa.array(["a", "b", "a"]).dictionary_encode()),
        Column("x", "bytes", "variable"), [[b"a", b"b"], [b"a"]]),
    "large list": (pa.array([[1], None, [2, 3]], pa.large_list(pa.int64())),
                   Column("x", "int64", "variable"), [[1], None, [2, 3]]),
    "fixed list with a null row": (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
                                   Column("x", "int64", "fixed", 2), [[1, 2], None]),
    "fixed list of nothing": (pa.array([[], []], pa.list_(pa.int64(), 0)),
                              Column("x", "int64", "variable"), [[], []]),
    "lists in a fixed list": (pa.array([[[1], [2, 3]], None], pa.list_(pa.list_(pa.int64()), 2)),
                              Column("x", "int64", "ragged"), [[[1], [2, 3]], None]),
    "all null": (pa.array([None, None], pa.int64()), Column("x", "int64"), [None, None]),
    "of type null": (pa.nulls(2), Column("x", "bytes"), [None, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_KIND)
def test_write_each_arrow_type(tmp_path: Path, name: str) -> None:
    array, column, expected = SAME_KIND[name]
    assert journey(tmp_path / "a", array, column) == expected
    assert journey(tmp_path / "a", array.slice(1), column) == expected[1:]


REFUSED = {
    "uint64 over 63 bits": (pa.array([1, None, 2**63], pa.uint64()), 2),
    "in a list": (pa.array([[1], [], [5, 2**64 - 1]], pa.list_(pa.uint64())), 2),
    "double over float32": (pa.array([1.0, 1e39], pa.float64()), 1),
    "double in a list": (pa.array([[1.0, 2.0], [3.0], [-1e39]], pa.list_(pa.float64())), 2),
    "null in a list": (pa.array([[1], [2, None], [3]]), 1),
    "null in a fixed list": (pa.array([[1, 2], [2, None]], pa.list_(pa.int64(), 2)), 1),
    "null step": (pa.array([[[1]], [[2], None]]), 1),
    "null in a step": (pa.array([[[1]], [[2], [None]]]), 1),
    "timestamps": (pa.array([0, 1], pa.timestamp("s")), 0),
    "decimals": (pa.array([0, 1], pa.decimal128(5)), 0),
    "structs": (pa.array([{"a": 1}]), 0),
    "three levels of lists": (pa.array([[[[1]]]]), 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_write_invalid_value_raises_with_record(tmp_path: Path, name: str) -> None:
    array, record = REFUSED[name]
    path = tmp_path / "a"
    with pytest.raises(ColumnError) as caught:
        write_examples(path, {"other": pa.array([0] * len(array)), "x": array})
    assert (caught.value.feature, caught.value.record) == ("x", record)
    assert list(tmp_path.iterdir()) == []


def test_write_ignores_values_outside_slice(tmp_path: Path) -> None:
    for array, expected in (
        (pa.array([[2**63], [1]], pa.list_(pa.uint64())), [[1]]),
        (pa.array([[None], [1]], pa.list_(pa.int64())), [[1]]),
        (pa.array([[None, 3], [1, 2]], pa.list_(pa.int64(), 2)), [[1, 2]]),
        (pa.array([2**63, 1], pa.uint64()), [1]),
    ):
        layout = {True: "variable", False: "scalar"}[pa.types.is_nested(array.type)]
        column = Column("x", "int64", layout)  # type: ignore[arg-type]
        assert journey(tmp_path / "a", array.slice(1), column) == expected


def test_error_counts_records_of_whole_table(tmp_path: Path) -> None:
    values = [1.0] * 20_000
    values[19_000] = 1e39
    with pytest.raises(ColumnError) as caught:
        write_examples(tmp_path / "a", {"x": pa.array(values, pa.float64())})
    assert caught.value.record == 19_000


def test_infinity_and_nan_round_trip(tmp_path: Path) -> None:
    array = pa.array([float("inf"), float("-inf"), float("nan")], pa.float64())
    back = journey(tmp_path / "a", array, Column("x", "float"))
    assert back[:2] == [float("inf"), float("-inf")]
    assert back[2] != back[2]


@bulk_needs_the_compiled_kernel
def test_read_many_rows_in_order(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(range(50_000)), "y": pa.array([bytes(200)] * 50_000)})
    write_examples(tmp_path / "a", table)
    batches = list(read_examples(tmp_path / "a", [Column("x", "int64")]))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches)["x"].to_pylist() == list(range(50_000))


def test_columns_of_python_lists_are_taken_too(tmp_path: Path) -> None:
    write_examples(tmp_path / "a", {"x": [1, 2], "y": ["a", "b"]})
    assert records_of(tmp_path / "a") == [example_of(x=1, y=b"a"), example_of(x=2, y=b"b")]


def test_read_mismatch_raises_with_file_and_record(
    tmp_path: Path,
) -> None:
    path = made(tmp_path / "a", framed(example_of(x=1), example_of(x=1.5), example_of(x=[1, 2])))
    for column, record in (
        (Column("x", "int64"), 1),
        (Column("x", "bytes"), 0),
        (Column("x", "int64", "fixed", 2), 0),
    ):
        with pytest.raises(ColumnError) as caught:
            list(read_examples(path, [column]))
        assert (caught.value.record, caught.value.feature) == (record, "x")
        assert str(path) in str(caught.value)


def test_read_corrupt_record_raises_with_position(tmp_path: Path) -> None:
    data = framed(example_of(x=1), b"\x08own bytes", example_of(x=2))
    second = len(framed(example_of(x=1)))
    with pytest.raises(CorruptFileError) as caught:
        list(read_examples(made(tmp_path / "a", data), [Column("x", "int64")]))
    assert (caught.value.kind, caught.value.record, caught.value.offset) == ("example", 1, second)
    with pytest.raises(CorruptFileError) as caught:
        list(read_examples(made(tmp_path / "a", flipped(data, 0)), [Column("x", "int64")]))
    assert (caught.value.kind, caught.value.record, caught.value.offset) == ("length-crc", 0, 0)


def test_write_existing_file_needs_overwrite(tmp_path: Path) -> None:
    path = made(tmp_path / "a", b"precious")
    with pytest.raises(FileExistsError):
        write_examples(path, {"x": [1]})
    assert path.read_bytes() == b"precious"
    assert write_examples(path, {"x": [1]}, overwrite=True) == 1


def test_write_empty_table_gives_empty_file(tmp_path: Path) -> None:
    assert write_examples(tmp_path / "a", pa.table({"x": pa.array([], pa.int64())})) == 0
    assert (tmp_path / "a").read_bytes() == b""
    assert list(read_examples(tmp_path / "a", [Column("x", "int64")])) == []
