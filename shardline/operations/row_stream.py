"""The records of a source in order, of which each shard takes as many as fit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from shardline.kernel.types import HEADER_BYTES
from shardline.sources import EncodedRows
from shardline.tfrecord.compression import get_frame_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.kernel.types import IntArray
    from shardline.operations.shard_writer import OpenShard
    from shardline.schema.schema import Schema
    from shardline.sources import RecordSource


_ROWS_AT_ONCE = 64 * 1024


class RowStream:
    """Frames as `open_at` gives them from a row on, with what a shard left for the next one.

    Each comes with the number of the row behind it.
    """

    def __init__(self, open_at: Callable[[int], Iterator[tuple[EncodedRows, int]]]) -> None:
        self._open_at = open_at
        self._frames: Iterator[tuple[EncodedRows, int]] | None = None
        self._left: tuple[EncodedRows, int] | None = None
        self._row = -1  # at which it stands; below 0 in the middle of a part

    def seek(self, row: int) -> None:
        """Go on at a row."""
        if row != self._row:
            self.close()
            self._frames, self._left, self._row = self._open_at(row), None, row

    def close(self) -> None:
        """Stop reading."""
        if self._frames is not None:
            close = getattr(self._frames, "close", None)
            if close is not None:
                close()
        self._frames = self._left = None

    def fill(self, part: OpenShard, target: int | None) -> bool:
        """Put records into a part until it is full; says whether the source ended with it."""
        self._row = -1
        first, runs = part.end, RowRuns()
        last = True
        while last and (taken := self._take()) is not None:
            frames, end = taken
            count = _add_until_full(part, frames, target) if len(frames.starts) else 0
            runs.add(frames.rows[:count])
            if count < len(frames.starts):
                frames, tail = split_frames(frames, count)
                self._left = (tail, end)
                end = self._row = int(tail.rows[0])
                last = False
            _quarantine_rows(part, frames)
            part.end = end
        if not part.counts(first):
            for rows in runs.rows():
                part.come_from(rows)
        return last

    def _take(self) -> tuple[EncodedRows, int] | None:
        if self._left is not None:
            taken, self._left = self._left, None
            return taken
        return None if self._frames is None else next(self._frames, None)


class RowRuns:
    """Numbers that ascend, as runs without a gap."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []

    def add(self, rows: IntArray) -> None:
        """Put numbers behind the others."""
        if not len(rows):
            return
        cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
        for start, end in pairwise(cuts):
            first, count = int(rows[start]), end - start
            if self._runs and sum(self._runs[-1]) == first:
                self._runs[-1] = (self._runs[-1][0], self._runs[-1][1] + count)
            else:
                self._runs.append((first, count))

    def rows(self) -> Iterator[IntArray]:
        """All of them, some at a time."""
        for first, count in self._runs:
            for start in range(first, first + count, _ROWS_AT_ONCE):
                yield np.arange(start, min(start + _ROWS_AT_ONCE, first + count))


def _quarantine_rows(part: OpenShard, frames: EncodedRows) -> None:
    for refused in frames.refused:
        part.refuse(refused)


def _add_until_full(part: OpenShard, frames: EncodedRows, target: int | None) -> int:
    """Add as many of the records as fit, and say how many."""
    ends = get_frame_ends(frames.starts, frames.lengths)
    data = memoryview(frames.data)
    added, offset = 0, 0
    while added < len(ends):
        count = part.shard.fitting(ends[added:] - offset, target)
        if not count:
            break
        end = int(ends[added + count - 1])
        piece = slice(added, added + count)
        part.shard.add(data[offset:end], frames.starts[piece] - offset, frames.lengths[piece])
        added, offset = added + count, end
    return added


def split_frames(frames: EncodedRows, count: int) -> tuple[EncodedRows, EncodedRows]:
    """The frames before a record, and from it on; refused rows go where they stood."""
    row = int(frames.rows[count])
    offset = int(frames.starts[count]) - HEADER_BYTES
    before = tuple(refused for refused in frames.refused if refused.row < row)
    behind = frames.refused[len(before) :]
    head = EncodedRows(
        memoryview(frames.data)[:offset],
        frames.starts[:count],
        frames.lengths[:count],
        frames.rows[:count],
        before,
    )
    tail = replace(
        frames,
        data=memoryview(frames.data)[offset:],
        starts=frames.starts[count:] - offset,
        lengths=frames.lengths[count:],
        rows=frames.rows[count:],
        refused=behind,
    )
    return head, tail


_CRC_BYTES = 4


class RowsDigest:
    """A digest that grows with each lot of rows; rows that were added before are passed over."""

    def __init__(self) -> None:
        self._records = hashlib.sha256()
        self._refused = hashlib.sha256()
        self._end = 0

    def add(self, frames: EncodedRows, end: int) -> None:
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


def digest_rows(source: RecordSource, schema: Schema) -> str:
    """Read all rows of a source and return their digest, as an append with this schema has it."""
    digest = RowsDigest()
    for chunk in source.chunks(schema):
        digest.add(chunk.frames(), chunk.end)
    return digest.hexdigest()
