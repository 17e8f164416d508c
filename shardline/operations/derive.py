"""Derive a version from others: reuse its shards, compute the rest, commit one entry.

A derived version follows its inputs. The name of a shard is a hash of everything that its bytes
depend on, so a planned shard that the version has, or had, is reused.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from shardline.errors import (
    ConflictError,
    InvalidArgumentError,
    SchemaMismatchError,
    TombstonedShardError,
    UDFError,
)
from shardline.execution.executor import ShardTask
from shardline.hints import Hint, Option
from shardline.log.changes import Derive, diff_shards, validate_not_tombstoned
from shardline.log.model import RECEIPT, ROWS, Shard, get_quarantine_name
from shardline.log.parameters import DerivedParameters, EraseParameters, FunctionDigest
from shardline.operations.partial_commit import format_entry_label, report_partial_commit
from shardline.operations.shard_writer import find_fresh_attempt, get_stem
from shardline.provenance.log_index import ERASE
from shardline.provenance.pins import pin_inputs, release_superseded_pins
from shardline.report import Report
from shardline.schema.comparison import compare
from shardline.sidecars.receipt import list_quarantined_rows
from shardline.sidecars.sidecar_reader import SidecarReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.log import Log
    from shardline.log.model import Added, Checks
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.state import State
    from shardline.log.version import DerivedFrom, StoredVersion
    from shardline.operations.shard_writer import ShardPlan
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.udf.udf_declaration import UDF


_ROUNDS = 8
_RETRY = Hint.of("retry on the latest snapshot")


class DerivedTask(ShardTask, Protocol):
    """A task that writes a shard of a derived version."""

    @property
    def plan(self) -> ShardPlan:
        """Plan of the shard."""
        ...

    @property
    def attempt(self) -> int:
        """Number of the attempt, which is part of the name of the shard."""
        ...

    def at(self, attempt: int) -> Self:
        """Return the task for another attempt."""
        ...


Task = TypeVar("Task", bound=DerivedTask)
Parameters = TypeVar("Parameters", bound=DerivedParameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation(Generic[Task, Parameters]):
    """The content that a version is to have.

    Attributes:
        into: The version to write, which may be new.
        operation: Name of the operation in the log.
        schema: Schema of the version.
        checks: Checks of a new version.
        origins: The snapshots to derive from.
        plan: Returns the shards for a state of the log, in order: existing ones, or tasks.
        make: Executes a task.
        prepare: Validates the tasks before the first is executed.
        accept: Validates the written shards before the commit.
        parameters: Parameters of the entry.
        describe: Returns the parameters with a description of the shards that the entry adds.
        is_pinned: The shards cannot be read without those of the origins, which are pinned.
        udfs: Functions and tables that compute the shards. A function must be unchanged.
    """

    into: StoredVersion
    operation: str
    schema: Schema
    checks: Checks
    origins: tuple[DerivedFrom, ...]
    plan: Callable[[State], Sequence[Shard | Task]]
    make: Callable[[Task, TaskContext], Receipt]
    prepare: Callable[[Sequence[Task]], None] | None = None
    accept: Callable[[Sequence[Receipt]], None] | None = None
    parameters: Parameters
    describe: Callable[[Parameters, Sequence[Added]], Parameters] | None = None
    is_pinned: bool = False
    udfs: tuple[UDF, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeriveReport(Report):
    """Result of an operation that derives a version.

    `entry` is None if nothing was to do. `written` are the new shards, `reused` those that existed.
    `inputs` are the snapshots that were read.
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("source",)
    """Names of the inputs in the JSON."""

    version: str
    inputs: tuple[StoredSnapshot, ...] = field(repr=False)
    entry: Entry | None = None
    written: tuple[Shard, ...] = ()
    reused: tuple[Shard, ...] = ()
    created: bool = False
    receipts: tuple[Receipt, ...] = field(default=(), repr=False)

    @classmethod
    def extend(cls, report: DeriveReport, **more: Any) -> Self:  # noqa: ANN401 - fields of a subclass
        """Return a report of a subclass, with its own fields added."""
        known = {item.name: getattr(report, item.name) for item in fields(DeriveReport)}
        return cls(**known, **more)

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "version": self.version,
            **{
                name: snapshot.to_dict()
                for name, snapshot in zip(self.INPUTS, self.inputs, strict=True)
            },
            "created": self.created,
            "entry": self.entry and self.entry.number,
            "snapshot": self.snapshot,
            "records": self.records,
            "bytes": self.bytes,
            "shards": [shard.to_dict() for shard in self.written],
            "reused_shards": len(self.reused),
        }

    @property
    def source(self) -> StoredSnapshot:
        """The snapshot that was read, the left one of two."""
        return self.inputs[0]

    @property
    def snapshot(self) -> int | None:
        """Number of the new snapshot, None without an entry."""
        return None if self.entry is None else self.entry.snapshot

    @property
    def recovered(self) -> int:
        """Number of shards that an interrupted run had written."""
        return 0 if self.entry is None else self.entry.read(DerivedParameters).recovered

    @property
    def records(self) -> int:
        """Number of records in the new shards."""
        return sum(shard.records for shard in self.written)

    @property
    def bytes(self) -> int:
        """Number of bytes in the new shards."""
        return sum(shard.bytes for shard in self.written)


def derive(
    work: Derivation[Task, Parameters], executor: Executor, progress: ProgressListener | None = None
) -> DeriveReport:
    """Write the missing shards of a version and commit its new content.

    Plans again for the difference if another writer commits meanwhile. Raises SchemaMismatchError
    if the version has another schema, ConflictError if it contains appended records.
    """
    into = work.into
    created = False
    computed: set[Shard | None] = set()
    functions = describe_functions(work.udfs)
    validate_not_erased(work.origins)
    for _ in range(_ROUNDS):
        into.refresh()
        validate_same_schema(into, work.schema)
        validate_nothing_appended(into, work.operation)
        head = into.state.snapshot
        targets = work.plan(into.state)
        tasks = [target for target in targets if not isinstance(target, Shard)]
        if tasks:
            validate_unchanged_functions(into, work.operation, work.udfs)
        if work.prepare is not None:
            work.prepare(tasks)
        receipts = make_fresh_shards(into, tasks, work.make, executor, progress)
        if work.accept is not None:
            work.accept(receipts)
        remaining = iter(receipts)
        shards = [
            target if isinstance(target, Shard) else next(remaining).shard for target in targets
        ]
        added, removed = diff_shards(into.state, [shard for shard in shards if shard is not None])
        seen_entries = validate_not_erased(work.origins)
        # Before the pins: a pin by a version without a log is a sign that the log was lost.
        created |= not into.exists and into.create(work.schema, work.checks) is not None
        if work.is_pinned:
            pin_inputs(into, work.origins)
            seen_entries = validate_not_erased(work.origins)
        reused = tuple(target for target in targets if isinstance(target, Shard))
        computed |= {receipt.shard for receipt in receipts if not receipt.is_recovered}
        recovered = sum(
            receipt.is_recovered and receipt.shard not in computed for receipt in receipts
        )
        parameters = replace(
            work.parameters,
            computed=len(receipts) - recovered,
            reused=len(reused),
            recovered=recovered,
            functions=functions,
            quarantine=list_quarantined_rows(receipts),
        )
        if work.describe is not None:
            parameters = work.describe(parameters, added)
        change = Derive(
            head=head,
            removed=removed,
            added=added,
            operation=work.operation,
            parameters=parameters.to_dict(),
            inputs=tuple(origin.input() for origin in work.origins),
            sidecars=_collect_sidecars(into, [item.shard for item in added], receipts),
        )
        try:
            entry = into.commit(change)
        except (TombstonedShardError, ConflictError):
            continue  # another writer committed: plan again for the difference
        written = tuple(receipt.shard for receipt in receipts if receipt.shard is not None)
        with report_partial_commit(
            work.operation, [] if entry is None else [format_entry_label(entry)]
        ):
            if entry is not None:
                roll_back_erased(into, entry, written, zip(work.origins, seen_entries, strict=True))
            if work.is_pinned:
                _renew_pins(into, entry, work.origins)
                release_superseded_pins(into, work.origins)
        return DeriveReport(
            version=into.name,
            inputs=tuple(origin.snapshot for origin in work.origins),
            entry=entry,
            written=written,
            reused=reused,
            created=created,
            receipts=tuple(receipts),
        )
    raise ConflictError(
        f"{into.name}: other writers committed during each of {_ROUNDS} attempts",
        hint=Hint.of("retry when the other writers have finished"),
        version=into.name,
    )


def _collect_sidecars(
    into: StoredVersion, added: Sequence[Shard], receipts: Sequence[Receipt]
) -> Json:
    """Return the digests of the sidecars of new shards, and of shards that are added again."""
    new = {name: digest for receipt in receipts for name, digest in receipt.sidecars.items()}
    known = [shard.name for shard in added if into.state.has_shard_name(shard.name)]
    names = [f"{shard}{suffix}" for shard in known for suffix in (RECEIPT, ROWS)]
    names += [name for name in map(get_quarantine_name, known) if name is not None]
    return {**SidecarReader(into).digests(names), **new} if names else new


def validate_not_erased(origins: Sequence[DerivedFrom]) -> list[int]:
    """Return the number of the latest entry of each origin.

    Raises TombstonedShardError if records of an origin were erased.
    """
    latest_entries = []
    for origin in origins:
        origin.version.refresh()
        subject = f"cannot derive from snapshot {origin.snapshot.number}: "
        validate_not_tombstoned(origin.version.state, origin.snapshot.shards, subject)
        latest_entries.append(origin.version.state.number)
    return latest_entries


def roll_back_erased(
    into: StoredVersion,
    entry: Entry,
    written: Sequence[Shard],
    origins: Iterable[tuple[DerivedFrom, int]],
) -> None:
    """Reject what was committed if records that it was derived from were erased meanwhile.

    No commit sees two logs at once. A derivation reads the logs of its origins before and after
    its commit, an erasure reads all logs after its own: whichever is second sees the other.

    Args:
        into: The derived version.
        entry: The entry of the derivation.
        written: The shards that it added.
        origins: Each origin with the number of the latest entry seen before the commit.

    Raises:
        TombstonedShardError: If a shard of an origin was erased.
    """
    for origin, seen_entry in origins:
        names = {shard.name for shard in origin.snapshot.shards}
        later = origin.version.log.entries(seen_entry + 1)
        if any(item.operation == ERASE and names & set(item.tombstones) for item in later):
            break
    else:
        return
    reason = f"records of {origin.snapshot} were erased while it was derived"
    into.reject(entry.snapshot, reason=reason)
    rejected = tuple(shard.name for shard in written)
    _record_tombstones(into, rejected)
    raise TombstonedShardError(
        f"{into.name}: {reason}: rejected snapshot {entry.snapshot} and its new shards",
        rejected,
        hint=_RETRY,
        version=into.name,
        snapshot=entry.snapshot,
    )


def _renew_pins(into: StoredVersion, entry: Entry | None, origins: Sequence[DerivedFrom]) -> None:
    """Pin the origins of a commit again: vacuum may release a pin that nothing needs yet.

    Rejects the commit and raises TombstonedShardError if vacuum has deleted the shards.
    """
    try:
        pin_inputs(into, origins)
    except TombstonedShardError as error:
        if entry is None:
            raise
        into.reject(entry.snapshot, reason="vacuum deleted its inputs while it was derived")
        raise TombstonedShardError(
            f"{into.name}: vacuum deleted its inputs meanwhile: rejected snapshot {entry.snapshot}",
            error.names,
            hint=_RETRY,
            version=into.name,
            snapshot=entry.snapshot,
        ) from error


def _record_tombstones(into: StoredVersion, names: Sequence[str]) -> None:
    """Record that shards never come back: they contain records that were erased in an origin."""
    parameters = EraseParameters(erasure=secrets.token_hex(16)).to_dict()
    for attempt in range(_ROUNDS):
        into.refresh()
        try:
            into.commit(
                Derive(
                    head=into.state.snapshot,
                    removed=(),
                    added=(),
                    operation=ERASE,
                    parameters=parameters,
                    tombstones=names,
                )
            )
        except ConflictError:
            if attempt + 1 == _ROUNDS:
                raise
        else:
            return


def make_fresh_shards(
    version: StoredVersion,
    tasks: Sequence[Task],
    make: Callable[[Task, TaskContext], Receipt],
    executor: Executor,
    progress: ProgressListener | None,
) -> list[Receipt]:
    """Write shards under names that the log of the version does not know."""
    tasks = [_assign_fresh_name(version.state, task) for task in tasks]
    while True:
        receipts = list(executor.run(make, tasks, progress))
        known = [
            receipt.shard is not None and version.state.has_shard_name(receipt.shard.name)
            for receipt in receipts
        ]
        if not any(known):
            return receipts
        tasks = [
            _assign_fresh_name(version.state, task.at(task.attempt + is_known))
            for task, is_known in zip(tasks, known, strict=True)
        ]


def _assign_fresh_name(state: State, task: Task) -> Task:
    return task.at(find_fresh_attempt(state, [task.plan], task.attempt))


def reuse_shards(state: State, tasks: Sequence[Task]) -> list[Shard | Task]:
    """Return each task, or its shard if the version has or had it and no check failed."""
    live = state.shard_history.at(state.snapshot)
    shards = {
        get_stem(interval.shard.name): interval.shard for interval in live if not interval.failed
    }
    stems = [task.plan.stem for task in tasks]
    missing = set(stems) - set(shards)
    if missing and state.snapshot:
        shards |= _list_former_shards(state, missing)
    return [shards.get(stem, task) for stem, task in zip(stems, tasks, strict=True)]


def _list_former_shards(state: State, stems: set[str]) -> dict[str, Shard]:
    """Return shards that are not live any more, but neither rejected nor vacuumed."""
    names = [name for name in state.shard_history.names().to_pylist() if get_stem(name) in stems]
    known = state.shard_history.named(names) if names else {}
    return {
        get_stem(name): interval.shard for name, interval in known.items() if not interval.failed
    }


def apply_rebuilds(log: Log, state: State, targets: Sequence[Shard | Task]) -> list[Shard | Task]:
    """Return the targets, with shards that were rebuilt in place instead of their inputs.

    Otherwise a version that follows an input would undo each rebuild in place.
    """
    stems = [
        get_stem(target.name) if isinstance(target, Shard) else target.plan.stem
        for target in targets
    ]
    live = {
        interval.shard.name: interval
        for interval in state.shard_history.at(state.snapshot)
        if not interval.failed
    }
    others = [interval for name, interval in live.items() if get_stem(name) not in set(stems)]
    applied = list(targets)
    for number in sorted({interval.added_entry for interval in others}):
        entry = log.entry(number)
        rebuilt = [live.get(item.shard.name) for item in entry.added]
        inputs = _list_rebuilt_stems(log, state, entry)
        if not inputs or None in rebuilt or inputs[0] not in stems:
            continue
        first = stems.index(inputs[0])
        if stems[first : first + len(inputs)] == inputs:
            applied[first : first + len(inputs)] = [
                interval.shard for interval in rebuilt if interval is not None
            ]
            stems[first : first + len(inputs)] = [""] * len(rebuilt)
    return applied


def _list_rebuilt_stems(log: Log, state: State, entry: Entry) -> list[str]:
    """Return the stems of the inputs of a rebuild in place; none for other entries."""
    if entry.operation != "rebuild" or entry.inputs:
        return []
    intervals = state.shard_history.named(entry.removed)
    stems = []
    for name in entry.removed:
        added_by = log.entry(intervals[name].added_entry)
        stems += _list_rebuilt_stems(log, state, added_by) or [get_stem(name)]
    return list(dict.fromkeys(stems))


def validate_same_schema(into: StoredVersion, schema: Schema) -> None:
    """Raise SchemaMismatchError if a version exists with another schema."""
    if into.exists and into.schema.fingerprint != schema.fingerprint:
        raise SchemaMismatchError(
            f"{into.name}: the version exists with other features:\n"
            + "\n".join(line.rpartition(": ")[0] for line in compare(into.schema, schema).lines()),
            hint=Hint.of("set ", Option("into"), " to a new version"),
            version=into.name,
        )


def validate_nothing_appended(into: StoredVersion, operation: str) -> None:
    """Raise ConflictError if a version has appended records, which nothing would bring back."""
    if next(into.state.sources.items(), None) is not None:
        raise ConflictError(
            f"{into.name}: cannot {operation} over appended records",
            code="appended-version",
            hint=Hint.of("choose a version that contains derived records only"),
            version=into.name,
        )


def validate_same_root(into: StoredVersion, base: StoredVersion) -> None:
    """Raise InvalidArgumentError if two versions are in different roots."""
    if into.store.uri != base.store.uri:
        raise InvalidArgumentError(
            f"{into.name}: root {into.store.uri} differs from {base.store.uri} of {base.name}",
            code="root-mismatch",
            hint=Hint.of(f"write {into.name} into the root of {base.name}, then copy it"),
            version=into.name,
        )


def describe_functions(udfs: Iterable[UDF]) -> tuple[FunctionDigest, ...]:
    """Return name, code version and source digest of the functions that have them."""
    functions: list[FunctionDigest] = []
    for udf in udfs:
        identity = udf.identity()
        digest = getattr(udf, "source_digest", lambda: None)()
        if identity is not None and digest is not None:
            function, code = identity["function"], identity["code"]
            functions.append(FunctionDigest(function=function, code=code, digest=digest))
    return tuple(functions)


def get_checked_digests(udfs: Iterable[UDF]) -> tuple[str, ...]:
    """Return the source digests of the functions with `check_source`."""
    checked = [udf for udf in udfs if getattr(udf, "check_source", True)]
    return tuple(function.digest for function in describe_functions(checked))


def validate_unchanged_functions(into: StoredVersion, operation: str, udfs: Sequence[UDF]) -> None:
    """Raise UDFError if the latest results of a version came from another source text.

    Accepts older entries without digests, and digests of other methods.
    """
    functions = describe_functions(udf for udf in udfs if getattr(udf, "check_source", True))
    if not functions or not into.state.snapshot:
        return
    known = {
        (function.function, function.code): function.digest
        for function in _find_latest_functions(into, operation)
    }
    for function in functions:
        before = known.get((function.function, function.code), function.digest)
        if before == function.digest or _get_method(before) != _get_method(function.digest):
            continue
        raise UDFError(
            f"{into.name}: function {function.function!r} has changed, its code "
            f"{function.code!r} has not",
            code="changed-function",
            hint=Hint.of(
                "change ",
                Option("code"),
                " to compute all results again; if they are the same, set ",
                Option("check_source", value=False),
            ),
            version=into.name,
        )


def _find_latest_functions(into: StoredVersion, operation: str) -> tuple[FunctionDigest, ...]:
    """Return the functions of the latest entry of an operation."""
    for number in into.state.iter_ancestors():
        entry = into.log.entry(into.snapshot(number).entry)
        if entry.operation == operation:
            functions = entry.read(DerivedParameters).functions
            return tuple(function for function in functions if not function.problems)
    return ()


def _get_method(digest: str) -> str:
    return digest.partition(":")[0]
