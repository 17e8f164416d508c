"""Framing and scanning: what TensorFlow writes is read, and no damage goes unseen."""

from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.kernel.types import DEFAULT_MAX_RECORD_BYTES, LARGEST_MAX_RECORD_BYTES
from tests.kernel.frames import damaged, framed, header, masked, mixtures
from tests.sampling import drawn

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from shardline.kernel.types import Scan

SMALL = [b"first", b"", b"a third record, a little longer"]
FILE = framed(*SMALL)
BORDERS = [0, 21, 37, 84]
HUGE = [2**36, 2**40, 2**62, 2**64 - 17, 2**64 - 16, 2**64 - 1]


def told(scan: Scan) -> tuple[object, ...]:
    """A scan in a form that can be compared."""
    assert scan.starts.dtype == scan.lengths.dtype == np.int64
    return (scan.starts.tolist(), scan.lengths.tolist(), scan.consumed, scan.needed, scan.fault)


def payloads_of(scan: Scan, data: bytes) -> list[bytes]:
    spans = zip(scan.starts.tolist(), scan.lengths.tolist(), strict=True)
    return [data[start : start + length] for start, length in spans]


@pytest.mark.parametrize(
    "payloads",
    [
        [],
        [b""],
        SMALL,
        [b"", b"", b""],
        [bytes(i % 256 for i in range(n)) for n in (1, 300, 70_000)],
    ],
    ids=["no record", "empty record", "small", "empty records", "large"],
)
def test_framing_gives_the_bytes_tensorflow_writes(
    kernel: ModuleType, tmp_path: Path, payloads: list[bytes]
) -> None:
    path = tmp_path / "file.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    written = path.read_bytes()
    assert kernel.frame(payloads) == written
    scan = kernel.scan(written)
    assert payloads_of(scan, written) == payloads
    assert (scan.consumed, scan.needed, scan.fault) == (len(written), 0, None)


def test_tensorflow_reads_what_we_frame(kernel: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "file.tfrecord"
    path.write_bytes(kernel.frame(SMALL))
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path))] == SMALL


def test_any_buffer_is_framed_and_scanned(kernel: ModuleType) -> None:
    buffers = [bytearray(b"first"), memoryview(b""), memoryview(SMALL[2])]
    assert kernel.frame(buffers) == FILE
    for file in (bytearray(FILE), memoryview(FILE), memoryview(b"xx" + FILE)[2:]):
        assert told(kernel.scan(file)) == told(kernel.scan(FILE))


def test_an_empty_buffer_is_a_clean_file_without_records(kernel: ModuleType) -> None:
    for empty in (b"", bytearray(), memoryview(b"")):
        for final in (True, False):
            assert told(kernel.scan(empty, final=final)) == ([], [], 0, 0, None)


def test_every_single_bit_flip_is_detected_and_placed(kernel: ModuleType) -> None:
    for bit in range(len(FILE) * 8):
        flipped = bytearray(FILE)
        flipped[bit // 8] ^= 1 << bit % 8
        scan = kernel.scan(bytes(flipped))
        record = max(i for i, border in enumerate(BORDERS) if border <= bit // 8)
        in_header = bit // 8 - BORDERS[record] < 12
        assert scan.fault is not None, bit
        assert scan.fault.kind == ("length-crc" if in_header else "data-crc")
        assert (scan.fault.record, scan.fault.offset) == (record, BORDERS[record])
        assert payloads_of(scan, bytes(flipped)) == SMALL[:record]
        assert (scan.consumed, scan.needed) == (BORDERS[record], 0)


def test_every_truncation_is_detected_except_at_a_record_border(kernel: ModuleType) -> None:
    for cut in range(len(FILE) + 1):
        scan = kernel.scan(FILE[:cut])
        record = max(i for i, border in enumerate(BORDERS) if border <= cut)
        left = cut - BORDERS[record]
        assert payloads_of(scan, FILE) == SMALL[:record]
        assert (scan.consumed, scan.needed) == (BORDERS[record], 0)
        if left == 0:
            assert scan.fault is None
            continue
        assert scan.fault is not None, cut
        assert scan.fault.kind == ("trailing-bytes" if left < 12 else "truncated")
        assert (scan.fault.record, scan.fault.offset) == (record, BORDERS[record])
        assert str(left) in scan.fault.detail


@pytest.mark.parametrize("stray", range(1, 12))
def test_stray_bytes_that_tensorflow_passes_over_are_told(
    kernel: ModuleType, tmp_path: Path, stray: int
) -> None:
    path = tmp_path / "file.tfrecord"
    path.write_bytes(FILE + header(5)[:stray])
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path))] == SMALL
    fault = kernel.scan(path.read_bytes()).fault
    assert (fault.kind, fault.record, fault.offset) == ("trailing-bytes", 3, len(FILE))
    assert fault.detail.startswith(f"{stray} stray bytes")


@pytest.mark.parametrize("length", HUGE)
@pytest.mark.parametrize("final", [True, False])
def test_huge_length_is_oversized_without_allocation(
    kernel: ModuleType, length: int, *, final: bool
) -> None:
    data = FILE + header(length) + bytes(20)
    tracemalloc.start()
    scan = kernel.scan(data, final=final)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (scan.fault.kind, scan.fault.record, scan.fault.offset) == ("oversized", 3, len(FILE))
    assert {str(length), str(DEFAULT_MAX_RECORD_BYTES)} <= set(scan.fault.detail.split())
    assert (scan.consumed, scan.needed) == (len(FILE), 0)
    assert peak < 1_000_000


@pytest.mark.parametrize("length", HUGE)
@pytest.mark.parametrize("cap", [2**64 - 1, LARGEST_MAX_RECORD_BYTES])
@pytest.mark.parametrize("tail", [0, 3, 4, 20])
def test_no_cap_lets_a_length_reach_past_the_end(
    kernel: ModuleType, length: int, cap: int, tail: int
) -> None:
    data = header(length) + bytes(tail)
    kind = "oversized" if length > cap else "truncated"
    assert kernel.scan(data, max_record_bytes=cap).fault.kind == kind
    waiting = kernel.scan(data, max_record_bytes=cap, final=False)
    if kind == "truncated":
        assert (waiting.needed, waiting.fault) == (length + 16, None)
    assert not kernel.find_next(data, 0, max_record_bytes=cap).found
    found = kernel.find_next(data, 0, max_record_bytes=cap, final=False)
    assert (found.found, found.needed) == (False, 12 if length > cap else length + 16)
    assert kernel.find_end(data, 0, max_record_bytes=cap) == -1


def test_the_cap_is_on_the_data_of_one_record(kernel: ModuleType) -> None:
    assert kernel.scan(FILE, max_record_bytes=len(SMALL[2])).fault is None
    scan = kernel.scan(FILE, max_record_bytes=len(SMALL[2]) - 1)
    assert (scan.fault.kind, scan.fault.record, scan.fault.offset) == ("oversized", 2, BORDERS[2])
    assert kernel.scan(FILE, max_record_bytes=0).fault.record == 0
    assert kernel.scan(framed(b"", b""), max_record_bytes=0).fault is None


def test_a_record_over_the_formats_limit_is_not_framed(kernel: ModuleType) -> None:
    huge: Any = np.broadcast_to(np.zeros(1, np.uint8), LARGEST_MAX_RECORD_BYTES + 1)
    with pytest.raises(ValueError, match="limit of 2147483631"):
        kernel.frame([b"fine", memoryview(huge)])


def test_of_several_faults_the_one_found_first_by_reading_is_told(kernel: ModuleType) -> None:
    """First the length's checksum, then the cap, then what remains, then the data's checksum."""
    bad_data = b"0123" + b"\0\0\0\0"
    cases = {
        "length-crc": damaged(header(1000), 9) + bad_data,
        "oversized": header(1000) + bad_data,
        "truncated": header(90) + bad_data,
        "data-crc": header(4) + bad_data,
    }
    for kind, record in cases.items():
        scan = kernel.scan(FILE + record, max_record_bytes=100)
        assert (scan.fault.kind, scan.fault.record) == (kind, 3)
        assert scan.fault.offset == scan.consumed == len(FILE)


def test_a_header_alone_is_a_truncated_record(kernel: ModuleType) -> None:
    fault = kernel.scan(header(0)).fault
    assert fault.kind == "truncated"
    assert {"16", "12"} <= set(fault.detail.split())


def test_a_frame_that_may_go_on_is_waited_for(kernel: ModuleType) -> None:
    for cut in range(len(FILE) + 1):
        scan = kernel.scan(FILE[:cut], final=False)
        record = max(i for i, border in enumerate(BORDERS) if border <= cut)
        left = cut - BORDERS[record]
        assert scan.fault is None
        assert (len(scan.starts), scan.consumed) == (record, BORDERS[record])
        want = 0 if left == 0 else 12 if left < 12 else BORDERS[record + 1] - BORDERS[record]
        assert scan.needed == want


def test_waiting_for_what_is_needed_leads_through_the_file(kernel: ModuleType) -> None:
    have, found = 0, []
    base = 0
    while base < len(FILE):
        scan = kernel.scan(FILE[base:have], final=False)
        found += payloads_of(scan, FILE[base:have])
        base += scan.consumed
        have = base + max(scan.needed, 12)
    assert found == SMALL


def test_damage_is_told_without_waiting_for_more(kernel: ModuleType) -> None:
    assert kernel.scan(damaged(FILE, 0)[:12], final=False).fault.kind == "length-crc"
    assert kernel.scan(damaged(FILE, 14)[:21], final=False).fault.kind == "data-crc"


def test_lengths_are_read_little_endian(kernel: ModuleType) -> None:
    payload = bytes(0x0102)
    file = kernel.frame([payload])
    assert file[:8] == struct.pack("<Q", 0x0102)
    assert file[8:12] == masked(file[:8])


@pytest.mark.sweep
@settings(max_examples=drawn(300))
@given(data=mixtures, cap=st.sampled_from([0, 10, 50, 2**28, 2**64 - 1]), final=st.booleans())
def test_both_kernels_scan_any_bytes_alike(
    reference: ModuleType, compiled: ModuleType, data: bytes, cap: int, *, final: bool
) -> None:
    want = told(reference.scan(data, max_record_bytes=cap, final=final))
    assert told(compiled.scan(data, max_record_bytes=cap, final=final)) == want


@pytest.mark.sweep
@settings(max_examples=drawn(100))
@given(payloads=st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_framed_is_scanned_back(kernel: ModuleType, payloads: list[bytes]) -> None:
    file = kernel.frame(payloads)
    assert file == framed(*payloads)
    scan = kernel.scan(file)
    assert payloads_of(scan, file) == payloads
    assert (scan.consumed, scan.fault) == (len(file), None)
