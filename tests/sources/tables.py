"""One table in all the forms that sources take."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from shardline.schema.schema import Array, Category, Feature, Image, Schema, Text
from shardline.sources import open_source
from tests.log.schemas import PNG
from tests.tfrecord.samples import example_of, made, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.sources import RecordSource

ROWS = 50
SCHEMA = Schema(
    (
        Feature("id", "int64"),
        Feature("grid", "float", (2, 3)),
        Feature("image", "bytes", meaning=Image("png")),
        Feature("kind", "bytes", meaning=Category(("größe", "x"))),
        Feature("name", "bytes", meaning=Text()),
        Feature("raw", "bytes", meaning=Array("int16", (2,))),
        Feature("ratio", "float"),
    )
)


def columns() -> dict[str, np.ndarray[Any, Any]]:
    """The table as arrays, whose first axis is the record."""
    rng = np.random.default_rng(7)
    return {
        "id": np.arange(ROWS) - 3,
        "grid": rng.random((ROWS, 2, 3)).astype(np.float32),
        "image": np.array([PNG + bytes([at]) for at in range(1, ROWS + 1)]),
        "kind": np.array(["größe", "x"] * (ROWS // 2)),
        "name": np.array([f'na,"m{at}"\n' if at % 7 else "" for at in range(ROWS)]),
        "raw": rng.integers(-30000, 30000, (ROWS, 2)).astype(np.int16),
        "ratio": rng.random(ROWS) * 1e-3,
    }


def rows() -> list[dict[str, Any]]:
    """The table as dicts."""
    arrays = columns()
    return [{name: arrays[name][at] for name in arrays} for at in range(ROWS)]


def table() -> pa.Table:
    """The table as Arrow holds it."""
    arrays = columns()
    grid = pa.array(arrays["grid"].reshape(-1))
    for size in (3, 2):
        grid = pa.FixedSizeListArray.from_arrays(grid, size)
    plain = {name: pa.array(array) for name, array in arrays.items() if name not in {"grid", "raw"}}
    return pa.table({**plain, "grid": grid, "raw": pa.array(list(arrays["raw"]))})


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    told = {name: v.tolist() if hasattr(v, "tolist") else v for name, v in row.items()}
    told["image"] = base64.b64encode(row["image"]).decode()
    return told


def json_lines() -> bytes:
    """The table as JSON lines."""
    return b"".join(json.dumps(_json_row(row)).encode() + b"\n" for row in rows())


def csv_text() -> bytes:
    """The table as CSV: lists as JSON, raw arrays and images in base64."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns())
    for row in rows():
        told = {**_json_row(row), "raw": base64.b64encode(row["raw"].tobytes()).decode()}
        cells = [json.dumps(v) if isinstance(v, list) else v for v in told.values()]
        writer.writerow(cells)
    return out.getvalue().encode()


def examples() -> list[bytes]:
    """The table as Examples by protobuf."""
    return [
        example_of(
            id=int(row["id"]),
            grid=row["grid"].reshape(-1).tolist(),
            image=row["image"],
            kind=row["kind"].encode(),
            name=row["name"].encode(),
            raw=row["raw"].astype("<i2").tobytes(),
            ratio=float(row["ratio"]),
        )
        for row in (
            {k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
            for row in rows()
        )
    ]


def _arrow_file(path: Path) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=20)
    return path


def _arrow_stream(path: Path) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=20)
    return path


def _parquet(path: Path) -> Path:
    pq.write_table(table(), path, row_group_size=20)
    return path


def _frame() -> pd.DataFrame:
    arrays = columns()
    flat = {name: list(array) if array.ndim > 1 else array for name, array in arrays.items()}
    return pd.DataFrame(flat)


SOURCES: dict[str, Callable[[Path], RecordSource]] = {
    "JSON lines": lambda at: open_source(made(at / "a.jsonl", json_lines())),
    "JSON lines, packed": lambda at: open_source(
        made(at / "a.ndjson.gz", gzip.compress(json_lines()))
    ),
    "CSV": lambda at: open_source(made(at / "a.csv", csv_text())),
    "CSV, packed": lambda at: open_source(made(at / "a.csv.gz", gzip.compress(csv_text()))),
    "Parquet": lambda at: open_source(_parquet(at / "a.parquet")),
    "Arrow file": lambda at: open_source(_arrow_file(at / "a.arrow")),
    "Arrow stream": lambda at: open_source(_arrow_stream(at / "a.ipc")),
    "TFRecord": lambda at: open_source(write_by_tensorflow(at / "a.tfrecord", examples())),
    "TFRecord, GZIP": lambda at: open_source(write_by_tensorflow(at / "a", examples(), "GZIP")),
    "TFRecord, ZLIB": lambda at: open_source(write_by_tensorflow(at / "a", examples(), "ZLIB")),
    "list of dicts": lambda _: open_source(rows(), batch="b"),
    "generator": lambda _: open_source(iter(rows()), batch="b"),
    "NumPy": lambda _: open_source(columns(), batch="b"),
    "pandas": lambda _: open_source(_frame(), batch="b"),
    "Arrow table": lambda _: open_source(table(), batch="b"),
    "Arrow batch": lambda _: open_source(table().combine_chunks().to_batches()[0], batch="b"),
    "Arrow reader": lambda _: open_source(table().to_reader(20), batch="b"),
    "tf.data": lambda _: open_source(tf.data.Dataset.from_tensor_slices(columns()), batch="b"),
}
"""The table by every way in."""
