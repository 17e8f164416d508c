"""Lines about the log of a version: the cost of a long history, compared with a short one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.lines import Line, Target
from benchmarks.timing import Side
from benchmarks.versions import (
    NAME,
    CountingStore,
    append_of,
    disk_folder,
    make_version,
    put_shards,
)
from shardline.api import Version
from shardline.log.log import CHECKPOINT_INTERVAL, Log
from shardline.log.model import Attestation
from shardline.storage.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.log.append_change import Append

SMALL, LARGE = 100, 20_000
COMMITS = 3 * CHECKPOINT_INTERVAL
"""Of one run: whole intervals, so that checkpoints are in the average."""
_FIRST_NEW = 10**9
_NAMES = (
    "log: open the head",
    "log: commit an append",
    "log: commit an append, beside the disk",
    "log: commit an attestation",
    "log: open and list the shards",
)


@dataclass(frozen=True, slots=True)
class _Made:
    """Version written for measuring. A run adds `commits` entries."""

    root: Path
    appends: int
    commits: int

    @property
    def what(self) -> str:
        return f"{self.appends:,} appends"


def all_lines(
    only: str = "", *, small: int = SMALL, large: int = LARGE, commits: int = COMMITS
) -> Iterator[Line]:
    """Yield every line whose name contains `only`. The versions stay on disk until the last.

    The long log ends just before a checkpoint is due, where opening it costs most.
    """
    if not any(only in name for name in _NAMES):
        return
    worst = large // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL + CHECKPOINT_INTERVAL - 2
    with disk_folder() as folder:
        short = _Made(folder / "short", small, commits)
        long = _Made(folder / "long", worst, commits)
        for made in (short, long):
            make_version(made.root, made.appends)
        lines = (_open, _append, _append_beside_disk, _attest, _list)
        for name, make in zip(_NAMES, lines, strict=True):
            if only in name:
                yield make(name, folder, short, long)


def _open(name: str, folder: Path, short: _Made, long: _Made) -> Line:
    del folder

    def opener(made: _Made) -> Side:
        def run() -> int:
            _expect(Version(made.root, NAME).latest().totals.shards >= made.appends)
            return 1

        return Side(made.what, run)

    def requests(made: _Made) -> int:
        store = CountingStore(made.root)
        Version(store, NAME).latest()
        return store.requests.total()

    remark = _requests_remark(requests(short), requests(long))
    sides = opener(short), opener(long)
    return Line(name, 0, (), sides[:1], sides[1], Target(of_limit=1 / 3), remark, "opening")


def _append(name: str, folder: Path, short: _Made, long: _Made) -> Line:
    del folder

    def requests(made: _Made) -> int:
        store = CountingStore(made.root)
        writer = _Writer(made, store=store)
        writer.prepare()
        writer.commit_first()
        store.requests.clear()
        writer.run()
        return store.requests.total()

    counts = [requests(made) / (made.commits - 1) for made in (short, long)]
    return Line(
        name,
        0,
        (),
        (_Writer(short, again=True).side(),),
        _Writer(long).side(),
        Target(of_limit=1 / 1.2),
        _requests_remark(*counts),
        "commit",
    )


def _append_beside_disk(name: str, folder: Path, short: _Made, long: _Made) -> Line:
    del short
    limit = _put_in_place(folder / "bare", _size_of_entry(long), long.commits)
    return Line(name, 0, (), (limit,), _Writer(long).side(), unit="commit")


def _attest(name: str, folder: Path, short: _Made, long: _Made) -> Line:
    del folder
    limit, ours = _Attester(short, again=True).side(), _Attester(long).side()
    return Line(name, 0, (), (limit,), ours, unit="commit")


def _list(name: str, folder: Path, short: _Made, long: _Made) -> Line:
    del folder, short

    def run() -> int:
        shards = Version(long.root, NAME).latest().shards
        _expect(len(shards) >= long.appends)
        return len(shards)

    limit = Side("the checkpoint's rows by Arrow", partial(_rows_by_arrow, long.root))
    return Line(name, 0, (), (limit,), Side(long.what, run), unit="shard")


_CHECKS = ("integrity", "schema")


class _Writer:
    """Writer of commits to an open version. With `again`, each run starts with a new version."""

    def __init__(
        self, made: _Made, *, again: bool = False, store: CountingStore | None = None
    ) -> None:
        self.made = made
        self._again = again
        self.version = Version(store or made.root, NAME)
        self._ready: list[Append] = []

    def side(self) -> Side:
        return Side(self.made.what, self.run, prepare=self.prepare)

    def prepare(self) -> None:
        if self._again:
            shutil.rmtree(self.made.root)
            make_version(self.made.root, self.made.appends)
            self.version = Version(self.made.root, NAME)
        first = _FIRST_NEW + self.version.state.number
        self._ready = [append_of(first + number) for number in range(self.made.commits)]
        for append in self._ready:
            put_shards(self.made.root, append)

    def commit_first(self) -> None:
        """Commit once, so that everything is loaded."""
        self.version.commit(self._ready.pop())

    def run(self) -> int:
        for append in self._ready:
            _expect(self.version.commit(append) is not None)
        return len(self._ready)


class _Attester(_Writer):
    """Writer of attestations for the latest shards, one at a time."""

    def run(self) -> int:
        shards = self.version.latest().shards
        for number in range(self.made.commits):
            name = shards[-1 - number % len(shards)].name
            told = [Attestation(check, passed=True, shards=(name,)) for check in _CHECKS]
            _expect(self.version.attest(told) is not None)
        return self.made.commits


def _put_in_place(folder: Path, size: int, commits: int) -> Side:
    """Do the minimum of a durable commit: write a file, sync it and its folder."""
    data = bytes(size)

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    def run() -> int:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for number in range(commits):
            with (folder / str(number)).open("xb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
            os.fsync(descriptor)
        os.close(descriptor)
        return commits

    return Side("write, fsync file and folder", run, prepare=prepare)


def _rows_by_arrow(root: Path) -> int:
    """Read and verify the latest checkpoint, and convert its columns to Python values."""
    log = Log(LocalStore(root), *NAME.split("/"))
    data = max((root / log.folder).glob("*.checkpoint")).read_bytes()
    size = int.from_bytes(data[8:16], "little")
    place = json.loads(data[16 : 16 + size])["tables"]["stays"]
    start = 16 + size + 32 + place["offset"]
    intervals = memoryview(data)[start : start + place["size"]]
    _expect(hashlib.sha256(intervals).hexdigest() == place["sha256"])
    columns = pa.ipc.open_stream(intervals).read_all().to_pydict()
    return len(columns["name"])


def _size_of_entry(made: _Made) -> int:
    log = Log(LocalStore(made.root), *NAME.split("/"))
    return (made.root / log.entry_name(made.appends)).stat().st_size


def _requests_remark(short: float, long: float) -> str:
    return f"{long:.3g} requests each, {short:.3g} with the short log"


def _expect(right: bool) -> None:  # noqa: FBT001 - an assertion
    if not right:
        raise RuntimeError("a side did not do the whole work, so its time says nothing")
