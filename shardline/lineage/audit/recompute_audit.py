"""Audit by recomputation: recreate a sample of shards and compare their bytes.

The audit writes to a temporary folder, never to the root.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.errors import (
    CorruptFileError,
    ShardlineError,
    StorageError,
    UnreadableSnapshotError,
    WrongShardError,
)
from shardline.hints import Hint, Option
from shardline.lineage.audit.audit_report import SkippedShards
from shardline.lineage.audit.shard_recompute import (
    AuditTables,
    CannotRecomputeError,
    ShardRecomputer,
)
from shardline.storage.local_store import LocalStore
from shardline.storage.temporary_files import scratch_folder
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, RecordFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from shardline.lineage.audit.audit_report import Finding, SkipReason
    from shardline.lineage.audit.audited_logs import AuditedLogs, AuditedShard
    from shardline.tfrecord.reader import Limits
    from shardline.udf import UDF

DEFAULT_SAMPLE = 20
_CORRUPT_INPUT_ERRORS = (
    CorruptFileError,
    StorageError,
    UnreadableSnapshotError,
    WrongShardError,
)
_COMPARE = Hint.of(
    "compare the shard with a copy of the root; if a function made it, check that its code "
    "version changes with its code, and declare ",
    Option("deterministic", value=False),
    " where its results vary",
)


@dataclass(frozen=True, slots=True)
class RecomputeOptions:
    """The sample to recompute, and the user code for it.

    `udfs` are UDFs and table joins as they were declared. `tables` are paths of more tables.
    """

    sample: int = DEFAULT_SAMPLE
    seed: int = 0
    udfs: Sequence[UDF] = ()
    tables: Sequence[str] = ()


@dataclass(slots=True)
class RecomputeReport:
    """The result of recomputing a sample of shards."""

    findings: list[Finding] = field(default_factory=list)
    skipped: tuple[SkippedShards, ...] = ()
    shards: int = 0


def recompute_shards(
    shards: Sequence[AuditedShard],
    logs: AuditedLogs,
    options: RecomputeOptions,
    *,
    corrupt: Collection[str] = (),
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> RecomputeReport:
    """Recompute a sample of shards and compare them. Skips shards with `corrupt` inputs."""
    report = RecomputeReport()
    tables = AuditTables(tuple(options.tables))
    recomputer = ShardRecomputer(logs, tuple(options.udfs), limits, tables)
    skipped: Counter[tuple[str, SkipReason]] = Counter()
    candidates: list[AuditedShard] = []
    for shard in shards:
        reason = recomputer.find_obstacle(shard) or recomputer.find_corrupt_input(shard, corrupt)
        if reason is None:
            candidates.append(shard)
        else:
            skipped[shard.log.name, reason] += 1
    draw = random.Random(options.seed)  # noqa: S311 - the same seed gives the same sample
    sample = draw.sample(candidates, min(options.sample, len(candidates)))
    for done, shard in enumerate(sample):
        if progress is not None:
            progress(done, len(sample))
        try:
            finding = _compare_shard(shard, recomputer)
        except CannotRecomputeError as error:
            skipped[shard.log.name, error.reason] += 1
            continue
        report.findings += [] if finding is None else [finding]
        report.shards += 1
    report.skipped = tuple(
        SkippedShards(name, count, reason)
        for (name, reason), count in sorted(
            skipped.items(), key=lambda item: (item[0][0], item[0][1].text)
        )
    )
    return report


class _SilentTask:
    """A task context without progress."""

    workers = 1

    def report(self, done: int, records: int) -> None:
        """Ignore progress."""


def _compare_shard(shard: AuditedShard, recomputer: ShardRecomputer) -> Finding | None:
    with scratch_folder("shardline-audit") as folder:
        scratch = LocalStore(folder)
        try:
            recreated = recomputer.recompute(shard, scratch, _SilentTask()).shard
        except _CORRUPT_INPUT_ERRORS as error:
            if reason := recomputer.find_recorded_corruption(shard):
                raise CannotRecomputeError(reason) from None
            hint = Hint.of("audit the versions of its inputs, to find their corrupt shards")
            return shard.make_finding("damaged-input", f"cannot read its inputs: {error}", hint)
        except (ShardlineError, OSError) as error:
            return _make_mismatch(shard, f"cannot be recomputed from its inputs: {error}")
        expected = shard.shard.records
        if recreated is None or recreated.records != expected:
            records = 0 if recreated is None else recreated.records
            return _make_mismatch(shard, f"recomputed to {records} records, expected {expected}")
        if recreated.sha256 == shard.shard.sha256:
            return None
        if shard.shard.compression != "none":
            # Another release of zlib may compress the same records to other bytes.
            files = (
                StoredFile(scratch, shard.log.version.shard_name(recreated)),
                StoredFile(shard.log.version.store, shard.path),
            )
            first, second = (_digest_decompressed(file, recomputer.limits) for file in files)
            if first == second:
                return None
        return _make_mismatch(shard, "recomputed from its inputs to other bytes")


def _digest_decompressed(file: StoredFile, limits: Limits) -> str | None:
    """Return the digest of the decompressed bytes, or None for a corrupt file."""
    digest = hashlib.sha256()
    try:
        with RecordFile(file, limits=limits) as records:
            for block in records.blocks():
                digest.update(block.data)
    except ShardlineError:
        return None
    return digest.hexdigest()


def _make_mismatch(shard: AuditedShard, detail: str) -> Finding:
    return shard.make_finding("not-reproduced", detail, _COMPARE)
