"""Verify: no changed byte goes unseen, and each fault is told with its kind and place."""

from __future__ import annotations

import struct
import threading
import zlib
from typing import TYPE_CHECKING

import pytest

from shardline.operations.verify_files import verify_file, verify_files
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import Limits
from tests.kernel.examples import (
    LEGAL,
    bytes_feature,
    delimited,
    entry,
    example,
    int64_feature,
    seeded,
    varint,
)
from tests.kernel.frames import framed, header
from tests.tfrecord.samples import flipped, gzip_member, made, packed, records_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = [b"first", b"", b"a third record, a little longer"]
FILE = framed(*SMALL)
BORDERS = (0, 21, 37, 84)
GOOD = example(entry("label", int64_feature(1)))
BAD = example(entry("label", int64_feature(1)), entry("label", int64_feature(2)))


def faults_of(path: Path, **options: bool) -> list[tuple[str, int, int]]:
    """What is wrong with a file: kind, record, offset."""
    faults = verify_file(path, **options).faults  # type: ignore[arg-type]
    return [(fault.kind, fault.record, fault.offset) for fault in faults]


def test_verify_intact_file_reports_totals(tmp_path: Path) -> None:
    for compression in ("none", "gzip", "zlib"):
        content = packed(compression, FILE)
        report = verify_file(made(tmp_path / "a", content))
        assert report.ok
        assert report.faults == []
        assert (report.file, report.records, report.bytes, report.compression) == (
            str(tmp_path / "a"),
            3,
            len(content),
            Compression(compression),
        )


def test_verify_finds_each_bit_flip(tmp_path: Path) -> None:
    for bit in range(len(FILE) * 8):
        path = made(tmp_path / "a", flipped(FILE, bit))
        report = verify_file(path)
        assert not report.ok, f"bit {bit}"
        record = sum(bit // 8 >= border for border in BORDERS) - 1
        within = bit // 8 - BORDERS[record]
        expected = "length-crc" if within < 12 else "data-crc"
        assert faults_of(path) == [(expected, record, BORDERS[record])]
        assert report.records == record


def test_verify_finds_each_cut_in_record(tmp_path: Path) -> None:
    for cut in range(len(FILE)):
        path = made(tmp_path / "a", FILE[:cut])
        record = sum(cut >= border for border in BORDERS) - 1
        rest = cut - BORDERS[record]
        if rest == 0:
            expected = []
        else:
            kind = "trailing-bytes" if rest < 12 else "truncated"
            expected = [(kind, record, BORDERS[record])]
        assert faults_of(path) == expected, f"cut at {cut}"
        assert verify_file(path).records == record


def test_verify_finds_each_zeroed_range(tmp_path: Path) -> None:
    for size in (1, 4, 8, 12, 16):
        for start in range(len(FILE) - size + 1):
            content = FILE[:start] + bytes(size) + FILE[start + size :]
            if content != FILE:
                assert not verify_file(made(tmp_path / "a", content)).ok, f"{size} at {start}"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_verify_finds_bit_flip_in_compressed_file(tmp_path: Path, compression: str) -> None:
    content = packed(compression, FILE)
    unseen = set()
    for bit in range(len(content) * 8):
        path = made(tmp_path / "a", flipped(content, bit))
        if verify_file(path).ok:
            assert records_of(path) == SMALL, f"bit {bit}"
            unseen.add(bit // 8)
    trailer = {"gzip": 8, "zlib": 4}[compression]
    padding = len(content) - trailer - 1
    header_notes = set(range(3, 10)) if compression == "gzip" else set()
    assert unseen <= header_notes | {padding}, "text flag, time, level, system; bits left over"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_verify_finds_cut_of_compressed_file(tmp_path: Path, compression: str) -> None:
    content = packed(compression, FILE)
    assert verify_file(made(tmp_path / "a", content)).ok
    for cut in range(1, len(content)):
        assert not verify_file(made(tmp_path / "a", content[:cut])).ok, f"cut at {cut}"


def test_verify_cut_between_members_is_clean(tmp_path: Path) -> None:
    first = gzip_member(framed(*SMALL))
    second = gzip_member(framed(b"more"))
    for cut in range(len(first) + 1, len(first) + len(second)):
        assert not verify_file(made(tmp_path / "a", (first + second)[:cut])).ok
    assert verify_file(made(tmp_path / "a", first)).records == 3


def test_a_flip_in_any_member_is_found(tmp_path: Path) -> None:
    members = [gzip_member(framed(b"%d" % number * 20)) for number in range(3)]
    for number, member in enumerate(members):
        for bit in range(10 * 8, len(member) * 8):
            content = b"".join([*members[:number], flipped(member, bit), *members[number + 1 :]])
            padding = bit // 8 == len(member) - 9
            assert verify_file(made(tmp_path / "a", content)).ok <= padding


def test_verify_finds_zlib_checksum_mismatch(tmp_path: Path) -> None:
    content = zlib.compress(FILE)
    path = made(tmp_path / "a", content[:-4] + struct.pack(">I", zlib.adler32(FILE) ^ 1))
    assert faults_of(path) == [("compression", 3, len(content) - 4)]


def test_verify_stops_at_first_fault(tmp_path: Path) -> None:
    data = bytearray(framed(*SMALL, b"fourth", b"fifth", b"sixth"))
    fourth = len(FILE)
    data[0] ^= 1
    data[fourth + 12] ^= 1
    data += b"stray"
    path = made(tmp_path / "a", bytes(data))
    assert faults_of(path) == [("length-crc", 0, 0)]
    assert verify_file(path).records == 0
    assert faults_of(path, every_fault=True) == [
        ("length-crc", 0, 0),
        ("data-crc", 3, fourth),
        ("trailing-bytes", 6, len(data) - 5),
    ]
    assert verify_file(path, every_fault=True).records == 4


def test_every_damaged_record_of_many_is_found(tmp_path: Path) -> None:
    payloads = [b"%d" % number * 9 for number in range(200)]
    data = bytearray(framed(*payloads))
    chosen = sorted(seeded(3).sample(range(0, 200, 2), 20))
    expected = []
    for number in chosen:
        start = len(framed(*payloads[:number]))
        data[start + 12] ^= 0x10
        expected.append(("data-crc", number, start))
    path = made(tmp_path / "a", bytes(data))
    assert faults_of(path, every_fault=True) == expected
    assert verify_file(path, every_fault=True).records == 180


def test_verify_counts_record_after_corrupt_ones(
    tmp_path: Path,
) -> None:
    data = bytearray(FILE)
    data[12] ^= 1
    data[21 + 8] ^= 1
    path = made(tmp_path / "a", bytes(data))
    faults = faults_of(path, every_fault=True)
    assert faults[0] == ("data-crc", 0, 0)
    assert verify_file(path, every_fault=True).records == 1


def test_verify_reports_oversized_record(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(b"x") + header(2**62) + bytes(50))
    (fault,) = verify_file(path).faults
    assert (fault.kind, fault.record, fault.offset) == ("oversized", 1, 17)
    assert str(2**62) in fault.detail
    assert str(256 * 2**20) in fault.detail
    (fault,) = verify_file(made(path, FILE), limits=Limits(max_record_bytes=30)).faults
    assert (fault.kind, fault.record) == ("oversized", 2)


def test_verify_examples_validates_payloads(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(GOOD, BAD, GOOD, b"\x08", GOOD))
    assert verify_file(path).ok
    second = len(framed(GOOD))
    fourth = len(framed(GOOD, BAD, GOOD))
    assert faults_of(path, examples=True) == [("example", 1, second)]
    assert faults_of(path, examples=True, every_fault=True) == [
        ("example", 1, second),
        ("example", 3, fourth),
    ]
    report = verify_file(path, examples=True, every_fault=True)
    assert report.records == 5
    assert "'label'" in report.faults[0].detail
    assert "twice" in report.faults[0].detail


def test_verify_orders_faults_by_offset(tmp_path: Path) -> None:
    data = bytearray(framed(BAD, GOOD, BAD, GOOD))
    second = len(framed(BAD))
    data[second + 12] ^= 1
    third = len(framed(BAD, GOOD))
    path = made(tmp_path / "a", bytes(data))
    assert faults_of(path, examples=True, every_fault=True) == [
        ("example", 0, 0),
        ("data-crc", 1, second),
        ("example", 2, third),
    ]
    assert faults_of(path, examples=True) == [("example", 0, 0)]


def test_every_legal_form_of_an_example_passes(tmp_path: Path) -> None:
    report = verify_file(made(tmp_path / "a", framed(*LEGAL.values())), examples=True)
    assert report.faults == []
    assert report.records == len(LEGAL)


def test_verify_reports_decompressed_offsets(tmp_path: Path) -> None:
    data = bytearray(framed(*SMALL, BAD))
    path = made(tmp_path / "a", gzip_member(bytes(data)))
    assert faults_of(path, examples=True) == [("example", 0, 0)]
    data[40] ^= 1
    for compression in ("gzip", "zlib"):
        path = made(tmp_path / "a", packed(compression, bytes(data)))
        assert faults_of(path) == [("length-crc", 2, 37)]


def test_verify_never_shows_payload(tmp_path: Path) -> None:
    secret = b"Jane Doe, 1 Main Street"
    payloads = [
        secret,
        example(entry("name", bytes_feature(secret)))[:-1] + b"!",
        example(entry("name", bytes_feature(secret))) + b"\x12\x7f" + secret,
        example(entry("name", b"\x0a\xff\xff\xff\xff\x0f" + secret)),
    ]
    for payload in payloads:
        whole = framed(payload)
        path = made(tmp_path / "a", framed(payload))
        for content in (whole, flipped(whole, 8 * 14), flipped(whole, 3), whole[:-2]):
            made(path, content)
            for fault in verify_file(path, examples=True, every_fault=True).faults:
                for word in (b"Jane", b"Main", b"Street"):
                    assert word.decode() not in fault.detail
                assert secret.hex() not in fault.detail


@pytest.mark.parametrize("claimed", [2**31, 2**32 - 1, 2**35, 2**63])
def test_verify_finds_value_past_end(tmp_path: Path, claimed: int) -> None:
    """TensorFlow's parsers end the process on these; they must never see them."""
    inside = b"\x0a" + varint(claimed) + b"x" * 20
    payload = example(entry("image", delimited(0x0A, inside)))
    (fault,) = verify_file(made(tmp_path / "a", framed(GOOD, payload)), examples=True).faults
    assert (fault.kind, fault.record, fault.offset) == ("example", 1, len(framed(GOOD)))
    assert "'image'" in fault.detail
    assert "length" in fault.detail


def test_verify_files_reports_in_order(tmp_path: Path) -> None:
    paths = []
    for number in range(12):
        payloads = [b"x"] * number
        content = framed(*payloads) + (b"stray" if number % 3 == 0 else b"")
        paths.append(made(tmp_path / f"{11 - number:02}", content))
    reports = verify_files(paths, workers=4)
    assert [report.file for report in reports] == [str(path) for path in paths]
    assert [report.records for report in reports] == list(range(12))
    assert [report.ok for report in reports] == [number % 3 != 0 for number in range(12)]


def test_files_are_read_side_by_side(tmp_path: Path) -> None:
    """Two files can only both be under way at once if neither waits for the other to end."""
    paths = [made(tmp_path / name, FILE) for name in ("a", "b")]
    meeting = threading.Barrier(2, timeout=300)

    def meet(_path: Path, _position: int) -> None:
        meeting.wait()

    assert all(report.ok for report in verify_files(paths, workers=2, progress=meet))


def test_verify_progress_ends_at_size(tmp_path: Path) -> None:
    for compression in ("none", "gzip", "zlib"):
        path = made(tmp_path / "a", packed(compression, FILE))
        seen: list[int] = []
        verify_file(path, progress=seen.append)
        assert seen == sorted(seen)
        assert seen[-1] <= path.stat().st_size
        assert seen[-1] >= path.stat().st_size - 8


def test_verify_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verify_file(tmp_path / "missing")


def test_verifying_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "a", FILE + b"stray")
    before = path.stat().st_mtime_ns
    verify_file(path, every_fault=True, examples=True)
    assert path.read_bytes() == FILE + b"stray"
    assert path.stat().st_mtime_ns == before
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
