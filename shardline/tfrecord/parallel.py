"""Parallel work on the blocks of one plain file, with the results in order.

A TFRecord file has no markers to start at. Each worker takes a stretch of the file, searches for
its first intact record, and continues from there. That record may be wrong, since a record can hold
whole frames in its data. A stretch therefore counts only if the stretch before it ended exactly
where it began. Otherwise, or after an error in it, the stretch is read again in order. Results and
errors are always those of reading the file from front to back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from shardline.errors import ShardlineError
from shardline.execution.threads import run_tasks
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import BLOCK_BYTES, DEFAULT_LIMITS, Limits, RecordFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.tfrecord.input_file import Source
    from shardline.tfrecord.record_block import RecordBlock

STRETCH_BYTES = 16 * 1024 * 1024

Result = TypeVar("Result")


def map_blocks(
    source: Source,
    work: Callable[[RecordBlock], Result],
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    block_bytes: int = BLOCK_BYTES,
    stretch_bytes: int = STRETCH_BYTES,
) -> Iterator[Result]:
    """Apply `work` to every block of a file and yield the results in order.

    Raises CorruptFileError at the first corruption, after the results of all blocks before it.
    Errors of `work` are raised in the same order. `work` may run more than once for the same
    records, and must not keep the block.
    """
    workers = workers or os.cpu_count() or 1
    with RecordFile(source, limits=limits, block_bytes=block_bytes) as file:
        if (
            workers == 1
            or file.compression is not Compression.NONE
            or file.stream.size < 2 * stretch_bytes
        ):
            for block in file.blocks():
                yield work(block)
                if progress is not None:
                    progress(file.stream.position)
            return
        size = file.stream.size

    def do_stretch(start: int) -> _Stretch[Result]:
        return _do_stretch(file.reopen, work, start, min(start + stretch_bytes, size))

    ordered = _Ordered(file.reopen, work)
    for stretch in run_tasks(do_stretch, range(0, size, stretch_bytes), workers=workers):
        yield from ordered.take(stretch)
        if progress is not None:
            progress(ordered.offset)


@dataclass(slots=True)
class _Stretch(Generic[Result]):
    """Result of one worker: the frames from `first` up to `next`, which begin before `end`."""

    end: int
    first: int = -1
    next: int = -1
    records: int = 0
    results: list[Result] = field(default_factory=list)


def _do_stretch(
    open_file: Callable[[], RecordFile], work: Callable[[RecordBlock], Result], start: int, end: int
) -> _Stretch[Result]:
    stretch: _Stretch[Result] = _Stretch(end)
    try:
        with open_file() as file:
            for block in file.blocks_between(start, end):
                if stretch.first < 0:
                    stretch.first = block.offset
                stretch.results.append(work(block))
                stretch.records += len(block.starts)
                stretch.next = block.offset + len(block.data)
    except ShardlineError:
        stretch.first = -1
    return stretch


class _Ordered(Generic[Result]):
    """Stretches in file order. The file is known to be intact up to `offset`."""

    def __init__(
        self, open_file: Callable[[], RecordFile], work: Callable[[RecordBlock], Result]
    ) -> None:
        self._open_file = open_file
        self._work = work
        self._record = 0
        self.offset = 0

    def take(self, stretch: _Stretch[Result]) -> Iterator[Result]:
        if self.offset >= stretch.end:
            return
        if stretch.first == self.offset:
            yield from stretch.results
            self.offset = stretch.next
            self._record += stretch.records
            return
        with self._open_file() as file:
            for block in file.blocks_between(
                self.offset, stretch.end, record=self._record, search=False
            ):
                yield self._work(block)
                self._record += len(block.starts)
                self.offset = block.offset + len(block.data)
