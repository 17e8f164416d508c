"""The kernel in plain Python: the specification of what Shardline does with record bytes.

A TFRecord file is a row of frames:

    uint64 length (little endian) | masked crc32c of those 8 bytes | data | masked crc32c of data

The data is usually a serialized Example or SequenceExample, and anything at all otherwise.
The compiled kernel has the same functions with the same results and errors, at memory speed.
"""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from shardline.errors import ColumnError
from shardline.kernel.types import (
    DEFAULT_MAX_RECORD_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    KINDS,
    LARGEST_MAX_RECORD_BYTES,
    Buffer,
    Column,
    ColumnBuffers,
    FaultKind,
    FeatureFacts,
    Reason,
    Scan,
    Search,
    check_buffers,
    check_distinct,
    check_offsets,
    example_error,
    frame_fault,
    wrong_kind,
    wrong_width,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.kernel.types import IntArray

NAME = "reference"

_POLYNOMIAL = 0x82F63B78


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_table_entry(byte) for byte in range(256))


def crc32c(data: Buffer, value: int = 0) -> int:
    """The CRC-32C of `data`, going on from `value`, the CRC of what came before."""
    crc = value ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32c_combine(first: int, second: int, second_bytes: int) -> int:
    """The CRC of two pieces laid end to end, from their CRCs and the size of the second."""
    if second_bytes < 0:
        msg = f"a piece cannot have {second_bytes} bytes"
        raise ValueError(msg)
    power = 0x40000000 >> 7  # x^8: one byte further
    shift = 0x80000000  # x^0
    while second_bytes:
        if second_bytes & 1:
            shift = _multiply(power, shift)
        power = _multiply(power, power)
        second_bytes >>= 1
    return _multiply(shift, first) ^ second


def _multiply(a: int, b: int) -> int:
    """Multiply two polynomials over GF(2), bits reversed, modulo the CRC's polynomial."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _masked(crc: int) -> int:
    """What TFRecord stores for a CRC, so that a CRC of data that holds CRCs stays strong."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payloads: Sequence[Buffer]) -> bytes:
    """Lay payloads end to end, each framed with its length and both checksums."""
    pieces: list[Buffer] = []
    for payload in payloads:
        size = memoryview(payload).nbytes
        if size > LARGEST_MAX_RECORD_BYTES:
            msg = (
                f"a record of {size} bytes is over the format's limit of {LARGEST_MAX_RECORD_BYTES}"
            )
            raise ValueError(msg)
        length = struct.pack("<Q", size)
        pieces += (length, struct.pack("<I", _masked(crc32c(length))))
        pieces += (payload, struct.pack("<I", _masked(crc32c(payload))))
    return b"".join(pieces)


def _stated_length(data: memoryview, offset: int) -> int | None:
    """The length that the header at `offset` states, if its checksum vouches for it."""
    length = data[offset : offset + 8]
    (stored,) = struct.unpack_from("<I", data, offset + 8)
    return int.from_bytes(length, "little") if stored == _masked(crc32c(length)) else None


def _data_matches(data: memoryview, offset: int, length: int) -> bool:
    start = offset + HEADER_BYTES
    (stored,) = struct.unpack_from("<I", data, start + length)
    return bool(stored == _masked(crc32c(data[start : start + length])))


def scan(
    data: Buffer, *, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES, final: bool = True
) -> Scan:
    """Find the intact frames at the start of `data`, up to its end or the first fault.

    A length is used only after its checksum, the cap and the bytes that remain have vouched for
    it. `final` says that nothing follows: a frame cut off by the end is then a fault.
    """
    view = memoryview(data).cast("B")
    end = len(view)
    starts: list[int] = []
    lengths: list[int] = []
    offset = needed = length = bound = 0
    kind: FaultKind | None = None
    while offset < end:
        remaining = end - offset
        if remaining < HEADER_BYTES:
            kind, bound, needed = "trailing-bytes", remaining, HEADER_BYTES
            break
        stated = _stated_length(view, offset)
        if stated is None:
            kind = "length-crc"
            break
        length = stated
        if length > max_record_bytes:
            kind, bound = "oversized", max_record_bytes
            break
        if length + FRAME_BYTES > remaining:
            kind, bound, needed = "truncated", remaining, length + FRAME_BYTES
            break
        if not _data_matches(view, offset, length):
            kind = "data-crc"
            break
        starts.append(offset + HEADER_BYTES)
        lengths.append(length)
        offset += length + FRAME_BYTES
    if needed and final:
        needed = 0
    elif needed:
        kind = None
    fault = None if kind is None else frame_fault(kind, len(starts), offset, length, bound)
    return Scan(np.array(starts, np.int64), np.array(lengths, np.int64), offset, needed, fault)


def find_next(
    data: Buffer,
    start: int,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    final: bool = True,
) -> Search:
    """Find the first offset from `start` on at which an intact frame begins.

    A frame that the end of `data` cuts off is waited for unless `final`: `needed` says how many
    bytes it takes to tell.
    """
    view = memoryview(data).cast("B")
    end = len(view)
    for offset in range(start, end - HEADER_BYTES + 1):
        plausible = int.from_bytes(view[offset : offset + 8], "little")
        if plausible > max_record_bytes or _stated_length(view, offset) is None:
            continue
        if plausible + FRAME_BYTES > end - offset:
            if final:
                continue
            return Search(found=False, offset=offset, needed=plausible + FRAME_BYTES)
        if _data_matches(view, offset, plausible):
            return Search(found=True, offset=offset, needed=0)
    if final:
        return Search(found=False, offset=end, needed=0)
    offset = max(start, end - HEADER_BYTES + 1)
    return Search(found=False, offset=offset, needed=HEADER_BYTES)


def find_end(
    data: Buffer,
    start: int,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    final: bool = True,
) -> int:
    """Where the damaged record at `start` ends, if its own bytes still tell; else -1.

    Without this, frames that lie *inside* a damaged record (a TFRecord file kept as a feature)
    would be taken for records. They tell in two ways: the length is intact and another header, or
    the end, stands behind it; or the header is lost but the data is intact, so that its checksum
    matches right behind it, and then comes another header or the end.
    """
    view = memoryview(data).cast("B")
    end = len(view)

    def border(offset: int) -> bool:
        if offset == end:
            return final
        return offset + HEADER_BYTES <= end and _stated_length(view, offset) is not None

    if end - start < HEADER_BYTES:
        return -1
    stated = _stated_length(view, start)
    if stated is not None:
        target = start + stated + FRAME_BYTES
        return target if stated <= max_record_bytes and target <= end and border(target) else -1
    crc = 0xFFFFFFFF
    last = min(end - 4, start + HEADER_BYTES + max_record_bytes)
    for offset in range(start + HEADER_BYTES, last + 1):
        (stored,) = struct.unpack_from("<I", view, offset)
        if stored == _masked(crc ^ 0xFFFFFFFF) and border(offset + 4):
            return offset + 4
        crc = (crc >> 8) ^ _TABLE[(crc ^ view[offset]) & 0xFF]
    return -1


# The wire format:
#
#   Example          { Features features = 1; }
#   SequenceExample  { Features context = 1; FeatureLists feature_lists = 2; }
#   Features         { map<string, Feature> feature = 1; }
#   FeatureLists     { map<string, FeatureList> feature_list = 1; }
#   FeatureList      { repeated Feature feature = 1; }
#   Feature          { oneof kind { BytesList = 1; FloatList = 2; Int64List = 3; } }
#
# protobuf forgives much that TensorFlow's own parsers do not, and the other way round. What is
# accepted here means the same to all of them. The nesting is fixed, so there is no recursion.

_FIELD_1 = 0x0A  # field 1, length-delimited; the others by the same rule
_FIELD_2 = 0x12
_FIELD_3 = 0x1A
_VARINT_1 = 0x08
_FIXED32_1 = 0x0D
_KIND_OF_TAG = {_FIELD_1: 0, _FIELD_2: 1, _FIELD_3: 2}
_LONGEST_LENGTH = 5  # bytes of a varint that holds a length


class _RefusedError(Exception):
    def __init__(self, reason: Reason, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset
        self.name: bytes | None = None


@dataclass(frozen=True, slots=True)
class _List:
    """The values of one Feature: its kind (an index of KINDS) and where they lie."""

    kind: int
    start: int
    end: int
    packed: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """One feature of a record: a single list, or one per step if it is a feature list."""

    sequence: bool
    name: bytes
    lists: list[_List]


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
    """The inside of a length-delimited field whose length stands at `offset`."""
    length, start = _varint(data, offset, end)
    if start - offset > _LONGEST_LENGTH or length > end - start:
        raise _RefusedError(Reason.LENGTH, offset)
    return start, start + length


def _field(data: memoryview, offset: int, end: int, tag: int, refusal: Reason) -> tuple[int, int]:
    """The inside of the length-delimited field that must stand at `offset`."""
    if offset >= end or data[offset] != tag:
        raise _RefusedError(refusal, offset)
    return _span(data, offset + 1, end)


def _feature(data: memoryview, start: int, end: int) -> _List:
    """Check a Feature down to its last value."""
    kind = _KIND_OF_TAG.get(data[start]) if start < end else None
    if kind is None:
        raise _RefusedError(Reason.NO_KIND, start)
    list_start, list_end = _span(data, start + 1, end)
    if list_end != end:
        raise _RefusedError(Reason.AFTER_KIND, list_end)
    if KINDS[kind] == "bytes":
        offset = list_start
        while offset < list_end:
            _, offset = _field(data, offset, list_end, _FIELD_1, Reason.LIST_FIELD)
        return _List(kind, list_start, list_end, packed=False)
    if list_start < list_end and data[list_start] == _FIELD_1:
        chunk_start, chunk_end = _span(data, list_start + 1, list_end)
        if chunk_end != list_end:
            raise _RefusedError(Reason.LIST_CHUNKS, chunk_end)
        values = _List(kind, chunk_start, chunk_end, packed=True)
    else:
        values = _List(kind, list_start, list_end, packed=False)
    for _ in _numbers(data, values):
        pass
    return values


def _numbers(data: memoryview, values: _List) -> Iterator[int | float]:
    """The values of a float or int64 list."""
    is_float = KINDS[values.kind] == "float"
    if is_float and values.packed and (values.end - values.start) % 4:
        raise _RefusedError(Reason.FLOAT_BYTES, values.start)
    tag = _FIXED32_1 if is_float else _VARINT_1
    offset = values.start
    while offset < values.end:
        if not values.packed:
            if data[offset] != tag:
                mixed = data[offset] == _FIELD_1
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


def _strings(data: memoryview, values: _List) -> Iterator[memoryview]:
    """The values of a bytes list that has been checked."""
    offset = values.start
    while offset < values.end:
        start, offset = _span(data, offset + 1, values.end)
        yield data[start:offset]


def _entry(data: memoryview, start: int, end: int, *, sequence: bool) -> _Entry:
    key_start, key_end = _field(data, start, end, _FIELD_1, Reason.ENTRY)
    name = bytes(data[key_start:key_end])
    try:
        if not _is_utf8(name):
            raise _RefusedError(Reason.KEY_UTF8, key_start)
        value_start, value_end = _field(data, key_end, end, _FIELD_2, Reason.ENTRY)
        if value_end != end:
            raise _RefusedError(Reason.ENTRY, value_end)
        if not sequence:
            return _Entry(sequence, name, [_feature(data, value_start, value_end)])
        steps: list[_List] = []
        offset = value_start
        while offset < value_end:
            step_start, step_end = _field(data, offset, value_end, _FIELD_1, Reason.STEP_FIELD)
            steps.append(_feature(data, step_start, step_end))
            if steps[-1].kind != steps[0].kind:
                raise _RefusedError(Reason.MIXED_KINDS, offset)
            offset = step_end
        return _Entry(sequence, name, steps)
    except _RefusedError as refused:
        refused.name = name
        raise


def _is_utf8(value: Buffer) -> bool:
    try:
        str(value, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _entries(data: memoryview, record: int, start: int, length: int) -> list[_Entry]:
    """Every feature of one record, checked; raises ExampleError at the first thing wrong."""
    try:
        return list(_walk(data, start, start + length))
    except _RefusedError as refused:
        error = example_error(refused.reason, record, refused.offset - start, refused.name)
        raise error from None


def _walk(data: memoryview, start: int, end: int) -> Iterator[_Entry]:
    seen: set[tuple[bool, bytes]] = set()
    offset = start
    while offset < end:
        if data[offset] not in {_FIELD_1, _FIELD_2}:
            raise _RefusedError(Reason.UNKNOWN_FIELD, offset)
        sequence = data[offset] == _FIELD_2
        inside, offset = _span(data, offset + 1, end)
        while inside < offset:
            entry_start, entry_end = _field(data, inside, offset, _FIELD_1, Reason.FEATURES_FIELD)
            entry = _entry(data, entry_start, entry_end, sequence=sequence)
            if (sequence, entry.name) in seen:
                refused = _RefusedError(Reason.DUPLICATE_KEY, inside)
                refused.name = entry.name
                raise refused
            seen.add((sequence, entry.name))
            yield entry
            inside = entry_end


def _records(
    data: Buffer, starts: IntArray, lengths: IntArray
) -> Iterator[tuple[int, memoryview, list[_Entry]]]:
    view = memoryview(data).cast("B")
    if len(starts) != len(lengths):
        msg = f"{len(starts)} starts but {len(lengths)} lengths"
        raise ValueError(msg)
    spans = list(zip(starts.tolist(), lengths.tolist(), strict=True))
    for record, (start, length) in enumerate(spans):
        if start < 0 or length < 0 or start + length > len(view):
            msg = f"record {record} lies outside the buffer"
            raise ValueError(msg)
    for record, (start, length) in enumerate(spans):
        yield record, view, _entries(view, record, start, length)


def validate(data: Buffer, starts: IntArray, lengths: IntArray) -> None:
    """Check that each payload is an Example or SequenceExample on which all parsers agree.

    Raises ExampleError for the first that is not. An Example laid behind another in one payload
    is a legal Example: that is how an overlay is read.
    """
    for _ in _records(data, starts, lengths):
        pass


@dataclass(slots=True)
class _Tally:
    present: int = 0
    fewest_steps: float = math.inf
    most_steps: int = 0
    shortest: float = math.inf
    longest: int = 0
    low: float | None = None
    high: float | None = None
    nans: int = 0
    smallest: float = math.inf
    largest: int = 0
    utf8: bool = True

    def add(self, data: memoryview, entry: _Entry) -> None:
        self.present += 1
        self.fewest_steps = min(self.fewest_steps, len(entry.lists))
        self.most_steps = max(self.most_steps, len(entry.lists))
        for values in entry.lists:
            is_bytes = KINDS[values.kind] == "bytes"
            count = self.add_strings(data, values) if is_bytes else self.add_numbers(data, values)
            self.shortest = min(self.shortest, count)
            self.longest = max(self.longest, count)

    def add_strings(self, data: memoryview, values: _List) -> int:
        count = 0
        for value in _strings(data, values):
            count += 1
            self.smallest = min(self.smallest, len(value))
            self.largest = max(self.largest, len(value))
            self.utf8 = self.utf8 and _is_utf8(value)
        return count

    def add_numbers(self, data: memoryview, values: _List) -> int:
        count = 0
        for value in _numbers(data, values):
            count += 1
            if value != value:  # noqa: PLR0124 - true for NaN alone
                self.nans += 1
                continue
            if self.low is None or value < self.low:
                self.low = value
            if self.high is None or value > self.high:
                self.high = value
        return count

    def facts(self, *, sequence: bool, name: bytes, kind: int | None) -> FeatureFacts:
        return FeatureFacts(
            name=name.decode(),
            sequence=sequence,
            kind=None if kind is None else KINDS[kind],
            present=self.present,
            steps=_range(self.fewest_steps, self.most_steps) if sequence else None,
            lengths=_range(self.shortest, self.longest),
            low=self.low,
            high=self.high,
            nans=self.nans,
            sizes=_range(self.smallest, self.largest),
            utf8=self.utf8,
        )


def _range(low: float, high: int) -> tuple[int, int] | None:
    return None if low == math.inf else (int(low), high)


def facts(data: Buffer, starts: IntArray, lengths: IntArray) -> list[FeatureFacts]:
    """What each feature of these records looks like, in name order; validates on the way."""
    tallies: dict[tuple[bool, bytes, int], _Tally] = {}
    for _, view, entries in _records(data, starts, lengths):
        for entry in entries:
            kind = entry.lists[0].kind if entry.lists else -1
            tallies.setdefault((entry.sequence, entry.name, kind), _Tally()).add(view, entry)
    return [
        tally.facts(sequence=sequence, name=name, kind=None if kind < 0 else kind)
        for (sequence, name, kind), tally in sorted(tallies.items(), key=lambda item: item[0])
    ]


_DTYPES = {"bytes": "u1", "float": "<f4", "int64": "<i8"}


def decode(
    data: Buffer, starts: IntArray, lengths: IntArray, columns: Sequence[Column]
) -> list[ColumnBuffers]:
    """Lay the chosen features of a block of records out as columns; validates on the way.

    Raises ColumnError where a feature's kind or number of values is not the column's.
    """
    check_distinct(columns)
    builders = [_ColumnBuilder(column) for column in columns]
    for record, view, entries in _records(data, starts, lengths):
        found = {(entry.sequence, entry.name): entry for entry in entries}
        for builder in builders:
            key = (builder.column.sequence, builder.column.name.encode())
            builder.add(view, record, found.get(key))
    return [builder.buffers() for builder in builders]


class _ColumnBuilder:
    def __init__(self, column: Column) -> None:
        self.column = column
        self.valid: list[bool] = []
        self.rows = [0]
        self.steps = [0]
        self.sizes = [0]
        self.values = bytearray()
        self.count = 0

    def add(self, data: memoryview, record: int, entry: _Entry | None) -> None:
        self.valid.append(entry is not None)
        if entry is None:
            for _ in range(self.column.width or 0):
                self._append(b"" if self.column.kind == "bytes" else bytes(self._item_bytes))
        else:
            for values in entry.lists:
                if KINDS[values.kind] != self.column.kind:
                    raise wrong_kind(record, self.column, KINDS[values.kind])
                for value in self._cut(data, values):
                    self._append(value)
                self.steps.append(self.count)
            added = self.count - self.rows[-1]
            if self.column.width is not None and added != self.column.width:
                raise wrong_width(record, self.column, added)
        self.rows.append(len(self.steps) - 1 if self.column.sequence else self.count)

    @property
    def _item_bytes(self) -> int:
        return np.dtype(_DTYPES[self.column.kind]).itemsize

    def _cut(self, data: memoryview, values: _List) -> Iterator[Buffer]:
        """The bytes of each value. Floats are never made into Python's: NaNs keep their bits."""
        if self.column.kind == "bytes":
            yield from _strings(data, values)
        elif self.column.kind == "int64":
            for number in _numbers(data, values):
                yield int(number).to_bytes(8, "little", signed=True)
        else:
            tag = 0 if values.packed else 1
            for offset in range(values.start + tag, values.end, 4 + tag):
                yield data[offset : offset + 4]

    def _append(self, value: Buffer) -> None:
        self.values += value
        self.count += 1
        self.sizes.append(len(self.values))

    def buffers(self) -> ColumnBuffers:
        is_bytes = self.column.kind == "bytes"
        check_offsets(max(self.count, len(self.values) if is_bytes else 0))
        return ColumnBuffers(
            column=self.column,
            valid=np.array(self.valid, np.uint8),
            rows=np.array(self.rows, np.int32),
            steps=np.array(self.steps, np.int32) if self.column.sequence else None,
            sizes=np.array(self.sizes, np.int32) if is_bytes else None,
            values=np.frombuffer(self.values, _DTYPES[self.column.kind]),
        )


def encode(columns: Sequence[ColumnBuffers], records: int) -> bytes:
    """Write a block of records as framed Examples: SequenceExamples if a column is ragged.

    The bytes depend on the values alone: features stand in the order of their names, a feature
    that a record does not have is left out, and so is a message with nothing in it.
    """
    ordered = sorted(columns, key=lambda buffers: buffers.column.name.encode())
    check_distinct(buffers.column for buffers in ordered)
    for buffers in ordered:
        check_buffers(buffers, records)
    payloads = []
    for record in range(records):
        context = b"".join(_encoded(c, record) for c in ordered if not c.column.sequence)
        sequence = b"".join(_encoded(c, record) for c in ordered if c.column.sequence)
        payload = _delimited(_FIELD_1, context) if context else b""
        payload += _delimited(_FIELD_2, sequence) if sequence else b""
        if len(payload) > LARGEST_MAX_RECORD_BYTES:
            _refuse_large(record, ordered, len(payload))
        payloads.append(payload)
    return frame(payloads)


def _refuse_large(record: int, columns: Sequence[ColumnBuffers], size: int) -> NoReturn:
    names = ", ".join(buffers.column.name for buffers in columns)
    raise ColumnError(record, names, f"{size} bytes are over the format's limit")


def _encoded(buffers: ColumnBuffers, record: int) -> bytes:
    """One record's map entry for a column; empty where the record does not have the feature."""
    if not buffers.valid[record]:
        return b""
    first, last = int(buffers.rows[record]), int(buffers.rows[record + 1])
    if buffers.steps is None:
        value = _encoded_feature(buffers, first, last)
    else:
        cuts = buffers.steps[first : last + 1].tolist()
        steps = itertools.pairwise(cuts)
        value = b"".join(_delimited(_FIELD_1, _encoded_feature(buffers, *step)) for step in steps)
    key = _delimited(_FIELD_1, buffers.column.name.encode())
    return _delimited(_FIELD_1, key + _delimited(_FIELD_2, value))


def _encoded_feature(buffers: ColumnBuffers, first: int, last: int) -> bytes:
    if buffers.sizes is not None:
        cuts = buffers.sizes[first : last + 1].tolist()
        strings = itertools.pairwise(cuts)
        values = (_delimited(_FIELD_1, buffers.values[a:b].tobytes()) for a, b in strings)
        return _delimited(_FIELD_1, b"".join(values))
    numbers = buffers.values[first:last]
    if buffers.column.kind == "float":
        packed, tag = numbers.astype("<f4").tobytes(), _FIELD_2
    else:
        packed, tag = b"".join(_varint_bytes(value) for value in numbers.tolist()), _FIELD_3
    return _delimited(tag, _delimited(_FIELD_1, packed) if packed else b"")


def _delimited(tag: int, inside: bytes) -> bytes:
    return bytes((tag,)) + _varint_bytes(len(inside)) + inside


def _varint_bytes(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
