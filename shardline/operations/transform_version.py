"""The shards of a version become those of another, one by one, by a transform of their records.

Extend and migrate plan such a change and have it done here.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.arguments import validate_share
from shardline.errors import InvalidArgumentError, InvalidRecordsError, LogError
from shardline.hints import Hint, Option
from shardline.log.model import Base
from shardline.log.version import DerivedFrom
from shardline.operations.derive import (
    Derivation,
    WrittenShards,
    apply_rebuilds,
    derive,
    get_checked_digests,
    reuse_shards,
    validate_same_root,
)
from shardline.operations.shard_writer import ShardPlan, get_shard_compression, get_stem, make_shard
from shardline.operations.transform_records import (
    FIX_CAST_HINT,
    FIX_UDF_HINT,
    QUARANTINE_HINT,
    raise_invalid_records,
    transform_records,
    validate_lost_share,
)
from shardline.readers.records import count_read_bytes, list_records
from shardline.tfrecord.compression import (
    Compression,
    parse_compression,
    validate_shard_compression,
)
from shardline.udf.transform import BoundUDFs, validate_side_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.model import Added, Checks, Shard
    from shardline.log.parameters import ExtendParameters, MigrateParameters
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.state import State
    from shardline.log.version import StoredVersion
    from shardline.operations.derive import DerivationReport
    from shardline.operations.shard_writer import OpenShard
    from shardline.readers.records import Records
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits
    from shardline.udf.transform import Transform

TransformMode: TypeAlias = Literal["overlay", "rewrite"]
_BLOCK_BYTES = 8 * 1024 * 1024
"""Large, so that what is done once for each block does not show."""
_SMALL_BLOCK_BYTES = 4 * 1024 * 1024
"""Where several are held at once, or their columns are gathered and the rest is forgotten."""


@dataclass(frozen=True, slots=True)
class TransformTask:
    """One shard of the base for which a shard is to be made.

    `run` tells one operation from others, where what a function does cannot be told. `functions`
    are source digests of functions.
    """

    store: Store
    dataset: str
    version: str
    operation: str
    shard: Shard
    records: Records
    makers: BoundUDFs
    mode: TransformMode
    compression: Compression
    limits: Limits
    quarantined: bool = False
    run: str = ""
    functions: tuple[str, ...] = ()
    attempt: int = 0

    @property
    def step(self) -> str:
        """Which step it is a task of."""
        return {"extend": "extending", "migrate": "migrating"}[self.operation]

    @property
    def label(self) -> str:
        """What people call it."""
        return self.shard.name

    @property
    def size(self) -> int:
        """How many bytes it reads."""
        return count_read_bytes([self.records])

    @property
    def plan(self) -> ShardPlan:
        """The shard. Its name depends on all that can make a difference to its bytes."""
        content = self.shard.content
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            make_transform_identity(
                self.operation,
                self.mode,
                self.shard,
                self.makers.transform.identity(),
                self.compression.value,
                quarantined=self.quarantined,
                run=self.run,
            ),
            self.compression,
            label=self.records.path,
            base=Base(self.shard.name, content) if self.mode == "overlay" else None,
            functions=self.functions,
        )

    def at(self, attempt: int) -> TransformTask:
        """The same at another attempt."""
        return replace(self, attempt=attempt)


def make_transform_identity(
    operation: str,
    mode: str,
    base: Shard,
    transform: Json | None,
    compression: str,
    *,
    quarantined: bool,
    run: str = "",
) -> Json:
    """What the name of a shard depends on that is made of one of the base."""
    return {
        "operation": operation,
        "mode": mode,
        "base": [base.name, base.content],
        "transform": transform,
        "compression": compression,
        "quarantined": quarantined,
        "run": run,
    }


@dataclass(frozen=True, slots=True)
class TransformReport(WrittenShards):
    """What an extension or migration did. `entry` is None if there was nothing to do.

    `made` are the shards that were computed, `reused` those that were there. `quarantined_rows`
    records went to the `quarantine_files`.
    """

    source: StoredSnapshot
    version: str
    entry: Entry | None
    made: tuple[Shard, ...] = ()
    reused: tuple[Shard, ...] = ()
    created: bool = False
    quarantined_rows: int = 0
    quarantine_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TransformPlan:
    """What an extension or migration would do: the schema it makes, and what it computes for that.

    `reads` is how many bytes it has to read, of `compute` shards of the base; `reuse` of its
    shards are there already.
    """

    source: StoredSnapshot
    into: str
    mode: TransformMode
    schema: Schema
    compute: int
    reuse: int
    records: int
    reads: int


def parse_shard_compression(wanted: Compression | str | None) -> Compression | None:
    """How to pack, None for as the base is."""
    chosen = None if wanted is None else parse_compression(wanted)
    validate_shard_compression(chosen)
    return chosen


@dataclass(frozen=True, slots=True)
class VersionTransform:
    """An extension or migration that is planned.

    A version that is new gets `checks`, or those of its base if they are not told.
    """

    operation: Literal["extend", "migrate"]
    base: StoredVersion
    snapshot: StoredSnapshot
    into: StoredVersion
    transform: Transform
    mode: TransformMode
    compression: Compression | None
    max_quarantined: float
    limits: Limits
    parameters: ExtendParameters | MigrateParameters
    checks: Checks | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be made."""
        validate_same_root(self.into, self.base)
        if self.into.name == self.base.name:
            raise LogError(
                f"{self.base.name}: cannot {self.operation} a version into itself",
                code="same-version",
                hint=Hint.of("set ", Option("into"), " to a new version"),
                version=self.base.name,
            )
        if self.mode == "overlay" and self.into.log.dataset != self.base.log.dataset:
            raise InvalidArgumentError(
                f"{self.into.name}: an overlay must be a version of {self.base.log.dataset}",
                code="dataset-mismatch",
                hint=Hint.of(
                    f"name a version of {self.base.log.dataset}, or set ",
                    Option("mode", "rewrite"),
                ),
                version=self.into.name,
            )
        validate_side_names(self.transform)
        validate_share("max_quarantined", self.max_quarantined)

    def plan(self) -> TransformPlan:
        """What it would do, without reading a record."""
        with BoundUDFs(self.transform) as makers:
            tasks = self._tasks(makers, "")
        wanted = self._wanted(self.into.state, tasks) if self._reusable else list(tasks)
        left = [one for one in wanted if isinstance(one, TransformTask)]
        return TransformPlan(
            self.snapshot,
            self.into.name,
            self.mode,
            self.transform.after,
            len(left),
            len(tasks) - len(left),
            sum(task.shard.records for task in left),
            sum(task.size for task in left),
        )

    def _wanted(self, state: State, tasks: Sequence[TransformTask]) -> list[Shard | TransformTask]:
        return apply_rebuilds(self.into.log, state, reuse_shards(state, tasks))

    @property
    def _reusable(self) -> bool:
        return self.transform.identity() is not None

    def done(self, executor: Executor, progress: ProgressListener | None) -> TransformReport:
        """Do it."""
        run = "" if self._reusable else secrets.token_hex(8)
        with BoundUDFs(self.transform) as makers:
            makers.bound()
            tasks = self._tasks(makers, run)
            derived = self._derived(tasks, executor, progress)
        files = tuple(one.quarantine for one in derived.receipts if one.quarantine is not None)
        return TransformReport(
            self.snapshot,
            self.into.name,
            derived.entry,
            derived.made,
            derived.reused,
            derived.created,
            sum(receipt.refused_rows for receipt in derived.receipts),
            files,
        )

    def _derived(
        self, tasks: Sequence[TransformTask], executor: Executor, progress: ProgressListener | None
    ) -> DerivationReport:
        try:
            return derive(
                Derivation(
                    into=self.into,
                    operation=self.operation,
                    schema=self.transform.after,
                    checks=self.checks or self.base.state.checks_of(self.snapshot.number),
                    origins=(DerivedFrom(self.base, self.snapshot),),
                    wanted=lambda state: self._wanted(state, tasks),
                    make=make_transformed_shard,
                    accept=self._accept,
                    describe=lambda parameters, added: replace(
                        parameters, bases=_list_bases(tasks, added)
                    ),
                    parameters=self.parameters,
                    pinned=self.mode == "overlay",
                    makers=self.transform.fields,
                ),
                executor,
                progress,
            )
        except InvalidRecordsError as error:
            error.version = error.version or self.into.name
            raise

    def _tasks(self, makers: BoundUDFs, run: str) -> list[TransformTask]:
        features = None if self.mode == "rewrite" else makers.reads()
        self.into.refresh()
        remembered = get_shard_compression(self.into, self.compression)
        functions = get_checked_digests(self.transform.fields)
        tasks = [
            TransformTask(
                self.into.store,
                self.into.log.dataset,
                self.into.log.version,
                self.operation,
                shard,
                records,
                makers,
                self.mode,
                remembered or self._packing(shard),
                self.limits,
                quarantined=self.max_quarantined > 0,
                run=run,
                functions=functions,
            )
            for shard, records in zip(
                self.snapshot.shards, list_records(self.snapshot, features), strict=True
            )
        ]
        return tasks if run or self.compression is not None else self._as_they_are(tasks)

    def _packing(self, shard: Shard) -> Compression:
        """In a new version, an overlay is plain, and a rewritten shard as the one it was."""
        packed = self.mode == "rewrite" and shard.compression == "gzip"
        return Compression.GZIP if packed else Compression.NONE

    def _as_they_are(self, tasks: list[TransformTask]) -> list[TransformTask]:
        """The tasks, with the packing of a shard that the version has under another one.

        Else a change of how the version is packed would compute all its shards once more.
        """
        state = self.into.state
        live = {get_stem(stay.shard.name) for stay in state.stays.at(state.snapshot)}
        packings = (Compression.NONE, Compression.GZIP)
        for at, task in enumerate(tasks if live else ()):
            others = (replace(task, compression=one) for one in packings if one != task.compression)
            if task.plan.stem not in live:
                tasks[at] = next((one for one in others if one.plan.stem in live), task)
        return tasks

    def _accept(self, receipts: Sequence[Receipt]) -> None:
        """Refuse what was made if too many records are missing in it."""
        rows = sum(receipt.end for receipt in receipts)
        bad = sum(receipt.refused_rows for receipt in receipts)
        told = [why for receipt in receipts for why in receipt.told]
        advice = _get_hint(self.operation, self.mode)
        validate_lost_share(
            self.into.name, told, bad, rows, share=self.max_quarantined, advice=advice
        )


def _get_hint(operation: str, mode: TransformMode) -> Hint:
    """Return what to do where records cannot become what they should."""
    mend = FIX_CAST_HINT if operation == "migrate" else FIX_UDF_HINT
    optional = (" (in an overlay, declare the features with ", Option("required", value=False), ")")
    return Hint.of(mend, ", or ", QUARANTINE_HINT, *(optional if mode == "overlay" else ()))


def _list_bases(tasks: Sequence[TransformTask], added: Sequence[Added]) -> tuple[str, ...]:
    """List the shard of the base from which each added shard was computed."""
    bases = {task.plan.stem: task.shard.name for task in tasks}
    return tuple(bases[get_stem(one.shard.name)] for one in added)


def make_transformed_shard(task: TransformTask, running: TaskContext) -> Receipt:
    """Do one task: make the shard, or find it made."""
    plan = replace(task.plan, hash_in_thread=running.workers > 1 and task.mode == "rewrite")
    receipt = make_shard(plan, _TransformShardWriter(task, running), attempt=task.attempt)
    return replace(receipt, told=tuple(f"{plan.label}, {why}" for why in receipt.told))


@dataclass(frozen=True, slots=True)
class _TransformShardWriter:
    """Fills a shard with what becomes of the records of another."""

    task: TransformTask
    running: TaskContext

    def begin(self) -> None:
        """Every attempt begins with the first record."""

    def fill(self, part: OpenShard) -> bool:
        """Transform all of them. Where none is left, there is a shard that tells just that."""
        task, sink = self.task, part.shard
        small = self.running.workers > 1 or task.mode == "overlay"
        block_bytes = _SMALL_BLOCK_BYTES if small else _BLOCK_BYTES
        blocks = task.records.blocks(limits=task.limits, block_bytes=block_bytes)
        what, path = f"{task.dataset}/{task.version}", task.records.path
        for changed in transform_records(
            path,
            blocks,
            task.makers,
            alone=task.mode == "overlay",
            every=task.quarantined,
            max_record_bytes=task.limits.max_record_bytes,
            workers=self.running.workers,
        ):
            if not task.quarantined:
                raise_invalid_records(what, path, changed, _get_hint(task.operation, task.mode))
            framed = changed.framed
            if len(framed.starts):
                sink.add(framed.data, framed.starts, framed.lengths)
            for refused in changed.refused:
                part.quarantine(refused)
            part.end = changed.end
            self.running.report(task.size * part.end // max(task.shard.records, 1), part.end)
        return True
