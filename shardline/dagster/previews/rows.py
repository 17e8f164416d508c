"""A bounded look into the shards of a snapshot, whatever their size: record sizes, and some rows.

The offset index beside a file tells where its records are, so that rows from all over it can be
picked. Without one, or in a packed shard, the first ones are taken. Every record that is taken is
checked: a shard at which that fails raises what its reader would. Overlays are joined with their
bases, and the pairs of a virtual combination are made, from all over it too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.api import Snapshot
from shardline.errors import IndexMismatchError, StorageError
from shardline.kernel.types import FRAME_BYTES
from shardline.log.model import Shard
from shardline.readers.batches import Batches
from shardline.readers.records import Records, bytes_read, is_packed, records_of
from shardline.schema.schema import Feature
from shardline.tfrecord.index import read_offsets
from shardline.tfrecord.reader import Limits

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray
    from shardline.readers.shards import ShardFile

MAX_SHARDS = 8
_BLOCK_BYTES = 256 * 1024
_STREAMED_BYTES = 4 * 1024 * 1024
_LARGEST_RECORD = 8 * 1024 * 1024
_LIMITS = Limits(max_record_bytes=_LARGEST_RECORD)


def some_shards(
    snapshot: Snapshot, shards: Sequence[Shard], features: Sequence[Feature] | None = None
) -> list[Records]:
    """Some of the shards, evenly spread, to be read for these features, or for whole records."""
    full = [shard for shard in shards if shard.records]
    places = np.linspace(0, len(full) - 1, min(MAX_SHARDS, len(full))).round().astype(int)
    chosen = tuple(full[place] for place in places.tolist())
    return records_of(replace(snapshot, list_shards=lambda: chosen), features)


def record_sizes(records: Records) -> "IntArray":
    """The sizes of a shard's payloads, as many as one look at its index tells."""
    sizes = _sizes(records)
    if sizes is not None:
        return sizes - FRAME_BYTES * len(records.files)
    lengths = [np.empty(0, np.int64)]
    taken = 0
    for block in records.blocks(limits=_LIMITS, block_bytes=_BLOCK_BYTES):
        lengths.append(block.lengths)
        taken += len(block.data)
        if taken >= _STREAMED_BYTES:
            break
    return np.concatenate(lengths)


def some_rows(records: Records, features: Sequence[Feature], rows: int, size: int) -> pa.Table:
    """Up to so many rows of a shard, made of about `size` bytes at most, as columns."""
    count = records.shard.records
    sizes = None if is_packed(records) else _sizes(records)
    if records.shard.virtual:
        numbers = _spread(count, _affordable(_pair_bytes(records), count, rows, size))
    elif sizes is None:
        numbers = np.arange(_affordable(bytes_read([records]) / count, count, rows, size))
    else:
        numbers = _within(sizes, rows, size)
    batches = Batches(features)
    picked = records.pick(numbers, limits=_LIMITS)
    return pa.Table.from_batches([batches.of(records, some) for some in picked], batches.schema)


def _sizes(records: Records) -> "IntArray | None":
    """The bytes of the first records with their frames, over all files; None without an index.

    None too of pairs, which lie in no file.
    """
    if records.shard.virtual:
        return None
    sizes = [_sizes_in(file) for file in records.files]
    found = [one for one in sizes if one is not None]
    return np.sum(found, axis=0) if len(found) == len(sizes) else None


def _sizes_in(file: "ShardFile") -> "IntArray | None":
    shard, store = file.shard, file.file.store
    index = read_offsets(store, file.file.name, shard.bytes, shard.records, shard.sha256)
    try:
        return np.diff(next(index))
    except (IndexMismatchError, StorageError):
        return None


def _affordable(each: float, records: int, rows: int, size: int) -> int:
    return min(rows, records, max(int(size // max(each, 1)), 1))


def _pair_bytes(records: Records) -> float:
    """How large a pair is, about: as two records of what it is made of."""
    counted = sum(file.shard.records for file in records.files)
    return 2 * bytes_read([records]) / max(counted, 1)


def _within(sizes: "IntArray", rows: int, size: int) -> "IntArray":
    """Which records to read: about evenly spread, within the budget."""
    count = _affordable(float(sizes.mean()), len(sizes), rows, size)
    places = _spread(len(sizes), count)
    places = places[sizes[places] <= _LARGEST_RECORD]
    within = np.cumsum(sizes[places]) <= size
    within[:1] = True
    return places[within]


def _spread(total: int, count: int) -> "IntArray":
    """So many numbers of records, about evenly spread, the same each time.

    They are not quite even, so that labels which take turns are not all the same one.
    """
    steps = np.arange(count) + np.random.default_rng(0).random(count)
    return np.minimum((steps * (total / count)).astype(np.int64), total - 1)
