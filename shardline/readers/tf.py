"""Snapshots as tf.data datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.errors import PackageMissingError, UnreadableSnapshotError
from shardline.files.reader import DEFAULT_LIMITS, Limits
from shardline.operations.verify import refuse_bad_examples
from shardline.readers.ahead import work_ahead
from shardline.readers.arrow import threads_for
from shardline.readers.chosen import chosen_features
from shardline.readers.shards import TF_COMPRESSIONS, ShardFile, shard_files
from shardline.readers.tf_parse import batch_parser

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import tensorflow as tf

    from shardline.files.reader import Block
    from shardline.log.snapshot import Snapshot

_CHUNK_BYTES = 1024 * 1024
_CHUNK_RECORDS = 1024
_PACKED_SHRINKS = 4
_PACKED_CHUNK_RECORDS = 128
"""Of packed files only their packed size is known, and records may be much larger than that."""
_SHARDS_AT_ONCE = 8
"""The same on every machine, and with it the order of a deterministic interleave."""
_READ_BYTES = 1024 * 1024


def to_tf(
    snapshot: Snapshot,
    *,
    parse: bool = True,
    columns: Sequence[str] | None = None,
    batch: int | None = None,
    drop_remainder: bool = False,
    interleave: bool = False,
    deterministic: bool = False,
    unchecked: bool = False,
    limits: Limits | None = None,
) -> tf.data.Dataset:
    """A snapshot's records as a tf.data.Dataset; see `Snapshot.to_tf`.

    Records run through it in chunks: TensorFlow parses a vector of them more than ten times as
    fast as one by one.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch is {batch}: a batch has one record at least")
    if columns is not None and not parse:
        raise ValueError("columns are chosen when records are parsed: leave out parse=False")
    raw = "read them as they are, with parse=False"
    features = chosen_features(snapshot.schema, columns, raw) if parse else []
    files = shard_files(snapshot)
    if not unchecked:
        _refuse_unchecked(snapshot)
    tf = _tensorflow()
    ordered = not interleave or deterministic
    if all(snapshot.store.local_path(file.file.name) is not None for file in files):
        chunks = _local_chunks(snapshot, files, interleave=interleave, ordered=ordered)
    else:
        ordered = True
        chunks = _stored_chunks(snapshot, files, limits or DEFAULT_LIMITS)
    records = snapshot.records
    if batch is not None:
        chunks = chunks.rebatch(batch, drop_remainder=drop_remainder)
        records = records // batch if drop_remainder else -(-records // batch)
    if parse:
        parser = tf.autograph.experimental.do_not_convert(batch_parser(snapshot.schema, features))
        chunks = chunks.map(parser, tf.data.AUTOTUNE, deterministic=ordered)
    chunks = chunks.prefetch(tf.data.AUTOTUNE)
    dataset = chunks.unbatch() if batch is None else chunks
    return dataset.apply(tf.data.experimental.assert_cardinality(records))


def _refuse_unchecked(snapshot: Snapshot) -> None:
    """Refuse bytes at which nobody has looked: TensorFlow can crash on damaged ones."""
    advice = (
        "TensorFlow can crash on damaged records, so check them first, 'shardline check "
        f"{snapshot.version}', and read version.published(); or take the risk with unchecked=True"
    )
    if not snapshot.published:
        raise UnreadableSnapshotError(f"{snapshot} is not published: {advice}")
    needed = ("integrity",) if snapshot.schema.payload == "opaque" else ("integrity", "schema")
    for check in needed:
        if check not in snapshot.checks.shard:
            raise UnreadableSnapshotError(
                f"{snapshot} was published without the check {check!r}, which its version does not "
                f"require: {advice}"
            )


def _tensorflow() -> Any:  # noqa: ANN401 - a module without types
    try:
        import tensorflow  # noqa: ICN001, PLC0415 - takes seconds to load
    except ImportError:
        raise PackageMissingError(
            "to_tf needs TensorFlow, which is not installed: pip install tensorflow"
        ) from None
    return tensorflow


def _local_chunks(
    snapshot: Snapshot, files: list[ShardFile], *, interleave: bool, ordered: bool
) -> tf.data.Dataset:
    """Vectors of records, read by TensorFlow, which holds each file against its count."""
    tf = _tensorflow()
    for file in files:
        file.look()
    size = _chunk_records(snapshot)

    def read(path: Any, packed: Any, records: Any) -> Any:  # noqa: ANN401 - tensors
        file = tf.data.TFRecordDataset(path, packed, buffer_size=_READ_BYTES)
        counted = file.apply(tf.data.experimental.assert_cardinality(records))
        return counted.batch(size)

    told = (
        tf.constant([file.path for file in files], tf.string),
        tf.constant([TF_COMPRESSIONS[file.shard.compression] for file in files], tf.string),
        tf.constant([file.shard.records for file in files], tf.int64),
    )
    # With a single file at once the order is kept, and the next one is opened ahead of its turn.
    return tf.data.Dataset.from_tensor_slices(told).interleave(
        tf.autograph.experimental.do_not_convert(read),
        cycle_length=_SHARDS_AT_ONCE if interleave else 1,
        num_parallel_calls=tf.data.AUTOTUNE if interleave else 1,
        deterministic=ordered,
    )


def _chunk_records(snapshot: Snapshot) -> int:
    """How many records make a chunk: many if they are small, few if they are large."""
    size, most = snapshot.bytes // max(snapshot.records, 1), _CHUNK_RECORDS
    if any(shard.compression != "none" for shard in snapshot.shards):
        size, most = size * _PACKED_SHRINKS, _PACKED_CHUNK_RECORDS
    return min(max(_CHUNK_BYTES // max(size, 1), 1), most)


def _stored_chunks(snapshot: Snapshot, files: list[ShardFile], limits: Limits) -> tf.data.Dataset:
    """Vectors of records, read by our own reader: TensorFlow knows no object stores."""
    tf = _tensorflow()
    check = snapshot.schema.payload != "opaque"

    def blocks_of(file: ShardFile) -> Generator[Block, None, None]:
        yield from file.blocks(limits=limits, block_bytes=_CHUNK_BYTES)

    def payloads(file: ShardFile, block: Block) -> list[bytes]:
        if check:
            refuse_bad_examples(file.path, block)
        return [bytes(payload) for payload in block.payloads()]

    def chunks() -> Iterator[list[bytes]]:
        return work_ahead(files, blocks_of, payloads, threads=threads_for(snapshot.store, None))

    return tf.data.Dataset.from_generator(
        chunks, output_signature=tf.TensorSpec((None,), tf.string)
    )
