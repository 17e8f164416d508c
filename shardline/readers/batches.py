"""Records as Arrow record batches in the columns that a schema declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shardline import kernel
from shardline.errors import ColumnError, ExampleError
from shardline.schema.arrow_columns import column_of, schema_of, to_column
from shardline.tfrecord.examples import placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.readers.records import Records
    from shardline.schema.schema import Feature
    from shardline.tfrecord.reader import Block, Picked


class Batches:
    """Makes record batches of these features."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.schema = schema_of(features)
        self._features = features
        self._asked = [column_of(feature) for feature in features]

    def of(self, records: Records, some: Block | Picked) -> pa.RecordBatch:
        """Some of a shard's records as a batch, as `Snapshot.to_arrow` gives them.

        Raises ColumnError at one that does not fit, and at a payload that is no Example
        DamagedFileError, or ExampleError if it was picked; all tell its number in the shard.
        """
        try:
            decoded = kernel.decode(some.data, some.starts, some.lengths, self._asked)
            arrays = [
                to_column(feature, buffers)
                for feature, buffers in zip(self._features, decoded, strict=True)
            ]
        except (ExampleError, ColumnError) as error:
            raise placed(records.path, some, error) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
