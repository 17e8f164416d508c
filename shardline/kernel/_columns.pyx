"""Features into columns and columns into framed records: the compiled twin of that part of
reference.py."""

import os

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from shardline.kernel._crc32c cimport (
    shardline_crc32c, shardline_crc32c_init, shardline_masked, shardline_store32,
    shardline_store64,
)
from shardline.kernel._wire cimport (
    ACCEPTED, BYTES, FIELD_1, FIELD_2, FIELD_3, FLOAT, INT64, OUT_OF_MEMORY, Names, Refusal,
    Values, check_spans, count_values, names_close, names_find, names_open, parse_feature,
    read_span, read_varint, refusal_error, walk,
)

from shardline.errors import ColumnError
from shardline.kernel.types import (
    KINDS, LARGEST_MAX_RECORD_BYTES, ColumnBuffers, check_buffers, check_distinct, check_offsets,
    wrong_kind, wrong_width,
)

shardline_crc32c_init(os.environ.get("SHARDLINE_CRC32C") != "table")

_DTYPES = {"bytes": np.uint8, "float": np.float32, "int64": np.int64}

cdef enum:
    HEADER = 12
    FRAME = 16


# Where the values of one feature of one record lie: the first pass finds them, the second copies.
ctypedef struct Cell:
    const uint8_t *start
    const uint8_t *end
    int32_t kind
    bint present
    bint packed
    int64_t lists
    int64_t count

ctypedef struct Found:
    Cell *cells
    int32_t columns
    int64_t record
    const uint8_t *ragged


cdef int note_values(
    void *context, int32_t name, const Values *values, const uint8_t **at
) noexcept nogil:
    cdef Found *found = <Found *>context
    cdef Cell *cell
    cdef int64_t count
    cdef int reason = count_values(values, &count, at)
    if reason or name >= found.columns:
        return reason
    cell = &found.cells[found.record * found.columns + name]
    cell.start = values.start
    cell.end = values.end
    cell.packed = values.packed
    cell.count += count
    return ACCEPTED


# A feature list is noted whole: the second pass cuts it into its steps again.
cdef int note_feature(
    void *context, int32_t name, int kind, int64_t lists, const uint8_t *start, const uint8_t *end
) noexcept nogil:
    cdef Found *found = <Found *>context
    cdef Cell *cell
    if name >= found.columns:
        return ACCEPTED
    cell = &found.cells[found.record * found.columns + name]
    cell.present = True
    cell.kind = kind
    cell.lists = lists
    if found.ragged[name]:
        cell.start = start
        cell.end = end
    return ACCEPTED


cdef inline int64_t copy_numbers(Cell *cell, int kind, void *out) noexcept nogil:
    """Copy checked numbers; gives how many."""
    cdef const uint8_t *p = cell.start
    cdef uint64_t number = 0
    cdef int64_t n = 0
    if kind == FLOAT and cell.packed:
        memcpy(out, p, cell.end - p)
        return (cell.end - p) >> 2
    while p < cell.end:
        if not cell.packed:
            p += 1
        if kind == FLOAT:
            memcpy(<float *>out + n, p, 4)
            p += 4
        else:
            p = read_varint(p, cell.end, &number)
            (<int64_t *>out)[n] = <int64_t>number
        n += 1
    return n


cdef int64_t bytes_in(const Cell *cell) noexcept nogil:
    """How many bytes the values of a checked bytes list have together."""
    cdef const uint8_t *p = cell.start
    cdef const uint8_t *inside = NULL
    cdef const uint8_t *after = NULL
    cdef int64_t total = 0
    while p < cell.end:
        read_span(p + 1, cell.end, &inside, &after)
        total += after - inside
        p = after
    return total


cdef int64_t copy_strings(
    const Cell *cell, uint8_t *out, int64_t at, int32_t *sizes
) noexcept nogil:
    """Copy checked strings to `out` from `at` on, with their ends; gives the new end."""
    cdef const uint8_t *p = cell.start
    cdef const uint8_t *inside = NULL
    cdef const uint8_t *after = NULL
    cdef int64_t n = 0
    while p < cell.end:
        read_span(p + 1, cell.end, &inside, &after)
        memcpy(out + at, inside, after - inside)
        at += after - inside
        sizes[n] = <int32_t>at
        n += 1
        p = after
    return at


cdef inline const uint8_t *next_step(
    const uint8_t *p, const uint8_t *end, Cell *step
) noexcept nogil:
    """Cut the next step off a checked feature list."""
    cdef const uint8_t *inside = NULL
    cdef const uint8_t *after = NULL
    cdef const uint8_t *at
    cdef Values values
    read_span(p + 1, end, &inside, &after)
    parse_feature(inside, after, &values, &at)
    count_values(&values, &step.count, &at)
    step.start = values.start
    step.end = values.end
    step.packed = values.packed
    return after


cdef object gather(Cell *cells, Py_ssize_t stride, Py_ssize_t records, column):
    """The second pass, for one column."""
    cdef int kind = KINDS.index(column.kind)
    cdef bint ragged = column.sequence
    cdef int64_t width = -1 if column.width is None else column.width
    cdef Py_ssize_t i
    cdef int64_t values_total = 0, lists_total = 0, bytes_total = 0, k
    cdef Cell *cell
    cdef Cell step
    cdef const uint8_t *p
    valid = np.empty(records, np.uint8)
    rows = np.empty(records + 1, np.int32)
    cdef uint8_t[::1] valid_view = valid
    cdef int32_t[::1] rows_view = rows
    with nogil:
        for i in range(records):
            cell = &cells[i * stride]
            if cell.present:
                values_total += cell.count
                lists_total += cell.lists
                if kind == BYTES and not ragged:
                    bytes_total += bytes_in(cell)
                elif kind == BYTES:
                    p = cell.start
                    while p < cell.end:
                        p = next_step(p, cell.end, &step)
                        bytes_total += bytes_in(&step)
            elif width > 0:
                values_total += width
    check_offsets(max(values_total, lists_total, bytes_total))
    steps = np.empty(lists_total + 1, np.int32) if ragged else None
    sizes = np.empty(values_total + 1, np.int32) if kind == BYTES else None
    values = np.empty(bytes_total if kind == BYTES else values_total, _DTYPES[column.kind])
    cdef int32_t[::1] steps_view = steps
    cdef int32_t[::1] sizes_view = sizes
    cdef uint8_t[::1] values_view = values.view(np.uint8)
    cdef uint8_t *out = &values_view[0] if values_view.shape[0] else NULL
    cdef size_t item = values.itemsize
    cdef int64_t n = 0, lists = 0, at = 0
    rows_view[0] = 0
    if ragged:
        steps_view[0] = 0
    if kind == BYTES:
        sizes_view[0] = 0
    with nogil:
        for i in range(records):
            cell = &cells[i * stride]
            valid_view[i] = cell.present
            if not cell.present:
                for k in range(width if width > 0 else 0):
                    if kind == BYTES:
                        sizes_view[n + 1] = <int32_t>at
                    elif kind == FLOAT:
                        (<float *>out)[n] = 0
                    else:
                        (<int64_t *>out)[n] = 0
                    n += 1
            elif not ragged:
                if kind == BYTES:
                    if cell.count:
                        at = copy_strings(cell, out, at, &sizes_view[n + 1])
                else:
                    copy_numbers(cell, kind, out + n * item)
                n += cell.count
            else:
                p = cell.start
                while p < cell.end:
                    p = next_step(p, cell.end, &step)
                    if kind == BYTES:
                        if step.count:
                            at = copy_strings(&step, out, at, &sizes_view[n + 1])
                    else:
                        copy_numbers(&step, kind, out + n * item)
                    n += step.count
                    lists += 1
                    steps_view[lists] = <int32_t>n
            rows_view[i + 1] = <int32_t>(lists if ragged else n)
    return ColumnBuffers(column, valid, rows, steps, sizes, values)


cdef enum Misfit:
    FITS
    REFUSED
    KIND
    WIDTH


def decode(data, starts, lengths, columns):
    """Lay the chosen features of a block of records out as columns; validates on the way."""
    check_distinct(columns)
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const int64_t[::1] starts_view = starts
    cdef const int64_t[::1] lengths_view = lengths
    check_spans(view.shape[0], starts_view, lengths_view)
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef const uint8_t *payload = base
    cdef Py_ssize_t i, records = starts_view.shape[0]
    cdef int32_t c, wanted = len(columns)
    cdef int64_t[::1] widths = np.array(
        [-1 if column.width is None else column.width for column in columns], np.int64
    )
    cdef int32_t[::1] kinds = np.array([KINDS.index(column.kind) for column in columns], np.int32)
    cdef list encoded = [column.name.encode() for column in columns]
    cdef bytes name
    cdef bint invalid
    cdef Misfit misfit = FITS
    cdef Names names
    cdef Refusal refusal
    cdef Found found
    cdef Cell *cell
    cdef const uint8_t[::1] ragged = np.array(
        [column.sequence for column in columns] or [False], np.uint8
    )
    found.columns = wanted
    found.ragged = &ragged[0]
    found.cells = <Cell *>calloc(max(records * wanted, 1), sizeof(Cell))
    if not names_open(&names) or found.cells == NULL:
        names_close(&names)
        free(found.cells)
        raise MemoryError
    try:
        for name, column in zip(encoded, columns, strict=True):
            if names_find(
                &names, <const uint8_t *>PyBytes_AS_STRING(name), len(name), column.sequence,
                &invalid,
            ) < 0:
                raise MemoryError
        c = 0
        with nogil:
            for i in range(records):
                payload = base + starts_view[i]
                found.record = i
                if not walk(
                    &names, payload, payload + lengths_view[i], i,
                    note_values, note_feature, &found, &refusal,
                ):
                    misfit = REFUSED
                    break
                for c in range(wanted):
                    cell = &found.cells[i * wanted + c]
                    if cell.present and cell.kind >= 0 and cell.kind != kinds[c]:
                        misfit = KIND
                        break
                    if cell.present and widths[c] >= 0 and cell.count != widths[c]:
                        misfit = WIDTH
                        break
                if misfit != FITS:
                    break
        if misfit == REFUSED:
            raise refusal_error(&refusal, i, payload)
        if misfit == KIND:
            raise wrong_kind(i, columns[c], KINDS[found.cells[i * wanted + c].kind])
        if misfit == WIDTH:
            raise wrong_width(i, columns[c], found.cells[i * wanted + c].count)
        return [
            gather(found.cells + c, wanted, records, columns[c]) for c in range(wanted)
        ]
    finally:
        names_close(&names)
        free(found.cells)


# A column to encode: pointers into its buffers, and each record's size of the list inside the
# Feature (or of the FeatureList), found in the first pass.
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


cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t>(value | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline uint8_t *put_tag(uint8_t *out, uint8_t tag, uint64_t size) noexcept nogil:
    out[0] = tag
    return put_varint(out + 1, size)


cdef inline int64_t delimited(int64_t size) noexcept nogil:
    """The size of a field with `size` bytes inside."""
    return 1 + varint_size(size) + size


cdef int64_t packed_size(const Source *source, int32_t first, int32_t last) noexcept nogil:
    """The size of the numbers of a list."""
    cdef int64_t size = 0
    cdef int32_t i
    if source.kind == FLOAT:
        return <int64_t>4 * (last - first)
    for i in range(first, last):
        size += varint_size(<uint64_t>(<const int64_t *>source.values)[i])
    return size


cdef int64_t list_size(const Source *source, int32_t first, int32_t last) noexcept nogil:
    """The size of the inside of a BytesList, FloatList or Int64List."""
    cdef int64_t size = 0
    cdef int32_t i
    if source.kind == BYTES:
        for i in range(first, last):
            size += delimited(source.sizes[i + 1] - source.sizes[i])
        return size
    return 0 if first == last else delimited(packed_size(source, first, last))


cdef int64_t steps_size(const Source *source, int32_t first, int32_t last) noexcept nogil:
    """The size of the inside of a FeatureList."""
    cdef int64_t size = 0
    cdef int32_t i
    for i in range(first, last):
        size += delimited(delimited(list_size(source, source.steps[i], source.steps[i + 1])))
    return size


cdef inline int64_t value_size(const Source *source, int64_t inside) noexcept nogil:
    """The size of a map entry's value: a Feature around its list, or a FeatureList as it is."""
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
    """Write a block of records as framed Examples: SequenceExamples if a column is ragged."""
    ordered = sorted(columns, key=lambda buffers: buffers.column.name.encode())
    check_distinct(buffers.column for buffers in ordered)
    cdef int32_t c, count = len(ordered), level
    cdef Py_ssize_t i
    cdef int64_t total = 0, payload, largest = LARGEST_MAX_RECORD_BYTES, too_large = -1
    cdef Source *sources = <Source *>calloc(max(count, 1), sizeof(Source))
    cdef Source *source
    cdef int64_t[:, ::1] insides = np.empty((count, records), np.int64)
    cdef int64_t[:, ::1] levels = np.zeros((2, records), np.int64)
    cdef const uint8_t[::1] valid
    cdef const int32_t[::1] offsets
    cdef const uint8_t[::1] values
    cdef bytes key, framed
    cdef uint8_t *out
    cdef uint8_t *start
    keep = []
    if sources == NULL:
        raise MemoryError
    try:
        for c, buffers in enumerate(ordered):
            check_buffers(buffers, records)
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
            source.values = &values[0] if values.shape[0] else NULL
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
                    too_large = payload
                    break
                total += payload + FRAME
        if too_large >= 0:
            names = ", ".join(buffers.column.name for buffers in ordered)
            raise ColumnError(i, names, f"{too_large} bytes are over the format's limit")
        framed = PyBytes_FromStringAndSize(NULL, total)
        out = <uint8_t *>PyBytes_AS_STRING(framed)
        with nogil:
            for i in range(records):
                start = out
                out += HEADER
                for level in range(2):
                    if not levels[level, i]:
                        continue
                    out = put_tag(out, FIELD_1 if level == 0 else FIELD_2, levels[level, i])
                    for c in range(count):
                        if sources[c].sequence == level and sources[c].valid[i]:
                            out = put_entry(out, &sources[c], i)
                payload = out - start - HEADER
                shardline_store64(start, payload)
                shardline_store32(start + 8, shardline_masked(shardline_crc32c(0, start, 8)))
                shardline_store32(
                    out, shardline_masked(shardline_crc32c(0, start + HEADER, payload))
                )
                out += 4
        return framed
    finally:
        free(sources)
