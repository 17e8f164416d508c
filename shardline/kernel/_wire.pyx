"""Names met before, UTF-8 validation and error messages for the walk in _wire.pxd."""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from shardline.kernel.types import example_error

# A random seed, so that no file can be crafted whose names all fall into one bucket.
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


cdef bint names_open(Names *names) noexcept nogil:
    names.count = 0
    names.capacity = 32
    names.mask = 63
    names.previous = 0
    names.unset = -1
    names.unset_at = NULL
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


cdef int32_t names_look_up(
    Names *names, const uint8_t *text, Py_ssize_t size, bint sequence, bint *invalid
) noexcept nogil:
    """Return the number of a name that did not follow as expected, a new one for a new name.

    Returns -1 without memory, or with `invalid` set if the name is not UTF-8.
    """
    cdef int32_t number = -1
    cdef uint64_t hashed = hash_of(text, size, sequence)
    cdef uint64_t bucket = hashed & names.mask
    cdef Name *item
    invalid[0] = False
    while names.buckets[bucket]:
        item = &names.items[names.buckets[bucket] - 1]
        if item.hash == hashed and same_name(item, text, size, sequence):
            number = names.buckets[bucket] - 1
            break
        bucket = (bucket + 1) & names.mask
    if number < 0:
        if not is_utf8(text, text + size):
            invalid[0] = True
            return -1
        if names.count == names.capacity:
            if not names_grow(names):
                return -1
            bucket = hashed & names.mask
            while names.buckets[bucket]:
                bucket = (bucket + 1) & names.mask
        number = names.count
        names.count += 1
        names.buckets[bucket] = number + 1
        item = &names.items[number]
        item.text = text
        item.size = size
        item.hash = hashed
        item.sequence = sequence
        item.was_unset = False
        item.last_record = -1
        item.record_before = -1
        item.likely_next = 0
        item.next_unset = -1
    names.items[names.previous].likely_next = number
    names.previous = number
    return number


cdef void note_unset(Names *names, int32_t name, const uint8_t *position) noexcept nogil:
    """Note an unset feature of the current record. The walk marks its name as met for now."""
    cdef Name *item = &names.items[name]
    if names.unset < 0:
        names.unset_at = position
    item.was_unset = True
    item.record_before = item.last_record
    item.next_unset = names.unset
    names.unset = name


cdef bint settle_unset(Names *names, bint is_example, Refusal *refusal) noexcept nogil:
    """Mark the unset features of a record as missing. Returns False for a SequenceExample."""
    cdef int32_t name = names.unset
    cdef Name *item = NULL
    while name >= 0:
        item = &names.items[name]
        item.last_record = item.record_before
        name = item.next_unset
    if is_example:
        return True
    refusal.reason = NO_KIND
    refusal.position = names.unset_at
    refusal.name = item.text
    refusal.name_size = item.size
    return False


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


cdef object refusal_error(const Refusal *refusal, Py_ssize_t record, const uint8_t *payload):
    if refusal.reason == OUT_OF_MEMORY:
        return MemoryError()
    name = None
    if refusal.name != NULL:
        name = (<const char *>refusal.name)[:refusal.name_size]
    return example_error(refusal.reason, record, refusal.position - payload, name)


cdef void check_spans(
    Py_ssize_t size, const int64_t[::1] starts, const int64_t[::1] lengths
) except *:
    """Raise an error for spans outside the buffer, before any is read."""
    cdef Py_ssize_t i
    if starts.shape[0] != lengths.shape[0]:
        raise ValueError(f"{starts.shape[0]} starts but {lengths.shape[0]} lengths")
    for i in range(starts.shape[0]):
        if (
            starts[i] < 0 or lengths[i] < 0
            or starts[i] > size or lengths[i] > size - starts[i]
        ):
            raise ValueError(f"record {i} lies outside the buffer")
