"""A batch of serialized records as tensors in the shapes that a schema declares.

| feature                        | tensor of a batch                                             |
|--------------------------------|---------------------------------------------------------------|
| shape (2, 3)                   | [batch, 2, 3]                                                 |
| shape (None, 3)                | ragged: [batch, (rows), 3]                                    |
| optional, of shape ()          | ragged: [batch, (0 or 1)]                                     |
| optional, of shape (2, 3)      | ragged: [batch, (0 or 2), 3]                                  |
| a feature of the feature_lists | ragged: [batch, (steps), and the shape of one step]           |
| an Array of int32, (4, 4)      | decoded: what is above, with [4, 4] behind it, as tf.int32    |
| an Array of int32, (None, 4)   | decoded: what is above, ragged, with [(rows), 4] behind it    |

So a missing feature is an empty row, and no value is made up. Text and images stay tf.string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from shardline.schema import shapes
from shardline.schema.logical_types import Array
from shardline.schema.schema import Schema
from shardline.schema.tf_spec import to_tf_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.schema.schema import Feature
    from shardline.schema.shapes import Shape

Tensor: TypeAlias = Any
"""A tf.Tensor or a tf.RaggedTensor: TensorFlow ships no types."""

_READ_AS = {"uint32": "int32", "uint64": "int64", "bool": "uint8"}
"""How to read what tf.io.decode_raw cannot; as for bool, any byte but 0 and 1 would be none."""


def batch_parser(schema: Schema, features: Sequence[Feature]) -> Callable[[Tensor], Any]:
    """What makes of a vector of records their features by name.

    Of SequenceExamples it makes a pair, of the context and of the feature_lists.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    chosen = Schema(tuple(features), schema.payload)
    spec = to_tf_spec(chosen)
    context = [feature for feature in chosen.features if not feature.sequence]
    lists = [feature for feature in chosen.features if feature.sequence]

    def parse_examples(records: Tensor) -> dict[str, Tensor]:
        return _shaped(context, tf.io.parse_example(records, spec))

    if not isinstance(spec, tuple):
        return parse_examples
    # TensorFlow would fill up steps of a fixed shape; ragged ones it leaves as they are.
    steps = {
        name: tf.io.RaggedFeature(told.dtype, partitions=getattr(told, "partitions", ()))
        for name, told in spec[1].items()
    }

    def parse_sequences(records: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        parsed = tf.io.parse_sequence_example(records, spec[0] or None, steps or None)
        return _shaped(context, parsed[0]), _shaped(lists, parsed[1])

    return parse_sequences


def layers_parser(schema: Schema, parts: Sequence[Sequence[Feature]]) -> Callable[..., Any]:
    """The same of several vectors, one for each layer of the records, which has these features."""
    parsers = [batch_parser(schema, features) for features in parts]

    def parse_layers(*layers: Tensor) -> Any:  # noqa: ANN401 - as batch_parser's gives it
        parsed = [parser(layer) for parser, layer in zip(parsers, layers, strict=True)]
        if schema.payload != "sequence_example":
            return _together(parsed)
        return tuple(_together(side) for side in zip(*parsed, strict=True))

    return parse_layers


def _together(parsed: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: tensor for part in parsed for name, tensor in part.items()}


def joined(*layers: Tensor) -> Tensor:
    """Vectors of layers as one of whole records: concatenating messages is merging them."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    return tf.strings.join(layers)


def _shaped(features: Sequence[Feature], parsed: dict[str, Tensor]) -> dict[str, Tensor]:
    made = {}
    for feature in features:
        tensor = _in_shape(feature, parsed[feature.name])
        if isinstance(feature.meaning, Array):
            tensor = _decoded(feature.meaning, tensor)
        made[feature.name] = tensor
    return made


def _in_shape(feature: Feature, tensor: Tensor) -> Tensor:
    """The tensor with everything dense but what may differ from record to record."""
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
    """Rows that are cut by `splits` from values, each of a shape if it is told."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    cells = values if shape is None else tf.reshape(values, (-1, *shape))
    # TensorFlow parses with splits of 32 bits, and makes those of 64 everywhere else.
    return tf.RaggedTensor.from_row_splits(cells, tf.cast(splits, tf.int64))


def _decoded(meaning: Array, tensor: Tensor) -> Tensor:
    """The arrays whose bytes a tensor holds."""
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    if isinstance(tensor, tf.RaggedTensor):
        return tensor.with_flat_values(_decoded(meaning, tensor.flat_values))
    inner = tensor.shape[1:].as_list()
    data = tf.reshape(tensor, (-1,))
    if shapes.is_fixed(meaning.shape):
        return tf.reshape(_numbers(meaning.dtype, data), (-1, *inner, *meaning.shape))
    # decode_raw takes strings of one length only, so all are read as one and cut afterwards.
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
