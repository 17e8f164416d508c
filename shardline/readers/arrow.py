"""Snapshots as streams of Arrow record batches, in order, in flat memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline.errors import InvalidArgumentError
from shardline.hints import Hint
from shardline.readers.ahead import work_ahead
from shardline.readers.batches import Batches
from shardline.readers.chosen import chosen_features
from shardline.readers.records import records_of
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.records import Records
    from shardline.storage import Store
    from shardline.tfrecord.reader import Block

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
    """A snapshot's records as record batches; see `Snapshot.to_arrow`."""
    size = BATCH_BYTES if batch_bytes is None else batch_bytes
    if size < 1:
        raise InvalidArgumentError(f"invalid batch_bytes {size}: expected at least 1")
    raw = Hint.of("read whole records with `to_tf(parse=False)` or `RecordFile`")
    features = chosen_features(snapshot.schema, columns, raw)
    records = records_of(snapshot, features)
    batches = Batches(features)

    def blocks_of(one: Records) -> Generator[Block, None, None]:
        return one.blocks(limits=limits or DEFAULT_LIMITS, block_bytes=size)

    threads = threads_for(snapshot.store, workers)
    read = work_ahead(records, blocks_of, batches.of, threads=threads)
    return pa.RecordBatchReader.from_batches(batches.schema, read)


def threads_for(store: Store, workers: int | None) -> int:
    """How many threads read and work: more than there are cores where answers are waited for."""
    if workers is not None:
        return workers
    return max(os.cpu_count() or 1, min(store.requests_at_once, _REMOTE_THREADS))
