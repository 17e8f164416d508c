"""Groups of small tasks. Scheduling a task costs more than running a small one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from shardline.execution.executor import ShardTask, TaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardline.execution.executor import Executor, ProgressListener

_SMALL_TASK_BYTES = 64 * 1024
"""Largest number of bytes that a small task reads."""
_FEWEST_TASKS = 16
_MOST_TASKS = 256
_MOST_BYTES = 4 * 1024 * 1024

Task = TypeVar("Task", bound=ShardTask)
Result = TypeVar("Result")
Together: TypeAlias = "Callable[[Sequence[Task], TaskContext], Sequence[Result | None]]"


@dataclass(frozen=True, slots=True)
class TaskGroup(Generic[Task]):
    """Consecutive tasks that an executor runs as a single task."""

    tasks: Sequence[Task]
    sizes: Sequence[int | None]

    @property
    def step(self) -> str:
        """Step that all tasks of the group belong to."""
        return self.tasks[0].step

    @property
    def label(self) -> str:
        """Label of the first task, which no other group has."""
        return self.tasks[0].label

    @property
    def size(self) -> int | None:
        """Total number of bytes to read, or None if unknown."""
        return None if None in self.sizes else sum(size or 0 for size in self.sizes)


def group_small_tasks(sizes: Sequence[int | None]) -> Iterator[slice]:
    """Yield slices that group consecutive small tasks. Larger tasks stay separate.

    A small number of tasks is not grouped, so that they can run in parallel.
    """
    most = _MOST_TASKS if len(sizes) >= _FEWEST_TASKS else 1
    first = total = 0
    for index, size in enumerate(sizes):
        is_small = size is not None and size <= _SMALL_TASK_BYTES
        total += size or 0
        if index > first and (not is_small or index - first == most or total > _MOST_BYTES):
            yield slice(first, index)
            first, total = index, size or 0
        if not is_small:
            yield slice(first, index + 1)
            first, total = index + 1, 0
    if first < len(sizes):
        yield slice(first, len(sizes))


def run_grouped(
    executor: Executor,
    work: Callable[[Task, TaskContext], Result],
    tasks: Sequence[Task],
    progress: ProgressListener | None = None,
    *,
    together: Together[Task, Result] | None = None,
) -> Iterator[Result]:
    """Yield the result of each task in task order, as `Executor.run` does.

    `together` runs several tasks at once. It returns None for each task that it leaves to `work`.
    """
    sizes = [task.size for task in tasks]
    groups = [TaskGroup(tasks[cut], sizes[cut]) for cut in group_small_tasks(sizes)]
    for results in executor.run(partial(_run_group, work, together), groups, progress):
        yield from results


def _run_group(
    work: Callable[[Task, TaskContext], Result],
    together: Together[Task, Result] | None,
    group: TaskGroup[Task],
    running: TaskContext,
) -> list[Result]:
    tasks = group.tasks
    if len(tasks) == 1:
        return [work(tasks[0], running)]
    share = _GroupContext(running)
    done: Sequence[Result | None] = [None] * len(tasks)
    if together is not None:
        done = together(tasks, share)
        share.end_task()
    results = []
    for task, result in zip(tasks, done, strict=True):
        if result is None:
            result = work(task, share)  # noqa: PLW2901 - the result of the same task
            share.end_task()
        results.append(result)
    return results


class _GroupContext:
    """Context of a task in a group. Adds its progress to that of the earlier tasks."""

    workers = 1

    def __init__(self, running: TaskContext) -> None:
        self._running = running
        self._done = self._records = 0
        self._last = (0, 0)

    def report(self, done: int, records: int) -> None:
        """Report progress. Raises CancelledError if the task must stop."""
        self._last = (done, records)
        self._running.report(self._done + done, self._records + records)

    def end_task(self) -> None:
        """Add the last reported progress of a task to the group."""
        self._done += self._last[0]
        self._records += self._last[1]
        self._last = (0, 0)
