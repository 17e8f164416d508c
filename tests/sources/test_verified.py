"""The bytes that become records are the bytes that the identity of a source is a digest of."""

from __future__ import annotations

import gzip
import mmap
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline import kernel
from shardline.errors import SourceError
from shardline.schema.schema import Feature, Schema
from shardline.sources import open_source
from shardline.storage.store import open_store
from shardline.tfrecord.hashing import BLOCK_BYTES, BlockChecksums, VerifiedFile
from shardline.tfrecord.input_file import open_regular
from tests.errors import raises
from tests.kernel.frames import framed
from tests.sources.reading import take
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = Schema((Feature("a", "int64"),))
FILES = Schema((Feature("content", "bytes"),))


def parquet(value: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [value] * 9}), sink, compression="none", write_statistics=False)
    return bytes(sink.getvalue())


def arrow(value: int) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": [value] * 9})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


FORMATS: dict[str, Callable[[int], bytes]] = {
    "a.jsonl": lambda value: b'{"a": %d}\n' % value * 9,
    "a.jsonl.gz": lambda value: gzip.compress(b'{"a": %d}\n' % value, mtime=0),
    "a.csv": lambda value: b"a\n%d\n" % value,
    "a.parquet": parquet,
    "a.arrow": arrow,
    "a.tfrecord": lambda value: framed(*[example_of(a=value)] * 9),
}


def overwrite(path: Path, data: bytes, offset: int = 0) -> None:
    """Change bytes in place, and set size and time back to what they were."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
    )


@pytest.mark.parametrize("name", FORMATS)
def test_source_changed_in_place_after_hash_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name](1))
    source = open_source(path)
    source.identity()
    overwrite(path, FORMATS[name](2))
    with raises(SourceError, "source-changed", path=str(path)):
        take(source, SCHEMA)


@pytest.mark.parametrize("name", FORMATS)
def test_source_changed_through_memory_map_is_refused(tmp_path: Path, name: str) -> None:
    """A page that is dirty already is written to without any change of the file's times."""
    path = tmp_path / name
    path.write_bytes(FORMATS[name](1))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[0] = pages[0]
        source = open_source(path)
        source.identity()
        pages[:] = FORMATS[name](2)
        with raises(SourceError, "source-changed", path=str(path)):
            take(source, SCHEMA)


@pytest.mark.parametrize("name", FORMATS)
def test_object_changed_after_hash_is_refused(name: str) -> None:
    store = open_store("memory://verified")
    store.replace(name, FORMATS[name](1))
    source = open_source(f"memory://verified/{name}")
    source.identity()
    store.replace(name, FORMATS[name](2))
    with raises(SourceError, "source-changed"):
        take(source, SCHEMA)


@pytest.mark.parametrize("change", ["content", "name", "more"])
def test_folder_changed_in_place_is_refused(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_bytes(name.encode() * 9)
    source = open_source(folder)
    source.identity()
    if change == "content":
        overwrite(folder / "b", b"c" * 9)
    elif change == "name":
        (folder / "b").rename(folder / "c")
    else:
        (folder / "c").write_bytes(b"c")
    with raises(SourceError, "file-not-found" if change == "name" else "source-changed"):
        take(source, FILES)


def test_file_changed_between_chunks_gives_no_other_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = b'{"a": 1111111111}\n'
    path.write_bytes(line * 300_000)
    source = open_source(path)
    source.identity()
    chunks = source.chunks(SCHEMA)
    records = [next(chunks).frames()]
    overwrite(path, line.replace(b"1", b"2") * 1000, len(line) * 290_000)
    with raises(SourceError, "source-changed", path=str(path)):
        records.extend(chunk.frames() for chunk in chunks)
    same = bytes(framed(example_of(a=1111111111)))
    assert all(bytes(one.data) == same * len(one.starts) for one in records)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 17])
def test_verified_file_reads_what_plain_file_reads(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "f"
    path.write_bytes(data)
    sums = BlockChecksums()
    for begin in range(0, size, 100_001):
        sums.update(memoryview(data)[begin : begin + 100_001])
    file = VerifiedFile(open_regular(path), sums, AssertionError)
    places = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 3, max(size - 5, 0), size]
    for offset in places:
        for count in (1, 10, BLOCK_BYTES, 2 * BLOCK_BYTES + 1):
            assert file.pread(count, offset) == data[offset : offset + count]
    for step in (7_001, BLOCK_BYTES, 5 * BLOCK_BYTES + 1):
        file.seek(0)
        assert b"".join(_parts(file, step)) == data
    assert sums.size == size
    if kernel.NAME != "reference":
        assert sums.joined() == kernel.crc32c(data)


def _parts(file: VerifiedFile, step: int) -> list[bytes]:
    found, buffer = [], memoryview(bytearray(step))
    while count := file.readinto(buffer):
        found.append(bytes(buffer[:count]))
    return found
