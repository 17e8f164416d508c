"""Frames and checksums at memory speed: the compiled twin of reference_frames.py."""

import os

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from shardline.kernel._crc32c cimport (
    shardline_crc32c, shardline_crc32c_init, shardline_crc_source, shardline_load32,
    shardline_load64, shardline_masked, shardline_multiply, shardline_power, shardline_step,
    shardline_store32, shardline_store64,
)

from shardline.kernel.types import (
    DEFAULT_MAX_RECORD_BYTES, LARGEST_MAX_RECORD_BYTES, Scan, Search, frame_fault,
)

cdef enum:
    HEADER = 12
    FRAME = 16

cdef extern from "frames.h" nogil:
    cdef enum shardline_stop:
        AT_END
        LENGTH_CRC
        OVERSIZED
        DATA_CRC
        TRUNCATED
        TRAILING_BYTES

    ctypedef struct shardline_scan_end:
        uint64_t offset, length, bound
        int64_t count
        shardline_stop stop

    shardline_scan_end shardline_scan(
        const uint8_t *base, uint64_t end, uint64_t max_length, int64_t *starts, int64_t *lengths
    )

_KINDS = {
    LENGTH_CRC: "length-crc", OVERSIZED: "oversized", DATA_CRC: "data-crc",
    TRUNCATED: "truncated", TRAILING_BYTES: "trailing-bytes",
}

shardline_crc32c_init(os.environ.get("SHARDLINE_CRC32C") != "table")


def crc_source():
    """Return the implementation of CRC-32C in use: "sse4.2", "arm-crc" or "table"."""
    return (<bytes>shardline_crc_source).decode()


def crc32c(data, uint32_t value=0):
    """Return the CRC-32C of `data`, continued from `value`, the CRC of the bytes before it."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef size_t size = view.shape[0]
    cdef const uint8_t *base = &view[0] if size else NULL
    with nogil:
        value = shardline_crc32c(value, base, size)
    return value


def crc32c_combine(uint32_t first, uint32_t second, second_bytes):
    """Return the CRC of two pieces in sequence, from their CRCs and the size of the second."""
    if second_bytes < 0:
        raise ValueError(f"a piece cannot have {second_bytes} bytes")
    return shardline_multiply(shardline_power(second_bytes), first) ^ second


cdef inline size_t payload_size(payload) except? 0:
    cdef size_t size = len(<bytes>payload) if type(payload) is bytes else memoryview(payload).nbytes
    if size > <size_t>LARGEST_MAX_RECORD_BYTES:
        raise ValueError(
            f"a record of {size} bytes is over the format's limit of {LARGEST_MAX_RECORD_BYTES}"
        )
    return size


def frame(payloads):
    """Frame payloads, each with its length and both checksums, and concatenate them."""
    cdef const uint8_t[::1] view
    cdef size_t size, total = 0
    cdef bytes framed
    cdef uint8_t *out
    cdef uint8_t *end
    for payload in payloads:
        total += payload_size(payload) + FRAME
    framed = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t *>PyBytes_AS_STRING(framed)
    end = out + total
    for payload in payloads:
        size = payload_size(payload)
        if size + FRAME > <size_t>(end - out):
            raise ValueError("the payloads changed while they were framed")
        shardline_store64(out, size)
        if type(payload) is bytes:
            memcpy(out + HEADER, PyBytes_AS_STRING(payload), size)
        elif size:
            view = memoryview(payload).cast("B")
            memcpy(out + HEADER, &view[0], size)
        out += size + FRAME
    if out != end:
        raise ValueError("the payloads changed while they were framed")
    out -= total
    with nogil:
        while out < end:
            size = shardline_load64(out)
            shardline_store32(out + 8, shardline_masked(shardline_crc32c(0, out, 8)))
            shardline_store32(
                out + HEADER + size, shardline_masked(shardline_crc32c(0, out + HEADER, size))
            )
            out += size + FRAME
    return framed


cdef inline bint header_matches(const uint8_t *frame) noexcept nogil:
    return shardline_load32(frame + 8) == shardline_masked(shardline_crc32c(0, frame, 8))


cdef inline bint data_matches(const uint8_t *frame, uint64_t length) noexcept nogil:
    return shardline_load32(frame + HEADER + length) == shardline_masked(
        shardline_crc32c(0, frame + HEADER, length)
    )


cdef object frame_bytes(uint64_t length):
    """Return the size of a whole frame. A Python number, because a length may be close to 2^64."""
    return (<object>length) + FRAME


def scan(data, *, uint64_t max_record_bytes=DEFAULT_MAX_RECORD_BYTES, bint final=True):
    """Find the intact frames at the start of `data`, up to its end or the first fault."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint64_t end = view.shape[0]
    cdef const uint8_t *base = &view[0] if end else NULL
    cdef shardline_scan_end state
    starts = np.empty(end // FRAME + 1, np.int64)
    lengths = np.empty(end // FRAME + 1, np.int64)
    cdef int64_t[::1] starts_view = starts
    cdef int64_t[::1] lengths_view = lengths
    with nogil:
        state = shardline_scan(base, end, max_record_bytes, &starts_view[0], &lengths_view[0])
    stop = state.stop
    needed = 0
    if not final and stop == TRAILING_BYTES:
        stop, needed = AT_END, HEADER
    elif not final and stop == TRUNCATED:
        stop, needed = AT_END, frame_bytes(state.length)
    fault = None
    if stop != AT_END:
        fault = frame_fault(
            _KINDS[stop], state.count, state.offset, state.length, state.bound
        )
    return Scan(starts[: state.count], lengths[: state.count], state.offset, needed, fault)


def find_next(
    data, uint64_t start, *, uint64_t max_record_bytes=DEFAULT_MAX_RECORD_BYTES, bint final=True
):
    """Find the first offset from `start` on where an intact frame begins."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint64_t end = view.shape[0], offset = start, length = 0
    cdef const uint8_t *base = &view[0] if end else NULL
    cdef bint found = False, cut = False
    with nogil:
        while end >= HEADER and offset <= end - HEADER:
            length = shardline_load64(base + offset)
            if length <= max_record_bytes and header_matches(base + offset):
                if end - offset < FRAME or length > end - offset - FRAME:
                    if not final:
                        cut = True
                        break
                elif data_matches(base + offset, length):
                    found = True
                    break
            offset += 1
    if found:
        return Search(found=True, offset=offset, needed=0)
    if cut:
        return Search(found=False, offset=offset, needed=frame_bytes(length))
    if final:
        return Search(found=False, offset=end, needed=0)
    return Search(found=False, offset=offset, needed=HEADER)


cdef inline bint is_border(
    const uint8_t *base, uint64_t offset, uint64_t end, bint final
) noexcept nogil:
    if offset == end:
        return final
    return offset + HEADER <= end and header_matches(base + offset)


def find_end(
    data, uint64_t start, *, uint64_t max_record_bytes=DEFAULT_MAX_RECORD_BYTES, bint final=True
):
    """Return the end of the corrupt record at `start` if its own bytes show it, else -1."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint64_t end = view.shape[0], offset, length
    cdef const uint8_t *base = &view[0] if end else NULL
    cdef uint64_t most = max_record_bytes
    cdef int64_t result = -1
    cdef uint32_t crc = 0xFFFFFFFF
    if start > end or end - start < HEADER:
        return -1
    with nogil:
        if header_matches(base + start):
            length = shardline_load64(base + start)
            if (
                length <= max_record_bytes
                and end - start >= FRAME
                and length <= end - start - FRAME
            ):
                if is_border(base, start + length + FRAME, end, final):
                    result = start + length + FRAME
        else:
            offset = start + HEADER
            while offset + 4 <= end and offset - start - HEADER <= most:
                if (
                    shardline_load32(base + offset) == shardline_masked(~crc)
                    and is_border(base, offset + 4, end, final)
                ):
                    result = offset + 4
                    if offset != start + HEADER + 8:
                        break
                crc = shardline_step(crc, base[offset])
                offset += 1
    return result
