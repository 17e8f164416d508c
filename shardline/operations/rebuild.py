"""Rebuild: the same records in fewer shards, byte for byte and in order, checked while copying.

In place, the rebuilt shards stand where those were that they were made of. Into another version,
that version follows the first: it is planned anew each time, and what it has already is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardline.errors import CondemnedShardError, ConflictError, LogError, SchemaMismatchError
from shardline.execution.engine import Threads
from shardline.files.compression import Compression
from shardline.files.index import read_fingerprint
from shardline.files.reader import DEFAULT_LIMITS
from shardline.files.stored import StoredFile
from shardline.log.changes import Derive, Replace, edit
from shardline.log.facts import Input
from shardline.log.schema_diff import compare
from shardline.operations.copying import copy_file, copy_span
from shardline.operations.cut_shards import cut_shards, verify_cut
from shardline.operations.rebuild_plan import Output, Slice, numbered, plan_rebuild
from shardline.operations.shards import ShardPlan, fresh_attempt, make_shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.execution.engine import Engine, Listener, Running
    from shardline.files.reader import Limits
    from shardline.files.sink import RecordSink
    from shardline.log.entry import Entry
    from shardline.log.facts import Json, Shard
    from shardline.log.snapshot import Snapshot
    from shardline.log.version import Version
    from shardline.operations.shards import Part
    from shardline.storage import Store

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class RebuildTask:
    """One shard to be rebuilt from slices of others."""

    store: Store
    dataset: str
    version: str
    output: Output
    compression: Compression
    limits: Limits
    attempt: int = 0

    step = "rebuilding"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.plan.name(self.attempt)

    @property
    def size(self) -> int:
        """How many bytes it reads."""
        return sum(piece.bytes for piece in self.output.slices)

    @property
    def plan(self) -> ShardPlan:
        """The shard. How large a packed one is when it is unpacked cannot be told before."""
        grows = self.compression is Compression.NONE and any(
            piece.span is None and piece.shard.compression != "none" for piece in self.output.slices
        )
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            self.output.identity(self.compression),
            self.compression,
            largest=None if grows else self.size,
        )


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild did. `entry` is None if there was nothing to do.

    `made` are the shards that were made, of `read` shards of the input.
    """

    source: Snapshot
    version: str
    entry: Entry | None
    made: tuple[Shard, ...] = ()
    read: int = 0
    created: bool = False

    @property
    def snapshot(self) -> int | None:
        """The snapshot that it made."""
        return None if self.entry is None else self.entry.snapshot

    @property
    def records(self) -> int:
        """How many records were copied."""
        return sum(shard.records for shard in self.made)

    @property
    def bytes(self) -> int:
        """How many bytes were written."""
        return sum(shard.bytes for shard in self.made)


def rebuild(
    version: Version,
    which: str | int = "published",
    *,
    into: Version | None = None,
    target_bytes: int | None = None,
    compression: Compression | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    engine: Engine | None = None,
    progress: Listener | None = None,
) -> RebuildReport:
    """Make one shard of a snapshot, or shards of a target size (of unpacked bytes).

    Without `into` they replace the shards of the snapshot in its own version; what was appended
    behind them stays. With it, they become the content of that version of the same root, which is
    created with the same schema and checks if it is not there. They are packed as the snapshot's
    shards are, or as `compression` says. Raises DamagedFileError at a damaged record, and
    WrongShardError at a shard that is not the file that was committed; nothing is committed then.
    """
    engine = engine or Threads()
    version.refresh()
    snapshot = version.find(which)
    packing = packing_of(snapshot, compression)
    if target_bytes is not None and target_bytes < 1:
        raise ValueError(f"shards of {target_bytes} bytes: the target must be 1 or more")
    if into is not None and into.store.uri != version.store.uri:
        raise ValueError(
            f"{into.name} lies in {into.store.uri} and {version.name} in {version.store.uri}: "
            "rebuild within one root, and copy that"
        )
    work = _Work(version, snapshot, packing, target_bytes, limits, engine, progress)
    if into is None or into.name == version.name:
        return work.in_place()
    return work.into(into)


def packing_of(snapshot: Snapshot, wanted: Compression | str | None) -> Compression:
    """How to pack: as told, else as all the shards are, else not at all."""
    for shard in snapshot.shards:
        if shard.base is not None:
            raise LogError(f"{snapshot} holds overlays, which this release cannot fold in")
    if wanted is not None:
        packing = Compression(wanted)
        if packing is Compression.ZLIB:
            raise ValueError("shards are plain or GZIP: ZLIB files cannot be put behind each other")
        return packing
    packed = all(shard.compression == "gzip" for shard in snapshot.shards) and snapshot.shards
    return Compression.GZIP if packed else Compression.NONE


@dataclass(frozen=True, slots=True)
class _Work:
    version: Version
    snapshot: Snapshot
    packing: Compression
    target: int | None
    limits: Limits
    engine: Engine
    progress: Listener | None

    def in_place(self) -> RebuildReport:
        """Put the rebuilt shards where those were that they were made of."""
        planned = self._plan()
        changed = [at for at, slices in enumerate(planned) if not self._is_itself(slices)]
        if not changed:
            return RebuildReport(self.snapshot, self.version.name, None)
        outputs = numbered(planned[changed[0] : changed[-1] + 1])
        removed = _names(outputs)
        while True:
            made = self._make(self.version, outputs)
            change = Replace(removed=removed, added=made, parameters=self._parameters())
            try:
                entry = self.version.commit(change)
            except CondemnedShardError:
                continue  # vacuum took what a rebuild before this one had left: make it anew
            return RebuildReport(self.snapshot, self.version.name, entry, tuple(made), len(removed))

    def into(self, into: Version) -> RebuildReport:
        """Make the rebuilt shards the content of another version, and keep what it has of them."""
        outputs = numbered(self._plan())
        created = False
        for _ in range(_ROUNDS):
            into.refresh()
            self._refuse_other_schema(into)
            head = into.state.snapshot
            there = into.newest().shards if head else ()
            _refuse_appended(into)
            stems = {shard.name.split(".")[1]: shard for shard in there}
            kept = [stems.get(self._task(into, output).plan.stem) for output in outputs]
            missing = [out for out, shard in zip(outputs, kept, strict=True) if shard is None]
            made = self._make(into, missing)
            rest = iter(made)
            target = [shard if shard is not None else next(rest) for shard in kept]
            added, removed = edit(into.state, target)
            change = Derive(
                head=head,
                removed=removed,
                added=added,
                operation="rebuild",
                parameters=self._parameters(),
                inputs=(self._input(),),
            )
            created |= self._create(into)
            try:
                entry = into.commit(change)
            except (CondemnedShardError, ConflictError):
                continue  # someone else moved the version on: plan again for the difference
            read = len(_names(missing))
            return RebuildReport(self.snapshot, into.name, entry, tuple(made), read, created)
        raise ConflictError(
            f"{into.name}: others committed to it each time this was done; nothing was changed, "
            "try again when they have finished"
        )

    def _plan(self) -> list[tuple[Slice, ...]]:
        version = self.version
        inputs = [(version.shard_name(shard), shard) for shard in self.snapshot.shards]
        return plan_rebuild(version.store, inputs, self.target, self.limits)

    def _is_itself(self, slices: tuple[Slice, ...]) -> bool:
        """Whether a rebuilt shard would be the one that is there."""
        (piece, *others) = slices
        same = piece.shard.compression == self.packing.value
        return not others and piece.span is None and same

    def _task(self, into: Version, output: Output) -> RebuildTask:
        place = (into.store, into.log.dataset, into.log.version)
        return RebuildTask(*place, output, self.packing, self.limits)

    def _make(self, into: Version, outputs: Sequence[Output]) -> list[Shard]:
        """Make the shards, under names that the log does not know."""
        into.refresh()
        cut = cut_shards(into.store, (output.slices for output in outputs), self.limits)
        list(self.engine.run(verify_cut, cut, self.progress))
        tasks = [_with_fresh_name(into, self._task(into, output)) for output in outputs]
        while True:
            made = list(self.engine.run(make_rebuilt, tasks, self.progress))
            stale = [into.state.knows(shard.name) for shard in made]
            if not any(stale):
                return made
            tasks = [
                _with_fresh_name(into, replace(task, attempt=task.attempt + known))
                for task, known in zip(tasks, stale, strict=True)
            ]

    def _refuse_other_schema(self, into: Version) -> None:
        schema = self.snapshot.schema
        if into.exists and into.schema.fingerprint != schema.fingerprint:
            raise SchemaMismatchError(
                f"{into.name} has another schema than {self.version.name}:\n"
                f"{compare(into.schema, schema)}\nRebuild into a version of its own instead"
            )

    def _create(self, into: Version) -> bool:
        checks = self.version.state.checks_of(self.snapshot.number)
        return not into.exists and into.create(self.snapshot.schema, checks) is not None

    def _parameters(self) -> Json:
        told: Json = {"compression": self.packing.value, "snapshot": self.snapshot.number}
        return told if self.target is None else {**told, "target_bytes": self.target}

    def _input(self) -> Input:
        log = self.version.log
        digest = log.entry(self.snapshot.entry).digest
        return Input(log.dataset, log.version, self.snapshot.number, digest)


def _refuse_appended(into: Version) -> None:
    """Refuse to take out what was appended, be it rebuilt since: nothing would bring it back."""
    if next(into.state.sources.items(), None) is not None:
        raise ConflictError(
            f"{into.name} was appended to, and a rebuild into it would take that out: choose a "
            "version that holds nothing but what was rebuilt"
        )


def _names(outputs: Sequence[Output]) -> list[str]:
    """The shards that outputs are made of, in order, each once."""
    return list(dict.fromkeys(piece.shard.name for output in outputs for piece in output.slices))


def _with_fresh_name(version: Version, task: RebuildTask) -> RebuildTask:
    return replace(task, attempt=fresh_attempt(version.state, [task.plan], task.attempt))


def make_rebuilt(task: RebuildTask, running: Running) -> Shard:
    """Do one task: copy the slices into one shard, or find that made already."""
    filling = Copying(task.store, task.output.slices, task.limits, running)
    plan = replace(task.plan, aside=running.workers > 1)
    receipt = make_shard(plan, filling, attempt=task.attempt)
    if receipt.shard is None:
        raise LogError(f"{task.label}: a rebuilt shard cannot be empty")
    return receipt.shard


@dataclass(frozen=True, slots=True)
class Copying:
    """Fills a shard with slices of others. Those that are cut have been verified."""

    store: Store
    slices: tuple[Slice, ...]
    limits: Limits
    running: Running

    def begin(self) -> None:
        """Every attempt begins with the first slice."""

    def fill(self, part: Part) -> bool:
        """Copy all of them."""
        done = 0
        for piece in self.slices:
            part.end += self._copy(piece, part.shard, done, part.end)
            done += piece.bytes
        return True

    def _copy(self, piece: Slice, sink: RecordSink, done: int, records: int) -> int:
        def tell(read: int, count: int) -> None:
            self.running.tell(done + read, records + count)

        source = StoredFile(self.store, piece.name)
        if piece.span is not None:
            return copy_span(source, piece.span, sink, limits=self.limits, tell=tell)
        shard = piece.shard
        return copy_file(
            source,
            sink,
            sha256=shard.sha256,
            records=shard.records,
            fingerprint=read_fingerprint(self.store, piece.name, shard.bytes),
            limits=self.limits,
            workers=self.running.workers,
            tell=tell,
        )
