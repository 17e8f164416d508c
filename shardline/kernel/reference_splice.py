"""Take records apart and lay them together on the wire, in plain Python: part of the specification.

What a feature holds is never decoded: only the names before it may change. A record is checked
whole while it is taken apart, so what is laid together of the pieces is sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardline.kernel.reference_encode import delimited
from shardline.kernel.reference_frames import framed
from shardline.kernel.reference_wire import FIELD_1, FIELD_2, records_of
from shardline.kernel.types import (
    LARGEST_MAX_RECORD_BYTES,
    Buffer,
    Framed,
    Insides,
    check_insides,
    check_names,
    too_large,
    unknown_feature,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardline.kernel.types import IntArray


def insides(
    data: Buffer,
    starts: IntArray,
    lengths: IntArray,
    names: Mapping[tuple[bool, str], str | None],
    *,
    walked: bool = False,  # noqa: ARG001 - what is slow anyway looks again
) -> Insides:
    """The features of a block of records without the messages around them; validates on the way.

    `names` tells, for each feature there may be (in the feature_lists or not, and its name), what
    it is called from now on; None leaves it out. Raises ColumnError for a feature not in it. One
    that keeps its name keeps every byte. Unset features are left out, whatever their names: a value
    of the same name, joined to one, would not mean the same to all parsers.

    `walked` says that these records, which did not change, were validated before and have no
    feature but those that keep their names, none unset: then they need not be looked at again.
    """
    check_names(names)
    out = bytearray()
    cuts = [0]
    for record, view, entries in records_of(data, starts, lengths):
        for sequence in (False, True):
            for entry in entries:
                if entry.sequence == sequence and not entry.is_unset:
                    name = entry.name.decode()
                    if (sequence, name) not in names:
                        raise unknown_feature(record, name, sequence=sequence)
                    renamed = names[sequence, name]
                    if renamed == name:
                        out += view[entry.start : entry.end]
                    elif renamed is not None:
                        value = bytes(view[entry.value : entry.end])
                        key = delimited(FIELD_1, renamed.encode())
                        out += delimited(FIELD_1, key + value)
            cuts.append(len(out))
    begins, ends = np.array(cuts[:-1], np.int64), np.array(cuts[1:], np.int64)
    return Insides(
        bytes(out),
        np.ascontiguousarray(begins.reshape(-1, 2).T),
        np.ascontiguousarray((ends - begins).reshape(-1, 2).T),
    )


def join(parts: Sequence[Insides], rows: Sequence[IntArray]) -> Framed:
    """Lay features together to records, and frame them.

    Record i has, of each of the parts in turn, the features of row `rows[part][i]`; of a part with
    -1 there it has none. That no two of them are the same feature is for the caller to know. A
    message with nothing in it is left out.
    """
    count = check_insides(parts, rows)
    payloads = []
    for record in range(count):
        here = [(part, int(row[record])) for part, row in zip(parts, rows, strict=True)]
        there = [(part, row) for part, row in here if row >= 0]
        sizes = [sum(int(part.lengths[level, row]) for part, row in there) for level in range(2)]
        size = sum(1 + _varint_size(inside) + inside for inside in sizes if inside)
        if size > LARGEST_MAX_RECORD_BYTES:
            raise too_large(record, size)
        payload = b""
        for level, tag in enumerate((FIELD_1, FIELD_2)):
            inside = b"".join(_inside(part, level, row) for part, row in there)
            payload += delimited(tag, inside) if inside else b""
        payloads.append(payload)
    return framed(payloads)


def _inside(part: Insides, level: int, row: int) -> memoryview:
    start = int(part.starts[level, row])
    return memoryview(part.data).cast("B")[start : start + int(part.lengths[level, row])]


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
