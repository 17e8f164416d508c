"""Random access: the right record or an error, never a wrong one."""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from shardline import kernel
from shardline.errors import CorruptFileError, IndexMismatchError, RecordNotFoundError
from shardline.hints import Hint, Option
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.index import IndexWriter, compute_fingerprint, index_path, write_index
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.input_file import open_regular
from shardline.tfrecord.reader import Limits
from shardline.tfrecord.writer import write_records
from tests.errors import raises
from tests.kernel.examples import seeded
from tests.kernel.frames import framed
from tests.sampling import sampled
from tests.tfrecord.samples import (
    bulk_needs_the_compiled_kernel,
    flipped,
    gzip_member,
    made,
    packed,
    write_by_tensorflow,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = [b"first", b"", b"a third record, a little longer"]
VARIED = [seeded(5).randbytes(size) for size in (0, 1, 7, 90, 0, 300, 11, 64, 1000, 2)]


def as_before(path: Path) -> None:
    """Give a file the time it had when its index was made, as damage on a disk leaves it."""
    (time,) = struct.unpack_from("<Q", index_path(path).read_bytes(), 16)
    os.utime(path, ns=(time, time))


def members(path: Path, payloads: list[bytes]) -> Path:
    """GZIP members of 50 unpacked bytes each, which cut records anywhere."""
    data = framed(*payloads)
    pieces = [data[start : start + 50] for start in range(0, len(data), 50)]
    return made(path, b"".join(map(gzip_member, pieces)))


def ours(compression: str) -> Callable[[Path, list[bytes]], Path]:
    def write(path: Path, payloads: list[bytes]) -> Path:
        write_records(path, payloads, compression=compression)
        return path

    return write


def theirs(compression: str) -> Callable[[Path, list[bytes]], Path]:
    return lambda path, payloads: write_by_tensorflow(path, payloads, compression)


WRITERS = {
    "our plain file": ours("none"),
    "our gzip": ours("gzip"),
    "our zlib": ours("zlib"),
    "TensorFlow's gzip": theirs("GZIP"),
    "TensorFlow's zlib": theirs("ZLIB"),
    "members that cut records": members,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_record_is_found_in_any_order(tmp_path: Path, writer: str) -> None:
    path = WRITERS[writer](tmp_path / "a.tfrecord", VARIED)
    assert write_index(path) == len(VARIED)
    assert index_path(path) == tmp_path / "a.tfrecord.index"
    order = list(range(len(VARIED)))
    seeded(1).shuffle(order)
    with IndexedFile(path) as file:
        assert len(file) == len(VARIED)
        for number in order:
            assert file[number] == VARIED[number]
            assert file[number - len(VARIED)] == VARIED[number]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_range_is_read_in_order_from_any_start(tmp_path: Path, writer: str) -> None:
    path = WRITERS[writer](tmp_path / "a", VARIED)
    write_index(path)
    with IndexedFile(path) as file:
        for start in range(len(VARIED) + 1):
            assert list(file.read(start)) == VARIED[start:]
            assert list(file.read(start, start + 3)) == VARIED[start : start + 3]
            assert list(file.read(start, 100)) == VARIED[start:]


def test_take_out_of_range_reports_range(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SMALL))
    write_index(path)
    with IndexedFile(path) as file:
        for number in (3, -4, 10**9):
            with raises(RecordNotFoundError, "record-not-found", record=number) as caught:
                file[number]
            assert isinstance(caught.value, IndexError)
            assert "3 records" in str(caught.value)


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_an_empty_file_has_an_index_of_nothing(tmp_path: Path, compression: str) -> None:
    path = made(tmp_path / "a", packed(compression, b""))
    assert write_index(path) == 0
    with IndexedFile(path) as file:
        assert len(file) == 0
        assert list(file.read(0)) == []
        with pytest.raises(IndexError):
            file[0]


def test_a_file_without_an_index_says_how_to_make_one(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SMALL))
    with raises(IndexMismatchError, "index-not-found", path=f"{path}.index") as caught:
        IndexedFile(path)
    assert caught.value.hint == Hint.run("index", str(path))


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_a_damaged_file_gets_no_index_and_loses_none_it_had(
    tmp_path: Path, compression: str
) -> None:
    path = made(tmp_path / "a", packed(compression, framed(*SMALL))[:-1])
    with pytest.raises(CorruptFileError):
        write_index(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_an_index_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SMALL))
    write_index(path)
    made(path, framed(*VARIED))
    assert write_index(path) == len(VARIED)
    with IndexedFile(path) as file:
        assert list(file.read(0)) == VARIED


def test_the_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*VARIED))
    seen: list[int] = []
    write_index(path, progress=seen.append)
    assert seen[-1] == path.stat().st_size


def test_an_index_of_a_file_that_has_grown_or_shrunk_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SMALL))
    write_index(path)
    for content in (framed(*SMALL, b"more"), framed(*SMALL[:2]), b""):
        made(path, content)
        with raises(IndexMismatchError, "index-mismatch", path=f"{path}.index"):
            IndexedFile(path)


def test_foreign_index_never_gives_wrong_record(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(b"12345", b"123456789", b"abc"))
    write_index(path)
    made(path, framed(b"123456789", b"12345", b"abc"))
    as_before(path)
    with IndexedFile(path) as file:
        for number in (0, 1):
            with pytest.raises((IndexMismatchError, CorruptFileError)):
                file[number]


def test_an_index_of_a_file_rewritten_since_is_refused(tmp_path: Path) -> None:
    """The sizes are equal and record 2 of the index is an intact record: number 1 of the file."""
    path = made(tmp_path / "a", framed(b"x" * 10, b"y" * 26, b"abc"))
    write_index(path)
    for time in (0, index_path(path).stat().st_mtime_ns + 10**9):
        made(path, framed(b"z" * 52, b"abc"))
        os.utime(path, ns=(time, time))
        with raises(IndexMismatchError, "index-mismatch", path=f"{path}.index"):
            IndexedFile(path)


def test_an_index_copied_before_its_file_still_holds(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SMALL))
    write_index(path)
    for time in (0, index_path(path).stat().st_mtime_ns + 10**9):
        os.utime(path, ns=(time, time))
        with IndexedFile(path) as file:
            assert list(file.read(0)) == SMALL


def test_every_cut_index_is_written_again(tmp_path: Path) -> None:
    path = members(tmp_path / "a", SMALL)
    write_index(path)
    whole = index_path(path).read_bytes()
    for content in (*(whole[:cut] for cut in range(len(whole))), whole + b"x", whole + bytes(8)):
        made(index_path(path), content)
        with IndexedFile(path) as file:
            assert list(file.read(0)) == SMALL
        assert index_path(path).read_bytes() == whole


def sealed(index: bytearray) -> bytes:
    """An index with the checksum of its header made right."""
    return bytes(index[:92] + struct.pack("<I", kernel.crc32c(bytes(index[:92]))) + index[96:])


@pytest.mark.parametrize("field", range(8, 92, 4))
def test_forged_header_of_index_is_refused_or_rebuilt(tmp_path: Path, field: int) -> None:
    path = members(tmp_path / "a", SMALL)
    write_index(path)
    index = bytearray(index_path(path).read_bytes())
    index[field : field + 4] = b"\xff\xff\xff\x7f"
    made(index_path(path), sealed(index))
    for number, payload in enumerate(SMALL):
        assert read_or_refused(path, number) in (payload, None)


def test_index_of_first_release_is_written_again(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SMALL))
    write_index(path)
    new = index_path(path).read_bytes()
    head = b"SHARDIX1" + new[8:48] + new[80:84]
    old = head + struct.pack("<I", kernel.crc32c(head)) + new[96 : 96 + 8 * 4]
    shifted = bytearray(old)
    shifted[56:64] = old[64:72]
    for content in (old, bytes(shifted)):
        made(index_path(path), content)
        with IndexedFile(path) as file:
            assert list(file.read(0)) == SMALL
        assert index_path(path).read_bytes() == new


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "read-only")


def test_corrupt_index_in_read_only_folder_is_made_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "a", framed(*VARIED))
    write_index(path)
    made(index_path(path), index_path(path).read_bytes()[:-1])
    monkeypatch.setattr(os, "replace", refuse)
    with IndexedFile(path) as file:
        assert list(file.read(0)) == VARIED


def test_block_of_large_index_is_compared_when_used(tmp_path: Path) -> None:
    payloads = [b"%d" % number for number in range(9000)]
    path = made(tmp_path / "a", framed(*payloads))
    write_index(path)
    whole = index_path(path).read_bytes()
    for number in (0, 4095, 4096, 8191, 8192, 8999):
        content = bytearray(whole)
        content[96 + 8 * number] ^= 1
        made(index_path(path), bytes(content))
        with IndexedFile(path) as file:
            assert file[number] == payloads[number]
        assert index_path(path).read_bytes() == whole


def read_or_refused(path: Path, number: int) -> bytes | None:
    """One record through the index; None if it was refused in one of the ways that are meant."""
    try:
        with IndexedFile(path) as file:
            return file[number]
    except (IndexMismatchError, CorruptFileError):
        return None


@pytest.mark.sweep
@pytest.mark.parametrize("writer", ["our plain file", "members that cut records", "our zlib"])
def test_no_flipped_bit_of_an_index_gives_a_wrong_record(tmp_path: Path, writer: str) -> None:
    path = WRITERS[writer](tmp_path / "a", SMALL)
    write_index(path)
    whole = index_path(path).read_bytes()
    bits = sampled(range(len(whole) * 8), 200, writer)
    for bit in bits:
        made(index_path(path), flipped(whole, bit))
        for number, payload in enumerate(SMALL):
            assert read_or_refused(path, number) == payload, f"bit {bit}"
        assert index_path(path).read_bytes() == whole


@pytest.mark.sweep
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_no_flipped_bit_of_the_file_gives_a_wrong_record(tmp_path: Path, compression: str) -> None:
    whole = packed(compression, framed(*SMALL))
    path = made(tmp_path / "a", whole)
    write_index(path)
    for bit in sampled(range(len(whole) * 8), 200, compression):
        made(path, flipped(whole, bit))
        as_before(path)
        for number, payload in enumerate(SMALL):
            assert read_or_refused(path, number) in (payload, None), f"bit {bit}"


def test_range_over_corrupt_record_raises_after_intact(
    tmp_path: Path,
) -> None:
    data = bytearray(framed(*SMALL))
    path = made(tmp_path / "a", bytes(data))
    write_index(path)
    data[37 + 12] ^= 1
    made(path, bytes(data))
    as_before(path)
    read: list[bytes] = []
    with IndexedFile(path) as file, pytest.raises(CorruptFileError) as caught:
        read.extend(file.read(0))
    assert read == SMALL[:2]
    assert (caught.value.record, caught.value.offset) == (2, 37)


def taken(path: Path, numbers: list[int], piece_bytes: int = 100) -> list[bytes]:
    """The payloads of records that are read together."""
    found = []
    with IndexedFile(path) as file:
        for data, starts, lengths in file.frames(np.array(numbers, np.int64), piece_bytes):
            spans = zip(starts.tolist(), lengths.tolist(), strict=True)
            found += [data[start : start + length] for start, length in spans]
    return found


@pytest.mark.parametrize("piece_bytes", [1, 100, 10_000])
def test_frames_of_any_records_are_found(tmp_path: Path, piece_bytes: int) -> None:
    path = made(tmp_path / "a", framed(*VARIED))
    write_index(path)
    for bits in sampled(range(2 ** len(VARIED)), 100, "frames"):
        numbers = [number for number in range(len(VARIED)) if bits >> number & 1]
        assert taken(path, numbers, piece_bytes) == [VARIED[number] for number in numbers]


def test_frames_of_a_damaged_file_raise(tmp_path: Path) -> None:
    whole = framed(*VARIED)
    path = made(tmp_path / "a", whole)
    write_index(path)
    numbers = [0, 1, 4, 5, 6, 9]
    with IndexedFile(path) as file:
        ends = [file._bounds(number) for number in range(len(VARIED))]
    for bit in sampled(range(len(whole) * 8), 200, "frames"):
        made(path, flipped(whole, bit))
        as_before(path)
        owner = next(n for n, (begin, end) in enumerate(ends) if begin <= bit // 8 < end)
        if owner in numbers:
            with pytest.raises(CorruptFileError) as caught:
                taken(path, numbers, 10_000)
            assert (caught.value.record, caught.value.offset) == (owner, ends[owner][0])
        else:
            assert taken(path, numbers, 10_000) == [VARIED[number] for number in numbers]


@pytest.mark.parametrize("wrong", range(1, len(VARIED)))
def test_frames_through_a_forged_index_raise(tmp_path: Path, wrong: int) -> None:
    """Records that begin where the next begin: the checksums of the index are right."""
    path = made(tmp_path / "a", framed(*VARIED))
    write_index(path)
    with IndexedFile(path) as file:
        begins = [file._bounds(number)[0] for number in range(len(VARIED))]
    del begins[wrong]
    with DurableFile(index_path(path), overwrite=True) as file, open_regular(path) as opened:
        index = IndexWriter(file)
        index.add(np.array(begins))
        index.finish(
            end=opened.size,
            members=[],
            size=opened.size,
            compression=Compression.NONE,
            fingerprint=compute_fingerprint(opened, opened.size),
        )
    with pytest.raises(CorruptFileError) as caught:
        taken(path, list(range(len(begins))), 10_000)
    assert caught.value.record == wrong - 1


def test_limits_hold_through_an_index_too(tmp_path: Path) -> None:
    path = made(tmp_path / "a", zlib.compress(framed(*VARIED)))
    write_index(path)
    with (
        IndexedFile(path, limits=Limits(max_record_bytes=999)) as file,
        pytest.raises((IndexMismatchError, CorruptFileError)),
    ):
        file[8]
    with (
        IndexedFile(path, limits=Limits(max_decompressed_bytes=100)) as file,
        raises(CorruptFileError, "decompressed-too-large", path=str(path), record=9) as caught,
    ):
        file[9]
    assert caught.value.hint is not None
    assert Option("max_decompressed") in caught.value.hint.parts


@bulk_needs_the_compiled_kernel
def test_last_gzip_record_reads_one_member(tmp_path: Path) -> None:
    payloads = [seeded(number).randbytes(50_000) for number in range(100)]
    path = tmp_path / "a"
    write_records(path, payloads, compression="gzip")
    write_index(path)
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(len(whole) // 2))
    as_before(path)
    with IndexedFile(path) as indexed:
        assert indexed[-1] == payloads[-1], "what lies before it may be broken"
        with pytest.raises(CorruptFileError):
            indexed[0]


def test_opaque_payloads_are_indexed_like_any_other(tmp_path: Path) -> None:
    payloads = [b'{"a": 1}', b"\xff\xfe", b"own protobuf \x08\x01"]
    path = made(tmp_path / "a", framed(*payloads))
    write_index(path)
    with IndexedFile(path) as file, closing(file.read(0)) as read:  # type: ignore[type-var]
        assert list(read) == payloads


@pytest.mark.parametrize("kind", ["none", "gzip"])
def test_indexed_file_forged_header_raises_mismatch(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "a", packed(kind, framed(*[b"record %d" % n for n in range(9)])))
    write_index(path)
    index = index_path(path)
    data = index.read_bytes()
    head, body = bytearray(data[:52]), data[56:]
    forged = []
    for field, value in ((24, 3), (24, 2**63), (24, 1), (24, 0), (32, 2**64 - 1), (40, 2**61)):
        header = bytearray(head)
        header[field : field + 8] = value.to_bytes(8, "little")
        forged.append(bytes(header) + kernel.crc32c(header).to_bytes(4, "little") + body)
    for number in range(0, len(body), 8):
        for value in (2**64 - 1, 2**63, 2**40):
            changed = body[:number] + value.to_bytes(8, "little") + body[number + 8 :]
            forged.append(data[:56] + changed)
    for content in forged:
        index.write_bytes(content)
        try:
            with IndexedFile(path) as file:
                assert [file[at] for at in range(len(file))]
        except (IndexMismatchError, CorruptFileError):
            continue
