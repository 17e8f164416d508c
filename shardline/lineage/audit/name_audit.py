"""Do the names of shards follow from what they were made of, and do their records add up?

A name is a hash of what went into a shard and how. Where an entry tells all of that, it is worked
out again: so an entry that was made to tell another source, input or parameter gives itself away.
Where a function without a code version took part it cannot be, and nothing is said. Names are the
writer's business: where an entry does not tell what we tell, a note says so, once for a version.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from shardline.errors import ShardlineError
from shardline.hints import Hint
from shardline.lineage.audit.finding import Finding
from shardline.operations.append_task import LandingOptions, landed_identity
from shardline.operations.combine_task import combined_identity, span_identity
from shardline.operations.migrate import Steps, migration
from shardline.operations.shard_slice import rebuilt_identity
from shardline.operations.shard_writer import stem_in, stem_of
from shardline.operations.transform_version import changed_identity
from shardline.pairing.coverage import Cover, estimate
from shardline.pairing.pair_grid import Extent, Grid
from shardline.schema.schema import named_feature
from shardline.udf.transform import transform_identity, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.lineage.audit.audited_logs import AuditedLogs, History
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.schema.schema import Schema

_Piece: TypeAlias = tuple[str, int, int | None]
"""A shard's content, and of which records on; up to which, unless it is all of it."""


def name_findings(history: History, logs: AuditedLogs) -> Iterator[Finding]:
    """Shards whose names or counts do not follow from what their entries tell."""
    foreign: list[int] = []
    for entry in history.data:
        check = _CHECKS.get(entry.operation)
        if check is None or not entry.added:
            continue
        if not is_ours(entry):
            foreign.append(entry.number)
            continue
        try:
            found = list(check(_Looking(history, entry, logs)))
        except (ShardlineError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            found = [_Odd("", "its parameters are not those of such an operation")]
        origins = [logs.of(told.shown) for told in entry.inputs] if found else []
        what = f"whether the names of entry {entry.number} follow from its inputs"
        if any(logs.is_in_doubt(history, origin, what) for origin in origins):
            continue
        for odd in found:
            yield odd.finding(history.name, entry)
    if foreign:
        yield _by_others(history.name, foreign)


def is_ours(entry: Entry) -> bool:
    """Whether an entry tells how its shards were made as this release tells it."""
    told = entry.parameters
    if not _OURS.get(entry.operation, frozenset()) <= told.keys():
        return False
    return entry.operation != "extend" or all(isinstance(one, dict) for one in told["fields"])


def _by_others(version: str, entries: Sequence[int]) -> Finding:
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
class _Looking:
    """An entry, and where what it tells of can be looked up."""

    history: History
    entry: Entry
    logs: AuditedLogs

    def input(self, place: int) -> tuple[History, int] | None:
        """One of the inputs, if its log tells of it; if not, that is told elsewhere."""
        told = self.entry.inputs[place]
        origin = self.logs.of(told.shown)
        made = None if origin is None else origin.made(told.snapshot)
        if origin is None or made is None or made.digest != told.entry:
            return None
        return origin, told.snapshot


@dataclass(frozen=True, slots=True)
class _Odd:
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


def _misnamed(shard: Shard, identities: Iterable[Json]) -> Iterator[_Odd]:
    """Whether the name of a shard is that of none of these."""
    stem = stem_in(shard.name)
    if all(stem_of(identity) != stem for identity in identities):
        yield _Odd(shard.name, _OTHER)


def _appended(look: _Looking) -> Iterator[_Odd]:
    entry = look.entry
    options = LandingOptions.from_json(entry.parameters)
    sources = {source.key: source for source in entry.sources}
    aside = {told["source"]: len(told["files"]) for told in entry.parameters.get("quarantine", ())}
    part: Counter[str] = Counter()
    bases = entry.bases or [""] * len(entry.added)
    for one, base in zip(entry.added, bases, strict=True):
        if base:
            yield from _left_of(look, one.shard, base)
            continue
        key = one.shard.source or ""
        source = sources.get(key)
        if source is None:
            yield _Odd(one.shard.name, "the entry does not tell the source that it names")
            continue
        if source.batch is not None:
            continue  # the name of a batch does not tell its content, so a name holds a drawn one
        told = {**landed_identity(key, entry.fingerprint or "", options), "run": ""}
        # A part of which no row gave a record has no shard, but counts.
        tried = range(part[key], part[key] + aside.get(key, 0) + 1)
        stem = stem_in(one.shard.name)
        at = next((at for at in tried if stem_of({**told, "part": at}) == stem), None)
        if at is None:
            yield _Odd(one.shard.name, _OTHER)
        part[key] = (part[key] if at is None else at) + 1


def _left_of(look: _Looking, shard: Shard, name: str) -> Iterator[_Odd]:
    """What a replacement left of a shard: fewer records, and the shard itself is taken out."""
    row = look.history.ledger.row_at(name, look.entry.snapshot - 1)
    if row is None or name not in look.entry.removed:
        yield _Odd(shard.name, f"it is told to be made of {name}, which the entry does not remove")
    elif not shard.records < row.shard.records:
        what = f"it has {shard.records} records, and {name}, of which it is made, has "
        yield _Odd(shard.name, f"{what}{row.shard.records}", lost=True)


def _rebuilt(look: _Looking) -> Iterator[_Odd]:
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
        yield _Odd("", f"{before} records were rebuilt, and {after} came of it", lost=True)
        return
    new = {one.shard.name for one in entry.added}
    packing = entry.parameters["compression"]
    seen: Counter[tuple[_Piece, ...]] = Counter()
    for shard, pieces in zip(outputs, _pieces(inputs, outputs), strict=True):
        if shard.name in new:
            # Which of several that are made of the same bytes it is, others may have moved.
            told = [_told(piece) for piece in pieces]
            tried = range(seen[pieces] + 1)
            yield from _misnamed(shard, (rebuilt_identity(told, packing, at) for at in tried))
        seen[pieces] += 1


def _told(piece: _Piece) -> Json:
    content, first, last = piece
    return {"sha256": content, **({} if last is None else {"records": [first, last]})}


def _pieces(inputs: Sequence[Shard], outputs: Sequence[Shard]) -> Iterator[tuple[_Piece, ...]]:
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


def _extended(look: _Looking) -> Iterator[_Odd]:
    told = look.entry.parameters
    makers = [one["identity"] for one in told["fields"]]
    found = look.input(0)
    if found is None:
        return
    schema = found[0].ledger.schema
    transform = None
    if schema is not None and None not in makers:
        names = unchanged(schema)
        new = {name for one in told["fields"] for name in one["features"]}
        dropped = {named_feature(schema, name).key for name in told.get("drop", ())}
        for feature in schema.features:
            if feature.key in dropped or (not feature.sequence and feature.name in new):
                names[feature.key] = None
        fingerprints = schema.fingerprint, look.entry.fingerprint or ""
        transform = transform_identity(fingerprints, names, makers)
    yield from _changed(look, found, told["mode"], transform)


def _migrated(look: _Looking) -> Iterator[_Odd]:
    found = look.input(0)
    if found is None:
        return
    transform = told_migration(found[0].ledger.schema, look.entry.parameters)
    yield from _changed(look, found, "rewrite", transform)


def told_migration(schema: Schema | None, told: Json) -> Json | None:
    """The identity of a migration; None if its entry does not tell the values that it gave."""
    steps = steps_of(told)
    if schema is None or steps is None:
        return None
    return migration(schema, steps).identity()


def steps_of(told: Json) -> Steps | None:
    """The steps of a migration; None if its entry does not tell the values that it gave."""
    if told.get("default"):
        return None
    return Steps(told.get("rename", {}), told.get("drop", ()), told.get("cast", {}))


def _changed(
    look: _Looking, found: tuple[History, int], mode: str, transform: Json | None
) -> Iterator[_Odd]:
    """Shards that are each made of one of the input."""
    entry, (origin, snapshot) = look.entry, found
    for one, name in zip(entry.added, entry.bases, strict=True):
        shard, row = one.shard, origin.ledger.row_at(name, snapshot)
        if row is None:
            yield _Odd(shard.name, f"it is told to be made of {name}, which is not in the input")
            continue
        base = row.shard
        may_miss = mode == "rewrite" and "quarantine" in entry.parameters
        if shard.records > base.records or (shard.records < base.records and not may_miss):
            what = f"it has {shard.records} records, and {name}, of which it is made, has "
            yield _Odd(shard.name, f"{what}{base.records}", lost=True)
        if transform is not None:
            tried = (
                changed_identity(
                    entry.operation, mode, base, transform, shard.compression, quarantined=aside
                )
                for aside in (False, True)
            )
            yield from _misnamed(shard, tried)


def _combined(look: _Looking) -> Iterator[_Odd]:
    entry, told = look.entry, look.entry.parameters
    outputs = told.get("outputs")
    sides = look.input(0), look.input(1)
    if outputs is None or sides[0] is None or sides[1] is None:
        return
    left, right = look.logs.shards(*sides[0]), look.logs.shards(*sides[1])
    rule: Any = told["rule"]
    virtual = told.get("mode") == "virtual"
    names = ("mode", "rule") if virtual else ("rule", "compression")
    known = {name: told[name] for name in names}
    all_pairs = "on" not in rule and "where" not in rule
    grid = Grid(
        tuple(Extent(one.records, 0) for one in left),
        tuple(Extent(one.records, 0) for one in right),
        bool(rule.get("once")),
    )
    for one, listed in zip(entry.added, outputs, strict=True):
        cover = Cover.from_json(listed)
        identity = combined_identity(known, left[slice(*cover.left)], right[slice(*cover.right)])
        yield from _misnamed(one.shard, [identity | ({} if virtual else span_identity(cover))])
        pairs = estimate(grid, cover).pairs
        if all_pairs and pairs != one.shard.records:
            what = f"it has {one.shard.records} records, and what it pairs gives {pairs}"
            yield _Odd(one.shard.name, what, lost=True)


_CHECKS = {
    "append": _appended,
    "rebuild": _rebuilt,
    "extend": _extended,
    "migrate": _migrated,
    "combine": _combined,
}
_OURS = {
    "append": frozenset({"target_bytes"}),
    "rebuild": frozenset({"compression"}),
    "extend": frozenset({"fields", "mode", "of"}),
    "migrate": frozenset({"of"}),
    "combine": frozenset({"rule"}),
}
"""What this release tells of each operation at least."""
