"""Sources for tests of append, and what a version holds after it, record for record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import accumulate, cycle
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from shardline.log.model import Source as Identity
from shardline.schema.schema import Feature, Schema, Text
from shardline.sources import EncodedRows, QuarantinedRow
from shardline.tfrecord import RecordFile
from shardline.tfrecord.input_file import StoredFile
from tests.kernel.frames import FOOTER, HEADER, framed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from shardline.api import Snapshot, Version

NAME = "digits/v1"
SCHEMA = Schema((Feature("id", "int64"), Feature("name", "bytes", meaning=Text())))


def rows(first: int, last: int) -> list[dict[str, object]]:
    """Rows of SCHEMA."""
    return [{"id": number, "name": f"größe {number}"} for number in range(first, last)]


def json_lines(path: Path, content: Iterable[object]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in content))
    return path


def payloads(version: Version, snapshot: Snapshot | None = None) -> list[bytes]:
    """Every record of a snapshot, the newest unless told, in order."""
    held = []
    for shard in (snapshot or version.latest()).shards:
        with RecordFile(StoredFile(version.store, version.shard_name(shard))) as file:
            held += [bytes(payload) for payload in file]
    return held


def ids(version: Version, snapshot: Snapshot | None = None) -> list[int]:
    """The ids of all records of a snapshot of SCHEMA, as protobuf reads them, in order."""
    return [id_of(payload) for payload in payloads(version, snapshot)]


def id_of(payload: bytes) -> int:
    """The id of a record of SCHEMA, as protobuf reads it."""
    (number,) = tf.train.Example.FromString(payload).features.feature["id"].int64_list.value
    return int(number)


def stored(version: Version, folder: str = "") -> dict[str, bytes]:
    """Every object of the dataset below a folder."""
    below = f"{version.log.dataset}/{folder}" if folder else version.log.dataset
    return {info.name: version.store.read(info.name) for info in version.store.list(below)}


def shard_bytes(version: Version) -> list[bytes]:
    """The files of the newest snapshot, in order."""
    return [version.store.read(version.shard_name(shard)) for shard in version.latest().shards]


@dataclass
class Payloads:
    """A source of given payloads, None for a row that is refused.

    It is read in chunks of `sizes`, over and over. `before` is called with the number of each
    chunk's first row before that is read, and may raise.
    """

    name: str
    content: Sequence[bytes | None]
    sizes: Sequence[int] = (10,)
    before: Callable[[int], None] | None = None
    size = None

    @property
    def label(self) -> str:
        return f"payloads {self.name}"

    def identity(self, progress: Callable[[int], None] | None = None) -> Identity:
        del progress
        digest = hashlib.sha256(repr(self.content).encode()).hexdigest()
        return Identity(f"/test/{self.name}", len(self.content), digest)

    def infer(self) -> Schema:
        return Schema.opaque()

    def chunks(self, schema: Schema, start: int = 0) -> Iterator[PayloadChunk]:
        del schema
        for size in cycle(self.sizes):
            if start >= len(self.content):
                return
            if self.before is not None:
                self.before(start)
            yield PayloadChunk(start, self.content[start : start + size])
            start += size


@dataclass(frozen=True)
class PayloadChunk:
    """Some payloads, from row `first` on."""

    first: int
    content: Sequence[bytes | None]

    @property
    def position(self) -> int:
        return self.end

    @property
    def end(self) -> int:
        return self.first + len(self.content)

    def frames(self) -> EncodedRows:
        kept = [(at, data) for at, data in enumerate(self.content, self.first) if data is not None]
        lengths = np.array([len(data) for _, data in kept], np.int64)
        ends = np.array(list(accumulate(length + HEADER + FOOTER for length in lengths)), np.int64)
        refused = [at for at, data in enumerate(self.content, self.first) if data is None]
        return EncodedRows(
            framed(*(data for _, data in kept)),
            ends - FOOTER - lengths,
            lengths,
            np.array([at for at, _ in kept], np.int64),
            tuple(QuarantinedRow(at, f"row {at}", None, "is none", b"nothing") for at in refused),
        )
