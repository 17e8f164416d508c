"""Shard writer: rows to one shard with its sidecars, resumable and exactly once.

The name of a shard is a hash of its content identity: the inputs and the options. A shard that
exists with a matching receipt is reused. Any other file of that name is left alone, and the next
attempt has another name.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardline import canonical_json as canonical
from shardline.errors import LogError, ObjectExistsError
from shardline.kernel.types import HEADER_BYTES
from shardline.log.model import RECEIPT, ROWS, Shard
from shardline.schema.encoding import EncodedRows
from shardline.sidecars.quarantine import QuarantineWriter
from shardline.sidecars.receipt import Receipt, extend_spans, read_receipt
from shardline.sidecars.row_map import RowMapWriter
from shardline.storage.store import NewObject
from shardline.tfrecord.compression import (
    Compression,
    get_frame_ends,
    parse_compression,
    validate_shard_compression,
)
from shardline.tfrecord.hashing import hash_object
from shardline.tfrecord.writer import MemoryWriter, RecordSink, write_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from shardline.canonical_json import Json
    from shardline.kernel.types import IntArray
    from shardline.log.model import Base
    from shardline.log.state import State
    from shardline.log.version import StoredVersion
    from shardline.schema.schema import Schema
    from shardline.sources import QuarantinedRow, RecordSource
    from shardline.storage import Store
    from shardline.storage.store import ObjectWriter
    from shardline.tfrecord.hashing import FileContent
    from shardline.tfrecord.writer import WrittenFile


_STEM_DIGITS = 32
_ATTEMPTS = 1_000_000
_MAX_REASONS = 10
_BATCH_ROWS = 64 * 1024
_CRC_BYTES = 4


@dataclass(frozen=True)
class ShardPlan:
    """Plan of one shard; `identity` is hashed into its name.

    Attributes:
        source: Key of the source that the records come from.
        base: Shard under an overlay.
        label: Display name of the source or base.
        first: First row of the shard.
        max_bytes: Upper bound of the size, if known.
        hash_in_thread: Whether another thread may compute the SHA-256.
        expected: Expected content, if known.
        suffix: File suffix.
        unsynced: List that collects the files which `Store.sync` must make durable. Without a
            list, each file is durable at once.
        functions: Source digests of the functions that compute the records.
    """

    store: Store
    dataset: str
    version: str
    identity: Json
    compression: Compression = Compression.NONE
    source: str | None = None
    label: str = ""
    first: int = 0
    max_bytes: int | None = None
    hash_in_thread: bool = False
    expected: FileContent | None = None
    base: Base | None = None
    suffix: str = ".tfrecord"
    unsynced: list[str] | None = None
    functions: tuple[str, ...] = ()

    @cached_property
    def stem(self) -> str:
        """Identity part of the name."""
        return make_stem(self.identity)

    def name(self, attempt: int) -> str:
        """Return the shard name of an attempt."""
        return f"{self._leaf(attempt)}{self.suffix}"

    def path(self, attempt: int) -> str:
        """Return the object name of the shard."""
        return f"{self.dataset}/shards/{self.name(attempt)}"

    def quarantine(self, attempt: int) -> str:
        """Return the object name of the quarantine file."""
        return f"{self.dataset}/quarantine/{self._leaf(attempt)}.jsonl"

    def _leaf(self, attempt: int) -> str:
        return f"{self.version}.{self.stem}{f'.{attempt}' if attempt else ''}"

    def writer(self, path: str) -> AbstractContextManager[ObjectWriter]:
        """Open a file for writing, durable unless the plan collects unsynced files."""
        return self.store.writer(path, synced=self.unsynced is None)

    def note_unsynced(self, path: str) -> None:
        """Record a file that `Store.sync` must make durable."""
        if self.unsynced is not None:
            self.unsynced.append(path)

    def choose_attempt(self, attempt: int) -> int:
        """Return the attempt to write: a random one if an upload could overwrite another."""
        limit = self.store.largest_create
        if limit is None or (self.max_bytes is not None and self.max_bytes <= limit):
            return attempt
        return attempt + 1 + secrets.randbelow(_ATTEMPTS - attempt - 1)


def find_fresh_attempt(state: State, plans: Iterable[ShardPlan], attempt: int) -> int:
    """Return the first attempt, from this one on, whose shard names are unknown to the log.

    A known name belongs to a rejected, rolled back or vacuumed shard. A new shard of that name
    would inherit its state.
    """
    plans = list(plans)
    while any(state.has_shard_name(plan.name(attempt)) for plan in plans):
        attempt += 1
    return attempt


def make_stem(identity: Json) -> str:
    """Return the identity part of a shard name."""
    return canonical.sha256(identity)[:_STEM_DIGITS]


def get_stem(name: str) -> str:
    """Parse the identity part of a shard name."""
    return name.split(".")[1]


class ShardWriter(Protocol):
    """Producer of the records of a shard."""

    def begin(self) -> None:
        """Seek to the start of the shard; called once per attempt."""
        ...

    def fill(self, part: OpenShard) -> bool:
        """Add records and quarantined rows. Returns True at the end of the input."""
        ...


class OpenShard:
    """Shard under construction, with its quarantine file and row map.

    Each file is created with its first row.
    """

    def __init__(self, plan: ShardPlan, attempt: int) -> None:
        self.end = plan.first
        self.quarantined_spans: list[tuple[int, int]] = []
        self.gaps = 0
        self._last_gap_row = -1
        self.reasons: list[str] = []
        self.sidecars: Json = {}
        self._plan = plan
        self._attempt = attempt
        self._shard_stack = ExitStack()
        self._quarantine_stack = ExitStack()
        self._rows_stack = ExitStack()
        self._shard: RecordSink | None = None
        self._quarantine: QuarantineWriter | None = None
        self._rows: RowMapWriter | None = None

    @property
    def shard(self) -> RecordSink:
        """File of the shard."""
        if self._shard is None:
            path = self._plan.path(self._attempt)
            plan = self._plan
            writing = write_stored(
                plan.store,
                path,
                plan.compression,
                aside=plan.hash_in_thread,
                expected=plan.expected,
                synced=plan.unsynced is None,
            )
            self._shard = self._shard_stack.enter_context(writing)
        return self._shard

    def quarantine(self, row: QuarantinedRow) -> None:
        """Add a row to the quarantine file."""
        if self._quarantine is None:
            path = self._plan.quarantine(self._attempt)
            file = self._quarantine_stack.enter_context(self._plan.writer(path))
            self._quarantine = QuarantineWriter(file, self._plan.label)
        self._quarantine.add(row)
        extend_spans(self.quarantined_spans, row.row)
        if row.damage and row.row != self._last_gap_row:
            self.gaps += 1
            self._last_gap_row = row.row
        if len(self.reasons) < _MAX_REASONS:
            self.reasons.append(str(row))

    @property
    def records(self) -> int:
        """Number of records so far."""
        return 0 if self._shard is None else self._shard.records

    def is_countable(self, first: int) -> bool:
        """Return True if each row from `first` on gave a record or is in quarantine."""
        return Receipt(
            (first, self.end), last=False, refused=tuple(self.quarantined_spans), damaged=self.gaps
        ).is_countable(self.records)

    def add_origins(self, *numbers: IntArray, width: int = 8) -> None:
        """Add the origins of the latest records to the row map, where counting does not suffice.

        Each number has at most `width` bytes.
        """
        if self._rows is None:
            path = self._plan.path(self._attempt) + ROWS
            file = self._rows_stack.enter_context(self._plan.writer(path))
            self._rows = RowMapWriter(file, len(numbers), width)
        self._rows.add(*numbers)

    def close(self) -> tuple[WrittenFile | None, str | None]:
        """Finish all files, the shard last, so that it never exists without its sidecars.

        Raises ContentMismatchError, before any file exists, if the shard has unexpected content.
        """
        written = None if self._shard is None else self._shard.finish()
        quarantine = None
        if self._quarantine is not None:
            quarantine = self._plan.quarantine(self._attempt)
            file = self._quarantine
            self._finish(self._quarantine_stack, quarantine, file.bytes, file.sha256)
            self.sidecars[quarantine.rpartition("/")[2]] = file.sha256
        if self._rows is not None:
            self._rows.finish()
            rows = self._plan.path(self._attempt) + ROWS
            self._finish(self._rows_stack, rows, self._rows.bytes, self._rows.sha256)
            self.sidecars[rows.rpartition("/")[2]] = self._rows.sha256
        if written is not None:
            path = self._plan.path(self._attempt)
            self._finish(self._shard_stack, path, written.bytes, written.sha256)
        return written, quarantine

    def _finish(self, stack: ExitStack, path: str, size: int, sha256: str) -> None:
        """Finish a file. The same content from a concurrent writer counts as success."""
        try:
            stack.close()
        except ObjectExistsError:
            if hash_object(self._plan.store, path, size) != sha256:
                raise
        self._plan.note_unsynced(path)

    def abandon(self, error: BaseException) -> None:
        """Remove the unfinished files."""
        for stack in (self._shard_stack, self._rows_stack, self._quarantine_stack):
            stack.__exit__(type(error), error, error.__traceback__)


class RowStream:
    """Encoded rows of a source in order, of which each shard takes as many as fit.

    `open_at` returns blocks of rows from a row on, each with the number of the row after it.
    """

    def __init__(self, open_at: Callable[[int], Iterator[tuple[EncodedRows, int]]]) -> None:
        self._open_at = open_at
        self._blocks: Iterator[tuple[EncodedRows, int]] | None = None
        self._rest: tuple[EncodedRows, int] | None = None
        self._row = -1  # Position; negative in the middle of a shard.

    def seek(self, row: int) -> None:
        """Continue at a row."""
        if row != self._row:
            self.close()
            self._blocks, self._rest, self._row = self._open_at(row), None, row

    def close(self) -> None:
        """Stop reading."""
        if self._blocks is not None:
            close = getattr(self._blocks, "close", None)
            if close is not None:
                close()
        self._blocks = self._rest = None

    def fill(self, part: OpenShard, target: int | None) -> bool:
        """Add records until the shard is full. Returns True at the end of the source."""
        self._row = -1
        first, runs = part.end, _RowRuns()
        last = True
        while last and (block := self._next_block()) is not None:
            frames, end = block
            count = _add_until_full(part, frames, target) if len(frames.starts) else 0
            runs.add(frames.rows[:count])
            if count < len(frames.starts):
                frames, tail = split_frames(frames, count)
                self._rest = (tail, end)
                end = self._row = int(tail.rows[0])
                last = False
            for row in frames.refused:
                part.quarantine(row)
            part.end = end
        if not part.is_countable(first):
            for rows in runs.rows():
                part.add_origins(rows)
        return last

    def _next_block(self) -> tuple[EncodedRows, int] | None:
        if self._rest is not None:
            block, self._rest = self._rest, None
            return block
        return None if self._blocks is None else next(self._blocks, None)


class _RowRuns:
    """Ascending row numbers, stored as runs without a gap."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []

    def add(self, rows: IntArray) -> None:
        """Append row numbers."""
        if not len(rows):
            return
        cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
        for start, end in pairwise(cuts):
            first, count = int(rows[start]), end - start
            if self._runs and sum(self._runs[-1]) == first:
                self._runs[-1] = (self._runs[-1][0], self._runs[-1][1] + count)
            else:
                self._runs.append((first, count))

    def rows(self) -> Iterator[IntArray]:
        """Yield all row numbers in batches."""
        for first, count in self._runs:
            for start in range(first, first + count, _BATCH_ROWS):
                yield np.arange(start, min(start + _BATCH_ROWS, first + count))


def _add_until_full(part: OpenShard, frames: EncodedRows, target: int | None) -> int:
    """Add as many records as fit. Returns their number."""
    ends = get_frame_ends(frames.starts, frames.lengths)
    data = memoryview(frames.data)
    added, offset = 0, 0
    while added < len(ends):
        count = part.shard.fitting(ends[added:] - offset, target)
        if not count:
            break
        end = int(ends[added + count - 1])
        piece = slice(added, added + count)
        part.shard.add(data[offset:end], frames.starts[piece] - offset, frames.lengths[piece])
        added, offset = added + count, end
    return added


def split_frames(frames: EncodedRows, count: int) -> tuple[EncodedRows, EncodedRows]:
    """Split rows before record `count`. Quarantined rows keep their side."""
    row = int(frames.rows[count])
    offset = int(frames.starts[count]) - HEADER_BYTES
    quarantined = tuple(bad for bad in frames.refused if bad.row < row)
    head = EncodedRows(
        memoryview(frames.data)[:offset],
        frames.starts[:count],
        frames.lengths[:count],
        frames.rows[:count],
        quarantined,
    )
    tail = replace(
        frames,
        data=memoryview(frames.data)[offset:],
        starts=frames.starts[count:] - offset,
        lengths=frames.lengths[count:],
        rows=frames.rows[count:],
        refused=frames.refused[len(quarantined) :],
    )
    return head, tail


class RowsDigest:
    """Incremental digest of rows in order; rows that were added before are skipped."""

    def __init__(self) -> None:
        self._records = hashlib.sha256()
        self._quarantined = hashlib.sha256()
        self._end = 0

    def add(self, frames: EncodedRows, end: int) -> None:
        """Add the rows up to `end`."""
        first = int(np.searchsorted(frames.rows, self._end))
        if first < len(frames.rows):
            lengths = frames.lengths[first:]
            ends = frames.starts[first:] + lengths
            data = np.frombuffer(frames.data, np.uint8)
            sums = data[ends[:, None] + np.arange(_CRC_BYTES)]
            columns = (lengths.astype("<u8").view(np.uint8).reshape(-1, 8), sums)
            self._records.update(np.concatenate(columns, axis=1).tobytes())
        for bad in frames.refused:
            if bad.row >= self._end:
                self._quarantined.update(b"%d %d\n" % (bad.row, len(bad.content)))
                self._quarantined.update(bad.content)
        self._end = max(self._end, end)

    def hexdigest(self) -> str:
        """Return the digest of all rows so far."""
        digests = self._records.digest() + self._quarantined.digest()
        return hashlib.sha256(digests).hexdigest()


def digest_rows(source: RecordSource, schema: Schema) -> str:
    """Return the digest of all rows of a source, encoded with a schema."""
    digest = RowsDigest()
    for chunk in source.chunks(schema):
        digest.add(chunk.frames(), chunk.end)
    return digest.hexdigest()


def make_shard(plan: ShardPlan, writer: ShardWriter, *, attempt: int = 0) -> Receipt:
    """Write a shard, or reuse the one that an earlier writer left."""
    while attempt < _ATTEMPTS:
        receipt = read_receipt(plan.store, plan.path(attempt) + RECEIPT)
        if receipt is not None and _is_planned(plan, receipt):
            _note_reused(plan, attempt, receipt)
            return replace(receipt, is_recovered=True)
        try:
            return _write_shard(plan, writer, attempt)
        except ObjectExistsError:
            attempt += 1
    raise LogError(
        f"{plan.dataset}/{plan.version}: cannot find a free name for {plan.name(0)}",
        code="no-free-name",
        version=f"{plan.dataset}/{plan.version}",
    )


def _is_planned(plan: ShardPlan, receipt: Receipt) -> bool:
    """Return True if an existing shard has the rows and functions of the plan.

    Another release or library may cut shards elsewhere. The code of a function may have changed:
    the name of the shard depends on the declared code version alone.
    """
    same_functions = not plan.functions or receipt.functions == plan.functions
    return receipt.first == plan.first and same_functions


def _write_shard(plan: ShardPlan, writer: ShardWriter, attempt: int) -> Receipt:
    writer.begin()
    chosen = plan.choose_attempt(attempt)
    part = OpenShard(plan, chosen)
    try:
        last = writer.fill(part)
        written, quarantine = part.close()
    except BaseException as error:
        part.abandon(error)
        raise
    shard = None if written is None else _build_model_shard(plan, chosen, written)
    receipt = Receipt(
        (plan.first, part.end),
        last,
        shard,
        tuple(part.quarantined_spans),
        part.gaps,
        quarantine,
        tuple(part.reasons),
        plan.functions,
    )
    data = receipt.encode()
    receipt = replace(receipt, sidecars={**part.sidecars, **_digest_receipt(plan, chosen, data)})
    _create_receipt(plan, chosen, receipt, data)
    if chosen != attempt:
        # A retry looks under the name of its attempt, not under the random one.
        with suppress(ObjectExistsError):
            _create_receipt(plan, attempt, receipt, data)
    return receipt


def _build_model_shard(plan: ShardPlan, attempt: int, written: WrittenFile) -> Shard:
    return Shard(
        plan.name(attempt),
        written.records,
        written.bytes,
        written.sha256,
        plan.compression.value,
        plan.source,
        plan.base,
    )


def _digest_receipt(plan: ShardPlan, attempt: int, receipt: bytes) -> Json:
    return {f"{plan.name(attempt)}{RECEIPT}": hashlib.sha256(receipt).hexdigest()}


def build_small_shard(
    plan: ShardPlan, attempt: int, frames: EncodedRows, rows: int
) -> tuple[Receipt, tuple[NewObject, ...]]:
    """Build the only shard of a source in memory; each row has given a record.

    Returns:
        The receipt, and the files that `make_shard` would write, in the same order.
    """
    file, index = MemoryWriter(), MemoryWriter()
    sink = RecordSink(file, plan.compression, index)
    sink.add(frames.data, frames.starts, frames.lengths)
    receipt = Receipt((0, rows), last=True, shard=_build_model_shard(plan, attempt, sink.finish()))
    data, path = receipt.encode(), plan.path(attempt)
    files = (
        NewObject(path, file.content),
        NewObject(f"{path}.index", index.content, derived=True),
        NewObject(f"{path}{RECEIPT}", data),
    )
    return replace(receipt, sidecars=_digest_receipt(plan, attempt, data)), files


def _create_receipt(plan: ShardPlan, attempt: int, receipt: Receipt, data: bytes) -> None:
    name = plan.path(attempt) + RECEIPT
    try:
        if plan.unsynced is None:
            plan.store.create(name, data)
        else:
            with plan.writer(name) as file:
                file.write(data)
    except ObjectExistsError:
        if read_receipt(plan.store, name) != receipt:
            raise
    plan.note_unsynced(name)


def _note_reused(plan: ShardPlan, attempt: int, receipt: Receipt) -> None:
    """Record the files of a reused shard, which its writer may not have synced."""
    if plan.unsynced is None:
        return
    plan.note_unsynced(plan.path(attempt) + RECEIPT)
    if receipt.quarantine is not None:
        plan.note_unsynced(receipt.quarantine)
    if receipt.shard is not None:
        path = f"{plan.dataset}/shards/{receipt.shard.name}"
        plan.note_unsynced(path)
        if plan.store.info(path + ROWS) is not None:
            plan.note_unsynced(path + ROWS)


def get_shard_compression(
    into: StoredVersion, requested: Compression | str | None, default: Compression | None = None
) -> Compression | None:
    """Return the compression of new shards of a version.

    That is the requested one, else that of the latest data commit, else `default`. So readers find
    one compression per version.
    """
    if requested is not None:
        compression = parse_compression(requested)
        validate_shard_compression(compression)
        return compression
    latest = into.compression
    return default if latest is None else Compression(latest)
