"""Each kind of bad value is refused with its own message, and the rows beside it are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.schema.schema import Feature, Schema, Text
from shardline.sources import open_source
from shardline.tfrecord.reader import Limits
from tests.kernel.frames import framed
from tests.sources.bad_values import CASES, Case
from tests.sources.reading import take
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.sources import RecordSource

LIMITS = Limits(max_record_bytes=1000)
OTHER = Feature("other", "bytes", meaning=Text(), required=False)


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def source_of(folder: Path, case: Case) -> RecordSource:
    values = [case.good, case.bad, case.good]
    if case.source == "rows":
        rows = [{} if v is ... else v if _is_row(v) else {"a": v} for v in values]
        return open_source(rows, batch="b", limits=LIMITS)
    if case.source == "folder":
        for number, content in enumerate(values):
            made(folder / f"{number}.png", content)
        return open_source(folder)
    if case.source == "parquet":
        pq.write_table(pa.table({"a": pa.array(values, case.kind)}), folder / "a.parquet")
        return open_source(folder / "a.parquet", limits=LIMITS)
    if case.source == "tfrecord":
        return open_source(made(folder / "a.tfrecord", framed(*values)))
    lines = [as_bytes(value) for value in values]
    if case.source == "csv":
        lines.insert(0, b"a,other")
    name = folder / f"a.{case.source}"
    return open_source(made(name, b"\n".join(lines) + b"\n"), limits=LIMITS)


def schema_of(case: Case) -> Schema:
    features = (case.feature, OTHER) if case.source == "csv" else (case.feature,)
    return Schema(features, "sequence_example" if case.feature.sequence else "example")


def _is_row(value: object) -> bool:
    return isinstance(value, tuple) or (isinstance(value, dict) and "a" in value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.source}: {case.what}")
def test_a_bad_value_is_told_and_the_rows_beside_it_are_kept(tmp_path: Path, case: Case) -> None:
    taken = take(source_of(tmp_path, case), schema_of(case))
    assert taken.told == [case.message]
    assert taken.rows == [0, 2]
    assert taken.refused[0].row == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.source}: {case.what}")
def test_the_quarantine_gets_the_row_as_it_stands(tmp_path: Path, case: Case) -> None:
    content = take(source_of(tmp_path, case), schema_of(case)).refused[0].content
    if case.source in {"jsonl", "csv", "tfrecord", "folder"}:
        assert content == as_bytes(case.bad)
    else:
        assert content.startswith((b"{", b"["))


def test_all_bad_rows_of_a_chunk_are_told_in_order() -> None:
    rows: list[object] = [{"a": at, "b": [at]} for at in range(1000)]
    rows[10], rows[500] = {"a": "x"}, 7
    rows[20] = {"a": 1, "b": [1, None]}
    rows[999] = {"c": 1}
    rows[0] = {"b": [2]}
    schema = Schema((Feature("a", "int64"), Feature("b", "int64", (None,), required=False)))
    taken = take(open_source(rows, batch="b"), schema)
    assert [refused.row for refused in taken.refused] == [0, 10, 20, 500, 999]
    assert len(taken.rows) == 995
