"""Independent reading of records and sources: nothing of Shardline's own parsers is used."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.harness import Finding
from tests.fuzz.mutate import split_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from shardline.api import Version

Row = dict[str, list[Any]]
"""The values of a record by feature; a feature without a value is left out."""


def stored_rows(version: Version) -> list[Row]:
    """Return the records of the newest snapshot, parsed by this module."""
    return [parse_example(payload) for payload in stored_payloads(version)]


def stored_payloads(version: Version) -> list[bytes]:
    """Return the payloads of the newest snapshot, from the bytes of its files."""
    snapshot = version.latest()
    return [
        payload
        for shard in snapshot.shards
        for payload in split_frames(version.store.read(version.shard_name(shard)))
    ]


def parse_example(data: bytes) -> Row:
    """Parse an Example of the wire format."""
    row: Row = {}
    for number, features in _fields(data):
        if number == 1:
            for _, entry in _fields(features):
                parts = dict(_fields(entry))
                values = _feature(parts.get(2, b""))
                if values:
                    row[parts.get(1, b"").decode()] = values
    return row


def _feature(data: bytes) -> list[Any]:
    values: list[Any] = []
    for kind, inner in _fields(data):
        for _, part in _fields(inner):
            if kind == 1:
                values.append(part)
            elif kind == 2:
                values += struct.unpack(f"<{len(part) // 4}f", part)
            else:
                values += _varints(part)
    return values


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each field; a lone number as a packed one."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        if tag & 7 == 2:
            size, offset = _varint(data, offset)
        elif tag & 7 == 0:
            size = _varint(data, offset)[1] - offset
        else:
            size = {1: 8, 5: 4}[tag & 7]
        yield tag >> 3, data[offset : offset + size]
        offset += size


def _varints(data: bytes) -> list[int]:
    values, offset = [], 0
    while offset < len(data):
        value, offset = _varint(data, offset)
        values.append(value - 2**64 if value >= 2**63 else value)
    return values


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        shift += 7
        offset += 1
        if byte < 0x80:
            return value, offset


def arrow_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an Arrow IPC file or stream, read at once by pyarrow."""
    with pa.OSFile(str(path)) as file:
        magic = file.read(6)
        file.seek(0)
        open_it = pa.ipc.open_file if magic == b"ARROW1" else pa.ipc.open_stream
        return _rows(open_it(file).read_all())


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file, read at once by pyarrow."""
    return _rows(pq.read_table(path, use_threads=False))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        plain = pa.concat_arrays([_as_bytes(chunk) for chunk in column.chunks] or [pa.nulls(0)])
        plain.validate(full=True)
        columns[name] = plain.to_pylist()
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return text as bytes, which need not be Unicode."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    text = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
    return array.cast(pa.binary()) if any(is_text(array.type) for is_text in text) else array


def json_rows(data: bytes) -> list[dict[str, Any]]:
    """Return the objects of JSON lines, parsed by the standard library."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [json.loads(line) for line in lines if line.strip()]


def assert_same_rows(stored: Sequence[Row], expected: Sequence[Mapping[str, Any]]) -> None:
    """Raise Finding if a record differs from its row."""
    if len(stored) != len(expected):
        raise Finding(f"{len(stored)} records of {len(expected)} rows")
    for number, (row, wanted) in enumerate(zip(stored, expected, strict=True)):
        names = {*row, *(name for name, value in wanted.items() if value is not None)}
        for name in names:
            found, values = row.get(name, []), _flat(wanted.get(name))
            if len(found) != len(values) or not all(map(_same, found, values)):
                raise Finding(f"row {number}, feature {name!r} differs from the file")


def _flat(value: Any) -> list[Any]:  # noqa: ANN401 - any value of a table
    if value is None:
        return []
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, list) else [value]


def _same(found: Any, value: Any) -> bool:  # noqa: ANN401 - values of any kind
    if isinstance(value, str):
        value = value.encode()
    if isinstance(found, float):
        return np.float32(found).tobytes() == np.float32(value).tobytes() or (
            found != found and value != value  # noqa: PLR0124 - NaN
        )
    return bool(found == value)
