"""Which number the records of a damaged shard had: by where they begin, as its index tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import IndexMismatchError
from shardline.kernel.types import HEADER_BYTES
from shardline.sidecars.row_map import NOTHING
from shardline.sources.base import Done
from shardline.sources.tfrecord import RecordChunk
from shardline.tfrecord.index import read_offsets

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.sources import Chunk, Frames
    from shardline.storage import Store


@dataclass(frozen=True, slots=True)
class OldPlaces:
    """Where the records of a plain shard began when it was whole.

    If the file is not as long as it was, bytes were cut out or put in, and what stands behind
    these moved: then a record is told only if counting, with one for each damage, agrees.
    """

    offsets: IntArray
    same_size: bool

    @classmethod
    def of(cls, store: Store, name: str, shard: Shard) -> OldPlaces | None:
        """Those of a shard; None if it is packed, or its index is lost."""
        info = store.info(name)
        if shard.compression != "none" or info is None:
            return None
        try:
            offsets = list(read_offsets(store, name, shard.bytes, shard.records, shard.sha256))
        except IndexMismatchError:
            return None
        return cls(np.concatenate(offsets)[: shard.records], info.size == shard.bytes)

    def numbers(self, chunk: Chunk, frames: Frames) -> IntArray:
        """The old numbers of records that were salvaged, -1 where that cannot be told."""
        read = chunk.of if isinstance(chunk, Done) else chunk
        if not isinstance(read, RecordChunk) or not len(self.offsets):
            return np.full(len(frames.rows), NOTHING, np.int64)
        held = read.records
        begins = held.starts[frames.rows - held.first] + (held.offset - HEADER_BYTES)
        places = np.minimum(np.searchsorted(self.offsets, begins), len(self.offsets) - 1)
        sure = self.same_size | (frames.rows == places)
        return np.where((self.offsets[places] == begins) & sure, places, NOTHING)
