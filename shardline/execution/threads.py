"""Run independent tasks on threads. The kernel and file IO release the GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

_TURN_SECONDS = 0.2
_AHEAD = 2  # tasks started per worker before the oldest result is taken
_PREFETCHED_ITEMS = 2  # items of a stream that are read before its turn

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = TypeVar("Item")
Stream = TypeVar("Stream")


def run_tasks(
    run: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    workers: int | None = None,
    stop: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """Yield the result of each task in task order. The first error stops the rest.

    Only a few tasks start ahead of the awaited result, so memory does not grow with the number of
    tasks. Started tasks are always awaited. `stop` is called first, so that they end early.
    """
    count = workers or os.cpu_count() or 1
    if isinstance(tasks, Sized):
        count = min(count, len(tasks))
    if count <= 1:
        yield from map(run, tasks)
        return
    with ThreadPoolExecutor(count, thread_name_prefix="shardline") as pool:
        begun: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                begun.append(pool.submit(run, task))
                if len(begun) > _AHEAD * count:
                    yield wait_for_result(begun.popleft())
            while begun:
                yield wait_for_result(begun.popleft())
        finally:
            if stop is not None:
                stop()
            pool.shutdown(wait=True, cancel_futures=True)


def map_streams(
    streams: Sequence[Stream],
    open_items: Callable[[Stream], Generator[Item, None, None]],
    work: Callable[[Stream, Item], Result],
    *,
    copy: Callable[[Item], Item],
    threads: int | None = None,
) -> Iterator[Result]:
    """Apply `work` to every item of every stream and yield the results in order.

    Errors of reading or of `work` are raised after the results of all items before them. An item
    is valid until the next one is read: `copy` returns one that stays valid during `work`.
    """
    count = threads or os.cpu_count() or 1
    if count == 1:
        for stream in streams:
            with closing(open_items(stream)) as items:
                for item in items:
                    yield work(stream, item)
        return
    lanes: deque[_Lane[Item, Result]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="shardline") as pool:
        try:
            for stream in streams:
                lanes.append(_Lane(pool, open_items(stream), copy, partial(work, stream)))
                if len(lanes) > count:
                    yield from lanes[0].results(count + 1)
                    lanes.popleft()
            while lanes:
                yield from lanes[0].results(count + 1)
                lanes.popleft()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for lane in lanes:
                lane.items.close()


class _Lane(Generic[Item, Result]):
    """Stream with started tasks whose results have not been taken yet."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        items: Generator[Item, None, None],
        copy: Callable[[Item], Item],
        work: Callable[[Item], Result],
    ) -> None:
        self.items = items
        self._pool = pool
        self._copy = copy
        self._work = work
        self._lock = Lock()
        self._room = _PREFETCHED_ITEMS
        self._started: deque[Future[Result | None]] = deque()
        self._is_waiting = False
        self._start_next()

    def results(self, room: int) -> Iterator[Result]:
        """Yield the results in order. More tasks may run now that it is the turn of the stream."""
        self._room = room
        while True:
            # A task starts the next task before it ends, so a finished task always has a successor.
            # Without room for it, the successor is started here.
            result = self._started[0].result()
            with self._lock:
                self._started.popleft()
                is_waiting = self._is_waiting
            if result is None:
                return
            if is_waiting:
                self._start_next()
            yield result

    def _start_next(self) -> None:
        """Start the next task of the stream, unless it has too many untaken results."""
        with self._lock:
            self._is_waiting = len(self._started) >= self._room
            if not self._is_waiting:
                self._started.append(self._pool.submit(self._step))

    def _step(self) -> Result | None:
        for item in self.items:
            own = self._copy(item)
            self._start_next()
            return self._work(own)
        return None


def wait_for_result(future: Future[Result]) -> Result:
    """Return the result of a future, waiting in short intervals.

    An interrupt that arrives just before a wait is noticed only when the wait ends.
    """
    while not future.done():
        wait([future], _TURN_SECONDS)
    return future.result()


def divide_workers(tasks: int, workers: int | None = None) -> int:
    """Return the number of workers per task when all tasks run in parallel."""
    return max(1, (workers or os.cpu_count() or 1) // max(tasks, 1))


def share_stream(items: Iterator[Item], count: int) -> list[Iterator[Item]]:
    """Return `count` iterators over the same items, for threads of their own.

    The items are read once.
    """
    if count == 1:
        return [items]
    lock = Lock()
    lanes: list[deque[Item]] = [deque() for _ in range(count)]

    def lane(own: deque[Item]) -> Iterator[Item]:
        while True:
            with lock:
                if not own:
                    for item in items:
                        for each in lanes:
                            each.append(item)
                        break
                    else:
                        return
                item = own.popleft()
            yield item

    return [lane(own) for own in lanes]


def prefetch(items: Iterator[Item], depth: int = 3) -> Iterator[Item]:
    """Yield the same items, taken ahead by a separate thread while a caller uses them."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="shardline-ahead") as pool:
        begun = deque(pool.submit(next, items, end) for _ in range(depth))
        try:
            while (item := wait_for_result(begun.popleft())) is not end:
                begun.append(pool.submit(next, items, end))
                yield item  # type: ignore[misc] # it is not the end
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
