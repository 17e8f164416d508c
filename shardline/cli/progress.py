"""Progress on the terminal: bars for bytes, counts and tasks, and cancellable work.

Nothing is drawn unless stderr is a terminal.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from shardline.cli.errors import print_warning
from shardline.errors import CancelledError
from shardline.hints import Hint
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from shardline.execution.executor import (
        CancellationToken,
        Executor,
        Progress,
        ProgressListener,
        ShardTask,
        TaskContext,
    )

Task = TypeVar("Task", bound="ShardTask")
Result = TypeVar("Result")
Part = TypeVar("Part")

_SLOW_BYTES = 8 * 1024 * 1024
_UPDATES = 500
"""Number of times that a bar is drawn from start to end."""

_WIDE_COLUMNS = 110


@contextmanager
def _open_bars(*, in_bytes: bool) -> Iterator[Bars | None]:
    """Open the progress bars; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    amount = (
        (DownloadColumn(binary_units=True), TransferSpeedColumn())
        if in_bytes
        else (MofNCompleteColumn(),)
    )
    columns = [TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn()]
    if console.width >= _WIDE_COLUMNS:
        columns.append(TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console, transient=True) as bars:
        yield bars


def show_file_progress(
    title: str, paths: Sequence[Path]
) -> AbstractContextManager[Callable[[Path, int], None]]:
    """Show a bar over the bytes of files. Yields a function of a file and its position."""
    return show_byte_progress(title, sum(path.stat().st_size for path in paths))


@contextmanager
def show_byte_progress(title: str, total: int) -> Iterator[Callable[[Hashable, int], None]]:
    """Show a bar over bytes. Yields a function of a part and the position in it."""
    warn_slow_kernel(total)
    with _open_bars(in_bytes=True) as bars:
        if bars is None:
            yield lambda _part, _position: None
            return
        task = bars.add_task(title, total=total, note="")
        positions: dict[Hashable, int] = {}
        step = max(total // _UPDATES, 1)

        def report(part: Hashable, position: int) -> None:
            drawn = positions.get(part, 0)
            if position - drawn >= step:
                positions[part] = position
                bars.advance(task, position - drawn)

        yield report


@contextmanager
def show_count_progress(
    title: str, total: int | None = None
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar over things. Yields a function of the number done and the total."""
    with _open_bars(in_bytes=False) as bars:
        if bars is None:
            yield lambda _done, _total: None
            return
        task = bars.add_task(title, total=total, note="")
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def show_step_progress(title: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """Show a bar for the current step of an operation; None if stderr is not a terminal."""
    with _open_bars(in_bytes=False) as bars:
        if bars is None:
            yield None
            return
        task = bars.add_task(title, total=None, note="")

        def report(step: str, done: int, total: int) -> None:
            bars.update(task, description=step, completed=done, total=total)

        yield report


@contextmanager
def show_activity(title: str) -> Iterator[None]:
    """Show that work of unknown extent is in progress."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


def warn_slow_kernel(total: int) -> None:
    """Warn if many bytes are to be read without the compiled kernel."""
    from shardline import kernel

    if kernel.NAME == "reference" and total > _SLOW_BYTES:
        print_warning(
            "slow: the compiled kernel is not loaded",
            Hint.of("run `python -m shardline.kernel` for the reason"),
        )


def run_in_thread(work: Callable[[], Result], cancellation: CancellationToken) -> Result:
    """Run `work` in another thread. A signal cancels it, and is raised after its end."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="shardline-aside") as pool:
        future = pool.submit(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                cancellation.cancel()
            raise


def make_cancellable(
    progress: Callable[[Part, int], None], cancellation: CancellationToken
) -> Callable[[Part, int], None]:
    """Return a progress function that raises CancelledError after a cancellation."""

    def report(part: Part, position: int) -> None:
        if cancellation.is_requested:
            raise CancelledError("stopped as asked")
        progress(part, position)

    return report


@contextmanager
def open_progress_executor(
    workers: int | None = None, *, then: Mapping[str, str] | None = None
) -> Iterator[Executor]:
    """Open an executor on threads that shows a bar for each step.

    `then` maps a step to the title of the work after it, which has no progress of its own.
    """
    from shardline.execution.executor import CancellationToken, ThreadExecutor

    cancellation = CancellationToken()
    threads = ThreadExecutor(workers, cancellation=cancellation)
    with _open_bars(in_bytes=True) as bars:
        steps = None if bars is None else _StepBars(bars, then or {})
        yield _ProgressExecutor(threads, cancellation, steps)


class _ProgressExecutor:
    """An executor that knows the sizes of all tasks of a step before they run."""

    def __init__(
        self, executor: Executor, cancellation: CancellationToken, bars: _StepBars | None
    ) -> None:
        self._executor = executor
        self._cancellation = cancellation
        self._bars = bars

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: ProgressListener | None = None,
    ) -> Iterator[Result]:
        """Yield the results in the order of the tasks."""
        sizes = [task.size for task in tasks]
        known = sum(size or 0 for size in sizes)
        warn_slow_kernel(known)
        step = tasks[0].step if tasks else ""
        if self._bars is not None and tasks:
            progress = self._bars.start(step, None if None in sizes else known)

        def run_all() -> list[Result]:
            return list(self._executor.run(work, tasks, progress))

        yield from run_in_thread(run_all, self._cancellation)
        if self._bars is not None and tasks:
            self._bars.finish(step)


class _StepBars:
    """The bars of all steps so far."""

    def __init__(self, bars: Bars, then: Mapping[str, str]) -> None:
        self._bars = bars
        self._then = then
        self._steps: dict[str, _StepBar] = {}
        self._pause: TaskID | None = None

    def start(self, step: str, total: int | None) -> ProgressListener:
        """Show the bar of a step, or extend it."""
        if self._pause is not None:
            self._bars.remove_task(self._pause)
            self._pause = None
        if step not in self._steps:
            self._steps[step] = _StepBar(self._bars, step)
        self._steps[step].start(total)
        return self._steps[step].report

    def finish(self, step: str) -> None:
        """Fill the bar of a step, and show what follows."""
        self._steps[step].finish()
        if step in self._then:
            self._pause = self._bars.add_task(self._then[step], total=None, note="")


class _StepBar:
    """The bar of a step: bytes that its tasks have read, and their records."""

    def __init__(self, bars: Bars, step: str) -> None:
        self._bars = bars
        self._task = bars.add_task(step, total=None, note="")
        self._lock = Lock()
        self._total: int | None = 0
        self._by_task: dict[str, tuple[int, int]] = {}
        self._done = self._records = self._drawn = 0

    def start(self, total: int | None) -> None:
        """Start a round of tasks."""
        self._total = None if total is None or self._total is None else self._total + total
        self._bars.update(self._task, total=self._total)

    def report(self, progress: Progress) -> None:
        """Add the progress of a task."""
        with self._lock:
            done, records = self._by_task.get(progress.task, (0, 0))
            self._by_task[progress.task] = (progress.done, progress.records)
            self._done += progress.done - done
            self._records += progress.records - records
            if abs(self._done - self._drawn) * _UPDATES < (self._total or 0):
                return
            self._drawn = self._done
            note = format_count(self._records, "record") if self._records else ""
        self._bars.update(self._task, completed=self._drawn, note=note)

    def finish(self) -> None:
        """Fill the bar after a round of tasks."""
        with self._lock:
            self._by_task = {}
            self._done = self._drawn = self._total or self._done
        self._bars.update(self._task, completed=self._done)
