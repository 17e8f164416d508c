"""The local store: no link leads out of its root, and what the disk does is told in words."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from shardline.errors import NotAFileError, ObjectExistsError, ObjectNotFoundError, StorageError
from shardline.storage import open_store
from shardline.storage.store import NewObject
from tests.errors import raises
from tests.storage.asking import ASK, names
from tests.storage.tracing import traced

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.storage import Store

SECRET = b"outside the root"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a").write_bytes(SECRET)
    return folder


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(root)


OBJECTS = [name for name in ASK if name not in {"list", "folders", "check_conditions"}]


@pytest.mark.parametrize("operation", OBJECTS)
@pytest.mark.parametrize("place", ["linked/a", "real/linked/a", "linked/new", "linked/new/a"])
def test_no_operation_goes_through_a_linked_folder(
    store: Store, root: Path, outside: Path, operation: str, place: str
) -> None:
    (root / "real").mkdir()
    (root / "linked").symlink_to(outside)
    (root / "real" / "linked").symlink_to(outside)
    with raises(StorageError, "symbolic-link"):
        ASK[operation](store, place)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"a": SECRET}


@pytest.mark.parametrize("operation", OBJECTS)
@pytest.mark.parametrize("target", ["outside/a", "root/real", "nowhere"])
def test_no_operation_follows_a_linked_file(
    store: Store, root: Path, outside: Path, operation: str, target: str
) -> None:
    (root / "real").write_bytes(b"inside")
    (root / "a").symlink_to(root.parent / target)
    with raises(StorageError, "symbolic-link", path=f"{root}/a"):
        ASK[operation](store, "a")
    assert (root / "a").is_symlink()
    assert (outside / "a").read_bytes() == SECRET
    assert (root / "real").read_bytes() == b"inside"
    assert not (root.parent / "nowhere").exists()


@pytest.mark.parametrize("place", ["", "real", "linked", "linked/deeper"])
def test_a_listing_that_meets_a_link_is_refused(
    store: Store, root: Path, outside: Path, place: str
) -> None:
    (root / "real").mkdir()
    (root / "real" / "linked").symlink_to(outside)
    (root / "linked").symlink_to(outside)
    with raises(StorageError, "symbolic-link"):
        store.list(place)
    with raises(StorageError, "symbolic-link"):
        store.folders(place)


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    store = open_store(root.parent / "link")
    store.create("a/b", b"1")
    assert (root / "a" / "b").read_bytes() == b"1"
    assert store.uri == str(root)
    (root.parent / "link").unlink()
    assert store.read("a/b") == b"1", "it was resolved once"


def test_folder_swapped_for_link_never_escapes(store: Store, root: Path, outside: Path) -> None:
    store.create("folder/a", b"inside")
    stop = threading.Event()

    def swap() -> None:
        for number in count():
            if stop.is_set():
                return
            with suppress(OSError):  # the store may have made the folder anew
                (root / "folder").rename(root / f"aside{number}")
                (root / "folder").symlink_to(outside)
                (root / "folder").unlink()
                (root / f"aside{number}").rename(root / "folder")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for number in range(2000):
            for operation in ("read", "create"):
                try:
                    found = ASK[operation](
                        store, "folder/a" if operation == "read" else f"folder/n{number}"
                    )
                    seen.add(found)
                except StorageError as error:
                    seen.add(type(error))
    finally:
        stop.set()
        swapper.join()
    assert SECRET not in seen
    assert [path.name for path in outside.iterdir()] == ["a"]


def test_the_root_is_made_with_the_first_object(tmp_path: Path) -> None:
    store = open_store(tmp_path / "new" / "deep" / "root")
    assert store.list("") == []
    assert store.folders("") == []
    assert store.read_many(["a"]) == [None]
    store.delete("a")
    assert not (tmp_path / "new").exists(), "reading makes nothing"
    store.create("a/b", b"1")
    assert (tmp_path / "new" / "deep" / "root" / "a" / "b").read_bytes() == b"1"


def test_a_folder_that_was_removed_is_made_again(store: Store, root: Path) -> None:
    store.create("a/b/c", b"1")
    shutil.rmtree(root / "a")
    store.create("a/b/c", b"2")
    assert store.read("a/b/c") == b"2"
    shutil.rmtree(root)
    store.create("a/b/c", b"3")
    assert store.read("a/b/c") == b"3"


def test_many_who_make_the_same_folders_do_not_trip(root: Path) -> None:
    for turn in range(20):
        barrier = Barrier(6)

        def write(number: int, turn: int = turn, barrier: Barrier = barrier) -> None:
            store = open_store(root)
            barrier.wait()
            store.create(f"t{turn}/x/y/z/{number}", b"1")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        assert len(open_store(root).list(f"t{turn}")) == 6


def test_a_pipe_is_no_object_and_nobody_waits_for_it(store: Store, root: Path) -> None:
    os.mkfifo(root / "pipe")
    for operation in OBJECTS:
        if operation == "local_path":
            continue
        kind = NotAFileError if operation == "open_local" else StorageError
        with raises(kind, "not-a-file", path=f"{root}/pipe"):
            ASK[operation](store, "pipe")
    assert store.list("") == []


def test_an_object_that_would_replace_a_folder_is_refused(store: Store, root: Path) -> None:
    store.create("a/b", b"1")
    for operation in ("create", "replace", "delete"):
        with raises(StorageError, "not-a-file", path=f"{root}/a") as caught:
            ASK[operation](store, "a")
        assert not isinstance(caught.value, ObjectExistsError)
    with raises(StorageError, "not-a-folder", path=f"{root}/a/b/c"):
        store.create("a/b/c", b"2")
    assert names(store) == ["a/b"]
    assert (root / "a" / "b").read_bytes() == b"1"


def test_foreign_files_with_names_that_no_object_has_are_left_out(store: Store, root: Path) -> None:
    store.create("a/b", b"1")
    for name in ["with space", "ünïcode", "trailing.", "a#1", "con"]:
        (root / "a" / name).write_bytes(b"x")
    (root / "a folder").mkdir()
    (root / "a folder" / "c").write_bytes(b"x")
    assert names(store, hidden=True) == ["a/b"]
    assert store.folders("") == ["a"]


def test_a_file_that_vanishes_while_others_are_listed_is_passed_over(
    store: Store, root: Path
) -> None:
    for number in range(50):
        store.create(f"a/{number}", b"1")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for number in range(50):
                path = root / "a" / f"x{number}"
                path.write_bytes(b"1")
                path.unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(200):
            found = set(names(store))
            assert {f"a/{number}" for number in range(50)} <= found
    finally:
        stop.set()
        thread.join()


def test_where_an_object_lies_is_told_also_before_it_is_there(store: Store, root: Path) -> None:
    assert store.local_path("a/b") == root / "a" / "b"
    store.create("a/b", b"1")
    path = store.local_path("a/b")
    assert path is not None
    assert path.read_bytes() == b"1"


def test_an_opened_object_is_a_regular_file_that_no_link_leads_to(store: Store, root: Path) -> None:
    store.create("a/b", b"123")
    opened = store.open_local("a/b")
    assert opened is not None
    assert (opened.path, opened.size) == (f"{root}/a/b", 3)
    assert os.pread(opened.descriptor, 9, 0) == b"123"
    os.close(opened.descriptor)
    with pytest.raises(FileNotFoundError):
        store.open_local("a/c")
    with pytest.raises(FileNotFoundError):
        store.open_local("c/b")
    with raises(NotAFileError, "not-a-file", path=f"{root}/a"):
        store.open_local("a")
    os.mknod(root / "s", stat.S_IFSOCK | 0o600)
    with raises(NotAFileError, "not-a-file", path=f"{root}/s"):
        store.open_local("s")


def test_it_imports_neither_obstore_nor_numpy(root: Path) -> None:
    code = 'store.create("a", b""); print(*sys.modules)'
    ((modules, _),), _ = traced(code, root, "-e", "trace=none")
    assert {"obstore", "numpy", "pyarrow"}.isdisjoint(modules.split())


def test_create_many_writes_again_what_somebody_tidied_up(store: Store, root: Path) -> None:
    store.create("a/first", b"1")
    stop = threading.Event()

    def tidy() -> None:
        while not stop.is_set():
            for path in (root / "a").glob(".*.tmp"):
                path.unlink(missing_ok=True)

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        groups = [[NewObject(f"a/{number}", b"%d" % number)] for number in range(200)]
        assert all(store.create_many(groups))
    finally:
        stop.set()
        thread.join()
    assert store.read_many([f"a/{number}" for number in range(200)]) == [
        b"%d" % number for number in range(200)
    ]


SYNCS = "trace=mkdir,mkdirat,fsync,link,linkat,unlink,unlinkat"


def steps(calls: list[str], root: Path) -> list[str]:
    """The calls that touch the root, each as its verb and the last part of what it acts on."""
    told = []
    for call in calls:
        if str(root) not in call:
            continue
        verb = call.split("(")[0].split()[-1].removesuffix("at")
        inside = call.split("<", 1)[1].split(">")[0].removeprefix(str(root)).strip("/") or "root"
        named = [part for part in call.split('"')[1::2] if not part.endswith(".tmp")]
        told.append(" ".join([verb, "temporary" if inside.endswith(".tmp") else inside, *named]))
    return told


def test_each_new_folder_is_durable_before_what_is_in_it(root: Path) -> None:
    _, calls = traced('store.create("a/b/c", b"1"); store.create("a/b/d", b"2")', root, "-e", SYNCS)
    assert steps(calls, root) == [
        "mkdir root a", "fsync root", "mkdir a b", "fsync a",
        "fsync temporary", "link a/b c", "fsync a/b", "unlink a/b",
        "fsync temporary", "link a/b d", "fsync a/b", "unlink a/b",
    ]  # fmt: skip


def test_a_deletion_is_durable(root: Path) -> None:
    (root / "a").write_bytes(b"1")
    _, calls = traced('store.delete("a")', root, "-e", SYNCS)
    assert steps(calls, root) == ["unlink root a", "fsync root"]


WRITE = 'told(lambda: store.create("a/b", b"new"))'
REPLACE = 'told(lambda: store.replace("a/b", b"new"))'
CODES = {
    "ENOSPC": "storage-full",
    "EDQUOT": "storage-full",
    "EROFS": "access-denied",
    "EACCES": "access-denied",
    "EIO": "storage-error",
    "EMFILE": "storage-error",
}


@pytest.mark.parametrize("error", CODES)
@pytest.mark.parametrize("call", ["write", "fsync", "link,linkat", "rename,renameat,renameat2"])
def test_a_failing_disk_is_told_in_words_and_nothing_is_changed(
    root: Path, call: str, error: str
) -> None:
    (root / "a").mkdir()
    replaces = call.startswith("rename")
    if replaces:
        (root / "a" / "b").write_bytes(b"old")
    # The first write of a Python that begins is ours; the first sync is that of the folder above.
    turn = 2 if call == "fsync" else 1
    inject = f"inject={call}:error={error}:when={turn}"
    ((kind, message),), calls = traced(
        REPLACE if replaces else WRITE, root, "-e", f"trace={call}", "-e", inject
    )
    assert any("INJECTED" in one for one in calls)
    assert kind == "StorageError"
    assert message.startswith(f"{root}/a/b: ")
    assert "not written" in message
    assert "Hint: " in message
    assert message.endswith(f"[{CODES[error]}]")
    assert ".tmp" not in message
    left = {path.name: path.read_bytes() for path in (root / "a").iterdir()}
    assert left == ({"b": b"old"} if replaces else {})


def test_what_can_be_derived_again_is_not_waited_for(root: Path) -> None:
    (root / "a").mkdir()
    _, calls = traced(REPLACE, root, "-e", "trace=fsync")
    assert not [call for call in calls if ".tmp" in call]


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_name_that_the_disk_did_not_confirm_is_uncertain(root: Path, error: str) -> None:
    (root / "a").mkdir()
    inject = f"inject=fsync:error={error}:when=3"
    ((kind, message),), calls = traced(WRITE, root, "-e", "trace=fsync", "-e", inject)
    assert sum("fsync(" in call for call in calls) == 3, "a failed sync is not repeated"
    assert kind == "UnsyncedWriteError"
    assert message.endswith("[unsynced-write]")
    assert f"{root}/a/b" in message
    assert ".tmp" not in message
    assert {path.name for path in (root / "a").iterdir()} == {"b"}


@pytest.mark.parametrize("code", [WRITE, 'told(lambda: store.delete("a/b"))'])
def test_a_temporary_or_object_that_cannot_be_unlinked(root: Path, code: str) -> None:
    (root / "a").mkdir()
    deletes = "delete" in code
    if deletes:
        (root / "a" / "b").write_bytes(b"1")
    inject = "inject=unlink,unlinkat:error=EIO"
    ((kind, message),), _ = traced(code, root, "-e", "trace=unlink,unlinkat", "-e", inject)
    left = {path.name for path in (root / "a").iterdir()}
    if deletes:
        assert kind == "StorageError"
        assert message.startswith(f"{root}/a/b: ")
        assert left == {"b"}
        return
    assert kind == "done", "a temporary that stays makes no success a failure"
    store = open_store(root)
    assert store.read("a/b") == b"new"
    assert names(store) == ["a/b"]
    (temporary,) = set(names(store, hidden=True)) - {"a/b"}
    store.delete(temporary)
    assert {path.name for path in (root / "a").iterdir()} == {"b"}


def test_an_error_while_cleaning_up_does_not_hide_the_first(root: Path) -> None:
    code = WRITE
    ((kind, message),), _ = traced(
        *(code, root, "-e", "trace=write,unlink,unlinkat"),
        *("-e", "inject=write:error=ENOSPC:when=1", "-e", "inject=unlink,unlinkat:error=EIO"),
    )
    assert kind == "StorageError"
    assert message.endswith("[storage-full]")


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ('told(lambda: store.read("a/b"))', "pread64"),
        ('told(lambda: store.read_ranges("a/b", [(0, 1)]))', "pread64"),
        ('told(lambda: store.list(""))', "getdents64"),
        ('told(lambda: store.folders(""))', "getdents64"),
    ],
)
def test_a_read_that_fails_is_told_in_words(root: Path, code: str, call: str) -> None:
    open_store(root).create("a/b", b"1")
    # Of the calls on descriptors below the root only: Python's own must not fail.
    options = ("-P", str(root), "-P", str(root / "a"), "-P", str(root / "a" / "b"))
    ((kind, message),), calls = traced(
        code, root, *options, "-e", f"trace={call}", "-e", f"inject={call}:error=EIO"
    )
    assert any("INJECTED" in one for one in calls)
    assert kind == "StorageError"
    assert message.startswith(str(root))
    assert message.endswith("[storage-error]")
    assert "check the disk" in message
    assert "not written" not in message


def test_an_object_that_becomes_shorter_is_not_given_cut(store: Store, root: Path) -> None:
    store.create("a", b"0123456789")
    (root / "a").write_bytes(b"0123")
    with raises(StorageError, "object-mismatch", path=f"{root}/a", offset=2):
        store.read_ranges("a", [(2, 4)])
    (root / "a").unlink()
    with pytest.raises(ObjectNotFoundError):
        store.read_ranges("a", [(2, 4)])
