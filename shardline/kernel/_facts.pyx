"""Validate payloads and gather facts: the compiled twin of reference_facts.py."""

from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from shardline.kernel._crc32c cimport shardline_load32, shardline_load64
from shardline.kernel._wire cimport (
    ACCEPTED, BAD_LENGTH, BAD_VARINT, BYTES, FIELD_1, FIXED32_1, FLOAT, INT64, LIST_CHUNKS,
    LIST_FIELD, OUT_OF_MEMORY, VARINT_1, Names, Refusal, Values, check_spans, check_values,
    is_utf8, names_close, names_open, read_span, read_varint, refusal_error, walk,
)

from shardline.kernel.types import KINDS, FeatureFacts


cdef int ignore_feature(
    void *context, int32_t name, int kind, int64_t lists, const uint8_t *start, const uint8_t *end
) noexcept nogil:
    return ACCEPTED


def validate(data, starts, lengths):
    """Check that each payload is an Example or SequenceExample on which all parsers agree."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const int64_t[::1] starts_view = starts
    cdef const int64_t[::1] lengths_view = lengths
    check_spans(view.shape[0], starts_view, lengths_view)
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef const uint8_t *payload = base
    cdef Py_ssize_t i, count = starts_view.shape[0]
    cdef bint ok = True
    cdef Names names
    cdef Refusal refusal
    if not names_open(&names):
        names_close(&names)
        raise MemoryError
    try:
        with nogil:
            for i in range(count):
                payload = base + starts_view[i]
                ok = walk(
                    &names, payload, payload + lengths_view[i], i,
                    check_values, ignore_feature, NULL, &refusal,
                )
                if not ok:
                    break
        if not ok:
            raise refusal_error(&refusal, i, payload)
    finally:
        names_close(&names)


# Facts about a feature in one kind so far.
ctypedef struct Tally:
    int64_t present
    int64_t fewest_steps
    int64_t most_steps
    int64_t shortest
    int64_t longest
    int64_t low
    int64_t high
    float low_float
    float high_float
    int64_t numbers
    int64_t nans
    int64_t smallest
    int64_t largest
    bint utf8

# Each name has four tallies: one without a kind (a feature list with no step), then one per kind.
cdef enum:
    TALLIES = 4

ctypedef struct Tallies:
    Tally *items
    int32_t count


cdef bint grow(Tallies *tallies, int32_t name) noexcept nogil:
    cdef int32_t i, count = max(2 * tallies.count, name + 16)
    cdef Tally *items = <Tally *>realloc(tallies.items, <size_t>count * TALLIES * sizeof(Tally))
    if items == NULL:
        return False
    for i in range(tallies.count * TALLIES, count * TALLIES):
        items[i].present = items[i].numbers = items[i].nans = 0
        items[i].fewest_steps = items[i].shortest = items[i].smallest = INT64_MAX
        items[i].most_steps = items[i].longest = items[i].largest = 0
        items[i].low = INT64_MAX
        items[i].high = INT64_MIN
        items[i].low_float = INFINITY
        items[i].high_float = -INFINITY
        items[i].utf8 = True
    tallies.items = items
    tallies.count = count
    return True


cdef inline Tally *tally_of(Tallies *tallies, int32_t name, int kind) noexcept nogil:
    if name >= tallies.count and not grow(tallies, name):
        return NULL
    return &tallies.items[name * TALLIES + kind + 1]


cdef inline float smaller(float a, float b) noexcept nogil:
    return a if a < b else b


cdef inline float larger(float a, float b) noexcept nogil:
    return a if a > b else b


cdef inline int64_t tally_floats(Tally *tally, const uint8_t *p, int64_t count) noexcept nogil:
    """Tally packed floats, four at a time. Returns the number of NaNs, which compare as false."""
    cdef float low[4]
    cdef float high[4]
    cdef float value[4]
    cdef int64_t nans = 0
    cdef int k
    if count == 1:
        memcpy(value, p, 4)
        tally.low_float = smaller(value[0], tally.low_float)
        tally.high_float = larger(value[0], tally.high_float)
        return value[0] != value[0]
    for k in range(4):
        low[k] = tally.low_float
        high[k] = tally.high_float
    while count >= 4:
        memcpy(value, p, 16)
        for k in range(4):
            low[k] = smaller(value[k], low[k])
            high[k] = larger(value[k], high[k])
        for k in range(4):
            nans += value[k] != value[k]
        p += 16
        count -= 4
    for k in range(<int>count):
        memcpy(value, p, 4)
        low[k] = smaller(value[0], low[k])
        high[k] = larger(value[0], high[k])
        nans += value[0] != value[0]
        p += 4
    tally.low_float = smaller(smaller(low[0], low[1]), smaller(low[2], low[3]))
    tally.high_float = larger(larger(high[0], high[1]), larger(high[2], high[3]))
    return nans


cdef inline bint is_short_ascii(const uint8_t *p, int64_t size) noexcept nogil:
    """Return True for up to 32 ASCII bytes, checked with loads that may overlap."""
    cdef uint64_t bits = 0
    if size > 32:
        return False
    if size >= 8:
        bits = shardline_load64(p) | shardline_load64(p + size - 8)
        if size > 16:
            bits |= shardline_load64(p + 8) | shardline_load64(p + size - 16)
        return not bits & <uint64_t>0x8080808080808080
    if size >= 4:
        bits = shardline_load32(p) | shardline_load32(p + size - 4)
        return not bits & <uint64_t>0x80808080
    while size:
        size -= 1
        bits |= p[size]
    return not bits & <uint64_t>0x80


cdef inline int tally_values(
    void *context, int32_t name, const Values *values, const uint8_t **position
) noexcept nogil:
    cdef Tally *tally = tally_of(<Tallies *>context, name, values.kind)
    cdef const uint8_t *p = values.start
    cdef const uint8_t *end = values.end
    cdef const uint8_t *inside
    cdef int64_t count = 0, size, nans = 0, number_signed, low, high
    cdef uint64_t number
    cdef int reason
    if tally == NULL:
        return OUT_OF_MEMORY
    if values.kind == BYTES:
        while p < end:
            position[0] = p
            if p[0] != FIELD_1:
                return LIST_FIELD
            position[0] = p + 1
            reason = read_span(p + 1, end, &inside, &p)
            if reason:
                return reason
            size = p - inside
            if size < tally.smallest:
                tally.smallest = size
            if size > tally.largest:
                tally.largest = size
            if tally.utf8 and not is_short_ascii(inside, size) and not is_utf8(inside, p):
                tally.utf8 = False
            count += 1
    elif values.kind == FLOAT:
        if values.packed:
            count = (end - p) >> 2
            nans = tally_floats(tally, p, count)
        else:
            while p < end:
                position[0] = p
                if p[0] != FIXED32_1:
                    return LIST_CHUNKS if p[0] == FIELD_1 else LIST_FIELD
                position[0] = p + 1
                if end - p < 5:
                    return BAD_LENGTH
                nans += tally_floats(tally, p + 1, 1)
                p += 5
                count += 1
        tally.nans += nans
    else:
        low = tally.low
        high = tally.high
        while p < end:
            position[0] = p
            if not values.packed:
                if p[0] != VARINT_1:
                    return LIST_CHUNKS if p[0] == FIELD_1 else LIST_FIELD
                p += 1
                position[0] = p
            p = read_varint(p, end, &number)
            if p == NULL:
                return BAD_VARINT
            number_signed = <int64_t>number
            if number_signed < low:
                low = number_signed
            if number_signed > high:
                high = number_signed
            count += 1
        tally.low = low
        tally.high = high
    tally.numbers += count - nans
    if count < tally.shortest:
        tally.shortest = count
    if count > tally.longest:
        tally.longest = count
    return ACCEPTED


cdef inline int tally_feature(
    void *context, int32_t name, int kind, int64_t lists, const uint8_t *start, const uint8_t *end
) noexcept nogil:
    cdef Tally *tally = tally_of(<Tallies *>context, name, kind)
    if tally == NULL:
        return OUT_OF_MEMORY
    tally.present += 1
    if lists < tally.fewest_steps:
        tally.fewest_steps = lists
    if lists > tally.most_steps:
        tally.most_steps = lists
    return ACCEPTED


cdef object pair(int64_t low, int64_t high):
    return None if low == INT64_MAX else (low, high)


cdef object facts_of(const Tally *tally, bytes name, bint sequence, int kind):
    low = high = None
    if tally.numbers and kind == INT64:
        low, high = tally.low, tally.high
    elif tally.numbers and kind == FLOAT:
        low, high = tally.low_float + <float>0, tally.high_float + <float>0  # zero has no sign
    return FeatureFacts(
        name=name.decode(),
        sequence=sequence,
        kind=None if kind < 0 else KINDS[kind],
        present=tally.present,
        steps=pair(tally.fewest_steps, tally.most_steps) if sequence else None,
        lengths=pair(tally.shortest, tally.longest),
        low=low,
        high=high,
        nans=tally.nans,
        sizes=pair(tally.smallest, tally.largest),
        utf8=tally.utf8,
    )


def facts(data, starts, lengths):
    """Return the facts about each feature of these records, in name order, with validation."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef const int64_t[::1] starts_view = starts
    cdef const int64_t[::1] lengths_view = lengths
    check_spans(view.shape[0], starts_view, lengths_view)
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef const uint8_t *payload = base
    cdef Py_ssize_t i, count = starts_view.shape[0]
    cdef bint ok = True
    cdef int kind
    cdef Names names
    cdef Tallies tallies
    cdef Refusal refusal
    cdef bytes name
    tallies.items = NULL
    tallies.count = 0
    if not names_open(&names):
        names_close(&names)
        raise MemoryError
    try:
        with nogil:
            for i in range(count):
                payload = base + starts_view[i]
                ok = walk(
                    &names, payload, payload + lengths_view[i], i,
                    tally_values, tally_feature, &tallies, &refusal,
                )
                if not ok:
                    break
        if not ok:
            raise refusal_error(&refusal, i, payload)
        keys = []
        for i in range(min(names.count, tallies.count)):  # names that are only unset have no tally
            name = (<const char *>names.items[i].text)[:names.items[i].size]
            for kind in range(-1, TALLIES - 1):
                if tallies.items[i * TALLIES + kind + 1].present:
                    keys.append((bool(names.items[i].sequence), name, kind, i))
        return [
            facts_of(&tallies.items[i * TALLIES + kind + 1], name, sequence, kind)
            for sequence, name, kind, i in sorted(keys)
        ]
    finally:
        names_close(&names)
        free(tallies.items)
