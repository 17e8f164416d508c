"""The system calls of a run, read from the log that `strace -f -y` wrote."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OPENING = frozenset({"open", "openat", "openat2", "creat"})
WRITING = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})
SYNCING = frozenset({"fsync", "fdatasync"})
BY_DESCRIPTOR = frozenset(
    {*WRITING, *SYNCING, "ftruncate", "fallocate", "copy_file_range", "sendfile", "fchmod"}
)
MAKING_LINKS_TO_TEXT = frozenset({"symlink", "symlinkat"})
RENAMING = frozenset({"rename", "renameat", "renameat2"})
LINKING = frozenset({"link", "linkat"})
REMOVING = frozenset({"unlink", "unlinkat", "rmdir"})
BY_PATH = frozenset(
    {*OPENING, *MAKING_LINKS_TO_TEXT, *RENAMING, *LINKING, *REMOVING}
    | {"mkdir", "mkdirat", "truncate", "chmod", "fchmodat"}
)
MUTATING = BY_DESCRIPTOR | BY_PATH
EXIT = "exit_group"

_LINE = re.compile(r"(?P<thread>\d+) +(?P<rest>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>.*)")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_UNFINISHED = " <unfinished ...>"
# A descriptor with its path as `-y` shows it, or a text. What strace cannot print it escapes.
_TOKEN = re.compile(
    r"(?:AT_FDCWD|\d+)<(?P<open>(?:[^<>\\]|\\.)*)>(?P<deleted>\(deleted\))?"
    r'|"(?P<text>(?:[^"\\]|\\.)*)"'
)
_CHANGING_FLAGS = re.compile(r"\bO_(?:CREAT|TRUNC|WRONLY|RDWR)\b")
_SIZE = {
    "write": re.compile(r", (\d+)$"),
    "pwrite64": re.compile(r", (\d+), -?\d+$"),
}
_ERROR = re.compile(r"-1 (E[A-Z0-9]+)")
# strace skips a call that is to fail, for which the kernel says ENOSYS, and writes the error over
# that. A process that is killed between the two never gets an answer.
_SKIPPED = re.compile(r"-1 ENOSYS .*\(INJECTED\)")
DELETED = " (deleted)"


@dataclass(frozen=True)
class Call:
    """System call in the log.

    `when` is its number among the calls of that name in its thread, as strace counts for `when=`;
    `paths` are what it acts on, relative to the folder if they are in it. `size` is how many bytes
    a write was asked to write, `error` the name of the errno it gave, `finished` whether it
    returned at all, and `mutates` whether it can change something in the folder.
    """

    thread: int
    name: str
    when: int
    paths: tuple[str, ...]
    size: int = 0
    error: str | None = None
    injected: bool = False
    finished: bool = True
    mutates: bool = False


@dataclass(frozen=True)
class Trace:
    """Every call of a run in the order in which they began."""

    calls: tuple[Call, ...]
    killed: bool

    @property
    def mutating(self) -> tuple[Call, ...]:
        """The calls that can change something in the folder."""
        return tuple(call for call in self.calls if call.mutates)


def read_trace(lines: Iterable[str], folder: Path, cwd: Path) -> Trace:
    """Read a log. Relative paths count from `cwd`."""
    calls: list[Call] = []
    begun: dict[int, tuple[int, str]] = {}
    numbers: Counter[tuple[int, str]] = Counter()
    killed = False
    for line in lines:
        if (found := _LINE.fullmatch(line.rstrip("\n"))) is None:
            continue
        thread, rest = int(found["thread"]), found["rest"]
        killed = killed or rest == "+++ killed by SIGKILL +++"
        if resumed := _RESUMED.fullmatch(rest):
            if thread in begun:
                place, start = begun.pop(thread)
                whole = _call(thread, start + resumed["rest"], folder, cwd)
                if whole is not None:
                    calls[place] = replace(whole, when=calls[place].when)
            continue
        cut = rest.endswith(_UNFINISHED)
        text = rest.removesuffix(_UNFINISHED)
        call = _call(thread, f"{text}) = ?" if cut else text, folder, cwd)
        if call is None:
            continue
        if cut:
            begun[thread] = (len(calls), text)
        numbers[thread, call.name] += 1
        calls.append(replace(call, when=numbers[thread, call.name]))
    return Trace(tuple(calls), killed)


def _call(thread: int, text: str, folder: Path, cwd: Path) -> Call | None:
    if (found := _CALL.fullmatch(text.replace(_UNFINISHED, ""))) is None:
        return None
    name, arguments, result = found["name"], found["arguments"], found["result"]
    paths = tuple(_relative(path, folder) for path in _paths(name, arguments, cwd))
    inside = any(not path.startswith("/") for path in paths)
    finished = not (result.startswith("?") or _SKIPPED.fullmatch(result))
    error = _ERROR.match(result) if finished else None
    size = _SIZE[name].search(arguments) if name in _SIZE else None
    return Call(
        thread=thread,
        name=name,
        when=0,
        paths=paths,
        size=int(size[1]) if size else 0,
        error=error[1] if error else None,
        injected=result.endswith("(INJECTED)"),
        finished=finished,
        mutates=inside and _mutates(name, arguments),
    )


def _mutates(name: str, arguments: str) -> bool:
    if name in OPENING - {"creat"}:
        return _CHANGING_FLAGS.search(_TOKEN.sub("", arguments)) is not None
    return name in MUTATING


def _paths(name: str, arguments: str, cwd: Path) -> list[str]:
    tokens = list(_TOKEN.finditer(arguments))
    if name in BY_DESCRIPTOR:
        return [
            _plain(token["open"]) + (DELETED if token["deleted"] else "")
            for token in tokens
            if token["open"] is not None and token["open"].startswith("/")
        ]
    if name not in BY_PATH:
        return []
    if name in MAKING_LINKS_TO_TEXT:
        del tokens[0]  # the target of the link is no path of the call
    paths = []
    base = str(cwd)
    for token in tokens:
        if token["open"] is not None:
            base = _plain(token["open"])
        else:
            paths.append(os.path.normpath(os.path.join(base, _plain(token["text"]))))  # noqa: PTH118 - joins two texts
            base = str(cwd)
    return paths


def _plain(escaped: str) -> str:
    """A text of the log without strace's escapes, which are those of C."""
    raw = escaped.encode("latin-1").decode("unicode_escape").encode("latin-1")
    return os.fsdecode(raw)


def _relative(path: str, folder: Path) -> str:
    start = str(folder)
    if path == start:
        return "."
    return path.removeprefix(start + "/")


def assert_failed_sync_is_final(calls: Iterable[Call]) -> None:
    """Assert that no file was synced again after a sync of it failed.

    The kernel may have dropped the pages that it could not write, and a second fsync then says
    "done" of bytes that are nowhere. Interrupted (EINTR) is not failed. A file is followed through
    renames, links and its removal; a new file under an old name is another file.
    """
    _follow_syncs(calls, forbid_second=True)


def unsynced(calls: Iterable[Call]) -> set[str]:
    """The files and folders that are still there and of which a sync failed."""
    return {path for path in _follow_syncs(calls) if not path.endswith(DELETED)}


def _follow_syncs(calls: Iterable[Call], *, forbid_second: bool = False) -> set[str]:
    failed: set[str] = set()
    for call in calls:
        path = call.paths[0] if call.paths else ""
        target = call.paths[-1] if call.paths else ""
        if call.name in SYNCING:
            if forbid_second:
                assert path not in failed, f"{path} was synced again after a sync of it failed"
            if call.error not in {None, "EINTR"}:
                failed.add(path)
        elif call.error is not None or not call.finished:
            continue
        elif call.name in RENAMING:
            moved = path in failed
            failed -= {path, target}
            failed |= {target} if moved else set()
        elif call.name in LINKING and path in failed:
            failed.add(target)
        elif call.name in REMOVING and path in failed:
            failed.remove(path)
            failed.add(path + DELETED)
    return failed
