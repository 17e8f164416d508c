"""The audit: verifies the history of a root from its logs, shards and sidecars alone.

The audit changes nothing and trusts no cached result. Each `*_audit` module has the checks of one
subject, as functions that yield findings.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from shardline.lineage.audit.audit_report import AuditReport
from shardline.lineage.audit.audited_logs import AuditedLogs, list_dependencies, list_shards
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
    from collections.abc import Callable, Iterator, Sequence

    from shardline.lineage.audit.audit_report import Finding
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedShard
    from shardline.lineage.audit.dagster_record import DagsterRecords
    from shardline.lineage.audit.recompute_audit import RecomputeOptions
    from shardline.provenance.log_index import LogIndex
    from shardline.tfrecord.reader import Limits

_SEVERITY_ORDER = {"error": 0, "warning": 1, "note": 2}


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
    """Verify the whole history of versions, with the shards of others that they are read from.

    Args:
        index: The logs of the root.
        names: The versions to audit, by default all.
        shards: Read shards; otherwise only list their presence and size.
        sources: Compare the files that records came from.
        recompute: Recompute a sample of shards and compare their bytes.
        since: A time or a snapshot number. Older findings are left out, and older shards are
            not read. Logs are always verified from the first entry.
        recorded: Records of Dagster to compare with the logs.
        dagster_root: The root that Dagster recorded, if this root is a copy.
        limits: Limits of records.
        workers: The number of threads that read shards.
        progress: Called with a step, the work done, and the total work.
        now: The latest time that an entry may have, by default now.
    """
    logs = AuditedLogs(index)
    run = _AuditRun(
        logs,
        tuple(logs.names() if names is None else names),
        has_all_versions=names is None,
        since=since,
        progress=progress or (lambda _step, _done, _total: None),
        now=now or utc_now(),
    )
    return run.run(
        _AuditOptions(shards, sources, recompute, recorded, dagster_root, limits, workers)
    )


@dataclass(frozen=True, slots=True)
class _AuditOptions:
    shards: bool
    sources: bool
    recompute: RecomputeOptions | None
    recorded: DagsterRecords | None
    dagster_root: str | None
    limits: Limits
    workers: int | None


@dataclass(frozen=True, slots=True)
class _AuditRun:
    """An audit of some versions of a root."""

    logs: AuditedLogs
    names: tuple[str, ...]
    has_all_versions: bool
    since: datetime | int | None
    progress: Callable[[str, int, int], None]
    now: datetime

    def run(self, options: _AuditOptions) -> AuditReport:
        logs = self.logs
        audited = list(self._read_logs())
        first = {log.name: self._get_first_entry(log) for log in audited}
        dependencies = self._list_dependency_logs(audited)
        verified = {log.name: log for log in (*audited, *dependencies)}
        findings = list(self._audit_logs(audited, first, options))
        findings += [finding for log in dependencies for finding in find_log_faults(log, self.now)]
        unrecorded: tuple[str, ...] = ()
        if options.recorded is not None:
            from shardline.lineage.audit.dagster_record import (  # noqa: PLC0415 - only with Dagster
                compare_with_dagster,
            )

            comparison = compare_with_dagster(
                self.names, logs, options.recorded, options.dagster_root
            )
            findings += comparison.findings
            unrecorded = comparison.unrecorded
        own = [shard for log in audited for shard in list_shards(log, first[log.name])]
        # With all versions audited, the shards of dependencies are listed already.
        others = [] if self.has_all_versions else list_dependencies(own, logs)
        shards = [*own, *(shard for shard in others if not _is_removed(shard))]
        corrupt: set[str] = set()
        findings += self._audit_shards(shards, options, corrupt)
        for log in audited:
            findings += find_unreadable_snapshots(log, logs, corrupt, read=options.shards)
        recomputation = None
        if options.recompute is not None:
            from shardline.lineage.audit.recompute_audit import recompute_shards  # noqa: PLC0415 - slow

            recomputation = recompute_shards(
                own,
                logs,
                options.recompute,
                corrupt=corrupt,
                limits=options.limits,
                progress=lambda done, total: self.progress("recomputing shards", done, total),
            )
            findings += recomputation.findings
        findings += find_unverified_logs(logs, verified)
        # Findings about no entry have no time, so `since` keeps them.
        current = (
            finding
            for finding in findings
            if not finding.entry or finding.entry >= first.get(finding.version, 0)
        )
        not_audited = [] if self.has_all_versions else {*logs.names()} - {*verified}
        return AuditReport(
            time=self.now,
            versions=self.names,
            dependencies=tuple(log.name for log in dependencies),
            not_audited=tuple(sorted(not_audited)),
            not_in_dagster=unrecorded,
            entries=sum(log.report.entries for log in verified.values()),
            shards=len(shards),
            bytes=sum(shard.shard.bytes for shard in shards),
            recomputed=0 if recomputation is None else recomputation.shards,
            not_recomputed=() if recomputation is None else recomputation.skipped,
            findings=tuple(sorted(current, key=lambda finding: _SEVERITY_ORDER[finding.severity])),
        )

    def _read_logs(self) -> Iterator[AuditedLog]:
        for done, name in enumerate(self.names):
            self.progress("reading logs", done, len(self.names))
            log = self.logs.get(name)
            if log is not None:
                yield log

    def _list_dependency_logs(self, audited: Sequence[AuditedLog]) -> list[AuditedLog]:
        names = {name: None for log in audited for name in self.logs.dependencies(log)}
        known = {log.name for log in audited}
        logs = (self.logs.get(name) for name in names if name not in known)
        return [log for log in logs if log is not None]

    def _get_first_entry(self, log: AuditedLog) -> int:
        """Return the first entry that `since` includes."""
        if self.since is None:
            return 0
        if isinstance(self.since, datetime):
            return log.count_before(self.since) + 1
        snapshot = log.snapshot(self.since)
        return log.replay.number + 1 if snapshot is None else snapshot.entry

    def _audit_logs(
        self, audited: Sequence[AuditedLog], first: dict[str, int], options: _AuditOptions
    ) -> Iterator[Finding]:
        logs = self.logs
        for done, log in enumerate(audited):
            self.progress("verifying entries", done, len(audited))
            yield from find_log_faults(log, self.now)
            yield from find_lost_records(log)
            yield from find_input_faults(log, logs)
            yield from find_name_faults(log, logs)
            yield from find_missing_pins(log, logs)
            yield from find_orphaned_pins(log, logs)
            yield from find_missing_sidecars(log, logs)
            if options.shards:
                yield from find_sidecar_mismatches(log, logs)
            if options.sources:
                since = first[log.name]
                yield from find_changed_sources(log, logs, read=options.shards, since=since)

    def _audit_shards(
        self, shards: list[AuditedShard], options: _AuditOptions, corrupt: set[str]
    ) -> Iterator[Finding]:
        """Audit shards by reading them, or by a listing. Adds the paths of corrupt shards."""
        if not options.shards:
            yield from find_missing_shards(shards, self.logs)
            return
        total = sum(shard.shard.bytes for shard in shards)
        positions: dict[str, int] = {}
        done = 0

        def advance(path: str, position: int) -> None:
            nonlocal done
            done += position - positions.get(path, 0)
            positions[path] = position
            self.progress("reading shards", done, total)

        yield from find_corrupt_shards(
            shards,
            self.logs,
            corrupt=corrupt,
            limits=options.limits,
            workers=options.workers,
            progress=advance,
        )


def _is_removed(shard: AuditedShard) -> bool:
    return shard.log.replay.get_tombstone(shard.shard.name) is not None
