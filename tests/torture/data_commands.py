"""Commands of the sweeps of appends and rebuilds: `python data_commands.py VERB FOLDER`.

One worker, so that every run makes the same calls. A failure ends with exit code 2 and the error
that the command line would show.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.execution.executor import ThreadExecutor
from shardline.operations.append import append
from shardline.operations.export import export
from shardline.operations.rebuild import rebuild
from shardline.operations.rebuild_files import rebuild_files
from shardline.schema.schema import Schema

NAME, SINGLE = "digits/v1", "digits/single"
TARGET = 150
"""Of three records each."""


def append_files(folder: Path) -> None:
    """Append two files, one of which becomes two shards; the version may not be there yet."""
    append(
        Version(folder / "root", NAME),
        [folder / "a.tfrecord", folder / "b.tfrecord"],
        schema=Schema.opaque(),
        target_bytes=TARGET,
        executor=ThreadExecutor(1, pause=0),
    )


def append_with_quarantine(folder: Path) -> None:
    """Append a file with damage in it."""
    append(
        Version(folder / "root", NAME),
        folder / "damaged.tfrecord",
        schema=Schema.opaque(),
        salvage=True,
        max_quarantined=0.5,
        compression="gzip",
        executor=ThreadExecutor(1, pause=0),
    )


def rebuild_in_place(folder: Path) -> None:
    """Make one shard of all."""
    rebuild(Version(folder / "root", NAME), snapshot="latest", executor=ThreadExecutor(1, pause=0))


def rebuild_into(folder: Path) -> None:
    """Make another version of larger shards."""
    version = Version(folder / "root", NAME)
    into = Version(folder / "root", SINGLE)
    executor = ThreadExecutor(1, pause=0)
    rebuild(version, snapshot="latest", into=into, target_bytes=2 * TARGET, executor=executor)


def rebuild_one_file(folder: Path) -> None:
    """Make one loose file of two."""
    files = [folder / "a.tfrecord", folder / "b.tfrecord"]
    rebuild_files(files, folder / "out.tfrecord", overwrite=True)


def rebuild_folder(folder: Path) -> None:
    """Make a folder of loose files, unless it is there."""
    files = [folder / "a.tfrecord", folder / "b.tfrecord"]
    if not (folder / "out").exists():
        rebuild_files(files, folder / "out", target_bytes=2 * TARGET)


def export_file(folder: Path) -> None:
    """Write a snapshot to a file."""
    version = Version(folder / "root", NAME)
    export(version, folder / "out.tfrecord", snapshot="latest", executor=ThreadExecutor(1, pause=0))


VERBS = {
    verb.__name__: verb
    for verb in (
        append_files,
        append_with_quarantine,
        rebuild_in_place,
        rebuild_into,
        rebuild_one_file,
        rebuild_folder,
        export_file,
    )
}

if __name__ == "__main__":
    logging.basicConfig()
    try:
        VERBS[sys.argv[1]](Path(sys.argv[2]))
    except ShardlineError as error:
        sys.exit(f"Error: {error}")
    except OSError as error:
        sys.exit(f"Error: {error.filename}: {error.strerror}")
