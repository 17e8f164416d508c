"""Combine: a version of all pairs of the records of two others, or of those pairs that match.

It follows its inputs: when one of them has grown by a shard, only the pairs of that are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from shardline.arguments import TARGET_BYTES, validate_choice, validate_minimum
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
    validate_nothing_appended,
    validate_same_root,
    validate_same_schema,
)
from shardline.operations.shard_writer import get_shard_compression
from shardline.pairing.combine_spec import bind_spec, make_spec, validate_option_names
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
    from shardline.pairing.combine_spec import BoundCombineSpec, CombineSpec, SpecOptions
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.tfrecord.reader import Limits

CombineMode: TypeAlias = Literal["materialized", "virtual"]


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
    """What a combination would do: the schema it makes, and what it computes for that.

    `estimate` is of the pairs that are to be computed, for `compute` shards; `reuse` shards are
    there already, `drop` of those that are there go.
    """

    left: StoredSnapshot
    right: StoredSnapshot
    into: str
    schema: Schema
    estimate: PairEstimate
    compute: int
    reuse: int
    drop: int
    incremental: bool = True


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
    names in the pair. `once` pairs the records of one snapshot, each two different ones once.
    `limit` takes the first pairs, `sample` with a `seed` some of all.

    With `mode="virtual"` only the plan is written, and the inputs are pinned: whoever reads makes
    the pairs. That is for all pairs, or each two `once`, as they are.

    When an input has grown, only the pairs of its new shards are made. So it is not with `limit`
    and `sample`, nor with `on` if the right has changed, nor with a function that has no code
    version: then all is made anew.

    Refused with BudgetError if it would write more than `budget_bytes`, which is what the disk has
    free and at most 100 GB unless told. Raises CorruptFileError at a damaged record; nothing is
    committed then. A version that is new gets `checks`.
    """
    validate_option_names(combine, options)
    work = _plan_combination(
        left,
        right,
        into,
        (which_left, which_right),
        target_bytes=target_bytes,
        mode=mode,
        compression=compression,
        limits=limits,
        options=options,
    )
    try:
        return work.done(budget_bytes, checks, executor or ThreadExecutor(), progress)
    finally:
        work.recipe.close()


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
    """Tell what `combine` would do. No record is read, unless it takes keys to count the pairs."""
    validate_option_names(plan_combine, options)
    work = _plan_combination(
        left,
        right,
        into,
        (which_left, which_right),
        target_bytes=target_bytes,
        mode=mode,
        compression=compression,
        limits=limits,
        options=options,
    )
    try:
        return work.plan()
    finally:
        work.recipe.close()


def _plan_combination(
    left: StoredVersion,
    right: StoredVersion,
    into: StoredVersion,
    which: tuple[str | int, str | int],
    *,
    target_bytes: int,
    mode: CombineMode,
    compression: Compression | str | None,
    limits: Limits,
    options: SpecOptions,
) -> _CombineRun:
    """Find the snapshots, and refuse what cannot be combined."""
    refuse_no_version(left=left, right=right, into=into)
    rule = make_spec(**options)
    validate_choice("mode", mode, get_args(CombineMode))
    if mode == "virtual":
        _validate_virtual_spec(rule)
    validate_minimum("target_bytes", target_bytes, 1)
    for one in (left, right):
        validate_same_root(into, one)
        if one.name == into.name:
            raise LogError(
                f"{one.name}: cannot combine a version into itself",
                code="same-version",
                hint=Hint.of("set ", Option("into"), " to a new version"),
                version=one.name,
            )
    left.refresh()
    origins = [DerivedFrom(left, left.find(which[0]))]
    if right.name == left.name and which[0] == which[1]:
        origins.append(origins[0])
    else:
        right.refresh()
        origins.append(DerivedFrom(right, right.find(which[1])))
    snapshots = [origin.snapshot for origin in origins]
    if rule.once and str(snapshots[0]) != str(snapshots[1]):
        raise InvalidArgumentError(
            f"once: both sides must be one snapshot, got {snapshots[0]} and {snapshots[1]}",
            code="conflicting-arguments",
            hint=Hint.of("name one snapshot for both sides, or leave out ", Option("once")),
        )
    recipe, schema = bind_spec(rule, snapshots[0].schema, snapshots[1].schema)
    recipe.refuse_same_names()
    both = (origins[0], origins[1])
    into.refresh()
    packed = get_shard_compression(into, compression) or Compression.NONE
    targets = CombineTargets(
        into, both, recipe, packed, target_bytes, limits, virtual=mode == "virtual"
    )
    return _CombineRun(into, both, schema, targets)


def _validate_virtual_spec(rule: CombineSpec) -> None:
    """Refuse what a reader cannot make of a pair's number alone."""
    names = ("on", "where", "fields", "limit", "sample")
    asked = [name for name in names if getattr(rule, name)]
    if asked:
        options = Hint.join(", ", (Hint.of(Option(name)) for name in asked))
        raise InvalidArgumentError(
            f"a virtual combination contains all pairs: unsupported {', '.join(asked)}",
            code="conflicting-arguments",
            hint=Hint.of("leave out ", options, ", or set ", Option("mode", "materialized")),
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


@dataclass(frozen=True, slots=True)
class _CombineRun:
    """A combination that is planned."""

    into: StoredVersion
    origins: tuple[DerivedFrom, DerivedFrom]
    schema: Schema
    targets: CombineTargets

    @property
    def recipe(self) -> BoundCombineSpec:
        """How its pairs are made."""
        return self.targets.recipe

    def plan(self) -> CombinePlan:
        """What it would do."""
        self.into.refresh()
        validate_same_schema(self.into, self.schema)
        validate_nothing_appended(self.into, COMBINE_OPERATION)
        state = self.into.state
        wanted = self.targets.of(state)
        tasks = [one for one in wanted if not isinstance(one, Shard)]
        kept = {one.name for one in wanted if isinstance(one, Shard)}
        there = [stay.shard.name for stay in state.stays.at(state.snapshot)]
        return CombinePlan(
            self.origins[0].snapshot,
            self.origins[1].snapshot,
            self.into.name,
            self.schema,
            sum_estimates(_estimate_task(task) for task in tasks),
            len(tasks),
            len(kept),
            sum(name not in kept for name in there),
            self.recipe.rule.incremental,
        )

    def done(
        self,
        budget: int | None,
        checks: Checks,
        executor: Executor,
        progress: ProgressListener | None,
    ) -> CombineReport:
        """Do it."""

        def prepare(tasks: Sequence[AnyCombineTask]) -> None:
            found = sum_estimates(_estimate_task(task) for task in tasks)
            validate_budget(self.into.name, found, budget, spool_folder(self.into.store))

        derived = derive(
            Derivation(
                into=self.into,
                operation=COMBINE_OPERATION,
                schema=self.schema,
                checks=checks,
                origins=self.origins,
                wanted=self.targets.of,
                make=_make_task_output,
                prepare=prepare,
                describe=self.targets.outputs,
                parameters=self.targets.parameters(),
                pinned=self.targets.virtual,
                makers=self.recipe.rule.makers,
            ),
            executor,
            progress,
        )
        return CombineReport(
            self.origins[0].snapshot,
            self.origins[1].snapshot,
            self.into.name,
            derived.entry,
            derived.made,
            derived.reused,
            derived.created,
            self.recipe.rule.incremental,
        )
