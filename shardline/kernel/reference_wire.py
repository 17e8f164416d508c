"""Wire format of Example and SequenceExample in plain Python: part of the specification.

    Example          { Features features = 1; }
    SequenceExample  { Features context = 1; FeatureLists feature_lists = 2; }
    Features         { map<string, Feature> feature = 1; }
    FeatureLists     { map<string, FeatureList> feature_list = 1; }
    FeatureList      { repeated Feature feature = 1; }
    Feature          { oneof kind { BytesList = 1; FloatList = 2; Int64List = 3; } }

protobuf accepts much that TensorFlow's own parsers reject, and vice versa. A payload accepted here
means the same to all of them. The nesting is fixed, so the code does not recurse.

An unset Feature, one without a kind, counts as missing in an Example. In a SequenceExample it is
rejected: there TensorFlow reads a default for a missing feature, but none for an unset one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.kernel.types import KINDS, Buffer, Reason, example_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import IntArray

FIELD_1 = 0x0A  # field 1, length-delimited; the other tags follow the same rule
FIELD_2 = 0x12
FIELD_3 = 0x1A
_VARINT_1 = 0x08
_FIXED32_1 = 0x0D
_KIND_OF_TAG = {FIELD_1: 0, FIELD_2: 1, FIELD_3: 2}
_LONGEST_LENGTH = 5  # bytes of the longest varint that encodes a length


class _RefusedError(Exception):
    def __init__(self, reason: Reason, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset
        self.name: bytes | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one Feature: the kind (an index of KINDS) and the position of the values."""

    kind: int
    start: int
    end: int
    packed: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """Feature of a record: a single list, or one list per step of a feature list.

    The map entry spans `start` to `end`. The value in it, with its tag, begins at `value`. A
    feature of an Example without a list is unset.
    """

    sequence: bool
    name: bytes
    lists: list[Values]
    start: int
    value: int
    end: int

    @property
    def is_unset(self) -> bool:
        """Return True if the record has the name but no kind. The feature counts as missing."""
        return not self.sequence and not self.lists


def _varint(data: memoryview, offset: int, end: int) -> tuple[int, int]:
    value = 0
    for count in range(10):
        if offset + count >= end:
            break
        byte = data[offset + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, offset + count + 1
    raise _RefusedError(Reason.VARINT, offset)


def _span(data: memoryview, offset: int, end: int) -> tuple[int, int]:
    """Return the content span of a length-delimited field whose length is at `offset`."""
    length, start = _varint(data, offset, end)
    if start - offset > _LONGEST_LENGTH or length > end - start:
        raise _RefusedError(Reason.LENGTH, offset)
    return start, start + length


def _field(data: memoryview, offset: int, end: int, tag: int, refusal: Reason) -> tuple[int, int]:
    """Return the content span of the length-delimited field required at `offset`."""
    if offset >= end or data[offset] != tag:
        raise _RefusedError(refusal, offset)
    return _span(data, offset + 1, end)


def _feature(data: memoryview, start: int, end: int) -> Values:
    """Validate a Feature down to its last value."""
    kind = _KIND_OF_TAG.get(data[start]) if start < end else None
    if kind is None:
        raise _RefusedError(Reason.NO_KIND, start)
    list_start, list_end = _span(data, start + 1, end)
    if list_end != end:
        raise _RefusedError(Reason.AFTER_KIND, list_end)
    if KINDS[kind] == "bytes":
        offset = list_start
        while offset < list_end:
            _, offset = _field(data, offset, list_end, FIELD_1, Reason.LIST_FIELD)
        return Values(kind, list_start, list_end, packed=False)
    if list_start < list_end and data[list_start] == FIELD_1:
        chunk_start, chunk_end = _span(data, list_start + 1, list_end)
        if chunk_end != list_end:
            raise _RefusedError(Reason.LIST_CHUNKS, chunk_end)
        values = Values(kind, chunk_start, chunk_end, packed=True)
    else:
        values = Values(kind, list_start, list_end, packed=False)
    for _ in numbers(data, values):
        pass
    return values


def numbers(data: memoryview, values: Values) -> Iterator[int | float]:
    """Yield the values of a float or int64 list."""
    is_float = KINDS[values.kind] == "float"
    if is_float and values.packed and (values.end - values.start) % 4:
        raise _RefusedError(Reason.FLOAT_BYTES, values.start)
    tag = _FIXED32_1 if is_float else _VARINT_1
    offset = values.start
    while offset < values.end:
        if not values.packed:
            if data[offset] != tag:
                mixed = data[offset] == FIELD_1
                raise _RefusedError(Reason.LIST_CHUNKS if mixed else Reason.LIST_FIELD, offset)
            offset += 1
        if is_float:
            if values.end - offset < 4:
                raise _RefusedError(Reason.LENGTH, offset)
            yield struct.unpack_from("<f", data, offset)[0]
            offset += 4
        else:
            value, offset = _varint(data, offset, values.end)
            yield value - (1 << 64) if value >> 63 else value


def strings(data: memoryview, values: Values) -> Iterator[memoryview]:
    """Yield the values of a validated bytes list."""
    offset = values.start
    while offset < values.end:
        start, offset = _span(data, offset + 1, values.end)
        yield data[start:offset]


def _entry(data: memoryview, tag: int, start: int, end: int, *, sequence: bool) -> Entry:
    """Parse the map entry with its tag at `tag` and its content from `start` to `end`."""
    key_start, key_end = _field(data, start, end, FIELD_1, Reason.ENTRY)
    name = bytes(data[key_start:key_end])
    try:
        if not is_utf8(name):
            raise _RefusedError(Reason.KEY_UTF8, key_start)
        value_start, value_end = _field(data, key_end, end, FIELD_2, Reason.ENTRY)
        if value_end != end:
            raise _RefusedError(Reason.ENTRY, value_end)
        if not sequence:
            is_set = value_start < value_end
            lists = [_feature(data, value_start, value_end)] if is_set else []
            return Entry(sequence, name, lists, tag, key_end, end)
        steps: list[Values] = []
        offset = value_start
        while offset < value_end:
            step_start, step_end = _field(data, offset, value_end, FIELD_1, Reason.STEP_FIELD)
            steps.append(_feature(data, step_start, step_end))
            if steps[-1].kind != steps[0].kind:
                raise _RefusedError(Reason.MIXED_KINDS, offset)
            offset = step_end
        return Entry(sequence, name, steps, tag, key_end, end)
    except _RefusedError as refused:
        refused.name = name
        raise


def is_utf8(value: Buffer) -> bool:
    """Return True if the bytes are UTF-8 without overlong forms or surrogates."""
    try:
        str(value, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _entries(data: memoryview, record: int, start: int, length: int) -> list[Entry]:
    """Return the validated features of one record. Raises ExampleError at the first fault."""
    try:
        return list(_walk(data, start, start + length))
    except _RefusedError as refused:
        error = example_error(refused.reason, record, refused.offset - start, refused.name)
        raise error from None


def _walk(data: memoryview, start: int, end: int) -> Iterator[Entry]:
    seen: set[tuple[bool, bytes]] = set()
    unset: Entry | None = None
    is_example = True
    offset = start
    while offset < end:
        if data[offset] not in {FIELD_1, FIELD_2}:
            raise _RefusedError(Reason.UNKNOWN_FIELD, offset)
        sequence = data[offset] == FIELD_2
        is_example = is_example and not sequence
        inside, offset = _span(data, offset + 1, end)
        while inside < offset:
            entry_start, entry_end = _field(data, inside, offset, FIELD_1, Reason.FEATURES_FIELD)
            entry = _entry(data, inside, entry_start, entry_end, sequence=sequence)
            if (sequence, entry.name) in seen:
                refused = _RefusedError(Reason.DUPLICATE_KEY, inside)
                refused.name = entry.name
                raise refused
            seen.add((sequence, entry.name))
            if entry.is_unset:
                unset = unset or entry
            yield entry
            inside = entry_end
    if unset is not None and not is_example:
        refused = _RefusedError(Reason.NO_KIND, unset.end)
        refused.name = unset.name
        raise refused


def records_of(
    data: Buffer, starts: IntArray, lengths: IntArray
) -> Iterator[tuple[int, memoryview, list[Entry]]]:
    """Yield each record's number, buffer and validated features, including unset ones."""
    view = memoryview(data).cast("B")
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} starts but {len(lengths)} lengths")
    spans = list(zip(starts.tolist(), lengths.tolist(), strict=True))
    for record, (start, length) in enumerate(spans):
        if start < 0 or length < 0 or start + length > len(view):
            raise ValueError(f"record {record} lies outside the buffer")
    for record, (start, length) in enumerate(spans):
        yield record, view, _entries(view, record, start, length)
