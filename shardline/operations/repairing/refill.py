"""What a shard is filled with that is made anew: pieces of other shards, or rows of a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import SourceError
from shardline.operations.rebuild import Copying
from shardline.operations.row_stream import cut_frames
from shardline.operations.shard_origin import SourceRows

if TYPE_CHECKING:
    from shardline.execution.executor import Running
    from shardline.operations.rebuild_plan import Slice
    from shardline.operations.repairing.old_places import OldPlaces
    from shardline.operations.shards import Filling, Part
    from shardline.schema.schema import Schema
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class PieceFilling:
    """Fills a shard with what it was rebuilt from, or with the rows that this was made of."""

    store: Store
    pieces: tuple[Slice | SourceRows, ...]
    schema: Schema
    limits: Limits
    running: Running

    def begin(self) -> None:
        """Every attempt begins with the first piece."""

    def fill(self, part: Part) -> bool:
        """Copy them one behind the other."""
        for piece in self.pieces:
            filling: Filling
            if isinstance(piece, SourceRows):
                filling = RowFilling(piece, self.schema, self.running)
            else:
                filling = Copying(self.store, (piece,), self.limits, self.running)
            filling.fill(part)
        return True


@dataclass(frozen=True, slots=True)
class RowFilling:
    """Fills a shard with rows of a source. Rows that are refused go to quarantine, or are passed.

    Those of the shard's own source were put into quarantine when it landed.
    """

    rows: SourceRows
    schema: Schema
    running: Running
    keep_refused: bool = False
    places: OldPlaces | None = None

    def begin(self) -> None:
        """Every attempt begins with the first row."""

    def fill(self, part: Part) -> bool:
        """Add the rows; SourceError if they are not as many as they were."""
        records = 0
        for chunk in self.rows.source.chunks(self.schema, self.rows.first):
            frames = chunk.frames()
            end = self.rows.end
            if end is not None and len(frames.rows) and frames.rows[-1] >= end:
                frames, _ = cut_frames(frames, int(np.searchsorted(frames.rows, end)))
            if len(frames.starts):
                part.shard.add(frames.data, frames.starts, frames.lengths)
                if self.places is not None:
                    part.come_from(self.places.numbers(chunk, frames))
            for refused in frames.refused if self.keep_refused else ():
                part.refuse(refused)
            records += len(frames.starts)
            part.end = chunk.end
            self.running.tell(chunk.position, records)
            if end is not None and chunk.end >= end:
                break
        if self.rows.records not in {None, records}:
            raise SourceError(
                f"{self.rows.source.shown}: gives other records than before",
                code="source-changed",
                path=self.rows.source.shown,
            )
        return True
