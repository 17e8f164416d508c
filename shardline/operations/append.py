"""Append: the records of new sources in new shards, each source exactly once.

Plan: which of the sources are new (see `source_choice`). Execute: each becomes shards, which nobody
sees yet. Commit: one entry, in which a source that landed meanwhile is left out. Sources that
cannot land stop it, or are set aside: one more entry says why, and which sources are duplicates.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shardline.arguments import TARGET_BYTES
from shardline.errors import (
    ChangedSourceError,
    ConflictError,
    ObjectNotFoundError,
    SchemaMismatchError,
    SourceError,
    TombstonedShardError,
    name_version,
)
from shardline.execution.executor import ThreadExecutor
from shardline.execution.task_groups import run_grouped
from shardline.hints import Hint, Option
from shardline.log.append_change import Append, AppendBase, RejectSources, Replacement
from shardline.log.model import Checks
from shardline.log.version import get_no_schema_error, refuse_no_version
from shardline.operations.append_task import (
    AppendOptions,
    AppendTask,
    SourceRejection,
    append_or_reject,
    append_small_sources,
    append_source,
    open_or_reject,
    split_rejected,
)
from shardline.operations.partial_commit import format_entry_label, report_partial_commit
from shardline.operations.shard_writer import find_fresh_attempt, get_shard_compression
from shardline.operations.source_selection import SkippedSource, SourceRules, select_sources
from shardline.schema.comparison import compare
from shardline.sources import infer_source_schema, open_source
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion
    from shardline.operations.append_task import AppendedSource
    from shardline.operations.source_selection import (
        KnownSource,
        OnChanged,
        OnDuplicate,
        SourceSelection,
    )
    from shardline.schema.schema import Schema
    from shardline.sources import RecordSource, SourceFormat
    from shardline.tfrecord.reader import Limits

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What an append did: which sources landed, and which were left out.

    `entry` is None if no source landed. `rejected` are those that could not be appended.
    `new` is filled by a dry run alone: the sources that would land. `replaced` are landings whose
    records a source with new content replaced.
    """

    version: str
    entry: Entry | None
    appended: tuple[AppendedSource, ...] = ()
    skipped: tuple[SkippedSource, ...] = ()
    new: tuple[Identity, ...] = ()
    created: bool = False
    rejected: tuple[SourceRejection, ...] = ()
    replaced: tuple[KnownSource, ...] = ()

    @property
    def duplicates(self) -> tuple[SkippedSource, ...]:
        """The sources that were skipped since their content landed under another path."""
        return tuple(one for one in self.skipped if one.code == "duplicate")

    @property
    def snapshot(self) -> int | None:
        """The snapshot that it made."""
        return self.entry.snapshot if self.entry is not None and self.entry.changes_data else None

    @property
    def records(self) -> int:
        """How many records landed."""
        return sum(landing.records for landing in self.appended)

    @property
    def bytes(self) -> int:
        """How many bytes their shards have."""
        return sum(landing.bytes for landing in self.appended)

    @property
    def quarantined_rows(self) -> int:
        """How many rows went to quarantine."""
        return sum(landing.quarantined_rows for landing in self.appended)

    @property
    def quarantine_files(self) -> tuple[str, ...]:
        """The files in which those rows are, by their names in the store."""
        return tuple(name for landing in self.appended for name in landing.quarantine_files)


@name_version
def append(
    version: StoredVersion,
    sources: Any,  # noqa: ANN401 - anything that can be a source
    *,
    schema: Schema | None = None,
    checks: Checks = Checks(),
    batch: str | None = None,
    format: SourceFormat | None = None,  # noqa: A002 - the word that people expect
    target_bytes: int = TARGET_BYTES,
    compression: Compression | str | None = None,
    max_quarantined: float = 0.0,
    salvage: bool = False,
    skip_invalid: bool = False,
    retry_rejected: bool = False,
    on_duplicate: OnDuplicate = "skip",
    on_changed: OnChanged = "reject",
    dry_run: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> AppendReport:
    """Append the records of sources to a version, and create it if it is not there.

    A source is a file (JSON lines, CSV, Parquet, Arrow, TFRecord), a folder of files, a pandas or
    Arrow table, a dict of NumPy arrays, a `tf.data.Dataset` or an iterable of dicts; or several
    of these in a list. Data that is in memory needs a `batch` that names it: the same one never
    lands twice. A new version gets `schema`, or the one that the sources suggest, and `checks`.
    New shards are packed as those of the latest commit, or as `compression` says.

    Content that the version holds under another path is a duplicate: it is skipped and reported,
    unless `on_duplicate` is "append". Other content of a path or batch that landed is rejected with
    the code "changed-since-append", unless `on_changed` is "append" to keep both, or "replace" to
    exchange all records of that path or batch in the same commit.

    Raises InvalidRecordsError if more than `max_quarantined` of the rows do not fit the schema,
    SchemaMismatchError if a source has another one, CorruptFileError at a damaged TFRecord file
    unless `salvage` is set. Nothing is committed then; or, with `skip_invalid`, the other sources
    land, and such a one is remembered as rejected with its reason, so that it does not come in at
    the next turn either, unless its content changed. With `retry_rejected`, sources that were
    rejected or rolled back come in again.
    """
    refuse_no_version(version=version)
    version.refresh()
    options = AppendOptions(
        target_bytes,
        get_shard_compression(version, compression) or Compression.NONE,
        max_quarantined,
        salvage,
        format,
        limits.max_record_bytes,
    )
    work = _AppendRun(
        version,
        SourceRules(on_duplicate, on_changed, retry_rejected),
        options,
        limits,
        executor or ThreadExecutor(),
        progress,
        skip_invalid=skip_invalid,
    )
    opened, refused = open_or_reject(
        _list_sources(sources),
        lambda one: open_source(one, batch=batch, format=format, salvage=salvage, limits=limits),
        skip_invalid=skip_invalid,
    )
    tasks = [_IdentifyTask(source) for source in opened]
    identified = list(run_grouped(work.executor, _identify_source, tasks, progress))
    for left in reversed(range(_ROUNDS)):
        version.refresh()
        plan = _plan_append(work, identified, refused)
        if dry_run or not (plan.new or plan.refused or plan.unnoted):
            told = tuple(identity for _, identity in plan.new)
            skipped, aside = tuple(plan.skipped), tuple(plan.refused)
            return AppendReport(version.name, None, skipped=skipped, new=told, rejected=aside)
        _validate_unchanged(work, plan.refused)
        try:
            return _append_selected(work, plan, schema, checks)
        except ConflictError as error:
            # Others landed the same path or content meanwhile: choose again.
            if error.code != "stale-plan" or not left:
                raise
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class _AppendRun:
    """An append that is being done."""

    version: StoredVersion
    rules: SourceRules
    options: AppendOptions
    limits: Limits
    executor: Executor
    progress: ProgressListener | None
    skip_invalid: bool


@dataclass(slots=True)
class _AppendPlan:
    """What is to be done. `unnoted` are the duplicates that the log does not tell of yet."""

    choice: SourceSelection
    seen: AppendBase
    refused: list[SourceRejection]
    skipped: list[SkippedSource]
    unnoted: list[SkippedSource]

    @property
    def new(self) -> list[tuple[RecordSource, Identity]]:
        return self.choice.new


def _plan_append(
    work: _AppendRun,
    identified: Sequence[tuple[RecordSource, Identity]],
    refused: Sequence[SourceRejection],
) -> _AppendPlan:
    state = work.version.state
    choice = select_sources(work.version, identified, work.rules)
    unreadable, known = _list_rejections(
        work.version, refused, retry_rejected=work.rules.retry_rejected
    )
    return _AppendPlan(
        choice,
        AppendBase(state.number, state.snapshot, choice.words),
        [*unreadable, *choice.refused],
        [*choice.skipped, *known],
        [
            one
            for one in choice.skipped
            if one.code == "duplicate" and state.sources.get(one.source.key) is None
        ],
    )


def _validate_unchanged(work: _AppendRun, refused: Sequence[SourceRejection]) -> None:
    """Refuse the whole append for a source that has changed, unless those are set aside."""
    changed = [one for one in refused if one.code == ChangedSourceError.code]
    if changed and not work.skip_invalid:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise ChangedSourceError(
            f"{changed[0].reason}{more}",
            changed[0].entry,
            hint=changed[0].hint,
            path=changed[0].source.path,
            version=work.version.name,
        )


def _append_selected(
    work: _AppendRun, plan: _AppendPlan, schema: Schema | None, checks: Checks
) -> AppendReport:
    """Write the shards of the chosen sources and commit them; see `append`."""
    version, refused = work.version, list(plan.refused)
    if not plan.new and schema is None and not version.exists:
        raise SourceError(
            refused[0].reason,
            code=refused[0].code,
            path=refused[0].source.path,
            record=refused[0].record,
            offset=refused[0].offset,
            version=version.name,
        )
    wanted = _choose_schema(version, schema, [source for source, _ in plan.new])
    tasks = [_make_task(version, source, one, wanted, work.options) for source, one in plan.new]
    created = False
    while True:
        tasks, made = _execute_tasks(
            version, tasks, work.executor, work.progress, skip_invalid=work.skip_invalid
        )
        landings, unfit = split_rejected(
            version.name, made, work.options.max_quarantined, skip_invalid=work.skip_invalid
        )
        try:
            version.store.sync([name for landing in landings for name in landing.unsynced])
        except ObjectNotFoundError:
            version.refresh()
            continue  # vacuum took what an append before this one had left
        if not version.exists:
            created = version.create(wanted, checks) is not None
        change = _make_change(work, plan, landings, wanted)
        try:
            entry = version.commit(change) if landings else None
        except TombstonedShardError:
            version.refresh()
            if change.exchange.landings:
                raise _make_conflict_error(version) from None
            continue  # vacuum took what an append before this one had left: make it anew
        break
    refused += unfit
    landed = {source.key for source in entry.sources} if entry is not None else set()
    skipped = [_add_entry(one, entry) for one in plan.skipped]
    _record_skipped(work, refused, plan.unnoted, entry)
    return AppendReport(
        version.name,
        entry,
        tuple(landing for landing in landings if landing.source.key in landed),
        (
            *skipped,
            *(
                SkippedSource(landing.source, "it has landed meanwhile", code="appended-meanwhile")
                for landing in landings
                if landing.source.key not in landed
            ),
        ),
        created=created,
        rejected=tuple(refused),
        replaced=_list_replaced(plan, landed),
    )


def _make_conflict_error(version: StoredVersion) -> ConflictError:
    return ConflictError(
        f"{version.name}: shards to be replaced went to vacuum meanwhile",
        code="stale-plan",
        hint=Hint.of("append again"),
        version=version.name,
    )


def _add_entry(skipped: SkippedSource, entry: Entry | None) -> SkippedSource:
    """A duplicate of a source in the same append, with the entry that this landed with."""
    first = skipped.first
    if first is None or skipped.entry is not None or entry is None:
        return skipped
    return replace(skipped, entry=entry.number) if first in entry.sources else skipped


def _record_skipped(
    work: _AppendRun,
    refused: Sequence[SourceRejection],
    duplicates: Sequence[SkippedSource],
    entry: Entry | None,
) -> None:
    """Write to the log which sources could not land, and which are duplicates."""
    reasons = {one.source.key: one.to_dict() for one in refused}
    told = [_add_entry(one, entry) for one in duplicates]
    known = {one.source.key: _encode_duplicate(one) for one in told}
    sources = [*(one.source for one in refused), *(one.source for one in told)]
    if sources:
        change = RejectSources(
            sources, reasons, retry_rejected=work.rules.retry_rejected, duplicates=known
        )
        with report_partial_commit("append", [] if entry is None else [format_entry_label(entry)]):
            work.version.commit(change)


def _encode_duplicate(one: SkippedSource) -> Json:
    told: Json = {} if one.first is None else {"first": one.first.path}
    return told if one.entry is None else {**told, "entry": one.entry}


def _list_replaced(plan: _AppendPlan, landed: set[str]) -> tuple[KnownSource, ...]:
    replaces = plan.choice.replaces
    return tuple(one for key, some in replaces.items() if key in landed for one in some)


def _list_sources(sources: Any) -> list[Any]:  # noqa: ANN401 - anything that can be a source
    """Several sources as a list; a list of rows is one source."""
    if isinstance(sources, list | tuple) and not any(isinstance(one, Mapping) for one in sources):
        return list(sources)
    return [sources]


@dataclass(frozen=True, slots=True)
class _IdentifyTask:
    """A source to be read once, to know whether it has landed."""

    source: RecordSource

    step = "identifying"

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def size(self) -> int | None:
        return self.source.size


def _identify_source(task: _IdentifyTask, running: TaskContext) -> tuple[RecordSource, Identity]:
    """The source too: it knows now how it was when it was read, wherever that happened."""
    identity = task.source.identity(lambda done: running.tell(done, 0))
    return task.source, identity


def _list_rejections(
    version: StoredVersion, refused: Iterable[SourceRejection], *, retry_rejected: bool
) -> tuple[list[SourceRejection], list[SkippedSource]]:
    """The sources that cannot be read and are to be told of, and those that the log knows."""
    new, skipped = [], []
    for one in refused:
        entry = version.state.sources.get(one.source.key)
        if entry is None or (retry_rejected and entry < 0):
            new.append(one)
        else:
            why = f"it was rejected in entry {abs(entry)} of the log"
            skipped.append(
                SkippedSource(one.source, why, out=True, code="rejected", entry=abs(entry))
            )
    return new, skipped


def _choose_schema(
    version: StoredVersion, declared: Schema | None, sources: Sequence[RecordSource]
) -> Schema:
    """The schema of the version; of a new one, what was declared or what the sources suggest."""
    if declared is not None:
        get_no_schema_error(declared, version.name)
        validate_declared_schema(version, declared)
    if version.exists:
        return version.schema
    return declared if declared is not None else _infer_schema(version, sources)


def validate_declared_schema(version: StoredVersion, declared: Schema) -> None:
    """Raise SchemaMismatchError if the version exists with another schema."""
    if version.exists and declared.fingerprint != version.schema.fingerprint:
        raise SchemaMismatchError(
            f"{version.name}: declared schema differs from the schema of the version:\n"
            f"{compare(version.schema, declared)}",
            hint=Hint.of("append to a new version"),
            version=version.name,
        )


def _infer_schema(version: StoredVersion, sources: Sequence[RecordSource]) -> Schema:
    found = infer_source_schema(sources)
    if not found.features and found.payload != "opaque":
        raise SchemaMismatchError(
            f"{version.name}: cannot infer the schema of a new version from {sources[0].label}"
            + (f" and {len(sources) - 1} more" if len(sources) > 1 else ""),
            code="missing-schema",
            hint=Hint.of(
                "set ", Option("schema"), ", or append a source that contains records first"
            ),
            version=version.name,
        )
    return found


def _make_task(
    version: StoredVersion,
    source: RecordSource,
    identity: Identity,
    schema: Schema,
    options: AppendOptions,
) -> AppendTask:
    log = version.log
    # The name of a batch does not tell which rows are in it: they may have been mended since.
    run = secrets.token_hex(8) if identity.batch is not None else ""
    return AppendTask(
        version.store, log.dataset, log.version, source, identity, schema, options, run
    )


def _execute_tasks(
    version: StoredVersion,
    tasks: list[AppendTask],
    executor: Executor,
    progress: ProgressListener | None,
    *,
    skip_invalid: bool,
) -> tuple[list[AppendTask], list[AppendedSource | SourceRejection]]:
    """Make the shards of every source, under names that the log does not know."""
    work: Callable[[AppendTask, TaskContext], AppendedSource | SourceRejection] = (
        append_or_reject if skip_invalid else append_source
    )
    while True:
        tasks = [_assign_fresh_name(version, task) for task in tasks]
        made = list(run_grouped(executor, work, tasks, progress, together=append_small_sources))
        stale = {
            one.source.key
            for one in made
            if any(version.state.knows(shard.name) for shard in one.shards)
        }
        if not stale:
            return tasks, made
        tasks = [
            replace(task, attempt=task.attempt + 1) if task.identity.key in stale else task
            for task in tasks
        ]


def _assign_fresh_name(version: StoredVersion, task: AppendTask) -> AppendTask:
    attempt = find_fresh_attempt(version.state, [task.first_plan], task.attempt)
    return task if attempt == task.attempt else replace(task, attempt=attempt)


def _make_change(
    work: _AppendRun, plan: _AppendPlan, landings: Sequence[AppendedSource], schema: Schema
) -> Append:
    """What to commit. The parameters suffice to make the shards once more."""
    keys = {landing.source.key for landing in landings}
    replaces = {key: some for key, some in plan.choice.replaces.items() if key in keys}
    return Append(
        shards=[shard for landing in landings for shard in landing.shards],
        sources=[landing.source for landing in landings],
        parameters=work.options.to_dict(),
        fingerprint=schema.fingerprint,
        retry_rejected=work.rules.retry_rejected,
        quarantine={
            landing.source.key: {
                "rows": landing.quarantined_rows,
                "files": list(landing.quarantine_files),
            }
            for landing in landings
            if landing.quarantined_rows
        },
        sidecars={landing.source.key: landing.sidecars for landing in landings},
        digests={
            landing.source.key: landing.digest for landing in landings if landing.digest is not None
        },
        seen=plan.seen,
        exchange=_make_exchange(work, replaces) if replaces else Replacement(),
    )


def _make_exchange(work: _AppendRun, replaces: Mapping[str, Sequence[KnownSource]]) -> Replacement:
    from shardline.operations.source_replacement import make_exchange  # noqa: PLC0415 - it builds on much

    return make_exchange(work.version, replaces, work.executor, work.progress, limits=work.limits)
