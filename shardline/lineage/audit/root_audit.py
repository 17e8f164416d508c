"""Audit: prove the history of a root anew, from nothing but what lies there.

Each part of `auditing` asks one question of every version. Nothing is changed, and nobody's word
is taken: what can be worked out again is, and what cannot be is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from shardline.lineage.audit.audited_logs import (
    AuditedLogs,
    get_dependency_versions,
    list_dependency_shards,
    list_shards_to_read,
)
from shardline.lineage.audit.dependency_audit import (
    find_missing_pins,
    find_orphaned_pins,
    find_unreadable_snapshots,
)
from shardline.lineage.audit.log_audit import (
    find_input_faults,
    find_log_faults,
    find_unverified_logs,
)
from shardline.lineage.audit.name_audit import find_name_faults
from shardline.lineage.audit.shard_audit import (
    find_corrupt_shards,
    find_lost_records,
    find_missing_shards,
)
from shardline.lineage.audit.sidecar_audit import (
    find_changed_sources,
    find_missing_sidecars,
    find_sidecar_mismatches,
)
from shardline.log.version import utc_now
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shardline.lineage.audit.audited_logs import AuditedLog, ShardToRead
    from shardline.lineage.audit.dagster_record import DagsterRecords
    from shardline.lineage.audit.finding import Finding
    from shardline.lineage.audit.recompute_audit import RecomputeOptions, SkippedShards
    from shardline.provenance.log_index import LogIndex
    from shardline.tfrecord.reader import Limits

_ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found, the worst first, and what it looked at.

    `shards` is how many were read, or looked for, `bytes` how many bytes they have, `recomputed`
    how many were made once more; `left_out` are those that cannot be. `lower` are versions that
    were not asked for, and from whose shards those are read that were: these are proved as well.
    `not_asked` are the others of the root, of which some may tell what those were made of then.
    `not_in_dagster` are those of which its record knows nothing, if it was asked.
    """

    findings: tuple[Finding, ...]
    versions: tuple[str, ...]
    entries: int
    shards: int
    bytes: int
    recomputed: int = 0
    left_out: tuple[SkippedShards, ...] = ()
    time: datetime | None = None
    lower: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    not_in_dagster: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, and nothing is left that cannot be proved."""
        return all(finding.severity == "note" for finding in self.findings)


def audit(
    index: LogIndex,
    names: Sequence[str] | None = None,
    *,
    shards: bool = True,
    sources: bool = True,
    recompute: RecomputeOptions | None = None,
    since: datetime | int | None = None,
    recorded: DagsterRecords | None = None,
    dagster_root: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    now: datetime | None = None,
) -> AuditReport:
    """Prove the whole history of some versions, all of the root unless told; changes nothing.

    What those are read from in other versions, as the bases of overlays, is proved with them.
    Every log is proved from its first entry; without `shards`, of shards only presence and length
    is looked at, by a listing, and without `sources` the files that records came from are not
    looked for. With `since`, a time or the number of a snapshot, only findings about entries from
    then on are given, and only shards that landed or were brought back since are read. With a
    Dagster records, `recorded`, these are compared with the logs; `dagster_root` is where the
    datasets lay then, if this is a copy of them. `progress` is told a step, how far it is, and of
    how much. No entry may be of a later time than `now`, by the clock here unless told.
    """
    tell = progress or (lambda _step, _done, _total: None)
    asked = _AuditOptions(
        shards,
        sources,
        recompute,
        since,
        recorded,
        dagster_root,
        limits,
        workers,
        tell,
        now or utc_now(),
    )
    return _audit_versions(index, names, asked)


@dataclass(frozen=True, slots=True)
class _AuditOptions:
    """What an audit is to look at."""

    shards: bool
    sources: bool
    recompute: RecomputeOptions | None
    since: datetime | int | None
    recorded: DagsterRecords | None
    dagster_root: str | None
    limits: Limits
    workers: int | None
    tell: Callable[[str, int, int], None]
    now: datetime


def _audit_versions(
    index: LogIndex, names: Sequence[str] | None, asked: _AuditOptions
) -> AuditReport:
    logs = AuditedLogs(index)
    audited = list(names) if names is not None else logs.names()
    read = list(_iter_logs(audited, logs, asked))
    lower = _list_dependency_logs(read, logs)
    first = {history.name: _get_first_entry(history, asked.since) for history in read}
    found = list(_iter_log_findings(read, logs, first, asked))
    found += [one for history in lower for one in find_log_faults(history, asked.now)]
    unknown: tuple[str, ...] = ()
    if asked.recorded is not None:
        from shardline.lineage.audit.dagster_record import (  # noqa: PLC0415 - it is about Dagster
            compare_with_dagster,
        )

        compared = compare_with_dagster(audited, logs, asked.recorded, asked.dagster_root)
        found += compared.findings
        unknown = compared.unknown
    listed = [one for history in read for one in list_shards_to_read(history, first[history.name])]
    # All versions of the root have their shards listed already, as far as they are asked about.
    under = [] if names is None else _list_present_shards(list_dependency_shards(listed, logs))
    spoiled: set[str] = set()
    found += _iter_shard_findings([*listed, *under], logs, asked, spoiled)
    for history in read:
        found += find_unreadable_snapshots(history, logs, spoiled, read=asked.shards)
    made = None
    if asked.recompute is not None:
        from shardline.lineage.audit.recompute_audit import recompute_shards  # noqa: PLC0415 - it loads much

        def redone(done: int, total: int) -> None:
            asked.tell("making shards again", done, total)

        made = recompute_shards(
            listed,
            logs,
            asked.recompute,
            spoiled=spoiled,
            limits=asked.limits,
            progress=redone,
        )
        found += made.findings
    proved = [*read, *lower]
    told = {history.name for history in proved}
    found += find_unverified_logs(logs, told)
    return AuditReport(
        tuple(sorted(_filter_findings(found, first), key=lambda one: _ORDER[one.severity])),
        tuple(audited),
        sum(history.report.entries for history in proved),
        len(listed) + len(under),
        sum(one.row.shard.bytes for one in (*listed, *under)),
        0 if made is None else made.shards,
        () if made is None else made.left_out,
        asked.now,
        tuple(history.name for history in lower),
        () if names is None else tuple(sorted({*logs.names()} - told)),
        unknown,
    )


def _list_dependency_logs(read: Sequence[AuditedLog], logs: AuditedLogs) -> list[AuditedLog]:
    """The logs of versions that were not asked for, and that those are read from."""
    asked = {history.name for history in read}
    names = {name: None for history in read for name in get_dependency_versions(history, logs)}
    found = (logs.of(name) for name in names if name not in asked)
    return [history for history in found if history is not None]


def _list_present_shards(shards: Iterable[ShardToRead]) -> list[ShardToRead]:
    """Those that vacuum has not announced."""
    return [one for one in shards if one.history.ledger.condemned_in(one.row.shard.name) is None]


def _iter_logs(
    names: Sequence[str], logs: AuditedLogs, asked: _AuditOptions
) -> Iterator[AuditedLog]:
    """Those of the versions that have one."""
    for done, name in enumerate(names):
        asked.tell("reading logs", done, len(names))
        history = logs.of(name)
        if history is not None:
            yield history


def _iter_log_findings(
    read: Sequence[AuditedLog], logs: AuditedLogs, first: dict[str, int], asked: _AuditOptions
) -> Iterator[Finding]:
    """What the logs tell, and what lies beside the data."""
    for done, history in enumerate(read):
        asked.tell("proving entries", done, len(read))
        yield from find_log_faults(history, asked.now)
        yield from find_lost_records(history)
        yield from find_input_faults(history, logs)
        yield from find_name_faults(history, logs)
        yield from find_missing_pins(history, logs)
        yield from find_orphaned_pins(history, logs)
        yield from find_missing_sidecars(history, logs)
        if asked.shards:
            yield from find_sidecar_mismatches(history, logs)
        if asked.sources:
            since = first[history.name]
            yield from find_changed_sources(history, logs, read=asked.shards, since=since)


def _iter_shard_findings(
    listed: list[ShardToRead], logs: AuditedLogs, asked: _AuditOptions, spoiled: set[str]
) -> Iterator[Finding]:
    """What the shards tell: by a listing, or by reading those that are there."""
    if not asked.shards:
        yield from find_missing_shards(listed, logs)
        return
    total = sum(one.row.shard.bytes for one in listed)
    positions: dict[str, int] = {}
    done = 0

    def told(name: str, position: int) -> None:
        nonlocal done
        done += position - positions.get(name, 0)
        positions[name] = position
        asked.tell("reading shards", done, total)

    yield from find_corrupt_shards(
        listed,
        logs,
        spoiled=spoiled,
        limits=asked.limits,
        workers=asked.workers,
        progress=told,
    )


def _get_first_entry(history: AuditedLog, since: datetime | int | None) -> int:
    """The first entry that is asked about."""
    if since is None:
        return 0
    if isinstance(since, datetime):
        return history.entry_before(since) + 1
    made = history.made(since)
    return history.ledger.number + 1 if made is None else made.entry


def _filter_findings(findings: Iterable[Finding], first: dict[str, int]) -> Iterator[Finding]:
    """The findings that are asked about; those about no entry always are, and so is the chain."""
    for one in findings:
        if not one.entry or one.entry >= first.get(one.version, 0):
            yield one
