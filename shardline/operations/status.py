"""How a version stands: what is published, and what keeps newer snapshots from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.log.parameters import RejectParameters
from shardline.log.publication import list_published
from shardline.log.state import REJECTION, VACUUM
from shardline.log.version import refuse_no_version
from shardline.operations.rejected_sources import open_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.rejected_sources import OpenSources

MAX_SNAPSHOTS = 20
_LOOKED_AT = 50
_REMOVALS = (
    ("rejected", REJECTION, "came in with a rejected snapshot"),
    ("vacuumed", VACUUM, "went to vacuum, or were erased"),
)


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a snapshot is not published.

    `kind` is "missing" or "failed" for a check, or "rejected", "vacuumed" or "empty". `shards` are
    how many shards it is about, 0 if it is about the snapshot itself.
    """

    check: str
    kind: str
    shards: int
    detail: str


@dataclass(frozen=True, slots=True)
class BlockedSnapshot:
    """A snapshot that is not published, and why."""

    snapshot: StoredSnapshot
    blockers: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A version's newest and newest published snapshot, and those that wait or were rejected.

    `sources` are the rejected sources and skipped duplicates that are open.
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


def get_status(version: StoredVersion) -> VersionStatus:
    """How a version stands. Of the snapshots newer than the published one, the last few."""
    refuse_no_version(version=version)
    state = version.state
    published = version.published() if state.published else None
    first = max((state.published or 0) + 1, state.snapshot - MAX_SNAPSHOTS + 1)
    good = list_published(state) if state.snapshot else ()
    waiting = [n for n in range(first, state.snapshot + 1) if not good[n - 1]]
    rejected = [
        n
        for n in range(max(1, state.snapshot - MAX_SNAPSHOTS + 1), first)
        if state.timeline.moment(n).rejected
    ]
    return VersionStatus(
        version.name,
        state.number,
        version.latest() if state.snapshot else None,
        published,
        tuple(_list_blocked(version, number) for number in rejected + waiting),
        {name: hold.snapshot or 0 for name, hold in sorted(state.tags.items())},
        {name: hold.snapshot or 0 for name, hold in sorted(state.pins.items())},
        (*state.checks.shard, *state.checks.snapshot),
        open_sources(version),
    )


def _list_blocked(version: StoredVersion, number: int) -> BlockedSnapshot:
    return BlockedSnapshot(version.snapshot(number), tuple(iter_blockers(version, number)))


def iter_blockers(version: StoredVersion, number: int) -> Iterator[Blocker]:
    """Yield each reason why a snapshot is not published."""
    state = version.state
    moment = state.timeline.moment(number)
    if moment.rejected:
        entry = version.log.entry(moment.rejected)
        yield Blocker("", "rejected", 0, _failures(entry) or entry.read(RejectParameters).reason)
    if not moment.totals.shards:
        yield Blocker("", "empty", 0, "it holds no shards")
    stays = state.stays.at(number)
    for what, mark, fate in _REMOVALS:
        marked = sum(bool(stay.failed >> state.bits[mark] & 1) for stay in stays)
        if marked and not (what == "rejected" and moment.rejected):
            yield Blocker("", what, marked, f"{marked} of its shards {fate}")
    needed = state.checks_of(number)
    for check in needed.shard:
        yield from _iter_shard_blockers(version, stays, check)
    for check in needed.snapshot:
        flag = 1 << state.bits.get(check, 31)
        if moment.failed & flag:
            yield Blocker(
                check, "failed", 0, _get_failure_reason(version, moment.told, moment.entry, check)
            )
        elif not moment.passed & flag:
            yield Blocker(check, "missing", 0, "")


def _iter_shard_blockers(
    version: StoredVersion, stays: Sequence[ShardInterval], check: str
) -> Iterator[Blocker]:
    flag = 1 << version.state.bits.get(check, 31)
    failed = [stay for stay in stays if stay.failed & flag]
    unknown = [stay for stay in stays if not (stay.failed | stay.passed) & flag]
    if failed:
        detail = _get_failure_reason(version, failed[0].told, failed[0].landed, check)
        yield Blocker(check, "failed", len(failed), detail)
    if unknown:
        yield Blocker(check, "missing", len(unknown), "")


def _get_failure_reason(version: StoredVersion, told: int, first: int, check: str) -> str:
    """What the latest failure of a check says.

    `told` is the entry of the latest failure of any check: that of this one may stand before it.
    """
    for number in range(told, max(first, told - _LOOKED_AT), -1):
        if why := _failures(version.log.entry(number), check):
            return why
    return ""


def _failures(entry: Entry, check: str | None = None) -> str:
    """What an entry says about failures, of one check or, each by its name, of all."""
    told = [
        one.detail if check else f"{one.check}: {one.detail}"
        for one in entry.attestations
        if not one.passed and one.detail and check in {None, one.check}
    ]
    return told[0] + (f" (and {len(told) - 1} more)" if len(told) > 1 else "") if told else ""
