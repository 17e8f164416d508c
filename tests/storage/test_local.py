"""The durable commit: whole under its name or not there, whatever happens in between."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from shardline.errors import (
    FileExistsAlreadyError,
    FolderNotFoundError,
    NotAFolderError,
    ShardlineError,
)
from shardline.storage.durable_file import DurableFile
from tests.errors import raises

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")

WRITE_ONE = """
import sys
from shardline.storage.durable_file import DurableFile
with DurableFile(sys.argv[1], overwrite=sys.argv[2] == "overwrite") as file:
    for _ in range(4):
        file.write(b"new!" * 1000)
"""
NEW = b"new!" * 4000


class DeliberateError(Exception):
    """What a test throws to see it come out."""


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_nothing_has_the_final_name_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with DurableFile(path) as file:
        file.write(b"half")
        assert not path.exists()
        file.write(b" and half")
        assert not path.exists()
    assert path.read_bytes() == b"half and half"
    assert names_in(tmp_path) == {"a.tfrecord"}


def test_the_temporary_file_is_hidden_and_in_the_same_folder(tmp_path: Path) -> None:
    with DurableFile(tmp_path / "a.tfrecord"):
        (temporary,) = tmp_path.iterdir()
        assert temporary.name.startswith(".")
        assert temporary.suffix == ".tmp"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", [DeliberateError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_neither_file_nor_temporary(
    tmp_path: Path, kind: type[BaseException], *, overwrite: bool
) -> None:
    def write() -> None:
        with DurableFile(tmp_path / "a", overwrite=overwrite) as file:
            file.write(b"half")
            raise kind

    with pytest.raises(kind):
        write()
    assert names_in(tmp_path) == set()


def test_an_exception_while_replacing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write() -> None:
        with DurableFile(path, overwrite=True) as file:
            file.write(b"half")
            raise DeliberateError

    with pytest.raises(DeliberateError):
        write()
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == {"a"}


def test_an_existing_file_is_refused_at_once_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    before = path.stat()
    with pytest.raises(FileExistsAlreadyError) as caught:
        DurableFile(path)
    assert caught.value.errno == errno.EEXIST
    assert (caught.value.code, caught.value.path) == ("file-exists", str(path))
    assert isinstance(caught.value, FileExistsError)
    assert isinstance(caught.value, ShardlineError)
    assert path.read_bytes() == b"old"
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert names_in(tmp_path) == {"a"}


def test_a_file_that_appears_in_between_is_refused_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write() -> None:
        with DurableFile(path) as file:
            file.write(b"ours")
            path.write_bytes(b"theirs")

    with pytest.raises(FileExistsAlreadyError):
        write()
    assert path.read_bytes() == b"theirs"
    assert names_in(tmp_path) == {"a"}


def test_a_dangling_link_counts_as_a_file_and_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsAlreadyError):
        DurableFile(path)
    assert names_in(tmp_path) == {"a"}


def test_overwrite_replaces_the_whole_file_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old and long")
    with path.open("rb") as reader:
        with DurableFile(path, overwrite=True) as file:
            file.write(b"new")
            assert path.read_bytes() == b"old and long"
        assert reader.read() == b"old and long", "who has the old file open goes on reading it"
    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == {"a"}


def test_of_many_who_race_for_a_name_exactly_one_wins(tmp_path: Path) -> None:
    writers = 8
    for turn in range(20):
        path = tmp_path / f"file-{turn}"
        barrier = Barrier(writers)

        def write(number: int, path: Path = path, barrier: Barrier = barrier) -> int | None:
            try:
                with DurableFile(path) as file:
                    file.write(b"%d" % number * 1000)
                    barrier.wait()
            except FileExistsAlreadyError:
                return None
            return number

        with ThreadPoolExecutor(writers) as pool:
            winners = [number for number in pool.map(write, range(writers)) if number is not None]
        assert len(winners) == 1
        assert path.read_bytes() == b"%d" % winners[0] * 1000
    assert names_in(tmp_path) == {f"file-{turn}" for turn in range(20)}


def test_rewrite_changes_what_stands_at_an_offset_and_nothing_else(tmp_path: Path) -> None:
    with DurableFile(tmp_path / "a") as file:
        file.write(bytes(8))
        file.write(b"rest")
        file.rewrite(0, b"header")
    assert (tmp_path / "a").read_bytes() == b"header\0\0rest"


def test_data_of_every_buffer_kind_is_written_whole(tmp_path: Path) -> None:
    with DurableFile(tmp_path / "a") as file:
        file.write(b"")
        file.write(b"ab")
        file.write(bytearray(b"cd"))
        file.write(memoryview(b"xxef")[2:])
    assert (tmp_path / "a").read_bytes() == b"abcdef"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with raises(FolderNotFoundError, "folder-not-found", path=f"{tmp_path}/missing") as caught:
        DurableFile(tmp_path / "missing" / "a")
    assert isinstance(caught.value, FileNotFoundError)


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(NotAFolderError, "not-a-folder", path=f"{tmp_path}/file") as caught:
        DurableFile(tmp_path / "file" / "a")
    assert isinstance(caught.value, NotADirectoryError)


@pytest.mark.parametrize("name", ["n" * 255, "名" * 85], ids=["ascii", "cjk"])
def test_the_longest_name_a_file_system_takes_can_be_written(tmp_path: Path, name: str) -> None:
    with DurableFile(tmp_path / name) as file:
        file.write(b"x")
    assert names_in(tmp_path) == {name}


def test_the_file_gets_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    with DurableFile(tmp_path / "a"):
        pass
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "b").stat().st_mode
    )


def test_a_process_that_dies_while_writing_leaves_no_final_file(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from shardline.storage.durable_file import DurableFile\n"
        "with DurableFile(sys.argv[1]) as file:\n"
        "    file.write(b'half')\n"
        "    os._exit(9)\n"
    )
    path = tmp_path / "a"
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, check=False, capture_output=True
    )
    assert result.returncode == 9, result.stderr
    assert not path.exists()
    with DurableFile(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole", "what the dead process left is in nobody's way"


def traced(path: Path, mode: str, *options: str) -> tuple[int, list[str]]:
    """Run WRITE_ONE under strace; gives its exit code and the system calls."""
    if STRACE is None:
        pytest.skip("strace is not installed")
    log = path.parent.parent / f"{path.parent.name}.strace"
    command = [STRACE, "-f", "-y", "-o", str(log), *options]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [*command, sys.executable, "-c", WRITE_ONE, str(path), mode],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if "ptrace" in result.stderr and "not permitted" in result.stderr:
        pytest.skip("strace may not trace here")
    return result.returncode, log.read_text().splitlines()


SYNC_CALLS = "trace=fsync,link,linkat,rename,renameat,renameat2,unlink,unlinkat"


def kinds_of(calls: list[str], folder: Path) -> list[str]:
    """The calls that touch our folder, each as its verb and what it acts on."""
    kinds = []
    for call in calls:
        found = re.search(r"\b([a-z0-9]+)\(", call)
        if found is None or str(folder) not in call:
            continue
        verb = re.sub(r"at2?$", "", found[1])
        target = "temporary" if ".tmp" in call else "folder"
        kinds.append(f"{verb} {target}")
    return kinds


def test_file_synced_before_rename_folder_after(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    code, calls = traced(folder / "a", "create", "-e", SYNC_CALLS)
    assert code == 0
    assert kinds_of(calls, folder) == [
        "fsync temporary", "link temporary", "fsync folder", "unlink temporary",
    ]  # fmt: skip


def test_so_it_is_when_a_file_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a").write_bytes(b"old")
    code, calls = traced(folder / "a", "overwrite", "-e", SYNC_CALLS)
    assert code == 0
    assert kinds_of(calls, folder)[:3] == [
        "fsync temporary", "rename temporary", "fsync folder",
    ]  # fmt: skip
    assert (folder / "a").read_bytes() == NEW


FAULTS = [
    *(("write", "ENOSPC", turn) for turn in (1, 2, 4)),
    ("write", "EIO", 3),
    ("fsync", "EIO", 1),
    ("fsync", "ENOSPC", 1),
]


@pytest.mark.parametrize(
    ("mode", "call", "error", "turn"),
    [
        *(("create", *fault) for fault in FAULTS),
        *(("overwrite", *fault) for fault in FAULTS),
        ("create", "link,linkat", "ENOSPC", 1),
        ("overwrite", "rename,renameat,renameat2", "ENOSPC", 1),
    ],
)
def test_an_error_of_the_disk_leaves_the_old_state(
    tmp_path: Path, mode: str, call: str, error: str, turn: int
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if mode == "overwrite":
        (folder / "a").write_bytes(b"old")
    inject = f"inject={call}:error={error}:when={turn}"
    code, calls = traced(folder / "a", mode, "-e", f"trace={call}", "-e", inject)
    assert any("INJECTED" in one for one in calls)
    assert code != 0, "the error comes out"
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == (
        {"a": b"old"} if mode == "overwrite" else {}
    )


KILLS = [
    ("create", "write", 1, None),
    ("create", "write", 3, None),
    ("create", "fsync", 1, None),
    ("create", "link,linkat", 1, None),
    ("create", "fsync", 2, NEW),
    ("create", "unlink,unlinkat", 1, NEW),
    ("overwrite", "write", 1, b"old"),
    ("overwrite", "write", 3, b"old"),
    ("overwrite", "fsync", 1, b"old"),
    ("overwrite", "rename,renameat,renameat2", 1, b"old"),
    ("overwrite", "fsync", 2, NEW),
]


@pytest.mark.parametrize(("mode", "call", "turn", "expected"), KILLS)
def test_kill_leaves_old_or_new_file(
    tmp_path: Path, mode: str, call: str, turn: int, expected: bytes | None
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if mode == "overwrite":
        (folder / "a").write_bytes(b"old")
    inject = f"inject={call}:signal=KILL:when={turn}"
    code, _ = traced(folder / "a", mode, "-e", f"trace={call}", "-e", inject)
    assert code != 0, "the process was killed"
    after = (folder / "a").read_bytes() if (folder / "a").exists() else None
    assert after == expected


def test_a_file_system_without_hard_links_is_told_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if STRACE is None:
        pytest.skip("strace is not installed")
    hook = "sys.excepthook = lambda _, error, __: print(error.code)"
    program = WRITE_ONE.replace("import sys", f"import sys; {hook}")
    result = subprocess.run(
        [
            *(STRACE, "-f", "-o", str(tmp_path / "log"), "-e", "trace=link,linkat"),
            *("-e", "inject=link,linkat:error=EPERM"),
            *(sys.executable, "-c", program, str(folder / "a"), "create"),
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.stdout.split() == ["hard-links-unsupported"]
    assert names_in(folder) == set()
