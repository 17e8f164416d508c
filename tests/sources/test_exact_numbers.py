"""Inference keeps every digit of a number before the decimal point, or refuses the column."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.errors import SchemaMismatchError, UDFError
from shardline.schema.schema import Feature, Schema, Text
from shardline.sources import infer_source_schema, open_source
from shardline.udf import table_join
from tests.errors import raises
from tests.sources.reading import read_back, take
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from collections.abc import Callable


YES = True
CASES: dict[str, list[Any]] = {
    "small": [1, -2, 3],
    "float32 limit": [2**24, 2**24 + 1],
    "int64 limits": [2**63 - 1, -(2**63), 0],
    "over int64": [1, 2**63],
    "under int64": [1, -(2**63) - 1],
    "over uint64": [1, 2**64 + 1],
    "over uint64 alone": [2**64],
    "hundreds of digits": [10**300 + 1, 1],
    "nulls": [1, None, 3],
    "large and nulls": [2**24 + 1, None, -(2**40) - 1],
    "very large and nulls": [2**53 + 2, None],
    "small and fractions": [1, 0.5, 2**24],
    "large and fractions": [2**24 + 1, 0.5],
    "fractions and large": [0.5, None, 2**24 + 1],
    "very large and fractions": [0.5, 2**53 + 1],
    "over int64 and fractions": [2**63 + 1, 0.5],
    "over uint64 and fractions": [2**64 + 1, 0.5],
    "whole floats": [float(2**24 + 1), 1.0],
    "large fractions": [1_700_000_000.25, 1.0],
    "float32 exact": [float(2**40), 0.5, -1e10],
    "huge floats": [6.02e23, -1e30],
    "tiny floats": [1e-30, 0.1],
    "minus zero": [-0.0, 1.0],
    "lists": [[2**24 + 1, 1], [2, 3]],
    "lists and fractions": [[2**24 + 1, 1], [0.5]],
    "lists of large": [[2**63, 1], [2]],
    "nested": [[[2**24 + 1], [1, 2]], [[0.5]]],
    "booleans": [YES, None],
    "decimals": [Decimal("16777217.5"), Decimal(1)],
    "texts": ["00123", "+49"],
}


def in_json(folder: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Write the values as JSON lines."""
    text = "".join(json.dumps({"key": at, "a": v}) + "\n" for at, v in enumerate(values))
    return made(folder / "a.jsonl", text.encode()), values


def in_csv(folder: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Write the values as CSV."""
    out = io.StringIO()
    csv.writer(out).writerows([("key", "a"), *enumerate(values)])
    return made(folder / "a.csv", out.getvalue().encode()), values


def in_arrow(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values in the type that Arrow finds."""
    table = pa.table({"key": range(len(values)), "a": pa.array(values)})
    return table, table["a"].to_pylist()


def in_uint64(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values as uint64."""
    table = pa.table({"key": range(len(values)), "a": pa.array(values, pa.uint64())})
    return table, table["a"].to_pylist()


def in_dictionary(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values dictionary-encoded."""
    column = pa.array(values).dictionary_encode()
    return pa.table({"key": range(len(values)), "a": column}), column.to_pylist()


def in_parquet(folder: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Write the values as Parquet."""
    table, held = in_arrow(folder, values)
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet", held


def in_ipc(folder: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Write the values as an Arrow file."""
    table, held = in_arrow(folder, values)
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as file:
        file.write_table(table)
    return folder / "a.arrow", held


def in_pandas(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values as pandas does."""
    frame = pd.DataFrame({"key": range(len(values)), "a": values})
    return frame, [None if v is None or v != v else v for v in frame["a"].tolist()]  # noqa: PLR0124 - NaN


def in_pandas_objects(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values in an object column."""
    return pd.DataFrame({"key": range(len(values)), "a": pd.Series(values, dtype=object)}), values


def in_pandas_int64(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values in a nullable column."""
    column = pd.array(values, "Int64")
    held = [None if value is pd.NA else int(value) for value in column]
    return pd.DataFrame({"key": range(len(values)), "a": column}), held


def in_dicts(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values in dicts."""
    return [{"key": at, "a": value} for at, value in enumerate(values)], values


def in_numpy_dicts(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values in dicts, as NumPy scalars and arrays."""
    return [{"key": at, "a": np.array(v)[()]} for at, v in enumerate(values)], values


def in_numpy(_: Path, values: list[Any]) -> tuple[Any, list[Any]]:
    """Hold the values in an array."""
    column = np.array(values)
    return {"key": np.arange(len(values)), "a": column}, column.tolist()


FORMS: list[Callable[[Path, list[Any]], tuple[Any, list[Any]]]] = [
    in_json, in_csv, in_arrow, in_uint64, in_dictionary, in_parquet, in_ipc, in_pandas,
    in_pandas_objects, in_pandas_int64, in_dicts, in_numpy_dicts, in_numpy,
]  # fmt: skip
TABLES = [in_json, in_csv, in_arrow, in_uint64, in_parquet, in_ipc, in_pandas, in_pandas_objects]


def is_kept(feature: Feature, value: Any, found: Any) -> bool:  # noqa: ANN401 - of any kind
    """Return True if a record has the value with all digits before the decimal point."""
    if isinstance(value, list) and feature.kind != "bytes":
        flat = list(chain(*found)) if feature.sequence else found
        leaves = list(chain(*value)) if isinstance(value[0], list) else value
        return len(flat) == len(leaves) and all(
            is_kept(feature, v, [f]) for v, f in zip(leaves, flat, strict=True)
        )
    if value is None:
        return found in (None, [], [b""])
    (found,) = found
    if feature.kind == "bytes":
        return bool(found == str(value).encode())
    if feature.kind == "int64" or isinstance(value, int):
        return bool(found == value)
    whole = 2**24 < abs(value) < 2**63
    return bool(found == value if whole else found == np.float32(value))


def form(make: Callable[..., Any], folder: Path, values: list[Any]) -> tuple[Any, list[Any]] | None:
    """Return the values in a form; None if it cannot hold them."""
    try:
        return make(folder, values)  # type: ignore[no-any-return]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("make", FORMS)
def test_inference_keeps_digits_or_refuses(
    tmp_path: Path, make: Callable[[Path, list[Any]], tuple[Any, list[Any]]]
) -> None:
    kept, refused = 0, set[str | None]()
    for name, values in CASES.items():
        held = form(make, tmp_path, values)
        if held is None:
            continue
        source = open_source(held[0], batch=None if isinstance(held[0], Path) else "b")
        try:
            schema = infer_source_schema([source])
        except SchemaMismatchError as error:
            refused.add(error.feature)
            continue
        taken = take(source, schema)
        feature = next(f for f in schema.features if f.name == "a")
        found = read_back(tmp_path, schema, taken.data)["a"]
        for row, value in zip(taken.rows, found, strict=True):
            assert is_kept(feature, held[1][row], value), (name, feature.kind)
        kept += 1
    assert kept
    assert refused <= {"a"}


@pytest.mark.parametrize("make", TABLES)
def test_joined_tables_keep_digits_or_are_refused(
    tmp_path: Path, make: Callable[[Path, list[Any]], tuple[Any, list[Any]]]
) -> None:
    schema = Schema((Feature("key", "int64"),))
    kept, refused = 0, set[str | None]()
    for name, values in CASES.items():
        held = form(make, tmp_path, values)
        if held is None:
            continue
        try:
            bound = table_join(held[0], "key").bind(schema)
        except (SchemaMismatchError, UDFError) as error:
            refused.add(error.feature)
            continue
        keys = pa.RecordBatch.from_pydict({"key": pa.array(range(len(values)), pa.int64())})
        (feature,) = bound.features
        column = bound.compute(keys, every=True).columns[0][1].array.to_pylist()
        for value, found in zip(held[1], column, strict=True):
            listed = found if found is None or isinstance(found, list) else [found]
            assert is_kept(feature, value, listed), (name, feature.kind)
        kept += 1
    assert kept
    assert refused <= {"a"}


@pytest.mark.parametrize(
    ("cells", "feature"),
    [
        (["1", "-2"], Feature("a", "int64")),
        (["00123", "7"], Feature("a", "bytes", meaning=Text())),
        (["7", "-012"], Feature("a", "bytes", meaning=Text())),
        (["+49", "7"], Feature("a", "bytes", meaning=Text())),
        (["00.5", "7"], Feature("a", "bytes", meaning=Text())),
        (["1_000", "7"], Feature("a", "bytes", meaning=Text())),
        (["0x10", "7"], Feature("a", "bytes", meaning=Text())),
        (["1e400", "7"], Feature("a", "bytes", meaning=Text())),
        (["1e5", "7"], Feature("a", "float")),
        (["+0.5", "7"], Feature("a", "float")),
        (["0.10", "-0"], Feature("a", "float")),
        (["6.02e23", "7"], Feature("a", "float")),
        (["16777217", "0.5"], Feature("a", "bytes", meaning=Text())),
        (["16777217.0"], Feature("a", "bytes", meaning=Text())),
        (["9007199254740993.0", "7"], Feature("a", "bytes", meaning=Text())),
        (["18446744073709551617", "0.5"], Feature("a", "bytes", meaning=Text())),
        (["18446744073709551616", "0.5"], Feature("a", "float")),
        (["NaN", "16777217"], Feature("a", "bytes", meaning=Text())),
    ],
)
def test_csv_cells_that_lose_digits_are_text(
    tmp_path: Path, cells: list[str], feature: Feature
) -> None:
    lines = "".join(f"{cell}\n" for cell in cells)
    source = open_source(made(tmp_path / "a.csv", f"a\n{lines}".encode()))
    assert source.infer() == Schema((feature,))
    (rounded,) = source.infer(allow_rounding=True).features
    text = any(set(cell) & set("_x+") and "." not in cell for cell in cells) or "1e400" in cells
    assert (rounded.kind == "bytes") == text


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_inference_over_blocks_keeps_digits(tmp_path: Path, ending: str) -> None:
    filler = " " * 1000
    if ending == "csv":
        data = f"a{filler}\n" + f"16777217{filler}\n" * 9000 + "0.5\n"
        source = open_source(made(tmp_path / "a.csv", data.encode()))
        assert source.infer().features[0].kind == "bytes"
    else:
        data = f'{{"a": 16777217{filler}}}\n' * 9000 + '{"a": 0.5}\n'
        source = open_source(made(tmp_path / "a.jsonl", data.encode()))
        with raises(SchemaMismatchError, "inexact-number", feature="a", record=0):
            source.infer()
        assert source.infer(allow_rounding=True).features[0].kind == "float"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": 18446744073709551616}', "number-too-large"),
        ('{"a": 0.5}\n{"a": 18446744073709551616}', "number-too-large"),
        ('{"a": [1, [18446744073709551616]]}', "number-too-large"),
        ('{"a": 16777217}\n{"a": 0.5}', "inexact-number"),
        ('{"a": 0.5}\n{"a": 9007199254740993.0}', "number-too-large"),
    ],
)
def test_json_numbers_that_lose_digits_are_refused(tmp_path: Path, text: str, code: str) -> None:
    path = made(tmp_path / "a.jsonl", text.encode())
    with raises(SchemaMismatchError, code, feature="a", path=str(path)):
        open_source(path).infer()


def test_pandas_integers_with_nulls_stay_integers() -> None:
    frame = pd.DataFrame({"a": [1, None, 2**40 + 1], "b": [1.0, 2.0, 3.0], "c": [0.5, None, 1]})
    features = {f.name: f for f in open_source(frame, batch="b").infer().features}
    assert features["a"] == Feature("a", "int64", required=False)
    assert features["b"] == Feature("b", "float")
    assert features["c"] == Feature("c", "float", required=False)
