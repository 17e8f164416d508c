"""Splitting and joining of records in plain Python: part of the specification.

Feature values are never decoded, and only feature names may change. Splitting validates the whole
record, so records joined from the pieces are valid.
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
    too_large_error,
    unknown_feature_error,
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
    walked: bool = False,  # noqa: ARG001 - the specification always walks
) -> Insides:
    """Return the features of a block of records without enclosing messages, and validate.

    `names` maps each possible feature, given as a feature_lists flag and a name, to its new name.
    None omits the feature. A feature that keeps its name keeps every byte. Unset features are
    always omitted: combined with a value of the same name, they would not mean the same to all
    parsers.

    `walked` states that these unchanged records were validated before, have only features that keep
    their names, and have no unset feature. The kernel then need not parse them again.

    Raises ColumnError for a feature that is not in `names`.
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
                        raise unknown_feature_error(record, name, sequence=sequence)
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
    """Join features into records, and frame them.

    Record i takes from each part in turn the features of row `rows[part][i]`, or none for -1. The
    caller ensures that no feature occurs twice in a record. Empty messages are omitted.
    """
    count = check_insides(parts, rows)
    payloads = []
    for record in range(count):
        here = [(part, int(row[record])) for part, row in zip(parts, rows, strict=True)]
        there = [(part, row) for part, row in here if row >= 0]
        sizes = [sum(int(part.lengths[level, row]) for part, row in there) for level in range(2)]
        size = sum(1 + _varint_size(inside) + inside for inside in sizes if inside)
        if size > LARGEST_MAX_RECORD_BYTES:
            raise too_large_error(record, size)
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
