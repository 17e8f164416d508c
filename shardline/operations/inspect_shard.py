"""Inspect a shard in one pass: is it the file that was committed, and do its records fit?"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.errors import CorruptFileError, ObjectNotFoundError, ShardlineError
from shardline.kernel.types import FOOTER_BYTES
from shardline.schema.comparison import compare
from shardline.schema.validation import Violation, violations
from shardline.text import format_count
from shardline.tfrecord.compression import Compression, members_of
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import IndexCheck, NoIndexCheck
from shardline.tfrecord.input_file import LocalFile, StoredFile
from shardline.tfrecord.reader import BLOCK_BYTES, DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.record_block import RecordBlock, whole_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from shardline.log.model import Shard
    from shardline.pairing.pair_plan import PairPlan
    from shardline.readers.virtual_shard import OpenedPairPlan
    from shardline.schema.schema import Schema
    from shardline.schema.validation import FeatureKey
    from shardline.storage import Store
    from shardline.tfrecord.input_file import OpenFile


MAX_VIOLATIONS = 10
_BYTES_PER_FEATURE = 512
_MOST_BLOCK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What inspecting a shard found: what is wrong with the file, and the first misfit records.

    `read` says whether all its records were read, so that no violation means that there is none.
    `damaged_at` is the record and the offset of the first damage. `index_problem` says what is
    wrong with the index of an intact shard, if that was compared.
    """

    shard: Shard
    name: str
    problems: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    read: bool = False
    damaged_at: tuple[int, int] | None = None
    index_problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems and not self.violations

    @property
    def complete(self) -> bool:
        """Whether `violations` are all that there are: only so many are listed."""
        return self.read and len(self.violations) < MAX_VIOLATIONS


def inspect_shard_size(store: Store, name: str, shard: Shard) -> ShardReport:
    """See whether a shard is there and as long as it should be, without reading it."""
    info = store.info(name)
    if info is None:
        return ShardReport(shard, name, ("it is missing",))
    if info.size != shard.bytes:
        return ShardReport(shard, name, (_format_size_mismatch(info.size, shard),))
    return ShardReport(shard, name)


def inspect_shard(
    store: Store,
    name: str,
    shard: Shard,
    schema: Schema | None = None,
    *,
    below: Collection[FeatureKey] = (),
    limits: Limits = DEFAULT_LIMITS,
    index: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ShardReport:
    """Read a shard once: size, sha256, checksums, count, and with a schema every record.

    With `index`, its index is compared too.

    Of an overlay, the schema has the features that it adds, and `below` are the keys of the others.
    Of a plan, what it pairs is looked at, and not read.
    """
    if shard.virtual:
        wrong, differing, was_read = inspect_pair_plan(store, name, shard, schema)
        return ShardReport(shard, name, tuple(wrong), tuple(differing), was_read)
    try:
        file = StoredFile(store, name).open()
    except ObjectNotFoundError:
        return ShardReport(shard, name, ("it is missing",))
    with closing(file):
        indexed = IndexCheck(store, name, file, shard.sha256) if index else NoIndexCheck()
        with closing(indexed):
            inspection = _Inspection(file, name, shard, schema, below, limits, indexed, progress)
            return inspection.try_at_once() or inspection.run()


@dataclass(frozen=True, slots=True)
class _Inspection:
    """The inspection of a shard whose file is open."""

    file: OpenFile
    name: str
    shard: Shard
    schema: Schema | None
    below: Collection[FeatureKey]
    limits: Limits
    indexed: IndexCheck | NoIndexCheck
    progress: Callable[[int], None] | None

    def try_at_once(self) -> ShardReport | None:
        """Inspect a local plain file that fits a block; None of another, or if it is not sound."""
        shard, size = self.shard, self.file.size
        is_plain = shard.compression == Compression.NONE.value and isinstance(self.file, LocalFile)
        if not is_plain or size != shard.bytes or size > _choose_block_bytes(self.schema):
            return None
        data = self.file.pread(size, 0)
        block = whole_block(data, self.limits)
        if block is None or len(block.starts) != shard.records:
            return None
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            return None
        self.indexed.add(block)
        misfits = tuple(self._misfits(block, MAX_VIOLATIONS))
        if self.progress is not None:
            self.progress(size)
        wrong_index = self.indexed.finish(size)
        return ShardReport(shard, self.name, (), misfits, read=True, index_problem=wrong_index)

    def run(self) -> ShardReport:
        """Inspect the file block by block, as far as it is intact, and tell what is wrong."""
        shard, file = self.shard, HashedFile(self.file)
        problems = [_format_size_mismatch(file.size, shard)] if file.size != shard.bytes else []
        misfits: list[Violation] = []
        records, end, read, damaged_at = 0, 0, False, None
        block_bytes = _choose_block_bytes(self.schema)
        with RecordFile(file, limits=self.limits, block_bytes=block_bytes) as records_of:
            try:
                for block in records_of.blocks():
                    records += len(block.starts)
                    end = block.offset + len(block.data)
                    self.indexed.add(block)
                    misfits += self._misfits(block, MAX_VIOLATIONS - len(misfits))
                    if self.progress is not None:
                        self.progress(records_of.stream.position)
                read = True
            except CorruptFileError as error:
                where = f"record {error.record}, offset {error.offset}"
                damaged_at = (error.record, error.offset)
                problems.append(f"{error.kind} at {where}: {error.detail}")
            if read and records != shard.records:
                expected = shard.records
                problems.append(
                    f"it has {format_count(records, 'record')} and should have {expected}"
                )
            packed = records_of.compression.value
            if shard.bytes and packed != shard.compression:
                problems.append(f"it is packed as {packed} and should be {shard.compression}")
            if file.finish() != shard.sha256:
                problems.append("its sha256 is not the one that was committed")
            members = members_of(records_of.stream)
            wrong_index = "" if problems else self.indexed.finish(end, members)
        return ShardReport(
            shard, self.name, tuple(problems), tuple(misfits), read, damaged_at, wrong_index
        )

    def _misfits(self, block: RecordBlock, room: int) -> Iterable[Violation]:
        """Find at most `room` records of a block that do not fit the schema, if there is one."""
        if self.schema is None or not room:
            return ()
        return violations(self.schema, block, below=self.below, limit=room)


def get_joinable_bytes(shard: Shard) -> int | None:
    """Return how many bytes a shard has that can be read together with others; None of another."""
    is_plain = shard.compression == Compression.NONE.value and shard.base is None
    return shard.bytes if is_plain and not shard.virtual else None


def inspect_small_shards(
    store: Store,
    shards: Sequence[tuple[str, Shard]],
    schema: Schema | None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> list[ShardReport | None]:
    """Inspect small plain shards at once; None for all if something is wrong with one of them.

    Then `inspect_shard` tells what. Each shard comes with its name in the store.
    """
    contents = store.read_many([name for name, _ in shards])
    is_same = all(
        data is not None and hashlib.sha256(data).hexdigest() == shard.sha256
        for (_, shard), data in zip(shards, contents, strict=True)
    )
    data = b"".join([content or b"" for content in contents])
    scan = kernel.scan(data, max_record_bytes=limits.max_record_bytes)
    wanted = np.cumsum([(shard.records, shard.bytes) for _, shard in shards], axis=0)
    ends = np.append(0, scan.starts + scan.lengths + FOOTER_BYTES)
    is_whole = scan.fault is None and len(ends) == wanted[-1, 0] + 1
    if not is_same or not is_whole or not np.array_equal(ends[wanted[:, 0]], wanted[:, 1]):
        return [None] * len(shards)
    block = RecordBlock(memoryview(data), 0, 0, scan.starts, scan.lengths)
    if schema is not None and any(violations(schema, block, limit=1)):
        return [None] * len(shards)
    return [ShardReport(shard, name, read=True) for name, shard in shards]


def _choose_block_bytes(schema: Schema | None) -> int:
    """Return how much to read at once: more if there are many features to judge per block."""
    features = 0 if schema is None else len(schema.features)
    return min(max(BLOCK_BYTES, features * _BYTES_PER_FEATURE), _MOST_BLOCK_BYTES)


def _format_size_mismatch(size: int, shard: Shard) -> str:
    return f"it has {format_count(size, 'byte')} and should have {shard.bytes}"


def inspect_pair_plan(
    store: Store, name: str, shard: Shard, schema: Schema | None
) -> tuple[list[str], list[Violation], bool]:
    """What is wrong with a plan, how its pairs differ from the schema, and whether it was read.

    The records that it pairs are not read: that is for the checks of their own versions.
    """
    from shardline.readers.virtual_shard import open_plan  # noqa: PLC0415 - it builds on much

    try:
        data = store.read(name)
    except ObjectNotFoundError:
        return ["it is missing"], [], False
    problems = []
    if len(data) != shard.bytes:
        problems.append(f"it has {format_count(len(data), 'byte')} and should have {shard.bytes}")
    if hashlib.sha256(data).hexdigest() != shard.sha256:
        return [*problems, "its sha256 is not the one that was committed"], [], False
    try:
        opened = open_plan(store, _decode_plan(data))
    except (ValueError, ShardlineError) as error:
        return [*problems, f"it does not lead to its pairs: {error}"], [], False
    problems += _list_missing_files(opened)
    if opened.pairs != shard.records:
        problems.append(
            f"it has {format_count(opened.pairs, 'pair')} and should have {shard.records}"
        )
    misfits = []
    if schema is not None and opened.schema.fingerprint != schema.fingerprint:
        differences = "; ".join(compare(schema, opened.schema).lines())
        misfits.append(Violation(0, None, f"its pairs have another schema: {differences}"))
    return problems, misfits, True


def _decode_plan(data: bytes) -> PairPlan:
    from shardline.pairing.pair_plan import PairPlan  # noqa: PLC0415 - as above

    return PairPlan.decode(data)


def _list_missing_files(opened: OpenedPairPlan) -> Iterator[str]:
    """Which of the files are not there, or not as long as they should be."""
    for file in opened.files:
        try:
            file.look()
        except ShardlineError as error:
            yield str(error)
