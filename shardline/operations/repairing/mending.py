"""Make one damaged shard anew, or tell what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import (
    DamagedFileError,
    ObjectMissingError,
    SchemaMismatchError,
    SourceError,
    WrongShardError,
)
from shardline.hints import Hint
from shardline.operations.repairing.old_places import OldPlaces
from shardline.operations.repairing.refill import PieceFilling, RowFilling
from shardline.operations.shard_origin import SourceRows
from shardline.operations.shards import ShardPlan, make_shard
from shardline.sidecars.receipt import Receipt
from shardline.sources.origin import FileOrigin
from shardline.sources.tfrecord import TFRecordSource
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.open_file import StoredFile

if TYPE_CHECKING:
    from shardline.canonical_json import Json
    from shardline.execution.executor import Running
    from shardline.log.model import Shard
    from shardline.operations.rebuild_plan import Slice
    from shardline.operations.shards import Filling
    from shardline.schema.schema import Schema
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits

How: TypeAlias = Literal["inputs", "source", "copies", "salvage", "again"]
"""Of what a shard is made anew; "again" is by the command that derived it, and not by a repair."""


@dataclass(frozen=True, slots=True)
class Mended:
    """How a shard was made anew, or can be. Without `receipt` it was not; `lost` tells why."""

    how: How
    receipt: Receipt | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class MendTask:
    """A shard to be made anew, and what it may be made of.

    `first` is the shard as it was first made. `found` is the digest of the file that is
    in its place, None if there is none; `intact` says that nothing is damaged in that. One that
    was `derived` is made anew by what made it. Only if `lossy`, records are given up.
    """

    store: Store
    dataset: str
    version: str
    name: str
    shard: Shard
    first: Shard
    found: str | None
    intact: bool
    schema: Schema
    pieces: tuple[Slice | SourceRows, ...] | None
    rows: SourceRows | None
    copies: tuple[Slice, ...] | None
    limits: Limits
    derived: bool = False
    lossy: bool = False
    dry_run: bool = False
    attempt: int = 0

    step = "repairing"

    @property
    def label(self) -> str:
        """What it is called while it is worked on."""
        return self.shard.name

    @property
    def size(self) -> int:
        """How many bytes there are to write."""
        return self.shard.bytes

    @property
    def whole(self) -> tuple[How, ...]:
        """How it can be made with all its records, the best way first."""
        found: list[How] = ["inputs"] if self.pieces is not None else []
        found += ["source"] if self.rows is not None else []
        return (*found, "copies") if self.copies is not None else tuple(found)

    @property
    def plans(self) -> list[ShardPlan]:
        """Every shard that may come of it."""
        return [self.plan(how) for how in (*self.whole, "salvage")]

    def plan(self, how: How) -> ShardPlan:
        """The shard that comes of one way."""
        identity: Json = {"operation": "repair", "shard": self.shard.name, "how": how}
        if how == "salvage":
            identity["found"] = self.found
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            identity,
            Compression(self.shard.compression),
            self.shard.source,
            self.name,
            largest=self.shard.bytes,
        )

    def filling(self, how: How, running: Running) -> Filling:
        """What fills it, in one way."""
        if how in {"inputs", "copies"}:
            pieces = (self.pieces if how == "inputs" else self.copies) or ()
            return PieceFilling(self.store, pieces, self.schema, self.limits, running)
        if how == "source" and self.rows is not None:
            return RowFilling(self.rows, self.schema, running)
        places = OldPlaces.of(self.store, self.name, self.shard)
        return RowFilling(self.left, self.schema, running, keep_refused=True, places=places)

    @property
    def left(self) -> SourceRows:
        """What is left of it."""
        damaged = TFRecordSource(
            FileOrigin(StoredFile(self.store, self.name)),
            self.limits,
            salvage=True,
            compression=Compression(self.shard.compression),
        )
        return SourceRows(damaged, 0, None)


def mend(task: MendTask, running: Running) -> Mended:
    """Do one task: try each way until one gives all the records; then take what is left.

    If that is not all, nothing is made, unless the task is lossy.
    """
    if task.dry_run and task.whole:
        return Mended(task.whole[0])
    for how in task.whole:
        try:
            receipt = make_shard(task.plan(how), task.filling(how, running), attempt=task.attempt)
        except (DamagedFileError, ObjectMissingError, SourceError, WrongShardError):
            continue
        # A copy may be of what an earlier repair had left of it.
        wanted = (task.first, task.shard) if how == "copies" else (task.first,)
        if receipt.shard is not None and any(_is_as_before(receipt.shard, one) for one in wanted):
            return Mended(how, receipt)
    lost = task.shard.records - _intact(task)
    if task.dry_run or (lost and not task.lossy):
        return Mended("again" if task.derived and lost else "salvage", None, lost)
    receipt = _salvage(task, running)
    if not lost and (receipt.shard is None or not _is_as_before(receipt.shard, task.shard)):
        raise _hopeless(task)
    return Mended("salvage", receipt, lost_of(task.shard, receipt.shard))


def lost_of(old: Shard, made: Shard | None) -> int:
    """How many records were lost: none, if what an earlier repair had lost came back."""
    return max(0, old.records - (made.records if made else 0))


def _intact(task: MendTask) -> int:
    """How many records are left of a shard. Of another file in its place, none are its own."""
    if _is_gone(task):
        return 0
    try:
        if task.intact:
            raise _hopeless(task)
        chunks = task.left.source.chunks(task.schema, 0)
        left = sum(len(chunk.frames().starts) for chunk in chunks)
        if left > task.shard.records:
            raise _hopeless(task)
    except (SchemaMismatchError, WrongShardError):
        if task.derived and not task.lossy:
            return 0
        raise _hopeless(task) from None
    return left


def _is_as_before(made: Shard, first: Shard) -> bool:
    """Whether a shard is the one that was first made. GZIP may pack the same bytes otherwise."""
    if made.compression == "none":
        return made.sha256 == first.sha256
    return made.records == first.records


def _salvage(task: MendTask, running: Running) -> Receipt:
    """Keep what is intact of a shard that is damaged; of one that is gone or empty, nothing."""
    if _is_gone(task):
        return Receipt(0, 0, last=True)
    filling = task.filling("salvage", running)
    return make_shard(task.plan("salvage"), filling, attempt=task.attempt)


def _is_gone(task: MendTask) -> bool:
    info = task.store.info(task.name)
    return info is None or not info.size


def _hopeless(task: MendTask) -> WrongShardError:
    return WrongShardError(
        f"{task.label}: the file is cut off or contains other records, and its source and inputs "
        "are missing",
        code="unrepairable-shard",
        hint=Hint.of(
            "put the committed file back, or restore a snapshot without the shard and append its "
            "source again"
        ),
        path=task.name,
        version=f"{task.dataset}/{task.version}",
    )
