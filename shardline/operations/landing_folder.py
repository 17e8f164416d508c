"""What has arrived in a landing folder, and what of that is new, without reading it all again.

A source is known by its content, and content has to be read. So that a folder of old files costs a
look at their sizes and times and no more, the version keeps beside its log which content they had
when they were last read: a derived file, like an index, that may be lost or be stale.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase, translate
from math import ceil
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args

import numpy as np

from shardline import canonical_json as canonical
from shardline.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidTypeError,
    SourceError,
)
from shardline.hints import Hint
from shardline.sources.folder_source import FolderIdentity
from shardline.sources.source_format import SourceFormat
from shardline.storage import object_uri, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from shardline.log.log import Log
    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion


ARRIVALS = "arrivals.json"
"""The name of the file in the folder of a version."""
_FORMAT = 2
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class LandingFile:
    """Something that lies in a landing folder. `stamp` changes whenever it is written to."""

    path: str
    stamp: str
    size: int
    modified: float


_FoundFile: TypeAlias = tuple[str, str, int, float]
"""Path, stamp, size and time in nanoseconds: an arrival before an object is made of it."""


def _make_landing_file(found: _FoundFile) -> LandingFile:
    path, stamp, size, modified = found
    return LandingFile(path, stamp, size, modified / 1e9)


@dataclass(frozen=True, slots=True)
class LandingFolder:
    """Where sources arrive: a folder, or a prefix in an object store.

    `pattern` is a glob on the path below it; `**` stands for any folders. With the format "folder"
    each folder that matches is one source, else each file. What was written to in the last
    `settle_seconds` may still be growing and is left for the next look. A time ahead of our clock
    proves nothing: such a file has settled when it is the same at two looks so far apart.
    """

    where: str
    pattern: str = "*"
    format: SourceFormat | None = None
    settle_seconds: float = 10.0

    if TYPE_CHECKING:

        def __init__(
            self,
            where: str | PathLike[str],
            pattern: str = "*",
            format: SourceFormat | None = None,  # noqa: A002 - the word that people expect
            settle_seconds: float = 10.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Refuse what cannot be looked into."""
        if isinstance(self.where, PathLike):
            object.__setattr__(self, "where", fspath(self.where))
        if not isinstance(self.where, str):
            raise InvalidTypeError(f"where: expected a path, got {type(self.where).__name__}")
        if self.format is not None and self.format not in get_args(SourceFormat):
            raise InvalidArgumentError(
                f"{self.where}: invalid format {self.format!r}: expected "
                f"{', '.join(get_args(SourceFormat))}",
                code="invalid-choice",
                path=self.where,
            )
        if not self.pattern or self.pattern.startswith("/"):
            raise InvalidArgumentError(
                f"{self.where}: invalid pattern {self.pattern!r}: expected a relative pattern",
                code="invalid-pattern",
                hint=Hint.of("write the pattern relative to the folder, such as *.jsonl"),
                path=self.where,
            )
        if self.format == "folder" and "://" in self.where:
            raise InvalidArgumentError(
                f"{self.where}: a folder of files must be on a local disk",
                code="unsupported-location",
                hint=Hint.of("put Parquet or TFRecord files into the store"),
                path=self.where,
            )

    def arrivals(self) -> list[LandingFile]:
        """All that lies there, by name; a folder that is not there is an empty one."""
        return sorted(map(_make_landing_file, self.found([])), key=lambda arrival: arrival.path)

    def skipped(self) -> list[str]:
        """Return the local files that the pattern does not match, without hidden files.

        Folders below are searched only if the pattern searches them.
        """
        skipped: list[str] = []
        for _ in self.found(skipped):
            pass
        return sorted(skipped)

    @property
    def is_missing(self) -> bool:
        """Whether it is a folder on a disk that is not there."""
        return "://" not in self.where and not Path(self.where).is_dir()

    def found(self, skipped: list[str]) -> Iterator[_FoundFile]:
        """Yield what arrived, in any order; local files without a match are added to `skipped`."""
        if "://" in self.where:
            return self._stored()
        return self._folders() if self.format == "folder" else self._files(skipped)

    def _files(self, skipped: list[str]) -> Iterator[_FoundFile]:
        for path, status in scan_files(self.where, self.pattern, skipped):
            size, modified = status.st_size, status.st_mtime_ns
            stamp = f"{size}-{modified}-{status.st_ctime_ns}-{status.st_ino}"
            yield path, stamp, size, modified

    def _folders(self) -> Iterator[_FoundFile]:
        root = Path(self.where)
        for path in root.glob(self.pattern):
            if any(part.startswith(HIDDEN) for part in path.relative_to(root).parts):
                continue
            try:
                if path.is_dir():
                    yield _folder(path)
            except FileNotFoundError:
                continue  # Deleted concurrently.

    def _stored(self) -> Iterator[_FoundFile]:
        store = open_store(self.where)
        wanted = self.pattern.split("/")
        for info in store.list(""):
            parts = info.name.split("/")
            if any(part.startswith(HIDDEN) for part in parts) or not _matches_glob(parts, wanted):
                continue
            modified = info.modified.timestamp() * 1e9
            stamp = f"{info.size}-{info.modified.isoformat()}-{info.e_tag or ''}"
            yield object_uri(store, info.name), stamp, info.size, modified


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """Paths that were read, as columns: the stamp of each then, and the key of its source.

    `keys` has 32 bytes for each path. The log knew all of them at `entry`, which has this `digest`;
    a log never forgets a source, so it still knows them while it contains that entry.
    """

    paths: Sequence[str] = ()
    stamps: Sequence[str] = ()
    keys: bytes = b""
    entry: int = 0
    digest: str = ""

    def select(self, rows: Sequence[int]) -> KnownFiles:
        """Return some of the rows; they are in increasing order."""
        if len(rows) == len(self.paths):
            return self
        chosen = np.frombuffer(self.keys, f"V{_KEY_BYTES}")[np.array(rows, np.int64)]
        return replace(
            self,
            paths=[self.paths[row] for row in rows],
            stamps=[self.stamps[row] for row in rows],
            keys=chosen.tobytes(),
        )

    def extend(self, read: Mapping[str, tuple[str, str]]) -> KnownFiles:
        """Return these and others, by path; what was read again replaces its old row."""
        kept = self.select([row for row, path in enumerate(self.paths) if path not in read])
        return replace(
            self,
            paths=[*kept.paths, *read],
            stamps=[*kept.stamps, *(stamp for stamp, _ in read.values())],
            keys=kept.keys + bytes.fromhex("".join(key for _, key in read.values())),
        )

    def confirm(self, version: StoredVersion) -> KnownFiles:
        """Return the rows whose source the log knows now."""
        state = version.state
        rows = np.flatnonzero(state.sources.get_many(self.keys)).tolist()
        return replace(self.select(rows), entry=state.number, digest=state.digest or "")

    def is_confirmed(self, log: Log) -> bool:
        """Return True if the log contains the entry at which it knew all sources."""
        try:
            return self.entry > 0 and log.has_entry(self.entry, self.digest)
        except CorruptLogError:
            return False


@dataclass(frozen=True, slots=True)
class LandingScan:
    """What a look into landing folders found.

    `new` has not landed and was not rejected, as far as that can be told without reading it;
    `settling` was written to just now, or has a time ahead of our clock: `watched` tells since when
    each of the latter has its stamp. `skipped` are files that no pattern matches. `files` are the
    others.
    """

    new: tuple[LandingFile, ...]
    settling: tuple[LandingFile, ...] = ()
    skipped: tuple[str, ...] = ()
    files: KnownFiles = field(default_factory=KnownFiles, repr=False)
    watched: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)

    @property
    def known(self) -> int:
        """How many lie there that are not new."""
        return len(self.files.paths)

    def rejected(self, version: StoredVersion) -> tuple[LandingFile, ...]:
        """Return the known files that the version rejected or skipped."""
        files = self.files
        rows = np.flatnonzero(version.state.sources.get_many(files.keys) < 0).tolist()
        return tuple(LandingFile(files.paths[row], files.stamps[row], 0, 0.0) for row in rows)


def scan_landing_folders(
    version: StoredVersion,
    folders: Sequence[LandingFolder],
    *,
    clock: Callable[[], float] = time.time,
) -> LandingScan:
    """See what is new in landing folders, without reading it.

    Nothing is written, except since when a file with a time ahead of our clock has been as it is.
    It reads one object next to the log and one entry of the log, however many files there are: the
    state of the version is needed only if that object was lost or belongs to another log.
    """
    known, watched = _read_known(version)
    if known.paths and not known.is_confirmed(version.log):
        version.refresh()
        known = known.confirm(version)
    row_of, stamps = {path: row for row, path in enumerate(known.paths)}, known.stamps
    new: list[LandingFile] = []
    settling: list[LandingFile] = []
    rows: list[int] = []
    skipped: list[str] = []
    watching = {}
    now = clock()
    for folder in folders:
        unknown: list[LandingFile] = []
        left_out: list[str] = []
        for found in folder.found(left_out):
            row = row_of.get(found[0])
            if row is not None and stamps[row] == found[1]:
                rows.append(row)
            else:
                unknown.append(_make_landing_file(found))
        skipped += sorted(left_out)
        for arrival in sorted(unknown, key=lambda arrival: arrival.path):
            if arrival.modified > now:
                since = _get_unchanged_since(arrival, watched.get(arrival.path), now)
                watching[arrival.path] = (arrival.stamp, since)
                waits = folder.settle_seconds and now - since < folder.settle_seconds
                (settling if waits else new).append(arrival)
            elif now - folder.settle_seconds < arrival.modified:
                settling.append(arrival)
            else:
                new.append(arrival)
    if watching != watched:
        _write_known(version, known, watching)
    files = known.select(sorted(set(rows)))
    return LandingScan(tuple(new), tuple(settling), tuple(skipped), files, watching)


def _get_unchanged_since(arrival: LandingFile, seen: tuple[str, int] | None, now: float) -> int:
    """Since when, by our clock, an arrival has looked the same."""
    same = seen is not None and seen[0] == arrival.stamp and seen[1] <= now
    # Rounded up: a part of a second is not counted as time that has passed.
    return seen[1] if seen is not None and same else ceil(now)


def record_scan(version: StoredVersion, found: LandingScan, identities: Iterable[Identity]) -> None:
    """Keep for the next look which content the new arrivals had.

    Call it when they have been read: an arrival that was written to since it was looked at has
    another stamp at the next look, and is read again then.
    """
    key_of = {identity.path: identity.key for identity in identities}
    read = {
        arrival.path: (arrival.stamp, key_of[arrival.path])
        for arrival in found.new
        if arrival.path in key_of and arrival.stamp
    }
    if read:
        version.refresh()
        _write_known(version, found.files.extend(read).confirm(version), found.watched)


def _write_known(
    version: StoredVersion, known: KnownFiles, watched: dict[str, tuple[str, int]]
) -> None:
    payload = {
        "format": _FORMAT,
        "paths": list(known.paths),
        "stamps": list(known.stamps),
        "keys": known.keys.hex(),
        "entry": known.entry,
        "digest": known.digest,
        "watched": watched,
    }
    with version.store.writer(_name(version), overwrite=True) as file:
        file.write(json.dumps(payload, separators=(",", ":")).encode())


def _read_known(version: StoredVersion) -> tuple[KnownFiles, dict[str, tuple[str, int]]]:
    """What the last look knew; nothing, if that cannot be told."""
    data = version.store.read_many([_name(version)])[0]
    try:
        payload = json.loads(data or b"{}")
        if payload.get("format") != _FORMAT:
            return KnownFiles(), {}
        known = KnownFiles(
            payload["paths"],
            payload["stamps"],
            bytes.fromhex(payload["keys"]),
            int(payload["entry"]),
            str(payload["digest"]),
        )
        if not {len(known.stamps), len(known.keys) / _KEY_BYTES} <= {len(known.paths)}:
            return KnownFiles(), {}
        seen = payload["watched"].items()
        return known, {str(path): (str(one[0]), int(one[1])) for path, one in seen}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return KnownFiles(), {}  # torn by a power cut: it is all read again


def _name(version: StoredVersion) -> str:
    return f"{version.log.dataset}/{version.log.version}/{ARRIVALS}"


def _folder(path: Path) -> _FoundFile:
    try:
        listed = FolderIdentity(path).listed()
    except SourceError:
        raise FileNotFoundError from None
    stamp = canonical.sha256([list(one) for one in listed])
    newest = max((one[2] for one in listed), default=path.stat().st_mtime_ns)
    return path.resolve().as_posix(), stamp, sum(one[1] for one in listed), newest


def _matches_glob(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path is matched by a glob, part by part."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches_glob(parts[n:], pattern[1:]) for n in range(len(parts) + 1))
    return (
        bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches_glob(parts[1:], pattern[1:])
    )


HIDDEN = (".", "_")
"""First characters of names that are skipped: temporary files, markers such as `_SUCCESS`."""
ANY_FOLDERS = "**"
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_PartMatcher: TypeAlias = "Callable[[str], object] | None"
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
    start = _FolderScanner(
        folder, os.path.realpath(folder), shown, _add_reachable({0}, parts), reports=True
    )
    pending = [start] if parts and Path(folder).is_dir() else []
    while pending:
        yield from pending.pop().scan(parts, skipped, pending)


class _FolderScanner:
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
        self, parts: Sequence[_PartMatcher], skipped: list[str], pending: list[_FolderScanner]
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
        self, entry: os.DirEntry[str], parts: Sequence[_PartMatcher], pending: list[_FolderScanner]
    ) -> None:
        link = entry.is_symlink()
        states = {
            state if parts[state] is None else state + 1
            for state in self.states
            if (parts[state] is None and not link) or _matches_part(parts[state], entry.name)
        }
        reached = _add_reachable({state for state in states if state < len(parts)}, parts)
        if reached or (self.reports and not link):
            real = os.path.realpath(entry.path) if link else f"{self.real.rstrip('/')}/{entry.name}"
            shown = f"{self.shown}/{entry.name}"
            reports = self.reports and not link
            pending.append(_FolderScanner(entry.path, real, shown, reached, reports=reports))


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


def _matcher(part: str) -> _PartMatcher:
    if part == ANY_FOLDERS:
        return None
    if part == "*":
        return bool  # every name
    return re.compile(translate(part)).match


def _matches_part(part: _PartMatcher, name: str) -> bool:
    return part is not None and bool(part(name))


def _add_reachable(states: set[int], parts: Sequence[_PartMatcher]) -> frozenset[int]:
    """Add the parts after each `**`, which may stand for no folder at all."""
    reached = set(states)
    for state in sorted(states):
        following = state
        while following < len(parts) and parts[following] is None:
            following += 1
            reached.add(following)
    return frozenset(state for state in reached if state < len(parts))
