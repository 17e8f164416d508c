"""Make one shard of a task: under a name that tells what it is made of, once, and resumably.

The name is a hash of what goes in and how. A shard that is there with its receipt, and matches it,
is used again; one that does not, or that someone else put there, is left alone, and the next
attempt has another name.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from shardline import canonical_json as canonical
from shardline.errors import LogError, ObjectExistsError
from shardline.log.model import RECEIPT, ROWS, Shard
from shardline.sidecars.quarantine import QuarantineWriter
from shardline.sidecars.receipt import Receipt, extend_spans, read_receipt
from shardline.sidecars.row_map import RowMapWriter
from shardline.storage.store import NewObject
from shardline.tfrecord.compression import (
    Compression,
    parse_compression,
    validate_shard_compression,
)
from shardline.tfrecord.hashing import ContentMismatchError, hash_object
from shardline.tfrecord.writer import MemoryWriter, RecordSink, write_stored

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from shardline.canonical_json import Json
    from shardline.kernel.types import IntArray
    from shardline.log.model import Base
    from shardline.log.state import State
    from shardline.log.version import StoredVersion
    from shardline.sources import EncodedRows, QuarantinedRow
    from shardline.storage import Store
    from shardline.storage.store import ObjectWriter
    from shardline.tfrecord.hashing import FileContent
    from shardline.tfrecord.writer import WrittenFile


_STEM_DIGITS = 32
_ATTEMPTS = 1_000_000
_MAX_REASONS = 10


@dataclass(frozen=True)
class ShardPlan:
    """A shard to be made. `identity` is what its name is a hash of.

    `source` is the key of the source that its records come from, `base` the shard beside which an
    overlay lies, `shown` what people call either, `first` the row at which it begins. `largest`
    says how many bytes it may get, `aside` that a thread may be spent on its sha256, `expected`
    what it should become, if that is known. `suffix` is how its name ends. With `unsynced`, the
    names of the files that `Store.sync` has to make durable are added to that list. `functions` are
    the source digests of the functions that compute its records.
    """

    store: Store
    dataset: str
    version: str
    identity: Json
    compression: Compression = Compression.NONE
    source: str | None = None
    shown: str = ""
    first: int = 0
    largest: int | None = None
    aside: bool = False
    expected: FileContent | None = None
    base: Base | None = None
    suffix: str = ".tfrecord"
    unsynced: list[str] | None = None
    functions: tuple[str, ...] = ()

    @cached_property
    def stem(self) -> str:
        """The part of the name that tells what the shard is made of."""
        return make_stem(self.identity)

    def name(self, attempt: int) -> str:
        """The shard's name at an attempt."""
        return f"{self._leaf(attempt)}{self.suffix}"

    def path(self, attempt: int) -> str:
        """Where in the store the shard lies."""
        return f"{self.dataset}/shards/{self.name(attempt)}"

    def quarantine(self, attempt: int) -> str:
        """Where in the store the rows go that gave no record."""
        return f"{self.dataset}/quarantine/{self._leaf(attempt)}.jsonl"

    def _leaf(self, attempt: int) -> str:
        return f"{self.version}.{self.stem}{f'.{attempt}' if attempt else ''}"

    def writer(self, path: str) -> AbstractContextManager[ObjectWriter]:
        """Write a file of the store, durably unless the plan leaves that to `Store.sync`."""
        return self.store.writer(path, synced=self.unsynced is None)

    def note_unsynced(self, path: str) -> None:
        """Note a file that `Store.sync` has to make durable."""
        if self.unsynced is not None:
            self.unsynced.append(path)

    def begin_with(self, attempt: int) -> int:
        """The attempt to begin with: a random one where an upload could overwrite another's."""
        limit = self.store.largest_create
        if limit is None or (self.largest is not None and self.largest <= limit):
            return attempt
        return attempt + 1 + secrets.randbelow(_ATTEMPTS - attempt - 1)


def find_fresh_attempt(state: State, plans: Iterable[ShardPlan], attempt: int) -> int:
    """The first attempt, from this one on, at which the log knows none of the shards' names.

    A shard that it knows was rejected or rolled back, or went to vacuum: what the log says of it
    would be taken to be true of the new one.
    """
    plans = list(plans)
    while any(state.knows(plan.name(attempt)) for plan in plans):
        attempt += 1
    return attempt


def make_stem(identity: Json) -> str:
    """The part of a shard's name that tells what it is made of."""
    return canonical.sha256(identity)[:_STEM_DIGITS]


def get_stem(name: str) -> str:
    """The same part, of a name that there is."""
    return name.split(".")[1]


class ShardWriter(Protocol):
    """What puts the records into a shard."""

    def begin(self) -> None:
        """Start where the shard starts; again, if an attempt came to nothing."""
        ...

    def fill(self, part: OpenShard) -> bool:
        """Add records and refused rows to the part; says whether there is nothing behind it."""
        ...


class OpenShard:
    """A shard being made, with its quarantine and its row map.

    None of them is there if nothing is put into it.
    """

    def __init__(self, plan: ShardPlan, attempt: int) -> None:
        self.end = plan.first
        self.refused: list[tuple[int, int]] = []
        self.damaged = 0
        self._damaged_row = -1
        self.told: list[str] = []
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
        """The shard's file."""
        if self._shard is None:
            path = self._plan.path(self._attempt)
            plan = self._plan
            writing = write_stored(
                plan.store,
                path,
                plan.compression,
                aside=plan.aside,
                expected=plan.expected,
                synced=plan.unsynced is None,
            )
            self._shard = self._shard_stack.enter_context(writing)
        return self._shard

    def refuse(self, refused: QuarantinedRow) -> None:
        """Put a row into the quarantine."""
        if self._quarantine is None:
            path = self._plan.quarantine(self._attempt)
            file = self._quarantine_stack.enter_context(self._plan.writer(path))
            self._quarantine = QuarantineWriter(file, self._plan.shown)
        self._quarantine.add(refused)
        extend_spans(self.refused, refused.row)
        if refused.damage and refused.row != self._damaged_row:
            self.damaged += 1
            self._damaged_row = refused.row
        if len(self.told) < _MAX_REASONS:
            self.told.append(str(refused))

    @property
    def records(self) -> int:
        """How many records it has so far."""
        return 0 if self._shard is None else self._shard.records

    def counts(self, first: int) -> bool:
        """Whether all rows from `first` on but the refused ones gave a record."""
        return Receipt(
            (first, self.end), last=False, refused=tuple(self.refused), damaged=self.damaged
        ).counts(self.records)

    def come_from(self, *numbers: IntArray, width: int = 8) -> None:
        """Tell of which records or rows those are that were just added, where counting would not.

        The numbers have at most `width` bytes; they stand in the row map.
        """
        if self._rows is None:
            path = self._plan.path(self._attempt) + ROWS
            file = self._rows_stack.enter_context(self._plan.writer(path))
            self._rows = RowMapWriter(file, len(numbers), width)
        self._rows.add(*numbers)

    def close(self) -> tuple[WrittenFile | None, str | None]:
        """Put all in place: the shard last, so that it is not there without the others.

        Raises ContentMismatchError, with none in place, if the shard is not what was expected.
        """
        written = None if self._shard is None else self._shard.finish()
        quarantine = None
        if self._quarantine is not None:
            quarantine = self._plan.quarantine(self._attempt)
            made = self._quarantine
            self._put(self._quarantine_stack, quarantine, made.bytes, made.sha256)
            self.sidecars[quarantine.rpartition("/")[2]] = made.sha256
        if self._rows is not None:
            self._rows.finish()
            rows = self._plan.path(self._attempt) + ROWS
            self._put(self._rows_stack, rows, self._rows.bytes, self._rows.sha256)
            self.sidecars[rows.rpartition("/")[2]] = self._rows.sha256
        if written is not None:
            path = self._plan.path(self._attempt)
            self._put(self._shard_stack, path, written.bytes, written.sha256)
        return written, quarantine

    def _put(self, stack: ExitStack, path: str, size: int, sha256: str) -> None:
        """End the writing of a file. If someone else just put the same there, that will do."""
        try:
            stack.close()
        except ObjectExistsError:
            if hash_object(self._plan.store, path, size) != sha256:
                raise
        self._plan.note_unsynced(path)

    def abandon(self, error: BaseException) -> None:
        """Leave nothing behind."""
        for stack in (self._shard_stack, self._rows_stack, self._quarantine_stack):
            stack.__exit__(type(error), error, error.__traceback__)


def make_shard(plan: ShardPlan, filling: ShardWriter, *, attempt: int = 0) -> Receipt:
    """Make a shard, or find it made."""
    while attempt < _ATTEMPTS:
        receipt = read_receipt(plan.store, plan.path(attempt) + RECEIPT)
        if receipt is not None and _is_planned(plan, receipt):
            _note_found(plan, attempt, receipt)
            return replace(receipt, found=True)
        try:
            return _write_shard(plan, filling, attempt)
        except ObjectExistsError:
            attempt += 1
    raise LogError(
        f"{plan.dataset}/{plan.version}: no free name left for {plan.name(0)}",
        code="no-free-name",
        version=f"{plan.dataset}/{plan.version}",
    )


def _is_planned(plan: ShardPlan, receipt: Receipt) -> bool:
    """Return True if a shard that was found has the rows and functions of the plan.

    A shard that begins elsewhere was cut by another release or library. A function may have been
    fixed since: the name of the shard depends on its declared code version alone.
    """
    same_functions = not plan.functions or receipt.functions == plan.functions
    return receipt.first == plan.first and same_functions


def _write_shard(plan: ShardPlan, filling: ShardWriter, attempt: int) -> Receipt:
    filling.begin()
    named = plan.begin_with(attempt)
    part = OpenShard(plan, named)
    try:
        last = filling.fill(part)
        written, quarantine = part.close()
    except ContentMismatchError as error:
        part.abandon(error)
        return _write_shard(replace(plan, expected=None), filling, attempt)
    except BaseException as error:
        part.abandon(error)
        raise
    shard = None if written is None else _make_model_shard(plan, named, written)
    refused = tuple(part.refused)
    receipt = Receipt(
        (plan.first, part.end),
        last,
        shard,
        refused,
        part.damaged,
        quarantine,
        tuple(part.told),
        plan.functions,
    )
    data = receipt.encode()
    receipt = replace(receipt, sidecars={**part.sidecars, **_digest(plan, named, data)})
    _put_receipt(plan, named, receipt, data)
    if named != attempt:
        # A name that was drawn is not found again: who looks for the shard finds this one.
        with suppress(ObjectExistsError):
            _put_receipt(plan, attempt, receipt, data)
    return receipt


def _make_model_shard(plan: ShardPlan, attempt: int, written: WrittenFile) -> Shard:
    return Shard(
        plan.name(attempt),
        written.records,
        written.bytes,
        written.sha256,
        plan.compression.value,
        plan.source,
        plan.base,
    )


def _digest(plan: ShardPlan, attempt: int, receipt: bytes) -> Json:
    return {f"{plan.name(attempt)}{RECEIPT}": hashlib.sha256(receipt).hexdigest()}


def build_small_shard(
    plan: ShardPlan, attempt: int, frames: EncodedRows, rows: int
) -> tuple[Receipt, tuple[NewObject, ...]]:
    """Build the only shard of a source in memory, of rows that each gave a record.

    Returns its receipt, and the files that `make_shard` would write, in the same order.
    """
    file, index = MemoryWriter(), MemoryWriter()
    sink = RecordSink(file, plan.compression, index)
    sink.add(frames.data, frames.starts, frames.lengths)
    receipt = Receipt((0, rows), last=True, shard=_make_model_shard(plan, attempt, sink.finish()))
    data, path = receipt.encode(), plan.path(attempt)
    files = (
        NewObject(path, file.content),
        NewObject(f"{path}.index", index.content, derived=True),
        NewObject(f"{path}{RECEIPT}", data),
    )
    return replace(receipt, sidecars=_digest(plan, attempt, data)), files


def _put_receipt(plan: ShardPlan, attempt: int, receipt: Receipt, data: bytes) -> None:
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


def _note_found(plan: ShardPlan, attempt: int, receipt: Receipt) -> None:
    """Note the files of a shard that someone else may have made, and not synced yet."""
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
    into: StoredVersion, wanted: Compression | str | None, otherwise: Compression | None = None
) -> Compression | None:
    """Return how to pack new shards of a version.

    As wanted; else as its latest data commit, so that readers find a single compression; else, in
    a version without data, as `otherwise`.
    """
    if wanted is not None:
        chosen = parse_compression(wanted)
        validate_shard_compression(chosen)
        return chosen
    remembered = into.compression
    return otherwise if remembered is None else Compression(remembered)
