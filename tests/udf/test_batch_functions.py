"""Functions of a record batch: what they may give, and which rows make them fail."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline.errors import UDFError
from shardline.schema.arrow_types import find_mismatch
from shardline.schema.conversion import NOT_WHOLE, TOO_LARGE
from shardline.schema.schema import Feature, Schema
from shardline.udf import batch_udf
from tests.errors import raises
from tests.udf.batches import AREA, BOXES, bad, batch_of, boxes, raised, values

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = ["width", "height"]


def area(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"area": pc.multiply(batch["width"], batch["height"])}


def made_by(
    function: Callable[[pa.RecordBatch], Any],
    *features: Feature,
    every: bool = True,
    rows: int = 8,
) -> Any:  # noqa: ANN401 - Made
    """What a function makes of records whose widths count from 0."""
    bound = batch_udf(*features, reads=BOTH)(function).bind(BOXES)
    return bound.compute(boxes(range(rows), range(rows)), every=every)


def test_a_function_is_given_the_columns_that_it_reads_and_gives_columns() -> None:
    seen: list[pa.Schema] = []

    def look(batch: pa.RecordBatch) -> dict[str, Any]:
        seen.append(batch.schema)
        return area(batch)

    assert values(made_by(look, AREA, rows=4)) == [0, 1, 4, 9]
    assert seen == [boxes([]).schema]


@pytest.mark.parametrize(
    "give",
    [
        lambda column: {"area": column},
        lambda column: {"area": pa.chunked_array([column[:3], column[3:]])},
        lambda column: {"area": np.asarray(column)},
        lambda column: {"area": np.asarray(column).astype(object)},
        lambda column: {"area": column.to_pylist()},
        lambda column: {"area": tuple(column.to_pylist())},
        lambda column: {"area": pd.Series(np.asarray(column))},
        lambda column: {"area": column.cast(pa.float64())},
        lambda column: {"area": column.dictionary_encode()},
        lambda column: pa.RecordBatch.from_arrays([column], ["area"]),
        lambda column: pa.table({"area": column}),
        lambda column: pd.DataFrame({"area": np.asarray(column)}),
    ],
)
def test_columns_of_many_kinds_are_taken(give: Callable[[pa.Array], Any]) -> None:
    assert values(made_by(lambda batch: give(batch["width"]), AREA)) == list(range(8))


def test_arrays_have_the_shape_of_the_field_behind_the_rows() -> None:
    grid = Feature("grid", "float", (2, 3))
    made = made_by(lambda batch: {"grid": np.ones((batch.num_rows, 2, 3))}, grid, rows=2)
    assert values(made, "grid") == [[1.0] * 6] * 2


def test_null_is_absent_or_reason() -> None:
    note = Feature("note", "int64", required=False)
    column = pa.array([1, None, 3])
    made = made_by(lambda _: {"area": column, "note": column}, AREA, note, rows=3)
    why = "function '<lambda>' gives no value, and it is required"
    assert made.reasons == {1: ("area", why)}
    assert values(made, "note") == [1, None, 3]


def test_nan_of_pandas_is_missing_unless_the_field_may_be_nan() -> None:
    series = pd.Series([0.5, float("nan")])
    optional = Feature("area", "float", required=False)
    assert values(made_by(lambda _: {"area": series}, optional, rows=2)) == [0.5, None]
    made = made_by(lambda _: {"area": series}, Feature("area", "float", nan=True), rows=2)
    assert np.isnan(values(made)[1])


def test_values_that_do_not_fit_are_told_with_their_rows() -> None:
    made = made_by(lambda _: {"area": pa.array([0.5, 1, 2.0**70])}, AREA, rows=3)
    assert bad(made) == {0: NOT_WHOLE, 2: TOO_LARGE}
    made = made_by(lambda _: {"area": pa.array(["a", "b", None])}, AREA, rows=3)
    assert bad(made) == dict.fromkeys((0, 1), find_mismatch(AREA, pa.string()))
    mixed = made_by(lambda _: {"area": [1, "b", 3]}, AREA, rows=3)
    assert (values(mixed), list(bad(mixed))) == ([1, None, 3], [1])


@pytest.mark.parametrize(
    ("give", "code", "feature", "word"),
    [
        (lambda _: None, "invalid-udf-result", None, "NoneType"),
        (lambda batch: batch["width"], "invalid-udf-result", None, "Int64Array"),
        (lambda _: {}, "missing-feature", "area", "none"),
        (lambda _: {"volume": [1]}, "missing-feature", "area", "volume"),
        (lambda b: {"area": b["width"], "x": b["width"]}, "unknown-feature", "x", "'area'"),
        (lambda b: {"area": b["width"][1:]}, "length-mismatch", "area", "7 rows"),
        (lambda _: {"area": 3}, "length-mismatch", "area", "single value"),
        (lambda _: {"area": "12345678"}, "length-mismatch", "area", "single value"),
        (lambda _: {"area": np.array(3)}, "length-mismatch", "area", "single value"),
        (lambda _: {"area": pa.scalar(3)}, "length-mismatch", "area", "single value"),
        (lambda _: {"area": {"a": 1}.keys()}, "invalid-udf-result", "area", "dict_keys"),
        (lambda b: {"area": set(b["width"])}, "invalid-udf-result", "area", "type set"),
        (lambda b: {"area": dict.fromkeys(b["width"])}, "invalid-udf-result", "area", "type dict"),
        (lambda _: {"area": np.zeros(8, complex)}, "invalid-udf-result", "area", "ndarray"),
        (
            lambda b: pa.RecordBatch.from_arrays([b["width"], b["width"]], ["area", "area"]),
            "duplicate-feature",
            "area",
            "result",
        ),
    ],
)
def test_a_result_that_is_not_what_was_declared_is_an_error(
    give: Callable[[pa.RecordBatch], Any], code: str, feature: str | None, word: str
) -> None:
    with raises(UDFError, code, feature=feature, record=0) as caught:
        made_by(give, AREA)
    assert word in caught.value.message


def fails_on(*wrong: int) -> Callable[[pa.RecordBatch], dict[str, Any]]:
    def fails(batch: pa.RecordBatch) -> dict[str, Any]:
        found = sorted(set(batch["width"].to_pylist()) & set(wrong))
        if found:
            raise ValueError(f"{found[0]} is wrong")
        return area(batch)

    return fails


@given(st.integers(1, 20), st.sets(st.integers(0, 19)))
def test_the_rows_that_make_it_fail_are_found(rows: int, wrong: set[int]) -> None:
    made = made_by(fails_on(*wrong), AREA, rows=rows)
    expected = sorted(at for at in wrong if at < rows)
    assert made.reasons == {
        at: (None, raised("fails", f"ValueError: {at} is wrong")) for at in expected
    }
    assert values(made) == [None if at in wrong else at * at for at in range(rows)]
    assert str(made.error) == (f"{expected[0]} is wrong" if expected else "None")


def test_system_exit_is_bisected_to_row() -> None:
    def leaves(batch: pa.RecordBatch) -> dict[str, Any]:
        if 5 in batch["width"].to_pylist():
            sys.exit(3)
        return area(batch)

    made = made_by(leaves, AREA)
    assert made.reasons == {5: (None, raised("leaves", "SystemExit: 3"))}
    assert isinstance(made.error, SystemExit)


def test_the_first_of_them_may_be_enough() -> None:
    calls = 0

    def fails(batch: pa.RecordBatch) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        return fails_on(3, *range(100, 1024))(batch)

    made = made_by(fails, AREA, rows=1024, every=False)
    assert list(made.reasons) == [3]
    assert values(made) == [0, 1, 4] + [None] * 1021
    assert calls < 30


def test_bad_values_are_told_beside_rows_that_fail() -> None:
    def halves(batch: pa.RecordBatch) -> dict[str, Any]:
        fails_on(2)(batch)
        return {"area": pc.divide(batch["width"].cast(pa.float64()), 2)}

    made = made_by(halves, AREA, rows=6)
    assert list(made.reasons) == [2]
    assert list(bad(made)) == [1, 3, 5]


def test_a_function_that_fails_on_no_row_alone_is_an_error() -> None:
    def few(batch: pa.RecordBatch) -> dict[str, Any]:
        if batch.num_rows > 2:
            raise MemoryError("too many")
        return area(batch)

    with raises(UDFError, "udf-depends-on-batch", record=0, first=0, last=3) as caught:
        made_by(few, AREA)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_parts_of_a_batch_can_be_picked_from() -> None:
    grid = Feature("grid", "int64", (1, 2))
    schema = Schema((grid,))
    batch = batch_of([grid], grid=[[[at, at]] for at in range(8)])

    def last(batch: pa.RecordBatch) -> dict[str, Any]:
        picked = batch["grid"].take(pa.array(range(batch.num_rows)))
        rows = picked.to_pylist()
        if [[0, 0]] in rows:
            raise ValueError("zero")
        return {"area": [row[0][0] for row in rows]}

    made = batch_udf(AREA, reads=["grid"])(last).bind(schema).compute(batch, every=True)
    assert values(made) == [None, 1, 2, 3, 4, 5, 6, 7]


def test_a_batch_without_rows_calls_nothing() -> None:
    made = made_by(lambda _: 1 / 0, AREA, rows=0)
    assert (values(made), made.reasons) == ([], {})
