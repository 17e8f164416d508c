"""Make a version of others: keep what it has already, make the rest, and tell it in one entry.

A derived version follows its inputs. Each time it is planned which shards it should have; one that
it has, or had, under the name that the plan gives it is used again, since the name is a hash of all
that its bytes depend on.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from shardline.errors import (
    ConflictError,
    FieldsError,
    InvalidArgumentError,
    SchemaMismatchError,
    TombstonedShardError,
)
from shardline.execution.executor import ShardTask
from shardline.hints import Hint, Option
from shardline.log.changes import Derive, diff_shards, validate_not_tombstoned
from shardline.log.model import RECEIPT, ROWS, Shard, get_quarantine_name
from shardline.log.parameters import DerivedParameters, EraseParameters, FunctionDigest
from shardline.operations.partial_commit import format_entry_label, report_partial_commit
from shardline.operations.shard_writer import find_fresh_attempt, get_stem
from shardline.provenance.dependencies import let_go, pin_inputs
from shardline.provenance.log_index import ERASE
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
    from shardline.log.state import State
    from shardline.log.version import DerivedFrom, StoredVersion
    from shardline.operations.shard_writer import ShardPlan
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.udf.udf_declaration import UDF


_ROUNDS = 8
_RETRY = Hint.of("retry on the latest snapshot")


class DerivedTask(ShardTask, Protocol):
    """A shard of a derived version that is to be made."""

    @property
    def plan(self) -> ShardPlan:
        """The shard."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt at it this is."""
        ...

    def at(self, attempt: int) -> Self:
        """The same at another attempt."""
        ...


Task = TypeVar("Task", bound=DerivedTask)
Parameters = TypeVar("Parameters", bound=DerivedParameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation(Generic[Task, Parameters]):
    """What a version is to become. `wanted` gives its shards in order, or tasks that make them.

    With `pinned` the new shards cannot be read without those of the origins, which are pinned.
    `accept` may refuse what was made, before anything is committed. `parameters` tells of the
    operation, and `describe` of the shards that its entry adds; how many shards were computed, used
    again, or found as a run before left them, is told as well. `makers` are the functions and
    tables that make the shards: a function must be the one that made what the version has.
    """

    into: StoredVersion
    operation: str
    schema: Schema
    checks: Checks
    origins: tuple[DerivedFrom, ...]
    wanted: Callable[[State], Sequence[Shard | Task]]
    make: Callable[[Task, TaskContext], Receipt]
    prepare: Callable[[Sequence[Task]], None] | None = None
    accept: Callable[[Sequence[Receipt]], None] | None = None
    describe: Callable[[Parameters, Sequence[Added]], Parameters] | None = None
    parameters: Parameters
    pinned: bool = False
    makers: tuple[UDF, ...] = ()


class WrittenShards:
    """What the reports of such operations have in common: an entry, if any, and what was made."""

    __slots__ = ()
    entry: Entry | None
    made: tuple[Shard, ...]

    @property
    def snapshot(self) -> int | None:
        """The snapshot that it made."""
        return None if self.entry is None else self.entry.snapshot

    @property
    def found(self) -> int:
        """How many of what was made a run before had left, which was stopped."""
        return 0 if self.entry is None else self.entry.read(DerivedParameters).recovered

    @property
    def records(self) -> int:
        """How many records were made."""
        return sum(shard.records for shard in self.made)

    @property
    def bytes(self) -> int:
        """How many bytes were written."""
        return sum(shard.bytes for shard in self.made)


@dataclass(frozen=True, slots=True)
class DerivationReport:
    """What became of a derivation. `entry` is None if there was nothing to do."""

    entry: Entry | None
    made: tuple[Shard, ...] = ()
    reused: tuple[Shard, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    created: bool = False


def derive(
    work: Derivation[Task, Parameters], executor: Executor, progress: ProgressListener | None = None
) -> DerivationReport:
    """Make of a version what it is to become, and commit that.

    Others may commit to it meanwhile: then it is planned again for the difference. Raises
    SchemaMismatchError if it has another schema, ConflictError if it was appended to.
    """
    into = work.into
    created = False
    computed: set[Shard | None] = set()
    functions = describe_functions(work.makers)
    validate_not_erased(work.origins)
    for _ in range(_ROUNDS):
        into.refresh()
        validate_same_schema(into, work.schema)
        validate_nothing_appended(into, work.operation)
        head = into.state.snapshot
        target = work.wanted(into.state)
        tasks = [one for one in target if not isinstance(one, Shard)]
        if tasks:
            validate_unchanged_functions(into, work.operation, work.makers)
        if work.prepare is not None:
            work.prepare(tasks)
        receipts = make_fresh_shards(into, tasks, work.make, executor, progress)
        if work.accept is not None:
            work.accept(receipts)
        given = iter(receipts)
        shards = [one if isinstance(one, Shard) else next(given).shard for one in target]
        added, removed = diff_shards(into.state, [shard for shard in shards if shard is not None])
        stood = validate_not_erased(work.origins)
        # Before the pins: a pin whose holder has no log is a sign that the log was lost.
        created |= not into.exists and into.create(work.schema, work.checks) is not None
        if work.pinned:
            pin_inputs(into, work.origins)
            stood = validate_not_erased(work.origins)
        reused = tuple(one for one in target if isinstance(one, Shard))
        computed |= {one.shard for one in receipts if not one.found}
        found = sum(one.found and one.shard not in computed for one in receipts)
        parameters = replace(
            work.parameters,
            computed=len(receipts) - found,
            reused=len(reused),
            recovered=found,
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
            sidecars=_collect_sidecars(into, [one.shard for one in added], receipts),
        )
        try:
            entry = into.commit(change)
        except (TombstonedShardError, ConflictError):
            continue  # someone else moved the version on: plan again for the difference
        made = tuple(one.shard for one in receipts if one.shard is not None)
        with report_partial_commit(
            work.operation, [] if entry is None else [format_entry_label(entry)]
        ):
            if entry is not None:
                roll_back_erased(into, entry, made, zip(work.origins, stood, strict=True))
            if work.pinned:
                _renew_pins(into, entry, work.origins)
                let_go(into, work.origins)
        return DerivationReport(entry, made, reused, tuple(receipts), created)
    raise ConflictError(
        f"{into.name}: other writers committed during each of {_ROUNDS} attempts",
        hint=Hint.of("retry when the other writers have finished"),
        version=into.name,
    )


def _collect_sidecars(
    into: StoredVersion, added: Sequence[Shard], receipts: Sequence[Receipt]
) -> Json:
    """Return the digests of the sidecars of new shards, and of shards that land again."""
    made = {name: digest for one in receipts for name, digest in one.sidecars.items()}
    again = [shard.name for shard in added if into.state.knows(shard.name)]
    suffixes = (RECEIPT, ROWS)
    names = [f"{shard}{suffix}" for shard in again for suffix in suffixes]
    names += [name for name in map(get_quarantine_name, again) if name is not None]
    return {**SidecarReader(into).digests(names), **made} if names else made


def validate_not_erased(origins: Sequence[DerivedFrom]) -> list[int]:
    """Refuse what was made of a snapshot of which records were erased meanwhile, or before.

    Says where the log of each origin stood when it was looked at.
    """
    stood = []
    for origin in origins:
        origin.version.refresh()
        what = f"nothing can be made of snapshot {origin.snapshot.number} any more: "
        validate_not_tombstoned(origin.version.state, origin.snapshot.shards, what)
        stood.append(origin.version.state.number)
    return stood


def roll_back_erased(
    into: StoredVersion,
    entry: Entry,
    made: Sequence[Shard],
    origins: Iterable[tuple[DerivedFrom, int]],
) -> None:
    """Take back what was committed, if records that it is made of were erased just before it.

    No commit sees two logs at once: so who derives looks at the origins before and behind its
    entry, and who erases looks at all versions behind its own. Whoever is second sees the other.
    Raises TombstonedShardError.
    """
    for origin, stood in origins:
        names = {shard.name for shard in origin.snapshot.shards}
        later = origin.version.log.entries(stood + 1)
        if any(one.operation == ERASE and names & set(one.condemned) for one in later):
            break
    else:
        return
    what = f"records of {origin.snapshot} were erased while it was made"
    into.reject(entry.snapshot, reason=what)
    gone = tuple(shard.name for shard in made)
    _record_tombstones(into, gone)
    raise TombstonedShardError(
        f"{into.name}: {what}: rejected snapshot {entry.snapshot} and its new shards",
        gone,
        hint=_RETRY,
        version=into.name,
        snapshot=entry.snapshot,
    )


def _renew_pins(into: StoredVersion, entry: Entry | None, origins: Sequence[DerivedFrom]) -> None:
    """Pin what a commit needs once more: vacuum may let go of a pin that nothing needs yet.

    If it came so far as to take the shards, the commit is taken back. Raises TombstonedShardError.
    """
    try:
        pin_inputs(into, origins)
    except TombstonedShardError as error:
        if entry is None:
            raise
        into.reject(entry.snapshot, reason="vacuum took what it is read with while it was made")
        raise TombstonedShardError(
            f"{into.name}: vacuum deleted its inputs meanwhile: rejected snapshot {entry.snapshot}",
            error.names,
            hint=_RETRY,
            version=into.name,
            snapshot=entry.snapshot,
        ) from error


def _record_tombstones(into: StoredVersion, names: Sequence[str]) -> None:
    """Say that shards never come back: they hold records that were erased where they came from."""
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
                    condemned=names,
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
    """Make shards under names that the version's log does not know."""
    tasks = [_assign_fresh_name(version.state, task) for task in tasks]
    while True:
        made = list(executor.run(make, tasks, progress))
        stale = [one.shard is not None and version.state.knows(one.shard.name) for one in made]
        if not any(stale):
            return made
        tasks = [
            _assign_fresh_name(version.state, task.at(task.attempt + known))
            for task, known in zip(tasks, stale, strict=True)
        ]


def _assign_fresh_name(state: State, task: Task) -> Task:
    return task.at(find_fresh_attempt(state, [task.plan], task.attempt))


def reuse_shards(state: State, tasks: Sequence[Task]) -> list[Shard | Task]:
    """Each task, or the shard that it would make if the version has it, or had it before.

    One of which a check says that it is no good is made anew.
    """
    live = state.stays.at(state.snapshot)
    there = {get_stem(stay.shard.name): stay.shard for stay in live if not stay.failed}
    stems = [task.plan.stem for task in tasks]
    missing = set(stems) - set(there)
    if missing and state.snapshot:
        there |= _list_former_shards(state, missing)
    return [there.get(stem, task) for stem, task in zip(stems, tasks, strict=True)]


def _list_former_shards(state: State, stems: set[str]) -> dict[str, Shard]:
    """Shards that were in the list once, and are good: not rejected, nor gone to vacuum."""
    names = [name for name in state.stays.names().to_pylist() if get_stem(name) in stems]
    known = state.stays.named(names) if names else {}
    return {get_stem(name): stay.shard for name, stay in known.items() if not stay.failed}


def apply_rebuilds(log: Log, state: State, wanted: Sequence[Shard | Task]) -> list[Shard | Task]:
    """The same, with shards that were rebuilt in place where those stood that they are made of.

    Else what follows an input would undo each rebuild of its version.
    """
    stems = [get_stem(o.name) if isinstance(o, Shard) else o.plan.stem for o in wanted]
    live = {stay.shard.name: stay for stay in state.stays.at(state.snapshot) if not stay.failed}
    others = [stay for name, stay in live.items() if get_stem(name) not in set(stems)]
    kept = list(wanted)
    for number in sorted({stay.landed for stay in others}):
        entry = log.entry(number)
        rebuilt = [live.get(one.shard.name) for one in entry.added]
        run = _list_rebuilt_stems(log, state, entry)
        if not run or None in rebuilt or run[0] not in stems:
            continue
        first = stems.index(run[0])
        if stems[first : first + len(run)] == run:
            kept[first : first + len(run)] = [stay.shard for stay in rebuilt if stay is not None]
            stems[first : first + len(run)] = [""] * len(rebuilt)
    return kept


def _list_rebuilt_stems(log: Log, state: State, entry: Entry) -> list[str]:
    """The stems of the shards that a rebuild in place is made of; none if it is no such entry."""
    if entry.operation != "rebuild" or entry.inputs:
        return []
    stays = state.stays.named(entry.removed)
    stems = []
    for name in entry.removed:
        landed = log.entry(stays[name].landed)
        stems += _list_rebuilt_stems(log, state, landed) or [get_stem(name)]
    return list(dict.fromkeys(stems))


def validate_same_schema(into: StoredVersion, schema: Schema) -> None:
    """Refuse to make of a version something that does not have its schema."""
    if into.exists and into.schema.fingerprint != schema.fingerprint:
        raise SchemaMismatchError(
            f"{into.name}: the version exists with other features:\n"
            + "\n".join(line.rpartition(": ")[0] for line in compare(into.schema, schema).lines()),
            hint=Hint.of("set ", Option("into"), " to a new version"),
            version=into.name,
        )


def validate_nothing_appended(into: StoredVersion, operation: str) -> None:
    """Refuse to take out what was appended, be it rebuilt since: nothing would bring it back."""
    if next(into.state.sources.items(), None) is not None:
        raise ConflictError(
            f"{into.name}: cannot {operation} over appended records",
            code="appended-version",
            hint=Hint.of("choose a version that contains derived records only"),
            version=into.name,
        )


def describe_functions(makers: Iterable[UDF]) -> tuple[FunctionDigest, ...]:
    """Return name, code version and source digest of the functions that have them."""
    functions: list[FunctionDigest] = []
    for udf in makers:
        identity = udf.identity()
        digest = getattr(udf, "source_digest", lambda: None)()
        if identity is not None and digest is not None:
            function, code = identity["function"], identity["code"]
            functions.append(FunctionDigest(function=function, code=code, digest=digest))
    return tuple(functions)


def get_checked_digests(makers: Iterable[UDF]) -> tuple[str, ...]:
    """Return the source digests of the functions whose source is compared."""
    checked = [maker for maker in makers if getattr(maker, "check_source", True)]
    return tuple(function.digest for function in describe_functions(checked))


def validate_unchanged_functions(
    into: StoredVersion, operation: str, makers: Sequence[UDF]
) -> None:
    """Raise FieldsError if the latest results of a version came from another source text.

    Older entries that tell no digest are accepted, and so are digests of different methods.
    """
    checked = [maker for maker in makers if getattr(maker, "check_source", True)]
    functions = describe_functions(checked)
    if not functions or not into.state.snapshot:
        return
    known = {
        (one.function, one.code): one.digest for one in _find_latest_functions(into, operation)
    }
    for one in functions:
        before = known.get((one.function, one.code))
        if before is None or before == one.digest or _method(before) != _method(one.digest):
            continue
        raise FieldsError(
            f"{into.name}: function {one.function!r} has changed, its code {one.code!r} has not",
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
    """Return the functions of the latest entry of an operation, before rebuilds and the like."""
    state = into.state
    for number in state.line():
        entry = into.log.entry(into.snapshot(number).entry)
        if entry.operation == operation:
            functions = entry.read(DerivedParameters).functions
            return tuple(function for function in functions if not function.problems)
    return ()


def _method(digest: str) -> str:
    return digest.partition(":")[0]


def validate_same_root(into: StoredVersion, base: StoredVersion) -> None:
    """Raise InvalidArgumentError if two versions are in different roots."""
    if into.store.uri != base.store.uri:
        raise InvalidArgumentError(
            f"{into.name}: root {into.store.uri} differs from {base.store.uri} of {base.name}",
            code="root-mismatch",
            hint=Hint.of(f"write {into.name} into the root of {base.name}, then copy it"),
            version=into.name,
        )
