"""`shardline index`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import print_problem
from shardline.cli.options import (
    expand_patterns,
    files_argument,
    json_option,
    limit_options,
    limits,
    workers_option,
)
from shardline.cli.output import add_skipped_files
from shardline.cli.progress import show_file_progress
from shardline.errors import CorruptFileError
from shardline.text import escape_text, format_count

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    epilog="""\b
Examples:
  shardline index train.tfrecord
  shardline head train.tfrecord --skip 5000000 -n 1
\b
In Python:
  with shardline.files.IndexedFile("train.tfrecord") as file:
      payload = file[5_000_000]""",
)
@files_argument
@workers_option
@limit_options
@json_option
def index(
    files: tuple[str, ...],
    *,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    as_json: bool,
) -> None:
    """Write an offset index next to each file, for random access to its records.

    The index of x.tfrecord is x.tfrecord.index. It can be deleted and written again at any time.
    Every record is checked. GZIP files written by Shardline have an entry point at every megabyte;
    other compressed files are read from the start. Exits with 1 if a file is corrupt; it gets no
    index.
    """
    from shardline.execution.threads import run_tasks
    from shardline.tfrecord import index_path, write_index

    paths = expand_patterns(files)
    read_limits = limits(max_record, max_decompressed)

    with show_file_progress("indexing", paths) as progress:

        def index_file(path: Path) -> int | CorruptFileError:
            try:
                return write_index(path, limits=read_limits, progress=partial(progress, path))
            except CorruptFileError as error:
                return error

        outcomes = list(run_tasks(index_file, paths, workers=workers))
    errors = [outcome for outcome in outcomes if isinstance(outcome, CorruptFileError)]
    if as_json:
        rows = [
            {"file": str(path), "index": None, "records": None, "error": str(outcome)}
            if isinstance(outcome, CorruptFileError)
            else {"file": str(path), "index": str(index_path(path)), "records": outcome}
            for path, outcome in zip(paths, outcomes, strict=True)
        ]
        click.echo(json.dumps(add_skipped_files({"ok": not errors, "files": rows})))
    else:
        for path, outcome in zip(paths, outcomes, strict=True):
            if not isinstance(outcome, CorruptFileError):
                click.echo(
                    f"{escape_text(str(index_path(path)))}: {format_count(outcome, 'record')}"
                )
    for error in errors:
        print_problem(error)
    raise SystemExit(1 if errors else 0)
