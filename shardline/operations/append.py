"""Append: the records of new sources in new shards, each source exactly once.

Plan: which of the sources are new. Execute: each becomes shards, which nobody sees yet. Commit: one
entry, in which a source that landed meanwhile is left out. Sources that cannot land stop it, or are
set aside: one more entry says why.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shardline.errors import (
    CondemnedShardError,
    ObjectMissingError,
    SchemaMismatchError,
    SourceError,
)
from shardline.execution.engine import Threads
from shardline.files.compression import Compression
from shardline.files.reader import DEFAULT_LIMITS
from shardline.hints import Hint, Option
from shardline.log.facts import Checks
from shardline.log.landing import Append, Held, SetAside
from shardline.log.schema_diff import compare
from shardline.log.version import refuse_no_version
from shardline.operations.arguments import parse_compression
from shardline.operations.landing import (
    TARGET_BYTES,
    LandingOptions,
    LandingTask,
    land,
)
from shardline.operations.set_aside import Refusal, land_or_refuse, open_or_refuse, split_refused
from shardline.operations.shards import fresh_attempt
from shardline.sources import as_source, infer_schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.execution.engine import Engine, Listener, Running
    from shardline.files.reader import Limits
    from shardline.log.entry import Entry
    from shardline.log.facts import Source as Identity
    from shardline.log.schema import Schema
    from shardline.log.version import Version
    from shardline.operations.landing import Landing
    from shardline.sources import Format, RecordSource

SkipCode: TypeAlias = Literal[
    "appended", "appended-meanwhile", "duplicate", "rejected", "rolled-back"
]
"""Why an append skips a source."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A source that was left out, and why. `out` says that it landed once and was taken out.

    `code` is the reason for scripts; `entry` is the log entry that appended or rejected it.
    """

    source: Identity
    why: str
    out: bool = False
    code: SkipCode = "appended"
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What an append did: which sources landed, and which were left out.

    `entry` is None if no source landed. `set_aside` are those that could not land. `new` is filled
    by a dry run alone: the sources that would land.
    """

    version: str
    entry: Entry | None
    landed: tuple[Landing, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    new: tuple[Identity, ...] = ()
    created: bool = False
    set_aside: tuple[Refusal, ...] = ()

    @property
    def snapshot(self) -> int | None:
        """The snapshot that it made."""
        return self.entry.snapshot if self.entry is not None and self.entry.added else None

    @property
    def records(self) -> int:
        """How many records landed."""
        return sum(landing.records for landing in self.landed)

    @property
    def bytes(self) -> int:
        """How many bytes their shards have."""
        return sum(landing.bytes for landing in self.landed)

    @property
    def refused(self) -> int:
        """How many rows went to quarantine."""
        return sum(landing.refused for landing in self.landed)

    @property
    def quarantine(self) -> tuple[str, ...]:
        """The files in which those rows are, by their names in the store."""
        return tuple(name for landing in self.landed for name in landing.quarantine)


def append(
    version: Version,
    sources: Any,  # noqa: ANN401 - anything that can be a source
    *,
    schema: Schema | None = None,
    checks: Checks = Checks(),
    batch: str | None = None,
    format: Format | None = None,  # noqa: A002 - the word that people expect
    target_bytes: int = TARGET_BYTES,
    compression: Compression | str = Compression.NONE,
    quarantine_share: float = 0.0,
    salvage: bool = False,
    set_aside: bool = False,
    reland: bool = False,
    dry_run: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    engine: Engine | None = None,
    progress: Listener | None = None,
) -> AppendReport:
    """Append the records of sources to a version, and create it if it is not there.

    A source is a file (JSON lines, CSV, Parquet, Arrow, TFRecord), a folder of files, a pandas or
    Arrow table, a dict of NumPy arrays, a `tf.data.Dataset` or an iterable of dicts; or several
    of these in a list. Data that is in memory needs a `batch` that names it: the same one never
    lands twice. A new version gets `schema`, or the one that the sources suggest, and `checks`.

    Raises BadRecordsError if more than `quarantine_share` of the rows do not fit the schema,
    SchemaMismatchError if a source has another one, DamagedFileError at a damaged TFRecord file
    unless `salvage` is set. Nothing is committed then; or, with `set_aside`, the other sources
    land, and such a one is remembered as rejected with its reason, so that it does not come in at
    the next turn either, unless its content changed. With `reland`, sources that were rejected or
    rolled back come in again.
    """
    refuse_no_version(version=version)
    options = LandingOptions(
        target_bytes,
        parse_compression(compression),
        quarantine_share,
        salvage,
        format,
        limits.max_record_bytes,
    )
    engine = engine or Threads()
    opened, refused = open_or_refuse(
        _each(sources),
        lambda one: as_source(one, batch=batch, format=format, salvage=salvage, limits=limits),
        set_aside=set_aside,
    )
    version.refresh()
    identified = engine.run(_identify, [_IdentifyTask(source) for source in opened], progress)
    new, skipped = _choose(version, identified, reland=reland)
    refused, known = _new_refusals(version, refused, reland=reland)
    skipped = (*skipped, *known)
    if dry_run or not (new or refused):
        told = tuple(identity for _, identity in new)
        return AppendReport(version.name, None, skipped=skipped, new=told, set_aside=tuple(refused))
    if not new and schema is None and not version.exists:
        raise SourceError(
            refused[0].why,
            code=refused[0].code,
            path=refused[0].source.path,
            record=refused[0].record,
            offset=refused[0].offset,
            version=version.name,
        )
    wanted = _schema(version, schema, [source for source, _ in new])
    tasks = [_task(version, source, identity, wanted, options) for source, identity in new]
    created = False
    while True:
        tasks, made = _execute(version, tasks, engine, progress, set_aside=set_aside)
        landings, unfit = split_refused(version.name, made, quarantine_share, set_aside=set_aside)
        try:
            version.store.sync([name for landing in landings for name in landing.unsynced])
        except ObjectMissingError:
            version.refresh()
            continue  # vacuum took what an append before this one had left
        if not version.exists:
            created = version.create(wanted, checks) is not None
        try:
            change = _change(landings, wanted, options, reland=reland)
            entry = version.commit(change) if landings else None
        except CondemnedShardError:
            continue  # vacuum took what an append before this one had left: make it anew
        break
    refused += unfit
    if refused:
        reasons = {one.source.key: one.to_json() for one in refused}
        version.commit(SetAside([one.source for one in refused], reasons, reland=reland))
    landed = {source.key for source in entry.sources} if entry is not None else set()
    return AppendReport(
        version.name,
        entry,
        tuple(landing for landing in landings if landing.source.key in landed),
        (
            *skipped,
            *(
                Skipped(landing.source, "it has landed meanwhile", code="appended-meanwhile")
                for landing in landings
                if landing.source.key not in landed
            ),
        ),
        created=created,
        set_aside=tuple(refused),
    )


def _each(sources: Any) -> list[Any]:  # noqa: ANN401 - anything that can be a source
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
        return self.source.shown

    @property
    def size(self) -> int | None:
        return self.source.size


def _identify(task: _IdentifyTask, running: Running) -> tuple[RecordSource, Identity]:
    """The source too: it knows now how it was when it was read, wherever that happened."""
    identity = task.source.identity(lambda done: running.tell(done, 0))
    return task.source, identity


def _choose(
    version: Version, sources: Iterable[tuple[RecordSource, Identity]], *, reland: bool
) -> tuple[list[tuple[RecordSource, Identity]], tuple[Skipped, ...]]:
    """The sources that have not landed, each once, and why the others are left out."""
    new: dict[str, tuple[RecordSource, Identity]] = {}
    skipped = []
    state, held_now = version.state, None
    for source, identity in sources:
        entry = state.sources.get(identity.key)
        held = False
        if entry is not None:
            held_now = held_now or Held(state)
            held = held_now.holds(identity, entry)
        if identity.key in new and identity.batch is not None:
            raise SourceError(
                f"duplicate batch {identity.batch!r}: two sources have this name",
                code="duplicate-batch",
                hint=Hint.of("give each batch a name of its own"),
                version=version.name,
            )
        if identity.key in new:
            skipped.append(Skipped(identity, "it is named twice", code="duplicate"))
        elif entry is None or (reland and not held):
            new[identity.key] = (source, identity)
        elif entry < 0:
            why = f"it was rejected in entry {-entry} of the log"
            skipped.append(Skipped(identity, why, not held, "rejected", -entry))
        else:
            since = "" if held else ", and was rolled back since"
            why = f"it landed in entry {entry} of the log{since}"
            code: SkipCode = "appended" if held else "rolled-back"
            skipped.append(Skipped(identity, why, not held, code, entry))
    return list(new.values()), tuple(skipped)


def _new_refusals(
    version: Version, refused: Iterable[Refusal], *, reland: bool
) -> tuple[list[Refusal], list[Skipped]]:
    """The sources that cannot be read and are to be told of, and those that the log knows."""
    new, skipped = [], []
    for one in refused:
        entry = version.state.sources.get(one.source.key)
        if entry is None or (reland and entry < 0):
            new.append(one)
        else:
            why = f"it was rejected in entry {abs(entry)} of the log"
            skipped.append(Skipped(one.source, why, out=True, code="rejected", entry=abs(entry)))
    return new, skipped


def _schema(version: Version, declared: Schema | None, sources: Sequence[RecordSource]) -> Schema:
    """The schema of the version; of a new one, what was declared or what the sources suggest."""
    if not version.exists:
        return declared if declared is not None else _inferred(version, sources)
    if declared is not None and declared.fingerprint != version.schema.fingerprint:
        raise SchemaMismatchError(
            f"{version.name}: declared schema differs from the schema of the version:\n"
            f"{compare(version.schema, declared)}",
            hint=Hint.of("append to a new version"),
            version=version.name,
        )
    return version.schema


def _inferred(version: Version, sources: Sequence[RecordSource]) -> Schema:
    found = infer_schema_of(sources)
    if not found.features and found.payload != "opaque":
        raise SchemaMismatchError(
            f"{version.name}: cannot infer the schema of a new version from {sources[0].shown}"
            + (f" and {len(sources) - 1} more" if len(sources) > 1 else ""),
            code="missing-schema",
            hint=Hint.of(
                "set ", Option("schema"), ", or append a source that contains records first"
            ),
            version=version.name,
        )
    return found


def _task(
    version: Version,
    source: RecordSource,
    identity: Identity,
    schema: Schema,
    options: LandingOptions,
) -> LandingTask:
    log = version.log
    # The name of a batch does not tell which rows are in it: they may have been mended since.
    run = secrets.token_hex(8) if identity.batch is not None else ""
    return LandingTask(
        version.store, log.dataset, log.version, source, identity, schema, options, run
    )


def _execute(
    version: Version,
    tasks: list[LandingTask],
    engine: Engine,
    progress: Listener | None,
    *,
    set_aside: bool,
) -> tuple[list[LandingTask], list[Landing | Refusal]]:
    """Make the shards of every source, under names that the log does not know."""
    work: Callable[[LandingTask, Running], Landing | Refusal] = (
        land_or_refuse if set_aside else land
    )
    while True:
        tasks = [_with_fresh_name(version, task) for task in tasks]
        made = list(engine.run(work, tasks, progress))
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


def _with_fresh_name(version: Version, task: LandingTask) -> LandingTask:
    attempt = fresh_attempt(version.state, [task.plan(0, 0)], task.attempt)
    return replace(task, attempt=attempt)


def _change(
    landings: Sequence[Landing],
    schema: Schema,
    options: LandingOptions,
    *,
    reland: bool,
) -> Append:
    """What to commit. The parameters suffice to make the shards once more."""
    return Append(
        shards=[shard for landing in landings for shard in landing.shards],
        sources=[landing.source for landing in landings],
        parameters=options.to_json(),
        fingerprint=schema.fingerprint,
        reland=reland,
        quarantine={
            landing.source.key: {"rows": landing.refused, "files": list(landing.quarantine)}
            for landing in landings
            if landing.refused
        },
    )
