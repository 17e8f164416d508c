"""What has arrived in a landing folder, and what of that is new, without reading it all again.

A source is known by its content, and content has to be read. So that a folder of old files costs a
look at their sizes and times and no more, the version keeps beside its log which content they had
when they were last read: a derived file, like an index, that may be lost or be stale.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from shardline.errors import InvalidArgumentError, InvalidTypeError, SourceError
from shardline.hints import Hint
from shardline.log import canonical
from shardline.sources.choose import Format
from shardline.sources.folder import FolderOrigin
from shardline.storage import object_uri, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shardline.log.facts import Source as Identity
    from shardline.log.version import Version

ARRIVALS = "arrivals.json"
"""The name of the file in the folder of a version."""
_FORMAT = 1
_HIDDEN = (".", "_")
"""Names that begin so are none of ours: temporary files, markers such as `_SUCCESS`."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that lies in a landing folder. `stamp` changes whenever it is written to."""

    path: str
    stamp: str
    size: int
    modified: float


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
        found = self._stored() if "://" in self.where else self._local()
        return sorted(found, key=lambda arrival: arrival.path)

    def skipped(self) -> list[str]:
        """Return the local files that the pattern does not match, without hidden files.

        Folders below are searched only if the pattern searches them.
        """
        if "://" in self.where or self.format == "folder" or self.is_missing:
            return []
        root = Path(self.where)
        matched = set(root.glob(self.pattern))
        found = root.rglob("*") if "/" in self.pattern else root.iterdir()
        return sorted(
            path.as_posix()
            for path in found
            if path not in matched
            and path.is_file()
            and not any(part.startswith(_HIDDEN) for part in path.relative_to(root).parts)
        )

    @property
    def is_missing(self) -> bool:
        """Whether it is a folder on a disk that is not there."""
        return "://" not in self.where and not Path(self.where).is_dir()

    def _local(self) -> Iterator[Arrival]:
        root = Path(self.where)
        for path in root.glob(self.pattern):
            inside = path.relative_to(root).parts
            if any(part.startswith(_HIDDEN) for part in inside):
                continue
            try:
                if self.format == "folder":
                    if path.is_dir():
                        yield _folder(path)
                elif path.is_file():
                    yield _file(path)
            except FileNotFoundError:
                continue  # it went while we looked

    def _stored(self) -> Iterator[Arrival]:
        store = open_store(self.where)
        wanted = self.pattern.split("/")
        for info in store.list(""):
            parts = info.name.split("/")
            if any(part.startswith(_HIDDEN) for part in parts) or not _matches(parts, wanted):
                continue
            modified = info.modified.timestamp()
            stamp = f"{info.size}-{info.modified.isoformat()}-{info.e_tag or ''}"
            yield Arrival(object_uri(store, info.name), stamp, info.size, modified)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a look into landing folders found.

    `new` has not landed and was not rejected, as far as that can be told without reading it;
    `settling` was written to just now, or has a time ahead of our clock: `watched` tells since when
    each of the latter has its stamp. `skipped` are files that no pattern matches. `keys` are the
    stamps and the sources of the others.
    """

    new: tuple[Arrival, ...]
    settling: tuple[Arrival, ...] = ()
    skipped: tuple[str, ...] = ()
    keys: dict[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    watched: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)

    @property
    def known(self) -> int:
        """How many lie there that are not new."""
        return len(self.keys)


def look(
    version: Version,
    folders: Sequence[LandingFolder],
    *,
    clock: Callable[[], float] = time.time,
) -> Arrivals:
    """See what is new in landing folders, without reading it.

    Nothing is written, except since when a file with a time ahead of our clock has been as it is.
    """
    version.refresh()
    known, watched = _read_known(version)
    new: list[Arrival] = []
    settling: list[Arrival] = []
    keys, watching = {}, {}
    now = clock()
    for folder in folders:
        for arrival in folder.arrivals():
            stamp, key = known.get(arrival.path, ("", ""))
            if stamp == arrival.stamp and version.state.sources.get(key) is not None:
                keys[arrival.path] = (stamp, key)
            elif arrival.modified > now:
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
    skipped = tuple(name for folder in folders for name in folder.skipped())
    return Arrivals(tuple(new), tuple(settling), skipped, keys, watching)


def _same_since(arrival: Arrival, seen: tuple[str, int] | None, now: float) -> int:
    """Since when, by our clock, an arrival has looked the same."""
    same = seen is not None and seen[0] == arrival.stamp and seen[1] <= now
    # Rounded up: a part of a second is not counted as time that has passed.
    return seen[1] if seen is not None and same else ceil(now)


def remember(version: Version, found: Arrivals, identities: Iterable[Identity]) -> None:
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
        _write_known(version, {**found.keys, **read}, found.watched)


def _write_known(
    version: Version, known: dict[str, tuple[str, str]], watched: dict[str, tuple[str, int]]
) -> None:
    told = {"format": _FORMAT, "known": known, "watched": watched}
    with version.store.writer(_name(version), overwrite=True) as file:
        file.write(canonical.encode(told))


def _read_known(version: Version) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, int]]]:
    """What the last look knew; nothing, if that cannot be told."""
    data = version.store.read_many([_name(version)])[0]
    try:
        told = canonical.decode(data or b"{}")
        if not isinstance(told, dict) or told.get("format") != _FORMAT:
            return {}, {}
        known = {str(path): (str(one[0]), str(one[1])) for path, one in told["known"].items()}
        seen = told.get("watched", {}).items()
        return known, {str(path): (str(one[0]), int(one[1])) for path, one in seen}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return {}, {}  # torn by a power cut: it is all read again


def _name(version: Version) -> str:
    return f"{version.log.dataset}/{version.log.version}/{ARRIVALS}"


def _file(path: Path) -> Arrival:
    told = path.stat()
    stamp = f"{told.st_size}-{told.st_mtime_ns}-{told.st_ctime_ns}-{told.st_ino}"
    return Arrival(path.resolve().as_posix(), stamp, told.st_size, told.st_mtime)


def _folder(path: Path) -> Arrival:
    try:
        listed = FolderOrigin(path).listed()
    except SourceError:
        raise FileNotFoundError from None
    stamp = canonical.sha256([list(one) for one in listed])
    newest = max((one[2] for one in listed), default=path.stat().st_mtime_ns)
    return Arrival(path.resolve().as_posix(), stamp, sum(one[1] for one in listed), newest / 1e9)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path is matched by a glob, part by part."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[n:], pattern[1:]) for n in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
