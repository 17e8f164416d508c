"""A file being written: its digest, its index, and when it is full."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import ObjectExistsError
from shardline.storage import open_store
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import MEMBER_BYTES, Compression, get_frame_ends
from shardline.tfrecord.hashing import Checksum, ContentMismatchError, FileContent
from shardline.tfrecord.index import index_path, write_index
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.writer import RecordSink, WrittenFile, write_stored
from tests.kernel.examples import seeded
from tests.kernel.frames import FOOTER, HEADER, framed
from tests.operations.shard_files import (
    KINDS,
    TF_NAMES,
    Kind,
    compression_of,
    file_of,
    offsets_of,
    payloads,
)
from tests.tfrecord.samples import (
    bulk_needs_the_compiled_kernel,
    made,
    read_by_tensorflow,
    records_of,
)

if TYPE_CHECKING:
    from shardline.storage import Store

lots = st.lists(payloads, max_size=4)
compressions = st.sampled_from(list(Compression))


def places(records: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Where the payloads of framed records start, and how long each is."""
    lengths = np.array([len(record) for record in records], np.int64)
    return np.cumsum(lengths + HEADER + FOOTER) - lengths - FOOTER, lengths


def add(sink: RecordSink, records: list[bytes]) -> None:
    sink.add(framed(*records), *places(records))


def write(path: Path, compression: Compression, contents: list[list[bytes]]) -> WrittenFile:
    """A file of records, added lot by lot, with its index."""
    with DurableFile(path) as file, DurableFile(index_path(path)) as index:
        sink = RecordSink(file, compression, index)
        for records in contents:
            add(sink, records)
        return sink.finish()


def assert_right(path: Path, written: WrittenFile, records: list[bytes], compression: str) -> None:
    """The file holds the records, is what was told of it, and its index is as one made of it."""
    data = path.read_bytes()
    assert written == WrittenFile(len(records), len(data), hashlib.sha256(data).hexdigest())
    assert records_of(path) == records
    assert read_by_tensorflow(path, TF_NAMES[compression]) == records
    with IndexedFile(path) as indexed:
        assert [indexed[at] for at in reversed(range(len(indexed)))] == records[::-1]
    beside = index_path(path).read_bytes()
    write_index(path)
    assert offsets_of(index_path(path).read_bytes()) == offsets_of(beside)


@given(lots, compressions)
@settings(max_examples=25)
def test_what_is_told_of_a_file_is_so(contents: list[list[bytes]], packing: Compression) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        written = write(path, packing, contents)
        records = [record for lot in contents for record in lot]
        assert_right(path, written, records, packing.value)


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("packing", list(Compression))
def test_what_is_told_of_a_large_file_is_so(tmp_path: Path, packing: Compression) -> None:
    contents = [[seeded(lot).randbytes(70_001)] * 7 for lot in range(8)]
    path = tmp_path / "file"
    written = write(path, packing, contents)
    assert_right(path, written, [one for lot in contents for one in lot], packing.value)


@given(st.lists(st.tuples(payloads, st.sampled_from(KINDS)), max_size=5))
@settings(max_examples=20)
def test_gzip_files_as_they_are_and_records_may_be_mixed(
    contents: list[tuple[list[bytes], Kind]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        with DurableFile(path) as file, DurableFile(index_path(path)) as index:
            sink = RecordSink(file, Compression.GZIP, index)
            for records, kind in contents:
                if compression_of(kind) == "gzip" and records:
                    data = file_of(kind, records)
                    sink.begin_packed()
                    sink.add_packed(data)
                    sink.note_packed(places(records)[0], len(framed(*records)))
                    sink.end_packed(members_in(Path(folder), data), len(framed(*records)))
                else:
                    add(sink, records)
            written = sink.finish()
        records = [record for lot, _ in contents for record in lot]
        assert_right(path, written, records, "gzip")


def members_in(folder: Path, data: bytes) -> list[tuple[int, int]]:
    """Where the members of a GZIP file begin, as its own index tells."""
    path = made(folder / "members", data)
    write_index(path)
    with IndexedFile(path) as indexed:
        count = len(indexed)
    body = index_path(path).read_bytes()[96:]
    numbers = np.frombuffer(body[: len(body) // 8 * 8], "<u8")[count + 1 :]
    return [(int(start), int(at)) for start, at in numbers.reshape(-1, 2)]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=20), st.integers(1, 300))
@settings(max_examples=40)
def test_plain_file_fills_before_target(records: list[bytes], target: int) -> None:
    ends = get_frame_ends(*places(records))
    with tempfile.TemporaryDirectory() as folder, DurableFile(Path(folder, "file")) as file:
        sink = RecordSink(file, Compression.NONE)
        added = 0
        while count := sink.fitting(ends[added:] - (ends[added - 1] if added else 0), target):
            add(sink, records[added : added + count])
            added += count
        size = sink.finish().bytes
    assert size == ends[added - 1]
    assert size <= target or added == 1
    assert added == len(records) or ends[added] > target


def test_a_file_without_a_target_is_never_full(tmp_path: Path) -> None:
    for packing in Compression:
        with DurableFile(tmp_path / packing.value) as file:
            sink = RecordSink(file, packing)
            assert sink.fitting(np.arange(1, 1001), None) == 1000


@bulk_needs_the_compiled_kernel
def test_gzip_file_fills_by_member(tmp_path: Path) -> None:
    records = [seeded(at).randbytes(MEMBER_BYTES // 4) for at in range(16)]
    ends = get_frame_ends(*places(records))
    with DurableFile(tmp_path / "file") as file:
        sink = RecordSink(file, Compression.GZIP)
        added, asked = 0, []
        while count := sink.fitting(ends[added:] - (ends[added - 1] if added else 0), 1_500_000):
            add(sink, records[added : added + count])
            added += count
            asked.append(count)
        written = sink.finish()
    # Four records make a member, and after two members there are more bytes than wanted.
    assert (asked, written.records) == ([4, 4], 8)
    assert 1_500_000 <= written.bytes < 1_500_000 + MEMBER_BYTES
    assert records_of(tmp_path / "file") == records[:8]


def store_file(
    store: Store,
    packing: Compression,
    records: list[bytes],
    told: FileContent | None = None,
    *,
    failing: bool = False,
) -> WrittenFile:
    with write_stored(store, "a/file", packing, expected=told) as sink:
        for record in records:
            add(sink, [record])
        if failing:
            raise ZeroDivisionError
        return sink.finish()


def expected(data: bytes) -> FileContent:
    return FileContent(Checksum(len(data), google_crc32c.value(data)), "5e" * 32)


def test_file_with_expected_content_has_known_sha256(tmp_path: Path) -> None:
    told = expected(framed(b"one", b"two"))
    written = store_file(open_store(tmp_path), Compression.NONE, [b"one", b"two"], told)
    assert written.sha256 == told.sha256
    assert records_of(tmp_path / "a" / "file") == [b"one", b"two"]


@pytest.mark.parametrize("records", [[], [b"one"], [b"two", b"one"], [b"one", b"two", b""]])
def test_a_file_that_becomes_something_else_than_expected_is_not_there(
    tmp_path: Path, records: list[bytes]
) -> None:
    told = expected(framed(b"one", b"two"))
    with pytest.raises(ContentMismatchError):
        store_file(open_store(tmp_path), Compression.NONE, records, told)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("packing", list(Compression))
def test_stored_file_and_index_appear_together(tmp_path: Path, packing: Compression) -> None:
    store = open_store(tmp_path)
    with pytest.raises(ZeroDivisionError):
        store_file(store, packing, [b"a"], failing=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    written = store_file(store, packing, [b"a", b"b"])
    assert_right(tmp_path / "a" / "file", written, [b"a", b"b"], packing.value)
    before = (tmp_path / "a" / "file.index").read_bytes()
    with pytest.raises(ObjectExistsError):
        store_file(store, packing, [b"other"])
    assert (tmp_path / "a" / "file.index").read_bytes() == before
    assert records_of(tmp_path / "a" / "file") == [b"a", b"b"]
