"""Parsing of strace logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.calls import Call, assert_failed_sync_is_final, read_trace, unsynced

FOLDER = Path("/data/set")


def calls_of(*lines: str) -> tuple[Call, ...]:
    return read_trace(lines, FOLDER, Path("/start")).calls


def one(line: str) -> Call:
    (call,) = calls_of(line)
    return call


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ('7 mkdir("/data/set/a", 0777) = 0', ("a",)),
        ("7 fsync(3</data/set>)               = 0", (".",)),
        ('7 write(3</data/set/a>, ""..., 4000) = 4000', ("a",)),
        ('7 openat(AT_FDCWD</data>, "set/a", O_WRONLY|O_CREAT, 0666) = 3</data/set/a>', ("a",)),
        ('7 open("/data/set/a", O_RDWR) = 3</data/set/a>', ("a",)),
        ('7 renameat(3</data/set>, "a", 4</data/set/b>, "c") = 0', ("a", "b/c")),
        ('7 link("/elsewhere/a", "/data/set/a") = 0', ("/elsewhere/a", "a")),
        ('7 symlink("/data/set/target", "/data/set/a") = 0', ("a",)),
        ('7 symlinkat("target", 3</data/set>, "a") = 0', ("a",)),
        ("7 fsync(3</data/set/a>(deleted)) = 0", ("a (deleted)",)),
        ('7 unlink("/data/set/b/../a") = 0', ("a",)),
        (r'7 mkdir("/data/set/\345\220\215 \"<x>", 0777) = 0', ('名 "<x>',)),
        (r"7 fsync(3</data/set/\345\220\215\74x\0760>) = 0", ("名<x>0",)),
        ("7 copy_file_range(3</data/set/a>, NULL, 4</data/set/b>, NULL, 9, 0) = 9", ("a", "b")),
    ],
)
def test_a_change_in_the_folder_is_seen_whatever_way_its_path_is_told(
    line: str, paths: tuple[str, ...]
) -> None:
    call = one(line)
    assert call.mutates
    assert call.paths == paths


@pytest.mark.parametrize(
    "line",
    [
        '7 openat(AT_FDCWD</start>, "/data/set/a", O_RDONLY|O_CLOEXEC) = 3</data/set/a>',
        '7 openat2(AT_FDCWD</x>, "/data/set/a", {flags=O_RDONLY, resolve=0}, 24) = 3</data/set/a>',
        '7 openat(AT_FDCWD</start>, "/data/set/O_CREAT", O_RDONLY) = 3</data/set/O_CREAT>',
        '7 mkdir("/data/set2", 0777) = 0',
        '7 mkdir("relative", 0777) = 0',
        '7 write(1<pipe:[123]>, ""..., 4000) = 4000',
        '7 write(1</elsewhere>, "3</data/set/a>", 14) = 14',
        "7 exit_group(0) = ?",
    ],
)
def test_reading_and_changes_elsewhere_are_not_meant(line: str) -> None:
    assert not one(line).mutates


def test_calls_are_numbered_per_thread_and_name_as_strace_counts() -> None:
    calls = calls_of(
        '7 write(1<pipe:[1]>, "", 1) = 1',
        '8 write(3</data/set/a>, "", 1) = 1',
        '7 write(3</data/set/a>, "", 1) = 1',
        "7 fsync(3</data/set/a>) = 0",
    )
    assert [(call.name, call.when) for call in calls] == [
        ("write", 1), ("write", 1), ("write", 2), ("fsync", 1),
    ]  # fmt: skip


def test_a_call_that_another_thread_interrupts_stands_where_it_began() -> None:
    calls = calls_of(
        "7 fsync(3</data/set/a> <unfinished ...>",
        '8 mkdir("/data/set/b", 0777) = 0',
        "7 <... fsync resumed>) = -1 EIO (Input/output error) (INJECTED)",
    )
    assert [(call.name, call.when) for call in calls] == [("fsync", 1), ("mkdir", 1)]
    assert (calls[0].error, calls[0].injected, calls[0].finished) == ("EIO", True, True)


@pytest.mark.parametrize(
    "lines",
    [
        ['7 write(3</data/set/a>, "", 10) = ?', "7 +++ killed by SIGKILL +++"],
        ['7 write(3</data/set/a>, "", 10 <unfinished ...>', "7 +++ killed by SIGKILL +++"],
        ['7 write(3</data/set/a>, "", 10 <unfinished ...>) = ?', "7 +++ killed by SIGKILL +++"],
        [
            '7 write(3</data/set/a>, "", 10) = -1 ENOSYS (Function not implemented) (INJECTED)',
            "7 +++ killed by SIGKILL +++",
        ],
    ],
)
def test_a_kill_leaves_its_call_unfinished(lines: list[str]) -> None:
    trace = read_trace(lines, FOLDER, Path("/start"))
    assert trace.killed
    (call,) = trace.calls
    assert (call.finished, call.size) == (False, 10)


def test_how_much_a_write_was_asked_for_is_known() -> None:
    write = one('7 write(3</data/set/a>, ""..., 4000) = 1')
    at_offset = one('7 pwrite64(3</data/set/a>, ""..., 4000, 16) = 1')
    assert (write.size, at_offset.size) == (4000, 4000)


def call(name: str, *paths: str, error: str | None = None) -> Call:
    return Call(thread=7, name=name, when=1, paths=paths, error=error, mutates=True)


FAILED = call("fsync", "a", error="EIO")


@pytest.mark.parametrize(
    "calls",
    [
        [FAILED, call("fsync", "a")],
        [FAILED, call("fdatasync", "a", error="EIO")],
        [FAILED, call("rename", "a", "b"), call("fsync", "b")],
        [FAILED, call("link", "a", "b"), call("fsync", "b")],
        [FAILED, call("unlink", "a"), call("fsync", "a (deleted)")],
        [FAILED, call("unlink", "a", error="EIO"), call("fsync", "a")],
    ],
)
def test_a_second_sync_of_a_file_whose_sync_failed_is_found(calls: list[Call]) -> None:
    with pytest.raises(AssertionError, match="was synced again"):
        assert_failed_sync_is_final(calls)


@pytest.mark.parametrize(
    "calls",
    [
        [FAILED, call("fsync", "b")],
        [call("fsync", "a", error="EINTR"), call("fsync", "a")],
        [FAILED, call("unlink", "a"), call("openat", "a"), call("fsync", "a")],
        [FAILED, call("rename", "b", "a"), call("fsync", "a")],
        [FAILED, call("rename", "a", "b"), call("fsync", "a")],
    ],
)
def test_another_file_and_an_interruption_are_no_second_sync(calls: list[Call]) -> None:
    assert_failed_sync_is_final(calls)


def test_a_failed_sync_counts_until_its_file_is_gone() -> None:
    assert unsynced([FAILED, call("rename", "a", "b")]) == {"b"}
    assert unsynced([FAILED, call("unlink", "a")]) == set()
    assert unsynced([call("fsync", "a", error="EINTR")]) == set()
