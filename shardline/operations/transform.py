"""Transform the records of a version into another version, or of a file into another file.

Extend and migrate plan the transform; the code here plans its shards and executes it.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from shardline.arguments import parse_local_path, validate_share
from shardline.errors import InvalidArgumentError, InvalidRecordsError, LogError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint, Option
from shardline.log.model import Base, Shard
from shardline.log.version import DerivedFrom
from shardline.operations.derive import (
    Derivation,
    DeriveReport,
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
from shardline.report import Report
from shardline.schema.file_schema import infer_schema, schema_of
from shardline.schema.schema import Schema
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import (
    Compression,
    parse_compression,
    validate_shard_compression,
)
from shardline.tfrecord.reader import DEFAULT_LIMITS, RecordFile
from shardline.tfrecord.writer import RecordSink
from shardline.udf.transform import BoundUDFs, Transform, validate_side_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Unpack

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.model import Added, Checks
    from shardline.log.parameters import ExtendParameters, MigrateParameters
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.state import State
    from shardline.log.version import StoredVersion
    from shardline.operations.shard_writer import OpenShard
    from shardline.readers.records import Records
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits

TransformMode: TypeAlias = Literal["overlay", "rewrite"]
_BLOCK_BYTES = 8 * 1024 * 1024
"""Large: some costs occur once for each block."""
_SMALL_BLOCK_BYTES = 4 * 1024 * 1024
"""Used if several blocks are in memory, or if only their columns are."""


class TransformOptions(TypedDict, total=False):
    """Keyword arguments that `extend` and `migrate` share.

    Attributes:
        snapshot: Snapshot of the version to read: "published", "latest", a number, a tag or a time.
        compression: "none" or "gzip". By default that of the new version, else that of the base.
        max_quarantined: Share of the records that may go to quarantine.
        checks: Checks of a new version. By default those of the base.
        limits: Limits of what is read.
    """

    snapshot: str | int
    compression: Compression | str | None
    max_quarantined: float
    checks: Checks | None
    limits: Limits


class TransformFileOptions(TypedDict, total=False):
    """Keyword arguments that all functions share which transform a file.

    Attributes:
        compression: "none" or "gzip". By default that of the file.
        overwrite: Replace an existing output.
        limits: Limits of what is read.
        workers: Number of threads. By default one per core.
        progress: Called with the bytes read so far.
    """

    compression: Compression | str | None
    overwrite: bool
    limits: Limits
    workers: int | None
    progress: Callable[[int], None] | None


class FileTransformOptions(TransformFileOptions, total=False):
    """Keyword arguments that `extend_file` and `migrate_file` share.

    Attributes:
        schema: Schema of the file. By default it is inferred, which reads the file twice.
    """

    schema: Schema | None


@dataclass(frozen=True, slots=True)
class TransformTask:
    """A shard of the base to transform.

    `run` distinguishes runs of a function without a code version. `functions` are the source
    digests of the functions.
    """

    store: Store
    dataset: str
    version: str
    operation: str
    shard: Shard
    records: Records
    udfs: BoundUDFs
    mode: TransformMode
    compression: Compression
    limits: Limits
    quarantined: bool = False
    run: str = ""
    functions: tuple[str, ...] = ()
    attempt: int = 0

    @property
    def step(self) -> str:
        """Name of the step that the task belongs to."""
        return {"extend": "extending", "migrate": "migrating"}[self.operation]

    @property
    def label(self) -> str:
        """Name for progress and messages."""
        return self.shard.name

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return count_read_bytes([self.records])

    @property
    def plan(self) -> ShardPlan:
        """Plan of the shard. Its name depends on everything that its bytes depend on."""
        content = self.shard.content
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            make_transform_identity(
                self.operation,
                self.mode,
                self.shard,
                self.udfs.transform.identity(),
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
        """Return the task for another attempt."""
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
    """Return the identity that the name of a transformed shard is a hash of."""
    return {
        "operation": operation,
        "mode": mode,
        "base": [base.name, base.content],
        "transform": transform,
        "compression": compression,
        "quarantined": quarantined,
        "run": run,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformReport(DeriveReport):
    """Result of `extend` or `migrate`."""

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        quarantine = {"rows": self.quarantined_rows, "files": list(self.quarantine_files)}
        return {**super(TransformReport, self).to_dict(), "quarantine": quarantine}

    @property
    def quarantined_rows(self) -> int:
        """Number of records that went to quarantine."""
        return sum(receipt.refused_rows for receipt in self.receipts)

    @property
    def quarantine_files(self) -> tuple[str, ...]:
        """Names of the quarantine files in the store."""
        return tuple(
            receipt.quarantine for receipt in self.receipts if receipt.quarantine is not None
        )


def parse_options(options: TransformOptions) -> dict[str, Any]:
    """Return the fields of a TransformPlan for the options of a caller."""
    parsed: dict[str, Any] = {key: value for key, value in options.items() if key != "snapshot"}
    parsed["compression"] = parse_shard_compression(options.get("compression"))
    return parsed


def parse_shard_compression(compression: Compression | str | None) -> Compression | None:
    """Return the compression of shards, None to follow the base. Raises InvalidArgumentError."""
    parsed = None if compression is None else parse_compression(compression)
    validate_shard_compression(parsed)
    return parsed


@dataclass(frozen=True)
class TransformPlan:
    """A planned transform of a snapshot, to look at or to execute.

    `parameters` are those of the log entry. A new version gets `checks`, or those of the base.
    """

    operation: Literal["extend", "migrate"]
    base: StoredVersion
    source: StoredSnapshot
    into: StoredVersion
    transform: Transform
    mode: TransformMode
    parameters: ExtendParameters | MigrateParameters
    compression: Compression | None = None
    max_quarantined: float = 0.0
    checks: Checks | None = None
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        """Validate the versions and the names of features."""
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

    @property
    def schema(self) -> Schema:
        """Schema of the new version."""
        return self.transform.after

    @cached_property
    def tasks(self) -> tuple[TransformTask, ...]:
        """Tasks of the shards to compute. Planning them reads no record."""
        with BoundUDFs(self.transform) as udfs:
            tasks = self._list_tasks(udfs, "")
        targets = self._reuse(self.into.state, tasks) if self._is_reusable else list(tasks)
        return tuple(task for task in targets if isinstance(task, TransformTask))

    @property
    def compute(self) -> int:
        """Number of shards to compute."""
        return len(self.tasks)

    @property
    def reuse(self) -> int:
        """Number of shards that exist already."""
        return len(self.source.shards) - self.compute

    @property
    def records(self) -> int:
        """Number of records to read."""
        return sum(task.shard.records for task in self.tasks)

    @property
    def read_bytes(self) -> int:
        """Number of bytes to read."""
        return sum(task.size for task in self.tasks)

    @property
    def _is_reusable(self) -> bool:
        return self.transform.identity() is not None

    def _reuse(self, state: State, tasks: Sequence[TransformTask]) -> list[Shard | TransformTask]:
        return apply_rebuilds(self.into.log, state, reuse_shards(state, tasks))

    def execute(
        self, *, executor: Executor | None = None, progress: ProgressListener | None = None
    ) -> TransformReport:
        """Compute the planned shards and commit them.

        Plans again if the version has changed since. Raises InvalidRecordsError, CorruptFileError
        and the errors of a commit.
        """
        run = "" if self._is_reusable else secrets.token_hex(8)
        with BoundUDFs(self.transform) as udfs:
            udfs.bound()
            tasks = self._list_tasks(udfs, run)
            try:
                report = derive(
                    Derivation(
                        into=self.into,
                        operation=self.operation,
                        schema=self.transform.after,
                        checks=self.checks or self.base.state.get_checks(self.source.number),
                        origins=(DerivedFrom(self.base, self.source),),
                        plan=lambda state: self._reuse(state, tasks),
                        make=make_transformed_shard,
                        accept=self._accept,
                        describe=lambda parameters, added: replace(
                            parameters, bases=_list_bases(tasks, added)
                        ),
                        parameters=self.parameters,
                        is_pinned=self.mode == "overlay",
                        udfs=self.transform.fields,
                    ),
                    executor or ThreadExecutor(),
                    progress,
                )
            except InvalidRecordsError as error:
                error.version = error.version or self.into.name
                raise
        return TransformReport.extend(report)

    def _list_tasks(self, udfs: BoundUDFs, run: str) -> list[TransformTask]:
        features = None if self.mode == "rewrite" else udfs.reads()
        self.into.refresh()
        compression = get_shard_compression(self.into, self.compression)
        functions = get_checked_digests(self.transform.fields)
        tasks = [
            TransformTask(
                self.into.store,
                self.into.log.dataset,
                self.into.log.version,
                self.operation,
                shard,
                records,
                udfs,
                self.mode,
                compression or self._get_default_compression(shard),
                self.limits,
                quarantined=self.max_quarantined > 0,
                run=run,
                functions=functions,
            )
            for shard, records in zip(
                self.source.shards, list_records(self.source, features), strict=True
            )
        ]
        return tasks if run or self.compression is not None else self._keep_compressions(tasks)

    def _get_default_compression(self, shard: Shard) -> Compression:
        is_gzip = self.mode == "rewrite" and shard.compression == "gzip"
        return Compression.GZIP if is_gzip else Compression.NONE

    def _keep_compressions(self, tasks: list[TransformTask]) -> list[TransformTask]:
        """Return the tasks, with the compression of each live shard that exists in another one.

        Otherwise a new default compression would compute all shards once more.
        """
        state = self.into.state
        live = {
            get_stem(interval.shard.name) for interval in state.shard_history.at(state.snapshot)
        }
        for index, task in enumerate(tasks if live else ()):
            if task.plan.stem in live:
                continue
            others = (
                replace(task, compression=compression)
                for compression in (Compression.NONE, Compression.GZIP)
                if compression != task.compression
            )
            tasks[index] = next((other for other in others if other.plan.stem in live), task)
        return tasks

    def _accept(self, receipts: Sequence[Receipt]) -> None:
        """Raise InvalidRecordsError if too many records are missing."""
        rows = sum(receipt.end for receipt in receipts)
        bad = sum(receipt.refused_rows for receipt in receipts)
        reasons = [reason for receipt in receipts for reason in receipt.reasons]
        hint = _get_hint(self.operation, self.mode)
        validate_lost_share(
            self.into.name, reasons, bad, rows, share=self.max_quarantined, hint=hint
        )


def _get_hint(operation: str, mode: TransformMode) -> Hint:
    fix = FIX_CAST_HINT if operation == "migrate" else FIX_UDF_HINT
    optional = (" (in an overlay, declare the features with ", Option("required", value=False), ")")
    return Hint.of(fix, ", or ", QUARANTINE_HINT, *(optional if mode == "overlay" else ()))


def _list_bases(tasks: Sequence[TransformTask], added: Sequence[Added]) -> tuple[str, ...]:
    """List the base of each added shard."""
    bases = {task.plan.stem: task.shard.name for task in tasks}
    return tuple(bases[get_stem(item.shard.name)] for item in added)


def make_transformed_shard(task: TransformTask, running: TaskContext) -> Receipt:
    """Write the shard of a task, or find it written."""
    plan = replace(task.plan, hash_in_thread=running.workers > 1 and task.mode == "rewrite")
    receipt = make_shard(plan, _TransformShardWriter(task, running), attempt=task.attempt)
    return replace(receipt, reasons=tuple(f"{plan.label}, {reason}" for reason in receipt.reasons))


@dataclass(frozen=True, slots=True)
class _TransformShardWriter:
    """Writer of the transformed records of a shard."""

    task: TransformTask
    running: TaskContext

    def begin(self) -> None:
        """Do nothing: every attempt begins with the first record."""

    def fill(self, part: OpenShard) -> bool:
        """Transform all records. Without any, the shard is empty."""
        task, sink = self.task, part.shard
        small = self.running.workers > 1 or task.mode == "overlay"
        block_bytes = _SMALL_BLOCK_BYTES if small else _BLOCK_BYTES
        blocks = task.records.blocks(limits=task.limits, block_bytes=block_bytes)
        subject, path = f"{task.dataset}/{task.version}", task.records.path
        for block in transform_records(
            path,
            blocks,
            task.udfs,
            alone=task.mode == "overlay",
            every=task.quarantined,
            max_record_bytes=task.limits.max_record_bytes,
            workers=self.running.workers,
        ):
            if not task.quarantined:
                raise_invalid_records(subject, path, block, _get_hint(task.operation, task.mode))
            if len(block.framed.starts):
                sink.add(block.framed.data, block.framed.starts, block.framed.lengths)
            for row in block.refused:
                part.quarantine(row)
            part.end = block.end
            self.running.report(task.size * part.end // max(task.shard.records, 1), part.end)
        return True


@dataclass(frozen=True, slots=True)
class FileTransformReport(Report):
    """Result of `extend_file` or `migrate_file`: the written file and its schema."""

    file: Path
    records: int
    bytes: int
    compression: Compression
    schema: Schema


def transform_inferred_file(
    path: Path | str,
    output: Path | str,
    plan: Callable[[Schema], Transform],
    *,
    schema: Schema | None = None,
    hint: Hint = FIX_UDF_HINT,
    **options: Unpack[TransformFileOptions],
) -> FileTransformReport:
    """Write the transformed records of a file, whose schema is inferred unless given."""
    if schema is None:
        inferred = infer_schema([path], limits=options.get("limits", DEFAULT_LIMITS)).merged
        schema = schema_of(inferred) if inferred.records else None
    transform = make_empty_transform() if schema is None else plan(schema)
    return transform_file(path, output, transform, hint=hint, **options)


def make_empty_transform() -> Transform:
    """Return the transform of a file without records, which has no features."""
    return Transform(Schema(), Schema(), {})


def transform_file(
    path: Path | str,
    output: Path | str,
    transform: Transform,
    *,
    hint: Hint = FIX_UDF_HINT,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> FileTransformReport:
    """Write the transformed records of a file to another one; see `TransformFileOptions`.

    `hint` says what to do about a record that cannot be transformed.
    """
    validate_side_names(transform)
    path, output = parse_local_path(path), parse_local_path(output, "output")
    with (
        RecordFile(path, limits=limits) as file,
        DurableFile(output, overwrite=overwrite) as durable,
        BoundUDFs(transform) as udfs,
    ):
        packing = file.compression if compression is None else parse_compression(compression)
        sink = RecordSink(durable, packing)
        for block in transform_records(
            str(path),
            file.blocks(),
            udfs,
            alone=False,
            every=False,
            max_record_bytes=limits.max_record_bytes,
            workers=workers or os.cpu_count() or 1,
        ):
            raise_invalid_records(str(path), str(path), block, hint)
            sink.add(block.framed.data, block.framed.starts, block.framed.lengths)
            if progress is not None:
                progress(file.stream.position)
        written = sink.finish()
    return FileTransformReport(output, written.records, written.bytes, packing, transform.after)
