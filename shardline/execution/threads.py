"""Run independent tasks on threads: the kernel and file IO release the GIL."""

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
_AHEAD = 2  # tasks begun per worker before the oldest result is taken

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
    """Give each task's result in the order of the tasks; the first error stops the rest.

    Only a few tasks are begun ahead of the result that is waited for, so memory does not grow
    with their number. Those that have begun are waited for in any case: `stop` is called before,
    to hurry them.
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
    """What a task gave, waited for in short turns.

    An interrupt that comes just before a wait begins is noticed only when the wait ends.
    """
    while not future.done():
        wait([future], _TURN_SECONDS)
    return future.result()


def divide_workers(tasks: int, workers: int | None = None) -> int:
    """How many workers each of these tasks can have to itself when all run side by side."""
    return max(1, (workers or os.cpu_count() or 1) // max(tasks, 1))


def share_stream(items: Iterator[Item], count: int) -> list[Iterator[Item]]:
    """The same items for each of them, read once."""
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
    """The same items, taken by a thread of its own while those before them are worked on."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="shardline-ahead") as pool:
        begun = deque(pool.submit(next, items, end) for _ in range(depth))
        try:
            while (item := wait_for_result(begun.popleft())) is not end:
                begun.append(pool.submit(next, items, end))
                yield item  # type: ignore[misc] # it is not the end
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
