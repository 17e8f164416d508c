"""Run independent tasks on threads. The kernel and file IO release the GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_TURN_SECONDS = 0.2
_AHEAD = 2  # tasks started per worker before the oldest result is taken

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = TypeVar("Item")


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
