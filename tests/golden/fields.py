"""Functions that compute features of the golden root. Keep them: their code versions are in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from shardline import Feature, batch_udf, record_udf

if TYPE_CHECKING:
    import pyarrow as pa


@record_udf(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    """Return the length of a name."""
    return {"length": len(record["name"])}


@record_udf(Feature("inverse", "float", required=False), reads=["id"], code="1")
def inverse(record: dict[str, Any]) -> dict[str, Any]:
    """Return 1/id, which fails for the record with id 0."""
    return {"inverse": 1 / record["id"]}


@batch_udf(Feature("id", "int64"), reads=["id"], code="2")
def larger_id(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the id plus 100."""
    return {"id": pc.add(batch["id"], 100)}


@batch_udf(Feature("is_even", "int64"), reads=["id"], code="1")
def is_even(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return 1 for an even id, 0 for an odd id."""
    return {"is_even": pc.subtract(1, pc.bit_wise_and(batch["id"], 1))}


@batch_udf(Feature("wanted", "int64"), reads=["id"], code="1")
def wanted(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return 0 for the pair of the record with id 2, and 1 for others."""
    return {"wanted": pc.cast(pc.not_equal(batch["id"], 2), "int64")}
