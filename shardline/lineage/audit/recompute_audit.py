"""Make a sample of shards once more, of what they were made of, and compare them byte for byte.

Nothing is written to the root: what is made goes to a folder of its own and is thrown away.
"""

from __future__ import annotations

import hashlib
import random
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
from shardline.lineage.audit.finding import Finding
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

    from shardline.lineage.audit.audited_logs import AuditedLogs, ShardToRead
    from shardline.lineage.audit.shard_recompute import SkipReason
    from shardline.tfrecord.reader import Limits
    from shardline.udf import UDF

DEFAULT_SAMPLE = 20
_DAMAGED = (CorruptFileError, StorageError, UnreadableSnapshotError, WrongShardError)
"""What comes of inputs that are not what they were."""
_COMPARE = Hint.of(
    "compare the shard with a copy of the root; if a function made it, check that its code "
    "version changes with its code, and declare ",
    Option("deterministic", value=False),
    " where its results vary",
)


@dataclass(frozen=True, slots=True)
class RecomputeOptions:
    """How many shards to make once more, which by chance, and what is at hand for it.

    `fields` are functions and tables as they were declared, `tables` more tables by their paths.
    """

    sample: int = DEFAULT_SAMPLE
    seed: int = 0
    fields: Sequence[UDF] = ()
    tables: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SkippedShards:
    """Shards of a version that cannot be recomputed, and the reason."""

    version: str
    shards: int
    reason: SkipReason

    @property
    def why(self) -> str:
        """The reason as text."""
        return self.reason.text


@dataclass(slots=True)
class RecomputeReport:
    """What was made once more and what could not be."""

    findings: list[Finding] = field(default_factory=list)
    left_out: tuple[SkippedShards, ...] = ()
    shards: int = 0
    bytes: int = 0


def recompute_shards(
    shards: Sequence[ShardToRead],
    logs: AuditedLogs,
    recompute: RecomputeOptions,
    *,
    spoiled: Collection[str] = (),
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> RecomputeReport:
    """Make a sample of these shards once more.

    Those that are made of `spoiled` ones, which are told already, are left out.
    """
    report = RecomputeReport()
    remaking = ShardRecomputer(
        logs, tuple(recompute.fields), limits, AuditTables(tuple(recompute.tables))
    )
    left_out: dict[tuple[str, SkipReason], int] = {}
    candidates: list[ShardToRead] = []
    for one in shards:
        reason = remaking.obstacle(one) or remaking.damaged(one, spoiled)
        if reason is not None:
            key = one.history.name, reason
            left_out[key] = left_out.get(key, 0) + 1
        else:
            candidates.append(one)
    draw = random.Random(recompute.seed)  # noqa: S311 - it has to be the same again
    chosen = draw.sample(candidates, min(recompute.sample, len(candidates)))
    for done, one in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        try:
            report.findings += _compare_shard(one, remaking)
        except CannotRecomputeError as error:
            key = one.history.name, error.reason
            left_out[key] = left_out.get(key, 0) + 1
            continue
        report.shards += 1
        report.bytes += one.row.shard.bytes
    by_text = sorted(left_out.items(), key=lambda item: (item[0][0], item[0][1].text))
    report.left_out = tuple(SkippedShards(name, count, reason) for (name, reason), count in by_text)
    return report


class _SilentTask:
    """What runs by itself, and tells no one how far it is."""

    workers = 1

    def report(self, done: int, records: int) -> None:
        """Nobody asks."""


def _compare_shard(one: ShardToRead, remaking: ShardRecomputer) -> list[Finding]:
    shard = one.row.shard
    with scratch_folder("shardline-audit") as folder:
        scratch = LocalStore(folder)
        try:
            made = remaking.made(one, scratch, _SilentTask()).shard
        except _DAMAGED as error:
            if reason := remaking.told_damage(one):
                raise CannotRecomputeError(reason) from None
            return [_make_corrupt_input_finding(one, error)]
        except (ShardlineError, OSError) as error:
            return [
                _make_mismatch_finding(one, f"it cannot be made once more of its inputs: {error}")
            ]
        if made is None or made.records != shard.records:
            records = 0 if made is None else made.records
            what = f"made once more it has {records} records, and it should have {shard.records}"
            return [_make_mismatch_finding(one, what)]
        if made.sha256 == shard.sha256:
            return []
        if shard.compression != "none":
            # The same records may be packed otherwise by another release of zlib.
            again = StoredFile(scratch, one.history.version.shard_name(made))
            there = StoredFile(one.history.version.store, one.name)
            if _digest_decompressed(again, remaking.limits) == _digest_decompressed(
                there, remaking.limits
            ):
                return []
        return [_make_mismatch_finding(one, "made once more of its inputs, it has other bytes")]


def _digest_decompressed(file: StoredFile, limits: Limits) -> str | None:
    """A digest of what is in a packed file; None if it is damaged."""
    digest = hashlib.sha256()
    try:
        with RecordFile(file, limits=limits) as records:
            for block in records.blocks():
                digest.update(block.data)
    except ShardlineError:
        return None
    return digest.hexdigest()


def _make_corrupt_input_finding(one: ShardToRead, error: Exception) -> Finding:
    return Finding(
        "error",
        "damaged-input",
        one.history.name,
        f"shard {one.row.shard.name}",
        f"what it was made of cannot be read, so it cannot be made once more: {error}",
        Hint.of("audit the versions of its inputs, to find their corrupt shards"),
        one.entry,
    )


def _make_mismatch_finding(one: ShardToRead, detail: str) -> Finding:
    return Finding(
        "error",
        "not-reproduced",
        one.history.name,
        f"shard {one.row.shard.name}",
        detail,
        _COMPARE,
        one.entry,
    )
