"""Features into columns: the compiled twin of reference_decode.py."""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from shardline.kernel._wire cimport (
    ACCEPTED, BYTES, FLOAT, Names, Refusal, Values, check_spans, count_values, names_close,
    names_find, names_open, parse_feature, read_span, read_varint, refusal_error, walk,
)

from shardline.kernel.types import (
    KINDS, ColumnBuffers, check_distinct, check_offsets, wrong_kind, wrong_width,
)

_DTYPES = {"bytes": np.uint8, "float": np.float32, "int64": np.int64}

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
