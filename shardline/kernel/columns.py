"""Records as Arrow columns and back, on top of the kernel's `decode` and `encode`.

| feature                          | Arrow type                    |
|----------------------------------|-------------------------------|
| one value per record             | int64, float, binary          |
| n values per record              | fixed_size_list of those      |
| any number of values             | list of those                 |
| a feature of the feature_lists   | list of list of those         |

A missing feature is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline import kernel
from shardline.errors import ColumnError
from shardline.kernel.types import (
    LARGEST_OFFSET,
    Buffer,
    Column,
    ColumnBuffers,
    Insides,
    check_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import IntArray, Kind, Layout

_DETAILS = {
    "null-value": "holds a null inside a list, which a record cannot hold",
    "number-too-large": "holds a number too large for its kind",
}
_LARGEST_WITH_HEAD = np.array([2**bits + bits // 7 for bits in (7, 14, 21, 28)], np.int64)
"""Largest payloads whose features have a size of 1, 2, 3 and 4 bytes as a varint."""
VALUE_TYPES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}
_SCALARS: dict[pa.DataType, Kind] = {
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.binary(): "bytes",
}


def decode_columns(
    data: Buffer, starts: IntArray, lengths: IntArray, columns: Sequence[Column]
) -> pa.RecordBatch:
    """Decode the requested features of a block of records."""
    arrays = [to_arrow(buffers) for buffers in kernel.decode(data, starts, lengths, columns)]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def encode_columns(batch: pa.RecordBatch) -> bytes:
    """Encode each row as a framed Example, or SequenceExample for a list-of-lists column."""
    columns = [
        from_arrow(name, array)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return kernel.encode(columns, batch.num_rows).data


def get_encoded_insides(data: Buffer, starts: IntArray, lengths: IntArray) -> Insides:
    """Return the features of records that `encode` wrote without feature_lists, unparsed.

    A record is one message around its features, so its length determines where they begin.
    """
    inside_starts = np.zeros((2, len(starts)), np.int64)
    inside_lengths = np.zeros((2, len(starts)), np.int64)
    heads: IntArray | int = 2
    if len(lengths) and (lengths.min() == 0 or lengths.max() > _LARGEST_WITH_HEAD[0]):
        heads = np.where(lengths, 2 + np.searchsorted(_LARGEST_WITH_HEAD, lengths), 0)
    np.add(starts, heads, out=inside_starts[0])
    np.subtract(lengths, heads, out=inside_lengths[0])
    return Insides(data, inside_starts, inside_lengths)


def to_arrow(buffers: ColumnBuffers) -> pa.Array:
    """Convert column buffers to an Arrow array without copying the values."""
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
    kind = VALUE_TYPES[buffers.column.kind]
    if buffers.sizes is None:
        return pa.Array.from_buffers(
            kind, len(buffers.values), [None, pa.py_buffer(buffers.values)]
        )
    parts = [None, pa.py_buffer(buffers.sizes), pa.py_buffer(buffers.values)]
    return pa.Array.from_buffers(kind, len(buffers.sizes) - 1, parts)


def from_arrow(name: str, array: pa.Array) -> ColumnBuffers:
    """Convert an Arrow array to column buffers.

    Integers and booleans become int64, floats float32, strings and binary bytes. Dictionaries are
    decoded. Raises ColumnError for data that a record cannot store: a null inside a list, an
    integer over 63 bits, a type without a kind.
    """
    if array.type in _SCALARS:
        return _from_scalars(name, array)
    valid = np.asarray(array.is_valid()).astype(np.uint8)
    rows, values = np.arange(len(array) + 1, dtype=np.int32), array
    steps = None
    layout: Layout = "scalar"
    size = 1
    if is_list(array.type):
        rows, values = _split_lists(name, array)
        layout = "variable"
        if pa.types.is_fixed_size_list(array.type):
            layout, size = "fixed", array.type.list_size
        _validate_values(name, valid, rows, values.is_null(), "null-value")
    cuts = rows
    if is_list(values.type):
        layout, size = "ragged", 1
        steps, values = _split_lists(name, values)
        cuts = steps[rows]
        _validate_values(name, valid, cuts, values.is_null(), "null-value")
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind, plain = _convert_values(name, values)
    _validate_values(name, valid, cuts, _mark_overflows(values, plain), "number-too-large")
    sizes, data = _get_value_buffers(kind, plain)
    return ColumnBuffers(Column(name, kind, layout, size), valid, rows, steps, sizes, data)


def _from_scalars(name: str, array: pa.Array) -> ColumnBuffers:
    """Convert scalars whose type matches the stored type."""
    kind = _SCALARS[array.type]
    rows = np.arange(len(array) + 1, dtype=np.int32)
    sizes, data = _get_value_buffers(kind, array)
    return ColumnBuffers(Column(name, kind), _get_validity(array), rows, None, sizes, data)


def _get_validity(array: pa.Array) -> NDArray[np.uint8]:
    if array.null_count:
        return np.asarray(array.is_valid()).astype(np.uint8)
    return np.ones(len(array), np.uint8)


def split_scalars(names: Sequence[str], array: pa.Array) -> list[ColumnBuffers]:
    """Return the buffers of several scalar columns that are concatenated in one array.

    For many short columns this costs less than a separate Arrow array for each.
    """
    kind = _SCALARS[array.type]
    count = len(array) // len(names)
    rows = np.arange(count + 1, dtype=np.int32)
    valid = _get_validity(array).reshape(-1, count)
    sizes, data = _get_value_buffers(kind, array)
    if sizes is None:
        values = data.reshape(-1, count)
        return [
            ColumnBuffers(Column(name, kind), valid[index], rows, None, None, values[index])
            for index, name in enumerate(names)
        ]
    starts = range(0, len(array), count)
    return [
        ColumnBuffers(Column(name, kind), valid[index], rows, None, sizes[i : i + count + 1], data)
        for index, (name, i) in enumerate(zip(names, starts, strict=True))
    ]


def is_list(kind: pa.DataType) -> bool:
    """Return True if values of this type are lists."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _split_lists(name: str, array: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Return the offsets of each row's values, and the values of these rows."""
    offsets, values = split_lists(array)
    if len(values) > LARGEST_OFFSET:
        detail = "too many values for one block: take fewer rows at a time"
        raise ColumnError(0, name, detail, code="block-too-large")
    return offsets.astype(np.int32), values


def split_lists(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the offsets of each list's values, and the values of all lists."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        offsets = np.arange(len(array) + 1, dtype=np.int64) * size
        return offsets, array.values.slice(array.offset * size, len(array) * size)
    offsets = np.asarray(array.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, array.values.slice(first, last - first)


def _validate_values(
    name: str, valid: NDArray[np.uint8], cuts: NDArray[np.int32], bad: pa.Array, code: str
) -> None:
    """Raise ColumnError for the first bad value of a present record.

    `cuts` gives the range of values of each record.
    """
    positions = np.flatnonzero(np.asarray(pc.fill_null(bad, False)))  # noqa: FBT003 - Arrow's own
    owners = np.searchsorted(cuts, positions, "right") - 1
    owners = owners[(owners >= 0) & (owners < len(valid))]
    owners = owners[valid[owners] != 0]
    if len(owners):
        raise ColumnError(int(owners[0]), name, _DETAILS[code], code=code)


def _convert_values(name: str, values: pa.Array) -> tuple[Kind, pa.Array]:
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "int64", values.cast(pa.int64(), safe=False)
    if pa.types.is_floating(kind):
        return "float", values.cast(pa.float32(), safe=False)
    if _is_bytes(kind) or pa.types.is_null(kind):
        return "bytes", values.cast(pa.binary())
    detail = f"has the Arrow type {kind}, which no kind of feature can hold"
    raise ColumnError(0, name, detail, code="unsupported-type")


def _mark_overflows(before: pa.Array, after: pa.Array) -> pa.Array:
    """Mark numbers that overflow int64 or become infinite as float32."""
    if pa.types.is_uint64(before.type):
        return pc.less(after, pa.scalar(0, pa.int64()))
    if pa.types.is_float64(before.type):
        return pc.and_(pc.is_inf(after), pc.invert(pc.is_inf(before)))
    return pa.array(np.zeros(0, np.bool_))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _get_value_buffers(
    kind: Kind, values: pa.Array
) -> tuple[NDArray[np.int32] | None, NDArray[Any]]:
    if kind != "bytes":
        if values.null_count:
            values = pc.fill_null(values, pa.scalar(0, values.type))
        return None, np.ascontiguousarray(np.asarray(values))
    _, offsets, data = values.buffers()
    first, last = values.offset, values.offset + len(values) + 1
    if offsets is None or offsets.size == 0:
        return np.zeros(last - first, np.int32), np.zeros(0, np.uint8)
    cuts = np.frombuffer(offsets, np.int32)[first:last]
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    check_offsets(len(bytes_) if len(bytes_) <= LARGEST_OFFSET else int(cuts[-1]))
    return cuts, bytes_


def batches(table: pa.Table, rows: int = 8192) -> Iterator[pa.RecordBatch]:
    """Yield batches of a table that are small enough to encode one at a time."""
    wide: Iterable[pa.RecordBatch] = table.to_batches(max_chunksize=rows)
    yield from (batch for batch in wide if batch.num_rows)
