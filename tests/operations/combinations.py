"""Sides to combine, and their pairs as two nested loops over protobuf messages make them."""

from __future__ import annotations

import hashlib
import re
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from shardline.api import Version
from shardline.log.append_change import Append
from shardline.log.model import Shard, Source
from shardline.operations.combine import combine
from shardline.schema.schema import Feature, Schema
from tests.kernel.frames import framed
from tests.log.versions import shard_name, source_of
from tests.tfrecord.samples import example_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.api import Snapshot
    from shardline.errors import InvalidRecordsError
    from shardline.operations.combine import CombineReport

LEFT = Schema((Feature("a", "int64"), Feature("text", "bytes")))
RIGHT = Schema((Feature("b", "int64"), Feature("word", "bytes")))


def lefts(first: int, last: int) -> list[bytes]:
    """Records of LEFT that tell which they are."""
    return [example_of(a=number, text=b"l" * (number % 4)) for number in range(first, last)]


def rights(first: int, last: int) -> list[bytes]:
    """Records of RIGHT that tell which they are."""
    return [example_of(b=number, word=b"r" * (number % 3)) for number in range(first, last)]


def land_shards(version: Version, *contents: Sequence[bytes]) -> Version:
    """The version with one more shard for each content, in one entry."""
    shards: list[Shard] = []
    sources: list[Source] = []
    for records in contents:
        data = framed(*records)
        label = f"{version.name} {version.state.number} {len(shards)}"
        source = source_of(label)
        digest = hashlib.sha256(data).hexdigest()
        name = shard_name(label, version.log.version)
        shard = Shard(name, len(records), len(data), digest, "none", source.key)
        version.store.create(version.shard_name(shard), data)
        shards.append(shard)
        sources.append(source)
    version.commit(Append(shards=shards, sources=sources))
    return version


def side(root: Path, name: str, schema: Schema, *contents: Sequence[bytes]) -> Version:
    """A version of this schema, with a shard for each content."""
    version = Version(root, name)
    version.create(schema)
    return land_shards(version, *contents)


def combined(left: Version, right: Version, into: Version, **options: Any) -> CombineReport:  # noqa: ANN401 - as they come
    """Combine the newest snapshots."""
    newest: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    return combine(left, right, into, **{**newest, **options})


def contents(version: Version, snapshot: Snapshot | None = None) -> list[list[bytes]]:
    """The records of each shard of a snapshot, the newest unless told."""
    files = (snapshot or version.latest()).files()
    return [records_of(Path(file)) for file in files]


def pair(left: bytes, right: bytes | None, prefixes: tuple[str, str] = ("", "")) -> bytes:
    """The record that the common recipe makes of two: parse both, copy all, serialize."""
    made = tf.train.SequenceExample()
    for prefix, payload in zip(prefixes, (left, right), strict=True):
        if payload is None:
            continue
        found = tf.train.SequenceExample.FromString(payload)
        for name, feature in found.context.feature.items():
            made.context.feature[prefix + name].CopyFrom(feature)
        for name, feature_list in found.feature_lists.feature_list.items():
            made.feature_lists.feature_list[prefix + name].CopyFrom(feature_list)
    return canonical(made.SerializeToString())


def canonical(payload: bytes) -> bytes:
    """The bytes that protobuf writes for a record, whatever the order of its features."""
    found = tf.train.SequenceExample.FromString(payload)
    return bytes(found.SerializeToString(deterministic=True))


def canonicals(payloads: Iterable[bytes]) -> list[bytes]:
    """The same for several."""
    return [canonical(payload) for payload in payloads]


def nested(
    left: Iterable[bytes], right: Sequence[bytes], prefixes: tuple[str, str] = ("", "")
) -> list[bytes]:
    """All pairs, as two nested loops make them."""
    return [pair(one, other, prefixes) for one in left for other in right]


def by_shards(left: Sequence[Sequence[bytes]], right: Sequence[Sequence[bytes]]) -> list[bytes]:
    """All pairs, by shards."""
    return [made for one in left for other in right for made in nested(one, other)]


def each_two(records: Sequence[bytes], prefixes: tuple[str, str]) -> list[bytes]:
    """Each two different records once."""
    return [pair(one, other, prefixes) for one, other in combinations(records, 2)]


def refused_pairs(error: InvalidRecordsError) -> list[tuple[int, int]]:
    """Return the records of the left and right in each reason of a refused combination."""
    pair = re.compile(r"record (\d+) of the left with record (\d+) of the right")
    return [
        (int(left), int(right))
        for reason in error.refused
        for left, right in pair.findall(str(reason))
    ]


def flat(shards: Iterable[Iterable[bytes]]) -> list[bytes]:
    """The records of several shards behind each other, as protobuf writes them."""
    return [canonical(payload) for records in shards for payload in records]
