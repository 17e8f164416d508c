"""Reading: the same records whatever the block size and packing, and no damage passed over.

The rows of the facts page about TFRecord files are here, each with what TensorFlow does and what
we do.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import google_crc32c
import pytest
import tensorflow as tf

from shardline import kernel
from shardline.errors import CorruptFileError
from shardline.hints import Hint, Option
from shardline.operations.verify_files import verify_file
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import Corruption, Limits, LostBytes, RecordFile
from shardline.tfrecord.record_block import RecordBlock
from tests.errors import raises
from tests.kernel.examples import seeded
from tests.kernel.frames import framed, header
from tests.tfrecord.samples import (
    ROOT,
    bulk_needs_the_compiled_kernel,
    deflated,
    flipped,
    gzip_member,
    made,
    packed,
    peak_of_command,
    read_by_tensorflow,
    records_of,
    write_by_tensorflow,
)

if TYPE_CHECKING:
    from pathlib import Path

SMALL = [b"first", b"", b"a third record, a little longer"]
VARIED = [seeded(5).randbytes(size) for size in (0, 1, 7, 90, 0, 300, 11, 64, 1000, 2)]
PACKINGS = ["none", "gzip", "zlib"]


@pytest.mark.parametrize("compression", PACKINGS)
@pytest.mark.parametrize("block_bytes", [1, 12, 16, 17, 64, 1000, 2**20])
def test_the_block_size_changes_nothing_about_the_records(
    tmp_path: Path, block_bytes: int, compression: str
) -> None:
    path = made(tmp_path / "a", packed(compression, framed(*VARIED)))
    assert records_of(path, block_bytes=block_bytes) == VARIED


def test_every_place_of_a_block_border_is_read_across(tmp_path: Path) -> None:
    data = framed(*SMALL)
    path = made(tmp_path / "a", data)
    for block_bytes in range(1, len(data) + 2):
        assert records_of(path, block_bytes=block_bytes) == SMALL


@pytest.mark.parametrize("compression", PACKINGS)
def test_blocks_say_where_they_stand_in_the_unpacked_file(tmp_path: Path, compression: str) -> None:
    data = framed(*VARIED)
    path = made(tmp_path / "a", packed(compression, data))
    offset = record = 0
    with RecordFile(path, block_bytes=200) as file:
        for block in file.blocks():
            assert (block.offset, block.record) == (offset, record)
            assert block.data == data[offset : offset + len(block.data)]
            assert block.data[block.starts[0] - 12 :][:8] == struct.pack("<Q", block.lengths[0])
            offset += len(block.data)
            record += len(block.starts)
        assert file.compression is Compression(compression)
    assert (offset, record) == (len(data), len(VARIED))


def test_a_file_of_several_blocks_comes_in_several_blocks(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*VARIED))
    with RecordFile(path, block_bytes=200) as file:
        sizes = [len(block.data) for block in file.blocks()]
    assert len(sizes) > 2
    assert max(sizes) <= 1016


@pytest.mark.parametrize("compression", PACKINGS)
@pytest.mark.parametrize("block_bytes", [1, 64, 400])
def test_blocks_that_are_held_stay_as_they_are(
    tmp_path: Path, block_bytes: int, compression: str
) -> None:
    path = made(tmp_path / "a", packed(compression, framed(*VARIED)))
    with RecordFile(path, block_bytes=block_bytes) as file:
        held = list(file.blocks())
    assert len(held) > 1
    assert all(block.data.readonly for block in held)
    assert b"".join(block.data for block in held) == framed(*VARIED)


def test_a_record_larger_than_the_block_is_read_whole(tmp_path: Path) -> None:
    payloads = [b"a" * 3000, b"b", b"c" * 5000]
    assert records_of(made(tmp_path / "a", framed(*payloads)), block_bytes=100) == payloads


@pytest.mark.parametrize("compression", PACKINGS)
def test_an_empty_file_has_no_records(tmp_path: Path, compression: str) -> None:
    path = made(tmp_path / "a", packed(compression, b""))
    assert records_of(path) == []
    report = verify_file(path)
    assert (report.ok, report.records, report.compression.value) == (True, 0, compression)


def test_a_fault_is_raised_with_its_place_after_the_records_before_it(tmp_path: Path) -> None:
    data = bytearray(framed(*SMALL))
    data[21 + 16 + 12 + 3] ^= 1
    path = made(tmp_path / "a", bytes(data))
    read: list[bytes] = []
    with (
        pytest.raises(CorruptFileError) as caught,
        RecordFile(path, block_bytes=10) as file,
    ):
        read.extend(bytes(p) for block in file.blocks() for p in block.payloads())
    assert read == SMALL[:2]
    error = caught.value
    assert (error.path, error.kind, error.record, error.offset) == (str(path), "data-crc", 2, 37)
    assert error.hint == Hint.run("salvage", str(path), "-o", "OUT")


def test_behind_a_damage_reading_goes_on_and_every_byte_is_accounted_for(tmp_path: Path) -> None:
    data = bytearray(framed(*VARIED))
    start = len(framed(*VARIED[:3]))
    data[start + 20] ^= 0xFF
    path = made(tmp_path / "a", bytes(data))
    spans = []
    numbers: list[int] = []
    with RecordFile(path, block_bytes=64) as file:
        for event in file.events(go_on=True):
            if isinstance(event, RecordBlock):
                spans.append((event.offset, len(event.data)))
                numbers += range(event.record, event.record + len(event.starts))
            elif isinstance(event, LostBytes):
                assert event.data is not None
                assert bytes(event.data) == data[event.offset : event.offset + event.size]
                spans.append((event.offset, event.size))
            else:
                assert event == Corruption(event.fault)
                assert (event.fault.kind, event.fault.record) == ("data-crc", 3)
    assert numbers == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    end = 0
    for offset, size in spans:
        assert offset == end
        end += size
    assert end == len(data)


@pytest.mark.parametrize("name", ["a.tfrecord", "a.gz", "a.zlib", "a"])
@pytest.mark.parametrize("compression", PACKINGS)
def test_packing_is_told_by_the_content_and_not_by_the_name(
    tmp_path: Path, name: str, compression: str
) -> None:
    path = made(tmp_path / name, packed(compression, framed(*SMALL)))
    with RecordFile(path) as file:
        assert file.compression.value == compression
    assert records_of(path) == SMALL


LOOKALIKES = [0x0178, 0x9C78, 0xDA78, 0x5E78, 0x088B1F]
"""Lengths whose bytes read like the first bytes of a ZLIB or GZIP file."""


@pytest.mark.parametrize("length", LOOKALIKES)
def test_a_plain_file_whose_first_length_looks_like_packing_is_plain(
    tmp_path: Path, length: int
) -> None:
    payloads = [bytes(length), b"second"]
    path = made(tmp_path / "a", framed(*payloads))
    with RecordFile(path) as file:
        assert file.compression is Compression.NONE
    assert verify_file(path).records == 2


@pytest.mark.parametrize("length", LOOKALIKES)
@pytest.mark.parametrize("place", [8, 12], ids=["length-crc", "data"])
def test_so_it_is_with_a_damaged_checksum(tmp_path: Path, length: int, place: int) -> None:
    data = bytearray(framed(bytes(length), b"second"))
    data[place] ^= 1
    path = made(tmp_path / "a", bytes(data))
    report = verify_file(path, every_fault=True)
    assert report.compression is Compression.NONE
    assert [fault.kind for fault in report.faults] == ["length-crc" if place == 8 else "data-crc"]
    assert report.records == 1, "the second record is found"


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_packing_is_told_at_every_level_of_packing(
    tmp_path: Path, compression: str, level: int
) -> None:
    data = framed(*VARIED)
    content = (
        gzip_member(data, level=level) if compression == "gzip" else zlib.compress(data, level)
    )
    path = made(tmp_path / "a", content)
    assert records_of(path) == VARIED
    with RecordFile(path) as file:
        assert file.compression.value == compression


def test_a_small_window_of_zlib_is_read(tmp_path: Path) -> None:
    packer = zlib.compressobj(6, zlib.DEFLATED, 9)
    path = made(tmp_path / "a", packer.compress(framed(*VARIED)) + packer.flush())
    assert records_of(path) == VARIED


HEADER_FIELDS = {
    "name": (8, b"train.tfrecord\0"),
    "comment": (16, b"made by hand\0"),
    "extra": (4, struct.pack("<H", 6) + b"AB\x02\x00xy"),
    "header checksum": (2, b""),
    "text": (1, b""),
    "all": (31, struct.pack("<H", 6) + b"AB\x02\x00xy" + b"train\0" + b"comment\0"),
    "long extra": (4, struct.pack("<H", 60_000) + bytes(60_000)),
}


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_a_gzip_header_may_have_every_field_the_format_knows(tmp_path: Path, field: str) -> None:
    flags, extra = HEADER_FIELDS[field]
    member = gzip_member(framed(*SMALL), flags=flags, extra=extra)
    path = made(tmp_path / "a", member + gzip_member(framed(b"more")))
    assert records_of(path) == [*SMALL, b"more"]
    assert verify_file(path).ok


def test_a_gzip_header_with_unknown_flags_or_cut_short_is_a_fault(tmp_path: Path) -> None:
    for content in (
        gzip_member(framed(b"x"), flags=0x20),
        gzip_member(framed(b"x"), flags=8, extra=b"name without end")[:20],
        b"\x1f\x8b",
        b"\x1f\x8b\x08",
        gzip_member(framed(b"x"))[:9],
        gzip_member(framed(b"x"), flags=4, extra=struct.pack("<H", 500))[:30],
    ):
        (fault,) = verify_file(made(tmp_path / "a", content)).faults
        assert (fault.kind, fault.offset) == ("compression", 0)


def test_members_may_cut_a_record_anywhere_and_the_last_may_be_empty(tmp_path: Path) -> None:
    data = framed(*SMALL)
    for cut in range(1, len(data) + 1):
        path = made(tmp_path / "a", gzip_member(data[:cut]) + gzip_member(data[cut:]))
        assert records_of(path) == SMALL
        assert verify_file(path).ok


def test_what_stands_behind_the_last_member_is_a_fault(tmp_path: Path) -> None:
    member = gzip_member(framed(*SMALL))
    for rest in (b"x", bytes(512), member[:1], member[:5], framed(b"plain")):
        report = verify_file(made(tmp_path / "a", member + rest))
        assert [(f.kind, f.offset) for f in report.faults] == [("compression", len(member))]
        assert report.records == 3


def test_the_cap_on_records_is_kept_whatever_the_file_says(tmp_path: Path) -> None:
    payloads = [bytes(100), bytes(101)]
    for compression in PACKINGS:
        path = made(tmp_path / "a", packed(compression, framed(*payloads)))
        (fault,) = verify_file(path, limits=Limits(max_record_bytes=100)).faults
        assert (fault.kind, fault.record, fault.offset) == ("oversized", 1, 116)
        assert verify_file(path, limits=Limits(max_record_bytes=101)).ok


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_the_cap_on_unpacking_is_kept(tmp_path: Path, compression: str) -> None:
    data = framed(*[bytes(1000)] * 100)
    path = made(tmp_path / "a", packed(compression, data))
    exact = Limits(max_decompressed_bytes=len(data))
    assert verify_file(path, limits=exact).ok
    (fault,) = verify_file(path, limits=Limits(max_decompressed_bytes=len(data) - 1)).faults
    assert fault.kind == "compression"
    assert f" {len(data) - 1} " in fault.detail
    limits = Limits(max_decompressed_bytes=len(data) - 1)
    where = {"path": str(path), "record": fault.record, "offset": fault.offset}
    with (
        RecordFile(path, limits=limits) as file,
        raises(CorruptFileError, "decompressed-too-large", **where) as caught,
    ):
        list(file)
    assert caught.value.hint is not None
    assert Option("max_decompressed") in caught.value.hint.parts


def test_the_cap_counts_all_members_together(tmp_path: Path) -> None:
    member = gzip_member(framed(bytes(984)))
    path = made(tmp_path / "a", member * 5)
    assert verify_file(path, limits=Limits(max_decompressed_bytes=5000)).ok
    report = verify_file(path, limits=Limits(max_decompressed_bytes=4999), every_fault=True)
    assert [fault.kind for fault in report.faults] == ["compression"]


def test_a_plain_file_is_not_held_against_the_cap_on_unpacking(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*VARIED))
    assert verify_file(path, limits=Limits(max_decompressed_bytes=1)).ok


# The facts page, section 1.


@pytest.mark.parametrize("stray", range(1, 12))
def test_trailing_bytes_are_fault(tmp_path: Path, stray: int) -> None:
    for rest in (bytes(stray), framed(b"next")[:stray]):
        path = made(tmp_path / "a", framed(*SMALL) + rest)
        report = verify_file(path)
        assert report.records == 3
        (fault,) = report.faults
        assert (fault.kind, fault.record, fault.offset) == ("trailing-bytes", 3, 84)
        assert read_by_tensorflow(path) == SMALL


def test_a_cut_inside_a_record_is_a_fault_to_both(tmp_path: Path) -> None:
    data = framed(*SMALL)
    for cut in range(37 + 12, len(data)):
        path = made(tmp_path / "a", data[:cut])
        (fault,) = verify_file(path).faults
        assert (fault.kind, fault.record, fault.offset) == ("truncated", 2, 37)
        with pytest.raises(tf.errors.DataLossError):
            read_by_tensorflow(path)


def test_a_cut_between_records_is_clean_to_both(tmp_path: Path) -> None:
    data = framed(*SMALL)
    for count, cut in enumerate((0, 21, 37, 84)):
        path = made(tmp_path / "a", data[:cut])
        assert verify_file(path).ok
        assert verify_file(path).records == count
        assert read_by_tensorflow(path) == SMALL[:count]


def test_joined_gzip_files_are_read_whole_by_both_even_across_a_record(tmp_path: Path) -> None:
    data = framed(*SMALL)
    for cut in (5, 21, 30, 37, 60, 84):
        path = made(tmp_path / "a", gzip_member(data[:cut]) + gzip_member(data[cut:]))
        assert records_of(path) == SMALL
        assert read_by_tensorflow(path, "GZIP") == SMALL


def test_empty_member_before_others_is_fault(
    tmp_path: Path,
) -> None:
    empty = gzip_member(b"")
    path = made(tmp_path / "a", empty + gzip_member(framed(*SMALL)))
    report = verify_file(path, every_fault=True)
    assert [(f.kind, f.offset) for f in report.faults] == [("compression", len(empty))]
    assert report.records == 3
    assert read_by_tensorflow(path, "GZIP") == []


def test_joined_zlib_files_are_fault(
    tmp_path: Path,
) -> None:
    first = zlib.compress(framed(*SMALL))
    path = made(tmp_path / "a", first + zlib.compress(framed(b"lost")))
    report = verify_file(path)
    (fault,) = report.faults
    assert (fault.kind, fault.record, fault.offset) == ("compression", 3, len(first))
    assert report.records == 3
    assert read_by_tensorflow(path, "ZLIB") == SMALL


@pytest.mark.parametrize("cut", range(1, 10))
def test_gzip_cut_in_trailer_is_fault(tmp_path: Path, cut: int) -> None:
    written = write_by_tensorflow(tmp_path / "whole", SMALL, "GZIP").read_bytes()
    path = made(tmp_path / "a", written[:-cut])
    report = verify_file(path)
    assert [fault.kind for fault in report.faults] == ["compression"]
    assert report.records == 3
    assert read_by_tensorflow(path, "GZIP") == SMALL


def test_a_gzip_file_cut_anywhere_is_a_fault(tmp_path: Path) -> None:
    whole = gzip_member(framed(*VARIED))
    for cut in range(1, len(whole)):
        assert verify_file(made(tmp_path / "a", whole[:cut])).faults, f"cut at {cut}"


def test_lower_case_compression_types_are_ignored_by_tensorflow_but_not_by_us(
    tmp_path: Path,
) -> None:
    plain = made(tmp_path / "plain", framed(*SMALL))
    for name in ("gzip", "LZ4"):
        assert read_by_tensorflow(plain, name) == SMALL
    assert records_of(made(tmp_path / "a", gzip_member(framed(*SMALL)))) == SMALL


LETHAL = [2**36, 2**40, 2**62]


@pytest.mark.parametrize("length", [*LETHAL, 2**63, 2**64 - 17, 2**64 - 16, 2**64 - 1])
@pytest.mark.parametrize("compression", PACKINGS)
def test_a_length_beyond_all_bounds_is_our_error(
    tmp_path: Path, length: int, compression: str
) -> None:
    data = framed(b"before") + header(length) + bytes(82)
    path = made(tmp_path / "a", packed(compression, data))
    report = verify_file(path)
    (fault,) = report.faults
    assert (fault.kind, fault.record, fault.offset) == ("oversized", 1, 22)
    assert str(length) in fault.detail
    assert report.records == 1


@pytest.mark.sweep
def test_the_same_lengths_end_a_process_that_lets_tensorflow_read_them(tmp_path: Path) -> None:
    """Were this to fail, TensorFlow had learned to survive them; our check stays right."""
    path = made(tmp_path / "a", header(2**40) + bytes(104))
    program = (
        "import sys, tensorflow as tf\n"
        "list(tf.data.TFRecordDataset(sys.argv[1]).as_numpy_iterator())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], check=False, capture_output=True, cwd=ROOT
    )
    assert result.returncode == -11
    assert not verify_file(path).ok


def test_a_length_within_the_cap_but_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = made(tmp_path / "a", header(2**28) + bytes(100))
    tiny = made(tmp_path / "b", framed(bytes(96)))
    peak, code, _ = peak_of_command("verify", path)
    base, _, _ = peak_of_command("verify", tiny)
    assert code == 1
    assert peak - base < 32 * 2**20


def bomb(path: Path) -> Path:
    """A gzip file of about 1 MB that unpacks to one intact record of 1 GiB."""
    zeros = bytes(2**24)
    times = 2**30 // len(zeros)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = packer.compress(header(2**30)) + packer.flush(zlib.Z_FULL_FLUSH)
    middle = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    data_crc, crc = 0, zlib.crc32(header(2**30))
    for _ in range(times):
        data_crc = google_crc32c.extend(data_crc, zeros)
        crc = zlib.crc32(zeros, crc)
    footer = struct.pack("<I", ((data_crc >> 15 | data_crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    end = packer.compress(footer) + packer.flush()
    trailer = struct.pack("<II", zlib.crc32(footer, crc), 2**30 + 16)
    head = b"\x1f\x8b\x08" + bytes(7)
    return made(path, head + begin + middle * times + end + trailer)


@bulk_needs_the_compiled_kernel
def test_a_megabyte_that_unpacks_to_a_gigabyte_is_refused_in_flat_memory(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.gz")
    assert path.stat().st_size < 1.2 * 2**20
    small = made(tmp_path / "small.gz", gzip_member(framed(b"x")))
    base, _, _ = peak_of_command("verify", small)
    peak, code, out = peak_of_command("verify", path, "--json")
    assert code == 1
    assert '"oversized"' in out
    assert peak - base < 32 * 2**20
    peak, code, out = peak_of_command(
        "verify", path, "--json", "--max-decompressed", "64MB", "--all"
    )
    assert code == 1
    assert '"compression"' in out
    assert peak - base < 64 * 2**20


def test_flipped_deflate_bit_never_crashes(
    tmp_path: Path,
) -> None:
    data = framed(*SMALL)
    for bit in range(len(deflated(data)) * 8):
        body = flipped(deflated(data), bit)
        trailer = struct.pack("<II", zlib.crc32(data), len(data))
        path = made(tmp_path / "a", b"\x1f\x8b\x08" + bytes(7) + body + trailer)
        with RecordFile(path) as file:
            for event in file.events(go_on=True):
                if isinstance(event, RecordBlock):
                    assert {bytes(payload) for payload in event.payloads()} <= set(SMALL)


def test_the_kernel_is_the_one_that_was_asked_for() -> None:
    assert os.environ.get("SHARDLINE_KERNEL", kernel.NAME) == kernel.NAME


def test_a_file_gives_its_payloads_one_by_one(tmp_path: Path) -> None:
    path = made(tmp_path / "a", gzip_member(framed(*SMALL)))
    with RecordFile(str(path)) as file:
        assert list(file) == SMALL
