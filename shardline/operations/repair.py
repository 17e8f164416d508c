"""Repair: recreate shards whose file is no longer the committed one.

A shard is recreated from the shards that it was rebuilt from, from its source, or from shards that
were rebuilt from it, if these still exist unchanged. Otherwise its intact records can be salvaged,
which loses the others and must be allowed. The new shard replaces the old one in an entry of its
own, which records the method and the lost records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from shardline.errors import (
    CorruptFileError,
    LogError,
    ObjectNotFoundError,
    SchemaMismatchError,
    SourceError,
    WrongShardError,
)
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Command, Hint, Option
from shardline.log.changes import Replace
from shardline.log.model import DERIVING_OPERATIONS, INTEGRITY, Attestation
from shardline.log.parameters import RepairParameters
from shardline.log.publication import has_check
from shardline.log.version import validate_version
from shardline.operations.check import MAX_DETAIL
from shardline.operations.inspect_shard import inspect_shard
from shardline.operations.shard_origin import (
    OldPositions,
    PieceShardWriter,
    RowShardWriter,
    SourceRows,
    find_copied_pieces,
    find_input_pieces,
    find_source_rows,
)
from shardline.operations.shard_writer import (
    ShardPlan,
    find_fresh_attempt,
    make_shard,
)
from shardline.provenance.commands import get_repair_command
from shardline.provenance.log_index import find_added_shard
from shardline.readers.shard_file import open_shard_file, rebuild_index
from shardline.report import Report
from shardline.sidecars.receipt import Receipt, list_quarantined_rows
from shardline.sources.source_identity import FileIdentity
from shardline.sources.tfrecord_source import TFRecordSource
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import hash_object
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.version import StoredVersion
    from shardline.operations.inspect_shard import ShardReport
    from shardline.operations.shard_slice import ShardSlice
    from shardline.operations.shard_writer import ShardWriter
    from shardline.schema.schema import Schema
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


RepairMethod: TypeAlias = Literal["inputs", "source", "copies", "salvage", "again"]
"""How a shard is recreated. "again" stands for the command that derived it, which is not run."""


@dataclass(frozen=True, slots=True)
class ShardRepair(Report):
    """A corrupt shard and its repair. `new_shard` is None if no record is left.

    If `entry` is None, nothing was done: in a dry run `method` is the first one to try, otherwise
    `lost_records` would be lost. `command` recreates a derived shard that a repair cannot recreate.
    """

    shard: Shard
    method: RepairMethod
    new_shard: Shard | None = None
    entry: Entry | None = None
    quarantine_file: str | None = None
    lost_records: int = 0
    command: Command | None = None

    def to_dict(self) -> Json:
        """Return the repair as JSON values."""
        return {
            "shard": self.shard.name,
            "records": self.shard.records,
            "method": self.method,
            "new_shard": self.new_shard and self.new_shard.to_dict(),
            "lost_records": self.lost_records,
            "command": self.command and str(self.command),
            "quarantine_file": self.quarantine_file,
            "entry": self.entry and self.entry.number,
            "snapshot": self.entry and self.entry.snapshot,
        }

    @property
    def changes(self) -> bool:
        """Return True if the new shard has other records than the old one should have."""
        return self.new_shard is None or self.new_shard.records != self.shard.records


@dataclass(frozen=True, slots=True)
class RepairReport(Report):
    """Result of a repair: the number of shards that were read, and the corrupt ones.

    `indexes` are the intact shards whose index was wrong and rewritten.
    """

    version: str
    read_shards: int
    repaired: tuple[ShardRepair, ...] = ()
    dry_run: bool = False
    indexes: tuple[str, ...] = ()

    @property
    def unrepaired(self) -> tuple[ShardRepair, ...]:
        """Shards that cannot be recreated with all their records, and did not change."""
        return tuple(
            repair
            for repair in self.repaired
            if repair.entry is None and (repair.lost_records or repair.method == "again")
        )


def repair(
    version: StoredVersion,
    *,
    shards: Iterable[str] | None = None,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> RepairReport:
    """Read shards of the latest snapshot, and recreate the corrupt ones.

    The log records first that they are corrupt, because older snapshots contain them too. Each
    recreated shard is an entry of its own. A wrong index of an intact shard is rewritten.

    Args:
        version: The version to repair.
        shards: Names of the shards to read. By default all.
        allow_data_loss: Salvage the intact records of a shard that cannot be recreated.
        dry_run: Change nothing.
        limits: Limits of what is read.
        executor: Runs the tasks. By default on threads.
        progress: Called with the progress of each task.

    Returns:
        The repairs, and the shards that did not change because records would be lost.

    Raises:
        WrongShardError: If the file of a shard may be another file, and the shard cannot be
            recreated. All other shards are repaired first.

    Example:
        repair(root["digits/v1"], dry_run=True)
    """
    validate_version(version=version)
    executor = executor or ThreadExecutor()
    version.refresh()
    chosen = _choose_shards(version, shards)
    inspections = [
        _InspectShardTask(version.store, version.shard_name(shard), shard, limits)
        for shard in chosen
    ]
    reports = list(executor.run(_inspect_task, inspections, progress))
    repairs: list[ShardRepair] = []
    recreated: list[tuple[ShardReport, RepairMethod, Receipt]] = []
    errors: list[WrongShardError] = []
    indexes = tuple(report.shard.name for report in reports if report.index_problem)
    for report in reports:
        shard = report.shard
        if report.index_problem and not dry_run:
            rebuild_index(open_shard_file(version.latest(), shard), limits)
        if not report.problems:
            continue
        if shard.base is not None or shard.virtual:
            command = get_repair_command(version, [shard])
            repairs.append(ShardRepair(shard, "again", command=command))
            continue
        try:
            task = replace(
                _plan_repair(version, report, limits),
                allow_data_loss=allow_data_loss,
                dry_run=dry_run,
            )
            (result,) = executor.run(repair_shard, [task], progress)
        except WrongShardError as error:
            errors.append(error)
            continue
        if result.receipt is None:
            is_derived = result.method == "again"
            command = get_repair_command(version, [shard]) if is_derived else None
            lost = result.lost_records
            repairs.append(ShardRepair(shard, result.method, lost_records=lost, command=command))
        else:
            recreated.append((report, result.method, result.receipt))
    _record_corruption(version, [report for report, _, _ in recreated])
    repairs += [
        _commit_repair(version, report.shard, method, receipt)
        for report, method, receipt in recreated
    ]
    if errors:
        raise _join_errors(errors)
    return RepairReport(version.name, len(chosen), tuple(repairs), dry_run, indexes)


def _join_errors(errors: Sequence[WrongShardError]) -> WrongShardError:
    """Join the errors of several shards; the hint and fields are those of the first."""
    first = errors[0]
    return WrongShardError(
        "\n".join(error.message for error in errors),
        code=first.code,
        hint=first.hint,
        path=first.path,
        version=first.version,
    )


def _choose_shards(version: StoredVersion, names: Iterable[str] | None) -> list[Shard]:
    """Return the shards of the latest snapshot with these names, or all."""
    live = version.latest().shards
    if names is None:
        return list(live)
    chosen = set(names)
    unknown = chosen - {shard.name for shard in live}
    if unknown:
        raise LogError(
            f"{version.latest()}: no shard {min(unknown)}",
            code="shard-not-found",
            path=min(unknown),
            version=version.name,
            snapshot=version.latest().number,
        )
    return [shard for shard in live if shard.name in chosen]


@dataclass(frozen=True, slots=True)
class _InspectShardTask:
    """A shard to read."""

    store: Store
    name: str
    shard: Shard
    limits: Limits

    step: ClassVar[str] = "reading"

    @property
    def label(self) -> str:
        return self.shard.name

    @property
    def size(self) -> int:
        return self.shard.bytes


def _inspect_task(task: _InspectShardTask, running: TaskContext) -> ShardReport:
    return inspect_shard(
        task.store,
        task.name,
        task.shard,
        limits=task.limits,
        index=True,
        progress=lambda done: running.report(done, 0),
    )


def _plan_repair(version: StoredVersion, report: ShardReport, limits: Limits) -> RepairTask:
    shard = report.shard
    digest = hash_object(version.store, report.name)
    if digest == shard.sha256:
        raise WrongShardError(
            f"{shard.name}: the committed file is invalid: {report.problems[0]}",
            code="committed-corrupt",
            hint=Hint.of(
                "if a record may be that large, raise ",
                Option("max_record"),
                ", else reject the snapshot that added the shard",
            ),
            path=report.name,
            version=version.name,
        )
    entry, original = find_added_shard(version, shard)
    pieces = find_input_pieces(version, shard, limits)
    rows = find_source_rows(version, shard, limits)
    can_recreate = pieces is not None or rows is not None
    task = RepairTask(
        version.store,
        version.log.dataset,
        version.log.version,
        report.name,
        shard,
        original,
        digest,
        report.read,
        version.schema,
        pieces,
        rows,
        None if can_recreate else find_copied_pieces(version, {shard.name, original.name}, limits),
        limits,
        is_derived=entry.operation in DERIVING_OPERATIONS,
    )
    return replace(task, attempt=find_fresh_attempt(version.state, task.plans, task.attempt))


def _record_corruption(version: StoredVersion, reports: Sequence[ShardReport]) -> None:
    """Record in the log which shards are corrupt, unless it is recorded already."""
    intervals = version.state.shard_history.named([report.shard.name for report in reports])
    attestations = [
        Attestation(
            INTEGRITY,
            passed=False,
            shards=(report.shard.name,),
            detail="; ".join(report.problems)[:MAX_DETAIL],
        )
        for report in reports
        if not has_check(version, intervals[report.shard.name].failed, INTEGRITY)
    ]
    if attestations:
        version.attest(attestations)


def _commit_repair(
    version: StoredVersion, shard: Shard, method: RepairMethod, receipt: Receipt
) -> ShardRepair:
    """Replace a shard by the new one."""
    lost = count_lost_records(shard, receipt.shard)
    parameters = RepairParameters(
        shard=shard.name,
        method=method,
        lost_records=lost,
        quarantine=list_quarantined_rows([receipt]),
    )
    added = [] if receipt.shard is None else [receipt.shard]
    change = Replace(
        removed=[shard.name],
        added=added,
        operation="repair",
        parameters=parameters.to_dict(),
        sidecars=receipt.sidecars,
    )
    entry = version.commit(change)
    return ShardRepair(shard, method, receipt.shard, entry, receipt.quarantine, lost)


@dataclass(frozen=True, slots=True)
class RepairedShard:
    """Result of a repair task. Without `receipt`, nothing was written, to keep `lost_records`."""

    method: RepairMethod
    receipt: Receipt | None = None
    lost_records: int = 0


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A shard to recreate, with its possible origins.

    Attributes:
        original: The shard as it was first written.
        digest: SHA-256 of its file, None without a file.
        is_readable: All records of the file are valid.
        pieces: What it was rebuilt from.
        rows: Rows of its source.
        copies: Slices of shards that were rebuilt from it.
        is_derived: A command can derive it again.
        allow_data_loss: Salvage the intact records.
    """

    store: Store
    dataset: str
    version: str
    name: str
    shard: Shard
    original: Shard
    digest: str | None
    is_readable: bool
    schema: Schema
    pieces: tuple[ShardSlice | SourceRows, ...] | None
    rows: SourceRows | None
    copies: tuple[ShardSlice, ...] | None
    limits: Limits
    is_derived: bool = False
    allow_data_loss: bool = False
    dry_run: bool = False
    attempt: int = 0

    step: ClassVar[str] = "repairing"

    @property
    def label(self) -> str:
        """Name for progress and messages."""
        return self.shard.name

    @property
    def size(self) -> int:
        """Number of bytes to write."""
        return self.shard.bytes

    @property
    def methods(self) -> tuple[RepairMethod, ...]:
        """Methods that recreate all records, the best one first."""
        origins: dict[RepairMethod, object] = {
            "inputs": self.pieces,
            "source": self.rows,
            "copies": self.copies,
        }
        return tuple(method for method, origin in origins.items() if origin is not None)

    @property
    def plans(self) -> list[ShardPlan]:
        """Plans of all shards that may be written."""
        return [self.plan(method) for method in (*self.methods, "salvage")]

    def plan(self, method: RepairMethod) -> ShardPlan:
        """Return the plan of the shard that a method writes."""
        identity: Json = {"operation": "repair", "shard": self.shard.name, "how": method}
        if method == "salvage":
            identity["found"] = self.digest
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

    def get_writer(self, method: RepairMethod, running: TaskContext) -> ShardWriter:
        """Return the writer of a method."""
        if method in {"inputs", "copies"}:
            pieces = (self.pieces if method == "inputs" else self.copies) or ()
            return PieceShardWriter(self.store, pieces, self.schema, self.limits, running)
        if method == "source" and self.rows is not None:
            return RowShardWriter(self.rows, self.schema, running)
        positions = OldPositions.of(self.store, self.name, self.shard)
        return RowShardWriter(
            self.salvageable, self.schema, running, keep_refused=True, positions=positions
        )

    @property
    def salvageable(self) -> SourceRows:
        """The intact records of the file."""
        source = TFRecordSource(
            FileIdentity(StoredFile(self.store, self.name)),
            self.limits,
            salvage=True,
            compression=Compression(self.shard.compression),
        )
        return SourceRows(source, 0, None)


def repair_shard(task: RepairTask, running: TaskContext) -> RepairedShard:
    """Recreate a shard by the first method that gives all records, else salvage the intact ones.

    A salvage that loses records writes nothing, unless the task allows it.
    """
    if task.dry_run and task.methods:
        return RepairedShard(task.methods[0])
    for method in task.methods:
        writer = task.get_writer(method, running)
        try:
            receipt = make_shard(task.plan(method), writer, attempt=task.attempt)
        except (CorruptFileError, ObjectNotFoundError, SourceError, WrongShardError):
            continue
        # A copy may be one of the shard that an earlier repair wrote.
        expected = (task.original, task.shard) if method == "copies" else (task.original,)
        if receipt.shard is not None and any(_is_same(receipt.shard, shard) for shard in expected):
            return RepairedShard(method, receipt)
    lost = task.shard.records - _count_intact(task)
    if task.dry_run or (lost and not task.allow_data_loss):
        return RepairedShard("again" if task.is_derived and lost else "salvage", None, lost)
    receipt = _salvage_shard(task, running)
    if not lost and (receipt.shard is None or not _is_same(receipt.shard, task.shard)):
        raise _make_unrecoverable(task)
    return RepairedShard("salvage", receipt, count_lost_records(task.shard, receipt.shard))


def count_lost_records(old: Shard, new: Shard | None) -> int:
    """Return the number of lost records. A shard may also regain those of an earlier repair."""
    return max(0, old.records - (new.records if new else 0))


def _count_intact(task: RepairTask) -> int:
    """Count the intact records of a shard: none if the file is another one."""
    if _is_missing(task):
        return 0
    try:
        if task.is_readable:
            raise _make_unrecoverable(task)
        chunks = task.salvageable.source.chunks(task.schema, 0)
        count = sum(len(chunk.frames().starts) for chunk in chunks)
        if count > task.shard.records:
            raise _make_unrecoverable(task)
    except (SchemaMismatchError, WrongShardError):
        if task.is_derived and not task.allow_data_loss:
            return 0
        raise _make_unrecoverable(task) from None
    return count


def _is_same(new: Shard, old: Shard) -> bool:
    """Return True if two shards have the same records. GZIP output may differ."""
    if new.compression == "none":
        return new.sha256 == old.sha256
    return new.records == old.records


def _salvage_shard(task: RepairTask, running: TaskContext) -> Receipt:
    """Write the intact records of a shard; nothing if its file is missing or empty."""
    if _is_missing(task):
        return Receipt((0, 0), last=True)
    writer = task.get_writer("salvage", running)
    return make_shard(task.plan("salvage"), writer, attempt=task.attempt)


def _is_missing(task: RepairTask) -> bool:
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
