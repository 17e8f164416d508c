"""One source becomes shards: the task of an append, which any engine can run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.arguments import TARGET_BYTES, validate_minimum, validate_share
from shardline.errors import (
    ChangedSourceError,
    CorruptFileError,
    InvalidRecordsError,
    SchemaMismatchError,
    ShardlineError,
    SourceError,
)
from shardline.execution.threads import run_tasks
from shardline.hints import Hint, Option
from shardline.log.model import INTEGRITY, SCHEMA
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


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """How shards are made. `max_quarantined` is how many of the rows may be refused, of 1.

    `format` and `max_record_bytes` are how the source is read.
    """

    target_bytes: int = TARGET_BYTES
    compression: Compression = Compression.NONE
    max_quarantined: float = 0.0
    salvage: bool = False
    format: str | None = None
    max_record_bytes: int = DEFAULT_LIMITS.max_record_bytes

    def __post_init__(self) -> None:
        """Refuse what no shard can be made by."""
        validate_shard_compression(self.compression)
        validate_minimum("target_bytes", self.target_bytes, 1)
        validate_share("max_quarantined", self.max_quarantined)

    def to_dict(self) -> Json:
        """The options as an entry tells them: enough to make the shards once more."""
        told: Json = {"target_bytes": self.target_bytes, "compression": self.compression.value}
        told |= {"salvage": True} if self.salvage else {}
        told |= {"format": self.format} if self.format is not None else {}
        if self.max_record_bytes != DEFAULT_LIMITS.max_record_bytes:
            told["max_record_bytes"] = self.max_record_bytes
        return told

    @classmethod
    def from_dict(cls, told: Json) -> AppendOptions:
        """Read them back from the parameters of an append."""
        return cls(
            told["target_bytes"],
            Compression(told["compression"]),
            salvage=bool(told.get("salvage")),
            format=told.get("format"),
            max_record_bytes=told.get("max_record_bytes", DEFAULT_LIMITS.max_record_bytes),
        )


def make_append_identity(source: str, fingerprint: str, options: AppendOptions) -> Json:
    """What the names of all shards of a source depend on, whoever makes them."""
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
    """A source to make shards of.

    `run` tells one append from others, where the identity of the source does not tell its content:
    what another one left is not used then.
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
        """What people call it."""
        return self.source.label

    @property
    def size(self) -> int | None:
        """How many bytes it reads."""
        return self.source.size

    @cached_property
    def first_plan(self) -> ShardPlan:
        """The first of its shards; most sources have no other."""
        return self.plan(0, 0)

    def plan(self, part: int, first: int) -> ShardPlan:
        """One of its shards. The name depends on all that can make a difference to its bytes."""
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
    """What was made of one source: its shards, and how many of its rows went to quarantine.

    `gaps` of those are the corrupt parts of a file that was salvaged. `sidecars` are the digests of
    the files written with the shards, by their names. `digest` is that of the rows of a batch,
    whose name does not tell them. `unsynced` are the files that `Store.sync` has to make durable
    before the landing is committed.
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
        """How many records it gave."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes its shards have."""
        return sum(shard.bytes for shard in self.shards)


def append_source(task: AppendTask, running: TaskContext) -> AppendedSource:
    """Do one task: make the shards of a source, or find those that are made already.

    They are not durable yet: many small files are synced together, before they are committed.
    """
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
                expected=_predict_content(task),
                unsynced=unsynced,
            )
            filling = _SourceShardWriter(stream, first, task.options.target_bytes)
            receipts.append(make_shard(plan, filling, attempt=task.attempt))
    finally:
        stream.close()
    told = tuple(f"{task.label}, {why}" for receipt in receipts for why in receipt.told)
    return AppendedSource(
        task.identity,
        tuple(receipt.shard for receipt in receipts if receipt.shard is not None),
        receipts[-1].end,
        sum(receipt.refused_rows for receipt in receipts),
        sum(receipt.damaged for receipt in receipts),
        tuple(receipt.quarantine for receipt in receipts if receipt.quarantine is not None),
        told[:_MAX_ROWS_LISTED],
        {name: digest for receipt in receipts for name, digest in receipt.sidecars.items()},
        None if digest is None else digest.hexdigest(),
        tuple(unsynced),
    )


def append_small_sources(
    tasks: Sequence[AppendTask], running: TaskContext
) -> list[AppendedSource | None]:
    """Do the tasks of small files at once; None for each that `land` has to do.

    It writes the same files as `land`. It leaves a source to `land` where a row does not fit or
    gives no record, and where a file of its shard exists.
    """
    landings: list[AppendedSource | None] = [None] * len(tasks)
    first = tasks[0]
    if first.options.compression is not Compression.NONE or first.options.salvage:
        return landings
    made: list[tuple[int, AppendedSource, tuple[NewObject, ...]]] = []
    for at, found in enumerate(read_small_files([task.source for task in tasks], first.schema)):
        task = tasks[at]
        if found is not None and len(found.frames.data) <= task.options.target_bytes:
            shard = build_small_shard(task.first_plan, task.attempt, found.frames, found.rows)
            made.append((at, _append_small_source(task, found.rows, *shard), shard[1]))
    running.tell(0, 0)
    created = first.store.create_many([files for _, _, files in made])
    done = records = 0
    for (at, landing, _), is_new in zip(made, created, strict=True):
        if is_new:
            landings[at] = landing
            done, records = done + (landing.source.size or 0), records + landing.records
    running.tell(done, records)
    return landings


def _append_small_source(
    task: AppendTask, rows: int, receipt: Receipt, files: Sequence[NewObject]
) -> AppendedSource:
    return AppendedSource(
        task.identity,
        () if receipt.shard is None else (receipt.shard,),
        rows,
        sidecars=receipt.sidecars,
        unsynced=tuple(file.name for file in files if not file.derived),
    )


def _predict_content(task: AppendTask) -> FileContent | None:
    """What the only shard of a source should become: the file itself, where all of it lands.

    A shard that becomes something else, since the file is another by then, is made once more.
    """
    content = task.source.content if isinstance(task.source, TFRecordSource) else None
    whole = task.options.compression is Compression.NONE and not task.options.max_quarantined
    if content is None or not whole or content.checksum.bytes > task.options.target_bytes:
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
    """The records of a source from a row on, made side by side, with the row behind each lot."""

    def make(chunk: Chunk) -> tuple[EncodedRows, Chunk]:
        return chunk.frames(), chunk

    records = 0
    chunks = task.source.chunks(task.schema, row)
    lots = run_tasks(make, chunks, workers=running.workers)
    for frames, chunk in lots:
        bad = [one for one in frames.refused if not one.damage]
        if bad and not task.options.max_quarantined:
            told = tuple(f"{task.label}, {one}" for one in bad[:_MAX_ROWS_LISTED])
            error = make_invalid_records_error(
                f"{task.dataset}/{task.version}",
                told,
                len(bad),
                chunk.end,
                source=task.label,
                complete=_is_at_end(lots),
            )
            error.path, error.record, error.feature = task.label, bad[0].row, bad[0].feature
            error.offset = bad[0].offset
            if bad[0].is_too_large:
                error.code = "record-too-large"
                error.set_hint(TOO_LARGE_HINT)
            raise error
        if digest is not None:
            digest.add(frames, chunk.end)
        records += len(frames.starts)
        running.tell(chunk.position, records)
        yield frames, chunk.end


def _is_at_end(lots: Iterator[object]) -> bool:
    """Return True if nothing follows: then what was found so far is all that there is."""
    try:
        return next(lots, None) is None
    except ShardlineError:
        return False


def validate_quarantine_share(name: str, landings: Sequence[AppendedSource], share: float) -> None:
    """Refuse to commit if more than a share of the rows do not fit.

    What was salvaged of a damaged file was asked for, whatever that cost.
    """
    rows = sum(landing.rows for landing in landings)
    bad = sum(landing.quarantined_rows - landing.gaps for landing in landings)
    if bad > share * rows:
        told = [why for landing in landings for why in landing.reasons]
        raise make_invalid_records_error(name, tuple(told[:_MAX_ROWS_LISTED]), bad, rows, share)
    for landing in landings:
        if landing.quarantined_rows and not landing.records and share < 1:
            # It would count as landed, and never come in again.
            raise make_invalid_records_error(
                name, landing.reasons, landing.quarantined_rows, landing.rows, share
            )


def make_invalid_records_error(
    name: str,
    told: tuple[str, ...],
    bad: int,
    rows: int,
    share: float = 0.0,
    *,
    source: str = "",
    complete: bool = True,
) -> InvalidRecordsError:
    """The error to raise for rows that do not fit, of all sources or of a single one."""
    more = f"\n  ... and {bad - len(told):,} more" if bad > len(told) else ""
    allowed = f" (at most {share:.2%} may)" if share else ""
    lines = "\n  ".join(told)
    counts = format_count_of(bad, rows, "row", complete=complete) + (
        f" of {source}" if source else ""
    )
    return InvalidRecordsError(
        f"{counts} do not fit the schema of {name}{allowed}, nothing was committed:"
        f"\n  {lines}{more}",
        told,
        bad,
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
    """A source that cannot land, and why. `check` is the one that its shards would have failed.

    Of a damaged TFRecord file, `record` and `offset` tell where, and `detail` only what. `code`
    is that of the error; entries store it only of a source that has changed since it landed, which
    was in `entry`.
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
        """It has none."""
        return ()

    def to_dict(self) -> Json:
        """The reason as an entry tells it."""
        told: Json = {"check": self.check, "reason": self.reason}
        if self.record is not None:
            told |= {"record": self.record, "offset": self.offset, "detail": self.detail}
        return {**told, "code": self.code} if self.code == ChangedSourceError.code else told

    def with_hint(self, option: Option) -> SourceRejection:
        """The same with one more option to set."""
        more = Hint.of(self.hint or "", "; to have the same content twice also set ", option)
        return replace(self, hint=more)


def make_rejection(source: Identity, error: ShardlineError) -> SourceRejection:
    """What an error says of a source."""
    why = str(error)
    if isinstance(error, InvalidRecordsError):
        told = "; ".join(str(one) for one in error.refused[:_MAX_REASONS_LISTED])
        counts = format_count_of(error.bad, error.rows, "row", complete=error.complete)
        why = f"{counts} do not fit the schema: {told}"
    why = why if len(why) <= _MAX_REASON_CHARS else why[: _MAX_REASON_CHARS - 1] + "…"
    if isinstance(error, CorruptFileError):
        what = f"{error.kind}: {error.detail}"
        place = (error.record, error.offset)
        return SourceRejection(source, INTEGRITY, why, *place, what, error.code, error.hint)
    check = INTEGRITY if isinstance(error, SourceError) else SCHEMA
    return SourceRejection(source, check, why, code=error.code, hint=error.hint)


def open_or_reject(
    sources: Sequence[Any], opened: Callable[[Any], RecordSource], *, skip_invalid: bool
) -> tuple[list[RecordSource], list[SourceRejection]]:
    """The sources, and with `skip_invalid` the files that are nothing that can be read."""
    good, refused = [], []
    for one in sources:
        try:
            good.append(opened(one))
        except SourceError as error:
            origin = _get_file(one) if skip_invalid else None
            if origin is None:
                raise
            refused.append(make_rejection(origin.identity(), error))
    return good, refused


def _get_file(what: object) -> FileIdentity | None:
    """The file that a caller named; None if that is no file, or is not there."""
    if isinstance(what, str) and "://" in what:
        file = open_stored_file(what)
        return FileIdentity(file) if file.store.info(file.name) is not None else None
    if isinstance(what, str | Path) and Path(what).is_file():
        return FileIdentity(Path(what))
    return None


def append_or_reject(task: AppendTask, running: TaskContext) -> AppendedSource | SourceRejection:
    """Make the shards of a source, or say why that cannot be."""
    try:
        return append_source(task, running)
    except _REJECTABLE_ERRORS as error:
        return make_rejection(task.identity, error)


def split_rejected(
    name: str, made: Sequence[AppendedSource | SourceRejection], share: float, *, skip_invalid: bool
) -> tuple[list[AppendedSource], list[SourceRejection]]:
    """What may be committed, and what not: more than a share of its rows do not fit.

    Without `skip_invalid` the share is one of all rows, and InvalidRecordsError is raised.
    """
    landings = [one for one in made if isinstance(one, AppendedSource)]
    refused = [one for one in made if isinstance(one, SourceRejection)]
    if not skip_invalid:
        validate_quarantine_share(name, landings, share)
        return landings, refused
    kept = []
    for landing in landings:
        try:
            validate_quarantine_share(name, [landing], share)
        except InvalidRecordsError as error:
            refused.append(make_rejection(landing.source, error))
        else:
            kept.append(landing)
    return kept, refused
