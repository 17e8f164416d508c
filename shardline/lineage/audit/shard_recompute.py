"""Recomputation of a shard by the operation in its entry, or the reason against it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from shardline import canonical_json as canonical
from shardline.errors import ShardlineError
from shardline.hints import Hint, Option
from shardline.lineage.audit.audit_report import SkipReason
from shardline.lineage.audit.audited_logs import AuditedShard, list_dependencies
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
from shardline.operations.shard_origin import RowShardWriter, find_input_slices, find_source_rows
from shardline.operations.shard_writer import ShardPlan, get_stem, make_shard
from shardline.operations.transform import (
    TransformMode,
    TransformTask,
    make_transformed_shard,
)
from shardline.pairing.combine_spec import CombineSpec, list_stored_udfs
from shardline.pairing.coverage import get_coverage
from shardline.pairing.spec_binding import bind_spec
from shardline.readers.records import list_records
from shardline.schema.schema import Feature
from shardline.tfrecord.compression import Compression
from shardline.udf import table_join
from shardline.udf.transform import BoundUDFs
from shardline.udf.udf_declaration import is_deterministic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

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

_SHOWN_DIGITS = 12
_VACUUMED = SkipReason("vacuumed-input", "vacuum deleted its input")
_OTHER_WRITER = SkipReason("other-writer", "its entry is in the form of another writer")
_DEFAULTS = SkipReason("values-not-recorded", "the log does not contain the migration's values")
_UNKNOWN_FORM = (AttributeError, KeyError, TypeError, ValueError)
"""The errors of parameters that another writer wrote."""


class CannotRecomputeError(Exception):
    """A shard that cannot be recomputed."""

    def __init__(self, reason: SkipReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AuditTables:
    """Tables by path or URI. The entries say how they were joined."""

    paths: Sequence[str] = ()
    _joins: dict[bytes, UDF | None] = field(default_factory=dict)

    def join(self, stored: StoredUDF) -> UDF | None:
        """Return the table join of an entry, or None without the table."""
        key = canonical.encode(stored.identity)
        if key not in self._joins:
            joins = (_join_table(path, stored) for path in self.paths)
            same = (join for join in joins if join and join.identity() == stored.identity)
            self._joins[key] = next(same, None)
        return self._joins[key]

    def explain_missing(self, stored: StoredUDF) -> SkipReason:
        """Return why the table of an entry cannot be joined."""
        identity: Any = stored.identity
        if identity["defaults"]:
            return SkipReason(
                "values-not-recorded",
                f"the log does not contain the defaults for keys missing from {stored.label}",
                Hint.of("declare it with table_join in a Python file for ", Option("udfs")),
            )
        name = _get_file_name(stored.label)
        same_name = [path for path in self.paths if _get_file_name(path) == name]
        for path in same_name or (self.paths if len(self.paths) == 1 else ()):
            return _explain_difference(path, stored)
        return SkipReason(
            "table-missing",
            f"{stored.label} was not given",
            Hint.of("pass it with ", Option("join")),
        )


def _join_table(path: str, stored: StoredUDF) -> UDF | None:
    identity: Any = stored.identity
    if identity["defaults"]:
        return None
    try:
        join = table_join(
            path,
            identity["key"],
            features=[Feature.from_dict(feature) for feature in identity["features"]],
            table_key=identity["column"],
            on_missing=identity["missing"],
            on_duplicate=identity["doubled"],
        )
        return join.settled()
    except (ShardlineError, OSError, ValueError):
        return None  # Another table, whatever its problem is.


def _explain_difference(path: str, stored: StoredUDF) -> SkipReason:
    expected_identity: Any = stored.identity
    expected = str(expected_identity["sha256"])[:_SHOWN_DIGITS]
    join = _join_table(path, stored)
    identity = None if join is None else join.identity()
    if identity is None:
        problem = f"does not give the columns of {stored.label} (sha256 {expected}…)"
    else:
        digest = str(identity["sha256"])[:_SHOWN_DIGITS]
        problem = f"differs from {stored.label} (sha256 {digest}…, then {expected}…)"
    return SkipReason(
        "table-mismatch", f"the table {path} {problem}", Hint.of("pass the table as it was then")
    )


def _get_file_name(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("table ")


@dataclass(frozen=True, slots=True)
class ShardRecomputer:
    """Recomputes shards into a store of its own."""

    logs: AuditedLogs
    udfs: tuple[UDF, ...]
    limits: Limits
    tables: AuditTables

    def find_obstacle(self, shard: AuditedShard) -> SkipReason | None:
        """Return why the logs rule out recomputing a shard, or None."""
        try:
            return self._find_obstacle(shard)
        except _UNKNOWN_FORM:
            return _OTHER_WRITER

    def _find_obstacle(self, shard: AuditedShard) -> SkipReason | None:
        if not shard.log.whole:
            return SkipReason("corrupt-log", "its own log is corrupt")
        entry = _find_origin_entry(shard)
        if entry is None:
            return SkipReason("salvaged-shard", "it was salvaged from a corrupt shard")
        if entry.operation == "append":
            if shard.shard.source is None:
                return self._find_lost_input(shard, entry)  # The rest of a replaced shard.
            batches = {source.key for source in entry.sources if source.batch is not None}
            in_memory = shard.shard.source in batches
            return SkipReason("rows-in-memory", "its rows were in memory") if in_memory else None
        if entry.operation not in _RECOMPUTE:
            text = f"{entry.operation} made it, which cannot run again from the log"
            return SkipReason("unknown-operation", text)
        return self._find_missing_code(entry) or self._find_lost_input(shard, entry)

    def _find_missing_code(self, entry: Entry) -> SkipReason | None:
        """Return which function, table or value is missing, or None."""
        if entry.read(MigrateParameters).default:
            return _DEFAULTS
        udfs = list_stored_udfs(entry.read(CombineParameters))
        for stored in udfs:
            if not stored.deterministic:
                text = f"{stored.label} is declared not deterministic"
                return SkipReason("not-deterministic", text)
        for stored in udfs:
            if self._find_udf(stored) is not None:
                continue
            if stored.is_table_join:
                return self.tables.explain_missing(stored)
            return SkipReason(
                "udf-missing",
                f"{stored.label} was not given",
                Hint.of("name it with ", Option("udfs", stored.function)),
            )
        return None

    def _find_lost_input(self, shard: AuditedShard, entry: Entry) -> SkipReason | None:
        """Return which input of a shard cannot be read any more, or None."""
        if not entry.inputs:
            replay = shard.log.replay
            removed = any(replay.get_tombstone(name) is not None for name in entry.removed)
            return _VACUUMED if removed else None
        base = _find_base_shard(entry, shard.shard)
        for source in entry.inputs:
            upstream = self.logs.get(source.label)
            dependencies = {} if upstream is None else self.logs.dependencies(upstream)
            for name in (source.label, *dependencies):
                log = self.logs.get(name)
                if log is None or not log.whole:
                    text = f"the log of its input {name} is corrupt or missing"
                    return SkipReason("input-log-unreadable", text, version=name)
            if upstream is None or upstream.snapshot(source.snapshot) is None:
                text = f"its input {source.label}@{source.snapshot} is not in the log"
                return SkipReason("snapshot-not-found", text, version=source.label)
            inputs = self.logs.shards(upstream, source.snapshot)
            if any(self._is_removed(upstream, one) for one in inputs if base in {None, one.name}):
                return _VACUUMED
        return None

    def _is_removed(self, log: AuditedLog, shard: Shard) -> bool:
        if log.replay.get_tombstone(shard.name) is not None:
            return True
        if shard.base is None:
            return False
        owner = self.logs.get(f"{log.dataset}/{shard.base.owner}")
        rows = None if owner is None else owner.replay.named.get(shard.base.name)
        return owner is None or not rows or self._is_removed(owner, rows[-1].shard)

    def find_corrupt_input(
        self, shard: AuditedShard, corrupt: Collection[str]
    ) -> SkipReason | None:
        """Return which input of a shard has a `corrupt` path, or None."""
        if not corrupt:
            return None
        versions = (name for name, needed in self._iter_inputs(shard) if needed.path in corrupt)
        return next(map(_make_corrupt_input_reason, versions), None)

    def find_recorded_corruption(self, shard: AuditedShard) -> SkipReason | None:
        """Return which input of a shard is corrupt according to its log, or None."""
        for version, needed in self._iter_inputs(shard):
            repaired = needed.log.repairs.get(needed.shard.name)
            if repaired is not None or needed.has_failed:
                entry = repaired or needed.row.failed_entry
                says = "repaired it" if repaired is not None else "says so"
                where = f": entry {entry} of {needed.log.name} {says}"
                return _make_corrupt_input_reason(version, where, entry)
        return None

    def _iter_inputs(self, shard: AuditedShard) -> Iterator[tuple[str, AuditedShard]]:
        """Yield the input shards and their dependencies, with the version of the input."""
        entry = _find_origin_entry(shard)
        if entry is None:
            return
        base, replay = _find_base_shard(entry, shard.shard), shard.log.replay
        sides = [(shard.log, [replay.row_at(name, entry.snapshot - 1) for name in entry.removed])]
        if entry.inputs:
            upstream = ((self.logs.get(read.label), read.snapshot) for read in entry.inputs)
            sides = [
                (log, [*self.logs.rows(log, number)])
                for log, number in upstream
                if log is not None and log.snapshot(number) is not None
            ]
        for log, rows in sides:
            inputs = [
                AuditedShard(log, row)
                for row in rows
                if row is not None and base in {None, row.shard.name}
            ]
            for needed in (*inputs, *list_dependencies(inputs, self.logs)):
                yield log.name, needed

    def _find_udf(self, stored: StoredUDF) -> UDF | None:
        """Return the deterministic UDF or table join that an entry names, or None."""
        for udf in self.udfs:
            if not is_deterministic(udf):
                continue
            if stored.identity is not None:
                if udf.identity() == stored.identity:
                    return udf
            elif (udf.label, tuple(f.name for f in udf.features)) == (
                stored.label,
                stored.features,
            ):
                return udf
        return self.tables.join(stored) if stored.is_table_join else None

    def find_udfs(self, stored: Iterable[StoredUDF]) -> tuple[UDF, ...]:
        """Return the UDFs that an entry names."""
        udfs = map(self._find_udf, stored)
        return settle_udfs([udf for udf in udfs if udf is not None])

    def recompute(self, shard: AuditedShard, scratch: Store, context: TaskContext) -> Receipt:
        """Recompute a shard into a store. Raises CannotRecomputeError if that is impossible."""
        entry = _find_origin_entry(shard)
        function = _RECOMPUTE.get("" if entry is None else entry.operation)
        if entry is None or function is None:
            raise CannotRecomputeError(
                SkipReason("origin-not-recorded", "its origin is not recorded")
            )
        task = _RecomputeTask(self, shard.log, entry, shard.shard, scratch, context)
        try:
            return function(task)
        except ShardlineError:
            raise  # Many are ValueErrors too, but not because of unknown parameters.
        except _UNKNOWN_FORM:
            raise CannotRecomputeError(_OTHER_WRITER) from None


def _find_origin_entry(shard: AuditedShard) -> Entry | None:
    """Return the entry that computed a shard before any repair, or None if it was salvaged."""
    replay, number = shard.log.replay, shard.row.added_entry
    while True:
        entry = shard.log.entry(number)
        if entry is None or entry.operation != "repair":
            return entry
        parameters = entry.read(RepairParameters)
        rows = replay.named.get(parameters.shard)
        if parameters.is_salvage or rows is None:
            return None
        number = rows[-1].added_entry


@dataclass(frozen=True, slots=True)
class _RecomputeTask:
    """A shard to recompute, its entry, and the store to write it to."""

    recomputer: ShardRecomputer
    log: AuditedLog
    entry: Entry
    shard: Shard
    scratch: Store
    context: TaskContext

    def write(self, writer: ShardWriter) -> Receipt:
        log = self.log.version.log
        plan = ShardPlan(
            self.scratch,
            log.dataset,
            log.version,
            {"again": self.shard.name},
            Compression(self.shard.compression),
        )
        return make_shard(plan, writer)

    def input(self, index: int) -> DerivedFrom:
        source = self.entry.inputs[index]
        version = self.recomputer.logs.index.version(source.label)
        return DerivedFrom(version, version.snapshot(source.snapshot))

    @property
    def position(self) -> int:
        return [added.shard.name for added in self.entry.added].index(self.shard.name)


def _recompute_append(task: _RecomputeTask) -> Receipt:
    if task.shard.source is None:
        return _recompute_rebuild(task)
    version = task.log.version
    rows = find_source_rows(version, task.shard, task.recomputer.limits)
    if rows is None:
        raise CannotRecomputeError(
            SkipReason("source-changed", "its source is missing, or changed")
        )
    return task.write(RowShardWriter(rows, version.schema, task.context))


def _recompute_rebuild(task: _RecomputeTask) -> Receipt:
    limits = task.recomputer.limits
    slices = find_input_slices(task.log.version, task.shard, limits)
    if slices is None:
        raise CannotRecomputeError(SkipReason("origin-not-recorded", "its inputs are not recorded"))
    store = task.recomputer.logs.store
    return task.write(SliceShardWriter(store, slices, limits, task.context))


def _recompute_extend(task: _RecomputeTask) -> Receipt:
    parameters = task.entry.read(ExtendParameters).validated()
    schema = task.input(0).snapshot.schema
    udfs = task.recomputer.find_udfs(parameters.udfs)
    computed = {feature.name for udf in udfs for feature in udf.features}
    drop = parameters.drop
    remaining = {feature.name for feature in schema.features if not feature.sequence} - set(drop)
    replaces = sorted(computed & remaining)
    return _recompute_transform(
        task, make_extend_transform(schema, udfs, replaces=replaces, drop=drop)
    )


def _recompute_migrate(task: _RecomputeTask) -> Receipt:
    spec = make_migration_spec(task.entry.read(MigrateParameters).validated())
    if spec is None:
        raise CannotRecomputeError(_DEFAULTS)
    schema = task.input(0).snapshot.schema
    return _recompute_transform(task, make_migrate_transform(schema, spec))


def _recompute_transform(task: _RecomputeTask, transform: Transform) -> Receipt:
    entry, snapshot = task.entry, task.input(0).snapshot
    base = entry.bases[task.position]
    position = [shard.name for shard in snapshot.shards].index(base)
    mode = cast("TransformMode", entry.read(ExtendParameters).mode)
    log = task.log.version.log
    with BoundUDFs(transform) as udfs:
        features = None if mode == "rewrite" else udfs.reads()
        records = list_records(snapshot, features)[position]
        transform_task = TransformTask(
            task.scratch,
            log.dataset,
            log.version,
            entry.operation,
            snapshot.shards[position],
            records,
            udfs,
            mode,
            Compression(task.shard.compression),
            task.recomputer.limits,
            quarantined=True,
        )
        return make_transformed_shard(transform_task, task.context)


def _recompute_combine(task: _RecomputeTask) -> Receipt:
    parameters = task.entry.read(CombineParameters).validated()
    inputs = task.input(0), task.input(1)
    spec = CombineSpec.from_entry(task.entry.parameters, task.recomputer.find_udfs).settle()
    bound, _ = bind_spec(spec, *(source.snapshot.schema for source in inputs))
    targets = CombineTargets(
        task.log.version,
        inputs,
        bound,
        Compression(task.shard.compression),
        parameters.target_bytes or 1,
        task.recomputer.limits,
        virtual=parameters.is_virtual,
    )
    try:
        combine_task = _find_combine_task(targets, task)
        return make_combined_shard(replace(combine_task, store=task.scratch), task.context)
    finally:
        bound.close()


def _find_combine_task(targets: CombineTargets, task: _RecomputeTask) -> CombineTask | PairPlanTask:
    coverage = get_coverage(task.entry, task.position)
    if coverage is not None:
        return targets.make_task(coverage)
    log = task.log.version.log
    stem = get_stem(task.shard.name)
    for combine_task in targets.plan(State(log.dataset, log.version)):
        if isinstance(combine_task, CombineTask) and combine_task.plan.stem == stem:
            return combine_task
    text = "its pairs are not recorded: only the code that chose them can"
    raise CannotRecomputeError(SkipReason("origin-not-recorded", text))


def _make_corrupt_input_reason(version: str, where: str = "", entry: int = 0) -> SkipReason:
    text = f"its input from {version} is corrupt{where}"
    return SkipReason("corrupt-input", text, None, version, entry)


def _find_base_shard(entry: Entry, shard: Shard) -> str | None:
    """Return the only input shard of a shard, or None if there are several."""
    names = [added.shard.name for added in entry.added]
    bases = entry.bases
    return bases[names.index(shard.name)] if bases and shard.name in names else None


_RECOMPUTE = {
    "append": _recompute_append,
    "rebuild": _recompute_rebuild,
    "extend": _recompute_extend,
    "migrate": _recompute_migrate,
    "combine": _recompute_combine,
}
