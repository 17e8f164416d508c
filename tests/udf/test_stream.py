"""Streams of batches: in order, some ahead, and each error in its place."""

from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from shardline.errors import CorruptFileError, UDFError
from shardline.udf import batch_udf, record_udf, table_join
from tests.errors import raises
from tests.udf.batches import AREA, BOXES, boxes, values

if TYPE_CHECKING:
    from collections.abc import Iterator

DAMAGED = CorruptFileError("a.tfrecord", "data-crc", 3, 70, "does not match")


def numbered(count: int, taken: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of two records whose widths are the number of the batch."""
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield boxes([number, number])


def copied(record: dict[str, Any]) -> dict[str, Any]:
    return {"area": record["width"]}


@pytest.mark.parametrize("workers", [1, 3, None])
def test_results_come_in_the_order_of_the_batches(workers: int | None) -> None:
    bound = record_udf(AREA, reads=["width"])(copied).bind(BOXES)
    made = bound.stream(numbered(40), every=True, workers=workers)
    assert [values(one) for one in made] == [[number, number] for number in range(40)]


def test_a_later_batch_that_is_done_first_waits_for_its_turn() -> None:
    second_done = Event()

    def function(batch: pa.RecordBatch) -> dict[str, Any]:
        if batch["width"][0].as_py() == 0:
            assert second_done.wait(300), "the second batch is worked on beside the first"
        else:
            second_done.set()
        return {"area": batch["width"]}

    bound = batch_udf(AREA, reads=["width"])(function).bind(BOXES)
    made = bound.stream(numbered(2), every=True, workers=2)
    assert [values(one) for one in made] == [[0, 0], [1, 1]]


def test_only_some_batches_are_taken_ahead() -> None:
    taken: list[int] = []
    bound = record_udf(AREA, reads=["width"])(copied).bind(BOXES)
    with closing(bound.stream(numbered(1000, taken), every=True, workers=2)) as made:  # type: ignore[type-var] # a generator
        next(made)
        assert len(taken) < 10
    assert len(taken) < 10


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_batches_comes_behind_what_was_read_before_it(workers: int) -> None:
    def damaged() -> Iterator[pa.RecordBatch]:
        yield from numbered(3)
        raise DAMAGED

    bound = record_udf(AREA, reads=["width"])(copied).bind(BOXES)
    made = bound.stream(damaged(), every=True, workers=workers)
    assert [values(next(made)) for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(CorruptFileError) as caught:
        next(made)
    assert caught.value is DAMAGED


def test_undeclared_result_stops_stream() -> None:
    def function(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"area" if batch["width"][0].as_py() < 2 else "volume": [1] * batch.num_rows}

    bound = batch_udf(AREA, reads=["width"])(function).bind(BOXES)
    made = bound.stream(numbered(9), every=True, workers=2)
    assert [values(next(made)) for _ in range(2)] == [[1, 1], [1, 1]]
    with raises(UDFError, "missing-feature", feature="area", record=0) as caught:
        next(made)
    assert "volume" in caught.value.message


def test_rows_that_fail_are_told_in_their_batch() -> None:
    def function(record: dict[str, Any]) -> dict[str, Any]:
        return {"area": 6 // (record["width"] - 2)}

    bound = record_udf(AREA, reads=["width"])(function).bind(BOXES)
    found = [list(one.reasons) for one in bound.stream(numbered(4), every=True, workers=2)]
    assert found == [[], [], [0, 1], []]


def test_a_joined_table_is_looked_up_on_several_threads() -> None:
    table = pa.table({"width": range(40), "area": [at * 3 for at in range(40)]})
    bound = table_join(table, "width").bind(BOXES)
    made = bound.stream(numbered(40), every=True, workers=4)
    assert [values(one) for one in made] == [[3 * at, 3 * at] for at in range(40)]


def test_several_streams_may_share_what_is_bound() -> None:
    bound = record_udf(AREA, reads=["width"])(copied).bind(BOXES)
    streams = [bound.stream(numbered(20), every=True, workers=2) for _ in range(3)]
    for number, made in enumerate(zip(*streams, strict=True)):
        assert [values(one) for one in made] == [[number, number]] * 3
