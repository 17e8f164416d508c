"""A progress bar on the terminal, over the bytes of all files."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_SLOW_BYTES = 8 * 1024 * 1024


@contextmanager
def file_progress(title: str, paths: Sequence[Path]) -> Iterator[Callable[[Path, int], None]]:
    """Give a function that is told how far each file is; draws nothing where nobody looks."""
    total = sum(path.stat().st_size for path in paths)
    _warn_if_slow(total)
    if not sys.stderr.isatty():
        yield lambda _path, _position: None
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
    positions: dict[Path, int] = {}
    step = max(total // 500, 1)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def tell(path: Path, position: int) -> None:
            drawn = positions.get(path, 0)
            if position - drawn >= step:
                positions[path] = position
                bar.advance(task, position - drawn)

        yield tell


def _warn_if_slow(total: int) -> None:
    from shardline import kernel

    if kernel.NAME == "reference" and total > _SLOW_BYTES:
        click.echo(
            "shardline: the plain-Python kernel is at work, so this will be slow; "
            "'python -m shardline.kernel' tells more",
            err=True,
        )
