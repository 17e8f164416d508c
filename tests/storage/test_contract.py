"""What every store does alike: on a disk, in memory, and on a real S3 server."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import TYPE_CHECKING, NoReturn

import pytest

from shardline.errors import InvalidNameError, ObjectExistsError, ObjectNotFoundError, StorageError
from shardline.storage import PROBE_NAME, open_store
from shardline.storage.store import NewObject, probe_conditions
from tests.storage.asking import ASK, names, write

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.kernel.types import Buffer
    from shardline.storage import Store


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(tmp_path / "root")
    if request.param == "memory":
        return open_store(f"memory://x-{secrets.token_hex(8)}/prefix")
    return open_store(request.getfixturevalue("s3_root"))


def test_what_was_created_is_read_back(store: Store) -> None:
    store.create("digits/v1/log/0.json", b"{}")
    assert store.read("digits/v1/log/0.json") == b"{}"


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.create("empty", b"")
    assert store.read("empty") == b""
    assert store.read_ranges("empty", [(0, 0)]) == [b""]
    info = store.info("empty")
    assert info is not None
    assert info.size == 0


def test_an_object_that_exists_is_refused_and_stays_as_it_is(store: Store) -> None:
    store.create("a/b", b"first")
    with pytest.raises(ObjectExistsError) as caught:
        store.create("a/b", b"second")
    assert str(caught.value).startswith(f"{store.uri}/a/b")
    assert store.read("a/b") == b"first"


def test_of_many_who_create_one_name_exactly_one_wins(store: Store) -> None:
    writers = 8
    for turn in range(5):
        barrier = Barrier(writers)

        def write(number: int, turn: int = turn, barrier: Barrier = barrier) -> int | None:
            barrier.wait()
            try:
                store.create(f"race/{turn}", b"%d" % number)
            except ObjectExistsError:
                return None
            return number

        with ThreadPoolExecutor(writers) as pool:
            winners = [number for number in pool.map(write, range(writers)) if number is not None]
        assert len(winners) == 1
        assert store.read(f"race/{turn}") == b"%d" % winners[0]


def test_a_missing_object_is_named(store: Store) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        store.read("a/b")
    assert str(caught.value).startswith(f"{store.uri}/a/b")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(ObjectNotFoundError):
        store.read_ranges("a/b", [(0, 1)])
    assert store.info("a/b") is None


def test_a_folder_is_no_object(store: Store) -> None:
    store.create("a/b/c", b"1")
    assert store.info("a/b") is None
    assert store.read_many(["a/b", "a"]) == [None, None]
    with pytest.raises(ObjectNotFoundError):
        store.read("a/b")


def test_nothing_is_below_an_object(store: Store) -> None:
    store.create("a", b"1")
    assert store.info("a/b") is None
    assert store.read_many(["a/b", "a"]) == [None, b"1"]


def test_many_are_read_in_the_order_asked_with_none_for_the_missing(store: Store) -> None:
    for number in range(40):
        store.create(f"log/{number}", b"%d" % number)
    store.create("other", b"x")
    wanted = ["other", "log/39", *(f"log/{number}" for number in range(50)), "no/such", "log/3"]
    expected = [b"x", b"39", *(b"%d" % n if n < 40 else None for n in range(50)), None, b"3"]
    assert store.read_many(wanted) == expected
    assert store.read_many([]) == []


def test_info_many_answers_in_order(store: Store) -> None:
    store.create("a/b", b"12")
    store.create("c", b"")
    found = store.info_many(["c", "a/b", "a", "no/such", "a/b"])
    assert found == [store.info(name) for name in ("c", "a/b", "a", "no/such", "a/b")]
    assert [info and info.size for info in found] == [0, 2, None, None, 2]
    assert store.info_many([]) == []


def test_create_many_stops_a_group_at_a_taken_name(store: Store) -> None:
    store.create("a/taken", b"first")
    store.create("a/derived", b"old")
    groups = [
        [
            NewObject("a/1", b"1"),
            NewObject("a/derived", b"new", derived=True),
            NewObject("b/2", b""),
        ],
        [NewObject("a/3", b"3"), NewObject("a/taken", b"second"), NewObject("a/4", b"4")],
        [],
        [NewObject("a/5", b"5" * 100_000)],
    ]
    assert store.create_many(groups) == [True, False, True, True]
    store.sync(["a/1", "b/2", "a/5"])
    assert names(store) == ["a/1", "a/3", "a/5", "a/derived", "a/taken", "b/2"]
    assert store.read_many(["a/1", "b/2", "a/3", "a/taken", "a/derived"]) == [
        b"1", b"", b"3", b"first", b"new",
    ]  # fmt: skip
    assert names(store, hidden=True) == names(store)


def test_ranges_are_given_exactly(store: Store) -> None:
    store.create("a", bytes(range(200)))
    ranges = [(0, 1), (199, 1), (10, 50), (40, 30), (10, 50), (200, 0), (7, 0), (0, 200)]
    assert store.read_ranges("a", ranges) == [
        bytes(range(start, start + size)) for start, size in ranges
    ]
    assert store.read_ranges("a", []) == []


@pytest.mark.parametrize("outside", [(0, 11), (9, 2), (10, 1), (1000, 5), (-1, 2), (2, -1)])
def test_a_range_past_the_end_is_an_error_and_not_cut(
    store: Store, outside: tuple[int, int]
) -> None:
    store.create("a", b"0123456789")
    with pytest.raises(StorageError) as caught:
        store.read_ranges("a", [(0, 2), outside])
    assert str(caught.value).startswith(f"{store.uri}/a")
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_info_tells_size_and_time_in_utc(store: Store) -> None:
    store.create("a/b", b"12345")
    info = store.info("a/b")
    assert info is not None
    assert (info.name, info.size) == ("a/b", 5)
    assert info.modified.utcoffset() == timedelta(0)
    assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=5)
    assert store.list("a") == [info] or store.uri.startswith("s3:"), "S3 rounds one of the two"


def test_replace_creates_and_overwrites(store: Store) -> None:
    store.replace("a/b", b"first and long")
    assert store.read("a/b") == b"first and long"
    store.replace("a/b", b"second")
    assert store.read("a/b") == b"second"
    assert names(store, hidden=True) == ["a/b"]


def test_writer_publishes_at_block_end(store: Store) -> None:
    pieces: list[Buffer] = [b"one", bytearray(b" two"), memoryview(b" three"), b"", bytes(9)]
    with store.writer("a/b") as file:
        for piece in pieces:
            file.write(piece)
            assert store.info("a/b") is None
            assert names(store, "a") == []
    assert store.read("a/b") == b"".join(pieces)
    assert names(store, hidden=True) == ["a/b"]


def test_nothing_written_is_an_empty_object(store: Store) -> None:
    with store.writer("a"):
        pass
    assert store.read("a") == b""


@pytest.mark.parametrize("derived", [False, True])
def test_a_header_can_be_written_when_it_is_known(store: Store, derived: bool) -> None:  # noqa: FBT001
    with store.writer("a", derived=derived) as file:
        file.write(bytes(4))
        file.write(b"body")
        file.rewrite(0, b"head")
        file.rewrite(2, b"!!")
    assert store.read("a") == b"he!!body"


def test_writing_goes_on_at_the_end_after_a_header(store: Store) -> None:
    with store.writer("a") as file:
        file.write(b"....: ")
        file.rewrite(0, b"head")
        file.write(b"body")
    assert store.read("a") == b"head: body"


def test_writer_keeps_existing_object(store: Store) -> None:
    store.create("a/b", b"first")
    with pytest.raises(ObjectExistsError) as caught:
        write(store, "a/b", b"second")
    assert str(caught.value).startswith(f"{store.uri}/a/b")
    assert store.read("a/b") == b"first"
    assert names(store, hidden=True) == ["a/b"]


def test_a_writer_refuses_an_object_that_came_meanwhile(store: Store) -> None:
    with pytest.raises(ObjectExistsError):
        write(store, "a/b", b"second", then=lambda: store.create("a/b", b"first"))
    assert store.read("a/b") == b"first"
    assert names(store, hidden=True) == ["a/b"]


def test_of_two_writers_of_one_name_the_first_to_end_wins(store: Store) -> None:
    with pytest.raises(ObjectExistsError):
        write(store, "a", b"late", then=lambda: write(store, "a", b"early"))
    assert store.read("a") == b"early"


def test_writer_with_overwrite_replaces_whole_or_not_at_all(store: Store) -> None:
    store.create("a/b", b"old")
    with store.writer("a/b", overwrite=True) as file:
        file.write(b"ne")
        file.write(b"w")
        assert store.read("a/b") == b"old"
    assert store.read("a/b") == b"new"
    with store.writer("a/c", overwrite=True) as file:
        file.write(b"first")
    assert store.read("a/c") == b"first"
    assert names(store, hidden=True) == ["a/b", "a/c"]


def test_a_writer_of_what_is_derived_overwrites_when_it_ends(store: Store) -> None:
    store.create("a/b", b"first and long")
    with store.writer("a/b", derived=True) as file:
        file.write(b"second")
        assert store.read("a/b") == b"first and long"
    assert store.read("a/b") == b"second"
    assert names(store, hidden=True) == ["a/b"]


OWN_ERRORS: list[BaseException] = [
    ValueError("of the caller"),
    OSError(5, "Input/output error", "a source of the caller"),
    FileExistsError(17, "File exists", "a file of the caller"),
    ObjectNotFoundError("a source in another store: there is no such object"),
    ObjectExistsError("an object in another store exists already"),
    KeyboardInterrupt(),
]


def fail(error: BaseException) -> NoReturn:
    raise error


@pytest.mark.parametrize("error", OWN_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("derived", [False, True])
def test_caller_error_passes_and_leaves_nothing(
    store: Store,
    error: BaseException,
    derived: bool,  # noqa: FBT001
) -> None:
    """It may be what reading the caller's own source ran into: that is not the store's."""
    store.create("other", b"1")
    with pytest.raises(type(error)) as caught:
        write(store, "a/b", b"half", derived=derived, then=lambda: fail(error))
    assert caught.value is error
    assert names(store, hidden=True) == ["other"]
    write(store, "a/b", b"whole", derived=derived)
    assert store.read("a/b") == b"whole"


def test_unfinished_replace_keeps_derived_file(store: Store) -> None:
    store.create("a", b"first")
    with pytest.raises(ValueError, match="of the caller"):
        write(store, "a", b"second", derived=True, then=lambda: fail(OWN_ERRORS[0]))
    assert store.read("a") == b"first"
    assert names(store, hidden=True) == ["a"]


def test_delete_removes_one_and_a_missing_one_is_fine(store: Store) -> None:
    store.create("a/b", b"1")
    store.create("a/c", b"2")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("no/such")
    assert names(store) == ["a/c"]
    store.create("a/b", b"again")
    assert store.read("a/b") == b"again"


def test_list_is_sorted_and_complete(store: Store) -> None:
    for name in ["a/c/2", "a/b", "a-b/1", "a/c/10", "ab", "z", "a/c/d/e/f", "a=1/x"]:
        store.create(name, name.encode())
    assert names(store, "a") == ["a/b", "a/c/10", "a/c/2", "a/c/d/e/f"]
    assert names(store, "a/c") == ["a/c/10", "a/c/2", "a/c/d/e/f"]
    assert names(store) == sorted(names(store))
    assert len(names(store)) == 8
    assert [info.size for info in store.list("a/c")] == [6, 5, 9]
    assert names(store, "nothing/here") == []


def test_what_is_hidden_is_listed_only_when_asked_for(store: Store) -> None:
    for name in ["a/b", "a/.b.0123.tmp", ".probe-0123456789abcdef", "a/.trash/c", "a/c.tmp"]:
        store.create(name, b"1")
    assert names(store) == ["a/b", "a/c.tmp"]
    assert names(store, "a", hidden=True) == ["a/.b.0123.tmp", "a/.trash/c", "a/b", "a/c.tmp"]
    assert names(store, "a/.trash") == ["a/.trash/c"]
    assert ".probe-0123456789abcdef" in names(store, hidden=True)
    assert store.folders("a") == []


def test_folders_are_those_right_in_a_folder(store: Store) -> None:
    for name in ["digits/v2/log/0", "digits/v1/log/0", "digits/shards/x", "digits/y", "faces/v1/z"]:
        store.create(name, b"1")
    assert store.folders("") == ["digits", "faces"]
    assert store.folders("digits") == ["shards", "v1", "v2"]
    assert store.folders("digits/shards") == []
    assert store.folders("nothing/here") == []


def test_a_large_object_comes_back_whole_and_in_parts(store: Store) -> None:
    data = secrets.token_bytes(1024) * (20 * 1024)
    store.create("shards/large", data)
    assert store.read("shards/large") == data
    middle = len(data) // 2 - 17
    assert store.read_ranges("shards/large", [(middle, 5_000_001), (len(data) - 3, 3)]) == [
        data[middle : middle + 5_000_001],
        data[-3:],
    ]


def test_root_reopens_by_label(store: Store) -> None:
    store.create("a", b"1")
    assert open_store(store.uri).read("a") == b"1"


@pytest.mark.parametrize("operation", ASK)
def test_no_operation_takes_a_name_that_could_leave_the_root(store: Store, operation: str) -> None:
    for name in ["../a", "/a", "a/../../b", "a//b", "a\0b", "..", "a/"]:
        with pytest.raises(InvalidNameError):
            ASK[operation](store, name)


def test_a_store_that_honours_conditions_passes_and_keeps_no_probe(store: Store) -> None:
    store.check_conditions("digits")
    store.check_conditions("digits")
    probe_conditions(store, "")
    probe_conditions(store, "digits")
    assert names(store, hidden=True) == []


def test_a_probe_is_known_by_its_name() -> None:
    assert PROBE_NAME.fullmatch(".probe-0123456789abcdef")
    assert not PROBE_NAME.fullmatch("probe-0123456789abcdef")
    assert not PROBE_NAME.fullmatch(".probe-0123456789abcdef.tmp")
