"""What tests of sources share: take all of one, and have TensorFlow and our decoder read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from shardline import kernel
from shardline.kernel.columns import decode_columns
from shardline.kernel.types import Column
from shardline.sources.source_mismatch import SourceSchemaError
from tests.tfrecord.samples import made, read_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shardline.errors import ShardlineError
    from shardline.schema.schema import Feature, Schema
    from shardline.sources import Chunk, QuarantinedRow, RecordSource


@dataclass(slots=True)
class Taken:
    """All that a source gave."""

    data: bytes = b""
    payloads: list[bytes] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    refused: list[QuarantinedRow] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    @property
    def places(self) -> list[tuple[str, str | None]]:
        """Where each refusal is: the place in the source, and the feature."""
        return [(refused.where, refused.feature) for refused in self.refused]

    @property
    def told(self) -> list[str]:
        """The refusals in words."""
        return [str(refused) for refused in self.refused]


def take(source: RecordSource, schema: Schema, start: int = 0) -> Taken:
    """Read a source to its end."""
    return taken(source.chunks(schema, start))


def taken(chunks: Iterable[Chunk]) -> Taken:
    """All that these chunks hold; whatever they say of their frames is checked on the way."""
    all_of_it = Taken()
    for chunk in chunks:
        frames = chunk.frames()
        scan = kernel.scan(frames.data, max_record_bytes=2**30)
        assert scan.fault is None
        assert scan.consumed == len(frames.data)
        assert scan.starts.tolist() == frames.starts.tolist()
        assert scan.lengths.tolist() == frames.lengths.tolist()
        assert len(frames.rows) == len(frames.starts)
        all_of_it.data += bytes(frames.data)
        all_of_it.payloads += [
            bytes(frames.data[start : start + length])
            for start, length in zip(frames.starts, frames.lengths, strict=True)
        ]
        all_of_it.rows += frames.rows.tolist()
        all_of_it.refused += frames.refused
        all_of_it.ends.append(chunk.end)
        all_of_it.positions.append(chunk.position)
    assert all_of_it.rows == sorted(set(all_of_it.rows))
    assert not {refused.row for refused in all_of_it.refused} & set(all_of_it.rows)
    return all_of_it


def changes_in(error: ShardlineError) -> list[tuple[str, str, str, str]]:
    """Return how a source's schema differs: feature, change, old and new."""
    assert isinstance(error, SourceSchemaError)
    assert error.to_dict()["differences"] == error.differences
    return [(one["feature"], one["change"], one["old"], one["new"]) for one in error.differences]


def read_back(folder: Path, schema: Schema, data: bytes) -> dict[str, list[Any]]:
    """Each feature's values per record, as TensorFlow reads them and our decoder does too."""
    payloads = read_by_tensorflow(made(folder / "written.tfrecord", data))
    mine = _by_our_decoder(schema, data)
    theirs = _by_tensorflow(schema, payloads)
    assert repr(mine) == repr(theirs)  # by their text: NaN is like no other, not even itself
    return mine


def _by_our_decoder(schema: Schema, data: bytes) -> dict[str, list[Any]]:
    scan = kernel.scan(data, max_record_bytes=2**30)
    columns = [
        Column(f.name, f.kind, "ragged" if f.sequence else "variable") for f in schema.features
    ]
    batch = decode_columns(data, scan.starts, scan.lengths, columns)
    return {name: batch.column(name).to_pylist() for name in batch.schema.names}


def _by_tensorflow(schema: Schema, payloads: list[bytes]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {feature.name: [] for feature in schema.features}
    if not payloads:
        return found
    context = {f.name: _ragged(f) for f in schema.features if not f.sequence}
    lists = {f.name: _ragged(f) for f in schema.features if f.sequence}
    if schema.payload == "sequence_example":
        parsed, steps, _ = tf.io.parse_sequence_example(payloads, context or None, lists or None)
        parsed = {**parsed, **steps}
    else:
        parsed = tf.io.parse_example(payloads, context)
    for feature in schema.features:
        values = parsed[feature.name].to_list()
        for payload, value in zip(payloads, values, strict=True):
            found[feature.name].append(value if _has(payload, feature) else None)
    return found


def _ragged(feature: Feature) -> Any:  # noqa: ANN401 - a tf.io spec
    dtype = {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}[feature.kind]
    return tf.io.RaggedFeature(dtype)


def _has(payload: bytes, feature: Feature) -> bool:
    message = tf.train.SequenceExample.FromString(payload)
    if feature.sequence:
        return feature.name in message.feature_lists.feature_list
    return feature.name in message.context.feature


def floats(*values: float) -> list[float]:
    """The values as 32-bit floats hold them."""
    return np.array(values, np.float32).tolist()  # type: ignore[no-any-return]
