"""Rebuild: copy the records of a version into shards of another size, in the same order.

In place, the new shards replace those that they were copied from. In another version, they are its
content, and later rebuilds write only what is new.
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
from shardline.log.version import DerivedFrom, validate_version
from shardline.operations.derive import (
    Derivation,
    DeriveReport,
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

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener, TaskContext
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
    """A shard to copy from slices of other shards."""

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
        """Name for progress and messages."""
        return self.plan.name(self.attempt)

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return sum(part.bytes for part in self.output.slices)

    @property
    def plan(self) -> ShardPlan:
        """Plan of the shard. The size of decompressed data is unknown."""
        grows = self.compression is Compression.NONE and any(
            part.layered is not None or (part.span is None and part.shard.compression != "none")
            for part in self.output.slices
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
        """Return the task for another attempt."""
        return replace(self, attempt=attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport(DeriveReport):
    """Result of a rebuild. `read_shards` is the number of shards that were copied from."""

    read_shards: int = 0

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {**super(RebuildReport, self).to_dict(), "read_shards": self.read_shards}


def rebuild(
    version: StoredVersion,
    into: StoredVersion | None = None,
    *,
    snapshot: str | int = "published",
    target_bytes: int | None = None,
    compression: Compression | str | None = None,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> RebuildReport:
    """Copy the records of a snapshot into one shard, or into shards of a target size.

    Overlays become whole records, and the pairs of a plan are written. Each record is verified.

    Args:
        version: The version to read.
        into: The version to write, which may be new. By default the new shards replace those of
            the snapshot in `version`; shards that were appended since stay.
        snapshot: Snapshot to read: "published", "latest", a number, a tag or a time.
        target_bytes: Size of a shard, before compression. By default there is a single shard.
        compression: "none" or "gzip". By default that of the version to write, else that of the
            snapshot.
        checks: Checks of a new version. By default those of `version`.
        limits: Limits of what is read.
        executor: Runs the tasks. By default on threads.
        progress: Called with the progress of each task.

    Returns:
        The new entry and its shards.

    Raises:
        CorruptFileError: If a record is corrupt. Nothing is committed.
        WrongShardError: If a shard is not the committed file. Nothing is committed.

    Example:
        rebuild(root["digits/v1"], target_bytes=128 * 1024 * 1024)
    """
    validate_version(version=version, **({} if into is None else {"into": into}))
    version.refresh()
    source = version.find(snapshot)
    parsed = choose_compression(source, compression, into or version)
    validate_minimum("target_bytes", target_bytes, 1)
    if into is not None:
        validate_same_root(into, version)
    run = _RebuildRun(
        version,
        source,
        parsed,
        target_bytes,
        limits,
        executor or ThreadExecutor(),
        progress,
        checks,
    )
    if into is None or into.name == version.name:
        return run.replace_in_place()
    return run.derive_into(into)


def choose_compression(
    snapshot: StoredSnapshot,
    compression: Compression | str | None,
    into: StoredVersion | None = None,
) -> Compression:
    """Return the compression of copied records: the given one, else by default.

    The default is that of the version to write if that has shards, or if the shards of the snapshot
    differ. Otherwise it is that of all shards, or of the bases of overlays.
    """
    if compression is not None:
        parsed = parse_compression(compression)
        validate_shard_compression(parsed)
        return parsed
    present = {records.files[0].shard.compression for records in list_records(snapshot)}
    common = Compression.GZIP if present == {"gzip"} else Compression.NONE
    in_place = into is not None and into.name == snapshot.version
    if into is None or (in_place and len(present) < 2):
        return common
    into.refresh()
    return get_shard_compression(into, None, common) or common


@dataclass(frozen=True, slots=True)
class _RebuildRun:
    version: StoredVersion
    snapshot: StoredSnapshot
    compression: Compression
    target_bytes: int | None
    limits: Limits
    executor: Executor
    progress: ProgressListener | None
    checks: Checks | None = None

    def replace_in_place(self) -> RebuildReport:
        """Replace shards of the version by rebuilt ones."""
        planned = self._plan()
        changed = [index for index, slices in enumerate(planned) if not self._is_unchanged(slices)]
        outputs = number_outputs(planned[changed[0] : changed[-1] + 1]) if changed else []
        removed = _list_input_names(outputs)
        report = RebuildReport(version=self.version.name, inputs=(self.snapshot,))
        while outputs:
            receipts = self._write(outputs)
            written = tuple(receipt.shard for receipt in receipts if receipt.shard is not None)
            change = Replace(
                removed=removed,
                added=written,
                parameters=self._parameters().to_dict(),
                sidecars={
                    name: digest
                    for receipt in receipts
                    for name, digest in receipt.sidecars.items()
                },
            )
            try:
                entry = self.version.commit(change)
            except TombstonedShardError:
                continue  # vacuum deleted shards of an interrupted rebuild: write them again
            return replace(report, entry=entry, written=written, read_shards=len(removed))
        return report

    def derive_into(self, into: StoredVersion) -> RebuildReport:
        """Derive another version from the rebuilt shards."""
        tasks = [self._make_task(into, output) for output in number_outputs(self._plan())]
        report = derive(
            Derivation(
                into=into,
                operation="rebuild",
                schema=self.snapshot.schema,
                checks=self.checks or self.version.state.get_checks(self.snapshot.number),
                origins=(DerivedFrom(self.version, self.snapshot),),
                plan=lambda state: apply_rebuilds(into.log, state, reuse_shards(state, tasks)),
                prepare=self._verify_cut_shards,
                make=make_rebuilt_shard,
                parameters=self._parameters(),
            ),
            self.executor,
            self.progress,
        )
        reused = {get_stem(shard.name) for shard in report.reused}
        inputs = _list_input_names(task.output for task in tasks if task.plan.stem not in reused)
        return RebuildReport.extend(report, read_shards=len(inputs))

    def _plan(self) -> list[tuple[ShardSlice, ...]]:
        inputs = list_whole_slices(self.snapshot)
        return plan_rebuild(self.version.store, inputs, self.target_bytes, self.limits)

    def _is_unchanged(self, slices: tuple[ShardSlice, ...]) -> bool:
        (first, *others) = slices
        is_same_file = first.shard.compression == self.compression.value and first.layered is None
        return not others and first.span is None and is_same_file

    def _make_task(self, into: StoredVersion, output: RebuildOutput) -> RebuildTask:
        log = into.log
        return RebuildTask(
            into.store, log.dataset, log.version, output, self.compression, self.limits
        )

    def _write(self, outputs: Sequence[RebuildOutput]) -> list[Receipt]:
        """Write shards of this version under names that its log does not know."""
        self.version.refresh()
        tasks = [self._make_task(self.version, output) for output in outputs]
        self._verify_cut_shards(tasks)
        return make_fresh_shards(
            self.version, tasks, make_rebuilt_shard, self.executor, self.progress
        )

    def _verify_cut_shards(self, tasks: Sequence[RebuildTask]) -> None:
        """Verify all of each shard of which only a part is copied."""
        slices = (task.output.slices for task in tasks)
        cut = list_cut_tasks(self.version.store, slices, self.limits)
        list(self.executor.run(verify_cut_shard, cut, self.progress))

    def _parameters(self) -> RebuildParameters:
        return RebuildParameters(
            compression=self.compression.value,
            snapshot=self.snapshot.number,
            target_bytes=self.target_bytes,
        )


def _list_input_names(outputs: Iterable[RebuildOutput]) -> list[str]:
    """Return the shards that outputs are copied from, in order and without duplicates."""
    return list(dict.fromkeys(part.shard.name for output in outputs for part in output.slices))


def make_rebuilt_shard(task: RebuildTask, running: TaskContext) -> Receipt:
    """Copy the slices of a task into a shard, or find it written."""
    writer = SliceShardWriter(task.store, task.output.slices, task.limits, running)
    plan = replace(task.plan, hash_in_thread=running.workers > 1)
    receipt = make_shard(plan, writer, attempt=task.attempt)
    if receipt.shard is None:
        raise LogError(f"{task.label}: a rebuilt shard cannot be empty", code="plan-mismatch")
    return receipt


@dataclass(frozen=True, slots=True)
class SliceShardWriter:
    """Writer of slices of other shards. Shards that are copied in part are verified before."""

    store: Store
    slices: tuple[ShardSlice, ...]
    limits: Limits
    running: TaskContext

    def begin(self) -> None:
        """Do nothing: every attempt begins with the first slice."""

    def fill(self, part: OpenShard) -> bool:
        """Copy all slices."""
        part.end += copy_slices(self.store, self.slices, part.shard, self.limits, self.running)
        return True


def copy_slices(
    store: Store,
    slices: Sequence[ShardSlice],
    sink: RecordSink,
    limits: Limits,
    running: TaskContext,
) -> int:
    """Copy the records of slices in order. Returns the number of records."""
    done = records = 0
    for part in slices:

        def report(read: int, count: int, done: int = done, before: int = records) -> None:
            running.report(done + read, before + count)

        records += _copy_slice(
            store, part, sink, limits=limits, workers=running.workers, progress=report
        )
        done += part.bytes
    return records


def _copy_slice(
    store: Store,
    part: ShardSlice,
    sink: RecordSink,
    *,
    limits: Limits,
    workers: int,
    progress: Callable[[int, int], None],
) -> int:
    if part.layered is not None:
        return fold_layers(part.layered, sink, limits, progress)
    source, shard = StoredFile(store, part.name), part.shard
    if part.span is not None:
        return copy_span(source, part.span, sink, limits=limits, progress=progress)
    return copy_file(
        source,
        sink,
        sha256=shard.sha256,
        records=shard.records,
        fingerprint=read_fingerprint(store, part.name, shard.bytes, shard.sha256),
        limits=limits,
        workers=workers,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class VerifyCutTask:
    """A shard to verify, because only spans of it are copied."""

    store: Store
    name: str
    shard: Shard
    spans: tuple[Span, ...]
    limits: Limits

    step = "verifying"

    @property
    def label(self) -> str:
        """Name for progress and messages."""
        return self.shard.name

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return self.shard.bytes


def list_cut_tasks(
    store: Store, outputs: Iterable[Sequence[ShardSlice]], limits: Limits
) -> list[VerifyCutTask]:
    """Return a task for each shard of which only a part is copied."""
    spans: dict[str, list[Span]] = {}
    shards: dict[str, Shard] = {}
    for part in (part for output in outputs for part in output):
        if part.span is not None:
            spans.setdefault(part.name, []).append(part.span)
            shards[part.name] = part.shard
    return [VerifyCutTask(store, name, shards[name], tuple(spans[name]), limits) for name in spans]


def verify_cut_shard(task: VerifyCutTask, running: TaskContext) -> None:
    """Verify a shard and the ends of its spans. Raises CorruptFileError or WrongShardError."""
    source = StoredFile(task.store, task.name)
    file = HashedFile(source.open())
    ends = _SpanEnds(task.spans)
    count = end = 0
    with RecordFile(file, limits=task.limits) as read:
        for block in read.blocks():
            ends.compare(block)
            count += len(block.starts)
            end = block.offset + len(block.data)
            running.report(read.stream.position, count)
        validate_copied_content(
            source, file.finish(), count, sha256=task.shard.sha256, records=task.shard.records
        )
    if not ends.match(count, end):
        raise WrongShardError(
            f"{source}.index: the index does not match its shard, which is intact",
            code="index-mismatch",
            hint=Hint.of("delete the index, which is derived, and rebuild again"),
            path=f"{source}.index",
        )


class _SpanEnds:
    """Offsets where spans begin and end, compared with those of the records."""

    def __init__(self, spans: Sequence[Span]) -> None:
        starts = {(span.first, span.start_byte) for span in spans}
        self._remaining = sorted(starts | {(span.end, span.end_byte) for span in spans})[::-1]
        self._is_correct = True

    def compare(self, block: RecordBlock) -> None:
        """Compare the ends that are in a block."""
        while self._remaining and self._remaining[-1][0] < block.record + len(block.starts):
            record, offset = self._remaining.pop()
            start = block.offset + int(block.starts[record - block.record]) - HEADER_BYTES
            self._is_correct &= start == offset

    def match(self, records: int, end: int) -> bool:
        """Return True if all ends are correct. The end of the file may not have been compared."""
        return self._is_correct and self._remaining in ([], [(records, end)])
