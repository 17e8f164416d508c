"""The store that goes wrong by script: it does what it says, so that other tests can trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.errors import CommitStateUnknownError, ObjectExistsError, StorageError
from shardline.storage import open_store
from shardline.tfrecord import StoredFile
from tests.storage.faulty import Fault, FaultyStore

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.storage import Store


@pytest.fixture
def inner(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def test_without_a_script_it_is_the_store_behind_it(inner: Store) -> None:
    store: Store = FaultyStore(inner)
    store.create("a/b", b"one")
    store.replace("a/c", b"two")
    assert store.read("a/b") == b"one"
    assert store.read_many(["a/c", "a/d"]) == [b"two", None]
    assert store.read_ranges("a/b", [(1, 2)]) == [b"ne"]
    assert store.info("a/b") == inner.info("a/b")
    assert store.list("") == inner.list("")
    assert store.folders("") == ["a"]
    assert store.local_path("a/b") == inner.local_path("a/b")
    assert store.uri == inner.uri
    store.check_conditions("a")
    store.delete("a/b")
    assert inner.info("a/b") is None


def test_a_lost_reply_leaves_the_object_there(inner: Store) -> None:
    store = FaultyStore(inner, {("create", 2): Fault.REPLY_LOST})
    store.create("first", b"1")
    with pytest.raises(CommitStateUnknownError):
        store.create("second", b"2")
    assert inner.read("second") == b"2"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.RESET, CommitStateUnknownError),
        (Fault.CONFLICT, ObjectExistsError),
        (Fault.FAILED, StorageError),
    ],
)
def test_other_faults_leave_nothing_there_and_the_next_try_works(
    inner: Store, fault: Fault, error: type[StorageError]
) -> None:
    store = FaultyStore(inner, {("create", 1): fault})
    with pytest.raises(error) as caught:
        store.create("a", b"1")
    assert type(caught.value) is error
    assert inner.info("a") is None
    store.create("a", b"1")
    assert inner.read("a") == b"1"


def test_reads_fail_by_script_too(inner: Store) -> None:
    inner.create("a", b"1")
    store = FaultyStore(inner, {("read", 1): Fault.FAILED, ("list", 1): Fault.FAILED})
    with pytest.raises(StorageError):
        store.read("a")
    with pytest.raises(StorageError):
        store.list("")
    assert store.read("a") == b"1"


def test_a_rival_can_come_first(inner: Store) -> None:
    store = FaultyStore(inner, {("create", 1): lambda: inner.create("a", b"rival")})
    with pytest.raises(ObjectExistsError):
        store.create("a", b"ours")
    assert inner.read("a") == b"rival"


def test_requests_are_counted_also_those_that_fail(inner: Store) -> None:
    store = FaultyStore(inner, {("create", 1): Fault.RESET})
    with pytest.raises(CommitStateUnknownError):
        store.create("a", b"")
    store.create("a", b"")
    store.read_many(["a", "b", "c"])
    store.read_many(["a"])
    assert store.counts == {"create": 2, "read_many": 2, "read_many.objects": 4}


def test_a_local_store_can_be_made_to_look_remote(inner: Store) -> None:
    inner.create("a", b"0123456789")
    store = FaultyStore(inner, paths=False)
    assert store.local_path("a") is None
    assert StoredFile(store, "a").open().pread(3, 4) == b"456"
    assert store.counts == {"info": 1, "read_ranges": 1}
