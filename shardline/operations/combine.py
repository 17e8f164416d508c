"""Combine: a version of all pairs of the records of two others, or of those pairs that match.

It follows its inputs: when one of them has grown by a shard, only the pairs of that are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.arguments import TARGET_BYTES, validate_minimum
from shardline.errors import InvalidArgumentError, LogError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint, Option
from shardline.log.model import Checks, Shard
from shardline.log.version import DerivedFrom, refuse_no_version
from shardline.operations.combine_task import (
    CombineTargets,
    PairPlanTask,
    make_combined_shard,
    write_pair_plan,
)
from shardline.operations.derive import (
    Derivation,
    WrittenShards,
    derive,
    validate_not_erased,
    validate_nothing_appended,
    validate_same_root,
    validate_same_schema,
)
from shardline.operations.shard_writer import get_shard_compression
from shardline.pairing.combine_spec import (
    CombineSpec,
    bind_spec,
    validate_mode,
    validate_option_names,
)
from shardline.pairing.coverage import COMBINE_OPERATION
from shardline.pairing.pair_grid import PairEstimate, sum_estimates, validate_budget
from shardline.storage.temporary_files import spool_folder
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.combine_task import AnyCombineTask
    from shardline.pairing.combine_spec import CombineMode, SpecOptions
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class CombineReport(WrittenShards):
    """What a combination did. `entry` is None if there was nothing to do.

    `made` are the shards that were computed, `reused` those that were there. It is not
    `incremental` if it depends on all records which pairs there are: then it is all made anew
    whenever an input changes.
    """

    left: StoredSnapshot
    right: StoredSnapshot
    version: str
    entry: Entry | None
    made: tuple[Shard, ...] = ()
    reused: tuple[Shard, ...] = ()
    created: bool = False
    incremental: bool = True


@dataclass(frozen=True, slots=True)
class CombinePlan:
    """A planned combination: the schema that it makes, and what it computes for that.

    `estimate` is of the pairs to compute, for `compute` shards. `reuse` shards exist already, and
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
    _origins: tuple[DerivedFrom, DerivedFrom] = field(repr=False)
    _targets: CombineTargets = field(repr=False)

    @property
    def spec(self) -> CombineSpec:
        """The options of the combination."""
        return self._targets.bound.spec

    @property
    def incremental(self) -> bool:
        """Return True if a grown input adds pairs, False if it changes all."""
        return self.spec.is_incremental

    def execute(
        self,
        *,
        budget_bytes: int | None = None,
        checks: Checks = Checks(),
        executor: Executor | None = None,
        progress: ProgressListener | None = None,
    ) -> CombineReport:
        """Make the planned shards and commit them.

        Plans again only if the version has changed since. Raises BudgetError, CorruptFileError and
        the errors of a commit, as `combine` does.
        """
        into, targets = self._targets.into, self._targets

        def prepare(tasks: Sequence[AnyCombineTask]) -> None:
            total = sum_estimates(_estimate_task(task) for task in tasks)
            validate_budget(into.name, total, budget_bytes, spool_folder(into.store))

        try:
            derived = derive(
                Derivation(
                    into=into,
                    operation=COMBINE_OPERATION,
                    schema=self.schema,
                    checks=checks,
                    origins=self._origins,
                    wanted=targets.of,
                    make=_make_task_output,
                    prepare=prepare,
                    describe=targets.add_outputs,
                    parameters=targets.parameters(),
                    pinned=targets.virtual,
                    makers=self.spec.udfs,
                ),
                executor or ThreadExecutor(),
                progress,
            )
        finally:
            targets.bound.close()
        return CombineReport(
            self.left,
            self.right,
            into.name,
            derived.entry,
            derived.made,
            derived.reused,
            derived.created,
            self.incremental,
        )


def combine(
    left: StoredVersion,
    right: StoredVersion,
    into: StoredVersion,
    *,
    which_left: str | int = "published",
    which_right: str | int = "published",
    target_bytes: int = TARGET_BYTES,
    mode: CombineMode = "materialized",
    compression: Compression | str | None = None,
    budget_bytes: int | None = None,
    checks: Checks = Checks(),
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
    **options: Unpack[SpecOptions],
) -> CombineReport:
    """Make records of each record of one snapshot together with each of another.

    A pair has the features of the left, then those of the right. What both have is refused unless
    `on_collision` says otherwise: "prefix" puts `left_prefix` and `right_prefix` before the names
    of a side, "keep-left" and "keep-right" leave out what the other side has of it. The pairs come
    by shards: those of the first left shard with the first right one, then with the second, and so
    on; within, the record of the left is the outer one. New shards have about `target_bytes`.

    With `on`, only records are paired whose key features are the same, in the order of the left;
    with `how="left"` a record without a match is there alone. `where` chooses among pairs, a maker
    of one int64 that is 0 or 1; `fields` make new features of them; both as for `extend`, with the
    names in the pair. `unordered` pairs the records of one snapshot, each two different ones once.
    `limit` takes the first pairs, `sample` with a `seed` some of all.

    With `mode="virtual"` only the plan is written, and the inputs are pinned: whoever reads makes
    the pairs. That is for all pairs, or each two `unordered`, as they are.

    When an input has grown, only the pairs of its new shards are made. So it is not with `limit`
    and `sample`, nor with `on` if the right has changed, nor with a function that has no code
    version: then all is made anew.

    Refused with BudgetError if it would write more than `budget_bytes`, which is what the disk has
    free and at most 100 GB unless told. Raises CorruptFileError at a damaged record; nothing is
    committed then. A version that is new gets `checks`.
    """
    validate_option_names(combine, options)
    plan = plan_combine(
        left,
        right,
        into,
        which_left=which_left,
        which_right=which_right,
        target_bytes=target_bytes,
        mode=mode,
        compression=compression,
        limits=limits,
        **options,
    )
    return plan.execute(
        budget_bytes=budget_bytes, checks=checks, executor=executor, progress=progress
    )


def plan_combine(
    left: StoredVersion,
    right: StoredVersion,
    into: StoredVersion,
    *,
    which_left: str | int = "published",
    which_right: str | int = "published",
    target_bytes: int = TARGET_BYTES,
    mode: CombineMode = "materialized",
    compression: Compression | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Unpack[SpecOptions],
) -> CombinePlan:
    """Plan a combination, to look at or to execute.

    No record is read, except for the keys that count the pairs of `on`.
    """
    validate_option_names(plan_combine, options)
    refuse_no_version(left=left, right=right, into=into)
    spec = CombineSpec.of(**options)
    validate_mode(mode, spec.given)
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
    origins = [DerivedFrom(left, left.find(which_left))]
    if right.name == left.name and which_left == which_right:
        origins.append(origins[0])
    else:
        right.refresh()
        origins.append(DerivedFrom(right, right.find(which_right)))
    snapshots = [origin.snapshot for origin in origins]
    if spec.unordered and str(snapshots[0]) != str(snapshots[1]):
        raise InvalidArgumentError(
            f"unordered: both sides must be one snapshot, got {snapshots[0]} and {snapshots[1]}",
            code="conflicting-arguments",
            hint=Hint.of("name one snapshot for both sides, or leave out ", Option("unordered")),
        )
    bound, schema = bind_spec(spec.settle(), snapshots[0].schema, snapshots[1].schema)
    bound.refuse_same_names()
    validate_not_erased(origins)
    into.refresh()
    validate_same_schema(into, schema)
    validate_nothing_appended(into, COMBINE_OPERATION)
    both = (origins[0], origins[1])
    packing = get_shard_compression(into, compression) or Compression.NONE
    targets = CombineTargets(
        into, both, bound, packing, target_bytes, limits, virtual=mode == "virtual"
    )
    state = into.state
    wanted = targets.of(state)
    tasks = [task for task in wanted if not isinstance(task, Shard)]
    reused = {shard.name for shard in wanted if isinstance(shard, Shard)}
    live = [stay.shard.name for stay in state.stays.at(state.snapshot)]
    return CombinePlan(
        snapshots[0],
        snapshots[1],
        into.name,
        schema,
        sum_estimates(_estimate_task(task) for task in tasks),
        len(tasks),
        len(reused),
        sum(name not in reused for name in live),
        both,
        targets,
    )


def _estimate_task(task: AnyCombineTask) -> PairEstimate:
    """How many pairs a task makes, and how many bytes it writes."""
    if isinstance(task, PairPlanTask):
        return PairEstimate(task.pairs.pairs, len(task.pairs.encode()))
    return task.estimate


def _make_task_output(task: AnyCombineTask, running: TaskContext) -> Receipt:
    """Do one task."""
    if isinstance(task, PairPlanTask):
        return write_pair_plan(task, running)
    return make_combined_shard(task, running)
