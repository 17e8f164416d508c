"""Why a shard cannot be recomputed, as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from shardline import canonical_json as canonical
from shardline.errors import ShardlineError
from shardline.hints import Hint, Option
from shardline.lineage.audit.audited_logs import (
    ShardToRead,
    get_dependency_versions,
    list_dependency_shards,
)
from shardline.lineage.audit.name_audit import make_migration_spec
from shardline.log.parameters import (
    CombineParameters,
    ExtendParameters,
    MigrateParameters,
    RepairParameters,
    StoredUDF,
)
from shardline.log.state import State
from shardline.log.version import DerivedFrom
from shardline.operations.combine_task import (
    CombineTargets,
    CombineTask,
    PairPlanTask,
    make_combined_shard,
)
from shardline.operations.extend import make_extend_transform, settle_udfs
from shardline.operations.migrate import make_migrate_transform
from shardline.operations.rebuild import SliceShardWriter
from shardline.operations.repair_task import RowShardWriter
from shardline.operations.shard_origin import find_input_slices, find_source_rows
from shardline.operations.shard_writer import ShardPlan, get_stem, make_shard
from shardline.operations.transform import (
    TransformMode,
    TransformTask,
    make_transformed_shard,
)
from shardline.pairing.combine_spec import CombineSpec, bind_spec, list_stored_udfs
from shardline.pairing.coverage import get_coverage
from shardline.readers.records import list_records
from shardline.schema.schema import Feature
from shardline.tfrecord.compression import Compression
from shardline.udf import table_join
from shardline.udf.transform import BoundUDFs
from shardline.udf.udf_declaration import is_deterministic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import TaskContext
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.operations.shard_writer import ShardWriter
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits
    from shardline.udf import UDF
    from shardline.udf.transform import Transform


@dataclass(frozen=True, slots=True)
class SkipReason:
    """A reason: `code` for scripts, `text` for people, and what to do.

    `version` is the input that the reason is about, and `entry` an entry of its log, if known.
    """

    code: str
    text: str
    hint: Hint | None = None
    version: str = ""
    entry: int = 0

    def to_dict(self) -> Json:
        """Return the reason as JSON."""
        told: Json = {"code": self.code, "why": self.text}
        return told if self.hint is None else {**told, "hint": self.hint.to_dict()}


class CannotRecomputeError(Exception):
    """A shard that cannot be recomputed."""

    def __init__(self, reason: SkipReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


_DIGITS = 12


@dataclass(frozen=True, slots=True)
class AuditTables:
    """The tables at hand, by their paths or URIs. How they are joined is told by the entry."""

    paths: Sequence[str] = ()
    _known: dict[bytes, UDF | None] = field(default_factory=dict)

    def join(self, udf: StoredUDF) -> UDF | None:
        """The table that an entry tells of, if it is at hand; each is read once."""
        key = canonical.encode(udf.identity)
        if key not in self._known:
            tried = (_join_table(path, udf) for path in self.paths)
            same = (one for one in tried if one and one.identity() == udf.identity)
            self._known[key] = next(same, None)
        return self._known[key]

    def lacking(self, udf: StoredUDF) -> SkipReason:
        """Return why the table cannot be joined."""
        identity: Any = udf.identity
        if identity["defaults"]:
            return SkipReason(
                "values-not-recorded",
                f"the log does not contain the defaults for keys missing from {udf.label}",
                Hint.of("declare it with table_join in a Python file for ", Option("fields")),
            )
        like = [path for path in self.paths if _get_file_name(path) == _get_file_name(udf.label)]
        for path in like or (self.paths if len(self.paths) == 1 else ()):
            return _get_table_difference(path, udf)
        return SkipReason(
            "table-missing",
            f"{udf.label} was not given",
            Hint.of("pass it with ", Option("join")),
        )


def _join_table(path: str, udf: StoredUDF) -> UDF | None:
    identity: Any = udf.identity
    if identity["defaults"]:
        return None
    try:
        made = table_join(
            path,
            identity["key"],
            features=[Feature.from_dict(one) for one in identity["features"]],
            table_key=identity["column"],
            on_missing=identity["missing"],
            on_duplicate=identity["doubled"],
        )
        return made.settled()
    except (ShardlineError, OSError, ValueError):
        return None  # it is another table, whatever is wrong with it


def _get_table_difference(path: str, udf: StoredUDF) -> SkipReason:
    identity: Any = udf.identity
    wanted = str(identity["sha256"])[:_DIGITS]
    made = _join_table(path, udf)
    found = None if made is None else made.identity()
    if found is None:
        what = f"does not give the columns of {udf.label} (sha256 {wanted}…)"
    else:
        now = str(found["sha256"])[:_DIGITS]
        what = f"differs from {udf.label} (sha256 {now}…, then {wanted}…)"
    return SkipReason(
        "table-mismatch", f"the table {path} {what}", Hint.of("pass the table as it was then")
    )


def _get_file_name(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("table ")


_VACUUMED = SkipReason("vacuumed-input", "vacuum deleted its input")
_OTHERWISE = SkipReason("other-writer", "its entry is in the form of another writer")
_DEFAULTS = SkipReason("values-not-recorded", "the log does not contain the migration's values")
_UNTOLD = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of parameters that are not told as we tell them."""


@dataclass(frozen=True, slots=True)
class ShardRecomputer:
    """Makes shards once more, in a store of their own."""

    logs: AuditedLogs
    makers: tuple[UDF, ...]
    limits: Limits
    tables: AuditTables

    def obstacle(self, one: ShardToRead) -> SkipReason | None:
        """Return why a shard cannot be recomputed, by the logs; None if it can."""
        try:
            return self._obstacle(one)
        except _UNTOLD:
            return _OTHERWISE

    def _obstacle(self, one: ShardToRead) -> SkipReason | None:
        if not one.history.whole:
            return SkipReason("corrupt-log", "its own log is corrupt")
        entry = self._landing(one)
        if entry is None:
            return SkipReason("salvaged-shard", "it was salvaged from a corrupt shard")
        if entry.operation == "append":
            batches = {source.key for source in entry.sources if source.batch is not None}
            if one.row.shard.source is None:
                return self._lost_inputs(one, entry)  # It is what a replacement left of another.
            in_memory = one.row.shard.source in batches
            return SkipReason("rows-in-memory", "its rows were in memory") if in_memory else None
        if entry.operation not in _HOW:
            what = f"{entry.operation} made it, which cannot run again from the log"
            return SkipReason("unknown-operation", what)
        return self._lacking(entry) or self._lost_inputs(one, entry)

    def _lacking(self, entry: Entry) -> SkipReason | None:
        """Return what is needed besides the shards and was not given; None if nothing is."""
        if entry.read(MigrateParameters).default:
            return _DEFAULTS
        makers = list_stored_udfs(entry.read(CombineParameters))
        random = (udf for udf in makers if not udf.deterministic)
        if (maker := next(random, None)) is not None:
            return SkipReason("not-deterministic", f"{maker.label} is declared not deterministic")
        lacking = (one for one in makers if self._maker(one) is None)
        if (maker := next(lacking, None)) is not None:
            if maker.is_table_join:
                return self.tables.lacking(maker)
            return SkipReason(
                "udf-missing",
                f"{maker.label} was not given",
                Hint.of("name it with ", Option("fields", maker.function)),
            )
        return None

    def made(self, one: ShardToRead, scratch: Store, running: TaskContext) -> Receipt:
        """Recompute a shard. Raises CannotRecomputeError where that is impossible."""
        entry = self._landing(one)
        how = _HOW.get("" if entry is None else entry.operation)
        if entry is None or how is None:
            raise CannotRecomputeError(
                SkipReason("origin-not-recorded", "its origin is not recorded")
            )
        try:
            return how(self, _RecomputeTask(one.history, entry, one.row.shard, scratch, running))
        except ShardlineError:
            raise  # many of them are ValueErrors too, and say what is wrong
        except _UNTOLD:
            raise CannotRecomputeError(_OTHERWISE) from None

    def _landing(self, one: ShardToRead) -> Entry | None:
        """The entry that a shard was first made by, whatever repaired it; None if that is lost."""
        ledger, number = one.history.ledger, one.row.landed
        while True:
            entry = one.history.entry(number)
            if entry is None or entry.operation != "repair":
                return entry
            parameters = entry.read(RepairParameters)
            old = ledger.named.get(parameters.shard)
            if parameters.is_salvage or old is None:
                return None
            number = old[-1].landed

    def _lost_inputs(self, one: ShardToRead, entry: Entry) -> SkipReason | None:
        """Return why an input of a shard cannot be read any more; None if all can."""
        ledger = one.history.ledger
        if not entry.inputs:
            gone = any(ledger.condemned_in(name) is not None for name in entry.removed)
            return _VACUUMED if gone else None
        base = _find_base_shard(entry, one.row.shard)
        for told in entry.inputs:
            origin = self.logs.of(told.shown)
            lower = {} if origin is None else get_dependency_versions(origin, self.logs)
            for name in (told.shown, *lower):
                log = self.logs.of(name)
                if log is None or not log.whole:
                    what = f"the log of its input {name} is corrupt or missing"
                    return SkipReason("input-log-unreadable", what, version=name)
            if origin is None or origin.made(told.snapshot) is None:
                what = f"its input {told.shown}@{told.snapshot} is not in the log"
                return SkipReason("snapshot-not-found", what, version=told.shown)
            listed = self.logs.shards(origin, told.snapshot)
            if any(self._is_gone(origin, s) for s in listed if base in {None, s.name}):
                return _VACUUMED
        return None

    def damaged(self, one: ShardToRead, spoiled: Collection[str]) -> SkipReason | None:
        """Return which input of a shard was found to be corrupt; None if none was."""
        if not spoiled:
            return None
        found = (origin for origin, under in self._needed(one) if under.name in spoiled)
        return next((_make_corrupt_input_reason(origin) for origin in found), None)

    def told_damage(self, one: ShardToRead) -> SkipReason | None:
        """Return what logs record of corrupt inputs of a shard; None if they record none."""
        for origin, under in self._needed(one):
            repaired = under.history.repairs.get(under.row.shard.name)
            if repaired is not None or under.has_failed:
                entry = repaired or under.row.told
                says = "repaired it" if repaired is not None else "says so"
                where = f": entry {entry} of {under.history.name} {says}"
                return _make_corrupt_input_reason(origin, where, entry)
        return None

    def _needed(self, one: ShardToRead) -> Iterator[tuple[str, ShardToRead]]:
        """What a shard was made of, and that was read from, with the version it was taken of."""
        entry = self._landing(one)
        if entry is None:
            return
        history, base = one.history, _find_base_shard(entry, one.row.shard)
        sides = [(history, [history.ledger.row_at(n, entry.snapshot - 1) for n in entry.removed])]
        if entry.inputs:
            origins = ((self.logs.of(told.shown), told.snapshot) for told in entry.inputs)
            sides = [
                (origin, [*self.logs.rows(origin, snapshot)])
                for origin, snapshot in origins
                if origin is not None and origin.made(snapshot) is not None
            ]
        for origin, rows in sides:
            needed = [
                ShardToRead(origin, row)
                for row in rows
                if row is not None and base in {None, row.shard.name}
            ]
            for under in (*needed, *list_dependency_shards(needed, self.logs)):
                yield origin.name, under

    def _is_gone(self, origin: AuditedLog, shard: Shard) -> bool:
        if origin.ledger.condemned_in(shard.name) is not None:
            return True
        if shard.base is None:
            return False
        below = self.logs.of(f"{origin.dataset}/{shard.base.owner}")
        rows = None if below is None else below.ledger.named.get(shard.base.name)
        return below is None or not rows or self._is_gone(below, rows[-1].shard)

    def _maker(self, udf: StoredUDF) -> UDF | None:
        """The maker of fields that an entry tells of, if it is at hand and deterministic."""
        for one in self.makers:
            if not is_deterministic(one):
                continue
            if udf.identity is not None:
                if one.identity() == udf.identity:
                    return one
            elif (one.label, tuple(f.name for f in one.features)) == (udf.label, udf.features):
                return one
        return self.tables.join(udf) if udf.is_table_join else None

    def _named(self, udfs: Iterable[StoredUDF]) -> tuple[UDF, ...]:
        found = [self._maker(udf) for udf in udfs]
        return settle_udfs([one for one in found if one is not None])

    def _appended(self, work: _RecomputeTask) -> Receipt:
        if work.shard.source is None:
            return self._rebuilt(work)
        rows = find_source_rows(work.history.version, work.shard, self.limits)
        if rows is None:
            raise CannotRecomputeError(
                SkipReason("source-changed", "its source is missing, or changed")
            )
        schema = work.history.version.schema
        return work.filled(RowShardWriter(rows, schema, work.running))

    def _rebuilt(self, work: _RecomputeTask) -> Receipt:
        slices = find_input_slices(work.history.version, work.shard, self.limits)
        if slices is None:
            raise CannotRecomputeError(
                SkipReason("origin-not-recorded", "its inputs are not recorded")
            )
        store = self.logs.store
        return work.filled(SliceShardWriter(store, slices, self.limits, work.running))

    def _extended(self, work: _RecomputeTask) -> Receipt:
        parameters = work.entry.read(ExtendParameters).validated()
        schema = self._origin(work.entry, 0).snapshot.schema
        makers = self._named(parameters.udfs)
        new = {feature.name for one in makers for feature in one.features}
        drop = parameters.drop
        kept = {feature.name for feature in schema.features if not feature.sequence} - set(drop)
        transform = make_extend_transform(schema, makers, replaces=sorted(new & kept), drop=drop)
        return self._changed(work, transform)

    def _migrated(self, work: _RecomputeTask) -> Receipt:
        steps = make_migration_spec(work.entry.read(MigrateParameters).validated())
        if steps is None:
            raise CannotRecomputeError(_DEFAULTS)
        schema = self._origin(work.entry, 0).snapshot.schema
        return self._changed(work, make_migrate_transform(schema, steps))

    def _changed(self, work: _RecomputeTask, transform: Transform) -> Receipt:
        entry, shard = work.entry, work.shard
        snapshot = self._origin(entry, 0).snapshot
        names = [one.shard.name for one in entry.added]
        base = dict(zip(names, entry.bases, strict=True))[shard.name]
        places = [one.name for one in snapshot.shards]
        mode = cast("TransformMode", entry.read(ExtendParameters).mode)
        log = work.history.version.log
        with BoundUDFs(transform) as makers:
            features = None if mode == "rewrite" else makers.reads()
            records = list_records(snapshot, features)[places.index(base)]
            task = TransformTask(
                work.scratch,
                log.dataset,
                log.version,
                entry.operation,
                snapshot.shards[places.index(base)],
                records,
                makers,
                mode,
                Compression(shard.compression),
                self.limits,
                quarantined=True,
            )
            return make_transformed_shard(task, work.running)

    def _combined(self, work: _RecomputeTask) -> Receipt:
        entry = work.entry
        parameters = entry.read(CombineParameters).validated()
        origins = self._origin(entry, 0), self._origin(entry, 1)
        spec = CombineSpec.from_entry(entry.parameters, self._named).settle()
        bound, _ = bind_spec(spec, *(origin.snapshot.schema for origin in origins))
        targets = CombineTargets(
            work.history.version,
            origins,
            bound,
            Compression(work.shard.compression),
            parameters.target_bytes or 1,
            self.limits,
            virtual=parameters.is_virtual,
        )
        try:
            task = self._task(targets, work)
            return make_combined_shard(replace(task, store=work.scratch), work.running)
        finally:
            bound.close()

    @staticmethod
    def _task(targets: CombineTargets, work: _RecomputeTask) -> CombineTask | PairPlanTask:
        cover = get_coverage(work.entry, _get_shard_position(work.entry, work.shard))
        if cover is not None:
            return targets.make_task(cover)
        log = work.history.version.log
        stem = get_stem(work.shard.name)
        for one in targets.plan(State(log.dataset, log.version)):
            if isinstance(one, CombineTask) and one.plan.stem == stem:
                return one
        what = "its pairs are not recorded: only the code that chose them can"
        raise CannotRecomputeError(SkipReason("origin-not-recorded", what))

    def _origin(self, entry: Entry, place: int) -> DerivedFrom:
        told = entry.inputs[place]
        version = self.logs.index.version(told.shown)
        return DerivedFrom(version, version.snapshot(told.snapshot))


@dataclass(frozen=True, slots=True)
class _RecomputeTask:
    """A shard to be made once more, and where."""

    history: AuditedLog
    entry: Entry
    shard: Shard
    scratch: Store
    running: TaskContext

    def filled(self, filling: ShardWriter) -> Receipt:
        """A shard that is filled so."""
        log = self.history.version.log
        plan = ShardPlan(
            self.scratch,
            log.dataset,
            log.version,
            {"again": self.shard.name},
            Compression(self.shard.compression),
        )
        return make_shard(plan, filling)


def _get_shard_position(entry: Entry, shard: Shard) -> int:
    return [one.shard.name for one in entry.added].index(shard.name)


def _make_corrupt_input_reason(version: str, where: str = "", entry: int = 0) -> SkipReason:
    return SkipReason(
        "corrupt-input", f"its input from {version} is corrupt{where}", None, version, entry
    )


def _find_base_shard(entry: Entry, shard: Shard) -> str | None:
    """The one shard of the input that a shard was made of; None if it is made of several."""
    listed = [one.shard.name for one in entry.added]
    bases = entry.bases
    return bases[listed.index(shard.name)] if bases and shard.name in listed else None


_HOW = {
    "append": ShardRecomputer._appended,  # noqa: SLF001 - its own ways
    "rebuild": ShardRecomputer._rebuilt,  # noqa: SLF001
    "extend": ShardRecomputer._extended,  # noqa: SLF001
    "migrate": ShardRecomputer._migrated,  # noqa: SLF001
    "combine": ShardRecomputer._combined,  # noqa: SLF001
}
