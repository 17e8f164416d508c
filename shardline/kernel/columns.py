"""Records as Arrow columns and back, around the kernel's `decode` and `encode`.

| feature                          | Arrow type                    |
|----------------------------------|-------------------------------|
| one value per record             | int64, float, binary          |
| n values per record              | fixed_size_list of those      |
| any number of values             | list of those                 |
| a feature of the feature_lists   | list of list of those         |

A feature that a record does not have is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline import kernel
from shardline.errors import ColumnError
from shardline.kernel.types import LARGEST_OFFSET, Buffer, Column, ColumnBuffers, check_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import IntArray, Kind, Layout

_VALUE_TYPES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}


def decode_columns(
    data: Buffer, starts: IntArray, lengths: IntArray, columns: Sequence[Column]
) -> pa.RecordBatch:
    """Decode the chosen features of a block of records."""
    arrays = [to_arrow(buffers) for buffers in kernel.decode(data, starts, lengths, columns)]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def encode_columns(batch: pa.RecordBatch) -> bytes:
    """Encode each row as one framed Example, or SequenceExample if a column is a list of lists."""
    columns = [
        from_arrow(name, array)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return kernel.encode(columns, batch.num_rows)


def to_arrow(buffers: ColumnBuffers) -> pa.Array:
    """A column's buffers as an Arrow array, without copying the values."""
    column = buffers.column
    values = _values_to_arrow(buffers)
    rows = len(buffers.valid)
    validity = None
    if not buffers.valid.all():
        validity = pa.py_buffer(np.packbits(buffers.valid, bitorder="little"))
    if column.layout == "scalar":
        parts = values.buffers()
        return pa.Array.from_buffers(values.type, rows, [validity, *parts[1:]])
    if column.layout == "fixed":
        kind = pa.list_(values.type, column.size)
        return pa.Array.from_buffers(kind, rows, [validity], children=[values])
    if buffers.steps is not None:
        steps = len(buffers.steps) - 1
        parts = [None, pa.py_buffer(buffers.steps)]
        values = pa.Array.from_buffers(pa.list_(values.type), steps, parts, children=[values])
    parts = [validity, pa.py_buffer(buffers.rows)]
    return pa.Array.from_buffers(pa.list_(values.type), rows, parts, children=[values])


def _values_to_arrow(buffers: ColumnBuffers) -> pa.Array:
    kind = _VALUE_TYPES[buffers.column.kind]
    if buffers.sizes is None:
        return pa.Array.from_buffers(
            kind, len(buffers.values), [None, pa.py_buffer(buffers.values)]
        )
    parts = [None, pa.py_buffer(buffers.sizes), pa.py_buffer(buffers.values)]
    return pa.Array.from_buffers(kind, len(buffers.sizes) - 1, parts)


def from_arrow(name: str, array: pa.Array) -> ColumnBuffers:
    """An Arrow array as a column's buffers.

    Integers and booleans become int64, floats float32, strings and binary bytes; dictionaries are
    unpacked. Raises ColumnError for what a record cannot hold: a null inside a list, an integer
    over 63 bits, a type with no kind.
    """
    rows = len(array)
    valid = np.asarray(array.is_valid()).astype(np.uint8)
    layout: Layout = "scalar"
    size = 1
    steps = None
    if _is_list(array.type):
        row_offsets, values = _cut(name, array)
        layout = "variable"
        if pa.types.is_fixed_size_list(array.type):
            layout, size = "fixed", array.type.list_size
        if _is_list(values.type):
            layout, size = "ragged", 1
            row_cuts, inner = row_offsets, values
            steps, values = _cut(name, inner)
            _refuse_nulls(name, row_cuts, inner)
            _refuse_nulls(name, steps[row_cuts], values)
        else:
            _refuse_nulls(name, row_offsets, values)
    else:
        row_offsets, values = np.arange(rows + 1, dtype=np.int32), array
    kind, values = _plain_values(name, values)
    sizes, data = _value_buffers(kind, values)
    column = Column(name, kind, layout, size)
    return ColumnBuffers(column, valid, row_offsets, steps, sizes, data)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _cut(name: str, array: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Where each row's values lie, and all values; slices are honoured."""
    if pa.types.is_fixed_size_list(array.type):
        first = array.offset * array.type.list_size
        offsets = first + np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
    else:
        offsets = np.asarray(array.offsets).astype(np.int64)
    if len(offsets) and offsets[-1] > LARGEST_OFFSET:
        raise ColumnError(0, name, "too many values for one block: take fewer rows at a time")
    return offsets.astype(np.int32), array.values


def _refuse_nulls(name: str, rows: NDArray[np.int32], values: pa.Array) -> None:
    """Refuse nulls among the values that rows point at: TFRecord has no place for them."""
    if not len(rows):
        return
    used = values.slice(int(rows[0]), int(rows[-1] - rows[0]))
    if used.null_count:
        first = int(rows[0]) + int(np.argmax(np.asarray(used.is_null())))
        record = int(np.searchsorted(rows, first, "right")) - 1
        raise ColumnError(record, name, "holds a null inside a list, which a record cannot hold")


def _plain_values(name: str, values: pa.Array) -> tuple[Kind, pa.Array]:
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain_values(name, values.dictionary_decode())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        if pa.types.is_uint64(kind):
            over = np.asarray(pc.fill_null(pc.greater(values, 2**63 - 1), fill_value=False))
            if over.any():
                raise ColumnError(int(np.argmax(over)), name, "holds an integer over 63 bits")
        return "int64", values.cast(pa.int64())
    if pa.types.is_floating(kind):
        floats = values.cast(pa.float32(), safe=False)
        over = np.asarray(pc.fill_null(_overflows(values, floats), fill_value=False))
        if over.any():
            raise ColumnError(int(np.argmax(over)), name, "holds a number too large for float32")
        return "float", floats
    if _is_bytes(kind):
        return "bytes", values.cast(pa.binary())
    if pa.types.is_null(kind):
        return "bytes", values.cast(pa.binary())
    raise ColumnError(0, name, f"has the Arrow type {kind}, which no kind of feature can hold")


def _overflows(before: pa.Array, after: pa.Array) -> pa.Array:
    return pc.and_(pc.is_inf(after), pc.invert(pc.is_inf(before)))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _value_buffers(kind: Kind, values: pa.Array) -> tuple[NDArray[np.int32] | None, NDArray[Any]]:
    if kind != "bytes":
        zero = pa.scalar(0, values.type)
        return None, np.ascontiguousarray(np.asarray(pc.fill_null(values, zero)))
    _, offsets, data = values.buffers()
    first, last = values.offset, values.offset + len(values) + 1
    if offsets is None or offsets.size == 0:
        return np.zeros(last - first, np.int32), np.zeros(0, np.uint8)
    cuts = np.frombuffer(offsets, np.int32)[first:last]
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    check_offsets(len(bytes_) if len(bytes_) <= LARGEST_OFFSET else int(cuts[-1]))
    return cuts, bytes_


def batches(table: pa.Table, rows: int = 8192) -> Iterator[pa.RecordBatch]:
    """A table in batches small enough to encode one at a time."""
    wide: Iterable[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    yield from (batch for batch in wide if batch.num_rows)
