"""TFRecord files of Examples as Arrow tables, converted column by column."""

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
"""Size of the part of a file that becomes one record batch; a single record may be larger."""


def write_examples(
    path: Path | str,
    table: pa.Table | Mapping[str, Any],
    *,
    compression: Compression | str = Compression.NONE,
    overwrite: bool = False,
) -> int:
    """Write each row of a table as one Example. Returns the number of records.

    Args:
        path: File to write.
        table: Arrow table, or columns by name. A column of lists of lists gives SequenceExamples.
        compression: Compression of the file.
        overwrite: Replace an existing file.

    Raises:
        ColumnError: A value has no place in a record.

    Example:
        >>> write_examples("train.tfrecord", {"id": [1, 2], "name": ["a", "b"]})
        2
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
    """Read features of a file as Arrow record batches, in order, in bounded memory.

    Raises:
        CorruptFileError: A record is corrupt, or not an Example.
        ColumnError: A feature does not fit its column.
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
            located = ColumnError(
                record, error.feature, f"{error.detail} ({path})", code=error.code
            )
            located.path = str(path)
            raise located from None

    yield from map_blocks(path, decode, limits=limits, workers=workers, block_bytes=BATCH_BYTES)
