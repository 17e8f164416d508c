"""Processes that append to one version at once, rebuild it or read it: `python -m ... ROLE ...`.

Each says that it is ready, waits for a line on stdin so that all start together, and ends with one
line of JSON. Those that go on until others have finished do so until another line comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.errors import ConflictError
from shardline.execution.executor import ThreadExecutor
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.rebuild import rebuild
from shardline.schema.schema import Schema
from shardline.tfrecord import RecordFile
from shardline.tfrecord.input_file import StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardline.api import Snapshot

ROOT = Path(__file__).parents[2]
NAME = "digits/v1"
TARGET = 2000


def digest_of(records: Sequence[bytes]) -> str:
    """What tells a list of records from others, whatever their order."""
    return hashlib.sha256(b"\n".join(sorted(records))).hexdigest()


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of this module that is ready to go."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.operations.appenders", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def say(process: subprocess.Popen[str], word: str) -> None:
    """Let a process begin, or come to its end."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def append_all(root: str, *paths: str) -> list[int | None]:
    """Append two files at a time; gives the entries."""
    version = Version(root, NAME)
    entries = []
    for at in range(0, len(paths), 2):
        report = append(
            version,
            [Path(path) for path in paths[at : at + 2]],
            schema=Schema.opaque(),
            target_bytes=TARGET,
            executor=ThreadExecutor(1),
        )
        entries.append(None if report.entry is None else report.entry.number)
    return entries


def rebuild_on(root: str) -> dict[str, int]:
    """Attest and rebuild what is there, by turns into one shard and into several."""
    version = Version(root, NAME)
    told = {"rebuilt": 0, "refused": 0}
    while True:
        last = not going_on()
        version.refresh()
        target = None if told["rebuilt"] % 2 else 4 * TARGET
        try:
            check_version(version)
            report = rebuild(version, target_bytes=target, executor=ThreadExecutor(1))
            told["rebuilt"] += report.entry is not None
        except LookupError:
            pass  # nobody has committed anything yet
        except ConflictError:
            told["refused"] += 1
        if last:
            return told


def read_on(root: str) -> list[dict[str, Any]]:
    """Read published and newest snapshots by turns, and tell what is in each."""
    seen = []
    while True:
        last = not going_on()
        for which in ("published", "latest"):
            version = Version(root, NAME)
            try:
                snapshot = version.find(which)
            except LookupError:
                continue
            seen.append({"snapshot": snapshot.number, **contents(version, snapshot)})
        if last:
            return seen


def contents(version: Version, snapshot: Snapshot) -> dict[str, Any]:
    """How many records a snapshot has, by the log and by its files, and which."""
    records = []
    for shard in snapshot.shards:
        with RecordFile(StoredFile(version.store, version.shard_name(shard))) as file:
            records += [bytes(payload) for payload in file]
    return {"told": snapshot.records, "read": len(records), "digest": digest_of(records)}


def going_on() -> bool:
    """Whether nobody has said that it is enough."""
    return not select.select([sys.stdin], [], [], 0)[0]


ROLES: dict[str, Callable[..., Any]] = {
    "append": append_all,
    "rebuild": rebuild_on,
    "read": read_on,
}

if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    print("ready", flush=True)  # noqa: T201 - they start together
    sys.stdin.readline()
    print(json.dumps(ROLES[role](*rest)), flush=True)  # noqa: T201
