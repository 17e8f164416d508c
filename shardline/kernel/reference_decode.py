"""Feature decoding in plain Python: part of the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardline.kernel.reference_wire import Entry, Values, numbers, records_of, strings
from shardline.kernel.types import (
    KINDS,
    Buffer,
    Column,
    ColumnBuffers,
    check_distinct,
    check_offsets,
    wrong_kind_error,
    wrong_width_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.kernel.types import IntArray

_DTYPES = {"bytes": "u1", "float": "<f4", "int64": "<i8"}


def decode(
    data: Buffer,
    starts: IntArray,
    lengths: IntArray,
    columns: Sequence[Column],
    met: set[tuple[bool, str]] | None = None,
    *,
    unset: set[str] | None = None,
) -> list[ColumnBuffers]:
    """Decode the requested features of a block of records into columns, and validate.

    `met` collects the features that occur in any record, each as a feature_lists flag and a name.
    `unset` collects the names of features that are unset in any record.

    Raises ColumnError if the kind or number of values of a feature differs from its column.
    """
    check_distinct(columns)
    builders = [_ColumnBuilder(column) for column in columns]
    for record, view, entries in records_of(data, starts, lengths):
        entries_by_key = {(e.sequence, e.name): e for e in entries if not e.is_unset}
        for builder in builders:
            key = (builder.column.sequence, builder.column.name.encode())
            builder.add(view, record, entries_by_key.get(key))
        if met is not None:
            met.update((sequence, name.decode()) for sequence, name in entries_by_key)
        if unset is not None:
            unset.update(entry.name.decode() for entry in entries if entry.is_unset)
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

    def add(self, data: memoryview, record: int, entry: Entry | None) -> None:
        self.valid.append(entry is not None)
        if entry is None:
            for _ in range(self.column.width or 0):
                self._append(b"" if self.column.kind == "bytes" else bytes(self._item_bytes))
        else:
            for values in entry.lists:
                if KINDS[values.kind] != self.column.kind:
                    raise wrong_kind_error(record, self.column, KINDS[values.kind])
                for value in self._cut(data, values):
                    self._append(value)
                self.steps.append(self.count)
            added = self.count - self.rows[-1]
            if self.column.width is not None and added != self.column.width:
                raise wrong_width_error(record, self.column, added)
        self.rows.append(len(self.steps) - 1 if self.column.sequence else self.count)

    @property
    def _item_bytes(self) -> int:
        return np.dtype(_DTYPES[self.column.kind]).itemsize

    def _cut(self, data: memoryview, values: Values) -> Iterator[Buffer]:
        """Yield the bytes of each value. Floats stay bytes, so that NaNs keep their bits."""
        if self.column.kind == "bytes":
            yield from strings(data, values)
        elif self.column.kind == "int64":
            for number in numbers(data, values):
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
