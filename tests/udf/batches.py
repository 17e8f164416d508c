"""Batches of records for makers of fields, and what became of them in plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardline import kernel
from shardline.schema.arrow_types import column_of, schema_of, to_column
from shardline.schema.schema import Feature, Schema, Text
from tests.kernel import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.udf import UDFResult

BOXES = Schema(
    (
        Feature("width", "int64"),
        Feature("height", "int64"),
        Feature("weight", "float", required=False),
        Feature("name", "bytes", required=False, meaning=Text()),
        Feature("raw", "bytes"),
        Feature("grid", "float", (2, 3), required=False),
        Feature("tags", "bytes", (None,), meaning=Text()),
        Feature("pairs", "int64", (None, 2)),
    )
)
AREA = Feature("area", "int64")


def batch_of(features: Sequence[Feature], **columns: Sequence[Any]) -> pa.RecordBatch:
    """A batch of these features, in the types that readers give."""
    return pa.RecordBatch.from_pydict(columns, schema=schema_of(features))


def decoded(features: Sequence[Feature], payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Records as readers decode them."""
    block = examples.block(list(payloads))
    columns = [column_of(feature) for feature in features]
    found = kernel.decode(block.data, block.starts, block.lengths, columns)
    arrays = [to_column(f, buffers) for f, buffers in zip(features, found, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(features))


def boxes(widths: Sequence[int], heights: Sequence[int] | None = None) -> pa.RecordBatch:
    """Records of which the widths and heights are read."""
    reads = [BOXES.feature("width"), BOXES.feature("height")]
    return batch_of(reads, width=widths, height=[1] * len(widths) if heights is None else heights)


def values(made: UDFResult, name: str = "area") -> list[Any]:
    """What was made of a field."""
    (array,) = [fitted.array for feature, fitted in made.columns if feature.name == name]
    found: list[Any] = array.to_pylist()
    return found


def raised(function: str, error: str) -> str:
    """Return the reason of a row on which a function raised an error."""
    return f"function {function!r} raised {error}"


def bad(made: UDFResult, name: str = "area") -> dict[int, str]:
    """Why values of a field do not fit."""
    (found,) = [fitted.bad for feature, fitted in made.columns if feature.name == name]
    return found
