"""All rows of some shards, in chunks of bounded size, with the columns that rules need."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from shardline.dagster.expectations import columns as flat
from shardline.dagster.expectations.columns import FlatColumn, flat_columns
from shardline.dagster.expectations.sample import no_rows, only_shards, read_sizes
from shardline.errors import InvalidArgumentError
from shardline.log.model import Shard
from shardline.log.snapshot import StoredSnapshot
from shardline.readers.arrow import to_arrow
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CHUNK_ROWS = 200_000
CHUNK_BYTES = 64 * 1024**2


def columns_of(schema: Schema) -> list[FlatColumn]:
    """Return the flat columns that rows of a schema have."""
    return flat_columns([] if schema.payload == "opaque" else list(schema.features))


def empty_frame(schema: Schema) -> "pd.DataFrame":
    """Return a frame with all flat columns of a schema, and no rows."""
    features = [] if schema.payload == "opaque" else list(schema.features)
    return flat.to_frame([no_rows(features)])


def read_chunks(
    snapshot: StoredSnapshot,
    shards: Collection[Shard],
    needed: Collection[str],
    *,
    chunk_rows: int = CHUNK_ROWS,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator["pd.DataFrame"]:
    """Yield every row of some shards of a snapshot, in its order.

    A chunk has at most `chunk_rows` rows, and about `chunk_bytes` in memory. Features that no
    `needed` column is about are not decoded. Overlays are joined with their bases. Raises what the
    readers of snapshots raise at a damaged or missing shard.
    """
    if chunk_rows < 1:
        raise InvalidArgumentError(
            f"invalid chunk_rows {chunk_rows}: expected 1 or more", code="out-of-range"
        )
    columns = [column for column in columns_of(snapshot.schema) if column.name in needed]
    if not columns or not shards:
        return
    part = only_shards(snapshot, shards)
    names = [column.name for column in columns]
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in _flat_batches(part, columns):
        batch = whole.select(names)
        for first in range(0, batch.num_rows, chunk_rows):
            piece = batch.slice(first, chunk_rows)
            if held and (rows + piece.num_rows > chunk_rows or size > chunk_bytes):
                yield flat.to_frame(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield flat.to_frame(held)


def _flat_batches(part: StoredSnapshot, columns: list[FlatColumn]) -> Iterator["pa.RecordBatch"]:
    from shardline.readers.records import records_of  # noqa: PLC0415 - only when data is read

    if part.schema.payload == "opaque":
        yield from read_sizes(records_of(part, None))
        return
    # A name in the context and in the feature_lists selects both.
    names = {column.feature.name for column in columns}
    features: list[Feature] = [f for f in part.schema.features if f.name in names]
    chosen = list(dict.fromkeys(feature.name for feature in features))
    ordered = [f for name in chosen for f in features if f.name == name]
    for batch in to_arrow(part, chosen):
        yield flat.flatten(ordered, batch)
