"""Measure and print the table: `python -m benchmarks [--memory] [--json]`.

Targets do not affect the exit code: timings never decide a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from itertools import chain

from rich.console import Console

from benchmarks import (
    append_lines,
    audit_lines,
    check_lines,
    derive_lines,
    landing_lines,
    lines,
    log_lines,
    memory,
    table,
    tensorflow_side,
)
from benchmarks.data import MEGABYTE, working_folder
from shardline import kernel

_LEAST_WIDTH = 150


def main(arguments: list[str] | None = None) -> None:
    """Read the options, measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=256, help="size of the files (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns of each side (default: %(default)s)"
    )
    parser.add_argument("--only", default="", help="only lines whose name holds this text")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--memory", action="store_true", help="measure peak memory instead of speed"
    )
    parser.add_argument(
        "--memory-megabytes",
        type=int,
        nargs=2,
        default=(100, 4000),
        metavar=("SMALL", "LARGE"),
        help="the two file sizes for --memory (default: 100 4000)",
    )
    options = parser.parse_args(arguments)
    if options.megabytes < 1 or options.rounds < 1 or min(options.memory_megabytes) < 1:
        parser.error("sizes and rounds must be at least 1")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_LEAST_WIDTH)
    (_memory if options.memory else _speed)(options, console)


def _speed(options: argparse.Namespace, console: Console) -> None:
    progress = Console(stderr=True)
    rows = []
    with (
        working_folder(8 * options.megabytes * MEGABYTE) as folder,
        progress.status("loading TensorFlow") as status,
    ):
        tf = tensorflow_side.load()
        title = (
            f"{kernel.NAME} kernel, TensorFlow {tf.__version__}, Python "
            f"{platform.python_version()}, {os.cpu_count()} cores, data in {folder.parent}, "
            "logs on disk, "
            f"{options.megabytes} MB, best of {options.rounds} rounds"
        )
        for line in chain(
            lines.all_lines(folder, options.megabytes),
            append_lines.all_lines(folder, options.megabytes * MEGABYTE, options.only),
            derive_lines.all_lines(folder, options.megabytes * MEGABYTE, options.only),
            log_lines.all_lines(options.only),
            audit_lines.all_lines(options.only),
            check_lines.all_lines(folder, options.megabytes * MEGABYTE, options.only),
            landing_lines.all_lines(options.only),
        ):
            if options.only in line.name:
                status.update(line.name)
                rows.append(lines.measure(line, options.rounds))
    if options.json:
        print(json.dumps({"title": title, "lines": table.as_json(rows)}, indent=2))
    else:
        console.print(table.as_table(rows, title))


def _memory(options: argparse.Namespace, console: Console) -> None:
    small, large = options.memory_megabytes
    with working_folder(3 * (small + large) * MEGABYTE) as folder:
        peaks = memory.measure_peaks(folder, small, large)
        title = f"peak memory, {small} MB and {large} MB files in {folder.parent}"
    if options.json:
        print(json.dumps({"title": title, "operations": memory.as_json(peaks)}, indent=2))
    else:
        console.print(memory.as_table(peaks, title))


if __name__ == "__main__":
    main()
