"""A digest of the rows of a batch: the records that they give, and the rows that give none.

Each record counts by its length and by the CRC-32C of its payload, which its frame has anyway: that
tells rows that were changed from the same ones, at a small part of the price of hashing them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shardline.schema.schema import Schema
    from shardline.sources import Frames, RecordSource


_CRC_BYTES = 4


class RowsDigest:
    """A digest that grows with each lot of rows; rows that were added before are passed over."""

    def __init__(self) -> None:
        self._records = hashlib.sha256()
        self._refused = hashlib.sha256()
        self._end = 0

    def add(self, frames: Frames, end: int) -> None:
        """Add the rows up to `end`, in order."""
        known = int(np.searchsorted(frames.rows, self._end))
        if known < len(frames.rows):
            lengths = frames.lengths[known:]
            ends = frames.starts[known:] + lengths
            data = np.frombuffer(frames.data, np.uint8)
            sums = data[ends[:, None] + np.arange(_CRC_BYTES)]
            columns = (lengths.astype("<u8").view(np.uint8).reshape(-1, 8), sums)
            self._records.update(np.concatenate(columns, axis=1).tobytes())
        for refused in frames.refused:
            if refused.row >= self._end:
                self._refused.update(b"%d %d\n" % (refused.row, len(refused.content)))
                self._refused.update(refused.content)
        self._end = max(self._end, end)

    def hexdigest(self) -> str:
        """Return the digest of all rows so far."""
        both = self._records.digest() + self._refused.digest()
        return hashlib.sha256(both).hexdigest()


def rows_digest(source: RecordSource, schema: Schema) -> str:
    """Read all rows of a source and return their digest, as an append with this schema has it."""
    digest = RowsDigest()
    for chunk in source.chunks(schema):
        digest.add(chunk.frames(), chunk.end)
    return digest.hexdigest()
