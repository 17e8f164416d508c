"""Arrow data with offsets or indices out of bounds: an error on every path, never a value."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

from shardline import Feature, Schema, Version, batch_udf, table_join
from shardline.errors import InvalidRecordsError, SourceError, UDFError
from shardline.operations.append import append
from shardline.operations.example_file import write_examples
from shardline.operations.extend import extend
from shardline.udf.worker_process import decode_reply
from tests.errors import raises
from tests.sources.corrupt_arrays import CORRUPT, corrupt_table, corrupt_text, write_arrow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMAS = {
    name: Schema(
        (Feature("id", "int64"), feature), "sequence_example" if feature.sequence else "example"
    )
    for name, feature in {
        **dict.fromkeys(CORRUPT, Feature("bad", "bytes", required=False)),
        "list": Feature("bad", "int64", (None,), required=False),
        "list in list": Feature("bad", "int64", (None,), required=False, sequence=True),
    }.items()
}
BAD = Schema((Feature("bad", "bytes", required=False),))
IDS = Schema((Feature("id", "int64"),))


@pytest.mark.parametrize("name", CORRUPT)
def test_append_corrupt_arrow_file_raises(tmp_path: Path, name: str) -> None:
    path = write_arrow(tmp_path / "bad.arrow", corrupt_table(name))
    version = Version(tmp_path / "root", "bad/v1")
    with raises(SourceError, "corrupt-columns", feature="bad", path=str(path)):
        append(version, path, schema=SCHEMAS[name])
    with raises(SourceError, "corrupt-columns", feature="bad", path=str(path)):
        append(version, path)
    assert not version.exists


@pytest.mark.parametrize("name", CORRUPT)
def test_append_corrupt_table_raises(tmp_path: Path, name: str) -> None:
    version = Version(tmp_path, "bad/v1")
    for rows in (corrupt_table(name), corrupt_table(name).to_batches()[0]):
        with raises(SourceError, "corrupt-columns", feature="bad", record=0):
            append(version, rows, batch="bad", schema=SCHEMAS[name])
        with raises(SourceError, "corrupt-columns", feature="bad", record=0):
            append(version, rows, batch="bad")
    assert not version.exists


def test_append_corrupt_frame_raises(tmp_path: Path) -> None:
    frame = pd.DataFrame({"bad": pd.array([None, None], pd.ArrowDtype(pa.string()))})
    frame["bad"] = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([corrupt_text()])))
    with raises(SourceError, "corrupt-columns", feature="bad"):
        append(Version(tmp_path, "bad/v1"), frame, batch="bad", schema=BAD)


@pytest.mark.parametrize("in_file", [True, False])
def test_join_corrupt_table_raises(tmp_path: Path, in_file: bool) -> None:  # noqa: FBT001 - a case
    base = base_version(tmp_path)
    table: object = corrupt_table("index")
    if in_file:
        table = write_arrow(tmp_path / "bad.arrow", corrupt_table("index"))
    with raises(SourceError, "corrupt-columns", feature="bad"):
        extend(base, table_join(table, "id"), Version(tmp_path, "a/v2"), snapshot="latest")


def as_batch(batch: pa.RecordBatch) -> object:
    return corrupt_table("text").slice(0, batch.num_rows).select(["bad"])


def as_array(batch: pa.RecordBatch) -> object:
    return {"bad": corrupt_text().slice(0, batch.num_rows)}


def as_chunks(batch: pa.RecordBatch) -> object:
    return {"bad": pa.chunked_array([corrupt_text().slice(0, batch.num_rows)])}


@pytest.mark.parametrize(
    ("result", "processes"),
    [(as_batch, False), (as_array, False), (as_chunks, False), (as_batch, True)],
)
def test_udf_with_corrupt_result_raises(
    tmp_path: Path,
    result: Callable[[pa.RecordBatch], object],
    processes: bool,  # noqa: FBT001 - a case
) -> None:
    bad = batch_udf(Feature("bad", "bytes"), reads=["id"], processes=processes)(result)
    with raises(InvalidRecordsError, "corrupt-columns", feature="bad"):
        extend(base_version(tmp_path), bad, Version(tmp_path, "a/v2"), snapshot="latest")


def test_corrupt_reply_of_process_raises() -> None:
    feature = Feature("bad", "bytes")
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([corrupt_text(pa.binary())], ["0"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    parts = (b"made", pickle.dumps(([{}], {})), sink.getvalue().to_pybytes(), b"")
    with raises(UDFError, "corrupt-columns", feature="bad"):
        decode_reply((feature,), [memoryview(part) for part in parts])


def test_write_examples_of_corrupt_table_raises(tmp_path: Path) -> None:
    with raises(SourceError, "corrupt-columns", feature="bad"):
        write_examples(tmp_path / "out.tfrecord", corrupt_table("text"))
    assert not (tmp_path / "out.tfrecord").exists()


def test_text_that_is_not_unicode_is_a_problem_of_its_row(tmp_path: Path) -> None:
    bad = pa.array([b"ok", b"\xff"]).view(pa.string())
    table = pa.table({"id": [1, 2], "bad": bad})
    version = Version(tmp_path, "a/v1")
    path = write_arrow(tmp_path / "text.arrow", table)
    report = append(version, path, schema=SCHEMAS["text"])
    assert report.records == 2
    assert version.latest().take([1])["bad"].to_pylist() == [b"\xff"]


def base_version(root: Path) -> Version:
    version = Version(root, "a/v1")
    append(version, [{"id": 1}, {"id": 2}], schema=IDS, batch="ids")
    return version
