"""Tamper with one object of a root: flip a bit, truncate, delete, swap or forge it.

A forged object has right checksums of its own: only the log tells that it is another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapWriter
from shardline.storage import open_store
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import IndexWriter, compute_fingerprint
from shardline.tfrecord.input_file import open_regular
from tests.kernel.frames import framed
from tests.tfrecord.samples import records_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path: Path, _: Path | None = None) -> None:
    """Flip a bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def truncate(path: Path, _: Path | None = None) -> None:
    """Cut off the last byte."""
    path.write_bytes(path.read_bytes()[:-1])


def delete(path: Path, _: Path | None = None) -> None:
    """Delete the file."""
    path.unlink()


def swap(path: Path, other: Path) -> None:
    """Put the object of another shard there."""
    path.write_bytes(other.read_bytes())


def forge_receipt(path: Path, _: Path | None = None) -> None:
    """Tell of other rows, with a right digest."""
    receipt = parse_receipt(path.read_bytes())
    assert receipt is not None
    moved = tuple((first + 1, last + 1) for first, last in receipt.refused)
    path.write_bytes(
        replace(receipt, rows=(receipt.first + 1, receipt.end + 1), refused=moved).encode()
    )


def forge_row_map(path: Path, _: Path | None = None) -> None:
    """Tell of the records in another order, with right checksums."""
    columns, width = path.read_bytes()[8:10]
    count = _entries(path, columns, width)
    row_map = RowMap(open_store(path.parent), path.name, count, columns)
    rows = np.concatenate([part for _, part in row_map.blocks()])
    assert len(np.unique(rows, axis=0)) > 1
    buffer = Buffer()
    writer = RowMapWriter(buffer, columns, width)
    writer.add(*np.roll(rows, 1, axis=0).T)
    writer.finish()
    path.write_bytes(buffer.data)


def _entries(path: Path, columns: int, width: int) -> int:
    body = path.stat().st_size - 16
    block = 512 * columns * width + 4
    whole, rest = divmod(body, block)
    return 512 * whole + max(rest - 4, 0) // (columns * width)


class Buffer:
    """An object that is written to memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end."""
        self.data += data

    def rewrite(self, offset: int, data: bytes) -> None:
        """Write over what is there."""
        self.data[offset : offset + len(data)] = data


def forge_quarantine(path: Path, _: Path | None = None) -> None:
    """Tell of another row."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[0]["row"] += 1
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def forge_index(path: Path, _: Path | None = None) -> None:
    """Let every record but the first be the one after it, with right checksums."""
    shard = path.with_name(path.name.removesuffix(".index"))
    lengths = np.array([len(record) + 16 for record in records_of(shard)], np.int64)
    ends = np.cumsum(lengths)
    offsets = np.concatenate([[0], ends[1:-1], [ends[-1] - 20]])
    file = open_regular(shard)
    buffer = Buffer()
    index = IndexWriter(buffer)
    index.add(offsets)
    header = path.read_bytes()[:96]
    index.finish(
        end=int(ends[-1]),
        members=[],
        size=file.size,
        compression=Compression.NONE,
        fingerprint=compute_fingerprint(file, file.size),
        sha256=HashedFile(file).finish(),
    )
    file.close()
    assert buffer.data[:80] == header[:80]
    path.write_bytes(buffer.data)


def forge_shard(path: Path, _: Path | None = None) -> None:
    """Put the records there in another order, with right checksums."""
    records = records_of(path)
    changed = records[1:] + records[:1]
    assert changed != records
    path.write_bytes(framed(*changed))


def forge_plan(path: Path, _: Path | None = None) -> None:
    """Pair other shards, in canonical form."""
    data = path.read_bytes()
    changed = data.replace(b'"once":true', b'"once":false').replace(b'"cover":[0', b'"cover":[1')
    assert changed != data
    path.write_bytes(changed)


FORGE: dict[str, Callable[..., None]] = {
    ".receipt": forge_receipt,
    ".rows": forge_row_map,
    ".jsonl": forge_quarantine,
    ".index": forge_index,
    ".tfrecord": forge_shard,
    ".plan": forge_plan,
}


def forge(path: Path, _: Path | None = None) -> None:
    """Write another object of the same kind, with right checksums."""
    FORGE[path.suffix](path)
