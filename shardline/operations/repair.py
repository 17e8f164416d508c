"""Repair: make a shard anew that is no longer the file that was committed.

It is made of the shards that it was rebuilt from, or of its source, if these are still there and
the same. If not, what is intact of it is kept. The new shard takes the old one's place, as a new
entry that says how it was made and what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline.errors import (
    DamagedFileError,
    LogError,
    ObjectMissingError,
    SchemaMismatchError,
    SourceError,
    WrongShardError,
)
from shardline.execution.engine import Threads
from shardline.files.compression import Compression
from shardline.files.reader import DEFAULT_LIMITS
from shardline.files.stored import StoredFile
from shardline.log.changes import Replace
from shardline.operations.inspect import inspect_shard
from shardline.operations.origin import SourceRows, input_pieces, landing_of, source_rows
from shardline.operations.rebuild import Copying
from shardline.operations.receipt import Receipt, sha256_of
from shardline.operations.row_stream import cut_frames
from shardline.operations.shards import ShardPlan, fresh_attempt, make_shard
from shardline.sources.origin import FileOrigin
from shardline.sources.tfrecord import TFRecordSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.execution.engine import Engine, Listener, Running
    from shardline.files.reader import Limits
    from shardline.log.entry import Entry
    from shardline.log.facts import Json, Shard
    from shardline.log.schema import Schema
    from shardline.log.version import Version
    from shardline.operations.inspect import ShardReport
    from shardline.operations.rebuild_plan import Slice
    from shardline.operations.shards import Filling, Part
    from shardline.storage import Store

How: TypeAlias = Literal["inputs", "source", "salvage"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """A shard that was made anew, and of what. `made` is None if no record of it was left.

    In a dry run `entry` is None, and `how` is what would be tried first.
    """

    old: Shard
    how: How
    made: Shard | None = None
    entry: Entry | None = None
    quarantine: str | None = None

    @property
    def lost(self) -> int:
        """How many records were lost."""
        return _lost(self.old, self.made)


def _lost(old: Shard, made: Shard | None) -> int:
    """None are, if what an earlier repair had lost came back."""
    return max(0, old.records - (made.records if made else 0))


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found and did: how many shards were read, and which were made anew."""

    version: str
    read: int
    repaired: tuple[Repaired, ...] = ()
    dry_run: bool = False


def repair(
    version: Version,
    *,
    shards: Iterable[str] | None = None,
    dry_run: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    engine: Engine | None = None,
    progress: Listener | None = None,
) -> RepairReport:
    """Read every shard of the newest snapshot, or those named, and make the bad ones anew.

    Each repaired shard is an entry of its own. With `dry_run` nothing is made. Raises
    WrongShardError if there is one that cannot be told from another file, and of which nothing
    is left to make it anew; the others are repaired before.
    """
    engine = engine or Threads()
    version.refresh()
    found = _chosen(version, shards)
    tasks = [_InspectTask(version.store, version.shard_name(s), s, limits) for s in found]
    reports = list(engine.run(_inspect, tasks, progress))
    repaired, hopeless = [], []
    for report in reports:
        if not report.problems:
            continue
        try:
            task = _plan(version, report, limits)
            if dry_run:
                repaired.append(_foreseen(task))
            else:
                ((how, receipt),) = engine.run(_make_anew, [task], progress)
                repaired.append(_commit(version, report.shard, how, receipt))
        except WrongShardError as error:
            hopeless.append(str(error))
    if hopeless:
        raise WrongShardError("\n".join(hopeless))
    return RepairReport(version.name, len(found), tuple(repaired), dry_run)


def _chosen(version: Version, names: Iterable[str] | None) -> list[Shard]:
    """The shards of the newest snapshot, or those of them that are named."""
    there = version.newest().shards
    if names is None:
        return list(there)
    wanted = set(names)
    unknown = wanted - {shard.name for shard in there}
    if unknown:
        raise LogError(f"{version.newest()} has no shard {min(unknown)}: nothing was done")
    return [shard for shard in there if shard.name in wanted]


@dataclass(frozen=True, slots=True)
class _InspectTask:
    """A shard to be read."""

    store: Store
    name: str
    shard: Shard
    limits: Limits

    step = "reading"

    @property
    def label(self) -> str:
        return self.shard.name

    @property
    def size(self) -> int:
        return self.shard.bytes


def _inspect(task: _InspectTask, running: Running) -> ShardReport:
    return inspect_shard(
        task.store,
        task.name,
        task.shard,
        limits=task.limits,
        progress=lambda done: running.tell(done, 0),
    )


@dataclass(frozen=True, slots=True)
class _RepairTask:
    """A shard to be made anew, and what it may be made of.

    `first` is the shard as it was first made. `found` is the digest of the file that is
    in its place, None if there is none; `intact` says that nothing is damaged in that.
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
    limits: Limits
    attempt: int = 0

    step = "repairing"

    @property
    def label(self) -> str:
        return self.shard.name

    @property
    def size(self) -> int:
        return self.shard.bytes

    @property
    def ways(self) -> tuple[How, ...]:
        """How it can be made, the best way first."""
        found: list[How] = ["inputs"] if self.pieces is not None else []
        found += ["source"] if self.rows is not None else []
        return (*found, "salvage")

    def plan(self, how: How) -> ShardPlan:
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
        if how == "inputs":
            return _PieceFilling(self, self.pieces or (), running)
        if how == "source" and self.rows is not None:
            return _RowFilling(self.rows, self.schema, running, keep_refused=False)
        damaged = TFRecordSource(
            FileOrigin(StoredFile(self.store, self.name)),
            self.limits,
            salvage=True,
            compression=Compression(self.shard.compression),
        )
        return _RowFilling(SourceRows(damaged, 0, None), self.schema, running, keep_refused=True)


def _plan(version: Version, report: ShardReport, limits: Limits) -> _RepairTask:
    shard = report.shard
    if shard.base is not None:
        raise LogError(f"{shard.name} is an overlay, which this release cannot repair")
    info = version.store.info(report.name)
    found = None if info is None else sha256_of(version.store, report.name, info.size)
    if found == shard.sha256:
        raise WrongShardError(
            f"{shard.name} is the file that was committed, byte for byte, and yet "
            f"{report.problems[0]}. If a record may be that large, raise the limit; else reject "
            "the snapshot that brought it in"
        )
    task = _RepairTask(
        version.store,
        version.log.dataset,
        version.log.version,
        report.name,
        shard,
        landing_of(version, shard)[1],
        found,
        report.read,
        version.schema,
        input_pieces(version, shard, limits),
        source_rows(version, shard, limits),
        limits,
    )
    plans = (task.plan(how) for how in task.ways)
    return replace(task, attempt=fresh_attempt(version.state, plans, task.attempt))


def _make_anew(task: _RepairTask, running: Running) -> tuple[How, Receipt]:
    """Do one task: try each way until one gives all the records; salvage gives what is left."""
    for how in task.ways[:-1]:
        try:
            receipt = make_shard(task.plan(how), task.filling(how, running), attempt=task.attempt)
        except (DamagedFileError, ObjectMissingError, SourceError, WrongShardError):
            continue
        if receipt.shard is not None and _is_as_before(receipt.shard, task.first):
            return how, receipt
    return "salvage", _salvage(task, running)


def _is_as_before(made: Shard, first: Shard) -> bool:
    """Whether a shard is the one that was first made. GZIP may pack the same bytes otherwise."""
    if made.compression == "none":
        return made.sha256 == first.sha256
    return made.records == first.records


def _salvage(task: _RepairTask, running: Running) -> Receipt:
    """Keep what is intact of a shard that is damaged; of one that is gone or empty, nothing."""
    if _is_gone(task):
        return Receipt(0, 0, last=True)
    if task.intact:
        raise _hopeless(task)
    filling = task.filling("salvage", running)
    try:
        receipt = make_shard(task.plan("salvage"), filling, attempt=task.attempt)
    except SchemaMismatchError:
        raise _hopeless(task) from None
    if receipt.shard is not None and receipt.shard.records > task.shard.records:
        raise _hopeless(task)
    return receipt


def _foreseen(task: _RepairTask) -> Repaired:
    """What would be tried first."""
    if task.ways == ("salvage",) and task.intact and not _is_gone(task):
        raise _hopeless(task)
    return Repaired(task.shard, task.ways[0])


def _is_gone(task: _RepairTask) -> bool:
    info = task.store.info(task.name)
    return info is None or not info.size


def _hopeless(task: _RepairTask) -> WrongShardError:
    return WrongShardError(
        f"{task.label}: it holds other records than those that were committed, or was cut off "
        "behind a record, and neither its source nor its inputs are there to make it anew. Put "
        "the right file back, or restore a snapshot without it and append its source again"
    )


@dataclass(frozen=True, slots=True)
class _PieceFilling:
    """Fills a shard with what it was rebuilt from, or with the rows that this was made of."""

    task: _RepairTask
    pieces: tuple[Slice | SourceRows, ...]
    running: Running

    def begin(self) -> None:
        """Every attempt begins with the first piece."""

    def fill(self, part: Part) -> bool:
        task = self.task
        for piece in self.pieces:
            filling: Filling
            if isinstance(piece, SourceRows):
                filling = _RowFilling(piece, task.schema, self.running, keep_refused=False)
            else:
                filling = Copying(task.store, (piece,), task.limits, self.running)
            filling.fill(part)
        return True


@dataclass(frozen=True, slots=True)
class _RowFilling:
    """Fills a shard with rows of a source. Rows that are refused go to quarantine, or are passed.

    Those of the shard's own source were put into quarantine when it landed.
    """

    rows: SourceRows
    schema: Schema
    running: Running
    keep_refused: bool

    def begin(self) -> None:
        """Every attempt begins with the first row."""

    def fill(self, part: Part) -> bool:
        records = 0
        for chunk in self.rows.source.chunks(self.schema, self.rows.first):
            frames = chunk.frames()
            end = self.rows.end
            if end is not None and len(frames.rows) and frames.rows[-1] >= end:
                frames, _ = cut_frames(frames, int(np.searchsorted(frames.rows, end)))
            if len(frames.starts):
                part.shard.add(frames.data, frames.starts, frames.lengths)
            for refused in frames.refused if self.keep_refused else ():
                part.refuse(refused)
            records += len(frames.starts)
            part.end = chunk.end
            self.running.tell(chunk.position, records)
            if end is not None and chunk.end >= end:
                break
        if self.rows.records not in {None, records}:
            raise SourceError(f"{self.rows.source.shown} does not give the records that it gave")
        return True


def _commit(version: Version, shard: Shard, how: How, receipt: Receipt) -> Repaired:
    """Put the new shard in the place of the old one."""
    lost = _lost(shard, receipt.shard)
    parameters: Json = {"shard": shard.name, "how": how, "lost_records": lost}
    if receipt.quarantine is not None:
        parameters["quarantine"] = [{"rows": receipt.refused_rows, "files": [receipt.quarantine]}]
    added = [] if receipt.shard is None else [receipt.shard]
    change = Replace(removed=[shard.name], added=added, operation="repair", parameters=parameters)
    entry = version.commit(change)
    return Repaired(shard, how, receipt.shard, entry, receipt.quarantine)
