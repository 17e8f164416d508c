"""Progress bars on the terminal, over the bytes that are read or the files that are deleted."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from shardline.cli.errors import print_warning
from shardline.errors import CancelledError
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

    from shardline.execution.executor import CancellationToken


_SLOW_BYTES = 8 * 1024 * 1024


def show_file_progress(
    title: str, paths: Sequence[Path]
) -> AbstractContextManager[Callable[[Path, int], None]]:
    """Give a function that is told how far each file is; draws nothing where nobody looks."""
    return show_byte_progress(title, sum(path.stat().st_size for path in paths))


@contextmanager
def show_byte_progress(title: str, total: int) -> Iterator[Callable[[Hashable, int], None]]:
    """Give a function that is told how far each part of `total` bytes is."""
    warn_slow_kernel(total)
    if not sys.stderr.isatty():
        yield lambda _part, _position: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    positions: dict[Hashable, int] = {}
    step = max(total // 500, 1)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def tell(part: Hashable, position: int) -> None:
            drawn = positions.get(part, 0)
            if position - drawn >= step:
                positions[part] = position
                bar.advance(task, position - drawn)

        yield tell


@contextmanager
def show_count_progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Give a function that is told each time one more of `total` is done; for a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def show_pair_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that is told how many pairs are made, and how many there will be."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def show_activity(title: str) -> Iterator[None]:
    """Say on a terminal that something is being done which does not tell how far it is."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


def warn_slow_kernel(total: int) -> None:
    """Say it where reading so many bytes will take long for want of the compiled kernel."""
    from shardline import kernel

    if kernel.NAME == "reference" and total > _SLOW_BYTES:
        print_warning(
            "slow: the compiled kernel is not loaded",
            Hint.of("run `python -m shardline.kernel` for the reason"),
        )


Result = TypeVar("Result")
Part = TypeVar("Part")


def run_in_thread(work: Callable[[], Result], cancellation: CancellationToken) -> Result:
    """Do work on another thread; a signal cancels it, and is raised when it has ended."""
    with ThreadPoolExecutor(1, thread_name_prefix="shardline-aside") as pool:
        begun = pool.submit(work)
        try:
            return begun.result()
        except BaseException:
            if not begun.done():
                cancellation.cancel()
            raise


def make_cancellable(
    progress: Callable[[Part, int], None], cancellation: CancellationToken
) -> Callable[[Part, int], None]:
    """A progress function that ends the work which calls it when that was cancelled."""

    def tell(part: Part, position: int) -> None:
        if cancellation.is_requested:
            raise CancelledError("stopped as asked")
        progress(part, position)

    return tell
