"""Records on a local disk, read by TensorFlow in chunks, each layer of an overlay by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.readers.records import bytes_read, is_packed
from shardline.readers.shards import TF_COMPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tensorflow as tf

    from shardline.readers.records import Records
    from shardline.readers.tf_parse import Tensor

CHUNK_BYTES = 1024 * 1024
_CHUNK_RECORDS = 1024
_PACKED_SHRINKS = 4
_PACKED_CHUNK_RECORDS = 128
"""Of packed files only their packed size is known, and records may be much larger than that."""
_MANY_RECORDS = 256
"""So many in a chunk cost more by the record than by the byte: layers are read side by side."""
_SHARDS_AT_ONCE = 8
"""The same on every machine, and with it the order of a deterministic interleave."""
_READ_BYTES = 1024 * 1024


def local_chunks(records: Sequence[Records], *, interleave: bool, ordered: bool) -> tf.data.Dataset:
    """Vectors of records, or tuples of such vectors, one for each layer, the lowest first.

    TensorFlow holds each file against its count. Where a shard has fewer layers than another, its
    records in the layers above are empty.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    for one in records:
        one.look()
        for file in one.files:
            file.refuse_swapped()
    most = chunk_records(records)
    depth = _depth_of(records)
    alike = all(len(one.files) == depth for one in records)

    def layer(path: Tensor, packed: Tensor, there: Tensor, count: Tensor, size: Tensor) -> Any:  # noqa: ANN401
        if alike:
            file = tf.data.TFRecordDataset(path, packed, buffer_size=_READ_BYTES)
        else:
            paths = tf.boolean_mask([path], [there])
            file = tf.data.TFRecordDataset(paths, packed, buffer_size=_READ_BYTES)
            left = count * tf.cast(tf.logical_not(there), tf.int64)
            absent = tf.data.Dataset.from_tensors("").repeat(left)
            file = file.concatenate(absent)
        return file.apply(tf.data.experimental.assert_cardinality(count)).batch(size)

    def read(paths: Tensor, packed: Tensor, there: Tensor, count: Tensor, size: Tensor) -> Any:  # noqa: ANN401
        layers = [layer(paths[at], packed[at], there[at], count, size) for at in range(depth)]
        if most >= _MANY_RECORDS:
            layers[1:] = [one.prefetch(1) for one in layers[1:]]
        return layers[0] if depth == 1 else tf.data.Dataset.zip(tuple(layers))

    # With a single file at once the order is kept, and the next one is opened ahead of its turn.
    return tf.data.Dataset.from_tensor_slices(_told(records, depth, most)).interleave(
        tf.autograph.experimental.do_not_convert(read),
        cycle_length=_SHARDS_AT_ONCE if interleave else 1,
        num_parallel_calls=tf.data.AUTOTUNE if interleave else 1,
        deterministic=ordered,
    )


def _depth_of(records: Sequence[Records]) -> int:
    """How many layers there are at most."""
    return max((len(one.files) for one in records), default=1)


def _told(records: Sequence[Records], depth: int, most: int) -> tuple[Tensor, ...]:
    """What to know of each shard.

    The paths and packings of its layers, which of them are there, how many records it has, and how
    many of them make a chunk.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    rows = [(*one.files, *[None] * (depth - len(one.files))) for one in records]
    packed = [
        [TF_COMPRESSIONS[file.shard.compression] if file else "" for file in row] for row in rows
    ]
    cells = (len(rows), depth)
    return (
        tf.constant(
            [[file.path if file else "" for file in row] for row in rows], tf.string, cells
        ),
        tf.constant(packed, tf.string, cells),
        tf.constant([[file is not None for file in row] for row in rows], tf.bool, cells),
        tf.constant([one.shard.records for one in records], tf.int64),
        tf.constant([_uneven(one.shard.records, most) for one in records], tf.int64),
    )


def _uneven(count: int, size: int) -> int:
    """A size of chunks, this one or little more, that leaves a short chunk for the end.

    To fill that up TensorFlow looks for the end of each layer, and holds it against the count.
    Behind a last chunk that is full it would not notice that a layer above goes on.
    """
    while count and count % size == 0:
        size += 1
    return size


def chunk_records(records: Sequence[Records]) -> int:
    """How many records make a chunk: many if they are small, few if they are large."""
    count = sum(one.shard.records for one in records)
    size, most = bytes_read(records) // max(count, 1), _CHUNK_RECORDS
    if any(is_packed(one) for one in records):
        size, most = size * _PACKED_SHRINKS, _PACKED_CHUNK_RECORDS
    return min(max(CHUNK_BYTES // max(size, 1), 1), most)
