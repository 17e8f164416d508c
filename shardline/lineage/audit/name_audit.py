"""Do the names of shards follow from what they were made of, and do their records add up?

A name is a hash of what went into a shard and how. Where an entry tells all of that, it is worked
out again: so an entry that was made to tell another source, input or parameter gives itself away.
Where a function without a code version took part it cannot be, and nothing is said. Names are the
writer's business: where an entry does not tell what we tell, a note says so, once for a version.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from shardline.errors import ShardlineError
from shardline.hints import Hint
from shardline.lineage.audit.finding import Finding
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
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.schema.schema import Schema

_Piece: TypeAlias = tuple[str, int, int | None]
"""A shard's content, and of which records on; up to which, unless it is all of it."""


def find_name_faults(history: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Shards whose names or counts do not follow from what their entries tell."""
    foreign: list[int] = []
    for entry in history.data:
        check = _CHECKS.get(entry.operation)
        if check is None or not entry.added:
            continue
        if not has_known_parameters(entry):
            foreign.append(entry.number)
            continue
        try:
            found = list(check(_EntryAudit(history, entry, logs)))
        except (ShardlineError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            found = [_NameFault("", "its parameters are not those of such an operation")]
        origins = [logs.of(told.shown) for told in entry.inputs] if found else []
        what = f"whether the names of entry {entry.number} follow from its inputs"
        if any(logs.is_in_doubt(history, origin, what) for origin in origins):
            continue
        for odd in found:
            yield odd.finding(history.name, entry)
    if foreign:
        yield _make_foreign_entry_finding(history.name, foreign)


def has_known_parameters(entry: Entry) -> bool:
    """Whether an entry tells how its shards were made as this release tells it."""
    told = entry.parameters
    if not _OURS.get(entry.operation, frozenset()) <= told.keys():
        return False
    return entry.operation != "extend" or all(isinstance(one, dict) for one in told["fields"])


def _make_foreign_entry_finding(version: str, entries: Sequence[int]) -> Finding:
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return Finding(
        "note",
        "other-writer",
        version,
        f"entry {entries[0]}{more}",
        "how their shards were made is told in the form of another program, or of another release: "
        "nothing can be proved by the names of these shards",
        Hint.of("nothing to do if another program or release writes there"),
        entries[-1],
    )


@dataclass(frozen=True, slots=True)
class _EntryAudit:
    """An entry, and where what it tells of can be looked up."""

    history: AuditedLog
    entry: Entry
    logs: AuditedLogs

    def input(self, place: int) -> tuple[AuditedLog, int] | None:
        """One of the inputs, if its log tells of it; if not, that is told elsewhere."""
        told = self.entry.inputs[place]
        origin = self.logs.of(told.shown)
        made = None if origin is None else origin.made(told.snapshot)
        if origin is None or made is None or made.digest != told.entry:
            return None
        return origin, told.snapshot


@dataclass(frozen=True, slots=True)
class _NameFault:
    """What is odd about a shard; of counts, `lost` tells that records do not add up."""

    shard: str
    what: str
    lost: bool = False

    def finding(self, version: str, entry: Entry) -> Finding:
        place = f"entry {entry.number}" + (f", shard {self.shard}" if self.shard else "")
        if self.lost:
            return Finding(
                "error",
                "wrong-count",
                version,
                place,
                self.what,
                Hint.of(
                    "compare the entry and those of its inputs with a copy of the root, then "
                    "recreate the shard"
                ),
                entry.number,
            )
        return Finding(
            "warning",
            "unproved-name",
            version,
            place,
            self.what,
            Hint.of(
                "compare it with a copy of the root, or with what Dagster recorded: another "
                "program wrote it, or the entry was changed"
            ),
            entry.number,
        )


_OTHER = "its name does not follow from what the entry says that it was made of"


def _find_misnamed(shard: Shard, identities: Iterable[Json]) -> Iterator[_NameFault]:
    """Whether the name of a shard is that of none of these."""
    stem = get_stem(shard.name)
    if all(make_stem(identity) != stem for identity in identities):
        yield _NameFault(shard.name, _OTHER)


def _audit_appended(look: _EntryAudit) -> Iterator[_NameFault]:
    entry = look.entry
    parameters = entry.read(AppendParameters).validated()
    options = AppendOptions.from_parameters(parameters)
    sources = {source.key: source for source in entry.sources}
    aside = {rows.source: len(rows.files) for rows in parameters.quarantine}
    part: Counter[str] = Counter()
    bases = entry.bases or [""] * len(entry.added)
    for one, base in zip(entry.added, bases, strict=True):
        if base:
            yield from _audit_replaced(look, one.shard, base)
            continue
        key = one.shard.source or ""
        source = sources.get(key)
        if source is None:
            yield _NameFault(one.shard.name, "the entry does not tell the source that it names")
            continue
        if source.batch is not None:
            continue  # the name of a batch does not tell its content, so a name holds a drawn one
        told = {**make_append_identity(key, entry.fingerprint or "", options), "run": ""}
        # A part of which no row gave a record has no shard, but counts.
        tried = range(part[key], part[key] + aside.get(key, 0) + 1)
        stem = get_stem(one.shard.name)
        at = next((at for at in tried if make_stem({**told, "part": at}) == stem), None)
        if at is None:
            yield _NameFault(one.shard.name, _OTHER)
        part[key] = (part[key] if at is None else at) + 1


def _audit_replaced(look: _EntryAudit, shard: Shard, name: str) -> Iterator[_NameFault]:
    """What a replacement left of a shard: fewer records, and the shard itself is taken out."""
    row = look.history.ledger.row_at(name, look.entry.snapshot - 1)
    if row is None or name not in look.entry.removed:
        yield _NameFault(
            shard.name, f"it is told to be made of {name}, which the entry does not remove"
        )
    elif not shard.records < row.shard.records:
        what = f"it has {shard.records} records, and {name}, of which it is made, has "
        yield _NameFault(shard.name, f"{what}{row.shard.records}", lost=True)


def _audit_rebuilt(look: _EntryAudit) -> Iterator[_NameFault]:
    entry, history = look.entry, look.history
    if entry.inputs:
        found = look.input(0)
        if found is None:
            return
        inputs = look.logs.shards(*found)
        outputs = [row.shard for row in history.ledger.at(entry.snapshot)]
    else:
        rows = [history.ledger.row_at(name, entry.snapshot - 1) for name in entry.removed]
        inputs = [row.shard for row in rows if row is not None]
        outputs = [one.shard for one in entry.added]
    before, after = (sum(one.records for one in side) for side in (inputs, outputs))
    if before != after:
        yield _NameFault("", f"{before} records were rebuilt, and {after} came of it", lost=True)
        return
    new = {one.shard.name for one in entry.added}
    packing = entry.read(RebuildParameters).compression
    seen: Counter[tuple[_Piece, ...]] = Counter()
    for shard, pieces in zip(outputs, _iter_output_pieces(inputs, outputs), strict=True):
        if shard.name in new:
            # Which of several that are made of the same bytes it is, others may have moved.
            told = [_describe_piece(piece) for piece in pieces]
            tried = range(seen[pieces] + 1)
            yield from _find_misnamed(
                shard, (make_rebuild_identity(told, packing, at) for at in tried)
            )
        seen[pieces] += 1


def _describe_piece(piece: _Piece) -> Json:
    content, first, last = piece
    return {"sha256": content, **({} if last is None else {"records": [first, last]})}


def _iter_output_pieces(
    inputs: Sequence[Shard], outputs: Sequence[Shard]
) -> Iterator[tuple[_Piece, ...]]:
    """Which records of which shards each output has, by counting them."""
    at = used = 0
    for output in outputs:
        pieces: list[_Piece] = []
        left = output.records
        while at < len(inputs) and (left or not inputs[at].records):
            shard = inputs[at]
            taken = min(left, shard.records - used)
            whole = taken == shard.records
            pieces.append((shard.content, used, None if whole else used + taken))
            left, used = left - taken, used + taken
            if used == shard.records:
                at, used = at + 1, 0
        yield tuple(pieces)


def _audit_extended(look: _EntryAudit) -> Iterator[_NameFault]:
    parameters = look.entry.read(ExtendParameters).validated()
    found = look.input(0)
    if found is None:
        return
    schema = found[0].ledger.schema
    transform = None
    makers = [udf.identity for udf in parameters.udfs if udf.identity is not None]
    if schema is not None and len(makers) == len(parameters.udfs):
        names = map_unchanged_names(schema)
        new = {name for udf in parameters.udfs for name in udf.features}
        dropped = {get_feature(schema, name).key for name in parameters.drop}
        for feature in schema.features:
            if feature.key in dropped or (not feature.sequence and feature.name in new):
                names[feature.key] = None
        fingerprints = schema.fingerprint, look.entry.fingerprint or ""
        transform = get_transform_identity(fingerprints, names, makers)
    yield from _audit_transformed(look, found, parameters.mode, transform)


def _audit_migrated(look: _EntryAudit) -> Iterator[_NameFault]:
    found = look.input(0)
    if found is None:
        return
    transform = get_migration_identity(
        found[0].ledger.schema, look.entry.read(MigrateParameters).validated()
    )
    yield from _audit_transformed(look, found, "rewrite", transform)


def get_migration_identity(schema: Schema | None, parameters: MigrateParameters) -> Json | None:
    """The identity of a migration; None if its entry does not tell the values that it gave."""
    steps = make_migration_spec(parameters)
    if schema is None or steps is None:
        return None
    return make_migrate_transform(schema, steps).identity()


def make_migration_spec(parameters: MigrateParameters) -> MigrationSpec | None:
    """The steps of a migration; None if its entry does not tell the values that it gave."""
    if parameters.default:
        return None
    return MigrationSpec(
        parameters.rename, parameters.drop, cast("dict[str, Kind]", parameters.cast)
    )


def _audit_transformed(
    look: _EntryAudit, found: tuple[AuditedLog, int], mode: str, transform: Json | None
) -> Iterator[_NameFault]:
    """Shards that are each made of one of the input."""
    entry, (origin, snapshot) = look.entry, found
    for one, name in zip(entry.added, entry.bases, strict=True):
        shard, row = one.shard, origin.ledger.row_at(name, snapshot)
        if row is None:
            yield _NameFault(
                shard.name, f"it is told to be made of {name}, which is not in the input"
            )
            continue
        base = row.shard
        may_miss = mode == "rewrite" and bool(entry.read(EntryParameters).quarantine)
        if shard.records > base.records or (shard.records < base.records and not may_miss):
            what = f"it has {shard.records} records, and {name}, of which it is made, has "
            yield _NameFault(shard.name, f"{what}{base.records}", lost=True)
        if transform is not None:
            tried = (
                make_transform_identity(
                    entry.operation, mode, base, transform, shard.compression, quarantined=aside
                )
                for aside in (False, True)
            )
            yield from _find_misnamed(shard, tried)


def _audit_combined(look: _EntryAudit) -> Iterator[_NameFault]:
    entry = look.entry
    parameters = entry.read(CombineParameters).validated()
    outputs = parameters.outputs
    sides = look.input(0), look.input(1)
    if outputs is None or sides[0] is None or sides[1] is None:
        return
    left, right = look.logs.shards(*sides[0]), look.logs.shards(*sides[1])
    virtual = parameters.is_virtual
    names = ("mode", "rule") if virtual else ("rule", "compression")
    known = {name: entry.parameters[name] for name in names}
    grid = PairGrid(
        tuple(RecordExtent(one.records, 0) for one in left),
        tuple(RecordExtent(one.records, 0) for one in right),
        parameters.is_unordered,
    )
    for one, listed in zip(entry.added, outputs, strict=True):
        cover = Coverage.from_json(listed)
        identity = make_combine_identity(
            known, left[slice(*cover.left)], right[slice(*cover.right)]
        )
        yield from _find_misnamed(
            one.shard, [identity | ({} if virtual else make_span_identity(cover))]
        )
        pairs = estimate(grid, cover).pairs
        if not has_pair_selection(entry.parameters) and pairs != one.shard.records:
            what = f"it has {one.shard.records} records, and what it pairs gives {pairs}"
            yield _NameFault(one.shard.name, what, lost=True)


_CHECKS = {
    "append": _audit_appended,
    "rebuild": _audit_rebuilt,
    "extend": _audit_extended,
    "migrate": _audit_migrated,
    "combine": _audit_combined,
}
_OURS = {
    "append": frozenset({"target_bytes"}),
    "rebuild": frozenset({"compression"}),
    "extend": frozenset({"fields", "mode", "of"}),
    "migrate": frozenset({"of"}),
    "combine": frozenset({"rule"}),
}
"""What this release tells of each operation at least."""
