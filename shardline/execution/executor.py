"""Run the shard tasks of an operation: with retries, with progress, and so that it can be stopped.

An operation plans its tasks as plain data and hands them to an engine together with the one
function that does such a task. `Threads` is the engine of one machine. One for a cluster has the
same `run` and ships tasks and function to its nodes: they hold nothing that lives in this process,
except where the caller gave data that does.
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

_TRIES = 4
_FIRST_PAUSE = 0.5
_MOMENT = 0.1


class ShardTask(Protocol):
    """What an engine has to know of a task."""

    @property
    def step(self) -> str:
        """Which step of the operation it is a task of: "appending"."""
        ...

    @property
    def label(self) -> str:
        """What people call it: the file that it reads."""
        ...

    @property
    def size(self) -> int | None:
        """How many bytes it reads; None if that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is: `done` of `total` bytes read, and so many records made of them."""

    step: str
    task: str
    done: int
    total: int | None
    records: int


ProgressListener: TypeAlias = "Callable[[Progress], None]"
Task = TypeVar("Task", bound=ShardTask)
Result = TypeVar("Result")


class TaskContext(Protocol):
    """What a task that runs can ask and tell."""

    @property
    def workers(self) -> int:
        """How many threads it may use itself."""
        ...

    def tell(self, done: int, records: int) -> None:
        """Say how far it is. Raises CancelledError if it is to stop."""
        ...


class Executor(Protocol):
    """Runs tasks."""

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: ProgressListener | None = None,
    ) -> Iterator[Result]:
        """Give each task's result in the order of the tasks; the first error stops the rest."""
        ...


class CancellationToken:
    """A wish to stop, which can be told from any thread."""

    def __init__(self) -> None:
        self._event = Event()

    def cancel(self) -> None:
        """Stop as soon as it can be done cleanly."""
        self._event.set()

    @property
    def asked(self) -> bool:
        """Whether someone asked to stop."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, but no longer than until someone asks to stop; says whether someone did."""
        return self._event.wait(seconds)


class ThreadExecutor:
    """Runs tasks on threads of this process.

    A task that fails because storage does not answer is tried again, a few times and a little
    later each time. `cancellation` stops them all.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cancellation: CancellationToken | None = None,
        tries: int = _TRIES,
        pause: float = _FIRST_PAUSE,
    ) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._cancellation = cancellation or CancellationToken()
        self._tries = tries
        self._pause = pause

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: ProgressListener | None = None,
    ) -> Iterator[Result]:
        """Give each task's result in the order of the tasks; the first error stops the rest."""
        together = _RunState(self._cancellation)
        each = divide_workers(min(len(tasks), self.workers), self.workers)

        def run_one(task: Task) -> Result:
            running = _TaskContext(task, each, together, progress)
            try:
                running.go_on()
                return self._run_with_retries(work, task, running)
            except BaseException as error:
                together.fail(error)
                raise

        try:
            yield from run_tasks(run_one, tasks, workers=self.workers, stop=together.stop)
        except CancelledError:
            raise together.reason() from None

    def _run_with_retries(
        self, work: Callable[[Task, TaskContext], Result], task: Task, running: _TaskContext
    ) -> Result:
        for tried in range(1, self._tries):
            try:
                return work(task, running)
            except StorageError as error:
                if not error.transient:
                    raise
                running.pause(self._pause * 2 ** (tried - 1))
        return work(task, running)


class _RunState:
    """What the tasks of one run share: whether to stop, and what went wrong first."""

    def __init__(self, cancellation: CancellationToken) -> None:
        self._cancellation = cancellation
        self._stopped = CancellationToken()
        self._first: BaseException | None = None
        self._lock = Lock()

    @property
    def ended(self) -> bool:
        return self._stopped.asked or self._cancellation.asked

    def stop(self) -> None:
        self._stopped.cancel()

    def wait(self, seconds: float) -> None:
        """Wait, but no longer than a moment once it is to end."""
        end = monotonic() + seconds
        while not self.ended and (left := end - monotonic()) > 0:
            self._cancellation.wait(min(left, _MOMENT))

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if self._first is None and not isinstance(error, CancelledError):
                self._first = error
        self.stop()

    def reason(self) -> BaseException:
        """Why it all ended: what went wrong first, or that someone asked."""
        return self._first or CancelledError("cancelled, nothing was committed")


class _TaskContext:
    def __init__(
        self, task: ShardTask, workers: int, together: _RunState, progress: ProgressListener | None
    ) -> None:
        self.workers = workers
        self._task = task
        self._together = together
        self._progress = progress

    def tell(self, done: int, records: int) -> None:
        self.go_on()
        if self._progress is not None:
            task = self._task
            self._progress(Progress(task.step, task.label, done, task.size, records))

    def go_on(self) -> None:
        """Raise CancelledError if it is to stop."""
        if self._together.ended:
            raise CancelledError("cancelled: another task failed, or a stop was requested")

    def pause(self, seconds: float) -> None:
        self._together.wait(seconds)
        self.go_on()
