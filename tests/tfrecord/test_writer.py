"""Writing: a whole file or none, and GZIP that can be entered at block borders."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from shardline.errors import FileExistsAlreadyError, InvalidArgumentError
from shardline.operations.verify_files import verify_file
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.writer import RecordWriter, write_records
from tests.errors import raises
from tests.kernel.examples import seeded
from tests.kernel.frames import framed
from tests.tfrecord.samples import bulk_needs_the_compiled_kernel, made, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKINGS = ["none", "gzip", "zlib"]
SMALL = [b"first", b"", b"a third record, a little longer"]


def members_of(data: bytes) -> list[bytes]:
    """What each GZIP member unpacks to, by zlib."""
    members = []
    while data:
        unpack = zlib.decompressobj(31)
        members.append(unpack.decompress(data))
        assert unpack.eof
        data = unpack.unused_data
    return members


def test_a_plain_file_is_the_frames_end_to_end(tmp_path: Path) -> None:
    write_records(tmp_path / "a", SMALL)
    assert (tmp_path / "a").read_bytes() == framed(*SMALL)


def test_gzip_and_zlib_files_unpack_to_those_frames_by_other_means(tmp_path: Path) -> None:
    write_records(tmp_path / "a", SMALL, compression="gzip")
    assert members_of((tmp_path / "a").read_bytes()) == [framed(*SMALL)]
    write_records(tmp_path / "b", SMALL, compression=Compression.ZLIB)
    assert zlib.decompress((tmp_path / "b").read_bytes()) == framed(*SMALL)


def test_a_file_without_records_is_packed_like_any_other(tmp_path: Path) -> None:
    write_records(tmp_path / "a", [], compression="gzip")
    assert members_of((tmp_path / "a").read_bytes()) == [b""]
    write_records(tmp_path / "b", [], compression="zlib")
    assert zlib.decompress((tmp_path / "b").read_bytes()) == b""
    write_records(tmp_path / "c", [])
    assert (tmp_path / "c").read_bytes() == b""


@pytest.mark.parametrize("compression", PACKINGS)
def test_the_same_records_give_the_same_bytes(tmp_path: Path, compression: str) -> None:
    for name in ("a", "b"):
        write_records(tmp_path / name, SMALL * 100, compression=compression)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@bulk_needs_the_compiled_kernel
def test_gzip_members_hold_whole_records_and_are_about_a_megabyte(tmp_path: Path) -> None:
    payloads = [seeded(n).randbytes(50_000) for n in range(100)]
    write_records(tmp_path / "a", payloads, compression="gzip")
    members = members_of((tmp_path / "a").read_bytes())
    assert len(members) >= 4
    for number, member in enumerate(members):
        records_of(made(tmp_path / "member", member))
        assert number == len(members) - 1 or 2**20 <= len(member) < 2**20 + 51_000
    assert b"".join(members) == framed(*payloads)


@pytest.mark.parametrize("compression", PACKINGS)
def test_frames_and_payloads_may_be_mixed_and_keep_their_order(
    tmp_path: Path, compression: str
) -> None:
    path = tmp_path / "a"
    with RecordWriter(path, compression=compression) as writer:
        writer.write(b"one")
        writer.write_frames(framed(b"two", b"three"), 2)
        writer.write(bytearray(b"four"))
        writer.write(memoryview(b"..five")[2:])
    assert writer.records == 5
    assert records_of(path) == [b"one", b"two", b"three", b"four", b"five"]


@pytest.mark.parametrize("compression", PACKINGS)
def test_an_error_half_way_leaves_nothing(tmp_path: Path, compression: str) -> None:
    def payloads() -> Iterator[bytes]:
        yield b"good"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_records(tmp_path / "a", payloads(), compression=compression)
    assert list(tmp_path.iterdir()) == []


def test_an_error_at_the_very_end_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with RecordWriter(tmp_path / "a") as writer:
            writer.write("text is not bytes")  # type: ignore[arg-type]

    with pytest.raises(TypeError):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", PACKINGS)
def test_an_existing_file_is_overwritten_only_if_asked(tmp_path: Path, compression: str) -> None:
    path = made(tmp_path / "a", b"precious")
    with pytest.raises(FileExistsAlreadyError):
        write_records(path, SMALL, compression=compression)
    assert path.read_bytes() == b"precious"
    write_records(path, SMALL, compression=compression, overwrite=True)
    assert records_of(path) == SMALL
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_an_unknown_compression_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with raises(InvalidArgumentError, "unknown-compression"):
        write_records(tmp_path / "a", SMALL, compression="lz4")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_under_the_name_while_records_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with RecordWriter(path) as writer:
        for _ in range(30):
            writer.write(bytes(1000))
        assert not path.exists()
    assert verify_file(path).records == 30
