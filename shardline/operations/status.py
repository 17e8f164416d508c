"""Status of a version: published and blocked snapshots, and open sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.log.parameters import RejectParameters
from shardline.log.publication import list_published
from shardline.log.state import REJECTION, VACUUM
from shardline.log.version import validate_version
from shardline.operations.rejected_sources import open_sources
from shardline.report import Report, to_json_value
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.rejected_sources import OpenSources

MAX_SNAPSHOTS = 20
_MAX_ENTRIES_READ = 50
_REMOVALS = (
    ("rejected", REJECTION, "added by a rejected snapshot"),
    ("vacuumed", VACUUM, "vacuumed or erased"),
)


@dataclass(frozen=True, slots=True)
class Blocker:
    """Reason why a snapshot is not published.

    `kind` is "missing" or "failed" for a check, or "rejected", "vacuumed" or "empty". `shards` is
    the number of shards concerned, 0 for a reason that concerns the whole snapshot.
    """

    check: str
    kind: str
    shards: int
    detail: str


@dataclass(frozen=True, slots=True)
class BlockedSnapshot:
    """Snapshot that is not published, with the reasons."""

    snapshot: StoredSnapshot
    blockers: tuple[Blocker, ...]

    def to_dict(self) -> Json:
        """Return the snapshot and the reasons as JSON values."""
        return {
            "snapshot": self.snapshot.number,
            "rejected": self.snapshot.rejected,
            "blockers": to_json_value(self.blockers),
        }


@dataclass(frozen=True, slots=True)
class VersionStatus(Report):
    """Latest, published and blocked snapshots of a version.

    `sources` are the open rejected sources and skipped duplicates.
    """

    version: str
    entries: int
    latest: StoredSnapshot | None
    published: StoredSnapshot | None
    blocked: tuple[BlockedSnapshot, ...]
    tags: dict[str, int]
    pins: dict[str, int]
    checks: tuple[str, ...]
    sources: OpenSources

    def to_dict(self) -> Json:
        """Return the status as JSON values."""
        return {
            "version": self.version,
            "entries": self.entries,
            "latest": self.latest and self.latest.to_dict(),
            "published": self.published and self.published.to_dict(),
            "tags": self.tags,
            "pins": self.pins,
            "checks": list(self.checks),
            "blocked": [snapshot.to_dict() for snapshot in self.blocked],
            "rejected_sources": [source.to_dict() for source in self.sources.rejected],
            "duplicates": [source.to_dict() for source in self.sources.duplicates],
        }


def get_status(version: StoredVersion) -> VersionStatus:
    """Return the status of a version, with the latest blocked snapshots.

    Example:
        >>> get_status(version).published
    """
    validate_version(version=version)
    state = version.state
    published = version.published() if state.published else None
    first = max((state.published or 0) + 1, state.snapshot - MAX_SNAPSHOTS + 1)
    is_published = list_published(state) if state.snapshot else ()
    pending = [
        number for number in range(first, state.snapshot + 1) if not is_published[number - 1]
    ]
    rejected = [
        number
        for number in range(max(1, state.snapshot - MAX_SNAPSHOTS + 1), first)
        if state.snapshot_history.get_row(number).rejected
    ]
    return VersionStatus(
        version.name,
        state.number,
        version.latest() if state.snapshot else None,
        published,
        tuple(
            BlockedSnapshot(version.snapshot(number), tuple(iter_blockers(version, number)))
            for number in rejected + pending
        ),
        {name: ref.snapshot or 0 for name, ref in sorted(state.tags.items())},
        {name: ref.snapshot or 0 for name, ref in sorted(state.pins.items())},
        (*state.checks.shard, *state.checks.snapshot),
        open_sources(version),
    )


def iter_blockers(version: StoredVersion, number: int) -> Iterator[Blocker]:
    """Yield each reason why a snapshot is not published."""
    state = version.state
    row = state.snapshot_history.get_row(number)
    if row.rejected:
        entry = version.log.entry(row.rejected)
        reason = _format_failures(entry) or entry.read(RejectParameters).reason
        yield Blocker("", "rejected", 0, reason)
    if not row.totals.shards:
        yield Blocker("", "empty", 0, "no shards")
    intervals = state.shard_history.at(number)
    for kind, mark, removal in _REMOVALS:
        count = sum(bool(interval.failed >> state.bits[mark] & 1) for interval in intervals)
        if count and not (kind == "rejected" and row.rejected):
            yield Blocker("", kind, count, f"{format_count(count, 'shard')} {removal}")
    required = state.get_checks(number)
    for check in required.shard:
        yield from _iter_shard_blockers(version, intervals, check)
    for check in required.snapshot:
        flag = 1 << state.bits.get(check, 31)
        if row.failed & flag:
            yield Blocker(
                check,
                "failed",
                0,
                _find_failure_reason(version, row.failed_entry, row.entry, check),
            )
        elif not row.passed & flag:
            yield Blocker(check, "missing", 0, "")


def _iter_shard_blockers(
    version: StoredVersion, intervals: Sequence[ShardInterval], check: str
) -> Iterator[Blocker]:
    flag = 1 << version.state.bits.get(check, 31)
    failed = [interval for interval in intervals if interval.failed & flag]
    unknown = [interval for interval in intervals if not (interval.failed | interval.passed) & flag]
    if failed:
        detail = _find_failure_reason(version, failed[0].failed_entry, failed[0].added_entry, check)
        yield Blocker(check, "failed", len(failed), detail)
    if unknown:
        yield Blocker(check, "missing", len(unknown), "")


def _find_failure_reason(version: StoredVersion, last: int, first: int, check: str) -> str:
    """Return the latest reason why a check failed; `last` is the last failure of any check."""
    for number in range(last, max(first, last - _MAX_ENTRIES_READ), -1):
        if reason := _format_failures(version.log.entry(number), check):
            return reason
    return ""


def _format_failures(entry: Entry, check: str | None = None) -> str:
    """Return the reasons of failures in an entry, of one check, or of all with their names."""
    reasons = [
        attestation.detail if check else f"{attestation.check}: {attestation.detail}"
        for attestation in entry.attestations
        if not attestation.passed and attestation.detail and check in {None, attestation.check}
    ]
    if not reasons:
        return ""
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")
