"""Sources with types of their own: another schema is told before any row is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from shardline.errors import SchemaMismatchError, SourceError
from shardline.schema.arrow_types import find_mismatch
from shardline.schema.conversion import NULL_IN_LIST
from shardline.schema.schema import Array, Category, Feature, Schema, Text
from shardline.sources import open_source
from tests.errors import raises
from tests.sources.reading import changes_in, read_back, take
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

INT = Schema((Feature("a", "int64"),))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def differences(schema: Schema, **columns: Any) -> list[tuple[str, str, str, str]]:  # noqa: ANN401 - what Arrow takes
    with raises(SchemaMismatchError, "schema-mismatch", path=None) as caught:
        take(open_source(pa.table(columns), batch="b"), schema)
    assert caught.value.hint is not None
    return changes_in(caught.value)


@pytest.mark.parametrize(
    ("schema", "columns", "changes"),
    [
        (INT, {"a": [1], "b": [1.5]}, [("b", "added", "", "float [] required")]),
        (INT, {"b": [1]}, [
            ("a", "removed", "int64 [] required", ""),
            ("b", "added", "", "int64 [] required"),
        ]),
        (INT, {"a": ["x"]}, [("a", "kind", "int64", "bytes")]),
        (INT, {"a": [[1]]}, [("a", "shape", "[]", "[?]")]),
        (INT, {"a": [NOW]}, [("a", "unfit", "", "holds timestamp[us, tz=UTC] values, not int64")]),
        (INT, {"a": [1], "b": [NOW]}, [("b", "unfit", "", "not in the schema")]),
        (INT, {"a": [{"secret": 1}]}, [("a", "unfit", "", "holds struct values, not int64")]),
        (
            Schema((Feature("a", "float", (3,)),)),
            {"a": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))},
            [("a", "shape", "[3]", "[2]")],
        ),
        (
            Schema((Feature("a", "float"),)),
            {"a": [True]},
            [("a", "kind", "float", "int64")],
        ),
    ],
)  # fmt: skip
def test_columns_that_no_row_could_fill_are_another_schema(
    schema: Schema, columns: dict[str, Any], changes: list[tuple[str, str, str, str]]
) -> None:
    assert differences(schema, **columns) == changes


def test_optional_features_may_have_no_column() -> None:
    schema = Schema((Feature("a", "int64"), Feature("b", "float", required=False)))
    assert take(open_source(pa.table({"a": [1]}), batch="b"), schema).rows == [0]


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with raises(SchemaMismatchError, "duplicate-column", feature="a"):
        take(open_source(table, batch="b"), INT)


def test_the_types_of_other_sources_are_looked_at_too() -> None:
    frame = pd.DataFrame({"a": ["x"]})
    dataset = tf.data.Dataset.from_tensor_slices({"a": np.array(["x"])})
    dates = {"a": np.array(["2026-01-01"], "datetime64[s]")}
    for source in (frame, dataset, {"a": np.array(["x"])}, dates):
        with raises(SchemaMismatchError, "schema-mismatch", feature="a") as caught:
            take(open_source(source, batch="b"), INT)
        change = "unfit" if source is dates else "kind"
        assert changes_in(caught.value)[0][:2] == ("a", change)


def test_an_opaque_version_takes_no_columns() -> None:
    with raises(SchemaMismatchError, "opaque-records"):
        take(open_source(pa.table({"a": [1]}), batch="b"), Schema.opaque())


def test_many_arrow_types_of_one_kind_give_the_same_records() -> None:
    schema = Schema((Feature("t", "bytes", meaning=Text()), Feature("n", "int64", (2,))))
    texts = pa.array(["a", "größe", ""])
    lists = pa.array([[1, 2], [3, 4], [5, 6]])
    wanted = take(open_source(pa.table({"t": texts, "n": lists}), batch="b"), schema).data
    for text in (pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string()),
                 pa.string_view()):  # fmt: skip
        for numbers in (pa.list_(pa.int8()), pa.large_list(pa.uint64()), pa.list_(pa.float64(), 2)):
            table = pa.table({"t": texts.cast(text), "n": lists.cast(numbers)})
            assert take(open_source(table, batch="b"), schema).data == wanted, (text, numbers)
            sliced = pa.concat_tables([table.slice(1), table]).slice(2)
            assert take(open_source(sliced, batch="b"), schema).data == wanted


def test_nulls_of_any_shape_are_features_that_are_not_there(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("f", "float", (2,), required=False),
            Feature("n", "int64", required=False),
            Feature("t", "bytes", (None,), required=False),
        )
    )
    table = pa.table(
        {
            "f": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float64(), 2)),
            "n": [None, 5, None],
            "t": [["x"], [], None],
        }
    )
    wanted: dict[str, list[Any]] = {
        "f": [[1, 2], None, [3, 4]],
        "n": [None, [5], None],
        "t": [[b"x"], [], None],
    }
    for at in range(3):
        found = take(open_source(table.slice(at), batch="b"), schema)
        assert found.refused == []
        told = {name: values[at:] for name, values in wanted.items()}
        assert read_back(tmp_path, schema, found.data) == told


def test_numbers_with_gaps_come_out_of_pandas_as_they_went_in(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("n", "int64", required=False),
            Feature("m", "int64", required=False),
            Feature("f", "float", required=False, nan=True),
            Feature("g", "float", required=False),
            Feature("k", "bytes", meaning=Category()),
        )
    )
    frame = pd.DataFrame(
        {
            "n": [1.0, np.nan],
            "m": pd.array([None, 2], "Int64"),
            "f": [np.nan, 1.5],
            "g": [np.nan, 1.5],
            "k": pd.Categorical(["x", "y"]),
        }
    )
    found = take(open_source(frame, batch="b"), schema)
    values = read_back(tmp_path, schema, found.data)
    assert np.isnan(values.pop("f")[0][0])
    assert values == {
        "n": [[1], None], "m": [None, [2]], "g": [None, [1.5]], "k": [[b"x"], [b"y"]],
    }  # fmt: skip


def test_python_values_in_frames_and_arrays_are_refused_row_by_row() -> None:
    values: list[object] = [[1, 2], None, "x", [3, None], np.array([4])]
    schema = Schema((Feature("a", "int64", (None,), required=False), Feature("n", "int64")))
    frame = pd.DataFrame({"a": values, "n": range(5)})
    objects = np.empty(5, object)
    objects[:] = values
    for source in (frame, {"a": objects, "n": np.arange(5)}):
        found = take(open_source(source, batch="b"), schema)
        assert found.rows == [0, 1, 4]
        assert found.places == [("row 2", "a"), ("row 3", "a")]
        assert found.refused[0].detail == find_mismatch(schema.feature("a"), pa.list_(pa.string()))
        assert found.refused[1].detail == NULL_IN_LIST


def test_row_groups_before_the_start_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(100)}), path, row_group_size=10, compression="none")
    group = pq.ParquetFile(path).metadata.row_group(0).column(0)
    offset = group.dictionary_page_offset or group.data_page_offset
    data = bytearray(path.read_bytes())
    data[offset : offset + group.total_compressed_size] = bytes(group.total_compressed_size)
    made(path, bytes(data))
    assert take(open_source(path), INT, 15).rows == list(range(15, 100))
    with raises(SourceError, "invalid-source", path=str(path)):
        take(open_source(path), INT)


def test_a_parquet_file_of_large_rows_is_read_in_small_batches(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    contents = [rng.bytes(1_000_000) for _ in range(20)]
    pq.write_table(pa.table({"a": contents}), tmp_path / "a.parquet")
    found = take(open_source(tmp_path / "a.parquet"), Schema((Feature("a", "bytes"),)))
    assert len(found.rows) == 20
    assert len(found.ends) >= 4


def test_one_large_row_among_many_small_ones_is_cut_off_from_them() -> None:
    table = pa.table({"a": [b"x"] * 5000 + [bytes(40_000_000)] + [b"x"] * 5000})
    found = take(open_source(table, batch="b"), Schema((Feature("a", "bytes"),)))
    assert len(found.rows) == 10_001
    assert len(found.ends) > 2


def test_numbers_for_raw_arrays_are_packed_by_their_dtype(tmp_path: Path) -> None:
    schema = Schema((Feature("a", "bytes", meaning=Array("float16", (2, 2))),))
    array = np.arange(8).reshape(2, 2, 2)
    found = take(open_source({"a": array}, batch="b"), schema)
    wanted = [[part.astype("<f2").tobytes()] for part in array]
    assert read_back(tmp_path, schema, found.data) == {"a": wanted}
    with raises(SchemaMismatchError, "schema-mismatch", feature="a") as caught:
        take(open_source({"a": np.zeros((2, 3, 3))}, batch="b"), schema)
    assert changes_in(caught.value)[:2] == [
        ("a", "kind", "bytes", "float"),
        ("a", "shape", "[]", "[3, 3]"),
    ]


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with raises(SourceError, "length-mismatch") as caught:
        open_source({"a": np.zeros(2), "b": np.zeros(3)}, batch="b")
    assert all(part in caught.value.message for part in ("'a' has 2", "'b' has 3"))
    with raises(SourceError, "unsupported-source"):
        open_source({"a": 1}, batch="b")


def test_datasets_of_other_elements_are_refused() -> None:
    with raises(SourceError, "unsupported-source"):
        open_source(tf.data.Dataset.range(3), batch="b")
    sparse = tf.data.Dataset.from_tensors({"a": tf.sparse.eye(2)})
    with raises(SchemaMismatchError, "unsupported-type", feature="a") as caught:
        open_source(sparse, batch="b")
    assert "SparseTensorSpec" in caught.value.message
