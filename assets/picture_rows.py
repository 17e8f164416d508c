"""A bounded look into the shards of a snapshot, whatever their size: record sizes, and some rows.

The offset index beside a shard tells where its records are, so that rows from all over it can be
picked. Without one, or in a packed shard, the first ones are taken. Every record that is taken is
checked: a shard at which that fails raises what its reader would.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.errors import IndexMismatchError, StorageError
from shardline.files.index import read_offsets
from shardline.files.reader import Limits
from shardline.files.stored import StoredFile
from shardline.kernel.types import FRAME_BYTES
from shardline.log.facts import Shard
from shardline.log.schema import Feature
from shardline.log.snapshot import Snapshot
from shardline.readers.arrow_columns import schema_of
from shardline.readers.picked import pick, to_batch
from shardline.readers.shards import ShardFile

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray

MAX_SHARDS = 8
_BLOCK_BYTES = 256 * 1024
_STREAMED_BYTES = 4 * 1024 * 1024
_LARGEST_RECORD = 8 * 1024 * 1024
_LIMITS = Limits(max_record_bytes=_LARGEST_RECORD)


def some_files(snapshot: Snapshot, shards: Sequence[Shard]) -> list[ShardFile]:
    """Some of the shards, evenly spread; overlays hold no whole records and are left out."""
    whole = [shard for shard in shards if shard.records and shard.base is None]
    places = np.linspace(0, len(whole) - 1, min(MAX_SHARDS, len(whole))).round().astype(int)
    store, name = snapshot.store, snapshot.shard_name
    return [
        ShardFile(str(snapshot), shard, StoredFile(store, name(shard)))
        for shard in (whole[place] for place in places.tolist())
    ]


def record_sizes(file: ShardFile) -> "IntArray":
    """The sizes of a shard's payloads, as many as one look at its index tells."""
    offsets = _offsets(file)
    if offsets is not None:
        return np.diff(offsets) - FRAME_BYTES
    lengths = [np.empty(0, np.int64)]
    taken = 0
    for block in file.blocks(limits=_LIMITS, block_bytes=_BLOCK_BYTES):
        lengths.append(block.lengths)
        taken += len(block.data)
        if taken >= _STREAMED_BYTES:
            break
    return np.concatenate(lengths)


def some_rows(file: ShardFile, features: Sequence[Feature], rows: int, size: int) -> pa.Table:
    """Up to so many rows of a shard, made of about `size` bytes at most, as columns."""
    shard = file.shard
    offsets = _offsets(file) if shard.compression == "none" else None
    if offsets is None:
        numbers = np.arange(_affordable(shard.bytes / shard.records, shard.records, rows, size))
    else:
        numbers = _spread(np.diff(offsets), rows, size)
    batches = [to_batch(file, features, picked) for picked in pick(file, numbers, limits=_LIMITS)]
    return pa.Table.from_batches(batches, schema_of(features))


def _offsets(file: ShardFile) -> "IntArray | None":
    """Where the first records begin and the last of them ends; None without an index."""
    shard, store = file.shard, file.file.store
    try:
        return next(read_offsets(store, file.file.name, shard.bytes, shard.records))
    except (IndexMismatchError, StorageError):
        return None


def _affordable(each: float, records: int, rows: int, size: int) -> int:
    return min(rows, records, max(int(size // max(each, 1)), 1))


def _spread(sizes: "IntArray", rows: int, size: int) -> "IntArray":
    """Which records to read: about evenly spread, within the budget, the same each time.

    They are not quite even, so that labels which take turns are not all the same one.
    """
    count = _affordable(float(sizes.mean()), len(sizes), rows, size)
    steps = np.arange(count) + np.random.default_rng(0).random(count)
    places = np.minimum((steps * (len(sizes) / count)).astype(np.int64), len(sizes) - 1)
    places = places[sizes[places] <= _LARGEST_RECORD]
    within = np.cumsum(sizes[places]) <= size
    within[:1] = True
    return places[within]
