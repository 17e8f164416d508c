"""The same table comes out of every source, and TensorFlow reads what was made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from shardline.schema.schema import Feature, Schema
from shardline.sources import open_source
from tests.sources.reading import floats, read_back, take
from tests.sources.tables import ROWS, SCHEMA, SOURCES, columns

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def from_numpy() -> bytes:
    return take(open_source(columns(), batch="b"), SCHEMA).data


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_records(tmp_path: Path, name: str, from_numpy: bytes) -> None:
    taken = take(SOURCES[name](tmp_path), SCHEMA)
    assert taken.refused == []
    assert taken.rows == list(range(ROWS))
    assert taken.ends[-1] == ROWS
    if not name.startswith("TFRecord"):  # whose bytes stay as they are: protobuf orders otherwise
        assert taken.data == from_numpy
    assert read_back(tmp_path, SCHEMA, taken.data) == read_back(tmp_path, SCHEMA, from_numpy)


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_begins_where_it_is_told_to(tmp_path: Path, name: str) -> None:
    whole = take(SOURCES[name](tmp_path), SCHEMA)
    for start in (1, 19, 20, 33, ROWS - 1, ROWS, ROWS + 5):
        part = take(SOURCES[name](tmp_path), SCHEMA, start)
        assert part.payloads == whole.payloads[start:], start
        assert part.rows == whole.rows[start:]


def test_tensorflow_reads_the_values_of_the_table(tmp_path: Path, from_numpy: bytes) -> None:
    arrays = columns()
    found = read_back(tmp_path, SCHEMA, from_numpy)
    assert found["id"] == [[value] for value in arrays["id"].tolist()]
    assert found["grid"] == arrays["grid"].reshape(ROWS, 6).tolist()
    assert found["image"] == [[value] for value in arrays["image"].tolist()]
    assert found["name"] == [[value.encode()] for value in arrays["name"].tolist()]
    assert found["raw"] == [[value.tobytes()] for value in arrays["raw"]]
    assert found["ratio"] == [floats(value) for value in arrays["ratio"]]


@pytest.mark.parametrize("name", SOURCES)
def test_how_much_was_read_grows_up_to_the_size(tmp_path: Path, name: str) -> None:
    source = SOURCES[name](tmp_path)
    taken = take(source, SCHEMA)
    assert taken.positions == sorted(taken.positions)
    if source.size is not None:
        assert 0 < taken.positions[-1] <= source.size


SEQUENCE = Schema(
    (
        Feature("id", "int64"),
        Feature("words", "bytes", (None,), sequence=True),
        Feature("marks", "int64", sequence=True, required=False),
        Feature("boxes", "float", (2, 2), sequence=True, required=False),
    ),
    "sequence_example",
)
SEQUENCE_ROWS = [
    {"id": 1, "words": [["a", "b"], []], "marks": [1, 2], "boxes": [[[1, 2], [3, 4]]]},
    {"id": 2, "words": [], "marks": [], "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]]},
    {"id": 3, "words": [["größe"]], "marks": None},
]


def test_steps_become_sequence_examples(tmp_path: Path) -> None:
    taken = take(open_source(SEQUENCE_ROWS, batch="b"), SEQUENCE)
    assert taken.refused == []
    found = read_back(tmp_path, SEQUENCE, taken.data)
    assert found["words"] == [[[b"a", b"b"], []], [], [["größe".encode()]]]
    assert found["marks"] == [[[1], [2]], [], None]
    assert found["boxes"] == [[[1, 2, 3, 4]], [[1, 2, 3, 4], [5, 6, 7, 8]], None]


def test_steps_come_from_arrow_and_ragged_tensors_too() -> None:
    schema = Schema(
        (Feature("w", "bytes", (None,), sequence=True), Feature("n", "int64", (None,))),
        "sequence_example",
    )
    rows: list[dict[str, Any]] = [
        {"w": [["a"], ["b", "c"]], "n": [1, 2]},
        {"w": [[]], "n": []},
        {"w": [], "n": [3]},
    ]
    wanted = take(open_source(rows, batch="b"), schema).data
    by_column = {name: [row[name] for row in rows] for name in ("w", "n")}
    assert take(open_source(pa.table(by_column), batch="b"), schema).data == wanted
    ragged = {
        "w": tf.ragged.constant(by_column["w"], dtype=tf.string, ragged_rank=2),
        "n": tf.ragged.constant(by_column["n"], dtype=tf.int64, ragged_rank=1),
    }
    dataset = tf.data.Dataset.from_tensor_slices(ragged)
    assert take(open_source(dataset, batch="b"), schema).data == wanted


def test_tensors_whose_length_varies_become_lists() -> None:
    dataset = tf.data.Dataset.range(5).map(lambda n: {"n": tf.range(n), "s": tf.fill([n], "x")})
    schema = Schema((Feature("n", "int64", (None,)), Feature("s", "bytes", (None,))))
    rows = [{"n": list(range(n)), "s": ["x"] * n} for n in range(5)]
    wanted = take(open_source(rows, batch="b"), schema).data
    assert take(open_source(dataset, batch="b"), schema).data == wanted


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "int32", "uint64", "bool", "float16", "float64", ">i4", ">f8"]
)
def test_arrays_of_any_number_type_are_taken(tmp_path: Path, dtype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    kind = "float" if array.dtype.kind == "f" else "int64"
    schema = Schema((Feature("a", kind, (3,)),))  # type: ignore[arg-type]
    taken = take(open_source({"a": array}, batch="b"), schema)
    assert read_back(tmp_path, schema, taken.data) == {"a": [[0, 1, 1], [1, 0, 1]]}


def test_empty_sources_give_nothing(tmp_path: Path) -> None:
    schema = Schema((Feature("a", "int64"),))
    (tmp_path / "folder").mkdir()
    for name, content in (
        ("a.jsonl", b""),
        ("b.jsonl", b"\n\n"),
        ("c.csv", b""),
        ("d.csv", b"a\n"),
    ):
        (tmp_path / name).write_bytes(content)
        assert take(open_source(tmp_path / name), schema).data == b""
    (tmp_path / "a.tfrecord").write_bytes(b"")
    images = Schema((Feature("image", "bytes"),))
    assert take(open_source(tmp_path / "a.tfrecord"), schema).data == b""
    assert take(open_source(tmp_path / "folder"), images).data == b""
    nothing = pa.table({"a": pa.array([], pa.int64())})
    arrays = {"a": np.zeros(0, np.int64)}
    empties: list[object] = [[], iter(()), arrays, nothing, nothing.to_pandas()]
    for source in empties:
        assert take(open_source(source, batch="b"), schema).data == b""
