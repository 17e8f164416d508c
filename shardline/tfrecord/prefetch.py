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
"""How many blocks of a file are read before its turn."""

File = TypeVar("File")
Result = TypeVar("Result")


def prefetch_blocks(
    files: Sequence[File],
    blocks_of: Callable[[File], Generator[RecordBlock, None, None]],
    work: Callable[[File, RecordBlock], Result],
    *,
    threads: int | None = None,
) -> Iterator[Result]:
    """Do `work` on every block of every file and give the results in order.

    What reading or `work` raises comes behind the results of all blocks before it. `work` must
    not keep the block.
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
    """One file: its tasks that were begun and whose results were not taken yet."""

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
        """The results in order; now that it is this file's turn, with more room."""
        self._room = room
        while True:
            # A task hands on before it ends, so behind the one that ends there always is another,
            # unless there was no room: then it is begun here.
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
        """Let the next task have the file, if there is room for what it will make."""
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
