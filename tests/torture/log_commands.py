"""Commands of the sweeps of the log, each in a process: `python log_commands.py VERB ROOT`.

A failure ends with exit code 2 and our own error message, as the command line does it.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.operations.vacuum import vacuum
from tests.log.versions import NAME, append, attest_shards, make_version

NEW = "new"


def create_and_append(root: str) -> None:
    """Make a version and append to it; what an earlier run did is not done again."""
    append(make_version(root), NEW)


def append_new(root: str) -> None:
    """Append to a version."""
    append(Version(root, NAME), NEW)


def attest_new(root: str) -> None:
    """Say that the newest shard passed, which publishes it."""
    attest_shards(Version(root, NAME), NEW)


def restore_first(root: str) -> None:
    """Make the first snapshot the head, unless it is already."""
    version = Version(root, NAME)
    if version.latest().content != version.snapshot(1).content:
        version.restore(1)


def vacuum_all(root: str) -> None:
    """Delete everything that is not needed now."""
    vacuum(root, NAME.partition("/")[0], retention=timedelta(0), dry_run=False)


VERBS = {
    verb.__name__: verb
    for verb in (create_and_append, append_new, attest_new, restore_first, vacuum_all)
}

if __name__ == "__main__":
    logging.basicConfig()
    try:
        VERBS[sys.argv[1]](sys.argv[2])
    except ShardlineError as error:
        sys.exit(f"Error: {error}")
