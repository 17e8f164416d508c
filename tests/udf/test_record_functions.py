"""Functions of one record: what they are given, what they may give, and what is wrong with it."""

from __future__ import annotations

import sys
from contextlib import closing
from threading import Thread
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardline.schema.schema import Array, Feature, Schema, Text
from shardline.udf import record_udf
from tests.udf.batches import AREA, BOXES, bad, batch_of, boxes, raised, values

BOTH = ["width", "height"]


def area(record: dict[str, Any]) -> dict[str, Any]:
    return {"area": record["width"] * record["height"]}


def made_by(function: Any, *features: Feature, every: bool = True, rows: int = 4) -> Any:  # noqa: ANN401 - Made
    """What a function makes of records whose widths count from 0."""
    bound = record_udf(*features, reads=BOTH)(function).bind(BOXES)
    return bound.compute(boxes(range(rows)), every=every)


def test_each_record_gets_what_the_function_makes_of_it() -> None:
    made = (
        record_udf(AREA, reads=BOTH)(area)
        .bind(BOXES)
        .compute(boxes([1, 2, 3], [4, 5, 6]), every=False)
    )
    assert values(made) == [4, 10, 18]
    assert (made.reasons, made.error, bad(made)) == ({}, None, {})


def test_record_is_dict_of_values_and_arrays() -> None:
    seen: list[dict[str, Any]] = []

    def look(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record)
        return {"area": 0}

    whole: dict[str, list[Any]] = {
        "width": [1, 2],
        "height": [3, 4],
        "weight": [0.5, None],
        "name": ["größe", None],
        "raw": [b"\xff", b""],
        "grid": [[[1, 2, 3], [4, 5, 6]], None],
        "tags": [["a", "b"], []],
        "pairs": [[[1, 2]], [[3, 4], [5, 6]]],
    }
    record_udf(AREA)(look).bind(BOXES).compute(batch_of(BOXES.features, **whole), every=False)
    first, second = seen
    assert {name: type(value) for name, value in first.items()} == {
        "width": int, "height": int, "weight": float, "name": str, "raw": bytes,
        "grid": np.ndarray, "tags": np.ndarray, "pairs": np.ndarray,
    }  # fmt: skip
    assert first["grid"].dtype == np.float32
    assert first["grid"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (first["tags"].tolist(), second["tags"].shape) == (["a", "b"], (0,))
    assert (first["pairs"].shape, second["pairs"].tolist()) == ((1, 2), [[3, 4], [5, 6]])
    assert (second["weight"], second["name"], second["grid"]) == (None, None, None)
    first["grid"][0, 0] = 7  # it is the function's own


def test_steps_are_given_as_arrays_or_as_a_list_of_arrays() -> None:
    fixed = Feature("fixed", "int64", (2,), sequence=True)
    free = Feature("free", "int64", (None,), sequence=True)
    schema = Schema((fixed, free), "sequence_example")
    batch = batch_of([fixed, free], fixed=[[[1, 2], [3, 4]]], free=[[[1], [], [2, 3]]])

    def count(record: dict[str, Any]) -> dict[str, Any]:
        assert record["fixed"].shape == (2, 2)
        return {"area": sum(len(step) for step in record["free"])}

    bound = record_udf(AREA, reads=["fixed", "free"])(count).bind(schema)
    assert values(bound.compute(batch, every=True)) == [3]


@pytest.mark.parametrize(
    ("feature", "given", "wanted"),
    [
        (AREA, True, 1),
        (AREA, np.int32(7), 7),
        (AREA, np.array(7), 7),
        (AREA, 7.0, 7),
        (Feature("area", "float"), 3, 3.0),
        (Feature("area", "float"), np.float64(0.5), 0.5),
        (Feature("area", "bytes", meaning=Text()), "größe", "größe".encode()),
        (Feature("area", "bytes"), b"\xff\x00", b"\xff\x00"),
        (Feature("area", "int64", (2,)), [1, 2], [1, 2]),
        (Feature("area", "int64", (2, 2)), np.arange(4).reshape(2, 2), [0, 1, 2, 3]),
        (Feature("area", "float", (None,)), (), []),
        (Feature("area", "bytes", (None,)), ["a", "b"], [b"a", b"b"]),
        (Feature("area", "bytes", meaning=Array("int16", (2,))), [1, 2], b"\x01\x00\x02\x00"),
        (Feature("area", "int64", required=False), None, None),
    ],
)
def test_values_of_many_types_are_taken(feature: Feature, given: object, wanted: object) -> None:
    made = made_by(lambda _: {"area": given}, feature, rows=2)
    assert values(made) == [wanted, wanted]
    assert (bad(made), made.reasons) == ({}, {})


@pytest.mark.parametrize(
    ("feature", "given", "why"),
    [
        (AREA, "7", "holds text values, not int64|holds bytes values, not int64"),
        (AREA, 0.5, "not whole"),
        (AREA, 2**63, "too large"),
        (AREA, [1], "a list, and one value belongs there"),
        (AREA, {"a": 1}, "not int64"),
        (Feature("area", "float"), 1e300, "too large"),
        (Feature("area", "int64", (2,)), 1, "a list belongs there"),
        (Feature("area", "int64", (2,)), [1, None], "null inside a list"),
        (Feature("area", "int64", (2, 2)), [[1], [2, 3]], "inner list of 1 value, not 2"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_row(
    feature: Feature, given: object, why: str
) -> None:
    fine: object = [1, 2] if feature.shape == (2,) else [[1, 2], [3, 4]] if feature.shape else 1
    made = made_by(lambda record: {"area": given if record["width"] == 2 else fine}, feature)
    assert list(bad(made)) == [2]
    assert any(part in bad(made)[2] for part in why.split("|"))
    assert values(made)[2] is None
    assert None not in values(made)[:2]


def test_a_field_that_is_left_out_is_absent_if_it_may_be() -> None:
    note = Feature("note", "bytes", required=False)
    made = made_by(lambda r: {"area": 1, "note": b"x"} if r["width"] else {"area": 1}, AREA, note)
    assert values(made, "note") == [None, b"x", b"x", b"x"]
    assert made.reasons == {}


@pytest.mark.parametrize("given", [{}, {"area": None}])
def test_omitted_required_feature_is_reason(given: dict[str, Any]) -> None:
    made = made_by(lambda r: given if r["width"] in {1, 3} else {"area": 1}, AREA)
    why = "function '<lambda>' gives no value, and it is required"
    assert made.reasons == {1: ("area", why), 3: ("area", why)}
    assert made.error is None


def reciprocal(record: dict[str, Any]) -> dict[str, Any]:
    return {"area": 6 // (record["width"] % 2)}


def test_rows_on_which_the_function_raises_are_told_with_what_it_raised() -> None:
    made = made_by(reciprocal, AREA)
    why = "function 'reciprocal' raised ZeroDivisionError: integer division or modulo by zero"
    assert made.reasons == {0: (None, why), 2: (None, why)}
    assert values(made) == [None, 6, None, 6]
    assert isinstance(made.error, ZeroDivisionError)
    assert made.error.__traceback__ is not None


def test_the_first_of_them_may_be_enough() -> None:
    seen: list[int] = []

    def fails(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record["width"])
        return {"area": 6 // (record["width"] - 1)}

    made = made_by(fails, AREA, every=False)
    assert list(made.reasons) == [1]
    assert values(made) == [-6, None, None, None]
    assert seen == [0, 1]


def test_what_is_raised_is_told_in_one_line_of_bounded_length() -> None:
    def fails(record: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"two\nlines {'x' * 1000}" if record["width"] else "")

    made = made_by(fails, AREA, rows=2)
    assert made.reasons[0] == (None, raised("fails", "ValueError"))
    assert made.reasons[1][1].startswith(raised("fails", "ValueError: two lines xxx"))
    assert len(made.reasons[1][1]) < 400


class Silent(Exception):  # noqa: N818 - it says nothing
    """One that fails when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("processes", [False, True])
def test_unprintable_error_named_by_class(processes: bool) -> None:  # noqa: FBT001
    def fails(_record: dict[str, Any]) -> dict[str, Any]:
        raise Silent

    bound = record_udf(AREA, reads=BOTH, processes=processes)(fails).bind(BOXES)
    with closing(bound):
        made = bound.compute(boxes([1, 2]), every=False)
    why = "function 'fails' raised Silent, whose message cannot be told"
    assert made.reasons == {0: (None, why)}
    assert made.error is not None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "gave None: it must return a dict of its fields"),
        ([1], "gave a value of type list: it must return a dict of its fields"),
        (
            {"area": 1, "volume": 2},
            "gave a field 'volume', which it does not declare: it declares 'area'",
        ),
        ({1: 2}, "gave a field of type int, which it does not declare: it declares 'area'"),
    ],
)
def test_invalid_result_reports_row(given: object, told: str) -> None:
    made = made_by(lambda r: given if r["width"] in {1, 3} else {"area": 1}, AREA)
    why = f"function '<lambda>' {told}"
    assert made.reasons == {1: (None, why), 3: (None, why)}
    assert (values(made), made.error) == ([1, None, 1, None], None)
    first = made_by(lambda _: given, AREA, every=False)
    assert list(first.reasons) == [0]


def test_system_exit_is_error_interrupt_is_not() -> None:
    def leaves(record: dict[str, Any]) -> dict[str, Any]:
        if record["width"] == 2:
            sys.exit("done")
        return {"area": 1}

    made = made_by(leaves, AREA)
    assert made.reasons == {2: (None, raised("leaves", "SystemExit: done"))}
    assert isinstance(made.error, SystemExit)

    def interrupted(_record: dict[str, Any]) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_by(interrupted, AREA)


def test_any_mapping_will_do() -> None:
    assert values(made_by(lambda _: MappingProxyType({"area": 1}), AREA)) == [1, 1, 1, 1]


def test_a_batch_without_rows_calls_nothing() -> None:
    made = made_by(lambda _: 1 / 0, AREA, rows=0)
    assert (values(made), made.reasons) == ([], {})


def test_columns_that_are_not_read_are_passed_over() -> None:
    batch = boxes([2, 3], [4, 5])
    wide = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), *batch.columns], ["name", *BOTH])
    assert values(record_udf(AREA, reads=BOTH)(area).bind(BOXES).compute(wide, every=True)) == [
        8,
        15,
    ]


def test_several_threads_may_ask_at_once() -> None:
    bound = record_udf(AREA, reads=BOTH)(area).bind(BOXES)
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        found[number] = values(bound.compute(boxes([number] * 500, range(500)), every=True))

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number * at for at in range(500)] for number in range(8)}
