"""Runs the platform of a folder in a process of its own: `run_platform.py FOLDER [ENTRY]`.

With ENTRY the process kills itself as soon as the log of notes/v1 has that entry: the snapshot is
committed then, and Dagster does not know of it.
"""

import os
import signal
import sys
from pathlib import Path

import dagster as dg

from tests.dagster.platforms import GROWING, make_platform


def die_at(entry: Path) -> None:
    """Die of an entry of the log, before another file or database is opened."""

    def look(event: str, _: tuple[object, ...]) -> None:
        if event in {"open", "sqlite3.connect"} and entry.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def main() -> None:
    """Materialize the version that grows, with its checks."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        entry = folder / f"root/notes/v1/log/{int(sys.argv[2]):020}.json"
        die_at(entry)
    with dg.DagsterInstance.get() as instance:
        result = make_platform(folder).run(instance, GROWING)
    sys.exit(0 if result.success else 1)


if __name__ == "__main__":
    main()
