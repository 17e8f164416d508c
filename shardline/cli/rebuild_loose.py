"""`shardline rebuild` of loose files."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from shardline.cli.aside import run_aside, stoppable
from shardline.cli.errors import UsageError
from shardline.cli.options import expand
from shardline.cli.progress import file_progress
from shardline.cli.skipped import with_skipped
from shardline.paths import real_path
from shardline.text import counted, escaped, human_bytes, rate

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.tfrecord import Limits


def rebuild_loose(
    patterns: tuple[str, ...],
    output: Path,
    target_size: int | None,
    compression: str | None,
    limits: Limits,
    *,
    overwrite: bool,
    allow_mixed: bool,
    as_json: bool,
) -> None:
    """Copy the records of files into one, or into several in a new folder, and tell of it."""
    from shardline.execution.executor import Cancellation
    from shardline.operations.rebuild_files import rebuild_files

    if overwrite and target_size is not None:
        raise UsageError(
            "--overwrite and --target-size exclude each other",
            code="conflicting-options",
            hint="with `--target-size`, OUT is a new folder",
        )
    paths = expand(patterns, repeats=True)
    if real_path(output) in set(map(real_path, paths)):
        raise UsageError(
            f"{output} is an input file",
            code="output-is-input",
            hint="write to another file",
            path=output,
        )
    if output.is_dir() and target_size is None:
        raise UsageError(
            f"{output} is a folder",
            code="output-is-folder",
            hint="name a file or add `--target-size`",
            path=output,
        )
    began = time.perf_counter()
    cancellation = Cancellation()
    with file_progress("rebuilding", paths) as progress:
        run = partial(
            rebuild_files,
            paths,
            output,
            target_bytes=target_size,
            compression=compression,
            overwrite=overwrite,
            allow_mixed=allow_mixed,
            limits=limits,
            progress=stoppable(progress, cancellation),
        )
        report = run_aside(run, cancellation)
    seconds = time.perf_counter() - began
    if as_json:
        told = {
            "ok": True,
            "output": str(output),
            "files": [str(file) for file in report.files],
            "read_files": len(paths),
            "records": report.records,
            "bytes": report.bytes,
            "compression": report.compression.value,
            "seconds": round(seconds, 6),
        }
        click.echo(json.dumps(with_skipped(told)))
        return
    packed = "" if report.compression.value == "none" else f", {report.compression.value}"
    into = "" if target_size is None else f"{counted(len(report.files), 'file')} in "
    click.echo(
        f"{counted(len(paths), 'file')} rebuilt into {into}{escaped(str(output))}: "
        f"{counted(report.records, 'record')}, {human_bytes(report.bytes)}{packed}"
    )
    click.echo(f"  {rate(report.records, report.bytes, seconds)}")
