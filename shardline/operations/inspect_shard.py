"""Shard inspection in one pass: the committed file, and records that fit the schema."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.errors import CorruptFileError, ObjectNotFoundError, ShardlineError
from shardline.kernel.types import FOOTER_BYTES
from shardline.report import Report, to_json_value
from shardline.schema.comparison import compare
from shardline.schema.validation import Violation, find_violations
from shardline.text import format_count
from shardline.tfrecord.compression import Compression, members_of
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import IndexCheck, NoIndexCheck
from shardline.tfrecord.input_file import LocalFile, StoredFile
from shardline.tfrecord.reader import BLOCK_BYTES, DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.record_block import RecordBlock, scan_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.log.model import Shard
    from shardline.pairing.pair_plan import PairPlan
    from shardline.readers.virtual_shard import OpenedPairPlan
    from shardline.schema.schema import Schema
    from shardline.schema.validation import FeatureKey
    from shardline.storage import Store
    from shardline.tfrecord.input_file import OpenFile


MAX_VIOLATIONS = 10
_BYTES_PER_FEATURE = 512
_MAX_BLOCK_BYTES = 16 * 1024 * 1024
_SHA256_MISMATCH = "SHA-256 differs from the committed one"


@dataclass(frozen=True, slots=True)
class ShardReport(Report):
    """Result of inspecting a shard: problems of the file, and the first schema violations.

    `read` is True if all records were read. `corrupt_at` is the record and the offset of the first
    corruption. `index_problem` is the problem of the index of an intact shard.
    """

    shard: Shard
    name: str
    problems: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    read: bool = False
    corrupt_at: tuple[int, int] | None = None
    index_problem: str = ""

    @property
    def ok(self) -> bool:
        """Return True if no problem was found."""
        return not self.problems and not self.violations

    @property
    def complete(self) -> bool:
        """Return True if `violations` has all violations, not only the first."""
        return self.read and len(self.violations) < MAX_VIOLATIONS

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        base = self.shard.base
        return {
            "shard": self.shard.name,
            **({} if base is None else {"base": base.name}),
            "records": self.shard.records,
            "bytes": self.shard.bytes,
            "ok": self.ok,
            "problems": list(self.problems),
            "violations": to_json_value(self.violations),
            "complete": self.complete,
            **({"index_problem": self.index_problem} if self.index_problem else {}),
        }


def inspect_shard_size(store: Store, name: str, shard: Shard) -> ShardReport:
    """Inspect the presence and size of a shard, without reading it."""
    info = store.info(name)
    if info is None:
        return ShardReport(shard, name, ("missing",))
    if info.size != shard.bytes:
        return ShardReport(shard, name, (_format_mismatch("byte", info.size, shard.bytes),))
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
    """Read a shard once: size, SHA-256, checksums, count, and with a schema every record.

    The records that a pair plan refers to are not read.

    Args:
        store: Store of the shard.
        name: Object name of the shard.
        shard: Committed attributes.
        schema: Schema of the records; of an overlay the features that it adds.
        below: Keys of the features under an overlay.
        limits: Limits of records and decompression.
        index: Also compare the index with the records.
        progress: Called with the position in the shard.
    """
    if shard.virtual:
        problems, mismatches, was_read = inspect_pair_plan(store, name, shard, schema)
        return ShardReport(shard, name, tuple(problems), tuple(mismatches), was_read)
    try:
        file = StoredFile(store, name).open()
    except ObjectNotFoundError:
        return ShardReport(shard, name, ("missing",))
    with closing(file):
        index_check = IndexCheck(store, name, file, shard.sha256) if index else NoIndexCheck()
        with closing(index_check):
            inspection = _Inspection(
                file, name, shard, schema, below, limits, index_check, progress
            )
            return inspection.try_whole() or inspection.run()


@dataclass(frozen=True, slots=True)
class _Inspection:
    """Inspection of an open shard file."""

    file: OpenFile
    name: str
    shard: Shard
    schema: Schema | None
    below: Collection[FeatureKey]
    limits: Limits
    index_check: IndexCheck | NoIndexCheck
    progress: Callable[[int], None] | None

    def try_whole(self) -> ShardReport | None:
        """Inspect an intact, uncompressed local file of one block; None for any other file."""
        shard, size = self.shard, self.file.size
        is_plain = shard.compression == Compression.NONE.value and isinstance(self.file, LocalFile)
        if not is_plain or size != shard.bytes or size > _choose_block_bytes(self.schema):
            return None
        data = self.file.pread(size, 0)
        block = scan_block(data, self.limits)
        if block is None or len(block.starts) != shard.records:
            return None
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            return None
        self.index_check.add(block)
        violations = tuple(self._find_violations(block, MAX_VIOLATIONS))
        if self.progress is not None:
            self.progress(size)
        index_problem = self.index_check.finish(size)
        return ShardReport(shard, self.name, (), violations, read=True, index_problem=index_problem)

    def run(self) -> ShardReport:
        """Inspect the file block by block, up to the first corruption."""
        shard, file = self.shard, HashedFile(self.file)
        problems = []
        if file.size != shard.bytes:
            problems.append(_format_mismatch("byte", file.size, shard.bytes))
        violations: list[Violation] = []
        records, end, read, corrupt_at = 0, 0, False, None
        block_bytes = _choose_block_bytes(self.schema)
        with RecordFile(file, limits=self.limits, block_bytes=block_bytes) as record_file:
            try:
                for block in record_file.blocks():
                    records += len(block.starts)
                    end = block.offset + len(block.data)
                    self.index_check.add(block)
                    violations += self._find_violations(block, MAX_VIOLATIONS - len(violations))
                    if self.progress is not None:
                        self.progress(record_file.stream.position)
                read = True
            except CorruptFileError as error:
                corrupt_at = (error.record, error.offset)
                location = f"record {error.record}, offset {error.offset}"
                problems.append(f"{error.kind} at {location}: {error.detail}")
            if read and records != shard.records:
                problems.append(_format_mismatch("record", records, shard.records))
            compression = record_file.compression.value
            if shard.bytes and compression != shard.compression:
                problems.append(f"compressed as {compression}, expected {shard.compression}")
            if file.finish() != shard.sha256:
                problems.append(_SHA256_MISMATCH)
            members = members_of(record_file.stream)
            index_problem = "" if problems else self.index_check.finish(end, members)
        return ShardReport(
            shard, self.name, tuple(problems), tuple(violations), read, corrupt_at, index_problem
        )

    def _find_violations(self, block: RecordBlock, limit: int) -> Iterable[Violation]:
        if self.schema is None or not limit:
            return ()
        return find_violations(self.schema, block, below=self.below, limit=limit)


def get_joinable_bytes(shard: Shard) -> int | None:
    """Return the size of a shard that can be read together with others, or None."""
    is_plain = shard.compression == Compression.NONE.value and shard.base is None
    return shard.bytes if is_plain and not shard.virtual else None


def inspect_small_shards(
    store: Store,
    shards: Sequence[tuple[str, Shard]],
    schema: Schema | None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> list[ShardReport | None]:
    """Inspect small uncompressed shards together; None for each if any has a problem.

    `inspect_shard` then finds the problem. `shards` has the object name of each shard.
    """
    contents = store.read_many([name for name, _ in shards])
    is_same = all(
        data is not None and hashlib.sha256(data).hexdigest() == shard.sha256
        for (_, shard), data in zip(shards, contents, strict=True)
    )
    data = b"".join([content or b"" for content in contents])
    scan = kernel.scan(data, max_record_bytes=limits.max_record_bytes)
    expected = np.cumsum([(shard.records, shard.bytes) for _, shard in shards], axis=0)
    ends = np.append(0, scan.starts + scan.lengths + FOOTER_BYTES)
    is_whole = scan.fault is None and len(ends) == expected[-1, 0] + 1
    if not is_same or not is_whole or not np.array_equal(ends[expected[:, 0]], expected[:, 1]):
        return [None] * len(shards)
    block = RecordBlock(memoryview(data), 0, 0, scan.starts, scan.lengths)
    if schema is not None and any(find_violations(schema, block, limit=1)):
        return [None] * len(shards)
    return [ShardReport(shard, name, read=True) for name, shard in shards]


def _choose_block_bytes(schema: Schema | None) -> int:
    """Return the block size: larger for schemas with many features."""
    features = 0 if schema is None else len(schema.features)
    return min(max(BLOCK_BYTES, features * _BYTES_PER_FEATURE), _MAX_BLOCK_BYTES)


def _format_mismatch(noun: str, count: int, expected: int) -> str:
    return f"has {format_count(count, noun)}, expected {expected:,}"


def inspect_pair_plan(
    store: Store, name: str, shard: Shard, schema: Schema | None
) -> tuple[list[str], list[Violation], bool]:
    """Return the problems of a pair plan, its schema mismatches, and whether it was read.

    The paired records are not read: the checks of their own versions cover them.
    """
    from shardline.readers.virtual_shard import open_plan  # noqa: PLC0415 - rarely needed, with many imports

    try:
        data = store.read(name)
    except ObjectNotFoundError:
        return ["missing"], [], False
    problems = []
    if len(data) != shard.bytes:
        problems.append(_format_mismatch("byte", len(data), shard.bytes))
    if hashlib.sha256(data).hexdigest() != shard.sha256:
        return [*problems, _SHA256_MISMATCH], [], False
    try:
        opened = open_plan(store, _decode_plan(data))
    except (ValueError, ShardlineError) as error:
        return [*problems, f"cannot open its pairs: {error}"], [], False
    problems += _list_missing_files(opened)
    if opened.pairs != shard.records:
        problems.append(_format_mismatch("pair", opened.pairs, shard.records))
    mismatches = []
    if schema is not None and opened.schema.fingerprint != schema.fingerprint:
        differences = "; ".join(compare(schema, opened.schema).lines())
        mismatches.append(Violation(0, None, f"pairs have another schema: {differences}"))
    return problems, mismatches, True


def _decode_plan(data: bytes) -> PairPlan:
    from shardline.pairing.pair_plan import PairPlan  # noqa: PLC0415 - as above

    return PairPlan.decode(data)


def _list_missing_files(opened: OpenedPairPlan) -> Iterator[str]:
    """Yield the problems of files that are missing or have another size."""
    for file in opened.files:
        try:
            file.look()
        except ShardlineError as error:
            yield str(error)
