"""Random access to records of a snapshot by number, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.arguments import list_items
from shardline.errors import InvalidArgumentError, RecordNotFoundError
from shardline.hints import Hint
from shardline.readers.arrow import BatchBuilder, select_columns
from shardline.readers.records import list_records
from shardline.text import format_count
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.snapshot import StoredSnapshot


def take(
    snapshot: StoredSnapshot,
    numbers: Sequence[int] | IntArray,
    columns: Sequence[str] | None = None,
    *,
    limits: Limits | None = None,
) -> pa.Table:
    """Read the records with these numbers. See `Snapshot.take`."""
    raw = Hint.of("read whole records with `to_tf(parse=False)`")
    features = select_columns(snapshot.schema, columns, raw)
    unique_numbers, order = np.unique(_validate_numbers(snapshot, numbers), return_inverse=True)
    ends = np.cumsum([shard.records for shard in snapshot.shards], dtype=np.int64)
    owners = np.searchsorted(ends, unique_numbers, "right")
    hit = np.unique(owners).tolist()
    part = snapshot.with_shards(snapshot.shards[index] for index in hit)
    batches = BatchBuilder(features)
    batches_read = []
    for index, records in zip(hit, list_records(part, features), strict=True):
        inside = unique_numbers[owners == index] - (ends[index] - records.shard.records)
        picked = records.pick(inside, limits=limits or DEFAULT_LIMITS)
        batches_read += [batches.of(records, block) for block in picked]
    return pa.Table.from_batches(batches_read, batches.schema).take(pa.array(order))


def _validate_numbers(snapshot: StoredSnapshot, numbers: Sequence[int] | IntArray) -> IntArray:
    """Return the record numbers as int64. Raises an error for numbers not in the snapshot."""
    if not hasattr(numbers, "__len__"):
        numbers = list(list_items(numbers, "numbers"))  # type: ignore[arg-type] # checked below
    indices = np.asarray(numbers) if len(numbers) > 0 else np.zeros(0, np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise InvalidArgumentError(
            "invalid record numbers: expected a list of integers",
            hint=Hint.of("pass a list such as [3, 0, 3]"),
        )
    for number in indices[(indices < 0) | (indices >= snapshot.records)][:1].tolist():
        raise RecordNotFoundError(
            f"{snapshot}: no record {number} ({format_count(snapshot.records, 'record')}, from 0)",
            record=number,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    return indices.astype(np.int64)
