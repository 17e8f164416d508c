# The wire format of Example and SequenceExample, as the other compiled modules use it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

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
    const uint8_t *at
    const uint8_t *name
    Py_ssize_t name_size

# A feature name met so far. `likely_next` is the name that followed it last time: records of one
# file mostly have their features in one order, so this saves nearly every look-up.
ctypedef struct Name:
    const uint8_t *text
    Py_ssize_t size
    uint64_t hash
    bint sequence
    int64_t last_record
    int32_t likely_next

ctypedef struct Names:
    Name *items
    int32_t count
    int32_t capacity
    int32_t *buckets
    uint64_t mask
    int32_t previous

# Called with each list of values. Returns a reason, and where, if a value is refused.
ctypedef int (*OnValues)(
    void *context, int32_t name, const Values *values, const uint8_t **at
) noexcept nogil
# Called when a feature is complete: its kind (-1 if it has no step) and its number of lists.
ctypedef int (*OnFeature)(
    void *context, int32_t name, int kind, int64_t lists,
    const uint8_t *start, const uint8_t *end
) noexcept nogil

cdef bint names_open(Names *names) noexcept nogil
cdef void names_close(Names *names) noexcept nogil
cdef int32_t names_find(
    Names *names, const uint8_t *text, Py_ssize_t size, bint sequence, bint *invalid
) noexcept nogil
cdef bint walk(
    Names *names, const uint8_t *start, const uint8_t *end, int64_t record,
    OnValues on_values, OnFeature on_feature, void *context, Refusal *refusal
) noexcept nogil
cdef int count_values(const Values *values, int64_t *count, const uint8_t **at) noexcept nogil
cdef int parse_feature(
    const uint8_t *start, const uint8_t *end, Values *values, const uint8_t **at
) noexcept nogil
cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil
cdef object refusal_error(const Refusal *refusal, Py_ssize_t record, const uint8_t *payload)
cdef void check_spans(
    Py_ssize_t size, const int64_t[::1] starts, const int64_t[::1] lengths
) except *


cdef inline const uint8_t *read_varint(
    const uint8_t *p, const uint8_t *end, uint64_t *value
) noexcept nogil:
    """Read a varint; NULL if it is cut off or does not fit 64 bits."""
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
    """Read the length at `p` and give the inside of that field; a reason if it does not fit."""
    cdef uint64_t length
    cdef const uint8_t *after = read_varint(p, end, &length)
    if after == NULL:
        return BAD_VARINT
    if after - p > 5 or length > <uint64_t>(end - after):
        return BAD_LENGTH
    start[0] = after
    stop[0] = after + length
    return ACCEPTED
