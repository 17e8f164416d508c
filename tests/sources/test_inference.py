"""The schema that rows suggest: all of them fit it, and it says no more than they do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from shardline.errors import SchemaMismatchError
from shardline.schema.schema import Category, Feature, Schema, Text
from shardline.sources import infer_source_schema, open_source
from tests.errors import raises
from tests.sources.reading import take
from tests.sources.tables import SOURCES
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

YES, NO = True, False


def inferred(values: list[Any]) -> Feature:
    """The feature that these values of rows suggest; all of them fit it."""
    source = open_source([{"a": value} for value in values], batch="b")
    schema = source.infer()
    assert take(source, schema).refused == []
    (feature,) = schema.features
    return feature


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([1, 2], Feature("a", "int64")),
        ([YES, NO], Feature("a", "int64")),
        ([1, None], Feature("a", "int64", required=False)),
        ([1, 1.5], Feature("a", "float")),
        ([1.5, float("nan")], Feature("a", "float", nan=True)),
        (["x", ""], Feature("a", "bytes", meaning=Text())),
        ([b"x"], Feature("a", "bytes")),
        ([["x"], ["y"]], Feature("a", "bytes", (1,), meaning=Text())),
        ([[1, 2], [3, 4]], Feature("a", "int64", (2,))),
        ([[1], [3, 4]], Feature("a", "int64", (None,))),
        ([[], [3, 4]], Feature("a", "int64", (None,))),
        ([np.zeros((2, 3)), np.ones((2, 3))], Feature("a", "float", (2, 3))),
        ([[[1, 2]], [[3, 4], [5, 6]]], Feature("a", "int64", (2,), sequence=True)),
        ([[[1]], [[3, 4], []]], Feature("a", "int64", (None,), sequence=True)),
        ([[[1]], []], Feature("a", "int64", (1,), sequence=True)),
    ],
)
def test_rows_suggest_a_feature(values: list[Any], feature: Feature) -> None:
    assert inferred(values) == feature
    assert inferred(values[::-1]) == feature


def test_whole_numbers_first_and_fractions_later_are_floats(tmp_path: Path) -> None:
    assert inferred([1] * 500 + [0.5]) == Feature("a", "float")
    lines = (b'{"a": 1}' + b" " * 1000 + b"\n") * 9000 + b'{"a": 0.5}\n'
    source = open_source(made(tmp_path / "a.jsonl", lines))
    assert source.infer() == Schema((Feature("a", "float"),))


def test_lists_with_nothing_in_them_first_tell_nothing(tmp_path: Path) -> None:
    lines = (
        b'{"a": [], "b": []}' + b" " * 1000 + b"\n"
    ) * 9000 + b'{"a": [1, 2], "b": [[1], [2]]}\n'
    source = open_source(made(tmp_path / "a.jsonl", lines))
    schema = source.infer()
    assert schema.features == (
        Feature("a", "int64", (None,)),
        Feature("b", "int64", (1,), sequence=True),
    )
    assert take(source, schema).refused == []


def test_dates_in_json_are_text(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.jsonl", b'{"a": "2026-01-01"}\n'))
    assert source.infer() == Schema((Feature("a", "bytes", meaning=Text()),))


def test_types_tell_what_values_mean() -> None:
    table = pa.table(
        {
            "text": pa.array(["x"], pa.large_string()),
            "kind": pa.array(["x"]).dictionary_encode(),
            "data": [b"x"],
            "grid": pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 2)),
        }
    )
    assert open_source(table, batch="b").infer().features == (
        Feature("data", "bytes"),
        Feature("grid", "int64", (2, 2)),
        Feature("kind", "bytes", meaning=Category()),
        Feature("text", "bytes", meaning=Text()),
    )


def test_frames_and_tensors_tell_their_schema() -> None:
    frame = pd.DataFrame(
        {"n": [1.0, np.nan], "r": [0.5, np.nan], "t": ["x", "y"], "l": [[1, 2], [3]]}
    )
    assert open_source(frame, batch="b").infer().features == (
        Feature("l", "int64", (None,)),
        Feature("n", "int64", required=False),
        Feature("r", "float", required=False),
        Feature("t", "bytes", meaning=Text()),
    )
    dataset = tf.data.Dataset.range(3).map(lambda n: {"g": tf.zeros((2, 2)), "n": tf.range(n)})
    assert open_source(dataset, batch="b").infer().features == (
        Feature("g", "float", (2, 2)),
        Feature("n", "int64", (None,)),
    )


@pytest.mark.parametrize(
    "name", [name for name in SOURCES if name not in {"generator", "Arrow reader"}]
)
def test_every_source_fits_the_schema_it_suggests(tmp_path: Path, name: str) -> None:
    source = SOURCES[name](tmp_path)
    schema = source.infer()
    assert {f.name for f in schema.features} == {
        "id", "grid", "image", "kind", "name", "raw", "ratio",
    }  # fmt: skip
    assert take(source, schema).refused == []


@pytest.mark.parametrize(
    ("rows", "code", "word"),
    [
        ([{"a": None}], "unknown-kind", "no values"),
        ([{"a": []}], "unknown-kind", "no values"),
        ([{"a": 1}, {"a": "x"}], "unknown-kind", "mixed"),
        ([{"a": 1}, {"a": [1]}], "unknown-kind", "mixed"),
        ([{"a": datetime(2026, 1, 1, tzinfo=UTC)}], "unsupported-type", "timestamp"),
        ([{"a": [[[1], []]]}], "unsupported-type", "list"),
    ],
)
def test_where_no_schema_can_be_told_it_must_be_declared(
    rows: list[Any], code: str, word: str
) -> None:
    with raises(SchemaMismatchError, code, feature="a", path=None) as caught:
        open_source(rows, batch="b").infer()
    assert word in caught.value.message


def test_inference_keeps_single_pass_source() -> None:
    for once in (iter([{"a": 1}]), pa.table({"a": [1]}).to_reader()):
        source = open_source(once, batch="b")
        with raises(SchemaMismatchError, "source-consumed"):
            source.infer()
        assert take(source, Schema((Feature("a", "int64"),))).rows == [0]


def test_rows_that_no_schema_could_take_are_left_out() -> None:
    rows = [{"a": [1]}, {"a": [1, None]}, 5]
    assert open_source(rows, batch="b").infer() == Schema((Feature("a", "int64", (1,)),))


VALUES = st.one_of(
    st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=5),
    st.lists(st.none() | st.floats(width=32), min_size=1, max_size=5),
    st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=5),
    st.lists(st.lists(st.lists(st.text(), max_size=2), max_size=2), min_size=1, max_size=5),
)


@given(VALUES)
def test_all_rows_fit_what_they_suggest(values: list[Any]) -> None:
    try:
        inferred(values)
    except SchemaMismatchError as error:
        assert error.code == "unknown-kind"  # noqa: PT017 - else there is nothing to see
        assert "no values" in error.message  # noqa: PT017 - as above


def test_several_sources_suggest_what_they_have_in_common(tmp_path: Path) -> None:
    sources = [
        open_source(pa.table({"a": [1], "l": [[1, 2]], "t": ["x"]}), batch="1"),
        open_source(made(tmp_path / "empty.jsonl", b"")),
        open_source([{"a": 2, "l": [1], "f": float("nan"), "t": b"\xff"}], batch="2"),
    ]
    schema = infer_source_schema(sources)
    assert schema.features == (
        Feature("a", "int64"),
        Feature("f", "float", required=False, nan=True),
        Feature("l", "int64", (None,)),
        Feature("t", "bytes"),
    )
    for source in sources:
        assert take(source, schema).refused == []


def test_sources_of_different_kinds_have_no_schema_in_common() -> None:
    sources = [open_source([{"a": 1}], batch="x"), open_source([{"a": "1"}], batch="y")]
    with raises(SchemaMismatchError, "kind-mismatch", feature="a") as caught:
        infer_source_schema(sources)
    assert all(source.label in caught.value.message for source in sources)
    steps = [open_source([{"a": [[1]]}], batch="x"), open_source([{"a": [1]}], batch="y")]
    with raises(SchemaMismatchError, "shape-mismatch", feature="a"):
        infer_source_schema(steps)
