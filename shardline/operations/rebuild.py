"""Rebuild: the same records in fewer shards, byte for byte and in order, checked while copying.

In place, the rebuilt shards stand where those were that they were made of. Into another version,
that version follows the first: it is planned anew each time, and what it has already is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardline.arguments import validate_minimum
from shardline.errors import LogError, TombstonedShardError, WrongShardError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint
from shardline.kernel.types import HEADER_BYTES
from shardline.log.changes import Replace
from shardline.log.parameters import RebuildParameters
from shardline.log.version import DerivedFrom, refuse_no_version
from shardline.operations.derive import (
    Derivation,
    WrittenShards,
    apply_rebuilds,
    derive,
    make_fresh_shards,
    reuse_shards,
    validate_same_root,
)
from shardline.operations.shard_slice import (
    RebuildOutput,
    ShardSlice,
    copy_file,
    copy_span,
    fold_layers,
    list_whole_slices,
    number_outputs,
    plan_rebuild,
    validate_copied_content,
)
from shardline.operations.shard_writer import ShardPlan, get_shard_compression, get_stem, make_shard
from shardline.readers.records import list_records
from shardline.tfrecord.compression import (
    Compression,
    parse_compression,
    validate_shard_compression,
)
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import read_fingerprint
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, RecordFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.model import Checks, Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.shard_slice import ShardSlice, Span
    from shardline.operations.shard_writer import OpenShard
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock
    from shardline.tfrecord.writer import RecordSink


@dataclass(frozen=True, slots=True)
class RebuildTask:
    """One shard to be rebuilt from slices of others."""

    store: Store
    dataset: str
    version: str
    output: RebuildOutput
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
            piece.layered is not None or (piece.span is None and piece.shard.compression != "none")
            for piece in self.output.slices
        )
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            self.output.identity(self.compression),
            self.compression,
            max_bytes=None if grows else self.size,
        )

    def at(self, attempt: int) -> RebuildTask:
        """The same at another attempt."""
        return replace(self, attempt=attempt)


@dataclass(frozen=True, slots=True)
class RebuildReport(WrittenShards):
    """What a rebuild did. `entry` is None if there was nothing to do.

    `made` are the shards that were made, of `read` shards of the input.
    """

    source: StoredSnapshot
    version: str
    entry: Entry | None
    made: tuple[Shard, ...] = ()
    read: int = 0
    created: bool = False


def rebuild(
    version: StoredVersion,
    which: str | int = "published",
    *,
    into: StoredVersion | None = None,
    target_bytes: int | None = None,
    compression: Compression | str | None = None,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> RebuildReport:
    """Make one shard of a snapshot, or shards of a target size (of unpacked bytes).

    Overlays are folded in, and the pairs of a plan written. Without `into` the new shards replace
    those of the snapshot in its own version; what was appended behind them stays. With it, they
    become the content of that version of the same root, which is created if it is not there: with
    the same schema, and with `checks`, or the same ones. They are packed as the snapshot's shards
    are, or as `compression` says. Raises CorruptFileError at a damaged record, and WrongShardError
    at a shard that is not the file that was committed; nothing is committed then.
    """
    refuse_no_version(version=version, **({} if into is None else {"into": into}))
    executor = executor or ThreadExecutor()
    version.refresh()
    snapshot = version.find(which)
    packing = choose_compression(snapshot, compression, into or version)
    validate_minimum("target_bytes", target_bytes, 1)
    if into is not None:
        validate_same_root(into, version)
    work = _RebuildRun(version, snapshot, packing, target_bytes, limits, executor, progress, checks)
    if into is None or into.name == version.name:
        return work.in_place()
    return work.into(into)


def choose_compression(
    snapshot: StoredSnapshot, wanted: Compression | str | None, into: StoredVersion | None = None
) -> Compression:
    """How to pack: as told, else as all the shards are, of overlays the bases, else not at all.

    In another version that has data, as that is; of shards that differ, as the version is.
    """
    if wanted is not None:
        packing = parse_compression(wanted)
        validate_shard_compression(packing)
        return packing
    found = {records.files[0].shard.compression for records in list_records(snapshot)}
    alike = Compression.GZIP if found == {"gzip"} else Compression.NONE
    in_place = into is not None and into.name == snapshot.version
    if into is None or (in_place and len(found) < 2):
        return alike
    into.refresh()
    return get_shard_compression(into, None, alike) or alike


@dataclass(frozen=True, slots=True)
class _RebuildRun:
    version: StoredVersion
    snapshot: StoredSnapshot
    packing: Compression
    target: int | None
    limits: Limits
    executor: Executor
    progress: ProgressListener | None
    checks: Checks | None = None

    def in_place(self) -> RebuildReport:
        """Put the rebuilt shards where those were that they were made of."""
        planned = self._plan()
        changed = [at for at, slices in enumerate(planned) if not self._is_itself(slices)]
        if not changed:
            return RebuildReport(self.snapshot, self.version.name, None)
        outputs = number_outputs(planned[changed[0] : changed[-1] + 1])
        removed = _list_names(outputs)
        while True:
            receipts = self._make(outputs)
            made = [receipt.shard for receipt in receipts if receipt.shard is not None]
            sidecars = {n: digest for one in receipts for n, digest in one.sidecars.items()}
            change = Replace(
                removed=removed,
                added=made,
                parameters=self._parameters().to_dict(),
                sidecars=sidecars,
            )
            try:
                entry = self.version.commit(change)
            except TombstonedShardError:
                continue  # vacuum took what a rebuild before this one had left: make it anew
            return RebuildReport(self.snapshot, self.version.name, entry, tuple(made), len(removed))

    def into(self, into: StoredVersion) -> RebuildReport:
        """Make the rebuilt shards the content of another version, and keep what it has of them."""
        tasks = [self._task(into, output) for output in number_outputs(self._plan())]
        schema = self.snapshot.schema
        done = derive(
            Derivation(
                into=into,
                operation="rebuild",
                schema=schema,
                checks=self.checks or self.version.state.checks_of(self.snapshot.number),
                origins=(DerivedFrom(self.version, self.snapshot),),
                wanted=lambda state: apply_rebuilds(into.log, state, reuse_shards(state, tasks)),
                prepare=self._verify_cut,
                make=make_rebuilt_shard,
                parameters=self._parameters(),
            ),
            self.executor,
            self.progress,
        )
        kept = {get_stem(shard.name) for shard in done.reused}
        read = len(_list_names([task.output for task in tasks if task.plan.stem not in kept]))
        return RebuildReport(self.snapshot, into.name, done.entry, done.made, read, done.created)

    def _plan(self) -> list[tuple[ShardSlice, ...]]:
        inputs = list_whole_slices(self.snapshot)
        return plan_rebuild(self.version.store, inputs, self.target, self.limits)

    def _is_itself(self, slices: tuple[ShardSlice, ...]) -> bool:
        """Whether a rebuilt shard would be the one that is there."""
        (piece, *others) = slices
        same = piece.shard.compression == self.packing.value and piece.layered is None
        return not others and piece.span is None and same

    def _task(self, into: StoredVersion, output: RebuildOutput) -> RebuildTask:
        place = (into.store, into.log.dataset, into.log.version)
        return RebuildTask(*place, output, self.packing, self.limits)

    def _make(self, outputs: Sequence[RebuildOutput]) -> list[Receipt]:
        """Make shards of this version, under names that its log does not know."""
        self.version.refresh()
        tasks = [self._task(self.version, output) for output in outputs]
        self._verify_cut(tasks)
        return make_fresh_shards(
            self.version, tasks, make_rebuilt_shard, self.executor, self.progress
        )

    def _verify_cut(self, tasks: Sequence[RebuildTask]) -> None:
        """Read the shards whole that are not copied whole."""
        slices = (task.output.slices for task in tasks)
        cut = list_cut_tasks(self.version.store, slices, self.limits)
        list(self.executor.run(verify_cut_shard, cut, self.progress))

    def _parameters(self) -> RebuildParameters:
        return RebuildParameters(
            compression=self.packing.value,
            snapshot=self.snapshot.number,
            target_bytes=self.target,
        )


def _list_names(outputs: Sequence[RebuildOutput]) -> list[str]:
    """The shards that outputs are made of, in order, each once."""
    return list(dict.fromkeys(piece.shard.name for output in outputs for piece in output.slices))


def make_rebuilt_shard(task: RebuildTask, running: TaskContext) -> Receipt:
    """Do one task: copy the slices into one shard, or find that made already."""
    filling = SliceShardWriter(task.store, task.output.slices, task.limits, running)
    plan = replace(task.plan, hash_in_thread=running.workers > 1)
    receipt = make_shard(plan, filling, attempt=task.attempt)
    if receipt.shard is None:
        raise LogError(f"{task.label}: a rebuilt shard cannot be empty", code="plan-mismatch")
    return receipt


@dataclass(frozen=True, slots=True)
class SliceShardWriter:
    """Fills a shard with slices of others. Those that are cut have been verified."""

    store: Store
    slices: tuple[ShardSlice, ...]
    limits: Limits
    running: TaskContext

    def begin(self) -> None:
        """Every attempt begins with the first slice."""

    def fill(self, part: OpenShard) -> bool:
        """Copy all of them."""
        part.end += copy_slices(self.store, self.slices, part.shard, self.limits, self.running)
        return True


def copy_slices(
    store: Store,
    slices: Sequence[ShardSlice],
    sink: RecordSink,
    limits: Limits,
    running: TaskContext,
) -> int:
    """Copy the records of slices one behind the other, and say how many."""
    done = records = 0
    for piece in slices:

        def tell(read: int, count: int, done: int = done, before: int = records) -> None:
            running.report(done + read, before + count)

        records += _copy_slice(
            store, piece, sink, limits=limits, workers=running.workers, tell=tell
        )
        done += piece.bytes
    return records


def _copy_slice(
    store: Store,
    piece: ShardSlice,
    sink: RecordSink,
    *,
    limits: Limits,
    workers: int,
    tell: Callable[[int, int], None],
) -> int:
    if piece.layered is not None:
        return fold_layers(piece.layered, sink, limits, tell)
    source, shard = StoredFile(store, piece.name), piece.shard
    if piece.span is not None:
        return copy_span(source, piece.span, sink, limits=limits, tell=tell)
    return copy_file(
        source,
        sink,
        sha256=shard.sha256,
        records=shard.records,
        fingerprint=read_fingerprint(store, piece.name, shard.bytes, shard.sha256),
        limits=limits,
        workers=workers,
        tell=tell,
    )


@dataclass(frozen=True, slots=True)
class VerifyCutTask:
    """A shard of which spans are to be copied."""

    store: Store
    name: str
    shard: Shard
    spans: tuple[Span, ...]
    limits: Limits

    step = "verifying"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.shard.name

    @property
    def size(self) -> int:
        """How many bytes it reads."""
        return self.shard.bytes


def list_cut_tasks(
    store: Store, outputs: Iterable[Sequence[ShardSlice]], limits: Limits
) -> list[VerifyCutTask]:
    """The shards of which these outputs take a part, each once."""
    spans: dict[str, list[Span]] = {}
    shards: dict[str, Shard] = {}
    for piece in (piece for output in outputs for piece in output):
        if piece.span is not None:
            spans.setdefault(piece.name, []).append(piece.span)
            shards[piece.name] = piece.shard
    return [VerifyCutTask(store, name, shards[name], tuple(spans[name]), limits) for name in spans]


def verify_cut_shard(task: VerifyCutTask, running: TaskContext) -> None:
    """Refuse a shard that is damaged, or not the one that was committed, or cut elsewhere.

    Raises CorruptFileError or WrongShardError.
    """
    source = StoredFile(task.store, task.name)
    file = HashedFile(source.open())
    borders = _SpanBorders(task.spans)
    count = end = 0
    with RecordFile(file, limits=task.limits) as read:
        for block in read.blocks():
            borders.compare(block)
            count += len(block.starts)
            end = block.offset + len(block.data)
            running.report(read.stream.position, count)
        validate_copied_content(
            source, file.finish(), count, sha256=task.shard.sha256, records=task.shard.records
        )
    if not borders.are_right(count, end):
        raise WrongShardError(
            f"{source}.index: the index does not match its shard, which is intact",
            code="index-mismatch",
            hint=Hint.of("delete the index, which is derived, and rebuild again"),
            path=f"{source}.index",
        )


class _SpanBorders:
    """Where spans begin and end, compared with where the records really do."""

    def __init__(self, spans: Sequence[Span]) -> None:
        told = {(span.first, span.start_byte) for span in spans}
        self._left = sorted(told | {(span.end, span.end_byte) for span in spans}, reverse=True)
        self._right = True

    def compare(self, block: RecordBlock) -> None:
        """Look at those at which a record of the block begins."""
        while self._left and self._left[-1][0] < block.record + len(block.starts):
            record, byte = self._left.pop()
            begins = block.offset + int(block.starts[record - block.record]) - HEADER_BYTES
            self._right &= begins == byte

    def are_right(self, records: int, end: int) -> bool:
        """Whether all were; one may be left, at the end of the shard."""
        return self._right and self._left in ([], [(records, end)])
