"""Temporary files of dead writers are deleted, those of live writers never."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from shardline.storage.durable_file import DurableFile
from shardline.storage.temporary_files import is_abandoned, remove_abandoned, scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

DEAD = ".out.tfrecord.0123456789ab.tmp"


def temporaries(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.tmp"))


def test_durable_file_deletes_what_dead_writers_of_it_left(tmp_path: Path) -> None:
    other = tmp_path / ".other.0123456789ab.tmp"
    for path in (tmp_path / DEAD, other):
        path.write_bytes(b"half")
    with DurableFile(tmp_path / "out.tfrecord", overwrite=True) as live:
        live.write(b"first")
        assert len(temporaries(tmp_path)) == 2
        with DurableFile(tmp_path / "out.tfrecord", overwrite=True) as rival:
            rival.write(b"second")
            assert len(temporaries(tmp_path)) == 3
    assert (tmp_path / "out.tfrecord").read_bytes() == b"first"
    assert temporaries(tmp_path) == [other]


def test_live_temporary_file_is_not_abandoned(tmp_path: Path) -> None:
    with DurableFile(tmp_path / "out") as file:
        (path,) = temporaries(tmp_path)
        assert is_abandoned(path) is False
        assert not remove_abandoned(str(path))
        file.write(b"whole")
    assert (tmp_path / "out").read_bytes() == b"whole"


@pytest.mark.parametrize("kind", ["link", "pipe", "missing"])
def test_remove_abandoned_leaves_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / DEAD, tmp_path / "target"
    target.write_bytes(b"theirs")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    assert is_abandoned(path) is None
    assert not remove_abandoned(str(path))
    assert target.read_bytes() == b"theirs"


def test_files_being_created_survive_a_tidying_rival(tmp_path: Path) -> None:
    """Between creating and locking a file, the rival may get it: then there is another."""
    done = False

    def tidy_up() -> None:
        while not done:
            for path in temporaries(tmp_path):
                remove_abandoned(str(path))

    with ThreadPoolExecutor(1) as pool:
        rival = pool.submit(tidy_up)
        try:
            for number in range(300):
                with DurableFile(tmp_path / f"{number:03}") as file:
                    file.write(b"%d" % number)
        finally:
            done = True
        rival.result()
    assert [int(path.read_bytes()) for path in sorted(tmp_path.glob("[0-9]*"))] == [*range(300)]
    assert temporaries(tmp_path) == []


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_scratch_folder_deletes_those_of_dead_processes(scratch: Path) -> None:
    for name in ("test-abandon1", "test-abandon2", "other-abandon1"):
        (scratch / name).mkdir()
        (scratch / name / "file").write_bytes(b"left")
    with scratch_folder("test") as first, scratch_folder("test") as second:
        assert set(scratch.iterdir()) == {first, second, scratch / "other-abandon1"}
    assert set(scratch.iterdir()) == {scratch / "other-abandon1"}
