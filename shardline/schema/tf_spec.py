"""Conversion between schemas and TensorFlow feature specs, as objects or as Python code.

| feature                                    | spec                                              |
|--------------------------------------------|---------------------------------------------------|
| fixed shape, required                      | FixedLenFeature: a tensor                         |
| fixed shape, optional; any number          | RaggedFeature: missing is empty                   |
| any number of rows                         | RaggedFeature, cut into rows by UniformRowLength  |
| steps of a fixed shape                     | FixedLenSequenceFeature: a tensor                 |
| steps of any number of values, or of rows  | RaggedFeature                                     |

No value is invented for a missing feature. TensorFlow pads the steps of a batch, and reports how
many of them are real.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.schema import shapes
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardline.kernel.types import Kind
    from shardline.schema.shapes import Shape


Spec: TypeAlias = dict[str, Any]
"""Spec for `tf.io.parse_example` and similar parsers: how to read each feature."""

_DTYPES: dict[str, Kind] = {"string": "bytes", "float32": "float", "int64": "int64"}
_NAMES = {kind: name for name, kind in _DTYPES.items()}


def to_tf_spec(schema: Schema) -> Spec | tuple[Spec, Spec]:
    """Return the schema as `parse_example` and `parse_single_example` take it.

    For SequenceExamples it is a pair of context and feature_lists, as `parse_sequence_example` and
    `parse_single_sequence_example` take it.
    """
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque schema: TensorFlow has no spec for records that are not Examples",
            code="opaque-schema",
        )
    dtypes = {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}
    context: Spec = {}
    lists: Spec = {}
    for feature in schema.features:
        dtype = dtypes[feature.kind]
        if feature.sequence and shapes.is_fixed(feature.shape):
            lists[feature.name] = tf.io.FixedLenSequenceFeature(
                feature.shape, dtype, allow_missing=not feature.required
            )
        elif feature.required and shapes.is_fixed(feature.shape):
            context[feature.name] = tf.io.FixedLenFeature(feature.shape, dtype)
        else:
            rows = [tf.io.RaggedFeature.UniformRowLength(size) for size in feature.shape[1:]]
            ragged = tf.io.RaggedFeature(dtype, partitions=rows)
            (lists if feature.sequence else context)[feature.name] = ragged
    return (context, lists) if schema.payload == "sequence_example" else context


def from_tf_spec(
    spec: Mapping[str, Any],
    sequence: Mapping[str, Any] | None = None,
    *,
    nan: bool = False,
    doc: str = "",
) -> Schema:
    """Return the schema of the records that a spec can parse.

    `sequence` is the spec of the feature_lists. A spec does not describe NaN, so `nan` decides for
    all float features. The spec is read by its class names, so TensorFlow need not be installed.
    """
    features = [_feature(name, entry, sequence=False, nan=nan) for name, entry in spec.items()]
    if sequence is None:
        return Schema(tuple(features), "example", doc)
    features += [_feature(name, entry, sequence=True, nan=nan) for name, entry in sequence.items()]
    return Schema(tuple(features), "sequence_example", doc)


def _feature(name: str, entry: Any, *, sequence: bool, nan: bool) -> Feature:  # noqa: ANN401 - tf.io's
    sort = type(entry).__name__
    required = False
    shape: Shape = (None,)
    if sort == "FixedLenFeature" and not sequence:
        shape = _shape(name, entry)
        required = entry.default_value is None
    elif sort == "FixedLenSequenceFeature":
        shape = _shape(name, entry) if sequence else (None, *_shape(name, entry))
        required = not entry.allow_missing
    elif sort == "RaggedFeature":
        shape = (None, *(_row(name, partition) for partition in entry.partitions))
        name = entry.value_key or name
    elif sort != "VarLenFeature":
        _raise_unsupported(name, sort)
    kind = _kind(name, entry.dtype)
    return Feature(
        name, kind, shape, required=required, sequence=sequence, nan=nan and kind == "float"
    )


def _raise_unsupported(name: str, sort: str) -> NoReturn:
    advice = {
        "SparseFeature": "declare its index_key and its value_key as features of their own",
        "FixedLenFeature": "for the steps of a feature list, use a FixedLenSequenceFeature, a "
        "RaggedFeature or a VarLenFeature",
    }.get(sort, "use a FixedLen-, VarLen-, Ragged- or FixedLenSequenceFeature of tf.io")
    raise SchemaMismatchError(
        f"feature {name!r}: unsupported spec {sort}",
        code="unsupported-tf-spec",
        hint=Hint.of(advice),
        feature=name,
    )


def _shape(name: str, entry: Any) -> Shape:  # noqa: ANN401 - a spec of tf.io
    """Return the shape, which TensorFlow takes as a number, a sequence or a TensorShape."""
    sizes = (entry.shape,) if isinstance(entry.shape, int) else entry.shape
    shape = tuple(None if size is None else int(size) for size in sizes)
    if None in shape:
        raise SchemaMismatchError(
            f"feature {name!r}: shape {shape} of a {type(entry).__name__} is not fixed",
            code="invalid-shape",
            hint=Hint.of("use a RaggedFeature, or a FixedLenSequenceFeature of the fixed part"),
            feature=name,
        )
    return shape


def _row(name: str, partition: Any) -> int:  # noqa: ANN401 - a partition of tf.io.RaggedFeature
    if type(partition).__name__ != "UniformRowLength":
        raise SchemaMismatchError(
            f"feature {name!r}: partition by another feature",
            code="unsupported-tf-spec",
            hint=Hint.of("declare both features, without partitions"),
            feature=name,
        )
    return int(partition.length)


def _kind(name: str, dtype: Any) -> Kind:  # noqa: ANN401 - a tf.DType
    dtype_name = getattr(dtype, "name", str(dtype))
    if dtype_name not in _DTYPES:
        raise SchemaMismatchError(
            f"feature {name!r}: unsupported dtype {dtype_name}",
            code="unsupported-type",
            hint=Hint.of("declare tf.string, tf.float32 or tf.int64, and cast after parsing"),
            feature=name,
        )
    return _DTYPES[dtype_name]


def format_spec(schema: Schema) -> str:
    """Return the feature spec as code, or a comment for opaque records."""
    if schema.payload == "opaque":
        return "# the records are opaque: there is nothing to parse\n"
    if schema.payload == "example":
        return _format_block("features", schema, sequence=False)
    return _format_block("context_features", schema, sequence=False) + _format_block(
        "sequence_features", schema, sequence=True
    )


def format_parser(schema: Schema) -> str:
    """Return the lambda that parses a record with that spec. Empty for opaque records."""
    if schema.payload == "opaque":
        return ""
    if schema.payload == "example":
        return "lambda record: tf.io.parse_single_example(record, features)"
    return (
        "lambda record: tf.io.parse_single_sequence_example(\n"
        "        record, context_features, sequence_features\n"
        "    )"
    )


def _format_block(title: str, schema: Schema, *, sequence: bool) -> str:
    lines = [
        f"    {json.dumps(feature.name, ensure_ascii=False)}: {_format_feature(feature)},\n"
        for feature in schema.features
        if feature.sequence == sequence
    ]
    return f"{title} = {{\n{''.join(lines)}}}\n"


def _format_feature(feature: Feature) -> str:
    dtype, shape = f"tf.{_NAMES[feature.kind]}", list(feature.shape)
    fixed = None not in shape
    if feature.sequence and fixed:
        missing = "" if feature.required else ", allow_missing=True"
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype}{missing})"
    if feature.required and fixed:
        return f"tf.io.FixedLenFeature({shape}, {dtype})"
    rows = ", ".join(f"tf.io.RaggedFeature.UniformRowLength({size})" for size in shape[1:])
    return f"tf.io.RaggedFeature({dtype}{f', partitions=[{rows}]' if rows else ''})"
