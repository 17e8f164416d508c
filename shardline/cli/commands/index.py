"""`shardline index`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import print_problem
from shardline.cli.options import (
    expand,
    files_argument,
    json_option,
    limit_options,
    limits,
    workers_option,
)
from shardline.cli.output import with_skipped
from shardline.cli.progress import file_progress
from shardline.errors import DamagedFileError
from shardline.text import counted, escaped

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    short_help="Write an offset index beside each file.",
    epilog="""\b
Examples:
  shardline index train.tfrecord
  shardline head train.tfrecord --skip 5000000 -n 1     now answers at once
\b
In Python:
  with shardline.IndexedFile("train.tfrecord") as file:
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
    max_unpacked: int,
    as_json: bool,
) -> None:
    """Write an offset index beside each file, for random access to its records.

    The index of x.tfrecord is x.tfrecord.index. It can be deleted and made again at any time.
    Every record is checked on the way; a damaged file gets no index, and the exit code is 1.
    GZIP files written by Shardline can be entered at every megabyte; others have to be unpacked
    up to the record.
    """
    from shardline.execution.threads import run_tasks
    from shardline.tfrecord import index_path, write_index

    paths = expand(files)
    asked = limits(max_record, max_unpacked)

    with file_progress("indexing", paths) as progress:

        def index_one(path: Path) -> int | DamagedFileError:
            try:
                return write_index(path, limits=asked, progress=partial(progress, path))
            except DamagedFileError as error:
                return error

        outcomes = list(run_tasks(index_one, paths, workers=workers))
    damaged = [outcome for outcome in outcomes if isinstance(outcome, DamagedFileError)]
    if as_json:
        told = [
            {"file": str(path), "index": None, "records": None, "error": str(outcome)}
            if isinstance(outcome, DamagedFileError)
            else {"file": str(path), "index": str(index_path(path)), "records": outcome}
            for path, outcome in zip(paths, outcomes, strict=True)
        ]
        click.echo(json.dumps(with_skipped({"ok": not damaged, "files": told})))
    else:
        for path, outcome in zip(paths, outcomes, strict=True):
            if not isinstance(outcome, DamagedFileError):
                click.echo(f"{escaped(str(index_path(path)))}: {counted(outcome, 'record')}")
    for error in damaged:
        print_problem(error)
    raise SystemExit(1 if damaged else 0)
