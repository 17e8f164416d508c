"""Parquet and Arrow IPC files, decoded in another process in batches of about a chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.sources.decoder import decode_batches, decode_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from shardline.schema.schema import Schema
    from shardline.sources.columnar import Batch
    from shardline.sources.decoder import Encoding
    from shardline.sources.origin import FileOrigin
    from shardline.tfrecord.reader import Limits

ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"


class FileColumns:
    """The columns of a Parquet file, or of an Arrow IPC file or stream."""

    def __init__(self, origin: FileOrigin, encoding: Encoding, limits: Limits) -> None:
        self._origin = origin
        self._encoding = encoding
        self._limits = limits

    def types(self) -> pa.Schema:
        """The type of each column."""
        return decode_types(self._origin, self._encoding, self._limits)

    def batches(self, start: int, schema: Schema | None = None) -> Iterator[Batch]:
        """Yield the rows from number `start` on; without a schema, bytes are left out.

        Validate them before a value is touched.
        """
        return decode_batches(
            self._origin, self._encoding, self._limits, start, without_bytes=schema is None
        )
