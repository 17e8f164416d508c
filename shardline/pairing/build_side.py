"""The right side of a combination, taken apart once and held: in memory, or in a spool if large.

What is in the spool is read again in windows, for each record of the left: that costs at most as
much as the pairs that are made of it.
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
"""What tells where the features of a record lie: two starts and two lengths."""
_CLOSE_BYTES = 4096
"""Records of a spool that lie so close together are read in one go."""


class BuildWindow(Protocol):
    """Some records of the right, which may have to be read first."""

    @property
    def first(self) -> int:
        """The number of the first one."""
        ...

    @property
    def records(self) -> int:
        """How many there are."""
        ...

    @property
    def bytes(self) -> int:
        """How many bytes of features they have."""
        ...

    def load(self) -> RecordPart:
        """The records."""
        ...


@dataclass(frozen=True, slots=True)
class _SpooledWindow:
    """Records in a spool: from `offset` on what tells where they lie, then `size` bytes of them."""

    spool: Spool
    offset: int
    size: int
    first: int
    records: int
    feature_bytes: int

    @property
    def bytes(self) -> int:
        """How many bytes of features they have."""
        return self.feature_bytes

    def load(self) -> RecordPart:
        """Read them."""
        table = _OFFSET_BYTES * self.records
        data = self.spool.read(self.offset, table + self.size)
        starts, lengths = self._cut(data[:table])
        return RecordPart(Insides(memoryview(data)[table:], starts, lengths), self.first)

    def offsets(self) -> tuple[IntArray, IntArray]:
        """Where in the spool their features lie, and how long they are."""
        table = _OFFSET_BYTES * self.records
        starts, lengths = self._cut(self.spool.read(self.offset, table))
        return starts + (self.offset + table), lengths

    def _cut(self, table: Buffer) -> tuple[IntArray, IntArray]:
        numbers = np.frombuffer(table, np.int64).reshape(2, 2, self.records)
        return numbers[0], numbers[1]


@dataclass(frozen=True)
class BuildSide:
    """Records that can be asked for again and again. In memory they are one window."""

    windows: Sequence[BuildWindow]
    _spool: Spool | None = field(default=None, repr=False)

    @property
    def records(self) -> int:
        """How many there are."""
        return sum(window.records for window in self.windows)

    @property
    def memory_bytes(self) -> int:
        """How much memory they take."""
        return 0 if self._spool is not None else sum(map(_get_memory_bytes, self._parts))

    @property
    def _parts(self) -> list[RecordPart]:
        return [window.load() for window in self.windows]

    @cached_property
    def _offsets(self) -> tuple[IntArray, IntArray]:
        """Of all records in a spool; 32 bytes each, so only where records are chosen from it."""
        found = [window.offsets() for window in self.windows if isinstance(window, _SpooledWindow)]
        starts = np.concatenate([one[0] for one in found], axis=1)
        return starts, np.concatenate([one[1] for one in found], axis=1)

    def sizes_of(self, rows: IntArray) -> IntArray:
        """How many bytes of features each of these records has; the one -1 has none."""
        if self._spool is None:
            return self._whole.sizes_of(rows)
        found = np.zeros(len(rows), np.int64)
        there = rows >= 0
        found[there] = self._offsets[1][:, rows[there]].sum(axis=0)
        return found

    def gather(self, rows: IntArray) -> tuple[RecordPart, IntArray]:
        """A part that has these records, and their places in it; -1 stays."""
        if self._spool is None:
            return self._whole, rows
        wanted, places = np.unique(rows, return_inverse=True)
        absent = int(len(wanted) > 0 and wanted[0] < 0)
        return self._read(self._spool, wanted[absent:]), places.reshape(-1) - absent

    @property
    def _whole(self) -> RecordPart:
        return self._parts[0] if self.windows else join_parts((), 0)

    def _read(self, spool: Spool, rows: IntArray) -> RecordPart:
        starts, lengths = (np.ascontiguousarray(one[:, rows]) for one in self._offsets)
        ends = starts + lengths
        # The features of a record may lie in two places; one that is not there lies nowhere.
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
    parts: Iterable[RecordPart], folder: Path | None, *, first: int = 0, most: int | None = None
) -> Iterator[BuildSide]:
    """Hold records, the first of which has that number.

    Up to `most` bytes are held in memory, more in a spool in that folder.
    """
    most = IN_MEMORY_BYTES if most is None else most
    kept: deque[RecordPart] = deque()
    size = 0
    coming = iter(parts)
    for part in coming:
        kept.append(part)
        size += _get_memory_bytes(part)
        if size > most:
            with Spool(folder) as spool:
                yield BuildSide(list(_spool_windows(spool, kept, coming, first)), spool)
            return
    yield BuildSide([join_parts(kept, first)] if kept else [])


def _get_memory_bytes(part: RecordPart) -> int:
    return len(memoryview(part.insides.data)) + _OFFSET_BYTES * part.records


def _spool_windows(
    spool: Spool, kept: deque[RecordPart], coming: Iterator[RecordPart], first: int
) -> Iterator[_SpooledWindow]:
    """Put all parts into the spool, in windows of a size."""
    offset = 0
    for window in _iter_windows(kept, coming):
        part = join_parts(window, first)
        data = memoryview(part.insides.data)
        spool.write(part.insides.starts.tobytes() + part.insides.lengths.tobytes())
        spool.write(data)
        yield _SpooledWindow(spool, offset, len(data), first, part.records, part.bytes)
        offset += _OFFSET_BYTES * part.records + len(data)
        first += part.records


def _iter_windows(
    kept: deque[RecordPart], coming: Iterator[RecordPart]
) -> Iterator[list[RecordPart]]:
    window: list[RecordPart] = []
    while (part := kept.popleft() if kept else next(coming, None)) is not None:
        window.append(part)
        if sum(map(_get_memory_bytes, window)) >= WINDOW_BYTES:
            yield window
            window = []
    if window:
        yield window
