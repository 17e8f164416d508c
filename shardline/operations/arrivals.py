"""What has arrived in a landing folder, and what of that is new, without reading it all again.

A source is known by its content, and content has to be read. So that a folder of old files costs a
look at their sizes and times and no more, the version keeps beside its log which content they had
when they were last read: a derived file, like an index, that may be lost or be stale.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import ceil
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args

import numpy as np

from shardline import canonical_json as canonical
from shardline.errors import (
    DamagedLogError,
    InvalidArgumentError,
    InvalidTypeError,
    SourceError,
)
from shardline.hints import Hint
from shardline.operations.folder_scan import HIDDEN, scan_files
from shardline.sources.choose import Format
from shardline.sources.folder import FolderOrigin
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
class Arrival:
    """Something that lies in a landing folder. `stamp` changes whenever it is written to."""

    path: str
    stamp: str
    size: int
    modified: float


_Found: TypeAlias = tuple[str, str, int, float]
"""Path, stamp, size and time in nanoseconds: an arrival before an object is made of it."""


def _arrival(found: _Found) -> Arrival:
    path, stamp, size, modified = found
    return Arrival(path, stamp, size, modified / 1e9)


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
    format: Format | None = None
    settle_seconds: float = 10.0

    if TYPE_CHECKING:

        def __init__(
            self,
            where: str | PathLike[str],
            pattern: str = "*",
            format: Format | None = None,  # noqa: A002 - the word that people expect
            settle_seconds: float = 10.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Refuse what cannot be looked into."""
        if isinstance(self.where, PathLike):
            object.__setattr__(self, "where", fspath(self.where))
        if not isinstance(self.where, str):
            raise InvalidTypeError(f"where: expected a path, got {type(self.where).__name__}")
        if self.format is not None and self.format not in get_args(Format):
            raise InvalidArgumentError(
                f"{self.where}: invalid format {self.format!r}: expected "
                f"{', '.join(get_args(Format))}",
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

    def arrivals(self) -> list[Arrival]:
        """All that lies there, by name; a folder that is not there is an empty one."""
        return sorted(map(_arrival, self.found([])), key=lambda arrival: arrival.path)

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

    def found(self, skipped: list[str]) -> Iterator[_Found]:
        """Yield what arrived, in any order; local files without a match are added to `skipped`."""
        if "://" in self.where:
            return self._stored()
        return self._folders() if self.format == "folder" else self._files(skipped)

    def _files(self, skipped: list[str]) -> Iterator[_Found]:
        for path, status in scan_files(self.where, self.pattern, skipped):
            size, modified = status.st_size, status.st_mtime_ns
            stamp = f"{size}-{modified}-{status.st_ctime_ns}-{status.st_ino}"
            yield path, stamp, size, modified

    def _folders(self) -> Iterator[_Found]:
        root = Path(self.where)
        for path in root.glob(self.pattern):
            if any(part.startswith(HIDDEN) for part in path.relative_to(root).parts):
                continue
            try:
                if path.is_dir():
                    yield _folder(path)
            except FileNotFoundError:
                continue  # Deleted concurrently.

    def _stored(self) -> Iterator[_Found]:
        store = open_store(self.where)
        wanted = self.pattern.split("/")
        for info in store.list(""):
            parts = info.name.split("/")
            if any(part.startswith(HIDDEN) for part in parts) or not _matches(parts, wanted):
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
        except DamagedLogError:
            return False


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a look into landing folders found.

    `new` has not landed and was not rejected, as far as that can be told without reading it;
    `settling` was written to just now, or has a time ahead of our clock: `watched` tells since when
    each of the latter has its stamp. `skipped` are files that no pattern matches. `files` are the
    others.
    """

    new: tuple[Arrival, ...]
    settling: tuple[Arrival, ...] = ()
    skipped: tuple[str, ...] = ()
    files: KnownFiles = field(default_factory=KnownFiles, repr=False)
    watched: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)

    @property
    def known(self) -> int:
        """How many lie there that are not new."""
        return len(self.files.paths)

    def rejected(self, version: StoredVersion) -> tuple[Arrival, ...]:
        """Return the known files that the version rejected or skipped."""
        files = self.files
        rows = np.flatnonzero(version.state.sources.get_many(files.keys) < 0).tolist()
        return tuple(Arrival(files.paths[row], files.stamps[row], 0, 0.0) for row in rows)


def look(
    version: StoredVersion,
    folders: Sequence[LandingFolder],
    *,
    clock: Callable[[], float] = time.time,
) -> Arrivals:
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
    new: list[Arrival] = []
    settling: list[Arrival] = []
    rows: list[int] = []
    skipped: list[str] = []
    watching = {}
    now = clock()
    for folder in folders:
        unknown: list[Arrival] = []
        left_out: list[str] = []
        for found in folder.found(left_out):
            row = row_of.get(found[0])
            if row is not None and stamps[row] == found[1]:
                rows.append(row)
            else:
                unknown.append(_arrival(found))
        skipped += sorted(left_out)
        for arrival in sorted(unknown, key=lambda arrival: arrival.path):
            if arrival.modified > now:
                since = _same_since(arrival, watched.get(arrival.path), now)
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
    return Arrivals(tuple(new), tuple(settling), tuple(skipped), files, watching)


def _same_since(arrival: Arrival, seen: tuple[str, int] | None, now: float) -> int:
    """Since when, by our clock, an arrival has looked the same."""
    same = seen is not None and seen[0] == arrival.stamp and seen[1] <= now
    # Rounded up: a part of a second is not counted as time that has passed.
    return seen[1] if seen is not None and same else ceil(now)


def remember(version: StoredVersion, found: Arrivals, identities: Iterable[Identity]) -> None:
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


def _folder(path: Path) -> _Found:
    try:
        listed = FolderOrigin(path).listed()
    except SourceError:
        raise FileNotFoundError from None
    stamp = canonical.sha256([list(one) for one in listed])
    newest = max((one[2] for one in listed), default=path.stat().st_mtime_ns)
    return path.resolve().as_posix(), stamp, sum(one[1] for one in listed), newest


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path is matched by a glob, part by part."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[n:], pattern[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
