"""TensorFlow feature specs and the matching parser calls, as Python code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardline.schema.schema import Feature, Schema

_DTYPES = {"bytes": "tf.string", "float": "tf.float32", "int64": "tf.int64"}


def format_spec(schema: Schema) -> str:
    """Return the feature spec as code, or a comment for opaque records."""
    if schema.payload == "opaque":
        return "# the records are opaque: there is nothing to parse\n"
    if schema.payload == "example":
        return _block("features", schema, sequence=False)
    return _block("context_features", schema, sequence=False) + _block(
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


def _block(title: str, schema: Schema, *, sequence: bool) -> str:
    lines = [
        f"    {json.dumps(feature.name, ensure_ascii=False)}: {_spec(feature)},\n"
        for feature in schema.features
        if feature.sequence == sequence
    ]
    return f"{title} = {{\n{''.join(lines)}}}\n"


def _spec(feature: Feature) -> str:
    dtype, shape = _DTYPES[feature.kind], list(feature.shape)
    fixed = None not in shape
    if feature.sequence and fixed:
        missing = "" if feature.required else ", allow_missing=True"
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype}{missing})"
    if feature.required and fixed:
        return f"tf.io.FixedLenFeature({shape}, {dtype})"
    rows = ", ".join(f"tf.io.RaggedFeature.UniformRowLength({size})" for size in shape[1:])
    return f"tf.io.RaggedFeature({dtype}{f', partitions=[{rows}]' if rows else ''})"
