"""Sources that a version left out and that wait for a decision.

A rejected source is open until it lands, until other content of its path or batch lands, is
skipped or is rejected, or until someone dismisses it. The same holds for a skipped duplicate. All
of it follows from the log, and the state knows which entries to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import InvalidTypeError, SourceError
from shardline.hints import Hint
from shardline.log.append_change import DismissSources
from shardline.log.parameters import Dismissal, RejectParameters, SourceProblem
from shardline.log.state import RESERVED_CHECKS, list_dismissals
from shardline.log.version import refuse_no_version

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shardline.log.entry import Entry
    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion


@dataclass(frozen=True, slots=True)
class RejectedSource:
    """A source that was rejected in `entry`, at `time`, and has not been dealt with.

    `check` is the check that its rows or bytes failed. `record` and `offset` locate the fault in a
    corrupt TFRecord file. `snapshot` is the rejected snapshot that it landed with, None if it never
    landed.
    """

    source: Identity
    entry: int
    time: datetime
    reason: str = ""
    check: str = ""
    code: str | None = None
    record: int | None = None
    offset: int | None = None
    snapshot: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Serialize for `--json`."""
        return {
            **_source_dict(self.source),
            "reason": self.reason,
            "check": self.check,
            "code": self.code,
            "record": self.record,
            "offset": self.offset,
            "snapshot": self.snapshot,
            "entry": self.entry,
            "time": self.time.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class DuplicateSource:
    """A source that was skipped in `entry`, at `time`: its content had landed as `first`.

    `first_entry` is the entry that appended it, None if it is not recorded.
    """

    source: Identity
    entry: int
    time: datetime
    first: str = ""
    first_entry: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Serialize for `--json`."""
        return {
            "path": self.source.path or "",
            "first": self.first,
            "first_entry": self.first_entry,
            "entry": self.entry,
            "time": self.time.isoformat(),
        }


OpenSource: TypeAlias = RejectedSource | DuplicateSource


@dataclass(frozen=True, slots=True)
class OpenSources:
    """The sources of a version that wait for a decision, the latest first."""

    rejected: tuple[RejectedSource, ...] = ()
    duplicates: tuple[DuplicateSource, ...] = ()

    @property
    def all(self) -> tuple[OpenSource, ...]:
        """Rejected sources, then duplicates."""
        return (*self.rejected, *self.duplicates)


@dataclass(frozen=True, slots=True)
class DismissReport:
    """The sources that were dismissed; `entry` is None if none was open any more."""

    version: str
    entry: Entry | None
    dismissed: tuple[OpenSource, ...]
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Serialize for `--json`."""
        return {
            "version": self.version,
            "entry": self.entry and self.entry.number,
            "reason": self.reason,
            "rejected_sources": [
                one.to_dict() for one in self.dismissed if isinstance(one, RejectedSource)
            ],
            "duplicates": [
                one.to_dict() for one in self.dismissed if isinstance(one, DuplicateSource)
            ],
        }


def open_sources(version: StoredVersion) -> OpenSources:
    """List the rejected sources and skipped duplicates of a version that are still open.

    Reads the entries that rejected or skipped them, and no others.
    """
    refuse_no_version(version=version)
    places: dict[int, set[str]] = {}
    for place, entry_number in version.state.open_sources.items():
        places.setdefault(entry_number, set()).add(place)
    found: list[OpenSource] = []
    for entry in version.log.entries_at(sorted(places, reverse=True)):
        rejection, restored = _Rejection(entry), _list_restored_keys(version, entry)
        found += [
            rejection.describe(source)
            for source in sorted(entry.sources, key=lambda source: source.shown)
            if source.place_key in places[entry.number] and source.key not in restored
        ]
    return OpenSources(
        tuple(one for one in found if isinstance(one, RejectedSource)),
        tuple(one for one in found if isinstance(one, DuplicateSource)),
    )


def dismiss(
    version: StoredVersion, sources: Iterable[str | Path | OpenSource], *, reason: str = ""
) -> DismissReport:
    """Dismiss rejected sources and skipped duplicates: they stay out, and are open no longer.

    Retrying a dismissed source appends it, and other content of its path is a new source.

    Args:
        version: The version that rejected or skipped them.
        sources: Paths or batch names, or members of `open_sources(version)`.
        reason: Why they are dismissed, for the log.

    Returns:
        The dismissed sources. A source that somebody else handled meanwhile is left out.

    Raises:
        SourceError: A path or batch name is not open; then nothing is dismissed.

    Example:
        >>> dismiss(version, ["landing/broken.jsonl"], reason="sent twice")
        >>> dismiss(version, open_sources(version).duplicates)
    """
    refuse_no_version(version=version)
    chosen = _choose_sources(version, sources)
    by_place = {one.source.place_key: one for one in chosen}
    change = DismissSources([Dismissal(one.source, one.entry) for one in by_place.values()], reason)
    entry = version.commit(change) if by_place else None
    done = () if entry is None else tuple(by_place[one.place] for one in list_dismissals(entry))
    return DismissReport(version.name, entry, done, reason)


def _choose_sources(
    version: StoredVersion, sources: Iterable[str | Path | OpenSource]
) -> list[OpenSource]:
    """Find the open sources that a caller names. Raises SourceError for an unknown name."""
    if isinstance(sources, str | Path | RejectedSource | DuplicateSource):
        sources = [sources]
    named: dict[str, OpenSource] | None = None
    chosen: list[OpenSource] = []
    for source in sources:
        if isinstance(source, RejectedSource | DuplicateSource):
            chosen.append(source)
            continue
        if not isinstance(source, str | Path):
            raise InvalidTypeError(
                f"source: expected a path or batch name, got {type(source).__name__}",
                version=version.name,
            )
        if named is None:
            named = {_get_name(one.source): one for one in open_sources(version).all}
        match = named.get(str(source)) or named.get(_get_absolute_path(source))
        if match is None:
            raise SourceError(
                f"{source}: not an open rejected source or duplicate of {version.name}",
                code="source-not-open",
                hint=Hint.of(Hint.run("status", version.name), " to list open sources"),
                path=str(source),
                version=version.name,
            )
        chosen.append(match)
    return chosen


def _get_name(source: Identity) -> str:
    return source.path or source.batch or ""


def _get_absolute_path(path: str | Path) -> str:
    """Return a local path as the log records it."""
    return str(path) if "://" in str(path) else Path(path).resolve().as_posix()


def _source_dict(source: Identity) -> dict[str, Any]:
    return {"path": source.path, "batch": source.batch}


class _Rejection:
    """What an entry says of the sources that it rejects or skips."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        parameters = entry.read(RejectParameters)
        self._problems = {one.source: one for one in parameters.rejected}
        self._duplicates = {one.source: one for one in parameters.duplicates}

    def describe(self, source: Identity) -> OpenSource:
        """Return the source with what the entry says of it."""
        entry = self._entry
        if duplicate := self._duplicates.get(source.key):
            first = duplicate.first or ""
            return DuplicateSource(source, entry.number, entry.time, first, duplicate.entry)
        if entry.rejects is not None:
            check, reason = _find_failure(entry)
            return RejectedSource(
                source, entry.number, entry.time, reason, check, snapshot=entry.rejects
            )
        problem = self._problems.get(source.key) or SourceProblem()
        return RejectedSource(
            source,
            entry.number,
            entry.time,
            problem.reason,
            problem.check,
            problem.code,
            problem.record,
            problem.offset,
        )


def _find_failure(entry: Entry) -> tuple[str, str]:
    """Return the first check that failed a snapshot, and why the snapshot was rejected."""
    failures = (
        one for one in entry.attestations if not one.passed and one.check not in RESERVED_CHECKS
    )
    first = next(failures, None)
    reason = entry.read(RejectParameters).reason
    return ("", reason) if first is None else (first.check, first.detail or reason)


def _list_restored_keys(version: StoredVersion, entry: Entry) -> set[str]:
    """Return the sources of a rejected snapshot whose shards the latest snapshot holds again."""
    state = version.state
    if entry.rejects is None or not state.snapshot:
        return set()
    keys = [source.key for source in entry.sources]
    rows = pa.array(state.stays.rows_at(state.snapshot))
    live = state.stays.to_table()["source"].take(rows).drop_null().combine_chunks()
    is_live = pc.is_in(pa.array(map(bytes.fromhex, keys), pa.binary(32)), value_set=live)
    return {key for key, there in zip(keys, is_live.to_pylist(), strict=True) if there}
