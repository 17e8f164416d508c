"""Append task: the records of one source to shards, run by any executor."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.arguments import TARGET_BYTES, validate_minimum, validate_share
from shardline.errors import (
    ChangedSourceError,
    ColumnError,
    CorruptFileError,
    ExampleError,
    InvalidRecordsError,
    SchemaMismatchError,
    ShardlineError,
    SourceError,
)
from shardline.execution.threads import run_tasks
from shardline.hints import Hint, Option
from shardline.log.model import INTEGRITY, SCHEMA
from shardline.log.parameters import AppendParameters, SourceProblem
from shardline.operations.shard_writer import (
    RowsDigest,
    RowStream,
    ShardPlan,
    build_small_shard,
    make_shard,
)
from shardline.schema.encoding import TOO_LARGE_HINT
from shardline.sources.source import read_small_files
from shardline.sources.source_format import open_stored_file
from shardline.sources.source_identity import FileIdentity
from shardline.sources.tfrecord_source import TFRecordSource
from shardline.text import format_count_of
from shardline.tfrecord.compression import Compression, validate_shard_compression
from shardline.tfrecord.hashing import ContentMismatchError
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import TaskContext
    from shardline.log.model import Shard
    from shardline.log.model import Source as Identity
    from shardline.operations.shard_writer import OpenShard
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.sources import Chunk, EncodedRows, RecordSource
    from shardline.storage import Store
    from shardline.storage.store import NewObject
    from shardline.tfrecord.hashing import FileContent


_MAX_ROWS_LISTED = 10
_CHANGED = (
    ContentMismatchError,
    ColumnError,
    CorruptFileError,
    ExampleError,
    InvalidRecordsError,
    SchemaMismatchError,
    SourceError,
)
"""Errors of a file whose bytes may have changed since they were hashed."""


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """Options that determine the shards of a source.

    `max_quarantined` is the share of the rows, from 0 to 1, that may go to quarantine. `format` and
    `max_record_bytes` apply to reading the source.
    """

    target_bytes: int = TARGET_BYTES
    compression: Compression = Compression.NONE
    max_quarantined: float = 0.0
    salvage: bool = False
    format: str | None = None
    max_record_bytes: int = DEFAULT_LIMITS.max_record_bytes

    def __post_init__(self) -> None:
        """Validate the options."""
        validate_shard_compression(self.compression)
        validate_minimum("target_bytes", self.target_bytes, 1)
        validate_share("max_quarantined", self.max_quarantined)

    def to_parameters(self) -> AppendParameters:
        """Return what an entry stores, enough to write the shards again."""
        limit = self.max_record_bytes
        return AppendParameters(
            target_bytes=self.target_bytes,
            compression=self.compression.value,
            salvage=self.salvage,
            format=self.format,
            max_record_bytes=None if limit == DEFAULT_LIMITS.max_record_bytes else limit,
        )

    @classmethod
    def from_parameters(cls, parameters: AppendParameters) -> AppendOptions:
        """Return the options of an entry."""
        limit = parameters.max_record_bytes
        return cls(
            parameters.target_bytes,
            Compression(parameters.compression),
            salvage=parameters.salvage,
            format=parameters.format,
            max_record_bytes=DEFAULT_LIMITS.max_record_bytes if limit is None else limit,
        )


def make_append_identity(source: str, fingerprint: str, options: AppendOptions) -> Json:
    """Return the identity that is hashed into the names of all shards of a source."""
    return {
        "operation": "append",
        "source": source,
        "schema": fingerprint,
        "target_bytes": options.target_bytes,
        "compression": options.compression.value,
        "salvage": options.salvage,
        "format": options.format,
        "max_record_bytes": options.max_record_bytes,
    }


@dataclass(frozen=True)
class AppendTask:
    """Source to write to shards.

    `run` distinguishes appends of a batch, whose identity does not contain the rows: shards of
    another append are not reused.
    """

    store: Store
    dataset: str
    version: str
    source: RecordSource
    identity: Identity
    schema: Schema
    options: AppendOptions
    run: str = ""
    attempt: int = 0

    step = "appending"

    @property
    def label(self) -> str:
        """Display label of the source."""
        return self.source.label

    @property
    def size(self) -> int | None:
        """Number of bytes to read."""
        return self.source.size

    @cached_property
    def first_plan(self) -> ShardPlan:
        """Plan of the first shard; most sources have one shard."""
        return self.plan(0, 0)

    def plan(self, part: int, first: int) -> ShardPlan:
        """Return the plan of a shard, named by everything that can change its bytes."""
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            {
                **make_append_identity(self.identity.key, self.schema.fingerprint, self.options),
                "run": self.run,
                "part": part,
            },
            self.options.compression,
            self.identity.key,
            self.label,
            first,
            self.options.target_bytes,
        )


@dataclass(frozen=True, slots=True)
class AppendedSource:
    """Source with its new shards and the number of rows in quarantine.

    Attributes:
        gaps: Corrupt parts of a salvaged file; they count as quarantined rows.
        reasons: The first reasons for quarantined rows.
        sidecars: Digests of the files written with the shards, by name.
        digest: Digest of the rows of a batch.
        unsynced: Files that `Store.sync` must make durable before the commit.
    """

    source: Identity
    shards: tuple[Shard, ...]
    rows: int
    quarantined_rows: int = 0
    gaps: int = 0
    quarantine_files: tuple[str, ...] = ()
    reasons: tuple[str, ...] = field(default=(), repr=False)
    sidecars: Json = field(default_factory=dict, repr=False, compare=False)
    digest: str | None = None
    unsynced: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of the shards."""
        return sum(shard.bytes for shard in self.shards)

    def to_dict(self) -> Json:
        """Return the row counts of the source as JSON values."""
        return {
            **self.source.to_dict(),
            "rows": self.rows,
            "records": self.records,
            "quarantined_rows": self.quarantined_rows,
        }


def append_source(task: AppendTask, running: TaskContext) -> AppendedSource:
    """Write the shards of a source, or reuse those that a stopped append left.

    They are not durable yet: the caller syncs many small files together before the commit.
    """
    content = _predict_content(task)
    if content is not None and isinstance(task.source, TFRecordSource):
        with suppress(*_CHANGED):
            # The written shard is compared with the file as a whole, so its blocks need not be.
            return _write_source(
                replace(task, source=task.source.unverified()), running, expected=content
            )
    return _write_source(task, running)


def _write_source(
    task: AppendTask, running: TaskContext, *, expected: FileContent | None = None
) -> AppendedSource:
    """Write the shards of a source. Raises ContentMismatchError for an unexpected shard."""
    receipts: list[Receipt] = []
    unsynced: list[str] = []
    digest = None if task.identity.batch is None else RowsDigest()
    stream = RowStream(partial(_read_frames, task, running, digest))
    try:
        while not receipts or not receipts[-1].last:
            first = receipts[-1].end if receipts else 0
            plan = replace(
                task.plan(len(receipts), first) if receipts else task.first_plan,
                hash_in_thread=running.workers > 1,
                expected=expected,
                unsynced=unsynced,
            )
            writer = _SourceShardWriter(stream, first, task.options.target_bytes)
            receipts.append(make_shard(plan, writer, attempt=task.attempt))
    finally:
        stream.close()
    reasons = tuple(f"{task.label}, {reason}" for receipt in receipts for reason in receipt.reasons)
    return AppendedSource(
        task.identity,
        tuple(receipt.shard for receipt in receipts if receipt.shard is not None),
        receipts[-1].end,
        sum(receipt.refused_rows for receipt in receipts),
        sum(receipt.damaged for receipt in receipts),
        tuple(receipt.quarantine for receipt in receipts if receipt.quarantine is not None),
        reasons[:_MAX_ROWS_LISTED],
        {name: digest for receipt in receipts for name, digest in receipt.sidecars.items()},
        None if digest is None else digest.hexdigest(),
        tuple(unsynced),
    )


def append_small_sources(
    tasks: Sequence[AppendTask], running: TaskContext
) -> list[AppendedSource | None]:
    """Append small files together. Returns None for each source that `append_source` must append.

    These are sources with an invalid row, and those with an existing file of their shard. Both
    functions write the same files.
    """
    results: list[AppendedSource | None] = [None] * len(tasks)
    first = tasks[0]
    if first.options.compression is not Compression.NONE or first.options.salvage:
        return results
    written: list[tuple[int, AppendedSource, tuple[NewObject, ...]]] = []
    for index, content in enumerate(
        read_small_files([task.source for task in tasks], first.schema)
    ):
        task = tasks[index]
        if content is not None and len(content.frames.data) <= task.options.target_bytes:
            receipt, files = build_small_shard(
                task.first_plan, task.attempt, content.frames, content.rows
            )
            source = AppendedSource(
                task.identity,
                () if receipt.shard is None else (receipt.shard,),
                content.rows,
                sidecars=receipt.sidecars,
                unsynced=tuple(file.name for file in files if not file.derived),
            )
            written.append((index, source, files))
    running.report(0, 0)
    created = first.store.create_many([files for _, _, files in written])
    done = records = 0
    for (index, source, _), is_new in zip(written, created, strict=True):
        if is_new:
            results[index] = source
            done, records = done + (source.source.size or 0), records + source.records
    running.report(done, records)
    return results


def _predict_content(task: AppendTask) -> FileContent | None:
    """Return the expected content of a shard that is a copy of a TFRecord file, or None."""
    content = task.source.content if isinstance(task.source, TFRecordSource) else None
    is_copy = task.options.compression is Compression.NONE and not task.options.max_quarantined
    if content is None or not is_copy or content.checksum.bytes > task.options.target_bytes:
        return None
    return content


@dataclass(frozen=True, slots=True)
class _SourceShardWriter:
    stream: RowStream
    first: int
    target_bytes: int

    def begin(self) -> None:
        self.stream.seek(self.first)

    def fill(self, part: OpenShard) -> bool:
        return self.stream.fill(part, self.target_bytes)


def _read_frames(
    task: AppendTask, running: TaskContext, digest: RowsDigest | None, row: int
) -> Iterator[tuple[EncodedRows, int]]:
    """Yield blocks of records from a row on, encoded in parallel, each with the row after it."""

    def encode(chunk: Chunk) -> tuple[EncodedRows, Chunk]:
        return chunk.frames(), chunk

    records = 0
    chunks = task.source.chunks(task.schema, row)
    blocks = run_tasks(encode, chunks, workers=running.workers)
    for frames, chunk in blocks:
        invalid = [bad for bad in frames.refused if not bad.damage]
        if invalid and not task.options.max_quarantined:
            error = _make_invalid_records_error(
                f"{task.dataset}/{task.version}",
                tuple(f"{task.label}, {bad}" for bad in invalid[:_MAX_ROWS_LISTED]),
                len(invalid),
                chunk.end,
                source=task.label,
                complete=_is_exhausted(blocks),
            )
            first = invalid[0]
            error.path, error.record, error.feature = task.label, first.row, first.feature
            error.offset = first.offset
            if first.is_too_large:
                error.code = "record-too-large"
                error.set_hint(TOO_LARGE_HINT)
            raise error
        if digest is not None:
            digest.add(frames, chunk.end)
        records += len(frames.starts)
        running.report(chunk.position, records)
        yield frames, chunk.end


def _is_exhausted(blocks: Iterator[object]) -> bool:
    """Return True if no block follows, so that the invalid rows are complete."""
    try:
        return next(blocks, None) is None
    except ShardlineError:
        return False


def _validate_quarantined(name: str, sources: Sequence[AppendedSource], share: float) -> None:
    """Raise InvalidRecordsError if more than a share of the rows do not fit.

    Gaps of a salvaged file do not count: the caller accepts them.
    """
    rows = sum(source.rows for source in sources)
    invalid = sum(source.quarantined_rows - source.gaps for source in sources)
    if invalid > share * rows:
        reasons = tuple(reason for source in sources for reason in source.reasons)
        raise _make_invalid_records_error(name, reasons[:_MAX_ROWS_LISTED], invalid, rows, share)
    for source in sources:
        if source.quarantined_rows and not source.records and share < 1:
            # A source without a record would count as appended and never be retried.
            raise _make_invalid_records_error(
                name, source.reasons, source.quarantined_rows, source.rows, share
            )


def _make_invalid_records_error(
    name: str,
    reasons: tuple[str, ...],
    invalid: int,
    rows: int,
    share: float = 0.0,
    *,
    source: str = "",
    complete: bool = True,
) -> InvalidRecordsError:
    more = f"\n  ... and {invalid - len(reasons):,} more" if invalid > len(reasons) else ""
    allowed = f" (at most {share:.2%} may)" if share else ""
    lines = "\n  ".join(reasons)
    counts = format_count_of(invalid, rows, "row", complete=complete) + (
        f" of {source}" if source else ""
    )
    return InvalidRecordsError(
        f"{counts} do not fit the schema of {name}{allowed}, nothing was committed:"
        f"\n  {lines}{more}",
        reasons,
        invalid,
        rows,
        complete=complete,
        hint=Hint.of(
            "fix the rows, or quarantine such rows by raising ", Option("max_quarantined")
        ),
        version=name,
    )


_REJECTABLE_ERRORS = (CorruptFileError, SchemaMismatchError, InvalidRecordsError, SourceError)
_MAX_REASON_CHARS = 2000
_MAX_REASONS_LISTED = 3


@dataclass(frozen=True, slots=True)
class SourceRejection:
    """Source that cannot be appended, with the check that its shards would fail.

    `record`, `offset` and `detail` describe the fault in a corrupt TFRecord file. `code` is the
    code of the error. Log entries store it only for a source that has changed since it was appended
    in `entry`.
    """

    source: Identity
    check: str
    reason: str
    record: int | None = None
    offset: int | None = None
    detail: str | None = None
    code: str = "invalid-source"
    hint: Hint | None = None
    entry: int = 0

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Empty: a rejected source has no shards."""
        return ()

    @property
    def problem(self) -> SourceProblem:
        """Return the problem to store in a reject entry."""
        return SourceProblem(
            source=self.source.key,
            check=self.check,
            reason=self.reason,
            record=self.record,
            offset=self.offset,
            detail=self.detail,
            code=self.code if self.code == ChangedSourceError.code else None,
        )

    def to_dict(self) -> Json:
        """Serialize to the JSON of a report."""
        payload = self.problem.to_dict()
        del payload["source"]
        return payload


def _build_rejection(source: Identity, error: ShardlineError) -> SourceRejection:
    """Convert the error of a source to a rejection."""
    reason = str(error)
    if isinstance(error, InvalidRecordsError):
        reasons = "; ".join(str(row) for row in error.refused[:_MAX_REASONS_LISTED])
        counts = format_count_of(error.bad, error.rows, "row", complete=error.complete)
        reason = f"{counts} do not fit the schema: {reasons}"
    if len(reason) > _MAX_REASON_CHARS:
        reason = reason[: _MAX_REASON_CHARS - 1] + "…"
    check = INTEGRITY if isinstance(error, CorruptFileError | SourceError) else SCHEMA
    rejection = SourceRejection(source, check, reason, code=error.code, hint=error.hint)
    if not isinstance(error, CorruptFileError):
        return rejection
    detail = f"{error.kind}: {error.detail}"
    return replace(rejection, record=error.record, offset=error.offset, detail=detail)


def open_or_reject(
    sources: Sequence[Any], open_source: Callable[[Any], RecordSource], *, skip_invalid: bool
) -> tuple[list[RecordSource], list[SourceRejection]]:
    """Open sources. With `skip_invalid`, files that cannot be read are rejected."""
    opened, rejected = [], []
    for source in sources:
        try:
            opened.append(open_source(source))
        except SourceError as error:
            file = _find_file(source) if skip_invalid else None
            if file is None:
                raise
            rejected.append(_build_rejection(file.identity(), error))
    return opened, rejected


def _find_file(source: object) -> FileIdentity | None:
    """Return the existing file that a caller named, or None."""
    if isinstance(source, str) and "://" in source:
        file = open_stored_file(source)
        return FileIdentity(file) if file.store.info(file.name) is not None else None
    if isinstance(source, str | Path) and Path(source).is_file():
        return FileIdentity(Path(source))
    return None


def append_or_reject(task: AppendTask, running: TaskContext) -> AppendedSource | SourceRejection:
    """Write the shards of a source, or reject the source."""
    try:
        return append_source(task, running)
    except _REJECTABLE_ERRORS as error:
        return _build_rejection(task.identity, error)


def split_rejected(
    name: str,
    results: Sequence[AppendedSource | SourceRejection],
    share: float,
    *,
    skip_invalid: bool,
) -> tuple[list[AppendedSource], list[SourceRejection]]:
    """Separate the sources to commit from those with more than a share of invalid rows.

    Without `skip_invalid` the share applies to the rows of all sources, and InvalidRecordsError is
    raised.
    """
    written = [result for result in results if isinstance(result, AppendedSource)]
    rejected = [result for result in results if isinstance(result, SourceRejection)]
    if not skip_invalid:
        _validate_quarantined(name, written, share)
        return written, rejected
    accepted = []
    for source in written:
        try:
            _validate_quarantined(name, [source], share)
        except InvalidRecordsError as error:
            rejected.append(_build_rejection(source.source, error))
        else:
            accepted.append(source)
    return accepted, rejected
