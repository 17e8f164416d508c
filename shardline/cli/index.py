"""`shardline index`."""

from __future__ import annotations

import json

import click

from shardline.cli.options import (
    expand,
    files_argument,
    json_option,
    limit_options,
    limits,
    workers_option,
)
from shardline.cli.progress import file_progress
from shardline.cli.wording import counted


@click.command(
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
    from functools import partial

    from shardline.execution.threads import run_tasks
    from shardline.files import index_path, write_index

    paths = expand(files)
    asked = limits(max_record, max_unpacked)
    with file_progress("indexing", paths) as progress:
        records = list(
            run_tasks(
                lambda path: write_index(path, limits=asked, progress=partial(progress, path)),
                paths,
                workers=workers,
            )
        )
    told = [
        {"file": str(path), "index": str(index_path(path)), "records": number}
        for path, number in zip(paths, records, strict=True)
    ]
    if as_json:
        click.echo(json.dumps({"ok": True, "files": told}))
        return
    for path, number in zip(paths, records, strict=True):
        click.echo(f"{index_path(path)}: {counted(number, 'record')}")
