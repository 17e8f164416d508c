"""Features into columns: the compiled twin of reference_decode.py.

Numbers of a known width are written to their column during the walk. For other columns, the walk
notes the position of the values in each record. They are copied once their number is known.
"""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from shardline.kernel._wire cimport (
    ACCEPTED, BAD_VARINT, BYTES, FIELD_1, FLOAT, LIST_FIELD, Names, Refusal, Values, check_spans,
    count_values, names_close, names_find, names_open, parse_feature, read_span, read_varint,
    refusal_error, walk,
)

from shardline.kernel.types import (
    KINDS, ColumnBuffers, check_distinct, check_offsets, wrong_kind_error, wrong_width_error,
)

_DTYPES = {"bytes": np.uint8, "float": np.float32, "int64": np.int64}


# Position of the values of a feature in a record; of a feature list, position of its steps.
ctypedef struct Cell:
    const uint8_t *start
    const uint8_t *end
    int64_t count
    bint present
    bint packed

# Requested column, and its values in record number `record`, the last record that has it.
ctypedef struct Target:
    int32_t kind
    int64_t width
    bint ragged
    uint8_t *direct
    Cell *cells
    int64_t lists_total
    int64_t count_total
    int64_t bytes_total
    int64_t record
    bint packed
    int32_t found_kind
    int64_t count
    const uint8_t *start
    const uint8_t *end

ctypedef struct Walk:
    Target *targets
    int32_t columns
    int64_t record


cdef inline int put_numbers(
    Target *target, int64_t record, const Values *values, const uint8_t **position
) noexcept nogil:
    """Write the numbers of a record to their column, as many as fit."""
    cdef int64_t count = 0, n = 0
    cdef const uint8_t *p = values.start
    cdef uint64_t number = 0
    cdef int64_t *integers = <int64_t *>target.direct + record * target.width
    cdef float *floats = <float *>target.direct + record * target.width
    cdef int reason
    if values.packed and target.kind == FLOAT:
        target.count = (values.end - p) >> 2
        if target.count == target.width:
            memcpy(floats, p, values.end - p)
        return ACCEPTED
    if values.packed:
        while p < values.end:
            position[0] = p
            p = read_varint(p, values.end, &number)
            if p == NULL:
                return BAD_VARINT
            if n < target.width:
                integers[n] = <int64_t>number
            n += 1
        target.count = n
        return ACCEPTED
    reason = count_values(values, &count, position)
    target.count = count
    if reason or count != target.width:
        return reason
    for n in range(count):
        if target.kind == FLOAT:
            memcpy(floats + n, p + 1, 4)
            p += 5
        else:
            p = read_varint(p + 1, values.end, &number)
            integers[n] = <int64_t>number
    return ACCEPTED


cdef inline int add_strings(
    Target *target, const Values *values, const uint8_t **position
) noexcept nogil:
    """Check the strings of a list and add up their number and size."""
    cdef const uint8_t *p = values.start
    cdef const uint8_t *inside = NULL
    cdef int reason
    while p < values.end:
        position[0] = p
        if p[0] != FIELD_1:
            return LIST_FIELD
        position[0] = p + 1
        reason = read_span(p + 1, values.end, &inside, &p)
        if reason:
            return reason
        target.count += 1
        target.bytes_total += p - inside
    return ACCEPTED


cdef int note_values(
    void *context, int32_t name, const Values *values, const uint8_t **position
) noexcept nogil:
    cdef Walk *state = <Walk *>context
    cdef Target *target
    cdef int64_t count = 0
    cdef int reason
    if name >= state.columns:
        return count_values(values, &count, position)
    target = &state.targets[name]
    if target.record != state.record:
        target.record = state.record
        target.count = 0
    if target.direct != NULL and values.kind == target.kind:
        return put_numbers(target, state.record, values, position)
    target.start = values.start
    target.end = values.end
    target.packed = values.packed
    if values.kind == BYTES:
        return add_strings(target, values, position)
    reason = count_values(values, &count, position)
    target.count += count
    return reason


cdef int note_feature(
    void *context, int32_t name, int kind, int64_t lists, const uint8_t *start, const uint8_t *end
) noexcept nogil:
    cdef Walk *state = <Walk *>context
    cdef Target *target
    if name < state.columns:
        target = &state.targets[name]
        if target.record != state.record:  # a feature list without steps
            target.record = state.record
            target.count = 0
        target.found_kind = kind
        if target.ragged:
            target.start = start
            target.end = end
            target.lists_total += lists
    return ACCEPTED


cdef enum Misfit:
    FITS
    REFUSED
    KIND
    WIDTH


cdef inline Misfit settle(Target *target, int64_t record, uint8_t *valid) noexcept nogil:
    """Check the values of the record against the column, and note them."""
    cdef Cell *cell
    cdef int64_t row
    cdef bint present = target.record == record
    valid[record] = present
    if present:
        if target.found_kind >= 0 and target.found_kind != target.kind:
            return KIND
        if target.width >= 0 and target.count != target.width:
            return WIDTH
    if target.direct == NULL:
        cell = &target.cells[record]
        cell.present = present
        cell.start = target.start
        cell.end = target.end
        cell.packed = target.packed
        cell.count = target.count
        if present:
            target.count_total += target.count
        elif target.width > 0:
            target.count_total += target.width
    elif not present:
        row = target.width * (4 if target.kind == FLOAT else 8)
        memset(target.direct + record * row, 0, row)
    return FITS


cdef inline void copy_numbers(const Cell *cell, int kind, void *out) noexcept nogil:
    """Copy checked numbers."""
    cdef const uint8_t *p = cell.start
    cdef uint64_t number = 0
    cdef int64_t n
    if kind == FLOAT and cell.packed:
        memcpy(out, p, cell.end - p)
        return
    for n in range(cell.count):
        if not cell.packed:
            p += 1
        if kind == FLOAT:
            memcpy(<float *>out + n, p, 4)
            p += 4
        else:
            p = read_varint(p, cell.end, &number)
            (<int64_t *>out)[n] = <int64_t>number


cdef inline int64_t copy_strings(
    const Cell *cell, uint8_t *out, int64_t offset, int32_t *sizes
) noexcept nogil:
    """Copy checked strings to `out` from `offset` on, with their ends. Returns the new end."""
    cdef const uint8_t *p = cell.start
    cdef const uint8_t *inside = NULL
    cdef int64_t n
    for n in range(cell.count):
        read_span(p + 1, cell.end, &inside, &p)
        memcpy(out + offset, inside, p - inside)
        offset += p - inside
        sizes[n] = <int32_t>offset
    return offset


cdef inline const uint8_t *next_step(
    const uint8_t *p, const uint8_t *end, Cell *step
) noexcept nogil:
    """Cut the next step off a checked feature list."""
    cdef const uint8_t *inside = NULL
    cdef const uint8_t *after = NULL
    cdef const uint8_t *position = NULL
    cdef Values values
    values.kind = BYTES
    values.packed = False
    values.start = values.end = p
    read_span(p + 1, end, &inside, &after)
    parse_feature(inside, after, &values, &position)
    count_values(&values, &step.count, &position)
    step.start = values.start
    step.end = values.end
    step.packed = values.packed
    return after


cdef object gather(const Target *target, Py_ssize_t records, column, valid):
    """Copy the values that the walk has noted."""
    check_offsets(max(target.count_total, target.lists_total, target.bytes_total))
    cdef int kind = target.kind
    cdef int64_t width = target.width
    rows = np.empty(records + 1, np.int32)
    steps = np.empty(target.lists_total + 1, np.int32) if target.ragged else None
    sizes = np.empty(target.count_total + 1, np.int32) if kind == BYTES else None
    values = np.empty(
        target.bytes_total if kind == BYTES else target.count_total, _DTYPES[column.kind]
    )
    cdef int32_t[::1] rows_view = rows
    cdef int32_t[::1] steps_view = steps
    cdef int32_t[::1] sizes_view = sizes
    cdef uint8_t[::1] values_view = values.view(np.uint8)
    cdef uint8_t nothing
    cdef uint8_t *out = &values_view[0] if values_view.shape[0] else &nothing
    cdef size_t item = values.itemsize
    cdef int64_t n = 0, lists = 0, offset = 0, k
    cdef Py_ssize_t i
    cdef const Cell *cell
    cdef const uint8_t *p
    cdef Cell step
    step.count = 0
    rows_view[0] = 0
    if steps is not None:
        steps_view[0] = 0
    if sizes is not None:
        sizes_view[0] = 0
    with nogil:
        for i in range(records):
            cell = &target.cells[i]
            if not cell.present:
                for k in range(width if width > 0 else 0):  # numbers are written
                    n += 1
                    sizes_view[n] = <int32_t>offset
            elif not target.ragged:
                if kind == BYTES:
                    if cell.count:
                        offset = copy_strings(cell, out, offset, &sizes_view[n + 1])
                else:
                    copy_numbers(cell, kind, out + n * item)
                n += cell.count
            else:
                p = cell.start
                while p < cell.end:
                    p = next_step(p, cell.end, &step)
                    if kind == BYTES:
                        if step.count:
                            offset = copy_strings(&step, out, offset, &sizes_view[n + 1])
                    else:
                        copy_numbers(&step, kind, out + n * item)
                    n += step.count
                    lists += 1
                    steps_view[lists] = <int32_t>n
            rows_view[i + 1] = <int32_t>(lists if target.ragged else n)
    return ColumnBuffers(column, valid, rows, steps, sizes, values)


cdef class Targets:
    """Requested columns and their memory."""

    cdef Walk state
    cdef uint8_t **valid
    cdef list valid_arrays
    cdef list direct_arrays

    def __cinit__(self, columns, Py_ssize_t records):
        cdef int32_t c, column_count = len(columns)
        cdef Target *target
        cdef uint8_t[::1] view
        self.valid_arrays = [np.empty(max(records, 1), np.uint8) for _ in columns]
        self.direct_arrays = []
        self.valid = <uint8_t **>calloc(max(column_count, 1), sizeof(uint8_t *))
        self.state.targets = <Target *>calloc(max(column_count, 1), sizeof(Target))
        if self.valid == NULL or self.state.targets == NULL:
            raise MemoryError
        self.state.columns = column_count
        for c in range(column_count):
            column = columns[c]
            view = self.valid_arrays[c]
            self.valid[c] = &view[0]
            target = &self.state.targets[c]
            target.kind = KINDS.index(column.kind)
            target.width = -1 if column.width is None else column.width
            target.ragged = column.sequence
            target.record = -1
            if target.kind != BYTES and target.width >= 0:
                check_offsets(records * target.width)
                values = np.empty(max(records * target.width, 1), _DTYPES[column.kind])
                view = values.view(np.uint8)
                target.direct = &view[0]
                self.direct_arrays.append(values)
            else:
                self.direct_arrays.append(None)
                target.cells = <Cell *>calloc(max(records, 1), sizeof(Cell))
                if target.cells == NULL:
                    raise MemoryError

    def __dealloc__(self):
        cdef int32_t c
        if self.state.targets != NULL:
            for c in range(self.state.columns):
                free(self.state.targets[c].cells)
        free(self.state.targets)
        free(self.valid)

    cdef object buffers(self, int32_t c, Py_ssize_t records, column):
        """Return a column after the walk."""
        valid = self.valid_arrays[c][:records]
        if self.state.targets[c].direct == NULL:
            return gather(&self.state.targets[c], records, column, valid)
        rows = np.arange(records + 1, dtype=np.int32) * np.int32(column.width)
        values = self.direct_arrays[c][: records * column.width]
        return ColumnBuffers(column, valid, rows, None, None, values)


def decode(data, starts, lengths, columns, met=None, *, unset=None):
    """Decode the requested features of a block of records as columns, with validation."""
    check_distinct(columns)
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const int64_t[::1] starts_view = starts
    cdef const int64_t[::1] lengths_view = lengths
    check_spans(view.shape[0], starts_view, lengths_view)
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef const uint8_t *payload = base
    cdef Py_ssize_t i, records = starts_view.shape[0]
    cdef Targets targets = Targets(columns, records)
    cdef Walk *state = &targets.state
    cdef int32_t c = 0, column_count = state.columns
    cdef list encoded = [column.name.encode() for column in columns]
    cdef bytes name
    cdef bint invalid
    cdef Misfit misfit = FITS
    cdef Names names
    cdef Refusal refusal
    if not names_open(&names):
        names_close(&names)
        raise MemoryError
    try:
        for name, column in zip(encoded, columns, strict=True):
            if names_find(
                &names, <const uint8_t *>PyBytes_AS_STRING(name), len(name), column.sequence,
                &invalid,
            ) < 0:
                raise MemoryError
        with nogil:
            for i in range(records):
                payload = base + starts_view[i]
                state.record = i
                if not walk(
                    &names, payload, payload + lengths_view[i], i,
                    note_values, note_feature, state, &refusal,
                ):
                    misfit = REFUSED
                    break
                for c in range(column_count):
                    misfit = settle(&state.targets[c], i, targets.valid[c])
                    if misfit != FITS:
                        break
                if misfit != FITS:
                    break
        if misfit == REFUSED:
            raise refusal_error(&refusal, i, payload)
        if misfit == KIND:
            raise wrong_kind_error(i, columns[c], KINDS[state.targets[c].found_kind])
        if misfit == WIDTH:
            raise wrong_width_error(i, columns[c], state.targets[c].count)
        if met is not None:
            for c in range(names.count):
                if names.items[c].last_record >= 0:
                    name = (<const char *>names.items[c].text)[:names.items[c].size]
                    met.add((bool(names.items[c].sequence), name.decode()))
        if unset is not None:
            for c in range(names.count):
                if names.items[c].was_unset:
                    name = (<const char *>names.items[c].text)[:names.items[c].size]
                    unset.add(name.decode())
        return [targets.buffers(c, records, columns[c]) for c in range(column_count)]
    finally:
        names_close(&names)
