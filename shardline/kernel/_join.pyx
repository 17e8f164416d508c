"""Join features to records: with _splice.pyx the compiled twin of reference_splice.py.

The first pass computes sizes, the second writes bytes. The input is checked whenever it is read,
because another thread may write to it while the GIL is released.
"""

import os

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from shardline.kernel._crc32c cimport shardline_crc32c_init, shardline_store64
from shardline.kernel._wire cimport FIELD_1, FIELD_2, copy_bytes, delimited, put_tag

from shardline.kernel.types import (
    LARGEST_MAX_RECORD_BYTES, Framed, check_insides, check_parts, too_large_error,
)

cdef extern from "frames.h" nogil:
    void shardline_seal(uint8_t *frame, const uint8_t *end)

cdef extern from "pages.h" nogil:
    void shardline_large_pages(void *start, size_t size)

shardline_crc32c_init(os.environ.get("SHARDLINE_CRC32C") != "table")

cdef enum:
    HEADER = 12
    FRAME = 16
    SEALED_TOGETHER = 16384  # bytes in the nearest cache

# More bytes than any machine has: allocating so many raises MemoryError.
cdef int64_t ENDLESS = INT64_MAX // 2

# Insides of records, and the rows to take from them.
ctypedef struct Part:
    const uint8_t *data
    int64_t size
    const int64_t *starts
    const int64_t *lengths
    int64_t records
    const int64_t *rows

# Span that a record takes from a part for one level.
ctypedef struct Span:
    const uint8_t *start
    int64_t size


cdef class Joining:
    """Parts of a join and their memory."""

    cdef Part *parts
    cdef Span *spans
    cdef Py_ssize_t count
    cdef list buffers

    def __cinit__(self, list pairs, Py_ssize_t records):
        cdef Py_ssize_t p
        cdef int64_t size = 0
        self.buffers = []
        self.count = len(pairs)
        self.parts = <Part *>calloc(self.count, sizeof(Part))
        self.spans = <Span *>calloc(2 * self.count, sizeof(Span))
        if self.parts == NULL or self.spans == NULL:
            raise MemoryError
        for p, (part, row) in enumerate(pairs):
            self.hold(&self.parts[p], part, row, records)
            size += self.parts[p].size
            if size > ENDLESS:  # adding up the sizes of a record would overflow
                raise MemoryError

    def __dealloc__(self):
        free(self.parts)
        free(self.spans)

    cdef int hold(self, Part *target, part, row, Py_ssize_t records) except -1:
        cdef const uint8_t[::1] data = memoryview(part.data).cast("B")
        cdef const int64_t[:, ::1] starts = part.starts
        cdef const int64_t[:, ::1] lengths = part.lengths
        cdef const int64_t[::1] rows = row
        if (
            starts.shape[0] != 2 or lengths.shape[0] != 2
            or lengths.shape[1] != starts.shape[1] or rows.shape[0] != records
        ):
            raise ValueError("the insides changed while they were joined")
        self.buffers += (data, starts, lengths, rows)
        target.size = data.shape[0]
        target.records = starts.shape[1]
        target.data = &data[0] if target.size else NULL
        target.starts = &starts[0, 0] if target.records else NULL
        target.lengths = &lengths[0, 0] if target.records else NULL
        target.rows = &rows[0] if records else NULL
        return 0


cdef bint in_bounds(const Part *part, Py_ssize_t records) noexcept nogil:
    """Return True if a part has all rows, and its data all insides, including unused ones."""
    cdef int64_t outside = 0
    cdef Py_ssize_t i
    for i in range(records):
        outside |= (part.rows[i] < -1) | (part.rows[i] >= part.records)
    for i in range(2 * part.records):
        outside |= (part.starts[i] < 0) | (part.lengths[i] < 0)
        outside |= part.lengths[i] > <int64_t>(<uint64_t>part.size - <uint64_t>part.starts[i])
    return not outside


cdef inline int64_t gather(
    const Part *parts, Py_ssize_t count, Py_ssize_t record, Span *spans, int64_t *levels
) noexcept nogil:
    """Find the spans of a record. Returns its payload size, -1 if a span is out of bounds."""
    cdef int64_t row, start, size, payload = 0
    cdef const Part *part
    cdef Py_ssize_t p
    cdef int level
    levels[0] = levels[1] = 0
    for p in range(count):
        part = &parts[p]
        row = part.rows[record]
        if row < -1 or row >= part.records:
            return -1
        for level in range(2):
            spans.size = 0
            if row >= 0:
                start = part.starts[level * part.records + row]
                size = part.lengths[level * part.records + row]
                if start < 0 or size < 0 or start > part.size or size > part.size - start:
                    return -1
                spans.start = part.data + start
                spans.size = size
                levels[level] += size
            spans += 1
    for level in range(2):
        if levels[level]:
            payload += delimited(levels[level])
    return payload


cdef inline void put_payload(
    uint8_t *out, const Span *spans, Py_ssize_t count, const int64_t *levels
) noexcept nogil:
    """Write the spans of a record, level by level, each level in its message."""
    cdef const Span *span
    cdef Py_ssize_t p
    cdef int level
    for level in range(2):
        if levels[level]:
            out = put_tag(out, FIELD_1 if level == 0 else FIELD_2, levels[level])
            for p in range(count):
                span = &spans[2 * p + level]
                copy_bytes(out, span.start, span.size)
                out += span.size


def join(parts, rows):
    """Join features to records and frame them."""
    cdef Py_ssize_t i = 0, p, records = check_parts(parts, rows)
    cdef Joining joining = Joining(list(zip(parts, rows, strict=True)), records)
    cdef Part *inputs = joining.parts
    cdef Span *spans = joining.spans
    cdef int64_t levels[2]
    cdef int64_t payload = 0, total = 0, largest = LARGEST_MAX_RECORD_BYTES
    starts = np.empty(records, np.int64)
    lengths = np.empty(records, np.int64)
    cdef int64_t[::1] starts_view = starts
    cdef int64_t[::1] lengths_view = lengths
    cdef bytes framed
    cdef uint8_t *out
    cdef uint8_t *sealed
    cdef bint sound = True
    with nogil:
        for p in range(joining.count):
            sound = sound and in_bounds(&inputs[p], records)
    if not sound:
        check_insides(parts, rows)  # raises the error
    with nogil:
        for i in range(records):
            payload = gather(inputs, joining.count, i, spans, levels)
            if payload < 0 or payload > largest or total > ENDLESS:
                break
            starts_view[i] = total + HEADER
            lengths_view[i] = payload
            total += payload + FRAME
    if payload > largest:
        raise too_large_error(i, payload)
    if payload >= 0:
        framed = PyBytes_FromStringAndSize(NULL, total)
        out = sealed = <uint8_t *>PyBytes_AS_STRING(framed)
        with nogil:
            shardline_large_pages(out, total)
            for i in range(records):
                payload = gather(inputs, joining.count, i, spans, levels)
                if payload != lengths_view[i]:
                    payload = -1
                    break
                shardline_store64(out, payload)
                put_payload(out + HEADER, spans, joining.count, levels)
                out += payload + FRAME
                if out - sealed >= SEALED_TOGETHER:
                    shardline_seal(sealed, out)
                    sealed = out
            shardline_seal(sealed, out)
    if payload < 0:
        raise ValueError("the insides changed while they were joined")
    return Framed(framed, starts, lengths)
