"""Files of an append are durable before the entry that commits them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from shardline.api import Version
from shardline.errors import ObjectNotFoundError, StorageError
from shardline.operations.append import append
from shardline.storage import open_store
from tests.operations.landings import NAME, SCHEMA, ids, json_lines, rows

FILES = 5


class Calls:
    """Records which files are synced and linked, in order; fails the sync of some inodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[int] = []
        self.committed: list[int] = []
        self.failing = False
        self._fsync, self._link = os.fsync, os.link
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "link", self.link)

    def fsync(self, file: int) -> None:
        """Sync a file, or fail."""
        status = os.fstat(file)
        if self.failing and Path(f"/proc/self/fd/{file}").readlink().suffix == ".tfrecord":
            raise OSError(errno.EIO, "I/O error")
        self._fsync(file)
        self.synced.append(status.st_ino)

    def link(self, source: str, target: str, **where: Any) -> None:  # noqa: ANN401 - as os.link
        """Link a file; the first shard entry of the log ends the list of what was durable."""
        if target.startswith("0" * 4) and target.endswith("2.json"):
            self.committed = list(self.synced)
        self._link(source, target, **where)


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Return files of one row."""
    return [json_lines(tmp_path / f"{at}.jsonl", rows(at, at + 1)) for at in range(FILES)]


def test_append_syncs_every_file_before_commit(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    version = Version(tmp_path / "root", NAME)
    append(version, sources, schema=SCHEMA)
    folder = tmp_path / "root/digits/shards"
    wanted = [file for file in folder.iterdir() if file.suffix in {".tfrecord", ".receipt"}]
    assert len(wanted) == 2 * FILES
    assert calls.committed
    assert {file.stat().st_ino for file in [*wanted, folder]} <= set(calls.committed)
    assert calls.committed.count(folder.stat().st_ino) == 1


def test_append_with_a_failing_sync_commits_nothing(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    calls.failing = True
    version = Version(tmp_path / "root", NAME)
    with pytest.raises(StorageError):
        append(version, sources, schema=SCHEMA)
    assert calls.committed == []
    assert not version.exists
    calls.failing = False
    append(version, sources, schema=SCHEMA)
    shards = (tmp_path / "root/digits/shards").glob("*.tfrecord")
    assert {file.stat().st_ino for file in shards} <= set(calls.committed)
    assert sorted(ids(version)) == list(range(FILES))


def test_sync_of_a_missing_object_raises(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.writer("a/b", synced=False) as file:
        file.write(b"x")
    store.sync(["a/b"])
    store.sync([])
    for name in ("a/c", "d/e"):
        with pytest.raises(ObjectNotFoundError):
            store.sync(["a/b", name])
