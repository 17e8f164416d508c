"""Make one shard of a combination: the pairs that it covers, or find it made already."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

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
from shardline.readers.virtual_shard import get_combination_side
from shardline.sidecars.receipt import Receipt
from shardline.sidecars.row_map import narrow
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
    from shardline.pairing.combine_spec import BoundCombineSpec
    from shardline.pairing.pair_batch import PairBatch
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.readers.virtual_shard import CombinationSide
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


_UNFORESEEN = 32
_UNFORESEEN_EACH = 8
"""Bytes that a pair, and each feature of it, may have beyond the estimate: sizes of sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class CombineTask:
    """One shard of a combination. `identity` is what its name is a hash of.

    It has all pairs of left and right that the spec chooses, or the first of them, `limit`; or
    those of the records of these `numbers`. `largest` is an estimate that it is not larger than, if
    there is one. `functions` are source digests of functions.
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

    step = "combining"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.plan.name(self.attempt)

    @property
    def size(self) -> int:
        """How many bytes it makes, about: that is far more than it reads."""
        return self.estimate.bytes

    @property
    def plan(self) -> ShardPlan:
        """The shard."""
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            self.identity,
            self.compression,
            max_bytes=None if self.largest is None else self._most(self.largest),
            functions=self.functions,
        )

    def _most(self, found: PairEstimate) -> int:
        names = self.bound.names
        each = _UNFORESEEN + _UNFORESEEN_EACH * (len(names.left) + len(names.right))
        most = found.bytes + each * found.pairs
        # What cannot be packed gets a little larger by it.
        return most if self.compression is Compression.NONE else most + most // 64 + 4096

    @property
    def number_bytes(self) -> int:
        """How many bytes the number of a record takes, of either side."""
        return narrow(max(side[-1].first + side[-1].records for side in (self.left, self.right)))

    def at(self, attempt: int) -> CombineTask:
        """The same at another attempt."""
        return replace(self, attempt=attempt)


def make_combined_shard(task: CombineTask, running: TaskContext) -> Receipt:
    """Do one task: make the shard, or find it made."""
    plan = replace(task.plan, hash_in_thread=running.workers > 1)
    return make_shard(plan, _PairShardWriter(task, running), attempt=task.attempt)


@dataclass(frozen=True, slots=True)
class _PairShardWriter:
    """Fills a shard with pairs."""

    task: CombineTask
    running: TaskContext

    def begin(self) -> None:
        """Every attempt begins with the first pair."""

    def fill(self, part: OpenShard) -> bool:
        """Make all of them. Where there are none, there is a shard that tells just that."""
        task, sink = self.task, part.shard
        laying = PairEncoder(
            task.bound,
            task.limits.max_record_bytes,
            self.running.workers,
            task.bound.spec.chooses,
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
            lots = sides.lots() if task.numbers is None else sides.sampled(*task.numbers)

            def told() -> Iterator[PairBatch]:
                for lot in lots:
                    self._tell(sink.records)
                    yield lot

            with closing(laying.laid(told(), task.limit)) as made:
                for laid in made:
                    sink.add(laid.framed.data, laid.framed.starts, laid.framed.lengths)
                    if laid.numbers is not None and len(laid):
                        part.add_origins(*self._counted(laid.numbers), width=task.number_bytes)
        part.end = sink.records
        self.running.report(task.size, part.end)
        return True

    def _counted(self, numbers: tuple[IntArray, IntArray]) -> tuple[IntArray, IntArray]:
        """The numbers as the row map tells them; -1 stays."""
        task = self.task
        if not task.bound.spec.is_incremental:
            return numbers
        # Counted from the first shard that it covers: a shard may stand behind others later on.
        left, right = (
            np.where(some < 0, some, some - side[0].first)
            for some, side in zip(numbers, (task.left, task.right), strict=True)
        )
        return left, right

    def _tell(self, records: int) -> None:
        found = self.task.estimate
        self.running.report(found.bytes * records // max(found.pairs, 1), records)


@dataclass(frozen=True, slots=True)
class PairPlanTask:
    """A plan to be written. `identity` is what its name is a hash of."""

    store: Store
    dataset: str
    version: str
    pairs: PairPlan
    identity: Json
    attempt: int = 0

    step = "planning"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.plan.name(self.attempt)

    @property
    def size(self) -> int:
        """It reads nothing."""
        return 0

    @property
    def cover(self) -> Coverage:
        """The pairs of shards that it covers."""
        return self.pairs.cover

    @property
    def plan(self) -> ShardPlan:
        """The shard."""
        return ShardPlan(self.store, self.dataset, self.version, self.identity, suffix=PLAN)

    def at(self, attempt: int) -> PairPlanTask:
        """The same at another attempt."""
        return replace(self, attempt=attempt)


def write_pair_plan(task: PairPlanTask, running: TaskContext) -> Receipt:
    """Write a plan, or find it written; one that someone else put there gets another name."""
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


AnyCombineTask: TypeAlias = "CombineTask | PairPlanTask"
_ALL = 2**100
"""More bytes than any pairs have: a plan covers as many as can be told in one."""


def make_combine_identity(told: Json, left: Sequence[Shard], right: Sequence[Shard]) -> Json:
    """What the name of a shard depends on that pairs these, by what its entry tells."""
    sides = {
        side: [[shard.name, shard.content] for shard in shards]
        for side, shards in (("left", left), ("right", right))
    }
    return {"operation": COMBINE_OPERATION, **told, **sides}


def make_span_identity(cover: Coverage) -> Json:
    """What is told besides of a pair of shards that was cut."""
    return {} if cover.span is None else {"records": list(cover.span)}


@dataclass
class CombineTargets:
    """The shards of a combination of two snapshots, as they should be.

    `run` stands in for what a function without a code version does: nothing that another run made
    is used again.
    """

    into: StoredVersion
    origins: tuple[DerivedFrom, DerivedFrom]
    bound: BoundCombineSpec
    packing: Compression
    target: int
    limits: Limits
    virtual: bool = False
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    _covers: dict[str, Coverage] = field(default_factory=dict)
    _planned: tuple[int, list[Shard | AnyCombineTask]] | None = None

    @cached_property
    def sides(self) -> tuple[CombinationSide, CombinationSide]:
        """The shards of both."""
        left, right = (origin.snapshot for origin in self.origins)
        names = self.bound.names
        return get_combination_side(left, names.left), get_combination_side(right, names.right)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The source digests of the functions that choose or compute."""
        return get_checked_digests(self.bound.spec.udfs)

    @cached_property
    def grid(self) -> PairGrid:
        """How many pairs the shards have."""
        left, right = self.sides
        return PairGrid(left.extents, right.extents, self.bound.spec.unordered)

    @cached_property
    def _shared_parameters(self) -> Json:
        """Parameters that an entry must share if its shards are to be reused."""
        rule = self.bound.spec.get_rule(self.run)
        if self.virtual:
            return {"mode": "virtual", "rule": rule}
        return {"rule": rule, "compression": self.packing.value}

    def parameters(self) -> CombineParameters:
        """Return the parameters of the entry, without what its shards cover."""
        spec = self.bound.spec
        if self.virtual:
            return CombineParameters.from_dict(self._shared_parameters)
        stored = {**self._shared_parameters, **spec.get_parameters()}
        return replace(
            CombineParameters.from_dict(stored),
            target_bytes=self.target,
            is_incremental=spec.is_incremental,
        )

    def of(self, state: State) -> list[Shard | AnyCombineTask]:
        """Return the shards, or tasks to make them: what is kept, then what is new.

        They are planned once for a state of the log.
        """
        if self._planned is None or self._planned[0] != state.number:
            self._planned = state.number, self._plan(state)
        return self._planned[1]

    def _plan(self, state: State) -> list[Shard | AnyCombineTask]:
        spec = self.bound.spec
        kept: list[Shard] = []
        if spec.is_incremental:
            covered = CoveredPairs.nothing(self.grid)
            matched = bool(spec.on)
            kept = list_covering_shards(
                self.into, state, self.origins, self._shared_parameters, covered, matched=matched
            )
            tasks: list[AnyCombineTask] = [self._task_of(*one) for one in self._missing(covered)]
        elif spec.sample is not None:
            tasks = list(self._sampled(spec.sample, spec.seed or 0))
        else:
            tasks = list(self._first(spec.limit or 0))
        self._covers = {task.plan.stem: task.cover for task in tasks}
        return [*kept, *reuse_shards(state, tasks)]

    def add_outputs(
        self, parameters: CombineParameters, added: Sequence[Added]
    ) -> CombineParameters:
        """Return the parameters with what each added shard covers."""
        if not self.bound.spec.is_incremental:
            return parameters
        stems = (get_stem(one.shard.name) for one in added)
        return replace(parameters, outputs=tuple(self._covers[stem].to_json() for stem in stems))

    def _missing(self, covered: CoveredPairs) -> Iterator[tuple[Coverage, PairEstimate]]:
        if self.bound.spec.on:
            return self._missing_matches(covered)
        return list_missing_coverages(covered, _ALL if self.virtual else self.target)

    def _missing_matches(self, covered: CoveredPairs) -> Iterator[tuple[Coverage, PairEstimate]]:
        rows = list_missing_rows(covered)
        if not rows:
            return
        left, right = self.sides
        places = sorted({row for row, _ in rows})
        units = [left.units[row] for row in places]
        counts = count_matches(units, right.units, self.bound, self.limits)
        found = dict(zip(places, counts, strict=True))
        meant = (
            (row, gap, found[row] * (gap[1] - gap[0]) // left.units[row].records)
            for row, gap in rows
        )
        yield from list_matched_coverages(self.grid, meant, self.target)

    def _first(self, limit: int) -> Iterator[CombineTask]:
        """Tasks for the first pairs; where these are chosen, it takes one that looks at all."""
        spec = self.bound.spec
        if not self.grid.pairs:
            return
        if spec.on or spec.where is not None:
            pairs = min(limit, self.grid.pairs)
            found = PairEstimate(pairs, self.grid.bytes_of(pairs), most=True)
            yield self._task(self._whole, found, limit=limit)
            return
        covers = list_missing_coverages(CoveredPairs.nothing(self.grid), self.target)
        for cover, found in list_first_coverages(covers, limit):
            yield self._task(cover, found, limit=found.pairs)

    def _sampled(self, count: int, seed: int) -> Iterator[CombineTask]:
        """Tasks for pairs that are drawn from all of them."""
        places = self.grid.sample(count, seed)
        if not len(places):
            return
        each = max(1, self.target * len(places) // max(self.grid.bytes_of(len(places)), 1))
        for first in range(0, len(places), each):
            some = places[first : first + each]
            found = PairEstimate(len(some), self.grid.bytes_of(len(some)))
            told: Json = {"sample": [count, seed, first, first + len(some)]}
            yield self._task(self._whole, found, told, numbers=self.grid.locate(some))

    def _task_of(self, cover: Coverage, found: PairEstimate) -> AnyCombineTask:
        """The task that makes what a cover covers: the pairs, or the plan of them."""
        if not self.virtual:
            return self._task(cover, found)
        left, right = (origin.input() for origin in self.origins)
        place = (self.into.store, self.into.log.dataset, self.into.log.version)
        spec = self.bound.spec
        plan = PairPlan(left, right, cover, spec.naming, spec.unordered, found.pairs)
        return PairPlanTask(*place, plan, self._identity(cover))

    def task_for(self, cover: Coverage) -> AnyCombineTask:
        """The task that makes what a cover covers, whatever is there already."""
        return self._task_of(cover, estimate(self.grid, cover))

    def _identity(self, cover: Coverage, told: Json | None = None) -> Json:
        """What a shard of these pairs depends on."""
        left, right = (origin.snapshot.shards for origin in self.origins)
        paired = left[slice(*cover.left)], right[slice(*cover.right)]
        return make_combine_identity({**self._shared_parameters, **(told or {})}, *paired)

    @property
    def _whole(self) -> Coverage:
        return Coverage((0, len(self.grid.left)), (0, len(self.grid.right)))

    def _task(
        self,
        cover: Coverage,
        found: PairEstimate,
        told: Json | None = None,
        *,
        limit: int | None = None,
        numbers: tuple[IntArray, IntArray] | None = None,
    ) -> CombineTask:
        left, right = self.sides
        spec = self.bound.spec
        identity = self._identity(cover, told)
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
            replace(found, most=True) if spec.where is not None else found,
            self.packing,
            self.limits,
            identity,
            limit,
            numbers,
            self._largest(cover) if numbers is None else None,
            self.functions,
        )

    def _largest(self, cover: Coverage) -> PairEstimate | None:
        """What a shard has at most; new fields, and what was packed, may have any size.

        Of some records of a shard it is not known how large these are, so all are counted.
        """
        if self.bound.spec.fields or any(side.packed for side in self.sides):
            return None
        return estimate(self.grid, replace(cover, span=None))
