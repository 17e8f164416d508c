"""Build side: the right records of a combination, in memory or in a spool file.

A spool is read in windows, once for each record of the left. That costs no more than writing their
pairs.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardline.kernel.types import Insides
from shardline.pairing.pair_side import RecordPart, join_parts
from shardline.storage.temporary_files import Spool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from shardline.kernel.types import Buffer, IntArray

IN_MEMORY_BYTES = 32 * 1024 * 1024
WINDOW_BYTES = 2 * 1024 * 1024
_OFFSET_BYTES = 32
"""Offsets of the features of a record: two starts and two lengths."""
_CLOSE_BYTES = 4096
"""Records of a spool with at most this distance are read at once."""


class BuildWindow(Protocol):
    """Consecutive records of the right, which may have to be read."""

    @property
    def first(self) -> int:
        """Number of the first record."""
        ...

    @property
    def records(self) -> int:
        """Number of records."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of features."""
        ...

    def load(self) -> RecordPart:
        """Return the records."""
        ...


@dataclass(frozen=True, slots=True)
class _SpooledWindow:
    """Records in a spool: at `offset` a table of their offsets, then `size` bytes of them."""

    spool: Spool
    offset: int
    size: int
    first: int
    records: int
    feature_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of features."""
        return self.feature_bytes

    def load(self) -> RecordPart:
        """Read the records."""
        table = _OFFSET_BYTES * self.records
        data = self.spool.read(self.offset, table + self.size)
        starts, lengths = self._cut(data[:table])
        return RecordPart(Insides(memoryview(data)[table:], starts, lengths), self.first)

    def offsets(self) -> tuple[IntArray, IntArray]:
        """Return the starts and lengths of the features in the spool."""
        table = _OFFSET_BYTES * self.records
        starts, lengths = self._cut(self.spool.read(self.offset, table))
        return starts + (self.offset + table), lengths

    def _cut(self, table: Buffer) -> tuple[IntArray, IntArray]:
        numbers = np.frombuffer(table, np.int64).reshape(2, 2, self.records)
        return numbers[0], numbers[1]


@dataclass(frozen=True)
class BuildSide:
    """Records that can be read repeatedly. In memory, they are a single window."""

    windows: Sequence[BuildWindow]
    _spool: Spool | None = field(default=None, repr=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(window.records for window in self.windows)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that they take."""
        return 0 if self._spool is not None else sum(map(_get_memory_bytes, self._parts))

    @property
    def _parts(self) -> list[RecordPart]:
        return [window.load() for window in self.windows]

    @cached_property
    def _offsets(self) -> tuple[IntArray, IntArray]:
        """Starts and lengths in the spool, 32 bytes per record: only to select records."""
        windows = [window for window in self.windows if isinstance(window, _SpooledWindow)]
        starts, lengths = zip(*(window.offsets() for window in windows), strict=True)
        return np.concatenate(starts, axis=1), np.concatenate(lengths, axis=1)

    def sizes_of(self, rows: IntArray) -> IntArray:
        """Return the bytes of features of each row, 0 for the row -1."""
        if self._spool is None:
            return self._whole.sizes_of(rows)
        sizes = np.zeros(len(rows), np.int64)
        present = rows >= 0
        sizes[present] = self._offsets[1][:, rows[present]].sum(axis=0)
        return sizes

    def gather(self, rows: IntArray) -> tuple[RecordPart, IntArray]:
        """Return a part that has these rows, and their positions in it; -1 stays."""
        if self._spool is None:
            return self._whole, rows
        unique, positions = np.unique(rows, return_inverse=True)
        absent = int(len(unique) > 0 and unique[0] < 0)
        return self._read(self._spool, unique[absent:]), positions.reshape(-1) - absent

    @property
    def _whole(self) -> RecordPart:
        return self._parts[0] if self.windows else join_parts((), 0)

    def _read(self, spool: Spool, rows: IntArray) -> RecordPart:
        starts, lengths = (np.ascontiguousarray(table[:, rows]) for table in self._offsets)
        ends = starts + lengths
        # The features of a record are in up to two places; a missing one has length 0.
        low = np.where(lengths > 0, starts, starts.max(initial=0) + 1).min(axis=0)
        high = np.where(lengths > 0, ends, 0).max(axis=0)
        low = np.minimum(low, high)
        data: list[bytes] = []
        moved, size = np.zeros(len(rows), np.int64), 0
        breaks = np.flatnonzero(low[1:] - high[:-1] > _CLOSE_BYTES) + 1
        for run in np.split(np.arange(len(rows)), breaks) if len(rows) else []:
            begin, end = int(low[run].min()), int(high[run].max())
            data.append(spool.read(begin, end - begin))
            moved[run] = size - begin
            size += end - begin
        starts = np.where(lengths > 0, starts + moved, 0)
        return RecordPart(Insides(b"".join(data), starts, lengths), 0)


@contextmanager
def open_build_side(
    parts: Iterable[RecordPart],
    folder: Path | None,
    *,
    first: int = 0,
    memory_bytes: int | None = None,
) -> Iterator[BuildSide]:
    """Read records, the first of which has the number `first`.

    Up to `memory_bytes` stay in memory. If there are more, all are in a spool file in `folder`.
    """
    limit = IN_MEMORY_BYTES if memory_bytes is None else memory_bytes
    loaded: deque[RecordPart] = deque()
    size = 0
    remaining = iter(parts)
    for part in remaining:
        loaded.append(part)
        size += _get_memory_bytes(part)
        if size > limit:
            with Spool(folder) as spool:
                yield BuildSide(list(_spool_windows(spool, loaded, remaining, first)), spool)
            return
    yield BuildSide([join_parts(loaded, first)] if loaded else [])


def _get_memory_bytes(part: RecordPart) -> int:
    return len(memoryview(part.insides.data)) + _OFFSET_BYTES * part.records


def _spool_windows(
    spool: Spool, loaded: deque[RecordPart], remaining: Iterator[RecordPart], first: int
) -> Iterator[_SpooledWindow]:
    """Write all parts to the spool, in windows of about the same size."""
    offset = 0
    for window in _iter_windows(loaded, remaining):
        part = join_parts(window, first)
        data = memoryview(part.insides.data)
        spool.write(part.insides.starts.tobytes() + part.insides.lengths.tobytes())
        spool.write(data)
        yield _SpooledWindow(spool, offset, len(data), first, part.records, part.bytes)
        offset += _OFFSET_BYTES * part.records + len(data)
        first += part.records


def _iter_windows(
    loaded: deque[RecordPart], remaining: Iterator[RecordPart]
) -> Iterator[list[RecordPart]]:
    window: list[RecordPart] = []
    while (part := loaded.popleft() if loaded else next(remaining, None)) is not None:
        window.append(part)
        if sum(map(_get_memory_bytes, window)) >= WINDOW_BYTES:
            yield window
            window = []
    if window:
        yield window
