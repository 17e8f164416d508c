"""What an erase would do: which rows go, which shards and snapshots hold them, and the rest."""

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
from shardline.storage import open_store, validate_name
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
    """A shard of a newest snapshot, and the rows of it that go."""

    shard: Shard
    rows: IntArray


@dataclass(frozen=True, slots=True)
class VersionErasure:
    """What an erase does in one version, as it stands at snapshot `head`.

    `shards` are written anew. `given_up` are shards that only older snapshots hold: those with
    records that go, and those that cannot be read and so not searched (`unreadable` of them).
    `snapshots` hold one or the other, and cannot be restored any more.
    """

    version: str
    head: int
    shards: tuple[ShardErasure, ...]
    given_up: tuple[Shard, ...]
    snapshots: tuple[int, ...]
    unreadable: int = 0

    @property
    def records(self) -> int:
        """How many records go from the newest snapshot."""
        return sum(len(one.rows) for one in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes the shards have that are written anew."""
        return sum(one.shard.bytes for one in self.shards)

    @property
    def gone(self) -> list[str]:
        """The shards that never come back."""
        return [*(one.shard.name for one in self.shards), *(one.name for one in self.given_up)]


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """What an erase would do. `features` are what the records are chosen by, `shown` how.

    `rows` go of each shard, or went before. `holders` are beyond its reach. `unmet` are the places
    in a list of values, from 1 on, of those that no record has. It does nothing if `versions` and
    `quarantine` are empty.
    """

    dataset: str
    features: tuple[str, ...]
    shown: str
    versions: tuple[VersionErasure, ...]
    holders: tuple[ResidualCopy, ...]
    quarantine: tuple[QuarantineFile, ...]
    history: DatasetHistory = field(repr=False)
    rows: ShardRows = field(repr=False, default_factory=dict)
    unmet: tuple[int, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether it would do nothing, but for lines of which it cannot be told what they are."""
        return not self.versions and not any(file.meant for file in self.quarantine)

    @property
    def unchecked(self) -> dict[str, int]:
        """The latest snapshots that an earlier erase made, and that wait for checks, by version."""
        states = {one.name: one.version.state for one in self.history.versions.values()}
        return {
            name: state.snapshot
            for name, state in states.items()
            if state.snapshot != (state.published or 0) and self._is_erased(name, state.snapshot)
        }

    def _is_erased(self, name: str, snapshot: int) -> bool:
        version = self.history.versions[name.split("/")[1]].version
        return version.log.entry(version.snapshot(snapshot).entry).operation == ERASE

    @property
    def records(self) -> int:
        """How many records go, of all newest snapshots together."""
        return sum(one.records for one in self.versions)


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
    """Find the records that are meant in every version of a dataset, and tell what would be done.

    They are meant if a predicate is true of them (`where="label == 3"`), if a maker of one int64
    says so, or if their `key` has one of `values`. Every file of every version that has the
    features is read; a record that is meant in one version is followed into the others.
    """
    values = list(list_items(values, "values"))  # type: ignore[arg-type] # their types are checked later
    condition = make_condition(where, key, values)
    store = open_store(root)
    history = LogIndex(store).dataset(validate_name(dataset, "dataset"))
    if not history.versions:
        raise VersionNotFoundError(
            f"{dataset}: no such dataset in {store.uri}", code="dataset-not-found"
        )
    plans = search_pair_plans(history, condition, limits)
    tasks = [*list_search_tasks(history, condition, limits), *plans.tasks.values()]
    _validate_condition(history, condition, searched=bool(tasks))
    found = list((executor or ThreadExecutor()).run(search, tasks, progress))
    relations = [*list_mappings(history), *plans.relations]
    meant = spread_rows({one.name: one.rows for one in found}, relations)
    rows = spread_rows(_add_erased_rows(meant.rows, history), relations).rows
    problems = plans.unsearched(found)
    unreadable = {one.name for one in found if one.problem} | set(problems)
    known = list_reached_shards((one.name for one in found if not one.problem), relations) - set(
        problems
    )
    versions = tuple(_plan_versions(history, rows, unreadable - known))
    files = tuple(search_quarantine(history, [condition], rows, known))
    sources = {path for file in files for path in file.sources}
    doubtful = {path for file in files for path in file.doubtful_sources}
    unread = _list_unreadable(versions, rows)
    holders = (
        *(one for version in versions for one in _list_residual_copies(history, version)),
        *list_plan_copies(history, meant, plans.holding(found)),
        *list_descendant_copies(
            history, {one.version.split("/")[1]: one.gone for one in versions}, rows
        ),
        *list_origin_copies(history, meant.rows, unread),
        *list_source_copies(history, meant.rows, sources, unread, doubtful),
        *(make_uncertain_copy(history, file) for file in files if file.doubtful),
        *list_uncommitted_copies(history, condition, limits),
        *_list_unsearched(history, known, problems),
    )
    asked = (condition.reads, condition.label)
    met = {place for one in found for place in one.met}
    unmet = condition.list_missing(met) if isinstance(condition, KeyCondition) else ()
    return ErasePlan(dataset, *asked, versions, holders, files, history, rows, unmet)


def plan_late_erase(plan: ErasePlan, done: Mapping[str, Collection[str]]) -> ErasePlan:
    """What is left to do when a plan was carried out, for what others committed meanwhile.

    Nothing is searched: what was made of old shards follows from the rows that are known of them.
    `done` are the shards that were given up, by their versions. Holders are only those that came.
    """
    history = plan.history.index.refresh(plan.dataset)
    found = spread_rows(_add_erased_rows(plan.rows, history), list_mappings(history))
    rows = found.rows
    known = {(one.kind, one.where) for one in plan.holders}
    holding = (*list_plan_copies(history, found), *list_descendant_copies(history, done, rows))
    came = (one for one in holding if (one.kind, one.where) not in known)
    return replace(
        plan,
        versions=tuple(_plan_versions(history, rows, set())),
        holders=tuple(came),
        quarantine=(),
        history=history,
        rows=rows,
    )


def _add_erased_rows(rows: ShardRows, history: DatasetHistory) -> ShardRows:
    """The rows together with those that earlier erasures took out."""
    found = dict(rows)
    for name, some in get_erased_rows(history).items():
        found[name] = np.union1d(found.get(name, np.zeros(0, np.int64)), some)
    return found


def _validate_condition(history: DatasetHistory, condition: Condition, *, searched: bool) -> None:
    """Refuse a condition that fits the records of no version, and say why it does not."""
    schemas = {one.name: one.version.schema for one in history.versions.values()}
    for schema in schemas.values():
        if all(schema.find(name, sequence=False) is not None for name in condition.reads):
            condition.bind(schema).close()
            return
    if not searched:
        has = "; ".join(
            f"{name} has {', '.join(feature.name for feature in schema.features) or 'none'}"
            for name, schema in schemas.items()
        )
        unknown = [
            name
            for name in condition.reads
            if all(schema.find(name, sequence=False) is None for schema in schemas.values())
        ]
        asked = ", ".join(map(repr, unknown or condition.reads))
        together = "" if unknown or len(condition.reads) == 1 else " together"
        raise SchemaMismatchError(
            f"{history.dataset}: no version has {asked}{together} ({has})",
            code="schema-mismatch" if together else "unknown-feature",
            feature=(unknown or [*condition.reads])[0],
        )


def _plan_versions(
    history: DatasetHistory, rows: ShardRows, unreadable: set[str]
) -> Iterator[VersionErasure]:
    """What is to be done in each version, those first that others lie beside."""
    for one in sort_bases_first(history):
        live = {shard.name for shard in one.live}
        anew = tuple(
            ShardErasure(shard, rows[shard.name])
            for shard in one.live
            if shard.name in rows and not shard.virtual
        )
        old = [
            shard
            for name, shard in one.shards.items()
            if name not in live and not one.is_gone(name) and (name in rows or name in unreadable)
        ]
        if anew or old:
            gone = {*(shard.shard.name for shard in anew), *(shard.name for shard in old)}
            yield VersionErasure(
                one.name,
                one.version.state.snapshot,
                anew,
                tuple(old),
                tuple(one.holding(gone)),
                sum(shard.name not in rows for shard in old),
            )


def _list_unreadable(versions: Sequence[VersionErasure], rows: ShardRows) -> set[str]:
    """The shards that are given up since they cannot be read."""
    given_up = (shard.name for one in versions for shard in one.given_up)
    return {name for name in given_up if name not in rows}


def sort_bases_first(history: DatasetHistory) -> list[VersionHistory]:
    """The versions, each behind those whose shards its overlays lie beside."""
    ordered: dict[str, VersionHistory] = {}

    def put(name: str) -> None:
        one = history.versions.get(name)
        if one is None or name in ordered:
            return
        for owner in sorted({s.base.owner for s in one.shards.values() if s.base is not None}):
            put(owner)
        ordered[name] = one

    for name in sorted(history.versions):
        put(name)
    return list(ordered.values())


def _list_residual_copies(
    history: DatasetHistory, version: VersionErasure
) -> Iterator[ResidualCopy]:
    return list_snapshot_copies(history.versions[version.version.split("/")[1]], version.gone)


def _list_unsearched(
    history: DatasetHistory, known: set[str], problems: Mapping[str, str]
) -> Iterator[ResidualCopy]:
    """What could not be searched of the newest snapshots, and follows from nothing that was."""
    for one in history.versions.values():
        where = f"{one.name}@{one.version.state.snapshot}"
        for why in dict.fromkeys(problems[s.name] for s in one.live if s.name in problems):
            yield ResidualCopy(
                "unsearched",
                where,
                f"its plan pairs records that cannot be read: {why}",
                "mend what it pairs and erase again, or combine it anew",
                certain=False,
            )
        left = [s for s in one.live if s.name not in known | set(problems) and s.records]
        if left:
            records = sum(shard.records for shard in left)
            are = "record has" if records == 1 else "records have"
            yield ResidualCopy(
                "unsearched",
                where,
                f"{records:,} of its {are} no such feature, and nothing tells of which records "
                "they are made",
                "if they may be made of the erased ones, make the version anew of what is left, or "
                "erase by a feature that it has",
                certain=False,
            )
