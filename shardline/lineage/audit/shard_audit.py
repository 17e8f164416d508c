"""Audit of shards: present, as committed, and as attested."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from shardline.execution.threads import run_tasks
from shardline.hints import Command, Hint
from shardline.lineage.audit.audited_logs import list_dependencies
from shardline.lineage.audit.sidecar_audit import find_shard_sidecar_faults
from shardline.log.model import DERIVING_OPERATIONS, INTEGRITY, SCHEMA
from shardline.log.parameters import RepairParameters
from shardline.operations.inspect_shard import inspect_shard
from shardline.provenance.commands import get_recreate_hint
from shardline.schema.schema import Schema
from shardline.text import format_count
from shardline.tfrecord.hashing import hash_object
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shardline.lineage.audit.audit_report import Finding
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs, AuditedShard
    from shardline.log.entry import Entry
    from shardline.operations.inspect_shard import ShardReport
    from shardline.schema.validation import FeatureKey
    from shardline.tfrecord.reader import Limits

_EMPTY = sha256(b"").hexdigest()
_INDEX = Hint.of("find out who wrote it, and delete the index: the next reader writes it again")
_VACUUMED = "whether vacuum deleted its missing shards"


def find_lost_records(log: AuditedLog) -> Iterator[Finding]:
    """Find repairs that lost records, unless a later repair recovered them."""
    for number in log.repairs.values():
        entry = log.entry(number)
        lost = _get_lost_records(entry)
        if entry is None or not lost or _is_recovered(log, entry):
            continue
        yield log.make_finding(
            "lost-records",
            f"entry {number}, shard {entry.read(RepairParameters).shard}",
            f"its repair salvaged the shard and lost {format_count(lost, 'record')}",
            Hint.of("append the lost records from another copy of its source, if there is one"),
            number,
            severity="note",
        )


def _get_lost_records(entry: Entry | None) -> int:
    return 0 if entry is None else entry.read(RepairParameters).lost_records


def _is_recovered(log: AuditedLog, entry: Entry) -> bool:
    numbers = (log.repairs.get(added.shard.name) for added in entry.added)
    repairs = (log.entry(number) for number in numbers if number is not None)
    return any(
        repair is not None and not repair.read(RepairParameters).is_salvage for repair in repairs
    )


def find_missing_shards(shards: Iterable[AuditedShard], logs: AuditedLogs) -> Iterator[Finding]:
    """Find missing shards and shards of the wrong size, by a listing."""
    for shard in shards:
        yield from find_shard_sidecar_faults(shard, logs, read=False)
        if shard.repaired_in is not None or shard.is_replaced:
            continue  # Known to be corrupt, and replaced.
        file = logs.files(shard.log.dataset, "shards").get(shard.shard.name)
        if file is None:
            yield from _find_missing_shard(shard, logs)
        elif file.size != shard.shard.bytes:
            detail = f"has {file.size} bytes, expected {shard.shard.bytes}"
            yield shard.make_finding("damaged-shard", detail, _get_repair_hint(shard, logs))
        elif shard.has_failed:
            detail = f"in use, but corrupt according to entry {shard.row.failed_entry}"
            yield shard.make_finding("damaged-shard", detail, _get_repair_hint(shard, logs))


def find_corrupt_shards(
    shards: list[AuditedShard],
    logs: AuditedLogs,
    *,
    corrupt: set[str],
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Iterator[Finding]:
    """Find missing and corrupt shards and false attestations, by reading every byte.

    Adds the paths of corrupt shards to `corrupt`.
    """

    def read(shard: AuditedShard) -> tuple[AuditedShard, ShardReport]:
        advance = None if progress is None else partial(progress, shard.path)
        schema, below = _get_stored_schema(shard, logs)
        report = inspect_shard(
            logs.store,
            shard.path,
            shard.shard,
            schema,
            below=below,
            limits=limits,
            index=True,
            progress=advance,
        )
        return shard, report

    digests: dict[str, str] = {}
    for shard, report in run_tasks(read, shards, workers=workers):
        if report.problems:
            digests = digests or _map_digests(logs)
            finding = _find_corruption(shard, report, logs, digests)
            if finding is not None:
                corrupt.add(shard.path)
                yield finding
        elif report.violations and shard.has_mark(SCHEMA):
            first = report.violations[0]
            detail = f"passed {SCHEMA!r}, but record {first.record} violates it: {first.detail}"
            yield shard.make_finding("false-attestation", detail, _get_recheck_hint(shard))
        if report.index_problem:
            yield shard.make_finding("wrong-index", report.index_problem, _INDEX)
        yield from find_shard_sidecar_faults(shard, logs)


def _get_stored_schema(
    shard: AuditedShard, logs: AuditedLogs
) -> tuple[Schema | None, frozenset[FeatureKey]]:
    """Return the schema of the stored records, and the features of the base."""
    schema, base = shard.log.replay.schema, shard.shard.base
    if base is None or schema is None:
        return schema, frozenset()
    owner = logs.get(f"{shard.log.dataset}/{base.owner}")
    question = f"whether {shard.shard.name} fits its base"
    if logs.is_in_doubt(shard.log, owner, question):
        return None, frozenset()
    if owner is None or owner.replay.schema is None:
        return None, frozenset()
    below = frozenset(feature.key for feature in owner.replay.schema.features)
    added = tuple(feature for feature in schema.features if feature.key not in below)
    return Schema(added, schema.payload), below


def _map_digests(logs: AuditedLogs) -> dict[str, str]:
    """Map the digest of every shard of the root to its name."""
    digests: dict[str, str] = {}
    for name in logs.names():
        log = logs.get(name)
        for row in log.replay.rows if log is not None else ():
            digests.setdefault(row.shard.sha256, row.shard.name)
    return digests


def _find_corruption(
    shard: AuditedShard, report: ShardReport, logs: AuditedLogs, digests: dict[str, str]
) -> Finding | None:
    """Return the finding of a corrupt shard, or None if another finding explains it."""
    name, detail = shard.shard.name, "; ".join(report.problems)
    files = logs.files(shard.log.dataset, "shards")
    unused = Hint.of("nothing to do: no snapshot in use contains it")
    if name in files:
        unused = Hint.of(unused, ", and vacuum deletes it once no retained snapshot does")
    if (number := shard.repaired_in) is not None:
        lost = _get_lost_records(shard.log.entry(number))
        losing = f", losing {format_count(lost, 'record')}" if lost else ""
        detail = f"repaired in entry {number}{losing} ({detail})"
        return shard.make_finding("repaired-shard", detail, unused, severity="note")
    if shard.is_replaced:
        detail = f"corrupt according to entry {shard.row.failed_entry}, and not in use ({detail})"
        return shard.make_finding("replaced-shard", detail, unused, severity="note")
    if name not in files:
        return next(_find_missing_shard(shard, logs), None)
    digest = hash_object(logs.store, shard.path, files[name].size)
    is_plan = shard.shard.virtual and digest == shard.shard.sha256
    if is_plan and _is_dependency_lost(shard, logs):
        return None
    return _classify_corruption(
        shard, report, digest, digests.get(digest or ""), _get_repair_hint(shard, logs)
    )


def _classify_corruption(
    shard: AuditedShard, report: ShardReport, digest: str | None, other: str | None, hint: Hint
) -> Finding:
    """Compare the digest of a corrupt shard with its own and with the `other` shard of it."""
    expected, detail = shard.shard.sha256, "; ".join(report.problems)
    if other is not None and digest != expected:
        return shard.make_finding("swapped-shard", f"has the bytes of {other}", hint)
    if report.read and digest not in {expected, _EMPTY}:
        detail = f"has valid records, but is not the committed file: {detail}"
        return shard.make_finding("changed-shard", detail, hint)
    if digest == expected and shard.has_mark(INTEGRITY):
        detail = f"passed {INTEGRITY!r}, but: {detail}"
        return shard.make_finding("false-attestation", detail, _get_recheck_hint(shard))
    return shard.make_finding("damaged-shard", detail, hint)


def _find_missing_shard(shard: AuditedShard, logs: AuditedLogs) -> Iterator[Finding]:
    if not logs.is_in_doubt(shard.log, shard.log, _VACUUMED):
        detail = "file not found, and no vacuum announced its deletion"
        yield shard.make_finding("missing-shard", detail, _get_repair_hint(shard, logs))


def _is_dependency_lost(shard: AuditedShard, logs: AuditedLogs) -> bool:
    """Return True if a lost dependency explains why a pair plan cannot be read."""
    entry = shard.landing
    question = f"whether the pairs of {shard.shard.name} exist"
    for source in () if entry is None else entry.inputs:
        if logs.is_in_doubt(shard.log, logs.get(source.label), question):
            return True
        upstream = logs.input(source)
        if upstream is None:
            return True
        others = map(logs.get, logs.dependencies(upstream[0]))
        if any(log is None or logs.is_in_doubt(shard.log, log, question) for log in others):
            return True
    return any(_is_lost(dependency, logs) for dependency in list_dependencies([shard], logs))


def _is_lost(shard: AuditedShard, logs: AuditedLogs) -> bool:
    file = logs.files(shard.log.dataset, "shards").get(shard.shard.name)
    removed = shard.log.replay.get_tombstone(shard.shard.name) is not None
    return removed or shard.has_failed or file is None or file.size != shard.shard.bytes


def _get_recheck_hint(shard: AuditedShard) -> Hint:
    """Return how to check a shard again, in the last snapshot that contains it."""
    name, last = shard.log.name, shard.row.until - 1
    reference = name if last >= shard.log.replay.snapshot else f"{name}@{last}"
    check = Command.of("check", reference, "--recheck")
    return Hint.of("find out who attested it; to attest again what passes, run ", check)


def _get_repair_hint(shard: AuditedShard, logs: AuditedLogs) -> Hint:
    """Return how to recreate a shard: by repair, or by the operation that derived it."""
    name, latest, entry = shard.log.name, shard.log.replay.snapshot, shard.landing
    if shard.row.until <= latest:
        return Hint.of(
            "find out who wrote it; the latest snapshot does not contain it: to record in the log "
            "that it is corrupt, run ",
            Command.of("check", f"{name}@{shard.row.until - 1}", "--recheck"),
        )
    if entry is None or entry.operation not in DERIVING_OPERATIONS:
        return Hint.of("find out who wrote it; to recreate it, run ", Command.of("repair", name))
    return Hint.of(
        "find out who wrote it; to record in the log that it is corrupt, run ",
        Command.of("check", name, "--recheck"),
        "; then ",
        get_recreate_hint(logs.store, name, latest),
    )
