"""Check a snapshot, and say in the log what was found: that is what publishes or rejects it."""

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
from shardline.log.publication import is_in
from shardline.log.version import refuse_no_version
from shardline.operations.inspect_shard import (
    get_joinable_bytes,
    inspect_shard,
    inspect_shard_size,
    inspect_small_shards,
)
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

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
class CheckReport:
    """What checking a snapshot found, and what became of it.

    `shards` are those that were read; the others had passed before. `missing` and `failed` are
    checks that the snapshot needs and that cannot be run here: nobody has run them, or they have
    failed. `rejected` are the snapshots that were rejected, `published` is the newest published
    one afterwards.
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
        """Whether no check that the snapshot needs has failed, here or elsewhere."""
        return not self.failed and all(shard.ok for shard in self.shards)


def check_version(
    version: StoredVersion,
    which: str = "latest",
    *,
    recheck: bool = False,
    look: bool = False,
    only: Collection[str] = SHARD_CHECKS,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Shard, int], None] | None = None,
) -> CheckReport:
    """Run the checks on the shards of a snapshot that have not passed them, or on all (`recheck`).

    Of the checks of shards, those in `only` are run and attested, and no other. With `look`, shards
    that have passed integrity are seen to be there and as long as they should be; one that is not
    is read again. An overlay must belong to its base, whose file is seen to be there:
    whether that is sound is for the checks of its own version to say, and what they said counts.

    A shard that fails its first check has the snapshot that brought it in rejected. One that had
    passed before and fails now stays in the list, since its records would be missed there: what
    holds it is no longer published until it is repaired or an older snapshot is restored. Raises
    TombstonedShardError if vacuum took a shard: that is no failure of a check.
    """
    refuse_no_version(version=version)
    snapshot = version.find(which)
    needed = set(version.state.checks_of(snapshot.number).shard) & set(only)
    left = list_shards_to_check(version, snapshot, recheck=recheck, only=only)
    if look and not recheck and INTEGRITY in only:
        left += _list_missing_or_truncated(version, snapshot, left)
    what = f"snapshot {snapshot.number} cannot be checked: "
    validate_not_tombstoned(version.state, [stay.shard for stay in left], what)
    asked = tuple(stay.shard for stay in left)
    stacks = list_stacks(replace(snapshot, list_shards=lambda: asked))
    checker = _ShardChecker(version, SCHEMA in needed, limits, progress)
    groups = [
        stacks[cut] for cut in group_small_tasks([get_joinable_bytes(one.shard) for one in left])
    ]
    found = run_tasks(checker.check, groups, workers=workers)
    reports = [report for some in found for report in some]
    attested = {SCHEMA} & needed | {INTEGRITY} & set(only)
    attestations = tuple(one for one in _make_attestations(reports) if one.check in attested)
    fresh = [
        stay
        for stay, report in zip(left, reports, strict=True)
        if any(
            not is_in(version, stay.once, check) for check in attested & set(_make_failure(report))
        )
    ]
    rejected = _record_attestations(version, fresh, attestations)
    open_checks = sorted(list_pending_checks(version, snapshot) - set(SHARD_CHECKS))
    failed = tuple(check for check in open_checks if _has_failed(version, snapshot, check))
    return CheckReport(
        snapshot,
        reports,
        tuple(check for check in open_checks if check not in failed),
        failed,
        rejected,
        version.state.published,
        attestations,
    )


@dataclass(frozen=True, slots=True)
class _ShardChecker:
    """Checks shards, each with its layers: small ones together, as long as all are sound."""

    version: StoredVersion
    with_schema: bool
    limits: Limits
    progress: Callable[[Shard, int], None] | None

    def check(self, stacks: Sequence[Stack]) -> list[ShardReport]:
        """Check the shards of a group."""
        reports = self._check_together(stacks) if len(stacks) > 1 else [None]
        return [
            self._check_alone(stack) if report is None else report
            for stack, report in zip(stacks, reports, strict=True)
        ]

    def _check_together(self, stacks: Sequence[Stack]) -> list[ShardReport | None]:
        shards = [(self.version.shard_name(one.top.shard), one.top.shard) for one in stacks]
        schema = stacks[0].top.schema if self.with_schema else None
        reports = inspect_small_shards(self.version.store, shards, schema, limits=self.limits)
        for report in reports:
            if self.progress is not None and report is not None:
                self.progress(report.shard, report.shard.bytes)
        return reports

    def _check_alone(self, stack: Stack) -> ShardReport:
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
    """A snapshot to be checked by an engine, as the last step of an operation."""

    version: StoredVersion
    snapshot: int
    size: int
    limits: Limits

    step = "checking"

    @classmethod
    def of(cls, version: StoredVersion, snapshot: StoredSnapshot, limits: Limits) -> CheckTask:
        """Return the task for a snapshot of a version."""
        size = sum(stay.shard.bytes for stay in list_shards_to_check(version, snapshot))
        return cls(version, snapshot.number, size, limits)

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.version.name}@{self.snapshot}"


def run_check(task: CheckTask, running: TaskContext) -> CheckReport:
    """Check a snapshot, and tell how many bytes of all its shards are read."""
    read: dict[str, int] = {}
    done, lock = 0, Lock()

    def tell(shard: Shard, position: int) -> None:
        nonlocal done
        with lock:
            done += position - read.get(shard.name, 0)
            read[shard.name] = position
        running.report(done, 0)

    return check_version(
        task.version,
        str(task.snapshot),
        limits=task.limits,
        workers=running.workers,
        progress=tell,
    )


def list_shards_to_check(
    version: StoredVersion,
    snapshot: StoredSnapshot,
    *,
    recheck: bool = False,
    only: Collection[str] = SHARD_CHECKS,
) -> list[ShardInterval]:
    """List the shards of a snapshot that have not passed these checks, or all (`recheck`)."""
    stays = version.state.stays.at(snapshot.number)
    needed = [c for c in version.state.checks_of(snapshot.number).shard if c in only]
    return [s for s in stays if recheck or not all(is_in(version, s.passed, c) for c in needed)]


def _list_missing_or_truncated(
    version: StoredVersion, snapshot: StoredSnapshot, left: list[ShardInterval]
) -> list[ShardInterval]:
    """The shards beside those `left` that are not there, or have another length; or their bases."""
    folder = f"{version.log.dataset}/shards"
    sizes = {info.name: info.size for info in version.store.list(folder)}
    asked = {stay.shard.name for stay in left}

    def is_whole(layer: Layer) -> bool:
        whole = sizes.get(version.shard_name(layer.shard)) == layer.shard.bytes
        return whole and INTEGRITY not in layer.failed

    stays = version.state.stays.at(snapshot.number)
    return [
        stay
        for stay, stack in zip(stays, list_stacks(snapshot), strict=True)
        if stay.shard.name not in asked
        and (stack.misfit is not None or not all(map(is_whole, stack.layers)))
    ]


def _list_layer_problems(version: StoredVersion, stack: Stack) -> Iterable[str]:
    """What is wrong with the layers that a shard lies beside, and with how they fit together."""
    if stack.problem:
        yield stack.problem
    for layer in stack.layers[:-1]:
        name = version.shard_name(layer.shard)
        for problem in inspect_shard_size(version.store, name, layer.shard).problems:
            yield f"its base {layer.shard.name}, of {layer.version}: {problem}"
        if INTEGRITY in layer.failed:
            yield f"its base {layer.shard.name} has failed {INTEGRITY!r} in {layer.version}"


def list_pending_checks(version: StoredVersion, snapshot: StoredSnapshot) -> set[str]:
    """Return the checks that a snapshot needs and that have not passed, on a shard or on itself."""
    state = version.state
    needed, moment = state.checks_of(snapshot.number), state.timeline.moment(snapshot.number)
    passed = [stay.passed for stay in state.stays.at(snapshot.number)]
    missing = {c for c in needed.shard if not all(is_in(version, bits, c) for bits in passed)}
    return missing | {c for c in needed.snapshot if not is_in(version, moment.passed, c)}


def _has_failed(version: StoredVersion, snapshot: StoredSnapshot, check: str) -> bool:
    state = version.state
    failed = [stay.failed for stay in state.stays.at(snapshot.number)]
    failed.append(state.timeline.moment(snapshot.number).failed)
    return any(is_in(version, bits, check) for bits in failed)


def _make_attestations(reports: list[ShardReport]) -> Iterable[Attestation]:
    """Passes together, each failure with its reason. A shard not read to its end has no schema."""
    sound = tuple(report.shard.name for report in reports if not report.problems)
    fitting = tuple(r.shard.name for r in reports if r.read and not r.violations)
    if sound:
        yield Attestation(INTEGRITY, passed=True, shards=sound)
    if fitting:
        yield Attestation(SCHEMA, passed=True, shards=fitting)
    for report in reports:
        name = (report.shard.name,)
        if report.problems:
            detail = "; ".join(report.problems)[:MAX_DETAIL]
            yield Attestation(INTEGRITY, passed=False, shards=name, detail=detail)
        if report.violations:
            first = report.violations[0]
            named = "" if first.feature is None else f", feature {first.feature!r}"
            detail = f"record {first.record}{named}: {first.detail}"[:MAX_DETAIL]
            yield Attestation(SCHEMA, passed=False, shards=name, detail=detail)


def _make_failure(report: ShardReport) -> Iterable[str]:
    if report.problems:
        yield INTEGRITY
    if report.violations:
        yield SCHEMA


def get_introducing_snapshot(version: StoredVersion, stay: ShardInterval) -> int:
    """Return the snapshot that brought a shard in: it landed with it, or was restored by it."""
    timeline = version.state.timeline
    if timeline.moment(stay.since).rejected:
        return timeline.of_entry(stay.landed)
    restored = version.log.entry(timeline.moment(stay.since).entry).operation == "restore"
    return stay.since if restored else timeline.of_entry(stay.landed)


def _record_attestations(
    version: StoredVersion, fresh: list[ShardInterval], attestations: tuple[Attestation, ...]
) -> tuple[int, ...]:
    """Write down what was found, and reject the snapshots that brought in what is new and bad."""
    if not attestations:
        return ()
    numbers = sorted({get_introducing_snapshot(version, stay) for stay in fresh})
    if not numbers:
        version.attest(attestations)
    rejected = []
    for number in numbers:
        first = number == numbers[0]
        entry = version.reject(number, attestations if first else (), reason="a check failed")
        if entry is not None and entry.rejects == number:  # else it had been rejected before
            rejected.append(number)
    return tuple(rejected)
