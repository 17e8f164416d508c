"""Combine: a version with the pairs of the records of two others, or of the pairs that match.

The version follows its inputs: when an input has new shards, only their pairs are computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.arguments import TARGET_BYTES, validate_minimum, validate_option_names
from shardline.errors import InvalidArgumentError, LogError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint, Option
from shardline.log.model import Checks, Shard
from shardline.log.version import DerivedFrom, validate_version
from shardline.operations.combine_task import CombineTargets, make_combined_shard
from shardline.operations.derive import (
    Derivation,
    DeriveReport,
    derive,
    validate_not_erased,
    validate_nothing_appended,
    validate_same_root,
    validate_same_schema,
)
from shardline.operations.shard_writer import get_shard_compression
from shardline.pairing.combine_spec import (
    OPTIONS,
    CombineSpec,
    SpecOptions,
    validate_mode,
)
from shardline.pairing.coverage import COMBINE_OPERATION
from shardline.pairing.pair_grid import PairEstimate, sum_estimates, validate_budget
from shardline.pairing.spec_binding import bind_spec
from shardline.storage.temporary_files import spool_folder
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.combine_task import AnyCombineTask
    from shardline.pairing.combine_spec import CombineMode
    from shardline.schema.schema import Schema
    from shardline.tfrecord.reader import Limits


class CombineOptions(SpecOptions, total=False):
    """Keyword arguments of `combine`, besides those that only execute the plan.

    Attributes:
        left_snapshot: Snapshot of the left to read: "published", "latest", a number, a tag or a
            time.
        right_snapshot: Snapshot of the right to read.
        target_bytes: Size of a shard.
        mode: "materialized" writes the pairs. "virtual" writes only a plan and pins the inputs:
            readers compute the pairs. It has all pairs, or all `unordered` ones.
        compression: "none" or "gzip". By default that of the new version.
        limits: Limits of what is read.
    """

    left_snapshot: str | int
    right_snapshot: str | int
    target_bytes: int
    mode: CombineMode
    compression: Compression | str | None
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineReport(DeriveReport):
    """Result of a combination.

    It is not `incremental` if its options depend on all pairs: a new input shard then changes all.
    """

    INPUTS = ("left", "right")

    incremental: bool = True

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {**super(CombineReport, self).to_dict(), "incremental": self.incremental}

    @property
    def left(self) -> StoredSnapshot:
        """The left snapshot."""
        return self.inputs[0]

    @property
    def right(self) -> StoredSnapshot:
        """The right snapshot."""
        return self.inputs[1]


@dataclass(frozen=True, slots=True)
class CombinePlan:
    """A planned combination, to look at or to execute.

    `estimate` counts the pairs to compute, for `compute` shards. `reuse` shards exist already,
    `drop` shards of the version are left out.
    """

    left: StoredSnapshot
    right: StoredSnapshot
    into: str
    schema: Schema
    estimate: PairEstimate
    compute: int
    reuse: int
    drop: int
    _targets: CombineTargets = field(repr=False)

    @property
    def spec(self) -> CombineSpec:
        """Options of the pairs."""
        return self._targets.bound.spec

    @property
    def incremental(self) -> bool:
        """Return True if a new input shard adds pairs, False if it changes all."""
        return self.spec.is_incremental

    def execute(
        self,
        *,
        budget_bytes: int | None = None,
        checks: Checks = Checks(),
        executor: Executor | None = None,
        progress: ProgressListener | None = None,
    ) -> CombineReport:
        """Write the planned shards and commit them; see `combine`.

        Plans again only if the version has changed since.
        """
        targets = self._targets
        into = targets.into

        def validate_tasks(tasks: Sequence[AnyCombineTask]) -> None:
            total = sum_estimates(task.estimate for task in tasks)
            validate_budget(into.name, total, budget_bytes, spool_folder(into.store))

        try:
            report = derive(
                Derivation(
                    into=into,
                    operation=COMBINE_OPERATION,
                    schema=self.schema,
                    checks=checks,
                    origins=targets.origins,
                    plan=targets.plan,
                    make=make_combined_shard,
                    prepare=validate_tasks,
                    describe=targets.add_outputs,
                    parameters=targets.parameters(),
                    is_pinned=targets.virtual,
                    udfs=self.spec.functions,
                ),
                executor or ThreadExecutor(),
                progress,
            )
        finally:
            targets.bound.close()
        return CombineReport.extend(report, incremental=self.incremental)


def combine(
    left: StoredVersion,
    right: StoredVersion,
    into: StoredVersion,
    *,
    budget_bytes: int | None = None,
    checks: Checks = Checks(),
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
    **options: Unpack[CombineOptions],
) -> CombineReport:
    """Write the pairs of the records of two snapshots to another version.

    A pair has the features of the left record, then those of the right one. Pairs are ordered by
    shards: first left shard with first right shard, then with the second, and so on. Within two
    shards, the left record is the outer loop. With `on`, the order is that of the left records.

    When an input has new shards, only their pairs are computed. All pairs are computed again with
    `limit` or `sample`, with `on` if the right has changed, and with a function without a code
    version.

    Args:
        left: The left version to read.
        right: The right version to read, which may be the left one.
        into: The version to write, which may be new.
        budget_bytes: Limit of the bytes to write. By default the free disk space, at most 100 GB.
        checks: Checks of a new version.
        executor: Runs the tasks. By default on threads.
        progress: Called with the progress of each task.
        **options: See `CombineOptions` and `CombineSpec`.

    Returns:
        The new entry and its shards.

    Raises:
        BudgetError: If there is more to write than the budget allows.
        CorruptFileError: If a record is corrupt. Nothing is committed.

    Example:
        combine(root["photos/v1"], root["captions/v1"], root["pairs/v1"], on="photo_id")
    """
    validate_option_names(combine, options, OPTIONS, CombineOptions.__annotations__)
    plan = plan_combine(left, right, into, **options)
    return plan.execute(
        budget_bytes=budget_bytes, checks=checks, executor=executor, progress=progress
    )


def plan_combine(
    left: StoredVersion,
    right: StoredVersion,
    into: StoredVersion,
    *,
    left_snapshot: str | int = "published",
    right_snapshot: str | int = "published",
    target_bytes: int = TARGET_BYTES,
    mode: CombineMode = "materialized",
    compression: Compression | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Unpack[SpecOptions],
) -> CombinePlan:
    """Plan `combine`, to look at or to execute.

    Reads no record, except for the keys that count the pairs of `on`.
    """
    validate_option_names(plan_combine, options, OPTIONS)
    validate_version(left=left, right=right, into=into)
    spec = CombineSpec.of(**options)
    validate_mode(mode, spec.changed)
    validate_minimum("target_bytes", target_bytes, 1)
    for side in (left, right):
        validate_same_root(into, side)
        if side.name == into.name:
            raise LogError(
                f"{side.name}: cannot combine a version into itself",
                code="same-version",
                hint=Hint.of("set ", Option("into"), " to a new version"),
                version=side.name,
            )
    left.refresh()
    left_origin = right_origin = DerivedFrom(left, left.find(left_snapshot))
    if right.name != left.name or right_snapshot != left_snapshot:
        right.refresh()
        right_origin = DerivedFrom(right, right.find(right_snapshot))
    snapshots = left_origin.snapshot, right_origin.snapshot
    if spec.unordered and str(snapshots[0]) != str(snapshots[1]):
        raise InvalidArgumentError(
            f"unordered: both sides must be one snapshot, got {snapshots[0]} and {snapshots[1]}",
            code="conflicting-arguments",
            hint=Hint.of("name one snapshot for both sides, or leave out ", Option("unordered")),
        )
    bound, schema = bind_spec(spec.settle(), snapshots[0].schema, snapshots[1].schema)
    bound.validate_side_names()
    origins = left_origin, right_origin
    validate_not_erased(origins)
    into.refresh()
    validate_same_schema(into, schema)
    validate_nothing_appended(into, COMBINE_OPERATION)
    parsed = get_shard_compression(into, compression) or Compression.NONE
    targets = CombineTargets(
        into, origins, bound, parsed, target_bytes, limits, virtual=mode == "virtual"
    )
    state = into.state
    planned = targets.plan(state)
    tasks = [target for target in planned if not isinstance(target, Shard)]
    reused = {target.name for target in planned if isinstance(target, Shard)}
    live = [interval.shard.name for interval in state.shard_history.at(state.snapshot)]
    return CombinePlan(
        *snapshots,
        into.name,
        schema,
        sum_estimates(task.estimate for task in tasks),
        len(tasks),
        len(reused),
        sum(name not in reused for name in live),
        targets,
    )
