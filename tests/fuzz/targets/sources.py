"""Mutated sources and join tables, through `append` and `extend`.

A mutated file is rejected, or every record is what an independent reader sees in the file.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.operations.append import append
from shardline.operations.extend import extend
from shardline.schema.schema import Feature, Schema, Text
from shardline.sources.source_format import open_source
from shardline.udf import table_join
from tests.fuzz.examples import (
    arrow_rows,
    assert_same_rows,
    json_rows,
    parquet_rows,
    stored_payloads,
    stored_rows,
)
from tests.fuzz.harness import Case, Finding, Target, note_oracle
from tests.fuzz.mutate import mutate_bytes, mutate_records, mutate_text, split_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = Schema(
    (
        Feature("id", "int64", required=False),
        Feature("name", "bytes", required=False, meaning=Text()),
        Feature("label", "bytes", required=False),
        Feature("score", "float", required=False, nan=True),
        Feature("values", "int64", (None,), required=False),
    )
)


def _append(case: Case, folder: Path, read: Callable[[Path], list[dict[str, Any]]]) -> str:
    """Append the file with the declared schema, and compare the records with the file."""
    path = folder / case.name.rpartition("/")[2]
    path.write_bytes(case.data)
    _infer(path)
    version = Version(folder / "root", "fuzz/v1")
    append(version, path, schema=SCHEMA)
    stored = stored_rows(version)
    note_oracle()
    try:
        expected = read(path)
    except (pa.ArrowException, ValueError, OSError, RecursionError) as error:
        raise Finding(f"accepted a file that pyarrow or Python rejects: {error}") from error
    assert_same_rows(stored, expected)
    return "accepted"


def _infer(path: Path) -> None:
    try:
        open_source(path).infer()
    except ShardlineError:
        return  # the declared schema may still fit


def _append_arrow(case: Case, folder: Path) -> str:
    return _append(case, folder, arrow_rows)


def _append_parquet(case: Case, folder: Path) -> str:
    return _append(case, folder, parquet_rows)


def _append_json(case: Case, folder: Path) -> str:
    return _append(case, folder, lambda path: json_rows(path.read_bytes()))


def _append_csv(case: Case, folder: Path) -> str:
    """Append a CSV file; cells are compared with the standard library's where both are strict."""
    path = folder / "fuzz.csv"
    path.write_bytes(case.data)
    _infer(path)
    version = Version(folder / "root", "fuzz/v1")
    schema = Schema(tuple(Feature(name, "bytes", required=False) for name in ("id", "name", "x")))
    append(version, path, schema=schema)
    text = case.data.removeprefix(b"\xef\xbb\xbf").decode()
    if "\r" in text or "\x00" in text:
        return "accepted"
    try:
        cells = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return "accepted"
    filled = [row for row in cells if row]
    expected = [dict(zip(filled[0], row, strict=True)) for row in filled[1:]]
    assert_same_rows(stored_rows(version), expected)
    return "accepted"


def _append_records(case: Case, folder: Path) -> str:
    """Append a TFRecord file: every payload lands as it is."""
    path = folder / "fuzz.tfrecord"
    path.write_bytes(case.data)
    _infer(path)
    version = Version(folder / "root", "fuzz/v1")
    append(version, path, schema=SCHEMA)
    if stored_payloads(version) != split_frames(case.data):
        raise Finding("records differ from the file")
    return "accepted"


def _join(case: Case, folder: Path) -> str:
    """Join a mutated table to records; the joined values are those of the first row of each key."""
    path = folder / case.name.rpartition("/")[2]
    path.write_bytes(case.data)
    version = Version(folder / "root", "fuzz/v1")
    rows = [{"id": number} for number in range(6)]
    append(version, rows, schema=Schema((Feature("id", "int64"),)), batch="ids")
    target = Version(folder / "root", "fuzz/v2")
    declared = [Feature("name", "bytes", required=False)]
    fields = table_join(path, "id", features=declared, on_missing="absent", on_duplicate="first")
    extend(version, fields, target, snapshot="latest")
    if path.suffix not in _READERS:
        return "accepted"
    joined = target.latest().take(range(len(rows)), columns=["name"])["name"].to_pylist()
    note_oracle()
    try:
        table = _READERS[path.suffix](path)
    except (pa.ArrowException, OSError):
        return "accepted"  # a column that the join does not read is corrupt
    names = {row["id"]: row["name"] for row in reversed(table)}
    if joined != [names.get(row["id"]) for row in rows]:
        raise Finding("joined values differ from the table")
    return "accepted"


_READERS = {".arrow": arrow_rows, ".ipc": arrow_rows, ".parquet": parquet_rows}

TARGETS = (
    Target("arrow", ("*.arrow", "*.ipc"), mutate_bytes, _append_arrow),
    Target("parquet", ("*.parquet",), mutate_bytes, _append_parquet),
    Target("jsonl", ("*.jsonl",), mutate_text, _append_json),
    Target("csv", ("*.csv",), mutate_text, _append_csv),
    Target("tfrecord", ("*.tfrecord",), mutate_records, _append_records),
    Target("join-arrow", ("*.arrow", "*.ipc", "*.parquet"), mutate_bytes, _join),
    Target("join-text", ("*.csv", "*.jsonl"), mutate_text, _join),
)
