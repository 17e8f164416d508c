"""What repairs could not bring back: it stays lost, and is told for ever."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from shardline.execution.threads import run_tasks
from shardline.hints import Command, Hint
from shardline.lineage.audit.audited_logs import get_dependency_versions, list_dependency_shards
from shardline.lineage.audit.finding import Finding
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

    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs, ShardToRead
    from shardline.lineage.audit.finding import Severity
    from shardline.log.entry import Entry
    from shardline.operations.inspect_shard import ShardReport
    from shardline.schema.validation import FeatureKey
    from shardline.tfrecord.reader import Limits


def get_recorded_loss(entry: Entry | None) -> int:
    """How many records a repair lost, as its entry tells."""
    return 0 if entry is None else entry.read(RepairParameters).lost_records


def find_lost_records(history: AuditedLog) -> Iterator[Finding]:
    """Repairs that lost records, unless a later one of the same shard brought them back."""
    for number in history.repairs.values():
        entry = history.entry(number)
        lost = get_recorded_loss(entry)
        if entry is None or not lost or _is_recovered(history, entry):
            continue
        yield Finding(
            "note",
            "lost-records",
            history.name,
            f"entry {number}, shard {entry.read(RepairParameters).shard}",
            f"its repair kept what was intact, and lost {format_count(lost, 'record')}",
            Hint.of("append the lost records from another copy of its source, if there is one"),
            number,
        )


def _is_recovered(history: AuditedLog, entry: Entry) -> bool:
    made = (history.repairs.get(one.shard.name) for one in entry.added)
    later = (history.entry(number) for number in made if number is not None)
    return any(one is not None and not one.read(RepairParameters).is_salvage for one in later)


_EMPTY = sha256(b"").hexdigest()
_INDEX = Hint.of("find out who wrote it, and delete the index: the next reader writes it again")
_TAKEN = "whether vacuum took the shards that are gone"


def find_missing_shards(shards: Iterable[ShardToRead], logs: AuditedLogs) -> Iterator[Finding]:
    """Shards that are not there, or not as long as they should be, by one listing."""
    for one in shards:
        yield from find_shard_sidecar_faults(one, logs, read=False)
        shard = one.row.shard
        if one.repaired_in is not None or one.is_replaced:
            continue  # it is known to be damaged, and others took its place
        file = logs.files(one.history.dataset, "shards").get(shard.name)
        if file is None:
            if not logs.is_in_doubt(one.history, one.history, _TAKEN):
                yield _make_missing_finding(one, logs)
        elif file.size != shard.bytes:
            what = f"it has {file.size} bytes and should have {shard.bytes}"
            yield _make_finding(one, "damaged-shard", what, _get_repair_hint(one, logs))
        elif one.has_failed:
            what = f"it is damaged, as entry {one.row.told} says, and is in use"
            yield _make_finding(one, "damaged-shard", what, _get_repair_hint(one, logs))


def find_corrupt_shards(
    shards: list[ShardToRead],
    logs: AuditedLogs,
    *,
    spoiled: set[str],
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Iterator[Finding]:
    """The same and more, by reading every byte: what is in them, and whether that fits.

    Where those lie that are not what was committed is put into `spoiled`.
    """
    schemas = _SchemaCache(logs)

    def read(one: ShardToRead) -> tuple[ShardToRead, ShardReport]:
        told = None if progress is None else partial(progress, one.name)
        schema, below = schemas.of(one)
        shard = one.row.shard
        store = logs.store
        return one, inspect_shard(
            store, one.name, shard, schema, below=below, limits=limits, index=True, progress=told
        )

    known: dict[str, str] | None = None
    for one, report in run_tasks(read, shards, workers=workers):
        if report.problems:
            known = _map_shard_digests(logs) if known is None else known
            found = _find_corruption(one, report, logs, known)
            if found is not None:
                spoiled.add(one.name)
                yield found
        elif one.row.passed >> one.history.ledger.bits.get(SCHEMA, 31) & 1 and report.violations:
            first = report.violations[0]
            yield _make_finding(
                one,
                "false-attestation",
                f"it is attested to have passed {SCHEMA!r}, and record {first.record} does not "
                f"fit: {first.detail}",
                _get_recheck_hint(one),
            )
        if report.index_problem:
            yield _make_finding(one, "wrong-index", report.index_problem, _INDEX)
        yield from find_shard_sidecar_faults(one, logs)


class _SchemaCache:
    """What the records of a shard should hold: of an overlay, the features that it adds."""

    def __init__(self, logs: AuditedLogs) -> None:
        self._logs = logs

    def of(self, one: ShardToRead) -> tuple[Schema | None, frozenset[FeatureKey]]:
        own, base = one.history.ledger.schema, one.row.shard.base
        if base is None or own is None:
            return own, frozenset()
        under = self._logs.of(f"{one.history.dataset}/{base.owner}")
        what = f"whether {one.row.shard.name} fits beside its base"
        if self._logs.is_in_doubt(one.history, under, what):
            return None, frozenset()
        if under is None or under.ledger.schema is None:
            return None, frozenset()
        below = frozenset(feature.key for feature in under.ledger.schema.features)
        new = tuple(feature for feature in own.features if feature.key not in below)
        return Schema(new, own.payload), below


def _find_corruption(
    one: ShardToRead, report: ShardReport, logs: AuditedLogs, known: dict[str, str]
) -> Finding | None:
    """What happened to a shard, by what is in its place; None if something else tells it."""
    shard, detail = one.row.shard, "; ".join(report.problems)
    files = logs.files(one.history.dataset, "shards")
    advice = Hint.of("nothing to do: no snapshot in use contains it")
    if shard.name in files:
        advice = Hint.of(advice, ", and vacuum deletes it once no retained snapshot does")
    if (entry := one.repaired_in) is not None:
        what = f"it is not what was committed: {detail}; entry {entry} repaired that"
        if lost := get_recorded_loss(one.history.entry(entry)):
            what += f", and lost {format_count(lost, 'record')}"
        return _make_finding(one, "repaired-shard", what, advice, severity="note")
    if one.is_replaced:
        what = f"it is not what was committed: {detail}; entry {one.row.told} says so, and neither "
        rest = "the newest nor the published snapshot holds it"
        return _make_finding(one, "replaced-shard", f"{what}{rest}", advice, severity="note")
    if shard.name not in files:
        in_doubt = logs.is_in_doubt(one.history, one.history, _TAKEN)
        return None if in_doubt else _make_missing_finding(one, logs)
    found = hash_object(logs.store, one.name, files[shard.name].size)
    if shard.virtual and found == shard.sha256 and _is_explained_by_dependency(one, logs):
        return None
    return _make_replaced_finding(
        one, report, found, known.get(found or ""), _get_repair_hint(one, logs)
    )


def _make_replaced_finding(
    one: ShardToRead, report: ShardReport, found: str | None, other: str | None, advice: Hint
) -> Finding:
    """What is in the place of a shard that is there, and not as it should be."""
    shard, detail = one.row.shard, "; ".join(report.problems)
    if other is not None and found != shard.sha256:
        what = f"in its place lies what was committed as {other}"
        return _make_finding(one, "swapped-shard", what, advice)
    if report.read and found not in {shard.sha256, _EMPTY}:
        what = "its checksums fit its records, and it is not the file that was committed"
        return _make_finding(one, "changed-shard", f"{what}: someone wrote it so; {detail}", advice)
    attested = one.row.passed >> one.history.ledger.bits.get(INTEGRITY, 31) & 1
    if found == shard.sha256 and attested:
        what = f"it passed {INTEGRITY!r}, and yet {detail}"
        return _make_finding(one, "false-attestation", what, _get_recheck_hint(one))
    return _make_finding(one, "damaged-shard", detail, advice)


def _get_recheck_hint(one: ShardToRead) -> Hint:
    """Return how to check a shard again: in the newest snapshot, or in the last that holds it."""
    name, last = one.history.name, one.row.until - 1
    place = name if last >= one.history.ledger.snapshot else f"{name}@{last}"
    check = Command.of("check", place, "--recheck")
    return Hint.of("find out who attested it; to attest again what passes, run ", check)


def _make_missing_finding(one: ShardToRead, logs: AuditedLogs) -> Finding:
    what = "it is not there, and no vacuum announced that"
    return _make_finding(one, "missing-shard", what, _get_repair_hint(one, logs))


def _is_explained_by_dependency(one: ShardToRead, logs: AuditedLogs) -> bool:
    """Whether a plan cannot lead to its pairs because of what findings on shards below tell.

    It did when that was attested: what it is read from was lost since.
    """
    entry = one.history.entry(one.row.landed)
    for told in () if entry is None else entry.inputs:
        origin = logs.of(told.shown)
        made = None if origin is None else origin.made(told.snapshot)
        what = f"whether {one.row.shard.name} leads to its pairs"
        if logs.is_in_doubt(one.history, origin, what):
            return True
        if origin is None or made is None or made.digest != told.entry:
            return True
        lower = [logs.of(name) for name in get_dependency_versions(origin, logs)]
        if any(under is None or logs.is_in_doubt(one.history, under, what) for under in lower):
            return True
    return any(_is_lost(under, logs) for under in list_dependency_shards([one], logs))


def _is_lost(one: ShardToRead, logs: AuditedLogs) -> bool:
    """Whether a shard is not there, or not as long as it should be, or known to be damaged."""
    shard = one.row.shard
    file = logs.files(one.history.dataset, "shards").get(shard.name)
    gone = one.history.ledger.condemned_in(shard.name) is not None
    return gone or one.has_failed or file is None or file.size != shard.bytes


def _get_repair_hint(one: ShardToRead, logs: AuditedLogs) -> Hint:
    """Return how to recreate a shard: by repair, or by the operation that derived it."""
    entry = one.history.entry(one.row.landed)
    name = one.history.name
    if one.row.until <= one.history.ledger.snapshot:
        check = Command.of("check", f"{name}@{one.row.until - 1}", "--recheck")
        return Hint.of(
            "find out who wrote it; the latest snapshot does not contain it: to record in the log "
            "that it is corrupt, run ",
            check,
        )
    if entry is None or entry.operation not in DERIVING_OPERATIONS:
        return Hint.of("find out who wrote it; to recreate it, run ", Command.of("repair", name))
    again = get_recreate_hint(logs.store, name, one.history.ledger.snapshot)
    check = Command.of("check", name, "--recheck")
    return Hint.of(
        "find out who wrote it; to record in the log that it is corrupt, run ",
        check,
        "; then ",
        again,
    )


def _map_shard_digests(logs: AuditedLogs) -> dict[str, str]:
    """Every shard that any log tells of, by its content."""
    found: dict[str, str] = {}
    for name in logs.names():
        history = logs.of(name)
        for row in history.ledger.rows if history is not None else ():
            found.setdefault(row.shard.sha256, row.shard.name)
    return found


def _make_finding(
    one: ShardToRead, kind: str, detail: str, advice: Hint, *, severity: Severity = "error"
) -> Finding:
    return Finding(
        severity,
        kind,
        one.history.name,
        f"shard {one.row.shard.name}",
        detail,
        advice,
        one.entry,
    )
