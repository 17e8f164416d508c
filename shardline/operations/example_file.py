"""Tables to TFRecord files of Examples and back, column by column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardline.errors import ColumnError, CorruptFileError, ExampleError
from shardline.kernel.columns import batches, decode_columns, encode_columns
from shardline.sources.column_source import validate_batch
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.examples import build_example_error
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits
from shardline.tfrecord.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.kernel.types import Column
    from shardline.tfrecord.record_block import RecordBlock


BATCH_BYTES = 4 * 1024 * 1024
"""How much of a file goes into one record batch, unless a single record is larger."""


def write_examples(
    path: Path | str,
    table: pa.Table | Mapping[str, Any],
    *,
    compression: Compression | str = Compression.NONE,
    overwrite: bool = False,
) -> int:
    """Write each row of a table as one Example; gives their number.

    `table` is an Arrow table, or columns by name that Arrow can make one of. A column of lists of
    lists makes SequenceExamples. Raises ColumnError for a value that a record cannot hold.
    """
    if not isinstance(table, pa.Table):
        table = pa.table(dict(table))
    with RecordWriter(path, compression=compression, overwrite=overwrite) as writer:
        for batch in batches(table):
            validate_batch("table", batch, writer.records)
            try:
                frames = encode_columns(batch)
            except ColumnError as error:
                raise ColumnError(
                    writer.records + error.record, error.feature, error.detail, code=error.code
                ) from None
            writer.write_frames(frames, batch.num_rows)
    return writer.records


def read_examples(
    path: Path | str,
    columns: Sequence[Column],
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read chosen features of a file as Arrow record batches, in order, in bounded memory.

    Raises CorruptFileError at a damaged record or a payload that is no Example, and ColumnError
    where a feature does not fit its column.
    """
    path = Path(path)

    def decode(block: RecordBlock) -> pa.RecordBatch:
        try:
            return decode_columns(block.data, block.starts, block.lengths, columns)
        except ExampleError as error:
            fault = build_example_error(block, error.record, error)
            raise CorruptFileError.of(path, fault) from None
        except ColumnError as error:
            record = block.record + error.record
            moved = ColumnError(record, error.feature, f"{error.detail} ({path})", code=error.code)
            moved.path = str(path)
            raise moved from None

    yield from map_blocks(path, decode, limits=limits, workers=workers, block_bytes=BATCH_BYTES)
