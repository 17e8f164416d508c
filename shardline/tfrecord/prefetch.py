"""Read blocks of several files ahead of the consumer, in order."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from shardline.tfrecord.record_block import RecordBlock


_BEGUN = 2
"""Number of blocks of a file that are read before its turn."""

File = TypeVar("File")
Result = TypeVar("Result")


def prefetch_blocks(
    files: Sequence[File],
    blocks_of: Callable[[File], Generator[RecordBlock, None, None]],
    work: Callable[[File, RecordBlock], Result],
    *,
    threads: int | None = None,
) -> Iterator[Result]:
    """Apply `work` to every block of every file and yield the results in order.

    Errors of reading or of `work` are raised after the results of all blocks before them. `work`
    must not keep the block.
    """
    count = threads or os.cpu_count() or 1
    if count == 1:
        for file in files:
            with closing(blocks_of(file)) as blocks:
                for block in blocks:
                    yield work(file, block)
        return
    lanes: deque[_Lane[File, Result]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="shardline") as pool:
        try:
            for file in files:
                lanes.append(_Lane(pool, file, blocks_of(file), work))
                if len(lanes) > count:
                    yield from lanes[0].results(count + 1)
                    lanes.popleft()
            while lanes:
                yield from lanes[0].results(count + 1)
                lanes.popleft()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for lane in lanes:
                lane.blocks.close()


class _Lane(Generic[File, Result]):
    """File with started tasks whose results have not been taken yet."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        file: File,
        blocks: Generator[RecordBlock, None, None],
        work: Callable[[File, RecordBlock], Result],
    ) -> None:
        self.blocks = blocks
        self._pool = pool
        self._file = file
        self._work = work
        self._lock = Lock()
        self._room = _BEGUN
        self._begun: deque[Future[Result | None]] = deque()
        self._waits = False
        self._hand_on()

    def results(self, room: int) -> Iterator[Result]:
        """Yield the results in order. More tasks may run now that it is the file's turn."""
        self._room = room
        while True:
            # A task starts the next task before it ends, so a finished task always has a successor.
            # Without room for it, the successor is started here.
            result = self._begun[0].result()
            with self._lock:
                self._begun.popleft()
                waits = self._waits
            if result is None:
                return
            if waits:
                self._hand_on()
            yield result

    def _hand_on(self) -> None:
        """Start the next task of the file, unless it has too many untaken results."""
        with self._lock:
            self._waits = len(self._begun) >= self._room
            if not self._waits:
                self._begun.append(self._pool.submit(self._step))

    def _step(self) -> Result | None:
        block = next(self.blocks, None)
        if block is None:
            return None
        kept = replace(block, data=memoryview(bytes(block.data)))
        self._hand_on()
        return self._work(self._file, kept)
