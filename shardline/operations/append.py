"""Append: new sources to new shards, each source exactly once.

1. Plan: `source_selection` decides which sources are new.
2. Execute: `append_task` writes their shards. No snapshot contains them yet.
3. Commit: one entry adds the shards, without sources that were appended concurrently.

An invalid source stops the append. With `skip_invalid`, one more entry records it as rejected.
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
from shardline.log.parameters import QuarantinedRows, SourceDuplicate
from shardline.log.version import validate_schema, validate_version
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
from shardline.report import Report
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

_MAX_PLANS = 8


@dataclass(frozen=True, slots=True)
class AppendReport(Report):
    """Result of an append: sources that were appended, skipped or rejected.

    `entry` is None if no source was appended. `new` has the sources that a dry run would append.
    `replaced` has the earlier appends whose records a source with new content replaced.
    """

    version: str
    entry: Entry | None
    appended: tuple[AppendedSource, ...] = ()
    skipped: tuple[SkippedSource, ...] = ()
    new: tuple[Identity, ...] = ()
    created: bool = False
    rejected: tuple[SourceRejection, ...] = ()
    replaced: tuple[KnownSource, ...] = ()
    dry_run: bool = False

    @property
    def duplicates(self) -> tuple[SkippedSource, ...]:
        """Skipped sources whose content was appended under another path."""
        return tuple(skipped for skipped in self.skipped if skipped.code == "duplicate")

    @property
    def snapshot(self) -> int | None:
        """New snapshot, or None."""
        return self.entry.snapshot if self.entry is not None and self.entry.changes_data else None

    @property
    def records(self) -> int:
        """Number of appended records."""
        return sum(source.records for source in self.appended)

    @property
    def bytes(self) -> int:
        """Size of the new shards."""
        return sum(source.bytes for source in self.appended)

    @property
    def quarantined_rows(self) -> int:
        """Number of rows in quarantine."""
        return sum(source.quarantined_rows for source in self.appended)

    @property
    def quarantine_files(self) -> tuple[str, ...]:
        """Names of the quarantine files in the store."""
        return tuple(name for source in self.appended for name in source.quarantine_files)

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "version": self.version,
            "dry_run": self.dry_run,
            "created": self.created,
            "entry": self.entry and self.entry.number,
            "snapshot": self.snapshot,
            "records": self.records,
            "bytes": self.bytes,
            "shards": [shard.to_dict() for source in self.appended for shard in source.shards],
            "appended": [source.to_dict() for source in self.appended],
            "new": [source.to_dict() for source in self.new],
            "skipped": [skipped.to_dict() for skipped in self.skipped],
            "duplicates": [
                {
                    **skipped.source.to_dict(),
                    "first": skipped.first and skipped.first.path,
                    "entry": skipped.entry,
                }
                for skipped in self.duplicates
            ],
            "replaced": [{**source.to_dict(), "entry": entry} for source, entry in self.replaced],
            "rejected": [
                {**rejection.source.to_dict(), **rejection.to_dict()} for rejection in self.rejected
            ],
            "quarantine": {
                "rows": self.quarantined_rows,
                "files": list(self.quarantine_files),
                "reasons": [reason for source in self.appended for reason in source.reasons],
            },
        }


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
    """Append the records of sources to a version, and create the version on first use.

    A source is a file (JSON lines, CSV, Parquet, Arrow, TFRecord), a folder of files, a pandas or
    Arrow table, a dict of NumPy arrays, a `tf.data.Dataset` or an iterable of dicts.

    Args:
        version: Version to append to.
        sources: One source, or a list of them.
        schema: Schema of a new version; by default it is inferred from the sources.
        checks: Checks that a new version requires.
        batch: Name of data in memory. Each batch is appended once.
        format: Format of the files; by default it is detected.
        target_bytes: Size at which a shard is complete.
        compression: Compression of new shards; by default that of the latest data commit.
        max_quarantined: Share of the rows, from 0 to 1, that may not fit the schema. They go to
            quarantine.
        salvage: Append the intact records of corrupt TFRecord files.
        skip_invalid: Record an invalid source as rejected and append the others. It stays out
            until its content changes.
        retry_rejected: Append sources that were rejected or rolled back earlier.
        on_duplicate: "skip" or "append" content that was appended under another path.
        on_changed: "reject" a path or batch with new content, "append" it too, or "replace" its
            earlier records in the same commit.
        dry_run: Plan without writing.
        limits: Limits of records and decompression.
        executor: Executor of the tasks; by default threads of this process.
        progress: Listener for the progress of tasks.

    Returns:
        The report. Its `entry` is None if nothing was appended.

    Raises:
        InvalidRecordsError: More rows than `max_quarantined` do not fit the schema.
        SchemaMismatchError: A source has another schema.
        CorruptFileError: A TFRecord file is corrupt.
        ChangedSourceError: A path or batch has new content.

        After each of these errors nothing is committed. With `skip_invalid` the source is rejected
        instead.

    Example:
        >>> append(version, ["monday.jsonl", "tuesday.jsonl"], max_quarantined=0.01)
    """
    validate_version(version=version)
    version.refresh()
    run = _AppendRun(
        version,
        schema,
        checks,
        SourceRules(on_duplicate, on_changed, retry_rejected),
        AppendOptions(
            target_bytes,
            get_shard_compression(version, compression) or Compression.NONE,
            max_quarantined,
            salvage,
            format,
            limits.max_record_bytes,
        ),
        limits,
        executor or ThreadExecutor(),
        progress,
        skip_invalid,
    )
    opened, unreadable = open_or_reject(
        _list_sources(sources),
        lambda source: open_source(
            source, batch=batch, format=format, salvage=salvage, limits=limits
        ),
        skip_invalid=skip_invalid,
    )
    tasks = [_IdentifyTask(source) for source in opened]
    identified = list(run_grouped(run.executor, _identify_source, tasks, progress))
    for plans_left in reversed(range(_MAX_PLANS)):
        version.refresh()
        plan = run.plan(identified, unreadable)
        if dry_run or plan.is_empty:
            return AppendReport(
                version.name,
                None,
                skipped=tuple(plan.skipped),
                new=tuple(identity for _, identity in plan.new),
                rejected=tuple(plan.rejected),
                dry_run=dry_run,
            )
        try:
            return run.execute(plan)
        except ConflictError as error:
            # The same path or content was appended concurrently: select again.
            if error.code != "stale-plan" or not plans_left:
                raise
    raise AssertionError("unreachable")


@dataclass(slots=True)
class _AppendPlan:
    """Selected sources. `unrecorded` are the duplicates that the log does not contain yet."""

    selection: SourceSelection
    base: AppendBase
    rejected: list[SourceRejection]
    skipped: list[SkippedSource]
    unrecorded: list[SkippedSource]

    @property
    def new(self) -> list[tuple[RecordSource, Identity]]:
        return self.selection.new

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.rejected or self.unrecorded)


@dataclass(frozen=True, slots=True)
class _AppendRun:
    """Append in progress: its arguments, and the steps from plan to commit."""

    version: StoredVersion
    schema: Schema | None
    checks: Checks
    rules: SourceRules
    options: AppendOptions
    limits: Limits
    executor: Executor
    progress: ProgressListener | None
    skip_invalid: bool

    def plan(
        self,
        identified: Sequence[tuple[RecordSource, Identity]],
        unreadable: Sequence[SourceRejection],
    ) -> _AppendPlan:
        """Select the sources to append by the current log."""
        state = self.version.state
        selection = select_sources(self.version, identified, self.rules)
        rejected, known = self._split_known(unreadable)
        return _AppendPlan(
            selection,
            AppendBase(state.number, state.snapshot, selection.recorded),
            [*rejected, *selection.rejected],
            [*selection.skipped, *known],
            [
                skipped
                for skipped in selection.skipped
                if skipped.code == "duplicate" and state.sources.get(skipped.source.key) is None
            ],
        )

    def _split_known(
        self, rejections: Iterable[SourceRejection]
    ) -> tuple[list[SourceRejection], list[SkippedSource]]:
        """Return the new rejections, and those that the log contains already as skipped."""
        new, skipped = [], []
        for rejection in rejections:
            entry = self.version.state.sources.get(rejection.source.key)
            if entry is None or (self.rules.retry_rejected and entry < 0):
                new.append(rejection)
            else:
                skipped.append(SkippedSource.rejected(rejection.source, abs(entry)))
        return new, skipped

    def execute(self, plan: _AppendPlan) -> AppendReport:
        """Write the shards of the selected sources, commit them, and record the others."""
        self._validate_plan(plan)
        version = self.version
        schema = self._choose_schema([source for source, _ in plan.new])
        tasks = [self._build_task(source, identity, schema) for source, identity in plan.new]
        created = False
        while True:
            tasks, results = self._run_tasks(tasks)
            written, invalid = split_rejected(
                version.name, results, self.options.max_quarantined, skip_invalid=self.skip_invalid
            )
            try:
                version.store.sync([name for source in written for name in source.unsynced])
            except ObjectNotFoundError:
                # Vacuum deleted a reused shard of a stopped append: write it again.
                version.refresh()
                continue
            if not version.exists:
                created = version.create(schema, self.checks) is not None
            change = self._build_change(plan, written, schema)
            try:
                entry = version.commit(change) if written else None
            except TombstonedShardError:
                version.refresh()
                if change.replacement.sources:
                    raise _make_conflict_error(version) from None
                continue  # As above.
            break
        rejected = [*plan.rejected, *invalid]
        self._record_skipped(rejected, plan.unrecorded, entry)
        committed = {source.key for source in entry.sources} if entry is not None else set()
        return AppendReport(
            version.name,
            entry,
            tuple(source for source in written if source.source.key in committed),
            (
                *(_add_entry(skipped, entry) for skipped in plan.skipped),
                *(
                    SkippedSource(source.source, "appended concurrently", code="appended-meanwhile")
                    for source in written
                    if source.source.key not in committed
                ),
            ),
            created=created,
            rejected=tuple(rejected),
            replaced=tuple(
                known
                for key, replaced in plan.selection.replaces.items()
                if key in committed
                for known in replaced
            ),
        )

    def _validate_plan(self, plan: _AppendPlan) -> None:
        """Raise the error of a rejected source that prevents the whole append."""
        changed = [source for source in plan.rejected if source.code == ChangedSourceError.code]
        if changed and not self.skip_invalid:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise ChangedSourceError(
                f"{changed[0].reason}{more}",
                changed[0].entry,
                hint=changed[0].hint,
                path=changed[0].source.path,
                version=self.version.name,
            )
        if not plan.new and self.schema is None and not self.version.exists:
            first = plan.rejected[0]
            raise SourceError(
                first.reason,
                code=first.code,
                path=first.source.path,
                record=first.record,
                offset=first.offset,
                version=self.version.name,
            )

    def _choose_schema(self, sources: Sequence[RecordSource]) -> Schema:
        """Return the schema of the version; of a new version the declared or inferred one."""
        if self.schema is not None:
            validate_schema(self.schema, self.version.name)
            validate_declared_schema(self.version, self.schema)
        if self.version.exists:
            return self.version.schema
        return self.schema if self.schema is not None else _infer_schema(self.version, sources)

    def _build_task(self, source: RecordSource, identity: Identity, schema: Schema) -> AppendTask:
        store, log = self.version.store, self.version.log
        # The name of a batch does not identify its rows: never reuse shards of another append.
        run = secrets.token_hex(8) if identity.batch is not None else ""
        return AppendTask(
            store,
            log.dataset,
            log.version,
            source,
            identity,
            schema,
            self.options,
            run,
        )

    def _run_tasks(
        self, tasks: list[AppendTask]
    ) -> tuple[list[AppendTask], list[AppendedSource | SourceRejection]]:
        """Write the shards of each source, under names that the log does not know."""
        work: Callable[[AppendTask, TaskContext], AppendedSource | SourceRejection] = (
            append_or_reject if self.skip_invalid else append_source
        )
        while True:
            attempts = [
                find_fresh_attempt(self.version.state, [task.first_plan], task.attempt)
                for task in tasks
            ]
            tasks = [
                task if attempt == task.attempt else replace(task, attempt=attempt)
                for task, attempt in zip(tasks, attempts, strict=True)
            ]
            results = list(
                run_grouped(
                    self.executor, work, tasks, self.progress, together=append_small_sources
                )
            )
            stale = {
                result.source.key
                for result in results
                if any(self.version.state.has_shard_name(shard.name) for shard in result.shards)
            }
            if not stale:
                return tasks, results
            tasks = [
                replace(task, attempt=task.attempt + 1) if task.identity.key in stale else task
                for task in tasks
            ]

    def _build_change(
        self, plan: _AppendPlan, written: Sequence[AppendedSource], schema: Schema
    ) -> Append:
        """Return the commit. Its parameters suffice to write the same shards again."""
        keys = {source.source.key for source in written}
        replaces = {
            key: replaced for key, replaced in plan.selection.replaces.items() if key in keys
        }
        return Append(
            shards=[shard for source in written for shard in source.shards],
            sources=[source.source for source in written],
            parameters=self.options.to_parameters().to_dict(),
            fingerprint=schema.fingerprint,
            retry_rejected=self.rules.retry_rejected,
            quarantine={
                source.source.key: QuarantinedRows(
                    source=source.source.key,
                    rows=source.quarantined_rows,
                    files=source.quarantine_files,
                )
                for source in written
                if source.quarantined_rows
            },
            sidecars={source.source.key: source.sidecars for source in written},
            digests={
                source.source.key: source.digest for source in written if source.digest is not None
            },
            base=plan.base,
            replacement=self._build_exchange(replaces) if replaces else Replacement(),
        )

    def _build_exchange(self, replaces: Mapping[str, Sequence[KnownSource]]) -> Replacement:
        from shardline.operations.source_replacement import build_exchange  # noqa: PLC0415 - rarely needed, with many imports

        return build_exchange(
            self.version, replaces, self.executor, self.progress, limits=self.limits
        )

    def _record_skipped(
        self,
        rejected: Sequence[SourceRejection],
        unrecorded: Sequence[SkippedSource],
        entry: Entry | None,
    ) -> None:
        """Commit which sources were rejected, and which are duplicates."""
        duplicates = [_add_entry(duplicate, entry) for duplicate in unrecorded]
        if not rejected and not duplicates:
            return
        change = RejectSources(
            [
                *(rejection.source for rejection in rejected),
                *(duplicate.source for duplicate in duplicates),
            ],
            [rejection.problem for rejection in rejected],
            retry_rejected=self.rules.retry_rejected,
            duplicates=[_make_duplicate(duplicate) for duplicate in duplicates],
        )
        with report_partial_commit("append", [] if entry is None else [format_entry_label(entry)]):
            self.version.commit(change)


def _make_conflict_error(version: StoredVersion) -> ConflictError:
    return ConflictError(
        f"{version.name}: vacuum removed shards that the append replaces",
        code="stale-plan",
        hint=Hint.of("append again"),
        version=version.name,
    )


def _add_entry(skipped: SkippedSource, entry: Entry | None) -> SkippedSource:
    """Add the entry to a duplicate of a source that the same append committed."""
    if skipped.first is None or skipped.entry is not None or entry is None:
        return skipped
    return replace(skipped, entry=entry.number) if skipped.first in entry.sources else skipped


def _make_duplicate(skipped: SkippedSource) -> SourceDuplicate:
    first = None if skipped.first is None else skipped.first.path
    return SourceDuplicate(source=skipped.source.key, first=first, entry=skipped.entry)


def _list_sources(sources: Any) -> list[Any]:  # noqa: ANN401 - anything that can be a source
    """Return a list of sources; a list of rows is a single source."""
    if isinstance(sources, list | tuple) and not any(isinstance(row, Mapping) for row in sources):
        return list(sources)
    return [sources]


@dataclass(frozen=True, slots=True)
class _IdentifyTask:
    """Task that computes the identity of a source, which reads the source once."""

    source: RecordSource

    step = "identifying"

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def size(self) -> int | None:
        return self.source.size


def _identify_source(task: _IdentifyTask, running: TaskContext) -> tuple[RecordSource, Identity]:
    # An executor may have copied the source: the copy that was read detects later changes.
    identity = task.source.identity(lambda done: running.report(done, 0))
    return task.source, identity


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
    schema = infer_source_schema(sources)
    if not schema.features and schema.payload != "opaque":
        raise SchemaMismatchError(
            f"{version.name}: cannot infer the schema of a new version from {sources[0].label}"
            + (f" and {len(sources) - 1} more" if len(sources) > 1 else ""),
            code="missing-schema",
            hint=Hint.of(
                "set ", Option("schema"), ", or append a source that contains records first"
            ),
            version=version.name,
        )
    return schema
