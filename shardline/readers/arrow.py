"""Snapshots as Arrow record batches, and the column selection of all readers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline import kernel
from shardline.arguments import list_items
from shardline.errors import ColumnError, ExampleError, InvalidArgumentError, SchemaMismatchError
from shardline.execution.threads import map_streams
from shardline.hints import Hint
from shardline.readers.records import list_records
from shardline.schema.arrow_types import column_of, schema_of, to_column
from shardline.tfrecord.examples import add_location
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.records import Records
    from shardline.schema.schema import Feature, Schema
    from shardline.storage import Store


def select_columns(schema: Schema, columns: Sequence[str] | None, raw: Hint) -> list[Feature]:
    """Return the features with these names in their order, or all features for None.

    A name in both the context and the feature_lists selects both. `raw` is the hint for reading
    records without features.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features", code="opaque-records", hint=raw
        )
    if isinstance(columns, str):
        raise InvalidArgumentError(
            "invalid columns: expected a list of names, got a string",
            hint=Hint.of(f"pass [{columns!r}]"),
        )
    if columns is not None:
        columns = [str(name) for name in list_items(columns, "columns")]
    if columns is None:
        features = list(schema.features)
    else:
        features = [feature for name in columns for feature in _find_features(schema, name)]
    if not features:
        raise SchemaMismatchError(
            "no features selected",
            code="no-features",
            hint=Hint.of("name at least one feature, or ", raw),
        )
    keys = [feature.key for feature in features]
    for feature in features:
        if keys.count(feature.key) > 1:
            raise SchemaMismatchError(
                f"duplicate column {feature.name!r}", code="duplicate-feature", feature=feature.name
            )
    return features


def _find_features(schema: Schema, name: str) -> list[Feature]:
    matches = [feature for feature in schema.features if feature.name == name]
    if not matches:
        known = ", ".join(repr(feature.name) for feature in schema.features) or "none"
        raise SchemaMismatchError(
            f"unknown feature {name!r}",
            code="unknown-feature",
            feature=name,
            hint=Hint.of(f"the schema has {known}"),
        )
    return matches


class BatchBuilder:
    """Builder of record batches with given features."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.schema = schema_of(features)
        self._features = features
        self._columns = [column_of(feature) for feature in features]

    def of(self, records: Records, block: RecordBlock) -> pa.RecordBatch:
        """Return some of a shard's records as a batch, as `Snapshot.to_arrow` does.

        Raises ColumnError for a record that does not fit. A payload that is not an Example raises
        CorruptFileError, or ExampleError for selected records. All errors give the record number in
        the shard.
        """
        try:
            decoded = kernel.decode(block.data, block.starts, block.lengths, self._columns)
            arrays = [
                to_column(feature, buffers)
                for feature, buffers in zip(self._features, decoded, strict=True)
            ]
        except (ExampleError, ColumnError) as error:
            raise add_location(records.path, block, error) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


BATCH_BYTES = 1024 * 1024
_REMOTE_THREADS = 8


def to_arrow(
    snapshot: StoredSnapshot,
    columns: Sequence[str] | None = None,
    *,
    workers: int | None = None,
    batch_bytes: int | None = None,
    limits: Limits | None = None,
) -> pa.RecordBatchReader:
    """Read a snapshot as record batches. See `Snapshot.to_arrow`."""
    size = BATCH_BYTES if batch_bytes is None else batch_bytes
    if size < 1:
        raise InvalidArgumentError(f"invalid batch_bytes {size}: expected at least 1")
    raw = Hint.of("read whole records with `to_tf(parse=False)` or `RecordFile`")
    features = select_columns(snapshot.schema, columns, raw)
    batches = BatchBuilder(features)

    def open_blocks(records: Records) -> Generator[RecordBlock, None, None]:
        return records.blocks(limits=limits or DEFAULT_LIMITS, block_bytes=size)

    threads = choose_threads(snapshot.store, workers)
    read = map_streams(
        list_records(snapshot, features),
        open_blocks,
        batches.of,
        copy=RecordBlock.copy,
        threads=threads,
    )
    return pa.RecordBatchReader.from_batches(batches.schema, read)


def choose_threads(store: Store, workers: int | None) -> int:
    """Return the number of threads: more than cores if requests have to be awaited."""
    if workers is not None:
        return workers
    return max(os.cpu_count() or 1, min(store.requests_at_once, _REMOTE_THREADS))
