"""Progress of long steps in the log of their run: share, rates and remaining time."""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from time import monotonic
from typing import Protocol, TypeVar

from shardline.execution.executor import (
    Executor,
    Progress,
    ProgressListener,
    ShardTask,
    TaskContext,
    ThreadExecutor,
)
from shardline.text import format_bytes, format_count

_FIRST_SECONDS = 2.0
_INTERVAL_SECONDS = 10.0

Task = TypeVar("Task", bound="ShardTask")
Result = TypeVar("Result")


class LineLog(Protocol):
    """A destination of log lines, such as `context.log`."""

    def info(self, line: str, /) -> None:
        """Write a line."""
        ...


def create_log_listener(
    log: LineLog, *, clock: Callable[[], float] = monotonic
) -> ProgressListener:
    """Return a listener for one operation. It logs after 2 seconds, then every 10 seconds at most.

    The share is that of the tasks begun so far. For operations with many tasks, use
    `create_logging_executor`, which knows all tasks.
    """
    return _StepLog(log, clock).update


def create_logging_executor(
    log: LineLog, executor: Executor | None = None, *, clock: Callable[[], float] = monotonic
) -> Executor:
    """Return an executor for one operation that logs progress, as a share of all tasks."""
    return _LoggingExecutor(executor or ThreadExecutor(), _StepLog(log, clock))


class _LoggingExecutor:
    """An executor that knows all tasks of a step before they run."""

    def __init__(self, executor: Executor, step_log: "_StepLog") -> None:
        self._executor = executor
        self._step_log = step_log

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: "ProgressListener | None" = None,
    ) -> Iterator[Result]:
        """Yield the results in the order of the tasks."""
        if tasks:
            sizes = [task.size for task in tasks]
            known = sum(size or 0 for size in sizes)
            self._step_log.begin(tasks[0].step, None if None in sizes else known)

        def report_progress(update: Progress) -> None:
            self._step_log.update(update)
            if progress is not None:
                progress(update)

        yield from self._executor.run(work, tasks, report_progress)


class _StepLog:
    """The combined progress of the tasks of a step, which report from several threads."""

    def __init__(self, log: LineLog, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._lock = Lock()
        self._step = ""
        self._total: int | None = None
        self._known = False
        self._began = 0.0
        self._last: float | None = None
        self._tasks: dict[str, Progress] = {}

    def begin(self, step: str, total: int | None) -> None:
        """Begin a step whose tasks read `total` bytes, None if unknown."""
        with self._lock:
            self._begin(step)
            self._total, self._known = total, True

    def _begin(self, step: str) -> None:
        self._step, self._began, self._tasks = step, self._clock(), {}
        self._total, self._known = None, False

    def update(self, update: Progress) -> None:
        """Update the progress of a task, and log if a line is due."""
        with self._lock:
            if update.step != self._step:
                self._begin(update.step)
            self._tasks[update.task] = update
            now = self._clock()
            due = self._began + _FIRST_SECONDS
            if self._last is not None:
                due = max(due, self._last + _INTERVAL_SECONDS)
            if now < due:
                return
            self._last = now
            line = self._line(now - self._began)
        self._log.info(line)

    def _line(self, seconds: float) -> str:
        done = sum(task.done for task in self._tasks.values())
        rows = sum(task.records for task in self._tasks.values())
        total = self._total if self._known else self._begun()
        parts = [f"{self._step}: {_format_share(done, total)}"]
        if rows:
            parts.append(f"{format_count(rows, 'row')}, {rows / seconds:,.0f} rows/s")
        parts.append(f"{format_bytes(done / seconds)}/s")
        if total is not None and done:
            parts.append(f"about {_format_duration(seconds * max(total - done, 0) / done)} left")
        return ", ".join(parts)

    def _begun(self) -> int | None:
        totals = [task.total for task in self._tasks.values()]
        return None if None in totals else sum(total or 0 for total in totals)


def _format_share(done: int, total: int | None) -> str:
    if not total:
        return format_bytes(done)
    return f"{min(done / total, 1):.0%} of {format_bytes(total)}"


def _format_duration(seconds: float) -> str:
    """Return `42 s`, `12 min` or `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
