"""Parquet and Arrow IPC files, read in batches of about the size of a chunk."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from shardline.errors import SourceError
from shardline.hints import Hint
from shardline.sources.base import CHUNK_BYTES
from shardline.sources.columnar import Batch

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from shardline.log.schema import Schema
    from shardline.sources.origin import FileOrigin

_MOST_ROWS = 64 * 1024
"""Values that repeat are stored once, so that sizes in the file may say too little."""
_BUFFER_BYTES = 1024 * 1024
ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"


class ParquetColumns:
    """The columns of a Parquet file."""

    def __init__(self, origin: FileOrigin) -> None:
        self._origin = origin

    def types(self) -> pa.Schema:
        """The type of each column."""
        with self._open() as file:
            return file.schema_arrow

    def batches(self, start: int, _schema: Schema | None = None) -> Iterator[Batch]:
        """The rows from number `start` on; row groups before that are not read."""
        with self._open() as file:
            first = position = 0
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                if first + group.num_rows > start:
                    yield from _group(file, number, first, start, position)
                first += group.num_rows
                position += _packed_bytes(group)

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        with self._origin.open_raw() as raw:
            # Buffered: a column of a large row group is not taken into memory as a whole.
            yield pq.ParquetFile(raw, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _group(
    file: pq.ParquetFile, number: int, first: int, start: int, position: int
) -> Iterator[Batch]:
    group = file.metadata.row_group(number)
    wide = max(group.total_byte_size // max(group.num_rows, 1), 1)
    step = min(max(CHUNK_BYTES // wide, 1), _MOST_ROWS)
    packed, rows, whole = _packed_bytes(group), group.num_rows, first
    for batch in file.iter_batches(step, row_groups=[number], use_threads=False):
        skipped = min(max(start - first, 0), batch.num_rows)
        read = position + packed * (first + batch.num_rows - whole) // rows
        if skipped < batch.num_rows:
            yield Batch(batch.slice(skipped), first + skipped, read)
        first += batch.num_rows


def _packed_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(at).total_compressed_size for at in range(group.num_columns))


class ArrowColumns:
    """The columns of an Arrow IPC file, or stream in a file."""

    def __init__(self, origin: FileOrigin) -> None:
        self._origin = origin

    def types(self) -> pa.Schema:
        """The type of each column."""
        with self._origin.open_raw() as raw:
            return _reader(raw).schema if self._origin.size else pa.schema([])

    def batches(self, start: int, _schema: Schema | None = None) -> Iterator[Batch]:
        """The rows from number `start` on; batches before that are read and dropped."""
        with self._origin.open_raw() as raw:
            reader = _reader(raw)
            first = 0
            for rows in _batches(reader):
                skipped = min(max(start - first, 0), rows.num_rows)
                if skipped < rows.num_rows:
                    yield Batch(rows.slice(skipped), first + skipped, raw.tell())
                first += rows.num_rows


def _reader(raw: io.RawIOBase) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    magic = raw.read(len(ARROW_MAGIC)) or b""
    raw.seek(0)
    if magic == ARROW_MAGIC:
        return pa.ipc.open_file(raw)
    if magic.startswith(b"FEA1"):
        raise SourceError(
            "unsupported Feather version 1",
            code="unsupported-source",
            hint=Hint.of("write the file as Feather version 2"),
        )
    return pa.ipc.open_stream(raw)


def _batches(
    reader: pa.RecordBatchFileReader | pa.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from reader
