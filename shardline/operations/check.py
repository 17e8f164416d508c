"""Check: verify the shards of a snapshot and attest the results in the log.

The attestations publish or reject the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from shardline.execution.task_groups import group_small_tasks
from shardline.execution.threads import run_tasks
from shardline.log.changes import validate_not_tombstoned
from shardline.log.layers import list_stacks
from shardline.log.model import INTEGRITY, SCHEMA, Attestation
from shardline.log.publication import has_check
from shardline.log.version import validate_version
from shardline.operations.inspect_shard import (
    get_joinable_bytes,
    inspect_shard,
    inspect_shard_size,
    inspect_small_shards,
)
from shardline.report import Report
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import TaskContext
    from shardline.log.layers import Layer, Stack
    from shardline.log.model import Shard
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.inspect_shard import ShardReport

SHARD_CHECKS = (INTEGRITY, SCHEMA)
MAX_DETAIL = 500


@dataclass(frozen=True, slots=True)
class CheckReport(Report):
    """Result of a check.

    `shards` are the shards that were read; the others have passed before. `missing` and `failed`
    are required checks of other tools, without a result or with a failure. `rejected` are the
    snapshots that the check rejected. `published` is the latest published snapshot after it.
    """

    snapshot: StoredSnapshot
    shards: list[ShardReport]
    missing: tuple[str, ...]
    failed: tuple[str, ...] = ()
    rejected: tuple[int, ...] = ()
    published: int | None = None
    attestations: tuple[Attestation, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Return True if no required check has failed."""
        return not self.failed and all(shard.ok for shard in self.shards)

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "ok": self.ok,
            "snapshot": self.snapshot.to_dict(),
            "shards": [shard.to_dict() for shard in self.shards],
            "missing": list(self.missing),
            "failed": list(self.failed),
            "rejected": list(self.rejected),
            "published": self.published,
        }


def check_version(
    version: StoredVersion,
    snapshot: str | int = "latest",
    *,
    recheck: bool = False,
    find_missing: bool = False,
    only: Collection[str] = SHARD_CHECKS,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Shard, int], None] | None = None,
) -> CheckReport:
    """Check the shards of a snapshot that have not passed yet, and attest the results.

    A shard that fails its first check rejects the snapshot that added it. A shard that passed
    earlier stays, and its snapshots are unpublished until it is repaired. An overlay must match its
    base; the checks of the other version cover the content of the base.

    Args:
        version: Version of the snapshot.
        snapshot: Snapshot number, tag, "latest" or "published".
        recheck: Check all shards, also those that have passed.
        find_missing: Also check passed shards that are missing or have another size.
        only: Names of the shard checks to run.
        limits: Limits of records and decompression.
        workers: Number of threads.
        progress: Called with a shard and the position in it.

    Raises:
        TombstonedShardError: Vacuum deleted a shard.

    Example:
        >>> check_version(version).ok
    """
    validate_version(version=version)
    target = version.find(snapshot)
    required = set(version.state.get_checks(target.number).shard) & set(only)
    intervals = list_shards_to_check(version, target, recheck=recheck, only=only)
    if find_missing and not recheck and INTEGRITY in only:
        intervals += _list_missing_or_truncated(version, target, intervals)
    shards = tuple(interval.shard for interval in intervals)
    validate_not_tombstoned(version.state, shards, f"cannot check snapshot {target.number}: ")
    stacks = list_stacks(target.with_shards(shards))
    checker = _ShardChecker(version, SCHEMA in required, limits, progress)
    sizes = [get_joinable_bytes(shard) for shard in shards]
    groups = [stacks[group] for group in group_small_tasks(sizes)]
    reports = [
        report for group in run_tasks(checker.check, groups, workers=workers) for report in group
    ]
    attested = {SCHEMA} & required | {INTEGRITY} & set(only)
    attestations = tuple(
        attestation for attestation in _list_attestations(reports) if attestation.check in attested
    )
    first_failures = [
        interval
        for interval, report in zip(intervals, reports, strict=True)
        if any(
            not has_check(version, interval.ever_passed, check)
            for check in attested & set(_list_failed_checks(report))
        )
    ]
    rejected = _record_attestations(version, first_failures, attestations)
    pending = sorted(list_pending_checks(version, target) - set(SHARD_CHECKS))
    failed = tuple(check for check in pending if _has_failed(version, target, check))
    return CheckReport(
        target,
        reports,
        tuple(check for check in pending if check not in failed),
        failed,
        rejected,
        version.state.published,
        attestations,
    )


@dataclass(frozen=True, slots=True)
class _ShardChecker:
    """Checker of shards with their layers; intact small shards are read together."""

    version: StoredVersion
    with_schema: bool
    limits: Limits
    progress: Callable[[Shard, int], None] | None

    def check(self, stacks: Sequence[Stack]) -> list[ShardReport]:
        """Check a group of shards."""
        reports = self._check_group(stacks) if len(stacks) > 1 else [None]
        return [
            self._check_stack(stack) if report is None else report
            for stack, report in zip(stacks, reports, strict=True)
        ]

    def _check_group(self, stacks: Sequence[Stack]) -> list[ShardReport | None]:
        shards = [(self.version.shard_name(stack.top.shard), stack.top.shard) for stack in stacks]
        schema = stacks[0].top.schema if self.with_schema else None
        reports = inspect_small_shards(self.version.store, shards, schema, limits=self.limits)
        for report in reports:
            if self.progress is not None and report is not None:
                self.progress(report.shard, report.shard.bytes)
        return reports

    def _check_stack(self, stack: Stack) -> ShardReport:
        layer, shard = stack.top, stack.top.shard
        report = inspect_shard(
            self.version.store,
            self.version.shard_name(shard),
            shard,
            layer.schema if self.with_schema else None,
            below=layer.below,
            limits=self.limits,
            progress=None if self.progress is None else partial(self.progress, shard),
        )
        problems = (*report.problems, *_list_layer_problems(self.version, stack))
        return replace(report, problems=problems, read=report.read and layer.schema is not None)


@dataclass(frozen=True, slots=True)
class CheckTask:
    """Check of a snapshot as a task, the last step of an operation."""

    version: StoredVersion
    snapshot: int
    size: int
    limits: Limits

    step = "checking"

    @classmethod
    def of(cls, version: StoredVersion, snapshot: StoredSnapshot, limits: Limits) -> CheckTask:
        """Return the task for a snapshot of a version."""
        size = sum(interval.shard.bytes for interval in list_shards_to_check(version, snapshot))
        return cls(version, snapshot.number, size, limits)

    @property
    def label(self) -> str:
        """Display label of the snapshot."""
        return f"{self.version.name}@{self.snapshot}"


def run_check(task: CheckTask, running: TaskContext) -> CheckReport:
    """Check a snapshot and report the bytes read of all shards as progress."""
    positions: dict[str, int] = {}
    done, lock = 0, Lock()

    def add_progress(shard: Shard, position: int) -> None:
        nonlocal done
        with lock:
            done += position - positions.get(shard.name, 0)
            positions[shard.name] = position
        running.report(done, 0)

    return check_version(
        task.version,
        str(task.snapshot),
        limits=task.limits,
        workers=running.workers,
        progress=add_progress,
    )


def list_shards_to_check(
    version: StoredVersion,
    snapshot: StoredSnapshot,
    *,
    recheck: bool = False,
    only: Collection[str] = SHARD_CHECKS,
) -> list[ShardInterval]:
    """Return the shards of a snapshot that have not passed all checks, or all with `recheck`."""
    intervals = version.state.shard_history.at(snapshot.number)
    required = [check for check in version.state.get_checks(snapshot.number).shard if check in only]
    return [
        interval
        for interval in intervals
        if recheck or not all(has_check(version, interval.passed, check) for check in required)
    ]


def _list_missing_or_truncated(
    version: StoredVersion, snapshot: StoredSnapshot, selected: list[ShardInterval]
) -> list[ShardInterval]:
    """Return other shards that are missing or have another size, or whose base is or has."""
    folder = f"{version.log.dataset}/shards"
    sizes = {info.name: info.size for info in version.store.list(folder)}
    names = {interval.shard.name for interval in selected}

    def is_whole(layer: Layer) -> bool:
        has_size = sizes.get(version.shard_name(layer.shard)) == layer.shard.bytes
        return has_size and INTEGRITY not in layer.failed

    intervals = version.state.shard_history.at(snapshot.number)
    return [
        interval
        for interval, stack in zip(intervals, list_stacks(snapshot), strict=True)
        if interval.shard.name not in names
        and (stack.mismatch is not None or not all(map(is_whole, stack.layers)))
    ]


def _list_layer_problems(version: StoredVersion, stack: Stack) -> Iterable[str]:
    """Yield the problems of the layers under a shard, and mismatches between layers."""
    if stack.problem:
        yield stack.problem
    for layer in stack.layers[:-1]:
        name = version.shard_name(layer.shard)
        for problem in inspect_shard_size(version.store, name, layer.shard).problems:
            yield f"base {layer.shard.name} of {layer.version}: {problem}"
        if INTEGRITY in layer.failed:
            yield f"base {layer.shard.name} failed {INTEGRITY!r} in {layer.version}"


def list_pending_checks(version: StoredVersion, snapshot: StoredSnapshot) -> set[str]:
    """Return the required checks that have not passed, of the shards or of the snapshot."""
    state = version.state
    required, row = (
        state.get_checks(snapshot.number),
        state.snapshot_history.get_row(snapshot.number),
    )
    passed = [interval.passed for interval in state.shard_history.at(snapshot.number)]
    pending = {
        check
        for check in required.shard
        if not all(has_check(version, bits, check) for bits in passed)
    }
    return pending | {
        check for check in required.snapshot if not has_check(version, row.passed, check)
    }


def _has_failed(version: StoredVersion, snapshot: StoredSnapshot, check: str) -> bool:
    state = version.state
    failed = [interval.failed for interval in state.shard_history.at(snapshot.number)]
    failed.append(state.snapshot_history.get_row(snapshot.number).failed)
    return any(has_check(version, bits, check) for bits in failed)


def _list_attestations(reports: list[ShardReport]) -> Iterable[Attestation]:
    """Yield one attestation for all passes, and one with a reason for each failure.

    A shard that was not read to its end has no result for its schema.
    """
    intact = tuple(report.shard.name for report in reports if not report.problems)
    valid = tuple(r.shard.name for r in reports if r.read and not r.violations)
    if intact:
        yield Attestation(INTEGRITY, passed=True, shards=intact)
    if valid:
        yield Attestation(SCHEMA, passed=True, shards=valid)
    for report in reports:
        name = (report.shard.name,)
        if report.problems:
            detail = "; ".join(report.problems)[:MAX_DETAIL]
            yield Attestation(INTEGRITY, passed=False, shards=name, detail=detail)
        if report.violations:
            first = report.violations[0]
            feature = "" if first.feature is None else f", feature {first.feature!r}"
            detail = f"record {first.record}{feature}: {first.detail}"[:MAX_DETAIL]
            yield Attestation(SCHEMA, passed=False, shards=name, detail=detail)


def _list_failed_checks(report: ShardReport) -> Iterable[str]:
    if report.problems:
        yield INTEGRITY
    if report.violations:
        yield SCHEMA


def get_introducing_snapshot(version: StoredVersion, interval: ShardInterval) -> int:
    """Return the snapshot that added or restored a shard."""
    history = version.state.snapshot_history
    if history.get_row(interval.since).rejected:
        return history.of_entry(interval.added_entry)
    is_restored = version.log.entry(history.get_row(interval.since).entry).operation == "restore"
    return interval.since if is_restored else history.of_entry(interval.added_entry)


def _record_attestations(
    version: StoredVersion,
    first_failures: list[ShardInterval],
    attestations: tuple[Attestation, ...],
) -> tuple[int, ...]:
    """Commit the attestations, and reject the snapshots that added shards with a first failure."""
    if not attestations:
        return ()
    numbers = sorted({get_introducing_snapshot(version, shard) for shard in first_failures})
    if not numbers:
        version.attest(attestations)
    rejected = []
    for number in numbers:
        is_first = number == numbers[0]
        entry = version.reject(number, attestations if is_first else (), reason="a check failed")
        if entry is not None and entry.rejects == number:  # None: it was rejected before.
            rejected.append(number)
    return tuple(rejected)
