"""Walk the wire format of Example and SequenceExample: the compiled twin of reference_wire.py,
where the rules are told. Every function here checks before it looks."""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from shardline.kernel.types import example_error

# So that nobody can prepare a file whose names all fall into one bucket.
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


cdef bint names_open(Names *names) noexcept nogil:
    names.count = 0
    names.capacity = 32
    names.mask = 63
    names.previous = 0
    names.items = <Name *>malloc(names.capacity * sizeof(Name))
    names.buckets = <int32_t *>calloc(names.mask + 1, sizeof(int32_t))
    return names.items != NULL and names.buckets != NULL


cdef void names_close(Names *names) noexcept nogil:
    free(names.items)
    free(names.buckets)


cdef bint names_grow(Names *names) noexcept nogil:
    cdef int32_t capacity = names.capacity * 2
    cdef Name *items = <Name *>realloc(names.items, capacity * sizeof(Name))
    cdef int32_t *buckets
    cdef int32_t i
    cdef uint64_t bucket, mask = names.mask * 2 + 1
    if items == NULL:
        return False
    names.items = items
    names.capacity = capacity
    buckets = <int32_t *>calloc(mask + 1, sizeof(int32_t))
    if buckets == NULL:
        return False
    for i in range(names.count):
        bucket = items[i].hash & mask
        while buckets[bucket]:
            bucket = (bucket + 1) & mask
        buckets[bucket] = i + 1
    free(names.buckets)
    names.buckets = buckets
    names.mask = mask
    return True


cdef inline uint64_t hash_of(const uint8_t *text, Py_ssize_t size, bint sequence) noexcept nogil:
    cdef uint64_t value = SEED ^ <uint64_t>size ^ (<uint64_t>sequence << 32)
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, text, 8)
        value = (value ^ word) * <uint64_t>0x9E3779B97F4A7C15
        value ^= value >> 29
        text += 8
        size -= 8
    word = 0
    memcpy(&word, text, size)
    value = (value ^ word) * <uint64_t>0xBF58476D1CE4E5B9
    return value ^ (value >> 32)


cdef inline bint same_name(
    const Name *item, const uint8_t *text, Py_ssize_t size, bint sequence
) noexcept nogil:
    return (
        item.size == size and item.sequence == sequence and memcmp(item.text, text, size) == 0
    )


cdef int32_t names_find(
    Names *names, const uint8_t *text, Py_ssize_t size, bint sequence, bint *invalid
) noexcept nogil:
    """The number of a name, new if it was not met before.

    -1 if memory is short, or with `invalid` set if it is not UTF-8.
    """
    cdef int32_t guess, found
    cdef uint64_t hashed, bucket
    cdef Name *item
    invalid[0] = False
    if names.count:
        guess = names.items[names.previous].likely_next
        if same_name(&names.items[guess], text, size, sequence):
            names.previous = guess
            return guess
    hashed = hash_of(text, size, sequence)
    bucket = hashed & names.mask
    found = -1
    while names.buckets[bucket]:
        item = &names.items[names.buckets[bucket] - 1]
        if item.hash == hashed and same_name(item, text, size, sequence):
            found = names.buckets[bucket] - 1
            break
        bucket = (bucket + 1) & names.mask
    if found < 0:
        if not is_utf8(text, text + size):
            invalid[0] = True
            return -1
        if names.count == names.capacity:
            if not names_grow(names):
                return -1
            bucket = hashed & names.mask
            while names.buckets[bucket]:
                bucket = (bucket + 1) & names.mask
        found = names.count
        names.count += 1
        names.buckets[bucket] = found + 1
        item = &names.items[found]
        item.text = text
        item.size = size
        item.hash = hashed
        item.sequence = sequence
        item.last_record = -1
        item.likely_next = 0
    names.items[names.previous].likely_next = found
    names.previous = found
    return found


cdef inline bint continues(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef uint64_t word
    cdef uint8_t first, second
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            if not word & <uint64_t>0x8080808080808080:
                p += 8
                continue
        first = p[0]
        if first < 0x80:
            p += 1
            continue
        if first < 0xC2 or first > 0xF4 or end - p < 2:
            return False
        second = p[1]
        if not continues(second):
            return False
        if first < 0xE0:
            p += 2
        elif first < 0xF0:
            if end - p < 3 or not continues(p[2]):
                return False
            if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
                return False
            p += 3
        else:
            if end - p < 4 or not continues(p[2]) or not continues(p[3]):
                return False
            if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
                return False
            p += 4
    return True


cdef int parse_feature(
    const uint8_t *start, const uint8_t *end, Values *values, const uint8_t **at
) noexcept nogil:
    """Find the values of a Feature; what they are is for count_values or a tally to check."""
    cdef const uint8_t *chunk_start
    cdef const uint8_t *chunk_end
    cdef int reason
    at[0] = start
    if start >= end:
        return NO_KIND
    if start[0] == FIELD_1:
        values.kind = BYTES
    elif start[0] == FIELD_2:
        values.kind = FLOAT
    elif start[0] == FIELD_3:
        values.kind = INT64
    else:
        return NO_KIND
    at[0] = start + 1
    reason = read_span(start + 1, end, &values.start, &values.end)
    if reason:
        return reason
    if values.end != end:
        at[0] = values.end
        return AFTER_KIND
    values.packed = False
    if values.kind != BYTES and values.start < values.end and values.start[0] == FIELD_1:
        at[0] = values.start + 1
        reason = read_span(values.start + 1, values.end, &chunk_start, &chunk_end)
        if reason:
            return reason
        if chunk_end != values.end:
            at[0] = chunk_end
            return LIST_CHUNKS
        values.packed = True
        values.start = chunk_start
        if values.kind == FLOAT and (chunk_end - chunk_start) & 3:
            at[0] = chunk_start
            return FLOAT_BYTES
    return ACCEPTED


cdef int count_values(const Values *values, int64_t *count, const uint8_t **at) noexcept nogil:
    """Check the values of a list and count them."""
    cdef const uint8_t *p = values.start
    cdef const uint8_t *end = values.end
    cdef const uint8_t *after
    cdef const uint8_t *inside
    cdef uint64_t number
    cdef int64_t n = 0
    cdef int reason
    cdef uint8_t tag
    if values.kind == FLOAT and values.packed:
        count[0] = (end - p) >> 2
        return ACCEPTED
    tag = FIELD_1 if values.kind == BYTES else FIXED32_1 if values.kind == FLOAT else VARINT_1
    while p < end:
        at[0] = p
        if not values.packed:
            if p[0] != tag:
                return LIST_CHUNKS if p[0] == FIELD_1 else LIST_FIELD
            p += 1
            at[0] = p
        if values.kind == BYTES:
            reason = read_span(p, end, &inside, &after)
            if reason:
                return reason
            p = after
        elif values.kind == FLOAT:
            if end - p < 4:
                return BAD_LENGTH
            p += 4
        else:
            p = read_varint(p, end, &number)
            if p == NULL:
                return BAD_VARINT
        n += 1
    count[0] = n
    return ACCEPTED


cdef int walk_entry(
    Names *names, const uint8_t *start, const uint8_t *end, bint sequence, int32_t *name,
    OnValues on_values, OnFeature on_feature, void *context, Refusal *refusal
) noexcept nogil:
    cdef const uint8_t *key
    cdef const uint8_t *key_end
    cdef const uint8_t *value
    cdef const uint8_t *value_end
    cdef const uint8_t *step
    cdef const uint8_t *step_end
    cdef Values values
    cdef bint invalid
    cdef int reason, kind = -1
    cdef int64_t lists = 0
    refusal.at = start
    if start >= end or start[0] != FIELD_1:
        return BAD_ENTRY
    refusal.at = start + 1
    reason = read_span(start + 1, end, &key, &key_end)
    if reason:
        return reason
    refusal.name = key
    refusal.name_size = key_end - key
    refusal.at = key
    name[0] = names_find(names, key, key_end - key, sequence, &invalid)
    if name[0] < 0:
        return KEY_UTF8 if invalid else OUT_OF_MEMORY
    refusal.at = key_end
    if key_end >= end or key_end[0] != FIELD_2:
        return BAD_ENTRY
    refusal.at = key_end + 1
    reason = read_span(key_end + 1, end, &value, &value_end)
    if reason:
        return reason
    if value_end != end:
        refusal.at = value_end
        return BAD_ENTRY
    if not sequence:
        reason = parse_feature(value, value_end, &values, &refusal.at)
        if reason:
            return reason
        reason = on_values(context, name[0], &values, &refusal.at)
        if reason:
            return reason
        return on_feature(context, name[0], values.kind, 1, value, value_end)
    step = value
    while step < value_end:
        refusal.at = step
        if step[0] != FIELD_1:
            return STEP_FIELD
        refusal.at = step + 1
        reason = read_span(step + 1, value_end, &key, &step_end)
        if reason:
            return reason
        reason = parse_feature(key, step_end, &values, &refusal.at)
        if reason:
            return reason
        reason = on_values(context, name[0], &values, &refusal.at)
        if reason:
            return reason
        if kind < 0:
            kind = values.kind
        elif kind != values.kind:
            refusal.at = step
            return MIXED_KINDS
        lists += 1
        step = step_end
    return on_feature(context, name[0], kind, lists, value, value_end)


cdef bint walk(
    Names *names, const uint8_t *start, const uint8_t *end, int64_t record,
    OnValues on_values, OnFeature on_feature, void *context, Refusal *refusal
) noexcept nogil:
    """Visit every feature of a record; False, with the refusal filled in, if one is refused."""
    cdef const uint8_t *p = start
    cdef const uint8_t *inside
    cdef const uint8_t *stop
    cdef const uint8_t *entry
    cdef const uint8_t *entry_end
    cdef int32_t name
    cdef bint sequence
    refusal.reason = ACCEPTED
    while p < end:
        refusal.name = NULL
        refusal.at = p
        if p[0] != FIELD_1 and p[0] != FIELD_2:
            refusal.reason = UNKNOWN_FIELD
            return False
        sequence = p[0] == FIELD_2
        refusal.at = p + 1
        refusal.reason = read_span(p + 1, end, &inside, &stop)
        if refusal.reason:
            return False
        while inside < stop:
            refusal.name = NULL
            refusal.at = inside
            if inside[0] != FIELD_1:
                refusal.reason = FEATURES_FIELD
                return False
            refusal.at = inside + 1
            refusal.reason = read_span(inside + 1, stop, &entry, &entry_end)
            if refusal.reason:
                return False
            refusal.reason = walk_entry(
                names, entry, entry_end, sequence, &name, on_values, on_feature, context, refusal
            )
            if refusal.reason:
                return False
            if names.items[name].last_record == record:
                refusal.reason = DUPLICATE_KEY
                refusal.at = inside
                return False
            names.items[name].last_record = record
            inside = entry_end
        p = stop
    return True


cdef object refusal_error(const Refusal *refusal, Py_ssize_t record, const uint8_t *payload):
    if refusal.reason == OUT_OF_MEMORY:
        return MemoryError()
    name = None
    if refusal.name != NULL:
        name = (<const char *>refusal.name)[:refusal.name_size]
    return example_error(refusal.reason, record, refusal.at - payload, name)


cdef void check_spans(
    Py_ssize_t size, const int64_t[::1] starts, const int64_t[::1] lengths
) except *:
    """Refuse spans outside the buffer before anything follows them."""
    cdef Py_ssize_t i
    if starts.shape[0] != lengths.shape[0]:
        raise ValueError(f"{starts.shape[0]} starts but {lengths.shape[0]} lengths")
    for i in range(starts.shape[0]):
        if (
            starts[i] < 0 or lengths[i] < 0
            or starts[i] > size or lengths[i] > size - starts[i]
        ):
            raise ValueError(f"record {i} lies outside the buffer")
