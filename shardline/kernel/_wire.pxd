# Wire format of Example and SequenceExample: with _wire.pyx the compiled twin of reference_wire.py,
# which specifies the rules. Every function checks bounds before it reads.
#
# The walk is in this file, so that it is compiled into each module together with the callbacks of
# that module.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from shardline.kernel._crc32c cimport shardline_load32, shardline_load64

cdef enum:
    FIELD_1 = 0x0A
    FIELD_2 = 0x12
    FIELD_3 = 0x1A
    VARINT_1 = 0x08
    FIXED32_1 = 0x0D

cdef enum:
    BYTES = 0
    FLOAT = 1
    INT64 = 2

# The values of shardline.kernel.types.Reason.
cdef enum:
    ACCEPTED = 0
    BAD_VARINT = 1
    BAD_LENGTH = 2
    UNKNOWN_FIELD = 3
    FEATURES_FIELD = 4
    BAD_ENTRY = 5
    KEY_UTF8 = 6
    DUPLICATE_KEY = 7
    NO_KIND = 8
    AFTER_KIND = 9
    LIST_FIELD = 10
    LIST_CHUNKS = 11
    FLOAT_BYTES = 12
    STEP_FIELD = 13
    MIXED_KINDS = 14
    OUT_OF_MEMORY = 99

ctypedef struct Values:
    int kind
    bint packed
    const uint8_t *start
    const uint8_t *end

ctypedef struct Refusal:
    int reason
    const uint8_t *position
    const uint8_t *name
    Py_ssize_t name_size

# Feature name met so far. `likely_next` is the name that followed it last time. The records of a
# file mostly have their features in the same order, so this saves almost every lookup.
ctypedef struct Name:
    const uint8_t *text
    Py_ssize_t size
    uint64_t hash
    bint sequence
    bint was_unset
    int64_t last_record
    int64_t record_before
    int32_t likely_next
    int32_t next_unset

# `unset` is the last unset feature of the record walked last, -1 if it has none. `next_unset` links
# to the unset feature before it. `unset_at` is where the first has no value.
ctypedef struct Names:
    Name *items
    int32_t count
    int32_t capacity
    int32_t *buckets
    uint64_t mask
    int32_t previous
    int32_t unset
    const uint8_t *unset_at

# Called with each list of values. Returns a reason and the position of a rejected value.
ctypedef int (*OnValues)(
    void *context, int32_t name, const Values *values, const uint8_t **position
) noexcept nogil
# Called when a feature is complete: its kind (-1 if it has no step) and its number of lists.
ctypedef int (*OnFeature)(
    void *context, int32_t name, int kind, int64_t lists,
    const uint8_t *start, const uint8_t *end
) noexcept nogil

cdef bint names_open(Names *names) noexcept nogil
cdef void names_close(Names *names) noexcept nogil
cdef int32_t names_look_up(
    Names *names, const uint8_t *text, Py_ssize_t size, bint sequence, bint *invalid
) noexcept nogil
cdef void note_unset(Names *names, int32_t name, const uint8_t *position) noexcept nogil
cdef bint settle_unset(Names *names, bint is_example, Refusal *refusal) noexcept nogil
cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil
cdef object refusal_error(const Refusal *refusal, Py_ssize_t record, const uint8_t *payload)
cdef void check_spans(
    Py_ssize_t size, const int64_t[::1] starts, const int64_t[::1] lengths
) except *


cdef inline const uint8_t *read_varint(
    const uint8_t *p, const uint8_t *end, uint64_t *value
) noexcept nogil:
    """Read a varint. Returns NULL if it is cut off or does not fit 64 bits."""
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    if p < end and p[0] < 0x80:
        value[0] = p[0]
        return p + 1
    while p < end and shift < 63:
        byte = p[0]
        p += 1
        result |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = result
            return p
        shift += 7
    if p < end and p[0] <= 1:
        value[0] = result | <uint64_t>p[0] << 63
        return p + 1
    return NULL


cdef inline int read_span(
    const uint8_t *p, const uint8_t *end, const uint8_t **start, const uint8_t **stop
) noexcept nogil:
    """Find the inside of the field whose length is at `p`. Returns a reason if it is cut off."""
    cdef uint64_t length
    cdef const uint8_t *after = read_varint(p, end, &length)
    if after == NULL:
        return BAD_VARINT
    if after - p > 5 or length > <uint64_t>(end - after):
        return BAD_LENGTH
    start[0] = after
    stop[0] = after + length
    return ACCEPTED


cdef inline bint same_bytes(const uint8_t *a, const uint8_t *b, Py_ssize_t size) noexcept nogil:
    """Compare short names with two loads that may overlap, faster than a call of memcmp."""
    if size >= 8:
        if size > 16:
            return memcmp(a, b, size) == 0
        return (
            shardline_load64(a) == shardline_load64(b)
            and shardline_load64(a + size - 8) == shardline_load64(b + size - 8)
        )
    if size >= 4:
        return (
            shardline_load32(a) == shardline_load32(b)
            and shardline_load32(a + size - 4) == shardline_load32(b + size - 4)
        )
    while size:
        size -= 1
        if a[size] != b[size]:
            return False
    return True


cdef inline bint same_name(
    const Name *item, const uint8_t *text, Py_ssize_t size, bint sequence
) noexcept nogil:
    return item.size == size and item.sequence == sequence and same_bytes(item.text, text, size)


cdef inline int32_t names_find(
    Names *names, const uint8_t *text, Py_ssize_t size, bint sequence, bint *invalid
) noexcept nogil:
    """Return the number of a name, which mostly is the one that followed last time."""
    cdef int32_t guess
    if names.count:
        guess = names.items[names.previous].likely_next
        if same_name(&names.items[guess], text, size, sequence):
            names.previous = guess
            return guess
    return names_look_up(names, text, size, sequence, invalid)


cdef inline int kind_of(uint8_t tag) noexcept nogil:
    """Return the kind of list in a field of a Feature, or -1 for an unknown field."""
    if tag == FIELD_1:
        return BYTES
    if tag == FIELD_2:
        return FLOAT
    return INT64 if tag == FIELD_3 else -1


cdef inline int parse_feature(
    const uint8_t *start, const uint8_t *end, Values *values, const uint8_t **position
) noexcept nogil:
    """Find the values of a Feature. count_values or a tally validates them."""
    cdef const uint8_t *chunk_start
    cdef const uint8_t *chunk_end
    cdef int reason
    position[0] = start
    if start >= end:
        return NO_KIND
    values.kind = kind_of(start[0])
    if values.kind < 0:
        return NO_KIND
    position[0] = start + 1
    reason = read_span(start + 1, end, &values.start, &values.end)
    if reason:
        return reason
    if values.end != end:
        position[0] = values.end
        return AFTER_KIND
    values.packed = False
    if values.kind != BYTES and values.start < values.end and values.start[0] == FIELD_1:
        position[0] = values.start + 1
        reason = read_span(values.start + 1, values.end, &chunk_start, &chunk_end)
        if reason:
            return reason
        if chunk_end != values.end:
            position[0] = chunk_end
            return LIST_CHUNKS
        values.packed = True
        values.start = chunk_start
        if values.kind == FLOAT and (chunk_end - chunk_start) & 3:
            position[0] = chunk_start
            return FLOAT_BYTES
    return ACCEPTED


cdef inline int count_values(
    const Values *values, int64_t *count, const uint8_t **position
) noexcept nogil:
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
        position[0] = p
        if not values.packed:
            if p[0] != tag:
                return LIST_CHUNKS if p[0] == FIELD_1 else LIST_FIELD
            p += 1
            position[0] = p
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


cdef inline int check_values(
    void *context, int32_t name, const Values *values, const uint8_t **position
) noexcept nogil:
    """Validate a list of values. A callback for walks that need no values."""
    cdef int64_t count
    return count_values(values, &count, position)


cdef inline bint take_small_entry(
    const uint8_t *p, const uint8_t *stop, const uint8_t **key, Py_ssize_t *key_size,
    Values *values
) noexcept nogil:
    """Parse the map entry at `p` if every length in it takes one byte, the usual case.

    Its bytes are 0A entry 0A key... 12 feature KIND list values.... Each length except that of the
    key follows from the first. Returns False for any other entry, which walk_entry then parses.
    """
    cdef Py_ssize_t size, name_size, inside
    cdef const uint8_t *value
    if stop - p < 8 or p[0] != FIELD_1 or p[2] != FIELD_1:
        return False
    size = p[1]
    name_size = p[3]  # read once: another thread may write there
    if size > 0x7F or size > stop - p - 2 or name_size + 6 > size:
        return False
    inside = size - name_size - 6
    value = p + 4 + name_size
    if value[0] != FIELD_2 or value[1] != inside + 2 or value[3] != inside:
        return False
    values.kind = kind_of(value[2])
    if values.kind < 0:
        return False
    values.packed = False
    values.start = value + 4
    values.end = p + 2 + size
    if values.kind != BYTES and inside and value[4] == FIELD_1:
        if inside < 2 or value[5] != inside - 2 or (values.kind == FLOAT and (inside - 2) & 3):
            return False
        values.packed = True
        values.start = value + 6
    key[0] = p + 4
    key_size[0] = name_size
    return True


cdef inline int walk_entry(
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
    cdef inline bint invalid
    cdef int reason, kind = -1
    cdef int64_t lists = 0
    refusal.position = start
    if start >= end or start[0] != FIELD_1:
        return BAD_ENTRY
    refusal.position = start + 1
    reason = read_span(start + 1, end, &key, &key_end)
    if reason:
        return reason
    refusal.name = key
    refusal.name_size = key_end - key
    refusal.position = key
    name[0] = names_find(names, key, key_end - key, sequence, &invalid)
    if name[0] < 0:
        return KEY_UTF8 if invalid else OUT_OF_MEMORY
    refusal.position = key_end
    if key_end >= end or key_end[0] != FIELD_2:
        return BAD_ENTRY
    refusal.position = key_end + 1
    reason = read_span(key_end + 1, end, &value, &value_end)
    if reason:
        return reason
    if value_end != end:
        refusal.position = value_end
        return BAD_ENTRY
    if not sequence:
        if value == value_end:
            note_unset(names, name[0], value)
            return ACCEPTED
        reason = parse_feature(value, value_end, &values, &refusal.position)
        if reason:
            return reason
        reason = on_values(context, name[0], &values, &refusal.position)
        if reason:
            return reason
        return on_feature(context, name[0], values.kind, 1, value, value_end)
    step = value
    while step < value_end:
        refusal.position = step
        if step[0] != FIELD_1:
            return STEP_FIELD
        refusal.position = step + 1
        reason = read_span(step + 1, value_end, &key, &step_end)
        if reason:
            return reason
        reason = parse_feature(key, step_end, &values, &refusal.position)
        if reason:
            return reason
        reason = on_values(context, name[0], &values, &refusal.position)
        if reason:
            return reason
        if kind < 0:
            kind = values.kind
        elif kind != values.kind:
            refusal.position = step
            return MIXED_KINDS
        lists += 1
        step = step_end
    return on_feature(context, name[0], kind, lists, value, value_end)


cdef inline bint walk(
    Names *names, const uint8_t *start, const uint8_t *end, int64_t record,
    OnValues on_values, OnFeature on_feature, void *context, Refusal *refusal
) noexcept nogil:
    """Visit every feature of a record. Returns False, and sets the refusal, if one is rejected.

    Unset features count as missing and are not visited.
    """
    cdef const uint8_t *p = start
    cdef const uint8_t *inside
    cdef const uint8_t *stop
    cdef const uint8_t *entry
    cdef const uint8_t *entry_end
    cdef const uint8_t *key
    cdef Py_ssize_t key_size
    cdef Values values
    cdef int32_t name
    cdef bint sequence, invalid, is_example = True
    cdef const uint8_t *position = NULL
    cdef int reason
    refusal.reason = ACCEPTED
    names.unset = -1
    while p < end:
        refusal.name = NULL
        refusal.position = p
        if p[0] != FIELD_1 and p[0] != FIELD_2:
            refusal.reason = UNKNOWN_FIELD
            return False
        sequence = p[0] == FIELD_2
        if sequence:
            is_example = False
        refusal.position = p + 1
        refusal.reason = read_span(p + 1, end, &inside, &stop)
        if refusal.reason:
            return False
        while inside < stop:
            if not sequence and take_small_entry(inside, stop, &key, &key_size, &values):
                name = names_find(names, key, key_size, sequence, &invalid)
                if name >= 0:
                    reason = on_values(context, name, &values, &position)
                    if not reason:
                        reason = on_feature(context, name, values.kind, 1, values.start, values.end)
                    if not reason and names.items[name].last_record == record:
                        reason = DUPLICATE_KEY
                        position = inside
                    if reason:
                        refusal.reason = reason
                        refusal.position = position
                        refusal.name = key
                        refusal.name_size = key_size
                        return False
                    names.items[name].last_record = record
                    inside = values.end
                    continue
            refusal.name = NULL
            refusal.position = inside
            if inside[0] != FIELD_1:
                refusal.reason = FEATURES_FIELD
                return False
            refusal.position = inside + 1
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
                refusal.position = inside
                return False
            names.items[name].last_record = record
            inside = entry_end
        p = stop
    return names.unset < 0 or settle_unset(names, is_example, refusal)


# Writing of fields, also compiled into each module that uses it.


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
    """Return the size of a field with `size` bytes inside."""
    return 1 + varint_size(size) + size


cdef inline void copy_bytes(uint8_t *out, const uint8_t *start, size_t size) noexcept nogil:
    """Copy an often short span with two moves that may overlap, faster than a call of memcpy."""
    if size > 32:
        memcpy(out, start, size)
    elif size >= 16:
        memcpy(out, start, 16)
        memcpy(out + size - 16, start + size - 16, 16)
    elif size >= 8:
        memcpy(out, start, 8)
        memcpy(out + size - 8, start + size - 8, 8)
    elif size >= 4:
        memcpy(out, start, 4)
        memcpy(out + size - 4, start + size - 4, 4)
    elif size:
        out[0] = start[0]
        out[size >> 1] = start[size >> 1]
        out[size - 1] = start[size - 1]
