"""Split records on the wire: with _join.pyx the compiled twin of reference_splice.py.

As long as all records stay as they are, their insides are spans of the input. The first record that
changes starts a copy of all. The input is checked whenever it is read, because another thread may
write to it while the GIL is released.
"""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from shardline.kernel._wire cimport (
    ACCEPTED, FIELD_1, FIELD_2, Name, Names, Refusal, check_spans, check_values, copy_bytes,
    delimited, names_close, names_find, names_open, put_tag, read_span, refusal_error, walk,
)

from shardline.kernel.types import Insides, check_names, unknown_feature_error

cdef enum:
    SMALLEST_ENTRY = 6  # a feature list without name and steps
    SLACK = 32  # bytes that a copy may move beyond its end

# More bytes than any machine has: allocating so many raises MemoryError.
cdef int64_t ENDLESS = INT64_MAX // 2

cdef enum Fate:
    KEPT
    DROPPED
    RENAMED
    UNWRITABLE

# Fate of a feature. `key` is its new name as encoded in a map entry, tag and size first.
ctypedef struct Target:
    Fate fate
    const uint8_t *key
    int64_t key_size

# Feature of the current record, and the end of its map entry. The entry begins at the end of the
# previous entry of the same message.
ctypedef struct Note:
    int32_t name
    const uint8_t *end

# Current record. `troubled` has, for each level, the first feature that stops the work.
ctypedef struct Record:
    const uint8_t *start
    const uint8_t *end
    Note *notes
    int32_t count
    bint unchanged
    int32_t troubled[2]

ctypedef struct Splice:
    Names names
    Target *targets
    int32_t known
    Record record
    const uint8_t *data_end

# Contiguous features, or feature lists, of one level of a record.
ctypedef struct Level:
    const uint8_t *start
    int64_t size

# Copy of insides, written up to `position`, with room up to `end` and slack after it. `base` is
# NULL before the first copy.
ctypedef struct Copied:
    uint8_t *base
    uint8_t *position
    uint8_t *end

cdef enum Stop:
    DONE
    REFUSED
    TROUBLED
    COPY
    CHANGED


cdef int note_trouble(Splice *splice, int32_t name) noexcept nogil:
    cdef int32_t *first = &splice.record.troubled[splice.names.items[name].sequence]
    if first[0] < 0:
        first[0] = name
    return ACCEPTED


cdef inline int note_feature(
    void *context, int32_t name, int kind, int64_t lists, const uint8_t *start, const uint8_t *end
) noexcept nogil:
    """Note a feature. One more than are known suffices: the walk ends at a duplicate name."""
    cdef Splice *splice = <Splice *>context
    cdef Note *note = &splice.record.notes[splice.record.count]
    cdef Fate fate
    if name >= splice.known:
        return note_trouble(splice, name)
    note.name = name
    note.end = end
    splice.record.count += 1
    fate = splice.targets[name].fate
    if fate != KEPT:
        splice.record.unchanged = False
        if fate == UNWRITABLE:
            return note_trouble(splice, name)
    return ACCEPTED


cdef inline Stop check_record(
    Splice *splice, const uint8_t *base, int64_t size, int64_t start, int64_t length,
    int64_t number, Refusal *refusal
) noexcept nogil:
    """Walk a record and note its features."""
    cdef Record *record = &splice.record
    if start < 0 or length < 0 or start > size or length > size - start:
        return CHANGED
    record.start = base + start
    record.end = record.start + length
    record.count = 0
    record.unchanged = True
    record.troubled[0] = record.troubled[1] = -1
    if not walk(
        &splice.names, record.start, record.end, number, check_values, note_feature, splice,
        refusal,
    ):
        return REFUSED
    if splice.names.unset >= 0:
        record.unchanged = False
    return TROUBLED if record.troubled[0] >= 0 or record.troubled[1] >= 0 else DONE


cdef inline bint find_levels(const Record *record, Level *levels) noexcept nogil:
    """Find the insides of a checked record. Returns False if a level has several messages."""
    cdef const uint8_t *p = record.start
    cdef const uint8_t *inside = NULL
    cdef const uint8_t *stop = NULL
    cdef Level *level
    levels[0].start = levels[1].start = p
    levels[0].size = levels[1].size = 0
    while p < record.end:
        level = &levels[p[0] == FIELD_2]
        if read_span(p + 1, record.end, &inside, &stop):
            return False
        if inside < stop:
            if level.size:
                return False
            level.start = inside
            level.size = stop - inside
        p = stop
    return True


cdef inline uint8_t *put_span(
    uint8_t *out, const uint8_t *room, const uint8_t *start, const uint8_t *end
) noexcept nogil:
    """Copy bytes unchanged. Returns NULL without room for them."""
    if end - start > room - out:
        return NULL
    copy_bytes(out, start, end - start)
    return out + (end - start)


cdef inline uint8_t *put_renamed(
    uint8_t *out, const uint8_t *room, const Target *target, const uint8_t *entry,
    const uint8_t *end, const uint8_t *data_end
) noexcept nogil:
    """Copy the map entry up to `end` under its new name. Returns NULL if it has changed."""
    cdef const uint8_t *inside = NULL
    cdef const uint8_t *value = NULL
    cdef int64_t size
    if read_span(entry + 1, end, &inside, &value) or read_span(inside + 1, end, &inside, &value):
        return NULL
    size = target.key_size + (end - value)
    if delimited(size) > room - out:
        return NULL
    out = put_tag(out, FIELD_1, size)
    if target.key_size <= SLACK and end - value <= 2 * SLACK and data_end - value >= 2 * SLACK:
        # Sizes vary unpredictably: moving a few bytes more costs less than a branch for each size.
        memcpy(out, target.key, SLACK)
        memcpy(out + target.key_size, value, SLACK)
        if end - value > SLACK:
            memcpy(out + target.key_size + SLACK, value + SLACK, SLACK)
    else:
        copy_bytes(out, target.key, target.key_size)
        copy_bytes(out + target.key_size, value, end - value)
    return out + size


cdef const uint8_t *after_unset(const uint8_t *entry, const uint8_t *stop) noexcept nogil:
    """Return the end of the map entry at `entry` if its feature is unset, else NULL."""
    cdef const uint8_t *start = NULL
    cdef const uint8_t *end = NULL
    cdef const uint8_t *after = NULL
    if read_span(entry + 1, stop, &start, &end) or start >= end:
        return NULL
    if read_span(start + 1, end, &start, &after) or after >= end:
        return NULL
    if read_span(after + 1, end, &start, &after) or start != end:
        return NULL
    return end


cdef inline uint8_t *put_level(
    const Splice *splice, bint sequence, uint8_t *out, const uint8_t *room
) noexcept nogil:
    """Copy the features of one level of a checked record. Returns NULL if it has changed."""
    cdef const Record *record = &splice.record
    cdef const Target *target
    cdef const Note *note = record.notes
    cdef const Note *last = note + record.count
    cdef const uint8_t *p = record.start
    cdef const uint8_t *uncopied
    cdef const uint8_t *entry = NULL
    cdef const uint8_t *stop = NULL
    cdef const uint8_t *unset = NULL
    cdef bint mine
    while p < record.end:
        mine = (p[0] == FIELD_2) == sequence
        if read_span(p + 1, record.end, &entry, &stop):
            return NULL
        if not mine and stop == record.end:
            break
        uncopied = entry
        while entry < stop:
            if splice.names.unset >= 0:  # only where there are no feature lists
                unset = after_unset(entry, stop)
                if unset != NULL:
                    if mine and uncopied < entry:
                        out = put_span(out, room, uncopied, entry)
                        if out == NULL:
                            return NULL
                    uncopied = entry = unset
                    continue
            if note == last or note.end <= entry or note.end > stop:
                return NULL
            target = &splice.targets[note.name]
            if mine and target.fate != KEPT:
                if uncopied < entry:
                    out = put_span(out, room, uncopied, entry)
                if out != NULL and target.fate == RENAMED:
                    out = put_renamed(out, room, target, entry, note.end, splice.data_end)
                if out == NULL:
                    return NULL
                uncopied = note.end
            entry = note.end
            note += 1
        if mine and uncopied < stop:
            out = put_span(out, room, uncopied, stop)
            if out == NULL:
                return NULL
        p = stop
    return out


cdef inline Stop take_apart(Splice *splice, Copied *copied, Level *levels) noexcept nogil:
    """Find the insides of a checked record. Copies them if those of earlier records were copied."""
    cdef uint8_t *out = copied.position
    cdef uint8_t *start
    cdef const Level *part
    cdef int level
    cdef bint as_they_lie = splice.record.unchanged and find_levels(&splice.record, levels)
    if copied.base == NULL:
        return DONE if as_they_lie else COPY
    for level in range(2):
        start = out
        if as_they_lie:
            part = &levels[level]
            out = put_span(out, copied.end, part.start, part.start + part.size)
        else:
            out = put_level(splice, level, out, copied.end)
        if out == NULL:
            return CHANGED
        levels[level].start = start
        levels[level].size = out - start
    copied.position = out
    return DONE


cdef inline bint find_unwalked(
    Splice *splice, const Copied *copied, const uint8_t *base, int64_t size, int64_t start,
    int64_t length, Level *levels
) noexcept nogil:
    """Find the insides of a record that was checked before. Returns False if it must be walked."""
    if copied.base != NULL or start < 0 or length < 0 or start > size or length > size - start:
        return False
    splice.record.start = base + start
    splice.record.end = base + start + length
    return find_levels(&splice.record, levels)


cdef class Splicing:
    """Fate of each feature, and the memory of the splice."""

    cdef Splice splice
    cdef list keys
    cdef dict unwritable
    cdef int64_t growth
    cdef int64_t most_growth

    def __cinit__(self, names):
        cdef Splice *splice = &self.splice
        cdef list items = list(names.items())
        cdef tuple taken = (set(), set())
        cdef Py_ssize_t written = 0
        self.keys = []
        self.unwritable = {}
        splice.targets = <Target *>calloc(len(items) + 1, sizeof(Target))
        splice.record.notes = <Note *>calloc(len(items) + 1, sizeof(Note))
        if not names_open(&splice.names) or splice.targets == NULL or splice.record.notes == NULL:
            raise MemoryError
        for (sequence, name), renamed in items:
            self.add(sequence, name, renamed)
            if renamed is not None:
                taken[bool(sequence)].add(renamed)
                written += 1
        if len(taken[0]) + len(taken[1]) < written:
            check_names(names)
        splice.known = splice.names.count

    def __dealloc__(self):
        names_close(&self.splice.names)
        free(self.splice.targets)
        free(self.splice.record.notes)

    cdef int add(self, bint sequence, str name, str renamed) except -1:
        cdef bint invalid = False
        cdef bytes old, new, key
        cdef int32_t number
        cdef int64_t growth
        cdef Target *target
        try:
            old = name.encode()
        except UnicodeEncodeError:  # no feature has such a name
            return 0
        self.keys.append(old)
        number = names_find(
            &self.splice.names, <const uint8_t *>PyBytes_AS_STRING(old), len(old), sequence,
            &invalid,
        )
        if number < 0:
            raise MemoryError
        target = &self.splice.targets[number]
        if renamed is None or renamed == name:
            target.fate = DROPPED if renamed is None else KEPT
            return 0
        try:
            new = renamed.encode()
        except UnicodeEncodeError as problem:
            self.unwritable[number] = problem
            target.fate = UNWRITABLE
            return 0
        key = PyBytes_FromStringAndSize(NULL, delimited(len(new)) + SLACK)
        self.keys.append(key)
        target.fate = RENAMED
        target.key = <const uint8_t *>PyBytes_AS_STRING(key)
        target.key_size = delimited(len(new))
        memcpy(
            put_tag(<uint8_t *>target.key, FIELD_1, len(new)), PyBytes_AS_STRING(new), len(new)
        )
        growth = max(target.key_size - len(old) + 8, 0)  # if each size took one byte before
        self.growth += growth
        self.most_growth = max(self.most_growth, growth)
        return 0

    cdef int64_t room(self, const int64_t[::1] lengths) noexcept nogil:
        """Return the largest size of such insides. No name occurs twice in a record."""
        cdef int64_t room = SLACK, entries
        cdef Py_ssize_t i
        for i in range(lengths.shape[0]):
            entries = min(lengths[i] // SMALLEST_ENTRY, self.splice.known)
            room += lengths[i] + min(entries * self.most_growth, self.growth)
            if room > ENDLESS:
                break
        return room

    cdef object trouble(self, Py_ssize_t record):
        """Return the error for the record that stops the work."""
        cdef bint sequence = self.splice.record.troubled[0] < 0
        cdef int32_t number = self.splice.record.troubled[sequence]
        cdef const Name *name = &self.splice.names.items[number]
        if number < self.splice.known:
            return self.unwritable[number]
        text = (<const char *>name.text)[:name.size].decode()
        return unknown_feature_error(record, text, sequence=sequence)


cdef bint copy_earlier(
    Copied *copied, const uint8_t *base, int64_t[:, ::1] starts, const int64_t[:, ::1] lengths,
    Py_ssize_t records
) noexcept nogil:
    """Start a copy with the insides found so far. Returns False without room for them."""
    cdef const uint8_t *start
    cdef uint8_t *out = copied.position
    cdef Py_ssize_t i
    cdef int level
    for i in range(records):
        for level in range(2):
            start = base + starts[level, i]
            starts[level, i] = out - copied.base
            out = put_span(out, copied.end, start, start + lengths[level, i])
            if out == NULL:
                return False
    copied.position = out
    return True


def insides(data, starts, lengths, names, *, bint walked=False):
    """Return the features of a block of records without the messages around them, with validation.

    They may share the bytes of `data`, which must not change while they are used.
    """
    cdef Splicing splicing = Splicing(names)
    whole = memoryview(data).cast("B")
    cdef const uint8_t[::1] view = whole
    cdef const int64_t[::1] starts_view = starts
    cdef const int64_t[::1] lengths_view = lengths
    check_spans(view.shape[0], starts_view, lengths_view)
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t i, count = starts_view.shape[0]
    found_starts = np.empty((2, count), np.int64)
    found_lengths = np.empty((2, count), np.int64)
    cdef int64_t[:, ::1] found_starts_view = found_starts
    cdef int64_t[:, ::1] found_lengths_view = found_lengths
    cdef Splice *splice = &splicing.splice
    cdef uint8_t[::1] room
    cdef Copied copied
    cdef Level levels[2]
    cdef Refusal refusal
    cdef Stop stop = DONE
    cdef int level
    copied.base = copied.position = copied.end = NULL
    splice.data_end = base + view.shape[0]
    with nogil:
        for i in range(count):
            if not walked or not find_unwalked(
                splice, &copied, base, view.shape[0], starts_view[i], lengths_view[i], levels
            ):
                stop = check_record(
                    splice, base, view.shape[0], starts_view[i], lengths_view[i], i, &refusal
                )
                if stop == DONE:
                    stop = take_apart(splice, &copied, levels)
            if stop == COPY:
                with gil:
                    copies = np.empty(splicing.room(lengths_view), np.uint8)
                    room = copies
                copied.base = copied.position = &room[0]
                copied.end = copied.base + room.shape[0] - SLACK
                stop = CHANGED
                if copy_earlier(&copied, base, found_starts_view, found_lengths_view, i):
                    stop = take_apart(splice, &copied, levels)
            if stop != DONE:
                break
            for level in range(2):
                found_starts_view[level, i] = levels[level].start - (
                    base if copied.base == NULL else copied.base
                )
                found_lengths_view[level, i] = levels[level].size
    if stop == REFUSED:
        raise refusal_error(&refusal, i, splice.record.start)
    if stop == TROUBLED:
        raise splicing.trouble(i)
    if stop == CHANGED:
        raise ValueError("the records changed while they were taken apart")
    if copied.base != NULL:
        whole = copies[: copied.position - copied.base].data.toreadonly()
    return Insides(whole, found_starts, found_lengths)
