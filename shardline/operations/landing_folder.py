"""Landing folders: which files have arrived, and which of them are new.

The identity of a source contains its content. To avoid reading known files again, a file next to
the log records the content of each file, with a stamp of size and times. That file is derived: it
may be lost or stale.
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
"""Name of the file of known content, in the folder of a version."""
_FORMAT = 2
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class LandingFile:
    """File in a landing folder; each write changes `stamp`."""

    path: str
    stamp: str
    size: int
    modified: float


_ScannedFile: TypeAlias = tuple[str, str, int, float]
"""Path, stamp, size and time in nanoseconds."""


def _build_landing_file(file: _ScannedFile) -> LandingFile:
    path, stamp, size, modified = file
    return LandingFile(path, stamp, size, modified / 1e9)


@dataclass(frozen=True, slots=True)
class LandingFolder:
    """Folder or object store prefix where sources arrive.

    Attributes:
        location: Path or URI.
        pattern: Glob relative to the location; `**` matches any folders.
        format: Format of the sources. With "folder", each matching folder is one source.
        settle_seconds: Files that were written within this time may still grow, and wait for the
            next scan. A file with a time in the future waits until two scans this far apart find it
            unchanged.
    """

    location: str
    pattern: str = "*"
    format: SourceFormat | None = None
    settle_seconds: float = 10.0

    if TYPE_CHECKING:

        def __init__(
            self,
            location: str | PathLike[str],
            pattern: str = "*",
            format: SourceFormat | None = None,  # noqa: A002 - the word that people expect
            settle_seconds: float = 10.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Validate the fields."""
        if isinstance(self.location, PathLike):
            object.__setattr__(self, "location", fspath(self.location))
        if not isinstance(self.location, str):
            raise InvalidTypeError(f"location: expected a path, got {type(self.location).__name__}")
        if self.format is not None and self.format not in get_args(SourceFormat):
            raise InvalidArgumentError(
                f"{self.location}: invalid format {self.format!r}: expected "
                f"{', '.join(get_args(SourceFormat))}",
                code="invalid-choice",
                path=self.location,
            )
        if not self.pattern or self.pattern.startswith("/"):
            raise InvalidArgumentError(
                f"{self.location}: invalid pattern {self.pattern!r}: expected a relative pattern",
                code="invalid-pattern",
                hint=Hint.of("write the pattern relative to the folder, such as *.jsonl"),
                path=self.location,
            )
        if self.format == "folder" and "://" in self.location:
            raise InvalidArgumentError(
                f"{self.location}: cannot append folders from an object store",
                code="unsupported-location",
                hint=Hint.of("put Parquet or TFRecord files into the store"),
                path=self.location,
            )

    def list_files(self) -> list[LandingFile]:
        """Return the matching files by path; a missing folder has none."""
        return sorted(map(_build_landing_file, self.scan([])), key=lambda file: file.path)

    def list_skipped(self) -> list[str]:
        """Return the local files that the pattern does not match, without hidden files.

        Subfolders are searched only if the pattern has several parts.
        """
        skipped: list[str] = []
        for _ in self.scan(skipped):
            pass
        return sorted(skipped)

    @property
    def is_missing(self) -> bool:
        """Return True for a local folder that does not exist."""
        return "://" not in self.location and not Path(self.location).is_dir()

    def scan(self, skipped: list[str]) -> Iterator[_ScannedFile]:
        """Yield the matching files in any order, and add other local files to `skipped`."""
        if "://" in self.location:
            return self._scan_store()
        return self._scan_folders() if self.format == "folder" else self._scan_files(skipped)

    def _scan_files(self, skipped: list[str]) -> Iterator[_ScannedFile]:
        for path, status in scan_files(self.location, self.pattern, skipped):
            size, modified = status.st_size, status.st_mtime_ns
            stamp = f"{size}-{modified}-{status.st_ctime_ns}-{status.st_ino}"
            yield path, stamp, size, modified

    def _scan_folders(self) -> Iterator[_ScannedFile]:
        root = Path(self.location)
        for path in root.glob(self.pattern):
            if any(part.startswith(HIDDEN) for part in path.relative_to(root).parts):
                continue
            try:
                if path.is_dir():
                    yield _stamp_folder(path)
            except FileNotFoundError:
                continue  # Deleted concurrently.

    def _scan_store(self) -> Iterator[_ScannedFile]:
        store = open_store(self.location)
        pattern = self.pattern.split("/")
        for info in store.list(""):
            parts = info.name.split("/")
            if any(part.startswith(HIDDEN) for part in parts) or not _matches_glob(parts, pattern):
                continue
            modified = info.modified.timestamp() * 1e9
            stamp = f"{info.size}-{info.modified.isoformat()}-{info.e_tag or ''}"
            yield object_uri(store, info.name), stamp, info.size, modified


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """Columns of paths that were read, their stamps, and the keys of their sources.

    `keys` has 32 bytes per path. The log knew all of them at `entry` with this `digest`. A log
    never forgets a source: it knows them as long as it contains that entry.
    """

    paths: Sequence[str] = ()
    stamps: Sequence[str] = ()
    keys: bytes = b""
    entry: int = 0
    digest: str = ""

    def select(self, rows: Sequence[int]) -> KnownFiles:
        """Return the rows with these ascending indexes."""
        if len(rows) == len(self.paths):
            return self
        keys = np.frombuffer(self.keys, f"V{_KEY_BYTES}")[np.array(rows, np.int64)]
        return replace(
            self,
            paths=[self.paths[row] for row in rows],
            stamps=[self.stamps[row] for row in rows],
            keys=keys.tobytes(),
        )

    def extend(self, read: Mapping[str, tuple[str, str]]) -> KnownFiles:
        """Add stamps and keys by path, replacing the old rows of these paths."""
        others = self.select([row for row, path in enumerate(self.paths) if path not in read])
        return replace(
            self,
            paths=[*others.paths, *read],
            stamps=[*others.stamps, *(stamp for stamp, _ in read.values())],
            keys=others.keys + bytes.fromhex("".join(key for _, key in read.values())),
        )

    def confirm(self, version: StoredVersion) -> KnownFiles:
        """Return the rows whose source the current log knows."""
        state = version.state
        rows = np.flatnonzero(state.sources.get_many(self.keys)).tolist()
        return replace(self.select(rows), entry=state.number, digest=state.digest or "")

    def is_confirmed(self, log: Log) -> bool:
        """Return True if the log contains the entry that confirmed the rows."""
        try:
            return self.entry > 0 and log.has_entry(self.entry, self.digest)
        except CorruptLogError:
            return False


@dataclass(frozen=True, slots=True)
class LandingScan:
    """Result of a scan of landing folders.

    Attributes:
        new: Files that seem neither appended nor rejected. Their content decides.
        settling: Files that were just written, or have a time in the future.
        skipped: Files that no pattern matches.
        files: Known files.
        watched: Stamps of files with a time in the future, and since when they are unchanged.
    """

    new: tuple[LandingFile, ...]
    settling: tuple[LandingFile, ...] = ()
    skipped: tuple[str, ...] = ()
    files: KnownFiles = field(default_factory=KnownFiles, repr=False)
    watched: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)

    @property
    def known(self) -> int:
        """Number of known files."""
        return len(self.files.paths)

    def rejected(self, version: StoredVersion) -> tuple[LandingFile, ...]:
        """Return the known files that the version rejected or skipped as duplicates."""
        files = self.files
        rows = np.flatnonzero(version.state.sources.get_many(files.keys) < 0).tolist()
        return tuple(LandingFile(files.paths[row], files.stamps[row], 0, 0.0) for row in rows)


def scan_landing_folders(
    version: StoredVersion,
    folders: Sequence[LandingFolder],
    *,
    clock: Callable[[], float] = time.time,
) -> LandingScan:
    """Find new files in landing folders, without reading them.

    Reads one object next to the log and one log entry for any number of files. The state of the
    version is read only if that object is missing or belongs to another log. Writes nothing but the
    stamps of files with a time in the future.
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
        unmatched: list[str] = []
        for scanned in folder.scan(unmatched):
            row = row_of.get(scanned[0])
            if row is not None and stamps[row] == scanned[1]:
                rows.append(row)
            else:
                unknown.append(_build_landing_file(scanned))
        skipped += sorted(unmatched)
        for file in sorted(unknown, key=lambda file: file.path):
            if file.modified > now:
                since = _get_unchanged_since(file, watched.get(file.path), now)
                watching[file.path] = (file.stamp, since)
                is_settling = folder.settle_seconds and now - since < folder.settle_seconds
                (settling if is_settling else new).append(file)
            elif now - folder.settle_seconds < file.modified:
                settling.append(file)
            else:
                new.append(file)
    if watching != watched:
        _write_known(version, known, watching)
    files = known.select(sorted(set(rows)))
    return LandingScan(tuple(new), tuple(settling), tuple(skipped), files, watching)


def _get_unchanged_since(file: LandingFile, seen: tuple[str, int] | None, now: float) -> int:
    """Return since when, by this clock, the scans find a file unchanged."""
    is_same = seen is not None and seen[0] == file.stamp and seen[1] <= now
    # Rounded up, so that a part of a second does not count as passed.
    return seen[1] if seen is not None and is_same else ceil(now)


def record_scan(version: StoredVersion, scan: LandingScan, identities: Iterable[Identity]) -> None:
    """Record the content of new files for the next scan.

    Call it after the files were read. A file that was written since the scan has another stamp at
    the next scan, and is read again.
    """
    key_of = {identity.path: identity.key for identity in identities}
    read = {
        file.path: (file.stamp, key_of[file.path])
        for file in scan.new
        if file.path in key_of and file.stamp
    }
    if read:
        version.refresh()
        _write_known(version, scan.files.extend(read).confirm(version), scan.watched)


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
    """Read the record of the last scan; an unreadable one is empty."""
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
        watched = payload["watched"].items()
        return known, {str(path): (str(stamp), int(since)) for path, (stamp, since, *_) in watched}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return KnownFiles(), {}  # Torn by a power cut: all files are read again.


def _name(version: StoredVersion) -> str:
    return f"{version.log.dataset}/{version.log.version}/{ARRIVALS}"


def _stamp_folder(path: Path) -> _ScannedFile:
    try:
        files = FolderIdentity(path).listed()
    except SourceError:
        raise FileNotFoundError from None
    stamp = canonical.sha256([list(file) for file in files])
    latest = max((file[2] for file in files), default=path.stat().st_mtime_ns)
    return path.resolve().as_posix(), stamp, sum(file[1] for file in files), latest


def _matches_glob(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if a glob matches a path, part by part."""
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
_MISSING_ERRORS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_PartMatcher: TypeAlias = "Callable[[str], object] | None"
"""Function that matches a name; None matches any number of folders."""


def split_pattern(pattern: str) -> list[str]:
    """Return the parts of a glob."""
    return [part for part in pattern.split("/") if part not in {"", "."}]


def scan_files(
    folder: str, pattern: str, skipped: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the resolved path and the status of each file below `folder` that a glob matches.

    Adds the other files to `skipped`, without hidden files. Subfolders are searched only if the
    glob has several parts. Links to files are followed, and links to folders that a part other than
    `**` matches. Files and folders that are deleted during the scan are left out.
    """
    parts = [_build_matcher(part) for part in split_pattern(pattern)]
    label = str(Path(folder))
    start = _FolderScanner(
        folder, os.path.realpath(folder), label, _add_reachable({0}, parts), reports=True
    )
    pending = [start] if parts and Path(folder).is_dir() else []
    while pending:
        yield from pending.pop().scan(parts, skipped, pending)


class _FolderScanner:
    """Folder to scan; `states` are the parts of the glob that may match its names."""

    __slots__ = ("label", "path", "real", "reports", "states")

    def __init__(
        self, path: str, real: str, label: str, states: frozenset[int], *, reports: bool
    ) -> None:
        self.path = path
        self.real = real
        self.label = label
        self.states = states
        self.reports = reports

    def scan(
        self, parts: Sequence[_PartMatcher], skipped: list[str], pending: list[_FolderScanner]
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the matching files, and add the folders to scan next to `pending`."""
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
                        skipped.append(f"{self.label}/{name}")
                except OSError as error:
                    _raise_unless_missing(error)

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
            label = f"{self.label}/{entry.name}"
            reports = self.reports and not link
            pending.append(_FolderScanner(entry.path, real, label, reached, reports=reports))


@contextmanager
def _open_folder(path: str) -> Iterator[Iterable[os.DirEntry[str]]]:
    """Open a folder. One without read permission, or deleted concurrently, is empty."""
    try:
        entries = os.scandir(path)
    except PermissionError:
        yield ()
    except OSError as error:
        _raise_unless_missing(error)
        yield ()
    else:
        with entries:
            yield entries


def _raise_unless_missing(error: OSError) -> None:
    if error.errno not in _MISSING_ERRORS:
        raise error


def _build_matcher(part: str) -> _PartMatcher:
    if part == ANY_FOLDERS:
        return None
    if part == "*":
        return bool  # Matches every name.
    return re.compile(translate(part)).match


def _matches_part(part: _PartMatcher, name: str) -> bool:
    return part is not None and bool(part(name))


def _add_reachable(states: set[int], parts: Sequence[_PartMatcher]) -> frozenset[int]:
    """Add the parts after each `**`, which may match no folder."""
    reached = set(states)
    for state in sorted(states):
        following = state
        while following < len(parts) and parts[following] is None:
            following += 1
            reached.add(following)
    return frozenset(state for state in reached if state < len(parts))
