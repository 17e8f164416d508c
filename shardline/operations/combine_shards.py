"""Make one shard of a combination: the pairs that it covers, or find it made already."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import ObjectExistsError
from shardline.log.model import PLAN, Shard
from shardline.operations.shards import ShardPlan, make_shard
from shardline.pairing.batches import Sides
from shardline.pairing.coverage import Cover
from shardline.pairing.encoder import Laying
from shardline.sidecars.receipt import Receipt
from shardline.sidecars.row_map import narrow
from shardline.storage.spool import spool_folder
from shardline.tfrecord.compression import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.canonical_json import Json
    from shardline.execution.executor import Running
    from shardline.kernel.types import IntArray
    from shardline.operations.shards import Part
    from shardline.pairing.budget import Estimate
    from shardline.pairing.coverage import Cover
    from shardline.pairing.pair_plan import PairPlan
    from shardline.pairing.pairs import Lot
    from shardline.pairing.recipe import Recipe
    from shardline.pairing.sides import Numbered
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits

_UNFORESEEN = 32
_UNFORESEEN_EACH = 8
"""Bytes that a pair, and each feature of it, may have beyond the estimate: sizes of sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class CombineTask:
    """One shard of a combination. `identity` is what its name is a hash of.

    It has all pairs of left and right that the rule wants, or the first of them, `limit`; or those
    of the records of these `numbers`. `largest` is an estimate that it is not larger than, if there
    is one. `functions` are source digests of functions.
    """

    store: Store
    dataset: str
    version: str
    recipe: Recipe
    left: tuple[Numbered, ...]
    right: tuple[Numbered, ...]
    cover: Cover
    estimate: Estimate
    compression: Compression
    limits: Limits
    identity: Json
    limit: int | None = None
    numbers: tuple[IntArray, IntArray] | None = None
    largest: Estimate | None = None
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
            largest=None if self.largest is None else self._most(self.largest),
            functions=self.functions,
        )

    def _most(self, found: Estimate) -> int:
        names = self.recipe.names
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


def make_combined(task: CombineTask, running: Running) -> Receipt:
    """Do one task: make the shard, or find it made."""
    plan = replace(task.plan, aside=running.workers > 1)
    return make_shard(plan, _Filling(task, running), attempt=task.attempt)


@dataclass(frozen=True, slots=True)
class _Filling:
    """Fills a shard with pairs."""

    task: CombineTask
    running: Running

    def begin(self) -> None:
        """Every attempt begins with the first pair."""

    def fill(self, part: Part) -> bool:
        """Make all of them. Where there are none, there is a shard that tells just that."""
        task, sink = self.task, part.shard
        laying = Laying(
            task.recipe,
            task.limits.max_record_bytes,
            self.running.workers,
            task.recipe.rule.chooses,
        )
        with ExitStack() as stack:
            sides = Sides(
                task.left,
                task.right,
                task.recipe,
                task.limits,
                stack,
                spool_folder(task.store),
                task.cover.span,
            )
            lots = sides.lots() if task.numbers is None else sides.sampled(*task.numbers)

            def told() -> Iterator[Lot]:
                for lot in lots:
                    self._tell(sink.records)
                    yield lot

            with closing(laying.laid(told(), task.limit)) as made:
                for laid in made:
                    sink.add(laid.framed.data, laid.framed.starts, laid.framed.lengths)
                    if laid.numbers is not None and len(laid):
                        part.come_from(*self._counted(laid.numbers), width=task.number_bytes)
        part.end = sink.records
        self.running.tell(task.size, part.end)
        return True

    def _counted(self, numbers: tuple[IntArray, IntArray]) -> tuple[IntArray, IntArray]:
        """The numbers as the row map tells them; -1 stays."""
        task = self.task
        if not task.recipe.rule.incremental:
            return numbers
        # Counted from the first shard that it covers: a shard may stand behind others later on.
        left, right = (
            np.where(some < 0, some, some - side[0].first)
            for some, side in zip(numbers, (task.left, task.right), strict=True)
        )
        return left, right

    def _tell(self, records: int) -> None:
        found = self.task.estimate
        self.running.tell(found.bytes * records // max(found.pairs, 1), records)


@dataclass(frozen=True, slots=True)
class VirtualTask:
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
    def cover(self) -> Cover:
        """The pairs of shards that it covers."""
        return self.pairs.cover

    @property
    def plan(self) -> ShardPlan:
        """The shard."""
        return ShardPlan(self.store, self.dataset, self.version, self.identity, suffix=PLAN)

    def at(self, attempt: int) -> VirtualTask:
        """The same at another attempt."""
        return replace(self, attempt=attempt)


def make_virtual(task: VirtualTask, running: Running) -> Receipt:
    """Write a plan, or find it written; one that someone else put there gets another name."""
    data = task.pairs.encode()
    attempt = task.attempt
    while True:
        running.tell(0, task.pairs.pairs)
        path = task.plan.path(attempt)
        try:
            task.store.create(path, data)
        except ObjectExistsError:
            if task.store.read(path) != data:
                attempt += 1
                continue
        name, digest = task.plan.name(attempt), hashlib.sha256(data).hexdigest()
        shard = Shard(name, task.pairs.pairs, len(data), digest)
        return Receipt(0, task.pairs.pairs, last=True, shard=shard)
