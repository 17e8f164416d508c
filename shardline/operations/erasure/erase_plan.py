"""Plan of an erase: which rows, shards and snapshots it removes, and which copies it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.arguments import list_items
from shardline.errors import SchemaMismatchError, VersionNotFoundError
from shardline.execution.executor import ThreadExecutor
from shardline.operations.erasure.condition import KeyCondition, make_condition
from shardline.operations.erasure.quarantine import make_uncertain_copy, search_quarantine
from shardline.operations.erasure.record_search import list_search_tasks, search, search_pair_plans
from shardline.operations.erasure.residual_copies import (
    ResidualCopy,
    list_descendant_copies,
    list_origin_copies,
    list_plan_copies,
    list_snapshot_copies,
    list_source_copies,
)
from shardline.operations.erasure.uncommitted_files import list_uncommitted_copies
from shardline.provenance.log_index import ERASE, LogIndex
from shardline.provenance.related_rows import (
    get_erased_rows,
    list_mappings,
    list_reached_shards,
    spread_rows,
)
from shardline.provenance.shard_mapping import NO_ROWS
from shardline.storage import open_store, validate_name
from shardline.text import format_count
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from shardline.execution.executor import Executor, ProgressListener
    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.operations.erasure.condition import Condition
    from shardline.operations.erasure.quarantine import QuarantineFile
    from shardline.provenance.log_index import DatasetHistory, VersionHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.storage import RootLocation
    from shardline.tfrecord.reader import Limits
    from shardline.udf import UDF


@dataclass(frozen=True, slots=True, eq=False)
class ShardErasure:
    """A live shard, and the rows to remove from it."""

    shard: Shard
    rows: IntArray


@dataclass(frozen=True, slots=True)
class VersionErasure:
    """The part of an erase in one version, whose latest snapshot is `head`.

    `shards` are rewritten. `older_shards` are only in older snapshots and are condemned: they have
    matching records, or cannot be read (`unreadable` of them). `snapshots` contain one of these
    shards and can never be restored.
    """

    version: str
    head: int
    shards: tuple[ShardErasure, ...]
    older_shards: tuple[Shard, ...]
    snapshots: tuple[int, ...]
    unreadable: int = 0

    @property
    def records(self) -> int:
        """Number of records to remove from the latest snapshot."""
        return sum(len(erasure.rows) for erasure in self.shards)

    @property
    def bytes(self) -> int:
        """Size of the shards to rewrite."""
        return sum(erasure.shard.bytes for erasure in self.shards)

    @property
    def tombstones(self) -> list[str]:
        """Names of the shards that can never return."""
        rewritten = (erasure.shard.name for erasure in self.shards)
        return [*rewritten, *(shard.name for shard in self.older_shards)]


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """What an erase would do. `features` choose the records, and `label` says how.

    `rows` are those to remove, or removed before, by shard. `residual_copies` are beyond the reach
    of the erase. `missing_values` are the positions, from 1 on, of key values that no record has.
    """

    dataset: str
    features: tuple[str, ...]
    label: str
    versions: tuple[VersionErasure, ...]
    residual_copies: tuple[ResidualCopy, ...]
    quarantine: tuple[QuarantineFile, ...]
    history: DatasetHistory = field(repr=False)
    rows: ShardRows = field(repr=False, default_factory=dict)
    missing_values: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is to be done, except about uncertain lines of quarantine files."""
        return not self.versions and not any(file.matches for file in self.quarantine)

    @property
    def unchecked(self) -> dict[str, int]:
        """The latest snapshots that an earlier erase made and that wait for checks, by version."""
        states = {history.name: history.version.state for history in self.history.versions.values()}
        return {
            name: state.snapshot
            for name, state in states.items()
            if state.snapshot != (state.published or 0) and self._is_erased(name, state.snapshot)
        }

    def _is_erased(self, name: str, snapshot: int) -> bool:
        version = self.history.find_version(name).version
        return version.log.entry(version.snapshot(snapshot).entry).operation == ERASE

    @property
    def records(self) -> int:
        """Number of records to remove from all latest snapshots together."""
        return sum(version.records for version in self.versions)


def plan_erase(
    root: RootLocation,
    dataset: str,
    *,
    where: str | UDF | None = None,
    key: str | None = None,
    values: Sequence[int | str | bytes] = (),
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> ErasePlan:
    """Find matching records in every version of a dataset, and plan their removal.

    A record that matches in one version is followed into all other versions.

    Args:
        root: The root of the dataset.
        dataset: The dataset, all versions of which are searched.
        where: A predicate such as `label == 3`, or a UDF of one int64: 1 for a record to erase.
        key: Instead of `where`, a feature that identifies records.
        values: The values of the key.
        limits: Limits of the files to read.
        executor: Runs the search.
        progress: Called with the progress of the search.

    Returns:
        The plan, for `execute_erase_plan`.

    Raises:
        InvalidArgumentError: If the condition is invalid.
        SchemaMismatchError: If no version has the features of the condition.
    """
    values = list(list_items(values, "values"))  # type: ignore[arg-type] # types are validated later
    condition = make_condition(where, key, values)
    store = open_store(root)
    history = LogIndex(store).dataset(validate_name(dataset, "dataset"))
    if not history.versions:
        raise VersionNotFoundError(
            f"{dataset}: no such dataset in {store.uri}", code="dataset-not-found"
        )
    plans = search_pair_plans(history, condition, limits)
    tasks = [*list_search_tasks(history, condition, limits), *plans.tasks.values()]
    _validate_condition(history, condition, is_searched=bool(tasks))
    results = list((executor or ThreadExecutor()).run(search, tasks, progress))
    mappings = [*list_mappings(history), *plans.mappings]
    matches = spread_rows({result.name: result.rows for result in results}, mappings)
    rows = spread_rows(_add_erased_rows(matches.rows, history), mappings).rows
    problems = plans.find_problems(results)
    unreadable = {result.name for result in results if result.problem} | set(problems)
    read = [result.name for result in results if not result.problem]
    known = list_reached_shards(read, mappings) - set(problems)
    versions = tuple(_plan_versions(history, rows, unreadable - known))
    files = tuple(search_quarantine(history, [condition], rows, known))
    unread = {
        shard.name
        for version in versions
        for shard in version.older_shards
        if shard.name not in rows
    }
    copies = (
        *(copy for version in versions for copy in _list_held_snapshots(history, version)),
        *list_plan_copies(history, matches, plans.find_matching_plans(results)),
        *list_descendant_copies(history, _group_condemned(versions), rows),
        *list_origin_copies(history, matches.rows, unread),
        *list_source_copies(
            history,
            matches.rows,
            {path for file in files for path in file.sources},
            unread,
            {path for file in files for path in file.uncertain_sources},
        ),
        *(make_uncertain_copy(history, file) for file in files if file.uncertain),
        *list_uncommitted_copies(history, condition, limits),
        *_list_unsearched(history, known, problems),
    )
    missing: tuple[int, ...] = ()
    if isinstance(condition, KeyCondition):
        missing = condition.list_missing({at for result in results for at in result.matched})
    described = (dataset, condition.reads, condition.label)
    return ErasePlan(*described, versions, copies, files, history, rows, missing)


def plan_late_erase(plan: ErasePlan, condemned: Mapping[str, Collection[str]]) -> ErasePlan:
    """Plan the removal of what other writers derived while a plan was executed.

    Their rows follow from the known rows, so nothing is searched. `condemned` are the condemned
    shards by version. The plan has only new residual copies.
    """
    history = plan.history.index.refresh(plan.dataset)
    related = spread_rows(_add_erased_rows(plan.rows, history), list_mappings(history))
    known = {(copy.kind, copy.location) for copy in plan.residual_copies}
    copies = (
        *list_plan_copies(history, related),
        *list_descendant_copies(history, condemned, related.rows),
    )
    return replace(
        plan,
        versions=tuple(_plan_versions(history, related.rows, set())),
        residual_copies=tuple(copy for copy in copies if (copy.kind, copy.location) not in known),
        quarantine=(),
        history=history,
        rows=related.rows,
    )


def _group_condemned(versions: Sequence[VersionErasure]) -> dict[str, list[str]]:
    return {version.version.split("/")[1]: version.tombstones for version in versions}


def _add_erased_rows(rows: ShardRows, history: DatasetHistory) -> ShardRows:
    """Return the rows together with those that earlier erases removed."""
    every = dict(rows)
    for name, erased in get_erased_rows(history).items():
        every[name] = np.union1d(every.get(name, NO_ROWS), erased)
    return every


def _validate_condition(
    history: DatasetHistory, condition: Condition, *, is_searched: bool
) -> None:
    """Raise SchemaMismatchError for a condition that fits the records of no version."""
    schemas = {version.name: version.version.schema for version in history.versions.values()}
    for schema in schemas.values():
        if all(schema.find(name, sequence=False) is not None for name in condition.reads):
            condition.bind(schema).close()
            return
    if is_searched:
        return
    available = "; ".join(
        f"{name} has {', '.join(feature.name for feature in schema.features) or 'none'}"
        for name, schema in schemas.items()
    )
    unknown = [
        name
        for name in condition.reads
        if all(schema.find(name, sequence=False) is None for schema in schemas.values())
    ]
    names = ", ".join(map(repr, unknown or condition.reads))
    together = "" if unknown or len(condition.reads) == 1 else " together"
    raise SchemaMismatchError(
        f"{history.dataset}: no version has {names}{together} ({available})",
        code="schema-mismatch" if together else "unknown-feature",
        feature=(unknown or [*condition.reads])[0],
    )


def _plan_versions(
    history: DatasetHistory, rows: ShardRows, unreadable: set[str]
) -> Iterator[VersionErasure]:
    """Yield the part of each version, bases before overlays."""
    for version in sort_bases_first(history):
        live = {shard.name for shard in version.live}
        rewritten = tuple(
            ShardErasure(shard, rows[shard.name])
            for shard in version.live
            if shard.name in rows and not shard.virtual
        )
        older = tuple(
            shard
            for name, shard in version.shards.items()
            if name not in live
            and not version.is_condemned(name)
            and (name in rows or name in unreadable)
        )
        condemned = {erasure.shard.name for erasure in rewritten} | {shard.name for shard in older}
        if condemned:
            yield VersionErasure(
                version.name,
                version.version.state.snapshot,
                rewritten,
                older,
                tuple(version.list_snapshots_with(condemned)),
                sum(shard.name not in rows for shard in older),
            )


def sort_bases_first(history: DatasetHistory) -> list[VersionHistory]:
    """Return the versions by name, each after those that have the bases of its overlays."""
    ordered: dict[str, VersionHistory] = {}

    def add(name: str) -> None:
        version = history.versions.get(name)
        if version is None or name in ordered:
            return
        bases = (shard.base for shard in version.shards.values())
        for owner in sorted({base.owner for base in bases if base is not None}):
            add(owner)
        ordered[name] = version

    for name in sorted(history.versions):
        add(name)
    return list(ordered.values())


def _list_held_snapshots(
    history: DatasetHistory, erasure: VersionErasure
) -> Iterator[ResidualCopy]:
    return list_snapshot_copies(history.find_version(erasure.version), erasure.tombstones)


def _list_unsearched(
    history: DatasetHistory, known: set[str], problems: Mapping[str, str]
) -> Iterator[ResidualCopy]:
    """Yield live shards that were not searched and whose rows follow from no searched shard."""
    for version in history.versions.values():
        snapshot = f"{version.name}@{version.version.state.snapshot}"
        live = [shard.name for shard in version.live]
        for problem in dict.fromkeys(problems[name] for name in live if name in problems):
            yield ResidualCopy(
                "unsearched",
                snapshot,
                f"its plan pairs records that cannot be read: {problem}",
                "repair its inputs and erase again, or combine them again",
                certain=False,
            )
        unknown = [
            shard
            for shard in version.live
            if shard.name not in known | set(problems) and shard.records
        ]
        if unknown:
            records = sum(shard.records for shard in unknown)
            lack = "lacks" if records == 1 else "lack"
            yield ResidualCopy(
                "unsearched",
                snapshot,
                f"{format_count(records, 'record')} {lack} the features, and the logs do not say "
                "what they derive from",
                "if they may derive from erased records, derive the version again, or erase by a "
                "feature that it has",
                certain=False,
            )
