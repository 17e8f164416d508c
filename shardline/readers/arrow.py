"""Snapshots as streams of Arrow record batches, in order, in flat memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline import kernel
from shardline.errors import ColumnError, DamagedFileError, ExampleError
from shardline.files.reader import DEFAULT_LIMITS, Limits
from shardline.operations.verify import example_fault
from shardline.readers.ahead import work_ahead
from shardline.readers.arrow_columns import column_of, schema_of, to_column
from shardline.readers.chosen import chosen_features
from shardline.readers.shards import shard_files

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shardline.files.reader import Block
    from shardline.log.snapshot import Snapshot
    from shardline.readers.shards import ShardFile
    from shardline.storage import Store

BATCH_BYTES = 1024 * 1024
_REMOTE_THREADS = 8


def to_arrow(
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    *,
    workers: int | None = None,
    batch_bytes: int | None = None,
    limits: Limits | None = None,
) -> pa.RecordBatchReader:
    """A snapshot's records as record batches; see `Snapshot.to_arrow`."""
    size = BATCH_BYTES if batch_bytes is None else batch_bytes
    if size < 1:
        raise ValueError(f"batch_bytes is {size}: a batch has one byte at least")
    features = chosen_features(
        snapshot.schema, columns, "read them as they are, with to_tf(parse=False) or a RecordFile"
    )
    files = shard_files(snapshot)
    asked = [column_of(feature) for feature in features]
    schema = schema_of(features)

    def blocks_of(file: ShardFile) -> Generator[Block, None, None]:
        yield from file.blocks(limits=limits or DEFAULT_LIMITS, block_bytes=size)

    def decode(file: ShardFile, block: Block) -> pa.RecordBatch:
        try:
            decoded = kernel.decode(block.data, block.starts, block.lengths, asked)
            arrays = [
                to_column(feature, buffers)
                for feature, buffers in zip(features, decoded, strict=True)
            ]
        except ExampleError as error:
            fault = example_fault(block, error.record, error)
            raise DamagedFileError.of(file.path, fault) from None
        except ColumnError as error:
            record = block.record + error.record
            raise ColumnError(record, error.field, f"{error.detail} ({file.path})") from None
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    threads = threads_for(snapshot.store, workers)
    batches = work_ahead(files, blocks_of, decode, threads=threads)
    return pa.RecordBatchReader.from_batches(schema, batches)


def threads_for(store: Store, workers: int | None) -> int:
    """How many threads read and work: more than there are cores where answers are waited for."""
    if workers is not None:
        return workers
    return max(os.cpu_count() or 1, min(store.requests_at_once, _REMOTE_THREADS))
