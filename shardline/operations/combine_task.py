"""Plan and write the shards of a combination."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from shardline.errors import ObjectExistsError
from shardline.log.model import PLAN, Shard
from shardline.log.parameters import CombineParameters
from shardline.operations.derive import get_checked_digests, reuse_shards
from shardline.operations.shard_writer import ShardPlan, get_stem, make_shard
from shardline.pairing.coverage import (
    COMBINE_OPERATION,
    Coverage,
    CoveredPairs,
    estimate,
    list_covering_shards,
    list_first_coverages,
    list_matched_coverages,
    list_missing_coverages,
    list_missing_rows,
)
from shardline.pairing.pair_batch import PairSides, count_matches
from shardline.pairing.pair_encoder import PairEncoder
from shardline.pairing.pair_grid import PairEstimate, PairGrid
from shardline.pairing.pair_plan import PairPlan
from shardline.readers.combination_side import get_combination_side
from shardline.sidecars.receipt import Receipt
from shardline.sidecars.row_map import choose_width
from shardline.storage.temporary_files import spool_folder
from shardline.tfrecord.compression import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import TaskContext
    from shardline.kernel.types import IntArray
    from shardline.log.model import Added
    from shardline.log.state import State
    from shardline.log.version import DerivedFrom, StoredVersion
    from shardline.operations.shard_writer import OpenShard
    from shardline.pairing.pair_batch import PairBatch
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.pairing.spec_binding import BoundCombineSpec
    from shardline.readers.combination_side import CombinationSide
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


_PAIR_OVERHEAD_BYTES = 32
_FEATURE_OVERHEAD_BYTES = 8
"""Bytes that a pair, and each of its features, may have beyond the estimate."""


@dataclass(frozen=True, slots=True, eq=False)
class CombineTask:
    """A shard of a combination to write. Its name is a hash of `identity`.

    It contains the pairs of the spec: all of them, the first `limit`, or those of the records with
    these `numbers`. It is not larger than `largest`, if that is known. `functions` are source
    digests.
    """

    store: Store
    dataset: str
    version: str
    bound: BoundCombineSpec
    left: tuple[NumberedUnit, ...]
    right: tuple[NumberedUnit, ...]
    cover: Coverage
    estimate: PairEstimate
    compression: Compression
    limits: Limits
    identity: Json
    limit: int | None = None
    numbers: tuple[IntArray, IntArray] | None = None
    largest: PairEstimate | None = None
    functions: tuple[str, ...] = ()
    attempt: int = 0

    step: ClassVar[str] = "combining"

    @property
    def label(self) -> str:
        """Name for progress and messages."""
        return self.plan.name(self.attempt)

    @property
    def size(self) -> int:
        """Number of bytes to write, estimated. Reading them takes far less."""
        return self.estimate.bytes

    @property
    def plan(self) -> ShardPlan:
        """Plan of the shard."""
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            self.identity,
            self.compression,
            max_bytes=None if self.largest is None else self._get_largest_bytes(self.largest),
            functions=self.functions,
        )

    def _get_largest_bytes(self, estimate: PairEstimate) -> int:
        names = self.bound.names
        features = len(names.left) + len(names.right)
        overhead = _PAIR_OVERHEAD_BYTES + _FEATURE_OVERHEAD_BYTES * features
        largest = estimate.bytes + overhead * estimate.pairs
        # Data that cannot be compressed grows a little.
        uncompressed = self.compression is Compression.NONE
        return largest if uncompressed else largest + largest // 64 + 4096

    @property
    def number_bytes(self) -> int:
        """Number of bytes that the number of a record takes, on either side."""
        return choose_width(
            max(side[-1].first + side[-1].records for side in (self.left, self.right))
        )

    def at(self, attempt: int) -> CombineTask:
        """Return the task for another attempt."""
        return replace(self, attempt=attempt)


@dataclass(frozen=True, slots=True)
class _PairShardWriter:
    """Writer of the pairs of a shard."""

    task: CombineTask
    running: TaskContext

    def begin(self) -> None:
        """Do nothing: every attempt begins with the first pair."""

    def fill(self, part: OpenShard) -> bool:
        """Write all pairs. Without any, the shard is empty."""
        task, sink = self.task, part.shard
        spec = task.bound.spec
        encoder = PairEncoder(
            task.bound, task.limits.max_record_bytes, self.running.workers, spec.is_selection
        )
        with ExitStack() as stack:
            sides = PairSides(
                task.left,
                task.right,
                task.bound,
                task.limits,
                stack,
                spool_folder(task.store),
                task.cover.span,
            )
            batches = sides.list_batches(task.numbers)

            def report_batches() -> Iterator[PairBatch]:
                for batch in batches:
                    self._report(sink.records)
                    yield batch

            with closing(encoder.encode(report_batches(), task.limit)) as blocks:
                for block in blocks:
                    sink.add(block.framed.data, block.framed.starts, block.framed.lengths)
                    if block.numbers is not None and len(block):
                        part.add_origins(*self._renumber(block.numbers), width=task.number_bytes)
        part.end = sink.records
        self.running.report(task.size, part.end)
        return True

    def _renumber(self, numbers: tuple[IntArray, IntArray]) -> tuple[IntArray, IntArray]:
        """Return the numbers of records as the row map stores them; -1 stays."""
        task = self.task
        if not task.bound.spec.is_incremental:
            return numbers
        # From the first shard that is covered: other shards may come before it later.
        left, right = (
            np.where(column < 0, column, column - side[0].first)
            for column, side in zip(numbers, (task.left, task.right), strict=True)
        )
        return left, right

    def _report(self, records: int) -> None:
        estimate = self.task.estimate
        self.running.report(estimate.bytes * records // max(estimate.pairs, 1), records)


@dataclass(frozen=True, slots=True)
class PairPlanTask:
    """A pair plan to write. Its name is a hash of `identity`."""

    store: Store
    dataset: str
    version: str
    pairs: PairPlan
    identity: Json
    attempt: int = 0

    step: ClassVar[str] = "planning"

    @property
    def label(self) -> str:
        """Name for progress and messages."""
        return self.plan.name(self.attempt)

    @property
    def size(self) -> int:
        """Number of bytes to read: none."""
        return 0

    @property
    def cover(self) -> Coverage:
        """Pairs of shards that the plan covers."""
        return self.pairs.cover

    @property
    def estimate(self) -> PairEstimate:
        """Number of pairs, and of bytes to write."""
        return PairEstimate(self.pairs.pairs, len(self.pairs.encode()))

    @property
    def plan(self) -> ShardPlan:
        """Plan of the shard."""
        return ShardPlan(self.store, self.dataset, self.version, self.identity, suffix=PLAN)

    def at(self, attempt: int) -> PairPlanTask:
        """Return the task for another attempt."""
        return replace(self, attempt=attempt)


AnyCombineTask: TypeAlias = "CombineTask | PairPlanTask"


def make_combined_shard(task: AnyCombineTask, running: TaskContext) -> Receipt:
    """Write the shard or the pair plan of a task, or find it written."""
    if isinstance(task, PairPlanTask):
        return _write_pair_plan(task, running)
    plan = replace(task.plan, hash_in_thread=running.workers > 1)
    return make_shard(plan, _PairShardWriter(task, running), attempt=task.attempt)


def _write_pair_plan(task: PairPlanTask, running: TaskContext) -> Receipt:
    data = task.pairs.encode()
    attempt = task.attempt
    while True:
        running.report(0, task.pairs.pairs)
        path = task.plan.path(attempt)
        try:
            task.store.create(path, data)
        except ObjectExistsError:
            if task.store.read(path) != data:
                attempt += 1
                continue
        name, digest = task.plan.name(attempt), hashlib.sha256(data).hexdigest()
        shard = Shard(name, task.pairs.pairs, len(data), digest)
        return Receipt((0, task.pairs.pairs), last=True, shard=shard)


_UNLIMITED_BYTES = 2**100
"""Target of a pair plan, which covers as many pairs as one coverage can describe."""


def make_combine_identity(parameters: Json, left: Sequence[Shard], right: Sequence[Shard]) -> Json:
    """Return the identity of a shard with the pairs of these shards."""
    sides = {
        side: [[shard.name, shard.content] for shard in shards]
        for side, shards in (("left", left), ("right", right))
    }
    return {"operation": COMBINE_OPERATION, **parameters, **sides}


def make_span_identity(cover: Coverage) -> Json:
    """Return the part of an identity for a shard that has a span of the left records."""
    return {} if cover.span is None else {"records": list(cover.span)}


@dataclass
class CombineTargets:
    """The shards that a combination of two snapshots is to have.

    `run` replaces the identity of a function without a code version, so that no other run reuses
    its shards.
    """

    into: StoredVersion
    origins: tuple[DerivedFrom, DerivedFrom]
    bound: BoundCombineSpec
    compression: Compression
    target_bytes: int
    limits: Limits
    virtual: bool = False
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    _covers: dict[str, Coverage] = field(default_factory=dict)
    _planned: tuple[int, list[Shard | AnyCombineTask]] | None = None

    @cached_property
    def sides(self) -> tuple[CombinationSide, CombinationSide]:
        """Shards of both inputs."""
        left, right = (origin.snapshot for origin in self.origins)
        names = self.bound.names
        return get_combination_side(left, names.left), get_combination_side(right, names.right)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Source digests of the functions."""
        return get_checked_digests(self.bound.spec.functions)

    @cached_property
    def grid(self) -> PairGrid:
        """Number of pairs of each two shards."""
        left, right = self.sides
        return PairGrid(left.extents, right.extents, self.bound.spec.unordered)

    @cached_property
    def _required_parameters(self) -> Json:
        """Parameters that an entry must have for its shards to be reused."""
        rule = self.bound.spec.get_rule(self.run)
        if self.virtual:
            return {"mode": "virtual", "rule": rule}
        return {"rule": rule, "compression": self.compression.value}

    def parameters(self) -> CombineParameters:
        """Return the parameters of the entry, without the coverage of its shards."""
        spec = self.bound.spec
        if self.virtual:
            return CombineParameters.from_dict(self._required_parameters)
        stored = {**self._required_parameters, **spec.get_parameters()}
        return replace(
            CombineParameters.from_dict(stored),
            target_bytes=self.target_bytes,
            is_incremental=spec.is_incremental,
        )

    def plan(self, state: State) -> list[Shard | AnyCombineTask]:
        """Return the shards to reuse, then the tasks. Each state of the log is planned once."""
        if self._planned is None or self._planned[0] != state.number:
            self._planned = state.number, self._plan(state)
        return self._planned[1]

    def _plan(self, state: State) -> list[Shard | AnyCombineTask]:
        spec = self.bound.spec
        covering: list[Shard] = []
        tasks: list[AnyCombineTask] = []
        if spec.is_incremental:
            covered = CoveredPairs.empty(self.grid)
            covering = list_covering_shards(
                self.into,
                state,
                self.origins,
                self._required_parameters,
                covered,
                matched=bool(spec.on),
            )
            tasks += [self._make_task(*missing) for missing in self._list_missing(covered)]
        elif spec.sample is not None:
            tasks += self._list_sample_tasks(spec.sample, spec.seed or 0)
        else:
            tasks += self._list_first_tasks(spec.limit or 0)
        self._covers = {task.plan.stem: task.cover for task in tasks}
        return [*covering, *reuse_shards(state, tasks)]

    def add_outputs(
        self, parameters: CombineParameters, added: Sequence[Added]
    ) -> CombineParameters:
        """Return the parameters with the coverage of each added shard."""
        if not self.bound.spec.is_incremental:
            return parameters
        stems = (get_stem(item.shard.name) for item in added)
        return replace(parameters, outputs=tuple(self._covers[stem].to_json() for stem in stems))

    def _list_missing(self, covered: CoveredPairs) -> Iterator[tuple[Coverage, PairEstimate]]:
        if self.bound.spec.on:
            return self._list_missing_matches(covered)
        target = _UNLIMITED_BYTES if self.virtual else self.target_bytes
        return list_missing_coverages(covered, target)

    def _list_missing_matches(
        self, covered: CoveredPairs
    ) -> Iterator[tuple[Coverage, PairEstimate]]:
        gaps = list_missing_rows(covered)
        if not gaps:
            return
        left, right = self.sides
        rows = sorted({row for row, _ in gaps})
        units = [left.units[row] for row in rows]
        matches = count_matches(units, right.units, self.bound, self.limits)
        counts = dict(zip(rows, matches, strict=True))
        counted_gaps = (
            (row, gap, counts[row] * (gap[1] - gap[0]) // left.units[row].records)
            for row, gap in gaps
        )
        yield from list_matched_coverages(self.grid, counted_gaps, self.target_bytes)

    def _list_first_tasks(self, limit: int) -> Iterator[CombineTask]:
        """List tasks for the first pairs: a single one if an option chooses among pairs."""
        spec = self.bound.spec
        if not self.grid.pairs:
            return
        if spec.on or spec.where is not None:
            pairs = min(limit, self.grid.pairs)
            estimated = PairEstimate(pairs, self.grid.bytes_of(pairs), most=True)
            yield self._make_pair_task(self._whole, estimated, limit=limit)
            return
        covers = list_missing_coverages(CoveredPairs.empty(self.grid), self.target_bytes)
        for cover, estimated in list_first_coverages(covers, limit):
            yield self._make_pair_task(cover, estimated, limit=estimated.pairs)

    def _list_sample_tasks(self, count: int, seed: int) -> Iterator[CombineTask]:
        """List tasks for pairs that are sampled from all pairs."""
        positions = self.grid.sample(count, seed)
        total = len(positions)
        if not total:
            return
        step = max(1, self.target_bytes * total // max(self.grid.bytes_of(total), 1))
        for first in range(0, total, step):
            sampled = positions[first : first + step]
            last = first + len(sampled)
            yield self._make_pair_task(
                self._whole,
                PairEstimate(len(sampled), self.grid.bytes_of(len(sampled))),
                {"sample": [count, seed, first, last]},
                numbers=self.grid.locate(sampled),
            )

    def make_task(self, cover: Coverage) -> AnyCombineTask:
        """Return the task for a coverage, whether or not its shard exists."""
        return self._make_task(cover, estimate(self.grid, cover))

    def _make_task(self, cover: Coverage, estimated: PairEstimate) -> AnyCombineTask:
        if not self.virtual:
            return self._make_pair_task(cover, estimated)
        left, right = (origin.input() for origin in self.origins)
        spec, log = self.bound.spec, self.into.log
        plan = PairPlan(left, right, cover, spec.naming, spec.unordered, estimated.pairs)
        return PairPlanTask(
            self.into.store, log.dataset, log.version, plan, self._get_identity(cover)
        )

    def _get_identity(self, cover: Coverage, sample: Json | None = None) -> Json:
        left, right = (origin.snapshot.shards for origin in self.origins)
        paired = left[slice(*cover.left)], right[slice(*cover.right)]
        return make_combine_identity({**self._required_parameters, **(sample or {})}, *paired)

    @property
    def _whole(self) -> Coverage:
        return Coverage((0, len(self.grid.left)), (0, len(self.grid.right)))

    def _make_pair_task(
        self,
        cover: Coverage,
        estimated: PairEstimate,
        sample: Json | None = None,
        *,
        limit: int | None = None,
        numbers: tuple[IntArray, IntArray] | None = None,
    ) -> CombineTask:
        left, right = self.sides
        spec = self.bound.spec
        identity = self._get_identity(cover, sample)
        identity |= make_span_identity(cover)
        identity |= {} if limit is None else {"limit": limit}
        if not spec.is_incremental:
            identity["of"] = [origin.snapshot.content for origin in self.origins]
        return CombineTask(
            self.into.store,
            self.into.log.dataset,
            self.into.log.version,
            self.bound,
            left.units[slice(*cover.left)],
            right.units[slice(*cover.right)],
            cover,
            replace(estimated, most=True) if spec.where is not None else estimated,
            self.compression,
            self.limits,
            identity,
            limit,
            numbers,
            self._get_largest(cover) if numbers is None else None,
            self.functions,
        )

    def _get_largest(self, cover: Coverage) -> PairEstimate | None:
        """Return the upper limit of a shard, None if it is unknown.

        It is unknown with new features, and with compressed inputs. The size of a span of records
        is unknown too, so all records of its shard count.
        """
        if self.bound.spec.udfs or any(side.packed for side in self.sides):
            return None
        return estimate(self.grid, replace(cover, span=None))
