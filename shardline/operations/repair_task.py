"""Which number the records of a damaged shard had: by where they begin, as its index tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline.errors import (
    CorruptFileError,
    IndexMismatchError,
    ObjectNotFoundError,
    SchemaMismatchError,
    SourceError,
    WrongShardError,
)
from shardline.hints import Hint
from shardline.kernel.types import HEADER_BYTES
from shardline.operations.rebuild import SliceShardWriter
from shardline.operations.shard_origin import SourceRows
from shardline.operations.shard_writer import ShardPlan, make_shard, split_frames
from shardline.sidecars.receipt import Receipt
from shardline.sidecars.row_map import NOTHING
from shardline.sources.source import EncodedChunk
from shardline.sources.source_identity import FileIdentity
from shardline.sources.tfrecord_source import RecordChunk, TFRecordSource
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.index import read_offsets
from shardline.tfrecord.input_file import StoredFile

if TYPE_CHECKING:
    from shardline.canonical_json import Json
    from shardline.execution.executor import TaskContext
    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.operations.shard_slice import ShardSlice
    from shardline.operations.shard_writer import OpenShard, ShardWriter
    from shardline.schema.schema import Schema
    from shardline.sources import Chunk, EncodedRows
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class OldPositions:
    """Where the records of a plain shard began when it was whole.

    If the file is not as long as it was, bytes were cut out or put in, and what stands behind
    these moved: then a record is told only if counting, with one for each damage, agrees.
    """

    offsets: IntArray
    same_size: bool

    @classmethod
    def of(cls, store: Store, name: str, shard: Shard) -> OldPositions | None:
        """Those of a shard; None if it is packed, or its index is lost."""
        info = store.info(name)
        if shard.compression != "none" or info is None:
            return None
        try:
            offsets = list(read_offsets(store, name, shard.bytes, shard.records, shard.sha256))
        except IndexMismatchError:
            return None
        return cls(np.concatenate(offsets)[: shard.records], info.size == shard.bytes)

    def numbers(self, chunk: Chunk, frames: EncodedRows) -> IntArray:
        """The old numbers of records that were salvaged, -1 where that cannot be told."""
        read = chunk.chunk if isinstance(chunk, EncodedChunk) else chunk
        if not isinstance(read, RecordChunk) or not len(self.offsets):
            return np.full(len(frames.rows), NOTHING, np.int64)
        block = read.block
        begins = block.starts[frames.rows - block.record] + (block.offset - HEADER_BYTES)
        places = np.minimum(np.searchsorted(self.offsets, begins), len(self.offsets) - 1)
        sure = self.same_size | (frames.rows == places)
        return np.where((self.offsets[places] == begins) & sure, places, NOTHING)


@dataclass(frozen=True, slots=True)
class PieceShardWriter:
    """Fills a shard with what it was rebuilt from, or with the rows that this was made of."""

    store: Store
    pieces: tuple[ShardSlice | SourceRows, ...]
    schema: Schema
    limits: Limits
    running: TaskContext

    def begin(self) -> None:
        """Every attempt begins with the first piece."""

    def fill(self, part: OpenShard) -> bool:
        """Copy them one behind the other."""
        for piece in self.pieces:
            filling: ShardWriter
            if isinstance(piece, SourceRows):
                filling = RowShardWriter(piece, self.schema, self.running)
            else:
                filling = SliceShardWriter(self.store, (piece,), self.limits, self.running)
            filling.fill(part)
        return True


@dataclass(frozen=True, slots=True)
class RowShardWriter:
    """Fills a shard with rows of a source. Rows that are refused go to quarantine, or are passed.

    Those of the shard's own source were put into quarantine when it landed.
    """

    rows: SourceRows
    schema: Schema
    running: TaskContext
    keep_refused: bool = False
    places: OldPositions | None = None

    def begin(self) -> None:
        """Every attempt begins with the first row."""

    def fill(self, part: OpenShard) -> bool:
        """Add the rows; SourceError if they are not as many as they were."""
        records = 0
        for chunk in self.rows.source.chunks(self.schema, self.rows.first):
            frames = chunk.frames()
            end = self.rows.end
            if end is not None and len(frames.rows) and frames.rows[-1] >= end:
                frames, _ = split_frames(frames, int(np.searchsorted(frames.rows, end)))
            if len(frames.starts):
                part.shard.add(frames.data, frames.starts, frames.lengths)
                if self.places is not None:
                    part.add_origins(self.places.numbers(chunk, frames))
            for refused in frames.refused if self.keep_refused else ():
                part.quarantine(refused)
            records += len(frames.starts)
            part.end = chunk.end
            self.running.report(chunk.position, records)
            if end is not None and chunk.end >= end:
                break
        if self.rows.records not in {None, records}:
            raise SourceError(
                f"{self.rows.source.label}: gives other records than before",
                code="source-changed",
                path=self.rows.source.label,
            )
        return True


RepairMethod: TypeAlias = Literal["inputs", "source", "copies", "salvage", "again"]
"""Of what a shard is made anew; "again" is by the command that derived it, and not by a repair."""


@dataclass(frozen=True, slots=True)
class RepairedShard:
    """How a shard was made anew, or can be. Without `receipt` it was not; `lost` tells why."""

    how: RepairMethod
    receipt: Receipt | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A shard to be made anew, and what it may be made of.

    `first` is the shard as it was first made. `found` is the digest of the file that is
    in its place, None if there is none; `intact` says that nothing is damaged in that. One that
    was `derived` is made anew by what made it. Only if `allow_data_loss`, records are given up.
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
    pieces: tuple[ShardSlice | SourceRows, ...] | None
    rows: SourceRows | None
    copies: tuple[ShardSlice, ...] | None
    limits: Limits
    derived: bool = False
    allow_data_loss: bool = False
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
    def whole(self) -> tuple[RepairMethod, ...]:
        """How it can be made with all its records, the best way first."""
        found: list[RepairMethod] = ["inputs"] if self.pieces is not None else []
        found += ["source"] if self.rows is not None else []
        return (*found, "copies") if self.copies is not None else tuple(found)

    @property
    def plans(self) -> list[ShardPlan]:
        """Every shard that may come of it."""
        return [self.plan(how) for how in (*self.whole, "salvage")]

    def plan(self, how: RepairMethod) -> ShardPlan:
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
            max_bytes=self.shard.bytes,
        )

    def filling(self, how: RepairMethod, running: TaskContext) -> ShardWriter:
        """What fills it, in one way."""
        if how in {"inputs", "copies"}:
            pieces = (self.pieces if how == "inputs" else self.copies) or ()
            return PieceShardWriter(self.store, pieces, self.schema, self.limits, running)
        if how == "source" and self.rows is not None:
            return RowShardWriter(self.rows, self.schema, running)
        places = OldPositions.of(self.store, self.name, self.shard)
        return RowShardWriter(self.left, self.schema, running, keep_refused=True, places=places)

    @property
    def left(self) -> SourceRows:
        """What is left of it."""
        damaged = TFRecordSource(
            FileIdentity(StoredFile(self.store, self.name)),
            self.limits,
            salvage=True,
            compression=Compression(self.shard.compression),
        )
        return SourceRows(damaged, 0, None)


def repair_shard(task: RepairTask, running: TaskContext) -> RepairedShard:
    """Do one task: try each way until one gives all the records; then take what is left.

    If that is not all, nothing is made, unless the task allows it.
    """
    if task.dry_run and task.whole:
        return RepairedShard(task.whole[0])
    for how in task.whole:
        try:
            receipt = make_shard(task.plan(how), task.filling(how, running), attempt=task.attempt)
        except (CorruptFileError, ObjectNotFoundError, SourceError, WrongShardError):
            continue
        # A copy may be of what an earlier repair had left of it.
        wanted = (task.first, task.shard) if how == "copies" else (task.first,)
        if receipt.shard is not None and any(_is_as_before(receipt.shard, one) for one in wanted):
            return RepairedShard(how, receipt)
    lost = task.shard.records - _count_intact(task)
    if task.dry_run or (lost and not task.allow_data_loss):
        return RepairedShard("again" if task.derived and lost else "salvage", None, lost)
    receipt = _salvage_shard(task, running)
    if not lost and (receipt.shard is None or not _is_as_before(receipt.shard, task.shard)):
        raise _make_unrecoverable(task)
    return RepairedShard("salvage", receipt, count_lost_records(task.shard, receipt.shard))


def count_lost_records(old: Shard, made: Shard | None) -> int:
    """How many records were lost: none, if what an earlier repair had lost came back."""
    return max(0, old.records - (made.records if made else 0))


def _count_intact(task: RepairTask) -> int:
    """How many records are left of a shard. Of another file in its place, none are its own."""
    if _is_gone(task):
        return 0
    try:
        if task.intact:
            raise _make_unrecoverable(task)
        chunks = task.left.source.chunks(task.schema, 0)
        left = sum(len(chunk.frames().starts) for chunk in chunks)
        if left > task.shard.records:
            raise _make_unrecoverable(task)
    except (SchemaMismatchError, WrongShardError):
        if task.derived and not task.allow_data_loss:
            return 0
        raise _make_unrecoverable(task) from None
    return left


def _is_as_before(made: Shard, first: Shard) -> bool:
    """Whether a shard is the one that was first made. GZIP may pack the same bytes otherwise."""
    if made.compression == "none":
        return made.sha256 == first.sha256
    return made.records == first.records


def _salvage_shard(task: RepairTask, running: TaskContext) -> Receipt:
    """Keep what is intact of a shard that is damaged; of one that is gone or empty, nothing."""
    if _is_gone(task):
        return Receipt((0, 0), last=True)
    filling = task.filling("salvage", running)
    return make_shard(task.plan("salvage"), filling, attempt=task.attempt)


def _is_gone(task: RepairTask) -> bool:
    info = task.store.info(task.name)
    return info is None or not info.size


def _make_unrecoverable(task: RepairTask) -> WrongShardError:
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
