"""Records by their numbers, wherever they lie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import InvalidArgumentError, RecordNotFoundError, SchemaMismatchError
from shardline.schema.schema import Schema
from shardline.tfrecord.index import write_index
from tests.errors import raises
from tests.readers.overlays import SIZES, mixed, scored, tagged
from tests.readers.snapshots import NUMBERS, numbers, published

if TYPE_CHECKING:
    from shardline.api import Snapshot

TOTAL = sum(SIZES)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return mixed("memory://take")


@settings(max_examples=25)
@given(st.lists(st.integers(0, 19), max_size=12))
def test_records_come_in_the_order_asked_and_as_often(
    snapshot: Snapshot, numbers: list[int]
) -> None:
    taken = snapshot.take(numbers)
    assert taken["x"].to_pylist() == numbers
    assert taken["score"].to_pylist() == [x / 4 for x in numbers]
    assert taken.schema == snapshot.to_arrow().schema


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("indexed", [True, False])
def test_with_and_without_an_index_they_are_the_same(
    tmp_path: Path, compression: str, *, indexed: bool
) -> None:
    snapshot = tagged(tmp_path, compressions=[compression])
    if indexed:
        for path in tmp_path.rglob("*.tfrecord"):
            write_index(path)
    taken = snapshot.take(np.array([8, 3, 3, 0]), ["tags", "x"])
    assert taken["x"].to_pylist() == [8, 3, 3, 0]
    assert [len(row) for row in taken["tags"].to_pylist()] == [x % 3 + 1 for x in (8, 3, 3, 0)]
    assert taken.column_names == ["tags", "x"]


@pytest.mark.parametrize("number", [-1, TOTAL, 2**40])
def test_missing_record_number_reports_count(tmp_path: Path, number: int) -> None:
    snapshot = scored(tmp_path)
    where = {"record": number, "version": "digits/v2", "snapshot": 1}
    with raises(RecordNotFoundError, "record-not-found", **where) as caught:
        snapshot.take([0, number])
    assert isinstance(caught.value, IndexError)
    assert "9 records" in caught.value.message


def test_take_of_an_array_equals_a_list(tmp_path: Path) -> None:
    snapshot = tagged(tmp_path)
    for chosen in ([0], [3, 0, 3], []):
        assert snapshot.take(np.array(chosen, np.int64)) == snapshot.take(chosen)
        assert snapshot.take(chosen).num_rows == len(chosen)


def test_no_numbers_are_no_rows(tmp_path: Path) -> None:
    assert scored(tmp_path).take([]).num_rows == 0


def test_what_are_no_numbers_is_refused(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, numbers(0, 3))
    for wrong in ([0.5], [True, False, True], [[1]], ["1"]):
        with raises(InvalidArgumentError, "invalid-argument"):
            snapshot.take(wrong)  # type: ignore[arg-type] # that is what is tested


def test_records_that_have_no_features_are_refused(tmp_path: Path) -> None:
    snapshot = published(tmp_path, Schema.opaque(), [b"one"])
    with raises(SchemaMismatchError, "opaque-records") as caught:
        snapshot.take([0])
    assert "to_tf(parse=False)" in str(caught.value.hint)


def test_only_the_shards_that_are_asked_for_are_opened(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, numbers(0, 3), numbers(3, 6), numbers(6, 9))
    Path(snapshot.files()[1]).unlink()
    assert snapshot.take([8, 0])["x"].to_pylist() == [8, 0]
