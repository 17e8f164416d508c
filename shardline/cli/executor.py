"""Progress bars for operations that work in steps: an engine that draws what its tasks tell."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from shardline.cli.progress import run_in_thread, warn_slow_kernel
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.progress import Progress as Drawing
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

_PARTS = 500
_WIDE_COLUMNS = 110


@contextmanager
def open_progress_executor(
    workers: int | None = None, *, then: Mapping[str, str] | None = None
) -> Iterator[Executor]:
    """Threads whose progress is drawn, one bar for each step; nothing where nobody looks.

    `then` says what is done behind a step without telling how far it is.
    """
    from shardline.execution.executor import CancellationToken, ThreadExecutor

    cancellation = CancellationToken()
    threads = ThreadExecutor(workers, cancellation=cancellation)
    if not sys.stderr.isatty():
        yield _ProgressExecutor(threads, cancellation)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Drawing
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(stderr=True)
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        Remaining(),
    ]
    if console.width >= _WIDE_COLUMNS:
        columns.append(TextColumn("{task.fields[made]}"))
    with Drawing(*columns, console=console, transient=True) as drawing:
        yield _ProgressExecutor(threads, cancellation, _StepBars(drawing, then or {}))


class _ProgressExecutor:
    """Runs tasks on another engine, and knows all of a step's tasks before they run."""

    def __init__(
        self, executor: Executor, cancellation: CancellationToken, bars: _StepBars | None = None
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
        """Give each task's result in the order of the tasks."""
        sizes = [task.size for task in tasks]
        known = sum(size or 0 for size in sizes)
        warn_slow_kernel(known)
        step = tasks[0].step if tasks else ""
        if self._bars is not None and tasks:
            progress = self._bars.begin(step, None if None in sizes else known)

        def all_results() -> list[Result]:
            return list(self._executor.run(work, tasks, progress))

        yield from run_in_thread(all_results, self._cancellation)
        if self._bars is not None and tasks:
            self._bars.end(step)


class _StepBars:
    """The bars of all steps so far."""

    def __init__(self, drawing: Drawing, then: Mapping[str, str]) -> None:
        self._drawing = drawing
        self._then = then
        self._bars: dict[str, _StepBar] = {}
        self._between: TaskID | None = None

    def begin(self, step: str, total: int | None) -> ProgressListener:
        """Draw a step, or more of it if there is a bar for it already."""
        if self._between is not None:
            self._drawing.remove_task(self._between)
            self._between = None
        if step not in self._bars:
            self._bars[step] = _StepBar(self._drawing, step)
        self._bars[step].begin(total)
        return self._bars[step].tell

    def end(self, step: str) -> None:
        """Fill up the bar, and say what follows."""
        self._bars[step].end()
        if step in self._then:
            self._between = self._drawing.add_task(self._then[step], total=None, made="")


class _StepBar:
    """One step: the bytes that its tasks have read together, and the records made of them."""

    def __init__(self, drawing: Drawing, step: str) -> None:
        self._drawing = drawing
        self._task = drawing.add_task(step, total=None, made="")
        self._lock = Lock()
        self._total: int | None = 0
        self._told: dict[str, tuple[int, int]] = {}
        self._done = self._records = self._drawn = 0

    def begin(self, total: int | None) -> None:
        """A round of tasks begins."""
        self._total = None if total is None or self._total is None else self._total + total
        self._drawing.update(self._task, total=self._total)

    def tell(self, told: Progress) -> None:
        """A task is so far."""
        with self._lock:
            done, records = self._told.get(told.task, (0, 0))
            self._told[told.task] = (told.done, told.records)
            self._done += told.done - done
            self._records += told.records - records
            if abs(self._done - self._drawn) * _PARTS < (self._total or 0):
                return
            self._drawn = self._done
            made = format_count(self._records, "record") if self._records else ""
        self._drawing.update(self._task, completed=self._drawn, made=made)

    def end(self) -> None:
        """The round is over, and all of its bytes are done."""
        with self._lock:
            self._told = {}
            self._done = self._drawn = self._total or self._done
        self._drawing.update(self._task, completed=self._done)
