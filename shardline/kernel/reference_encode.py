"""Record encoding in plain Python: part of the specification."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NoReturn

from shardline.errors import ColumnError
from shardline.kernel.reference_frames import framed
from shardline.kernel.reference_wire import FIELD_1, FIELD_2, FIELD_3
from shardline.kernel.types import (
    LARGEST_MAX_RECORD_BYTES,
    ColumnBuffers,
    Framed,
    check_columns,
    check_distinct,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def encode(columns: Sequence[ColumnBuffers], records: int) -> Framed:
    """Encode a block of records as framed Examples (SequenceExamples if a column is ragged).

    The bytes depend only on the values. Features are sorted by name. Missing features and empty
    messages are omitted.
    """
    ordered = sorted(columns, key=lambda buffers: buffers.column.name.encode())
    check_distinct(buffers.column for buffers in ordered)
    check_columns(ordered, records)
    payloads = []
    for record in range(records):
        context = b"".join(_encode_record(c, record) for c in ordered if not c.column.sequence)
        sequence = b"".join(_encode_record(c, record) for c in ordered if c.column.sequence)
        payload = delimited(FIELD_1, context) if context else b""
        payload += delimited(FIELD_2, sequence) if sequence else b""
        if len(payload) > LARGEST_MAX_RECORD_BYTES:
            _raise_too_large(record, ordered, len(payload))
        payloads.append(payload)
    return framed(payloads)


def _raise_too_large(record: int, columns: Sequence[ColumnBuffers], size: int) -> NoReturn:
    names = ", ".join(buffers.column.name for buffers in columns)
    raise ColumnError(record, names, f"{size} bytes are over the format's limit")


def _encode_record(buffers: ColumnBuffers, record: int) -> bytes:
    """Return a record's map entry for a column, or no bytes if the feature is missing."""
    if not buffers.valid[record]:
        return b""
    first, last = int(buffers.rows[record]), int(buffers.rows[record + 1])
    if buffers.steps is None:
        value = _encode_feature(buffers, first, last)
    else:
        cuts = buffers.steps[first : last + 1].tolist()
        steps = itertools.pairwise(cuts)
        value = b"".join(delimited(FIELD_1, _encode_feature(buffers, *step)) for step in steps)
    key = delimited(FIELD_1, buffers.column.name.encode())
    return delimited(FIELD_1, key + delimited(FIELD_2, value))


def _encode_feature(buffers: ColumnBuffers, first: int, last: int) -> bytes:
    if buffers.sizes is not None:
        cuts = buffers.sizes[first : last + 1].tolist()
        strings = itertools.pairwise(cuts)
        values = (delimited(FIELD_1, buffers.values[a:b].tobytes()) for a, b in strings)
        return delimited(FIELD_1, b"".join(values))
    numbers = buffers.values[first:last]
    if buffers.column.kind == "float":
        packed, tag = numbers.astype("<f4").tobytes(), FIELD_2
    else:
        packed, tag = b"".join(_varint_bytes(value) for value in numbers.tolist()), FIELD_3
    return delimited(tag, delimited(FIELD_1, packed) if packed else b"")


def delimited(tag: int, inside: bytes) -> bytes:
    """Return a length-delimited field."""
    return bytes((tag,)) + _varint_bytes(len(inside)) + inside


def _varint_bytes(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
