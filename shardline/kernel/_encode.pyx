"""Columns into framed records: the compiled twin of reference_encode.py."""

import os

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from shardline.kernel._crc32c cimport shardline_crc32c_init, shardline_store64
from shardline.kernel._wire cimport (
    BYTES, FIELD_1, FIELD_2, FIELD_3, FLOAT, delimited, put_tag, put_varint, varint_size,
)

from shardline.errors import ColumnError
from shardline.kernel.types import (
    KINDS, LARGEST_MAX_RECORD_BYTES, Framed, check_columns, check_distinct,
)

cdef extern from "frames.h" nogil:
    void shardline_seal(uint8_t *frame, const uint8_t *end)

shardline_crc32c_init(os.environ.get("SHARDLINE_CRC32C") != "table")

cdef enum:
    HEADER = 12
    FRAME = 16
    SEALED_TOGETHER = 16384  # bytes in the nearest cache

# Column to encode: pointers into its buffers, and for each record the size of the list inside the
# Feature (or of the FeatureList), from the first pass.
ctypedef struct Source:
    const uint8_t *key
    Py_ssize_t key_size
    int kind
    bint sequence
    const uint8_t *valid
    const int32_t *rows
    const int32_t *steps
    const int32_t *sizes
    const uint8_t *values
    int64_t *inside


cdef int64_t packed_size(const Source *source, int32_t first, int32_t last) noexcept nogil:
    """Return the size of the numbers of a list."""
    cdef int64_t size = 0
    cdef int32_t i
    if source.kind == FLOAT:
        return <int64_t>4 * (last - first)
    for i in range(first, last):
        size += varint_size(<uint64_t>(<const int64_t *>source.values)[i])
    return size


cdef int64_t list_size(const Source *source, int32_t first, int32_t last) noexcept nogil:
    """Return the size of the inside of a BytesList, FloatList or Int64List."""
    cdef int64_t size = 0
    cdef int32_t i
    if source.kind == BYTES:
        for i in range(first, last):
            size += delimited(source.sizes[i + 1] - source.sizes[i])
        return size
    return 0 if first == last else delimited(packed_size(source, first, last))


cdef int64_t steps_size(const Source *source, int32_t first, int32_t last) noexcept nogil:
    """Return the size of the inside of a FeatureList."""
    cdef int64_t size = 0
    cdef int32_t i
    for i in range(first, last):
        size += delimited(delimited(list_size(source, source.steps[i], source.steps[i + 1])))
    return size


cdef inline int64_t value_size(const Source *source, int64_t inside) noexcept nogil:
    """Return the size of the value in a map entry: a Feature around its list, or a FeatureList."""
    return inside if source.sequence else delimited(inside)


cdef inline int64_t entry_size(const Source *source, int64_t inside) noexcept nogil:
    return delimited(source.key_size) + delimited(value_size(source, inside))


cdef uint8_t *put_feature(
    uint8_t *out, const Source *source, int32_t first, int32_t last, int64_t inside
) noexcept nogil:
    cdef int32_t i, size
    cdef const int64_t *numbers = <const int64_t *>source.values
    out = put_tag(
        out, FIELD_1 if source.kind == BYTES else FIELD_2 if source.kind == FLOAT else FIELD_3,
        inside,
    )
    if source.kind == BYTES:
        for i in range(first, last):
            size = source.sizes[i + 1] - source.sizes[i]
            out = put_tag(out, FIELD_1, size)
            memcpy(out, source.values + source.sizes[i], size)
            out += size
    elif first < last:
        out = put_tag(out, FIELD_1, packed_size(source, first, last))
        if source.kind == FLOAT:
            memcpy(out, source.values + <size_t>4 * first, <size_t>4 * (last - first))
            out += <size_t>4 * (last - first)
        else:
            for i in range(first, last):
                out = put_varint(out, <uint64_t>numbers[i])
    return out


cdef uint8_t *put_entry(uint8_t *out, const Source *source, Py_ssize_t record) noexcept nogil:
    cdef int64_t inside = source.inside[record], step
    cdef int32_t i
    out = put_tag(out, FIELD_1, entry_size(source, inside))
    out = put_tag(out, FIELD_1, source.key_size)
    memcpy(out, source.key, source.key_size)
    out = put_tag(out + source.key_size, FIELD_2, value_size(source, inside))
    if not source.sequence:
        return put_feature(out, source, source.rows[record], source.rows[record + 1], inside)
    for i in range(source.rows[record], source.rows[record + 1]):
        step = list_size(source, source.steps[i], source.steps[i + 1])
        out = put_tag(out, FIELD_1, delimited(step))
        out = put_feature(out, source, source.steps[i], source.steps[i + 1], step)
    return out


def encode(columns, Py_ssize_t records):
    """Encode a block of records as framed Examples, or SequenceExamples if a column is ragged."""
    ordered = sorted(columns, key=lambda buffers: buffers.column.name.encode())
    check_distinct(buffers.column for buffers in ordered)
    check_columns(ordered, records)
    cdef int32_t c, count = len(ordered), level
    cdef Py_ssize_t i
    cdef int64_t total = 0, payload, largest = LARGEST_MAX_RECORD_BYTES, oversized_bytes = -1
    cdef Source *sources = <Source *>calloc(max(count, 1), sizeof(Source))
    cdef Source *source
    cdef int64_t[:, ::1] insides = np.empty((count, records), np.int64)
    cdef int64_t[:, ::1] levels = np.zeros((2, records), np.int64)
    starts = np.empty(records, np.int64)
    lengths = np.empty(records, np.int64)
    cdef int64_t[::1] starts_view = starts
    cdef int64_t[::1] lengths_view = lengths
    cdef const uint8_t[::1] valid
    cdef const int32_t[::1] offsets
    cdef const uint8_t[::1] values
    cdef bytes key, framed
    cdef uint8_t nothing
    cdef uint8_t *out
    cdef uint8_t *sealed
    keep = []
    if sources == NULL:
        raise MemoryError
    try:
        for c, buffers in enumerate(ordered):
            source = &sources[c]
            key = buffers.column.name.encode()
            source.key = <const uint8_t *>PyBytes_AS_STRING(key)
            source.key_size = len(key)
            source.kind = KINDS.index(buffers.column.kind)
            source.sequence = buffers.column.sequence
            valid = buffers.valid
            values = np.ascontiguousarray(buffers.values).view(np.uint8)
            keep += (key, values)
            source.valid = &valid[0] if valid.shape[0] else NULL
            source.values = &values[0] if values.shape[0] else &nothing
            offsets = buffers.rows
            source.rows = &offsets[0]
            if buffers.steps is not None:
                offsets = buffers.steps
                source.steps = &offsets[0]
            if buffers.sizes is not None:
                offsets = buffers.sizes
                source.sizes = &offsets[0]
            source.inside = &insides[c, 0] if records else NULL
        with nogil:
            for c in range(count):
                source = &sources[c]
                for i in range(records):
                    if not source.valid[i]:
                        continue
                    if source.sequence:
                        payload = steps_size(source, source.rows[i], source.rows[i + 1])
                    else:
                        payload = list_size(source, source.rows[i], source.rows[i + 1])
                    source.inside[i] = payload
                    levels[source.sequence, i] += delimited(entry_size(source, payload))
            for i in range(records):
                payload = 0
                for level in range(2):
                    if levels[level, i]:
                        payload += delimited(levels[level, i])
                if payload > largest:
                    oversized_bytes = payload
                    break
                starts_view[i] = total + HEADER
                lengths_view[i] = payload
                total += payload + FRAME
        if oversized_bytes >= 0:
            names = ", ".join(buffers.column.name for buffers in ordered)
            raise ColumnError(i, names, f"{oversized_bytes} bytes are over the format's limit")
        framed = PyBytes_FromStringAndSize(NULL, total)
        out = sealed = <uint8_t *>PyBytes_AS_STRING(framed)
        with nogil:
            for i in range(records):
                shardline_store64(out, lengths_view[i])
                out += HEADER
                for level in range(2):
                    if not levels[level, i]:
                        continue
                    out = put_tag(out, FIELD_1 if level == 0 else FIELD_2, levels[level, i])
                    for c in range(count):
                        if sources[c].sequence == level and sources[c].valid[i]:
                            out = put_entry(out, &sources[c], i)
                out += FRAME - HEADER
                if out - sealed >= SEALED_TOGETHER:
                    shardline_seal(sealed, out)
                    sealed = out
            shardline_seal(sealed, out)
        return Framed(framed, starts, lengths)
    finally:
        free(sources)
