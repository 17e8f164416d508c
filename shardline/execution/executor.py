"""Executors that run the shard tasks of an operation, with retries and progress.

An operation plans its tasks as plain data. It passes them to an executor together with the function
that runs a task. `ThreadExecutor` runs them on one machine and can be cancelled. A cluster executor
implements the same `run` and ships tasks and function to its nodes. Neither holds state of this
process, except in data that the caller provided.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from shardline.errors import CancelledError, StorageError
from shardline.execution.threads import divide_workers, run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MAX_TRIES = 4
_FIRST_PAUSE = 0.5
_MOMENT = 0.1


class ShardTask(Protocol):
    """Attributes of a task that an executor needs."""

    @property
    def step(self) -> str:
        """Step of the operation that the task belongs to, such as "appending"."""
        ...

    @property
    def label(self) -> str:
        """Display label: the file that the task reads."""
        ...

    @property
    def size(self) -> int | None:
        """Number of bytes to read, or None if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a task: `done` of `total` bytes read, and records produced so far."""

    step: str
    task: str
    done: int
    total: int | None
    records: int


ProgressListener: TypeAlias = "Callable[[Progress], None]"
Task = TypeVar("Task", bound=ShardTask)
Result = TypeVar("Result")


class TaskContext(Protocol):
    """Interface of a running task to its executor."""

    @property
    def workers(self) -> int:
        """Number of threads the task may use."""
        ...

    def report(self, done: int, records: int) -> None:
        """Report progress. Raises CancelledError if the task must stop."""
        ...


class Executor(Protocol):
    """Strategy for running tasks."""

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: ProgressListener | None = None,
    ) -> Iterator[Result]:
        """Yield the result of each task in task order. The first error stops the rest."""
        ...


class CancellationToken:
    """Thread-safe request to cancel a run."""

    def __init__(self) -> None:
        self._event = Event()

    def cancel(self) -> None:
        """Request cancellation. Tasks stop at the next clean point."""
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Return True if cancellation was requested."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for cancellation. Returns True if it was requested."""
        return self._event.wait(seconds)


class ThreadExecutor:
    """Executor that runs tasks on threads of this process.

    A task that fails because storage does not answer is retried a few times, with growing pauses.
    `cancellation` stops all tasks.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cancellation: CancellationToken | None = None,
        max_tries: int = _MAX_TRIES,
        pause: float = _FIRST_PAUSE,
    ) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._cancellation = cancellation or CancellationToken()
        self._max_tries = max_tries
        self._pause = pause

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: ProgressListener | None = None,
    ) -> Iterator[Result]:
        """Yield the result of each task in task order. The first error stops the rest."""
        state = _RunState(self._cancellation)
        each = divide_workers(min(len(tasks), self.workers), self.workers)

        def run_one(task: Task) -> Result:
            context = _TaskContext(task, each, state, progress)
            try:
                context.go_on()
                return self._run_with_retries(work, task, context)
            except BaseException as error:
                state.fail(error)
                raise

        try:
            yield from run_tasks(run_one, tasks, workers=self.workers, stop=state.stop)
        except CancelledError:
            raise state.reason() from None

    def _run_with_retries(
        self, work: Callable[[Task, TaskContext], Result], task: Task, context: _TaskContext
    ) -> Result:
        for tried in range(1, self._max_tries):
            try:
                return work(task, context)
            except StorageError as error:
                if not error.transient:
                    raise
                context.pause(self._pause * 2 ** (tried - 1))
        return work(task, context)


class _RunState:
    """Shared state of a run: the stop flag and the first error."""

    def __init__(self, cancellation: CancellationToken) -> None:
        self._cancellation = cancellation
        self._stopped = CancellationToken()
        self._first: BaseException | None = None
        self._lock = Lock()

    @property
    def ended(self) -> bool:
        return self._stopped.is_requested or self._cancellation.is_requested

    def stop(self) -> None:
        self._stopped.cancel()

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, but return shortly after the run ends."""
        end = monotonic() + seconds
        while not self.ended and (left := end - monotonic()) > 0:
            self._cancellation.wait(min(left, _MOMENT))

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if self._first is None and not isinstance(error, CancelledError):
                self._first = error
        self.stop()

    def reason(self) -> BaseException:
        """Return the first error, or CancelledError if no task failed."""
        return self._first or CancelledError("cancelled")


class _TaskContext:
    def __init__(
        self, task: ShardTask, workers: int, state: _RunState, progress: ProgressListener | None
    ) -> None:
        self.workers = workers
        self._task = task
        self._state = state
        self._progress = progress

    def report(self, done: int, records: int) -> None:
        self.go_on()
        if self._progress is not None:
            task = self._task
            self._progress(Progress(task.step, task.label, done, task.size, records))

    def go_on(self) -> None:
        """Raise CancelledError if the run has ended."""
        if self._state.ended:
            raise CancelledError("cancelled: another task failed, or a stop was requested")

    def pause(self, seconds: float) -> None:
        self._state.wait(seconds)
        self.go_on()
