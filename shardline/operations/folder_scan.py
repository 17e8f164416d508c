"""Scan of a local folder for files that a glob matches: one `stat` per file, and no more.

`pathlib` needs several system calls and objects for each file, which counts when a folder has a
hundred thousand files and nothing in it is new.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from fnmatch import translate
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


HIDDEN = (".", "_")
"""First characters of names that are skipped: temporary files, markers such as `_SUCCESS`."""
ANY_FOLDERS = "**"
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_Part: TypeAlias = "Callable[[str], object] | None"
"""Matches a name; None stands for any number of folders."""


def split_pattern(pattern: str) -> list[str]:
    """Return the parts of a glob."""
    return [part for part in pattern.split("/") if part not in {"", "."}]


def scan_files(
    folder: str, pattern: str, skipped: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the resolved path and the status of each file below `folder` that a glob matches.

    Adds to `skipped` the files that it does not match, without hidden files. Folders below are
    searched for these only if the glob has several parts. Links to files are followed, and links
    to folders where a part of the glob names them, but not by `**`. A file or folder that
    disappears during the scan is left out.
    """
    parts = [_matcher(part) for part in split_pattern(pattern)]
    shown = str(Path(folder))
    start = _Folder(folder, os.path.realpath(folder), shown, _reached({0}, parts), reports=True)
    pending = [start] if parts and Path(folder).is_dir() else []
    while pending:
        yield from pending.pop().scan(parts, skipped, pending)


class _Folder:
    """A folder to scan. `states` are the parts of the glob that may match the names in it."""

    __slots__ = ("path", "real", "reports", "shown", "states")

    def __init__(
        self, path: str, real: str, shown: str, states: frozenset[int], *, reports: bool
    ) -> None:
        self.path = path
        self.real = real
        self.shown = shown
        self.states = states
        self.reports = reports

    def scan(
        self, parts: Sequence[_Part], skipped: list[str], pending: list[_Folder]
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the matching files, and put the folders to scan next into `pending`."""
        last = len(parts) - 1
        final = parts[last] if last in self.states else None
        prefix = f"{self.real.rstrip('/')}/"
        with _open_folder(self.path) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(HIDDEN):
                    continue
                try:
                    if not entry.is_file():
                        if last > 0 and entry.is_dir():
                            self._enter(entry, parts, pending)
                    elif final is not None and final(name):
                        link = entry.is_symlink()
                        yield os.path.realpath(entry.path) if link else prefix + name, entry.stat()
                    elif self.reports:
                        skipped.append(f"{self.shown}/{name}")
                except OSError as error:
                    _raise_unless_gone(error)

    def _enter(
        self, entry: os.DirEntry[str], parts: Sequence[_Part], pending: list[_Folder]
    ) -> None:
        link = entry.is_symlink()
        states = {
            state if parts[state] is None else state + 1
            for state in self.states
            if (parts[state] is None and not link) or _matches(parts[state], entry.name)
        }
        reached = _reached({state for state in states if state < len(parts)}, parts)
        if reached or (self.reports and not link):
            real = os.path.realpath(entry.path) if link else f"{self.real.rstrip('/')}/{entry.name}"
            shown = f"{self.shown}/{entry.name}"
            reports = self.reports and not link
            pending.append(_Folder(entry.path, real, shown, reached, reports=reports))


@contextmanager
def _open_folder(path: str) -> Iterator[Iterable[os.DirEntry[str]]]:
    """Open a folder; one that may not be read or was deleted concurrently is empty."""
    try:
        entries = os.scandir(path)
    except PermissionError:
        yield ()
    except OSError as error:
        _raise_unless_gone(error)
        yield ()
    else:
        with entries:
            yield entries


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in _GONE:
        raise error


def _matcher(part: str) -> _Part:
    if part == ANY_FOLDERS:
        return None
    if part == "*":
        return bool  # every name
    return re.compile(translate(part)).match


def _matches(part: _Part, name: str) -> bool:
    return part is not None and bool(part(name))


def _reached(states: set[int], parts: Sequence[_Part]) -> frozenset[int]:
    """Add the parts after each `**`, which may stand for no folder at all."""
    reached = set(states)
    for state in sorted(states):
        following = state
        while following < len(parts) and parts[following] is None:
            following += 1
            reached.add(following)
    return frozenset(state for state in reached if state < len(parts))
