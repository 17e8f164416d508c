"""Frames and checksums in plain Python: part of the specification."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from shardline.kernel.types import (
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    LARGEST_MAX_RECORD_BYTES,
    Buffer,
    Framed,
    Scan,
    Search,
    frame_fault,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.errors import FaultKind

_POLYNOMIAL = 0x82F63B78


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_table_entry(byte) for byte in range(256))


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of `data`, continued from `value`, the CRC of the preceding data."""
    crc = value ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32c_combine(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC of two concatenated pieces from their CRCs and the size of the second."""
    if second_bytes < 0:
        raise ValueError(f"a piece cannot have {second_bytes} bytes")
    power = 0x40000000 >> 7  # x^8: shift by one byte
    shift = 0x80000000  # x^0
    while second_bytes:
        if second_bytes & 1:
            shift = _multiply(power, shift)
        power = _multiply(power, power)
        second_bytes >>= 1
    return _multiply(shift, first) ^ second


def _multiply(a: int, b: int) -> int:
    """Multiply two polynomials over GF(2), bits reversed, modulo the CRC's polynomial."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _masked(crc: int) -> int:
    """Mask a CRC as TFRecord does, so that the CRC of data with embedded CRCs stays strong."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payloads: Sequence[Buffer]) -> bytes:
    """Frame each payload with its length and both checksums, and concatenate the frames."""
    pieces: list[Buffer] = []
    for payload in payloads:
        size = memoryview(payload).nbytes
        if size > LARGEST_MAX_RECORD_BYTES:
            raise ValueError(
                f"a record of {size} bytes is over the format's limit of {LARGEST_MAX_RECORD_BYTES}"
            )
        length = struct.pack("<Q", size)
        pieces += (length, struct.pack("<I", _masked(crc32c(length))))
        pieces += (payload, struct.pack("<I", _masked(crc32c(payload))))
    return b"".join(pieces)


def framed(payloads: Sequence[Buffer]) -> Framed:
    """Frame payloads, and return the frames with the position of each payload."""
    lengths = np.array([memoryview(payload).nbytes for payload in payloads], np.int64)
    starts = np.cumsum(lengths + FRAME_BYTES) - lengths - FOOTER_BYTES
    return Framed(frame(payloads), starts, lengths)


def _stated_length(data: memoryview, offset: int) -> int | None:
    """Return the length in the header at `offset`, or None if its checksum differs."""
    length = data[offset : offset + 8]
    (stored,) = struct.unpack_from("<I", data, offset + 8)
    return int.from_bytes(length, "little") if stored == _masked(crc32c(length)) else None


def _data_matches(data: memoryview, offset: int, length: int) -> bool:
    start = offset + HEADER_BYTES
    (stored,) = struct.unpack_from("<I", data, start + length)
    return bool(stored == _masked(crc32c(data[start : start + length])))


def _validate_unsigned(*numbers: int) -> None:
    if min(numbers) < 0:
        raise OverflowError("can't convert negative value to uint64_t")


def scan(
    data: Buffer, *, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES, final: bool = True
) -> Scan:
    """Find the intact frames at the start of `data`, up to its end or the first fault.

    A length is used only if its checksum, the size limit and the remaining bytes confirm it.
    `final` states that no data follows: a frame cut off by the end is then a fault.
    """
    _validate_unsigned(max_record_bytes)
    view = memoryview(data).cast("B")
    end = len(view)
    starts: list[int] = []
    lengths: list[int] = []
    offset = needed = length = bound = 0
    kind: FaultKind | None = None
    while offset < end:
        remaining = end - offset
        if remaining < HEADER_BYTES:
            kind, bound, needed = "trailing-bytes", remaining, HEADER_BYTES
            break
        stated = _stated_length(view, offset)
        if stated is None:
            kind = "length-crc"
            break
        length = stated
        if length > max_record_bytes:
            kind, bound = "oversized", max_record_bytes
            break
        if length + FRAME_BYTES > remaining:
            kind, bound, needed = "truncated", remaining, length + FRAME_BYTES
            break
        if not _data_matches(view, offset, length):
            kind = "data-crc"
            break
        starts.append(offset + HEADER_BYTES)
        lengths.append(length)
        offset += length + FRAME_BYTES
    if needed and final:
        needed = 0
    elif needed:
        kind = None
    fault = None if kind is None else frame_fault(kind, len(starts), offset, length, bound)
    return Scan(np.array(starts, np.int64), np.array(lengths, np.int64), offset, needed, fault)


def find_next(
    data: Buffer,
    start: int,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    final: bool = True,
) -> Search:
    """Find the first offset at or after `start` where an intact frame begins.

    Unless `final`, the search stops at a frame that the end of `data` cuts off. `needed` is then
    the number of bytes required to decide.
    """
    _validate_unsigned(start, max_record_bytes)
    view = memoryview(data).cast("B")
    end = len(view)
    for offset in range(start, end - HEADER_BYTES + 1):
        plausible = int.from_bytes(view[offset : offset + 8], "little")
        if plausible > max_record_bytes or _stated_length(view, offset) is None:
            continue
        if plausible + FRAME_BYTES > end - offset:
            if final:
                continue
            return Search(found=False, offset=offset, needed=plausible + FRAME_BYTES)
        if _data_matches(view, offset, plausible):
            return Search(found=True, offset=offset, needed=0)
    if final:
        return Search(found=False, offset=end, needed=0)
    offset = max(start, end - HEADER_BYTES + 1)
    return Search(found=False, offset=offset, needed=HEADER_BYTES)


def find_end(
    data: Buffer,
    start: int,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    final: bool = True,
) -> int:
    """Return where the corrupt record at `start` ends, or -1 if its bytes do not show it.

    Without this search, frames *inside* a corrupt record (a TFRecord file stored as a feature)
    would be read as records. The end is known in two cases. Either the length is intact and another
    header, or the end, follows the record. Or the header is lost but the data is intact: its
    checksum matches directly after the data, followed by another header or the end. Eight bytes of
    data with their checksum look like the header of a frame inside longer data, so longer data is
    tried first.
    """
    _validate_unsigned(start, max_record_bytes)
    view = memoryview(data).cast("B")
    end = len(view)

    def border(offset: int) -> bool:
        if offset == end:
            return final
        return offset + HEADER_BYTES <= end and _stated_length(view, offset) is not None

    if end - start < HEADER_BYTES:
        return -1
    stated = _stated_length(view, start)
    if stated is not None:
        target = start + stated + FRAME_BYTES
        return target if stated <= max_record_bytes and target <= end and border(target) else -1
    crc = 0xFFFFFFFF
    of_eight = -1
    last = min(end - 4, start + HEADER_BYTES + max_record_bytes)
    for offset in range(start + HEADER_BYTES, last + 1):
        (stored,) = struct.unpack_from("<I", view, offset)
        if stored == _masked(crc ^ 0xFFFFFFFF) and border(offset + 4):
            if offset != start + HEADER_BYTES + 8:
                return offset + 4
            of_eight = offset + 4
        crc = (crc >> 8) ^ _TABLE[(crc ^ view[offset]) & 0xFF]
    return of_eight
