"""Versions to extend and to migrate, fields for them, and what is in them afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import tensorflow as tf

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.schema.schema import Feature, Schema, Text
from shardline.udf import batch_udf, record_udf
from tests.operations.landings import json_lines, rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from shardline.api import Snapshot

SCHEMA = Schema((Feature("id", "int64"), Feature("name", "bytes", meaning=Text())))


def grown(version: Version, folder: Path, *spans: tuple[int, int]) -> Version:
    """The version with one more shard for each span of ids, published."""
    folder.mkdir(exist_ok=True)
    sources = [
        json_lines(folder / f"{first:06}-{last:06}.jsonl", rows(first, last))
        for first, last in spans
    ]
    append(version, sources, schema=SCHEMA)
    assert check_version(version).ok
    return version


def base_of(tmp_path: Path, *spans: tuple[int, int]) -> Version:
    """A published version with a shard for each span of ids."""
    return grown(Version(tmp_path / "root", "digits/v1"), tmp_path / "landing", *spans)


def version_in(tmp_path: Path, name: str = "digits/v2") -> Version:
    """Another version of the same root."""
    return Version(tmp_path / "root", name)


@batch_udf(Feature("double", "int64"), reads=["id"], code="1")
def double(batch: pa.RecordBatch) -> dict[str, Any]:
    """Twice the id."""
    return {"double": pc.multiply(batch["id"], 2)}


@record_udf(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    """How long the name is."""
    return {"length": len(record["name"])}


def table(snapshot: Snapshot, columns: list[str] | None = None) -> dict[str, list[Any]]:
    """What our reader reads, column by column."""
    read: dict[str, list[Any]] = snapshot.to_arrow(columns).read_all().to_pydict()
    return read


def by_tensorflow(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What tf.data reads, record by record."""
    return [
        {name: value.numpy() for name, value in record.items()}
        for record in snapshot.to_tf(unchecked=True)
    ]


def by_protobuf(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What protobuf reads, record by record."""
    return [
        {name: _value(feature) for name, feature in _features(payload.numpy())}
        for payload in snapshot.to_tf(parse=False, unchecked=True)
    ]


def _features(payload: bytes) -> list[tuple[str, tf.train.Feature]]:
    return sorted(tf.train.Example.FromString(payload).features.feature.items())


def _value(feature: tf.train.Feature) -> object:
    values = list(getattr(feature, feature.WhichOneof("kind")).value)
    return values[0] if len(values) == 1 else values
