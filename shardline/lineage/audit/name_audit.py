"""Audit of shard names and record counts: do they follow from what the entries say?

A shard name is a hash of the inputs and the parameters of an operation. The audit computes the hash
again, so that an entry with a forged source, input or parameter gives itself away. That is not
possible after a function without a code version. Other writers may name shards as they like: their
entries give a note per version.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from shardline.errors import ShardlineError
from shardline.hints import Hint
from shardline.log.parameters import (
    AppendParameters,
    CombineParameters,
    EntryParameters,
    ExtendParameters,
    MigrateParameters,
    RebuildParameters,
)
from shardline.operations.append_task import AppendOptions, make_append_identity
from shardline.operations.combine_task import make_combine_identity, make_span_identity
from shardline.operations.migrate import MigrationSpec, make_migrate_transform
from shardline.operations.shard_slice import make_rebuild_identity
from shardline.operations.shard_writer import get_stem, make_stem
from shardline.operations.transform import make_transform_identity
from shardline.pairing.combine_spec import has_pair_selection
from shardline.pairing.coverage import Coverage, estimate
from shardline.pairing.pair_grid import PairGrid, RecordExtent
from shardline.schema.schema import Kind, get_feature
from shardline.udf.transform import get_transform_identity, map_unchanged_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.lineage.audit.audit_report import Finding
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.schema.schema import Schema

_Piece: TypeAlias = tuple[str, int, int | None]
"""The content of a shard and a span of its records; without an end, the whole shard."""

_COUNT_HINT = Hint.of(
    "compare the entry and those of its inputs with a copy of the root, then recreate the shard"
)
_NAME_HINT = Hint.of(
    "compare it with a copy of the root, or with what Dagster recorded: another program wrote it, "
    "or the entry was changed"
)
_WRONG_NAME = "its name does not follow from the origin in its entry"


def find_name_faults(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Find shards whose names or counts do not follow from their entries."""
    foreign: list[int] = []
    for entry in log.data:
        check = _CHECKS.get(entry.operation)
        if check is None or not entry.added:
            continue
        if not has_known_parameters(entry):
            foreign.append(entry.number)
            continue
        try:
            faults = list(check(_EntryAudit(log, entry, logs)))
        except (ShardlineError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            faults = [_NameFault("", "its parameters do not fit the operation")]
        upstream = [logs.get(source.label) for source in entry.inputs] if faults else []
        question = f"whether the names of entry {entry.number} follow from its inputs"
        if any(logs.is_in_doubt(log, other, question) for other in upstream):
            continue
        for fault in faults:
            shard = f", shard {fault.shard}" if fault.shard else ""
            yield log.make_finding(
                "wrong-count" if fault.is_count else "unproved-name",
                f"entry {entry.number}{shard}",
                fault.detail,
                _COUNT_HINT if fault.is_count else _NAME_HINT,
                entry.number,
                severity="error" if fault.is_count else "warning",
            )
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        yield log.make_finding(
            "other-writer",
            f"entry {foreign[0]}{more}",
            "another program or release wrote its parameters, so its shard names prove nothing",
            Hint.of("nothing to do if another program or release writes there"),
            foreign[-1],
            severity="note",
        )


def has_known_parameters(entry: Entry) -> bool:
    """Return True if an entry has the parameters that this release writes."""
    parameters = entry.parameters
    if not _REQUIRED_PARAMETERS.get(entry.operation, frozenset()) <= parameters.keys():
        return False
    return entry.operation != "extend" or all(isinstance(udf, dict) for udf in parameters["fields"])


@dataclass(frozen=True, slots=True)
class _EntryAudit:
    """An entry, its log, and the logs of its inputs."""

    log: AuditedLog
    entry: Entry
    logs: AuditedLogs

    def input(self, index: int) -> tuple[AuditedLog, int] | None:
        """Return an input snapshot, or None if its log does not have it as it was read."""
        source = self.logs.input(self.entry.inputs[index])
        return None if source is None else (source[0], source[1].number)


@dataclass(frozen=True, slots=True)
class _NameFault:
    """A wrong name, or with `is_count` a wrong record count."""

    shard: str
    detail: str
    is_count: bool = False


def _find_wrong_name(shard: Shard, identities: Iterable[Json]) -> Iterator[_NameFault]:
    stem = get_stem(shard.name)
    if all(make_stem(identity) != stem for identity in identities):
        yield _NameFault(shard.name, _WRONG_NAME)


def _audit_append(audit: _EntryAudit) -> Iterator[_NameFault]:
    entry = audit.entry
    parameters = entry.read(AppendParameters).validated()
    options = AppendOptions.from_parameters(parameters)
    sources = {source.key: source for source in entry.sources}
    quarantined = {rows.source: len(rows.files) for rows in parameters.quarantine}
    next_part: Counter[str] = Counter()
    bases = entry.bases or [""] * len(entry.added)
    for added, base in zip(entry.added, bases, strict=True):
        shard = added.shard
        if base:
            yield from _audit_replacement(audit, shard, base)
            continue
        key = shard.source or ""
        source = sources.get(key)
        if source is None:
            yield _NameFault(shard.name, "its source is not in the entry")
            continue
        if source.batch is not None:
            continue  # The name of a batch does not identify its content: the stem is random.
        identity = {**make_append_identity(key, entry.fingerprint or "", options), "run": ""}
        # A part whose rows all went to quarantine has no shard, but counts.
        first = next_part[key]
        stem = get_stem(shard.name)
        parts = range(first, first + quarantined.get(key, 0) + 1)
        part = next((n for n in parts if make_stem({**identity, "part": n}) == stem), None)
        if part is None:
            yield _NameFault(shard.name, _WRONG_NAME)
        next_part[key] = (first if part is None else part) + 1


def _audit_replacement(audit: _EntryAudit, shard: Shard, base: str) -> Iterator[_NameFault]:
    """Audit the rest of a shard whose source was replaced: it has fewer records."""
    row = audit.log.replay.row_at(base, audit.entry.snapshot - 1)
    if row is None or base not in audit.entry.removed:
        yield _NameFault(shard.name, f"its base {base} is not among the removed shards")
    elif not shard.records < row.shard.records:
        detail = f"has {shard.records} records, but its base {base} has {row.shard.records}"
        yield _NameFault(shard.name, detail, is_count=True)


def _audit_rebuild(audit: _EntryAudit) -> Iterator[_NameFault]:
    entry, replay = audit.entry, audit.log.replay
    if entry.inputs:
        source = audit.input(0)
        if source is None:
            return
        inputs = audit.logs.shards(*source)
        outputs = [row.shard for row in replay.at(entry.snapshot)]
    else:
        rows = [replay.row_at(name, entry.snapshot - 1) for name in entry.removed]
        inputs = [row.shard for row in rows if row is not None]
        outputs = [added.shard for added in entry.added]
    before, after = (sum(shard.records for shard in side) for side in (inputs, outputs))
    if before != after:
        yield _NameFault("", f"{before} records were rebuilt into {after}", is_count=True)
        return
    new = {added.shard.name for added in entry.added}
    seen: Counter[tuple[_Piece, ...]] = Counter()
    for shard, pieces in zip(outputs, _iter_output_pieces(inputs, outputs), strict=True):
        if shard.name in new:
            # Shards of the same bytes have numbers, which other shards may have taken.
            parts = [_describe_piece(piece) for piece in pieces]
            compression = entry.read(RebuildParameters).compression
            identities = (
                make_rebuild_identity(parts, compression, number)
                for number in range(seen[pieces] + 1)
            )
            yield from _find_wrong_name(shard, identities)
        seen[pieces] += 1


def _describe_piece(piece: _Piece) -> Json:
    content, first, last = piece
    return {"sha256": content, **({} if last is None else {"records": [first, last]})}


def _iter_output_pieces(
    inputs: Sequence[Shard], outputs: Sequence[Shard]
) -> Iterator[tuple[_Piece, ...]]:
    """Yield the input records of each output, by counting records."""
    index = used = 0
    for output in outputs:
        pieces: list[_Piece] = []
        left = output.records
        while index < len(inputs) and (left or not inputs[index].records):
            shard = inputs[index]
            taken = min(left, shard.records - used)
            is_whole = taken == shard.records
            pieces.append((shard.content, used, None if is_whole else used + taken))
            left, used = left - taken, used + taken
            if used == shard.records:
                index, used = index + 1, 0
        yield tuple(pieces)


def _audit_extend(audit: _EntryAudit) -> Iterator[_NameFault]:
    parameters = audit.entry.read(ExtendParameters).validated()
    identities = [udf.identity for udf in parameters.udfs if udf.identity is not None]
    source = audit.input(0)
    if source is None:
        return
    schema = source[0].replay.schema
    transform = None
    if schema is not None and len(identities) == len(parameters.udfs):
        names = map_unchanged_names(schema)
        computed = {name for udf in parameters.udfs for name in udf.features}
        dropped = {get_feature(schema, name).key for name in parameters.drop}
        for feature in schema.features:
            if feature.key in dropped or (not feature.sequence and feature.name in computed):
                names[feature.key] = None
        fingerprints = schema.fingerprint, audit.entry.fingerprint or ""
        transform = get_transform_identity(fingerprints, names, identities)
    yield from _audit_transform(audit, source, parameters.mode, transform)


def _audit_migrate(audit: _EntryAudit) -> Iterator[_NameFault]:
    source = audit.input(0)
    if source is None:
        return
    parameters = audit.entry.read(MigrateParameters).validated()
    transform = get_migration_identity(source[0].replay.schema, parameters)
    yield from _audit_transform(audit, source, "rewrite", transform)


def get_migration_identity(schema: Schema | None, parameters: MigrateParameters) -> Json | None:
    """Return the identity of a migration, or None if its entry has no values of defaults."""
    spec = make_migration_spec(parameters)
    if schema is None or spec is None:
        return None
    return make_migrate_transform(schema, spec).identity()


def make_migration_spec(parameters: MigrateParameters) -> MigrationSpec | None:
    """Return the steps of a migration, or return None if its entry has no values of defaults."""
    if parameters.default:
        return None
    return MigrationSpec(
        parameters.rename, parameters.drop, cast("dict[str, Kind]", parameters.cast)
    )


def _audit_transform(
    audit: _EntryAudit, source: tuple[AuditedLog, int], mode: str, transform: Json | None
) -> Iterator[_NameFault]:
    """Audit shards that each come from a single input shard."""
    entry, (upstream, snapshot) = audit.entry, source
    may_lose = mode == "rewrite" and bool(entry.read(EntryParameters).quarantine)
    for added, name in zip(entry.added, entry.bases, strict=True):
        shard, row = added.shard, upstream.replay.row_at(name, snapshot)
        if row is None:
            yield _NameFault(shard.name, f"its base {name} is not in the input")
            continue
        base = row.shard
        if shard.records > base.records or (shard.records < base.records and not may_lose):
            detail = f"has {shard.records} records, but its base {name} has {base.records}"
            yield _NameFault(shard.name, detail, is_count=True)
        if transform is not None:
            identities = (
                make_transform_identity(
                    entry.operation, mode, base, transform, shard.compression, quarantined=flag
                )
                for flag in (False, True)
            )
            yield from _find_wrong_name(shard, identities)


def _audit_combine(audit: _EntryAudit) -> Iterator[_NameFault]:
    entry = audit.entry
    parameters = entry.read(CombineParameters).validated()
    outputs = parameters.outputs
    sides = audit.input(0), audit.input(1)
    if outputs is None or sides[0] is None or sides[1] is None:
        return
    left, right = audit.logs.shards(*sides[0]), audit.logs.shards(*sides[1])
    keys = ("mode", "rule") if parameters.is_virtual else ("rule", "compression")
    options = {key: entry.parameters[key] for key in keys}
    grid = PairGrid(
        tuple(RecordExtent(shard.records, 0) for shard in left),
        tuple(RecordExtent(shard.records, 0) for shard in right),
        parameters.is_unordered,
    )
    for added, output in zip(entry.added, outputs, strict=True):
        coverage = Coverage.from_json(output)
        identity = make_combine_identity(
            options, left[slice(*coverage.left)], right[slice(*coverage.right)]
        )
        span = {} if parameters.is_virtual else make_span_identity(coverage)
        yield from _find_wrong_name(added.shard, [identity | span])
        pairs = estimate(grid, coverage).pairs
        if not has_pair_selection(entry.parameters) and pairs != added.shard.records:
            detail = f"has {added.shard.records} records, but its inputs give {pairs} pairs"
            yield _NameFault(added.shard.name, detail, is_count=True)


_CHECKS = {
    "append": _audit_append,
    "rebuild": _audit_rebuild,
    "extend": _audit_extend,
    "migrate": _audit_migrate,
    "combine": _audit_combine,
}
_REQUIRED_PARAMETERS = {
    "append": frozenset({"target_bytes"}),
    "rebuild": frozenset({"compression"}),
    "extend": frozenset({"fields", "mode", "of"}),
    "migrate": frozenset({"of"}),
    "combine": frozenset({"rule"}),
}
