"""Arrow arrays whose offsets or indices lead out of their memory, and files that hold them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

FAR = 1 << 20


def corrupt_text(kind: pa.DataType | None = None) -> pa.Array:
    """Two texts, of which the first ends a megabyte behind the data."""
    offsets = pa.py_buffer(struct.pack("<3i", 0, FAR, 2))
    return pa.Array.from_buffers(kind or pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])


def corrupt_large_text() -> pa.Array:
    offsets = pa.py_buffer(struct.pack("<3q", 0, FAR, 2))
    return pa.Array.from_buffers(pa.large_string(), 2, [None, offsets, pa.py_buffer(b"ab")])


def corrupt_list() -> pa.Array:
    offsets = pa.py_buffer(struct.pack("<3i", 0, FAR, 2))
    return pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, offsets], children=[_numbers()])


def corrupt_inner_list() -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), corrupt_list())


def corrupt_index() -> pa.Array:
    """A dictionary of two texts, and an index far behind them."""
    indices = pa.array([0, FAR], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)


def negative_index() -> pa.Array:
    indices = pa.array([0, -5], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)


def corrupt_dictionary() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), corrupt_text())


def corrupt_view() -> pa.Array:
    """Two views, of which the second begins far behind the data."""
    sound = pa.array(["short", "x" * 40], pa.string_view())
    views = bytearray(sound.buffers()[1].to_pybytes())
    views[28:32] = struct.pack("<i", FAR)
    buffers = [None, pa.py_buffer(bytes(views)), sound.buffers()[2]]
    return pa.Array.from_buffers(pa.string_view(), 2, buffers)


def decreasing_offsets() -> pa.Array:
    offsets = pa.py_buffer(struct.pack("<3i", 2, 1, 2))
    return pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])


def _numbers() -> pa.Array:
    return pa.array([1, 2], pa.int64())


CORRUPT = {
    "text": corrupt_text,
    "large text": corrupt_large_text,
    "list": corrupt_list,
    "list in list": corrupt_inner_list,
    "index": corrupt_index,
    "negative index": negative_index,
    "dictionary": corrupt_dictionary,
    "view": corrupt_view,
    "decreasing": decreasing_offsets,
}


def corrupt_table(name: str) -> pa.Table:
    """A table with a sound `id` and a corrupt `bad` column."""
    return pa.table({"id": pa.array([1, 2]), "bad": CORRUPT[name]()})


def write_arrow(path: Path, table: pa.Table) -> Path:
    """Write a table with buffers as they are: Arrow does not validate what it writes."""
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path
