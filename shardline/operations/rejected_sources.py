"""Rejected sources and skipped duplicates of a version, open until they are handled.

A source is open until it is appended or dismissed, or until its path or batch brings other content.
All of it follows from the log, and the state knows which entries to read.
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
from shardline.log.version import validate_version
from shardline.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shardline.log.entry import Entry
    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion


@dataclass(frozen=True, slots=True)
class RejectedSource:
    """Source that was rejected in `entry`, at `time`, and is still open.

    `check` is the check that its rows or bytes failed. `record` and `offset` locate the fault in a
    corrupt TFRecord file. `snapshot` is the rejected snapshot that contained it, if any.
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
        """Return the source and the reason as JSON values."""
        return {
            "path": self.source.path,
            "batch": self.source.batch,
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
    """Source that was skipped in `entry`, at `time`: the version had its content as `first`.

    `first_entry` is the entry that appended it, None if it is not recorded.
    """

    source: Identity
    entry: int
    time: datetime
    first: str = ""
    first_entry: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the source and its first path as JSON values."""
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
    """Open sources of a version, latest first."""

    rejected: tuple[RejectedSource, ...] = ()
    duplicates: tuple[DuplicateSource, ...] = ()

    @property
    def all(self) -> tuple[OpenSource, ...]:
        """Rejected sources, then duplicates."""
        return (*self.rejected, *self.duplicates)


@dataclass(frozen=True, slots=True)
class DismissReport(Report):
    """Result of a dismissal; `entry` is None if no source was open any more."""

    version: str
    entry: Entry | None
    dismissed: tuple[OpenSource, ...]
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "version": self.version,
            "entry": self.entry and self.entry.number,
            "reason": self.reason,
            "rejected_sources": [
                source.to_dict() for source in self.dismissed if isinstance(source, RejectedSource)
            ],
            "duplicates": [
                source.to_dict() for source in self.dismissed if isinstance(source, DuplicateSource)
            ],
        }


def open_sources(version: StoredVersion) -> OpenSources:
    """List the rejected sources and skipped duplicates of a version that are still open.

    Reads the entries that rejected or skipped them, and no others.
    """
    validate_version(version=version)
    locations: dict[int, set[str]] = {}
    for location, entry_number in version.state.open_sources.items():
        locations.setdefault(entry_number, set()).add(location)
    sources: list[OpenSource] = []
    for entry in version.log.entries_at(sorted(locations, reverse=True)):
        rejection, restored = _Rejection(entry), _list_restored_keys(version, entry)
        sources += [
            rejection.describe(source)
            for source in sorted(entry.sources, key=lambda source: source.label)
            if source.location_key in locations[entry.number] and source.key not in restored
        ]
    return OpenSources(
        tuple(source for source in sources if isinstance(source, RejectedSource)),
        tuple(source for source in sources if isinstance(source, DuplicateSource)),
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
    validate_version(version=version)
    chosen = _choose_sources(version, sources)
    by_location = {source.source.location_key: source for source in chosen}
    dismissals = [Dismissal(source.source, source.entry) for source in by_location.values()]
    entry = version.commit(DismissSources(dismissals, reason)) if by_location else None
    committed = () if entry is None else list_dismissals(entry)
    dismissed = tuple(by_location[dismissal.location_key] for dismissal in committed)
    return DismissReport(version.name, entry, dismissed, reason)


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
            named = {
                known.source.path or known.source.batch or "": known
                for known in open_sources(version).all
            }
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


def _get_absolute_path(path: str | Path) -> str:
    """Return a local path as the log records it."""
    return str(path) if "://" in str(path) else Path(path).resolve().as_posix()


class _Rejection:
    """Reasons of one entry for the sources that it rejects or skips."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        parameters = entry.read(RejectParameters)
        self._problems = {problem.source: problem for problem in parameters.rejected}
        self._duplicates = {duplicate.source: duplicate for duplicate in parameters.duplicates}

    def describe(self, source: Identity) -> OpenSource:
        """Return the source with the reason."""
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
        attestation
        for attestation in entry.attestations
        if not attestation.passed and attestation.check not in RESERVED_CHECKS
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
    rows = pa.array(state.shard_history.rows_at(state.snapshot))
    live = state.shard_history.to_table()["source"].take(rows).drop_null().combine_chunks()
    is_live = pc.is_in(pa.array(map(bytes.fromhex, keys), pa.binary(32)), value_set=live)
    return {key for key, live in zip(keys, is_live.to_pylist(), strict=True) if live}
