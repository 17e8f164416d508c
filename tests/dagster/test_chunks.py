from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import shardline
from shardline.dagster.expectations.columns import (
    create_empty_frame,
    get_flat_columns,
    read_chunks,
)
from shardline.dagster.expectations.sample import take_sample
from tests.dagster.rows import NAME, append_rows, digits

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Snapshot


def assert_same_rows(snapshot: Snapshot, names: list[str], chunk_rows: int) -> None:
    frames = list(read_chunks(snapshot, snapshot.shards, names, chunk_rows=chunk_rows))
    assert all(0 < len(frame) <= chunk_rows for frame in frames)
    joined = pd.concat(frames, ignore_index=True)
    whole = take_sample(snapshot).frame[
        [c for c in take_sample(snapshot).frame.columns if c in names]
    ]
    pd.testing.assert_frame_equal(joined, whole)


@pytest.mark.parametrize("chunk_rows", [1, 16, 40, 1000])
def test_chunks_have_every_row_once(tmp_path: Path, chunk_rows: int) -> None:
    batches = [digits(0, 5), digits(5, 45), digits(45, 46)]
    snapshot = append_rows(tmp_path, *batches).latest()
    every = [column.name for column in get_flat_columns(snapshot.schema)]
    for names in (every, ["strokes__max", "label"], ["scan__bytes"]):
        assert_same_rows(snapshot, names, chunk_rows)
    assert list(create_empty_frame(snapshot.schema).columns) == every
    assert create_empty_frame(snapshot.schema).dtypes.equals(take_sample(snapshot).frame.dtypes)


def test_chunks_of_some_shards_have_their_rows(tmp_path: Path) -> None:
    snapshot = append_rows(tmp_path, digits(0, 5), digits(5, 12)).latest()
    (frame,) = read_chunks(snapshot, snapshot.shards[1:], ["label"])
    assert frame["label"].tolist() == [5, 6, 7, 8, 9, 0, 1]
    assert list(read_chunks(snapshot, (), ["label"])) == []
    assert list(read_chunks(snapshot, snapshot.shards, [])) == []


def test_chunks_end_at_their_bytes(tmp_path: Path) -> None:
    snapshot = append_rows(tmp_path, *[digits(n, n + 10) for n in range(0, 50, 10)]).latest()
    frames = list(read_chunks(snapshot, snapshot.shards, ["writer"], chunk_bytes=1))
    assert [len(frame) for frame in frames] == [10] * 5


def test_chunks_of_opaque_records_have_sizes(tmp_path: Path) -> None:
    source = tmp_path / "some.tfrecord"
    shardline.files.write_records(source, [bytes(size) for size in range(20, 90)])
    version = shardline.Version(tmp_path / "root", NAME)
    version.append(source, schema=shardline.Schema.opaque())
    assert_same_rows(version.latest(), ["record__bytes"], 33)
