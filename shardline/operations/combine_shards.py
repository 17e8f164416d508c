"""Make one shard of a combination: the pairs that it covers, or find it made already."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import IndexMismatchError, UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.kernel.types import FRAME_BYTES
from shardline.operations.shards import ShardPlan, make_shard
from shardline.pairing.batches import Sides
from shardline.pairing.encoder import Laying
from shardline.pairing.feature_names import growth
from shardline.pairing.grid import extent
from shardline.pairing.sides import numbered
from shardline.readers.records import records_of
from shardline.sidecars.row_map import narrow
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.index import read_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from shardline.execution.executor import Running
    from shardline.kernel.types import IntArray
    from shardline.log.model import Json
    from shardline.log.snapshot import Snapshot
    from shardline.operations.shards import Part
    from shardline.pairing.budget import Estimate
    from shardline.pairing.coverage import Cover
    from shardline.pairing.feature_names import Key
    from shardline.pairing.grid import Extent
    from shardline.pairing.pairs import Lot
    from shardline.pairing.recipe import Recipe
    from shardline.pairing.sides import Numbered
    from shardline.readers.records import Records
    from shardline.readers.shards import ShardFile
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits

_PACKED_TO = 4
"""How much larger than packed a shard is taken to be if its index, which would tell, is lost."""
_UNFORESEEN = 32
_UNFORESEEN_EACH = 8
"""Bytes that a pair, and each feature of it, may have beyond the estimate: sizes of sizes."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a snapshot as a side of a combination, and how large each is."""

    units: tuple[Numbered, ...]
    extents: tuple[Extent, ...]
    packed: bool


def shards_of(snapshot: Snapshot, names: Mapping[Key, str | None]) -> Shards:
    """The shards of a snapshot, whatever files their records lie in; no record is read."""
    if any(shard.virtual for shard in snapshot.shards):
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot combine a virtual snapshot",
            code="virtual-snapshot",
            hint=Hint.of(
                "write its pairs into a version first: run ",
                Command.of("rebuild", snapshot.version, "--into", "VERSION"),
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    found = records_of(snapshot)
    grown = growth(names)
    return Shards(
        numbered((one, one.shard.records) for one in found),
        tuple(extent(one.shard.records, _payloads(one), grown) for one in found),
        any(file.shard.compression != "none" for one in found for file in one.files),
    )


def _payloads(records: Records) -> int:
    return sum(_unpacked(file) - FRAME_BYTES * file.shard.records for file in records.files)


def _unpacked(file: ShardFile) -> int:
    """How many bytes a file has when it is unpacked; its index tells."""
    shard, stored = file.shard, file.file
    if shard.compression == "none":
        return shard.bytes
    end = 0
    try:
        known = read_offsets(stored.store, stored.name, shard.bytes, shard.records, shard.sha256)
        for offsets in known:
            end = int(offsets[-1])
    except IndexMismatchError:
        return _PACKED_TO * shard.bytes + FRAME_BYTES * shard.records
    return end


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


def spool_folder(store: Store) -> Path | None:
    """Where what is needed for a while goes: to the disk that the store is on."""
    path = store.local_path("spool")
    return None if path is None else path.parent
