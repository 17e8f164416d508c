"""Processes that commit to one version at the same time, and tell what became of each commit.

Run as `python -m tests.log.racers ROOT WORKER COMMITS KIND`. A racer says that it is ready, waits
for a line on stdin so that all start together, and ends with one line of JSON: what it asked for
and what it got, in order.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.errors import ConflictError
from tests.log import versions
from tests.log.versions import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.log.entry import Entry

ROOT = Path(__file__).parents[2]
SHARED = 12
"""How many sources all mixed racers try to land."""


def own_label(worker: int, number: int) -> str:
    """The source that only one racer has."""
    return f"{worker}-{number}"


def shared_label(number: int) -> str:
    """A source that every racer has."""
    return f"shared-{number}"


def rebuilt_label(worker: int, number: int) -> str:
    """The shard into which a racer rebuilds."""
    return f"rebuilt-{worker}-{number}"


def race(root: Path, kinds: Sequence[str], commits: int) -> list[list[dict[str, Any]]]:
    """Let one racer of each kind run, all at the same time, and give what each of them got."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.log.racers", str(root), str(worker), str(commits), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for worker, kind in enumerate(kinds)
    ]
    told = []
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            out, _ = racer.communicate()
            assert racer.returncode == 0
            told.append(json.loads(out))
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
            for pipe in (racer.stdin, racer.stdout):
                if pipe is not None:
                    pipe.close()
    return told


def _append(version: Version, worker: int, number: int) -> Entry | None:
    return version.commit(versions.append_of(own_label(worker, number)))


def _append_shared(version: Version, worker: int, number: int) -> Entry | None:
    del worker
    return version.commit(versions.append_of(shared_label(number % SHARED)))


def _rebuild(version: Version, worker: int, number: int) -> Entry | None:
    version.refresh()
    live = versions.names_at(version.state, version.state.snapshot)
    change = versions.rebuild_of([], rebuilt_label(worker, number))
    return version.commit(type(change)(removed=live[:3], added=change.added))


def _restore(version: Version, worker: int, number: int) -> Entry | None:
    del worker, number
    version.refresh()
    return version.restore(max(1, version.state.snapshot - 2))


def _attest(version: Version, worker: int, number: int) -> Entry | None:
    del worker, number
    version.refresh()
    names = tuple(versions.names_at(version.state, version.state.snapshot))
    return version.attest(versions.results_of(names)) if names else None


def _reject(version: Version, worker: int, number: int) -> Entry | None:
    del worker
    version.refresh()
    return version.reject(max(1, version.state.snapshot - number % 3))


def _tag(version: Version, worker: int, number: int) -> Entry | None:
    version.refresh()
    return version.tag(f"tag-{worker}", max(1, version.state.snapshot - number % 5))


KINDS: dict[str, Callable[[Version, int, int], Entry | None]] = {
    "append": _append,
    "append_shared": _append_shared,
    "rebuild": _rebuild,
    "restore": _restore,
    "attest": _attest,
    "reject": _reject,
    "tag": _tag,
}
MIXED = ("append", "append_shared", "append", "rebuild", "restore", "attest", "reject", "tag")


def _run(root: str, worker: int, commits: int, kind: str) -> list[dict[str, Any]]:
    version = Version(root, NAME, run=f"racer {worker}")
    assert version.exists
    chance = random.Random(worker)
    print("ready", flush=True)  # noqa: T201 - the racers start together
    sys.stdin.readline()
    told = []
    for number in range(commits):
        what = chance.choice(MIXED) if kind == "mixed" else kind
        try:
            entry = KINDS[what](version, worker, number)
        except ConflictError as error:
            told.append({"asked": what, "number": number, "refused": type(error).__name__})
        else:
            told.append({"asked": what, "number": number, "entry": entry and entry.number})
    return told


if __name__ == "__main__":
    root, worker, commits, kind = sys.argv[1:]
    print(json.dumps(_run(root, int(worker), int(commits), kind)))  # noqa: T201
