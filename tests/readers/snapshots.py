"""Snapshots of real records for tests, packed by hand and checked as any other."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.log.append_change import Append
from shardline.log.model import Checks, Shard
from shardline.operations.check import check_version
from shardline.schema.schema import Feature, Schema, Text
from tests.kernel.frames import framed
from tests.log.versions import shard_name, source_of
from tests.tfrecord.samples import example_of, packed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.storage import Store

NAME = "digits/v1"
NUMBERS = Schema((Feature("x", "int64"), Feature("name", "bytes", meaning=Text())))


def number(x: int) -> bytes:
    """A record of the schema NUMBERS."""
    return example_of(x=x, name=f"größe {x}".encode())


def numbers(first: int, last: int) -> list[bytes]:
    """Records of the schema NUMBERS."""
    return [number(x) for x in range(first, last)]


def write_shard(
    version: Version, label: str, payloads: Sequence[bytes], compression: str = "none"
) -> Shard:
    """A file of these records in the version's store; it is not committed."""
    data = packed(compression, framed(*payloads))
    shard = Shard(
        shard_name(label, version.log.version),
        len(payloads),
        len(data),
        hashlib.sha256(data).hexdigest(),
        compression,
        source_of(label).key,
    )
    version.store.create(version.shard_name(shard), data)
    return shard


def make_version(
    root: Store | Path | str,
    schema: Schema,
    *shards: Sequence[bytes],
    compressions: Sequence[str] = ("none",),
    checks: Checks = Checks(),
) -> Version:
    """A version with one shard for each list of records; the compressions take turns."""
    version = Version(root, NAME)
    version.create(schema, checks)
    written = [
        write_shard(version, f"shard {place}", payloads, compressions[place % len(compressions)])
        for place, payloads in enumerate(shards)
    ]
    sources = [source_of(f"shard {place}") for place in range(len(shards))]
    version.commit(Append(shards=written, sources=sources))
    return version


def published(
    root: Store | Path | str,
    schema: Schema,
    *shards: Sequence[bytes],
    compressions: Sequence[str] = ("none",),
) -> Snapshot:
    """The published snapshot of such a version."""
    version = make_version(root, schema, *shards, compressions=compressions)
    report = check_version(version)
    assert report.ok, report.shards
    return version.published()


def overwrite(snapshot: Snapshot, place: int, data: bytes) -> str:
    """Put other bytes where a shard lies; gives its path."""
    snapshot.store.replace(snapshot.shard_name(snapshot.shards[place]), data)
    return snapshot.files()[place]
