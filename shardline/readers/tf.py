"""Batches of serialized records as tensors in the shapes of a schema.

| feature                        | tensor of a batch                                             |
|--------------------------------|---------------------------------------------------------------|
| shape (2, 3)                   | [batch, 2, 3]                                                 |
| shape (None, 3)                | ragged: [batch, (rows), 3]                                    |
| optional, of shape ()          | ragged: [batch, (0 or 1)]                                     |
| optional, of shape (2, 3)      | ragged: [batch, (0 or 2), 3]                                  |
| a feature of the feature_lists | ragged: [batch, (steps), and the shape of one step]           |
| an Array of int32, (4, 4)      | decoded: as above, followed by [4, 4], as tf.int32            |
| an Array of int32, (None, 4)   | decoded: as above, ragged, followed by [(rows), 4]            |

A missing feature is an empty row, and no value is invented. Text and images stay tf.string.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from shardline.errors import (
    InvalidArgumentError,
    PackageMissingError,
    UnreadableSnapshotError,
)
from shardline.execution.threads import map_streams
from shardline.hints import Command, Hint, Option
from shardline.readers.arrow import choose_threads, select_columns
from shardline.readers.read_errors import get_dependency_hint
from shardline.readers.records import (
    count_read_bytes,
    is_compressed,
    list_needed_layers,
    open_records,
)
from shardline.readers.shard_file import TF_COMPRESSIONS
from shardline.schema import shapes
from shardline.schema.logical_types import Array
from shardline.schema.schema import Schema
from shardline.schema.tf_spec import to_tf_spec
from shardline.tfrecord.examples import validate_examples
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import tensorflow as tf

    from shardline.log.layers import Layer
    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.records import Records
    from shardline.schema.schema import Feature
    from shardline.schema.shapes import Shape


Tensor: TypeAlias = Any
"""A tf.Tensor or tf.RaggedTensor. TensorFlow ships no types."""

_READ_AS = {"uint32": "int32", "uint64": "int64", "bool": "uint8"}
"""Dtypes decoded in place of unsupported ones. As bool, bytes over 1 would be invalid."""


def make_batch_parser(schema: Schema, features: Sequence[Feature]) -> Callable[[Tensor], Any]:
    """Return the function that parses a vector of records into features by name.

    For SequenceExamples it returns a pair: the context and the feature_lists.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    chosen = Schema(tuple(features), schema.payload)
    spec = to_tf_spec(chosen)
    context = [feature for feature in chosen.features if not feature.sequence]
    lists = [feature for feature in chosen.features if feature.sequence]

    def parse_examples(records: Tensor) -> dict[str, Tensor]:
        return _reshape(context, tf.io.parse_example(records, spec))

    if not isinstance(spec, tuple):
        return parse_examples
    # TensorFlow pads steps of a fixed shape, but leaves ragged steps as they are.
    steps = {
        name: tf.io.RaggedFeature(
            feature_spec.dtype, partitions=getattr(feature_spec, "partitions", ())
        )
        for name, feature_spec in spec[1].items()
    }

    def parse_sequences(records: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        parsed = tf.io.parse_sequence_example(records, spec[0] or None, steps or None)
        return _reshape(context, parsed[0]), _reshape(lists, parsed[1])

    return parse_sequences


def make_layers_parser(schema: Schema, parts: Sequence[Sequence[Feature]]) -> Callable[..., Any]:
    """Return the function that parses several vectors, one per layer with these features."""
    parsers = [make_batch_parser(schema, features) for features in parts]

    def parse_layers(*layers: Tensor) -> Any:  # noqa: ANN401 - as make_batch_parser's gives it
        parsed = [parser(layer) for parser, layer in zip(parsers, layers, strict=True)]
        if schema.payload != "sequence_example":
            return _merge_features(parsed)
        return tuple(_merge_features(side) for side in zip(*parsed, strict=True))

    return parse_layers


def _merge_features(parsed: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: tensor for part in parsed for name, tensor in part.items()}


def join_layers(*layers: Tensor) -> Tensor:
    """Join vectors of layers into whole records: concatenated messages merge."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    return tf.strings.join(layers)


def _reshape(features: Sequence[Feature], parsed: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors = {}
    for feature in features:
        tensor = _reshape_tensor(feature, parsed[feature.name])
        if isinstance(feature.meaning, Array):
            tensor = _decode_arrays(feature.meaning, tensor)
        tensors[feature.name] = tensor
    return tensors


def _reshape_tensor(feature: Feature, tensor: Tensor) -> Tensor:
    """Return the tensor with all dimensions dense that do not vary between records."""
    fixed = shapes.is_fixed(feature.shape)
    if not feature.sequence:
        if feature.required and fixed:
            return tensor
        return _rows(tensor.flat_values, feature.shape[1:], tensor.row_splits)
    if fixed:
        return _rows(tensor.flat_values, feature.shape, tensor.row_splits)
    steps = _rows(tensor.flat_values, feature.shape[1:], tensor.values.row_splits)
    return _rows(steps, None, tensor.row_splits)


def _rows(values: Tensor, shape: Shape | None, splits: Tensor) -> Tensor:
    """Return rows that `splits` cuts from the values, each value of `shape` if given."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    cells = values if shape is None else tf.reshape(values, (-1, *shape))
    # TensorFlow parses with 32-bit splits and creates 64-bit splits everywhere else.
    return tf.RaggedTensor.from_row_splits(cells, tf.cast(splits, tf.int64))


def _decode_arrays(meaning: Array, tensor: Tensor) -> Tensor:
    """Decode the arrays whose bytes a tensor holds."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    if isinstance(tensor, tf.RaggedTensor):
        return tensor.with_flat_values(_decode_arrays(meaning, tensor.flat_values))
    inner = tensor.shape[1:].as_list()
    data = tf.reshape(tensor, (-1,))
    if shapes.is_fixed(meaning.shape):
        return tf.reshape(_numbers(meaning.dtype, data), (-1, *inner, *meaning.shape))
    # decode_raw takes strings of a single length, so all are decoded as one string and split
    # afterwards.
    numbers = _numbers(meaning.dtype, tf.strings.reduce_join(data))
    lengths = tf.cast(tf.strings.length(data), tf.int64) // meaning.unit_bytes
    arrays = tf.RaggedTensor.from_row_lengths(
        tf.reshape(numbers, (-1, *meaning.shape[1:])), lengths
    )
    for size in reversed(inner):
        arrays = tf.RaggedTensor.from_uniform_row_length(arrays, size)
    return arrays


def _numbers(dtype: str, data: Tensor) -> Tensor:
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    numbers = tf.io.decode_raw(data, _READ_AS.get(dtype, dtype), little_endian=True)
    if dtype == "bool":
        return tf.cast(numbers, tf.bool)
    return tf.bitcast(numbers, dtype) if dtype in _READ_AS else numbers


CHUNK_BYTES = 1024 * 1024
_CHUNK_RECORDS = 1024
_PACKED_SHRINKS = 4
_PACKED_CHUNK_RECORDS = 128
"""Limit for compressed files: records may be much larger than their compressed size."""
_MANY_RECORDS = 256
"""From this chunk size on, records cost more than bytes, so layers are read in parallel."""
_SHARDS_AT_ONCE = 8
"""Equal on every machine, so that a deterministic interleave has the same order."""
_READ_BYTES = 1024 * 1024


def read_local_chunks(
    records: Sequence[Records], *, interleave: bool, ordered: bool
) -> tf.data.Dataset:
    """Return vectors of records, or tuples with a vector per layer, lowest layer first.

    TensorFlow checks each file against its record count. If a shard has fewer layers than another,
    its records in the layers above are empty.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    for one in records:
        one.look()
        for file in one.files:
            file.validate_not_swapped()
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
        layers = [
            layer(paths[level], packed[level], there[level], count, size) for level in range(depth)
        ]
        if most >= _MANY_RECORDS:
            layers[1:] = [one.prefetch(1) for one in layers[1:]]
        return layers[0] if depth == 1 else tf.data.Dataset.zip(tuple(layers))

    # With a single file at a time, order is kept and the next file is opened early.
    return tf.data.Dataset.from_tensor_slices(_describe_files(records, depth, most)).interleave(
        tf.autograph.experimental.do_not_convert(read),
        cycle_length=_SHARDS_AT_ONCE if interleave else 1,
        num_parallel_calls=tf.data.AUTOTUNE if interleave else 1,
        deterministic=ordered,
    )


def _depth_of(records: Sequence[Records]) -> int:
    """Return the largest number of layers."""
    return max((len(shard.files) for shard in records), default=1)


def _describe_files(records: Sequence[Records], depth: int, most: int) -> tuple[Tensor, ...]:
    """Return the tensors that describe each shard.

    They hold the paths and compressions of its layers, which layers exist, the number of records,
    and the number of records per chunk.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    rows = [(*shard.files, *[None] * (depth - len(shard.files))) for shard in records]
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
        tf.constant([shard.shard.records for shard in records], tf.int64),
        tf.constant([_uneven(shard.shard.records, most) for shard in records], tf.int64),
    )


def _uneven(count: int, size: int) -> int:
    """Return a chunk size, at least `size`, that leaves a short chunk at the end.

    To fill the short chunk, TensorFlow looks for the end of each layer and checks its count. After
    a full last chunk it would not notice that a layer above continues.
    """
    while count and count % size == 0:
        size += 1
    return size


def chunk_records(records: Sequence[Records]) -> int:
    """Return the number of records per chunk: many if they are small, few if they are large."""
    count = sum(shard.shard.records for shard in records)
    size, most = count_read_bytes(records) // max(count, 1), _CHUNK_RECORDS
    if any(is_compressed(shard) for shard in records):
        size, most = size * _PACKED_SHRINKS, _PACKED_CHUNK_RECORDS
    return min(max(CHUNK_BYTES // max(size, 1), 1), most)


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
    """Read a snapshot as a tf.data.Dataset. See `Snapshot.to_tf`.

    Records pass through in chunks: TensorFlow parses a vector of records more than ten times as
    fast as single records.
    """
    if batch is not None and batch < 1:
        raise InvalidArgumentError(f"invalid batch {batch}: expected at least 1")
    if columns is not None and not parse:
        raise InvalidArgumentError(
            "columns require parsed records",
            hint=Hint.of("leave out ", Option("parse", value=False), " or the columns"),
        )
    raw = Hint.of("read whole records with ", Option("parse", value=False))
    features = select_columns(snapshot.schema, columns, raw) if parse else []
    layers = list_needed_layers(snapshot, features if parse else None)
    if not unchecked:
        _validate_trusted(snapshot, layers)
    tf = _tensorflow()
    shards = [open_records(snapshot, item, features if parse else None) for item in layers]
    ordered = not interleave or deterministic
    if all(_read_by_tensorflow(item) for item in shards):
        chunks = read_local_chunks(shards, interleave=interleave, ordered=ordered)
        work = _make_work(snapshot.schema, features, layers)
        most = chunk_records(shards)
    else:
        ordered, most = True, 0
        chunks = _stored_chunks(snapshot, shards, limits or DEFAULT_LIMITS)
        work = make_batch_parser(snapshot.schema, features) if parse else None
    records = snapshot.records
    whole = _map_chunks(chunks, work, ordered=ordered)
    if batch is None:
        chunks = whole
    else:
        records = records // batch if drop_remainder else -(-records // batch)
        # A longer vector costs less per record to parse, but a ragged vector is cut record by
        # record.
        whole_first = batch < most and not _is_ragged(whole)
        chunks = (whole if whole_first else chunks).rebatch(batch, drop_remainder=drop_remainder)
        chunks = chunks if whole_first else _map_chunks(chunks, work, ordered=ordered)
    chunks = chunks.prefetch(tf.data.AUTOTUNE)
    dataset = chunks.unbatch() if batch is None else chunks
    return dataset.apply(tf.data.experimental.assert_cardinality(records))


def _map_chunks(
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
    """Return True if TensorFlow can read the shard: all its files are on a local disk."""
    if shard.shard.virtual:
        return False
    return all(file.file.store.local_path(file.file.name) is not None for file in shard.files)


def _validate_trusted(snapshot: StoredSnapshot, layers: Sequence[Sequence[Layer]]) -> None:
    """Raise an error for unchecked records: TensorFlow can crash on corrupt data."""
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
                    hint=get_dependency_hint(
                        snapshot.store, str(snapshot), layer.version, layer.shard
                    ),
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
    """Return the hint to check records, since TensorFlow can crash on corrupt data."""
    return Hint.of(
        "TensorFlow can crash on corrupt records: run ",
        Command.of("check", version),
        f"{then}, or accept the risk with ",
        Option("unchecked", value=True),
    )


def _make_work(
    schema: Schema, features: Sequence[Feature], layers: Sequence[Sequence[Layer]]
) -> Callable[..., Any] | None:
    """Return the function that turns chunks into features, or layers into whole records.

    Returns None if the chunks already are whole records.
    """
    if all(len(stack) == 1 for stack in layers):
        return make_batch_parser(schema, features) if features else None
    if not features:
        return join_layers
    key_sets = {tuple(layer.keys for layer in stack) for stack in layers}
    if len(key_sets) > 1:
        parser = make_batch_parser(schema, features)
        return lambda *parts: parser(join_layers(*parts))
    # Parsing each layer separately copies nothing.
    (each,) = key_sets
    return make_layers_parser(schema, [[f for f in features if f.key in keys] for keys in each])


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
    """Return vectors of records from Shardline's reader, for stores TensorFlow cannot read."""
    tf = _tensorflow()
    check = snapshot.schema.payload != "opaque"

    def open_blocks(records: Records) -> Generator[RecordBlock, None, None]:
        return records.blocks(limits=limits, block_bytes=CHUNK_BYTES)

    def payloads(shard: Records, block: RecordBlock) -> list[bytes]:
        if check:
            validate_examples(shard.path, block)
        return [bytes(payload) for payload in block.payloads()]

    def chunks() -> Iterator[list[bytes]]:
        return map_streams(
            shards,
            open_blocks,
            payloads,
            copy=RecordBlock.copy,
            threads=choose_threads(snapshot.store, None),
        )

    return tf.data.Dataset.from_generator(
        chunks, output_signature=tf.TensorSpec((None,), tf.string)
    )
