"""Snapshots as tf.data datasets."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from shardline.errors import (
    InvalidArgumentError,
    PackageMissingError,
    UnreadableSnapshotError,
)
from shardline.hints import Command, Hint, Option
from shardline.readers.ahead import work_ahead
from shardline.readers.arrow import threads_for
from shardline.readers.chosen import chosen_features
from shardline.readers.read_errors import advice_below
from shardline.readers.records import as_records, needed_layers
from shardline.readers.tf_local import CHUNK_BYTES, chunk_records, local_chunks
from shardline.readers.tf_parse import batch_parser, joined, layers_parser
from shardline.tfrecord.examples import refuse_bad_examples
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import tensorflow as tf

    from shardline.log.layers import Layer
    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.records import Records
    from shardline.schema.schema import Feature, Schema
    from shardline.tfrecord.reader import Block


def to_tf(
    snapshot: StoredSnapshot,
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
        raise InvalidArgumentError(f"invalid batch {batch}: expected at least 1")
    if columns is not None and not parse:
        raise InvalidArgumentError(
            "columns require parsed records",
            hint=Hint.of("leave out ", Option("parse", value=False), " or the columns"),
        )
    raw = Hint.of("read whole records with ", Option("parse", value=False))
    features = chosen_features(snapshot.schema, columns, raw) if parse else []
    layers = needed_layers(snapshot, features if parse else None)
    if not unchecked:
        _refuse_unchecked(snapshot, layers)
    tf = _tensorflow()
    shards = [as_records(snapshot, one, features if parse else None) for one in layers]
    ordered = not interleave or deterministic
    if all(_read_by_tensorflow(one) for one in shards):
        chunks = local_chunks(shards, interleave=interleave, ordered=ordered)
        work = _work(snapshot.schema, features, layers)
        most = chunk_records(shards)
    else:
        ordered, most = True, 0
        chunks = _stored_chunks(snapshot, shards, limits or DEFAULT_LIMITS)
        work = batch_parser(snapshot.schema, features) if parse else None
    records = snapshot.records
    whole = _worked(chunks, work, ordered=ordered)
    if batch is None:
        chunks = whole
    else:
        records = records // batch if drop_remainder else -(-records // batch)
        # The longer the vector, the less it costs to parse a record; but a ragged one is cut
        # record by record.
        whole_first = batch < most and not _is_ragged(whole)
        chunks = (whole if whole_first else chunks).rebatch(batch, drop_remainder=drop_remainder)
        chunks = chunks if whole_first else _worked(chunks, work, ordered=ordered)
    chunks = chunks.prefetch(tf.data.AUTOTUNE)
    dataset = chunks.unbatch() if batch is None else chunks
    return dataset.apply(tf.data.experimental.assert_cardinality(records))


def _worked(
    chunks: tf.data.Dataset, work: Callable[..., Any] | None, *, ordered: bool
) -> tf.data.Dataset:
    if work is None:
        return chunks
    tf = _tensorflow()
    converted = tf.autograph.experimental.do_not_convert(work)
    return chunks.map(converted, tf.data.AUTOTUNE, deterministic=ordered)


def _is_ragged(dataset: tf.data.Dataset) -> bool:
    tf = _tensorflow()
    return any(
        isinstance(spec, tf.RaggedTensorSpec) for spec in tf.nest.flatten(dataset.element_spec)
    )


def _read_by_tensorflow(shard: Records) -> bool:
    """Whether TensorFlow can read it: its records lie in files on a local disk."""
    if shard.shard.virtual:
        return False
    return all(file.file.store.local_path(file.file.name) is not None for file in shard.files)


def _refuse_unchecked(snapshot: StoredSnapshot, layers: Sequence[Sequence[Layer]]) -> None:
    """Refuse bytes at which nobody has looked: TensorFlow can crash on damaged ones."""
    hint = _check_hint(snapshot.version, " and read `version.published()`")
    if not snapshot.published:
        raise UnreadableSnapshotError(
            f"{snapshot}: not published",
            code="snapshot-unpublished",
            hint=hint,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    needed = ("integrity",) if snapshot.schema.payload == "opaque" else ("integrity", "schema")
    for check in needed:
        if check not in snapshot.checks.shard:
            raise UnreadableSnapshotError(
                f"{snapshot}: published without check {check!r}, which is not required",
                code="check-missing",
                hint=hint,
                version=snapshot.version,
                snapshot=snapshot.number,
            )
        for layer in chain.from_iterable(layers):
            if layer.version != snapshot.version and check in layer.failed:
                raise UnreadableSnapshotError(
                    f"{snapshot}: shard {layer.shard.name} of {layer.version} failed "
                    f"check {check!r}",
                    code="check-failed",
                    hint=advice_below(snapshot.store, str(snapshot), layer.version, layer.shard),
                    path=snapshot.shard_name(layer.shard),
                    version=snapshot.version,
                    snapshot=snapshot.number,
                )
            if layer.version != snapshot.version and check not in layer.passed:
                raise UnreadableSnapshotError(
                    f"{snapshot}: shard {layer.shard.name} of {layer.version} has not passed "
                    f"check {check!r}",
                    code="check-missing",
                    hint=_check_hint(layer.version),
                    path=snapshot.shard_name(layer.shard),
                    version=snapshot.version,
                    snapshot=snapshot.number,
                )


def _check_hint(version: str, then: str = "") -> Hint:
    """Return how to check records that TensorFlow can crash on."""
    return Hint.of(
        "TensorFlow can crash on corrupt records: run ",
        Command.of("check", version),
        f"{then}, or accept the risk with ",
        Option("unchecked", value=True),
    )


def _work(
    schema: Schema, features: Sequence[Feature], layers: Sequence[Sequence[Layer]]
) -> Callable[..., Any] | None:
    """What makes of chunks the features, or without any whole records; None if they are that."""
    if all(len(one) == 1 for one in layers):
        return batch_parser(schema, features) if features else None
    if not features:
        return joined
    held = {tuple(layer.keys for layer in one) for one in layers}
    if len(held) > 1:
        parser = batch_parser(schema, features)
        return lambda *parts: parser(joined(*parts))
    # Nothing is copied for it where each layer is parsed by itself.
    (each,) = held
    return layers_parser(schema, [[f for f in features if f.key in keys] for keys in each])


def _tensorflow() -> Any:  # noqa: ANN401 - a module without types
    try:
        import tensorflow  # noqa: ICN001, PLC0415 - takes seconds to load
    except ImportError:
        raise PackageMissingError(
            "to_tf requires TensorFlow, which is not installed",
            hint=Hint.of("run `pip install tensorflow`"),
        ) from None
    return tensorflow


def _stored_chunks(
    snapshot: StoredSnapshot, shards: list[Records], limits: Limits
) -> tf.data.Dataset:
    """Vectors of records, read by our own reader: TensorFlow knows no object stores."""
    tf = _tensorflow()
    check = snapshot.schema.payload != "opaque"

    def blocks_of(one: Records) -> Generator[Block, None, None]:
        return one.blocks(limits=limits, block_bytes=CHUNK_BYTES)

    def payloads(one: Records, block: Block) -> list[bytes]:
        if check:
            refuse_bad_examples(one.path, block)
        return [bytes(payload) for payload in block.payloads()]

    def chunks() -> Iterator[list[bytes]]:
        return work_ahead(shards, blocks_of, payloads, threads=threads_for(snapshot.store, None))

    return tf.data.Dataset.from_generator(
        chunks, output_signature=tf.TensorSpec((None,), tf.string)
    )
