"""Search of the shards of a dataset for records that match a condition.

Only the features of the condition are decoded. A combined version may have them under the names
that it gave to each side: a pair matches if one of its two records does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import (
    ColumnError,
    CorruptFileError,
    CorruptShardError,
    ExampleError,
    StorageError,
    UnreadableSnapshotError,
)
from shardline.execution.threads import run_tasks
from shardline.log.model import SHARD_NAME
from shardline.log.parameters import CombineParameters
from shardline.operations.transform_records import make_batch_error
from shardline.pairing.pair_features import PairNaming, name_features
from shardline.provenance.shard_mapping import GridMapping
from shardline.readers.arrow import BatchBuilder
from shardline.readers.records import count_read_bytes, list_records
from shardline.readers.shard_file import open_shard_file
from shardline.readers.virtual_shard import VirtualShard
from shardline.schema.schema import Schema
from shardline.udf.udf_result import BatchMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.execution.executor import TaskContext
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.erasure.condition import Condition
    from shardline.provenance.log_index import DatasetHistory, VersionHistory
    from shardline.readers.records import Records
    from shardline.readers.virtual_shard import OpenedPairPlan
    from shardline.schema.schema import Feature, Key
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock


_BLOCK_BYTES = 4 * 1024 * 1024
_UNREADABLE = (ColumnError, CorruptFileError, ExampleError, StorageError)
"""Problems of a shard, not of the search."""


@dataclass(frozen=True, slots=True)
class SearchView:
    """Features of a condition by their names in a version, and in the condition (`asked`)."""

    features: tuple[Feature, ...]
    asked: tuple[str, ...]

    def schema(self, payload: str) -> Schema:
        """Return the features as a schema, by their names in the condition."""
        named = zip(self.features, self.asked, strict=True)
        return Schema(
            tuple(replace(feature, name=name) for feature, name in named),
            payload,  # type: ignore[arg-type] # as the version's own
        )


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A shard to search. `live` is the version whose latest snapshot has it.

    A shard that is in no latest snapshot may be unreadable.
    """

    name: str
    records: Records
    views: tuple[SearchView, ...]
    payload: str
    condition: Condition
    limits: Limits
    live: str = ""

    step = "searching"

    @property
    def label(self) -> str:
        """Name of the shard."""
        return self.name

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return count_read_bytes([self.records])


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The matching rows of a shard, or the problem that made it unreadable.

    `matched` are the positions of the key values that its records have.
    """

    name: str
    rows: IntArray
    problem: str = ""
    matched: frozenset[int] = frozenset()


def list_search_tasks(
    history: DatasetHistory, condition: Condition, limits: Limits
) -> Iterator[SearchTask]:
    """Yield a task for each existing shard of the versions that have the features.

    An overlay is skipped if its base has them, because the base is searched itself.
    """
    for one in history.versions.values():
        views = list_views(history, one, condition)
        if not views:
            continue
        shards = tuple(
            shard
            for name, shard in one.shards.items()
            if name in history.files and not shard.virtual
        )
        if not shards:
            continue
        wanted = list({f.key: f for view in views for f in view.features}.values())
        live = {shard.name for shard in one.live}
        for shard, records in _list_records(one, shards, wanted):
            if shard.name in {file.shard.name for file in records.files}:
                payload = one.version.schema.payload
                of = one.name if shard.name in live else ""
                yield SearchTask(shard.name, records, views, payload, condition, limits, of)


def _list_records(
    one: VersionHistory, shards: Sequence[Shard], wanted: Sequence[Feature]
) -> list[tuple[Shard, Records]]:
    """Return the records of shards; an old overlay that does not fit its base is read alone."""
    part = replace(one.version.latest(), list_shards=lambda: tuple(shards))
    try:
        return list(zip(shards, list_records(part, wanted), strict=True))
    except UnreadableSnapshotError:
        if len(shards) > 1:
            return [found for shard in shards for found in _list_records(one, [shard], wanted)]
        if shards[0] in one.live:
            raise
        return [(shards[0], open_shard_file(part, shards[0]))]


def list_views(
    history: DatasetHistory, one: VersionHistory, condition: Condition
) -> tuple[SearchView, ...]:
    """Return the views of a version on a condition; none if it lacks a feature."""
    schema = one.version.schema
    own = {name: name for name in condition.reads}
    told = [own, *_sides(history, one, condition)]
    found = []
    for names in told:
        features = [schema.find(names[name], sequence=False) for name in condition.reads]
        if None not in features:
            known = tuple(feature for feature in features if feature is not None)
            found.append(SearchView(known, condition.reads))
    return tuple(dict.fromkeys(found))


def _sides(
    history: DatasetHistory, one: VersionHistory, condition: Condition
) -> Iterator[Mapping[str, str]]:
    """Yield the names in a combined version of the features of each side."""
    combined = [entry for entry in one.entries if entry.operation == "combine"]
    for entry in combined[-1:]:
        for told, names in zip(entry.inputs, _named(history, entry), strict=False):
            side = history.find_input(told)
            if side is not None and all(names.get(name) for name in condition.reads):
                yield {name: names[name] for name in condition.reads}


def _named(history: DatasetHistory, entry: Entry) -> Sequence[Mapping[str, str]]:
    """Return the names in a pair of the features of the left and of the right."""
    parameters = entry.read(CombineParameters)
    on = parameters.keys
    keys = [[feature.key for feature in history.get_schema(told).features] for told in entry.inputs]
    shared = [left for left, right in on if left == right]
    named = name_features(PairNaming.from_rule(parameters.rule), keys[0], keys[1], shared)
    left, right = (
        {key[1]: name for key, name in side.items() if name is not None and not key[0]}
        for side in (named.left, named.right)
    )
    # A pair has a key once if both sides have it under one name.
    shared_names = {other: left[own] for own, other in on if own in left and other not in right}
    return left, {**shared_names, **right}


def search(task: SearchTask, running: TaskContext) -> SearchResult:
    """Search the shard of a task."""
    try:
        return _search_records(task, running)
    except _UNREADABLE as error:
        if task.live:
            raise make_shard_error(task.live, error) from error
        if isinstance(error, StorageError) and error.transient:
            raise
        return SearchResult(task.name, np.zeros(0, np.int64), str(error))


def make_shard_error(version: str, error: Exception) -> Exception:
    """Return the error of a shard, with the command that recreates the shard."""
    if not isinstance(error, CorruptFileError) or error.kind in {"oversized", "example"}:
        return error
    # An overlay is read from files of other versions too, whose names begin with theirs.
    owner = SHARD_NAME.fullmatch(error.path.replace("\\", "/").rpartition("/")[2])
    named = version if owner is None else f"{version.partition('/')[0]}/{owner['version']}"
    return CorruptShardError.of(named, error)


def _search_records(task: SearchTask, running: TaskContext) -> SearchResult:
    found = [np.zeros(0, np.int64)]
    met: set[int] = set()
    total = max(task.records.shard.records, 1)
    for view in task.views:
        chooser = task.condition.bind(view.schema(task.payload))
        features = dict(zip(view.asked, view.features, strict=True))
        read = [features[feature.name] for feature in chooser.reads]
        names = [feature.name for feature in chooser.reads]
        batches = BatchBuilder(read)

        def rows(block: RecordBlock, batches: BatchBuilder = batches) -> tuple[int, IntArray]:
            batch = batches.of(task.records, block).rename_columns(names)  # noqa: B023 - at once
            end = block.record + len(block.starts)
            try:
                return end, block.record + np.flatnonzero(chooser.get_mask(batch))  # noqa: B023
            except BatchMismatchError as error:
                raise make_batch_error(task.name, block.record, error) from error.__cause__

        try:
            blocks = task.records.blocks(limits=task.limits, block_bytes=_BLOCK_BYTES)
            for end, some in run_tasks(rows, blocks, workers=running.workers):
                found.append(some)
                running.report(task.size * end // total, end)
        finally:
            chooser.close()
        met.update(chooser.matched)
    return SearchResult(task.name, np.unique(np.concatenate(found)), matched=frozenset(met))


@dataclass(frozen=True)
class PairPlanSearch:
    """Search of the plans of a dataset: the tasks, and how pairs follow from their matches.

    `of` are the versions whose records a task reads, by its name. `problems` has the plans that
    cannot be searched.
    """

    history: DatasetHistory
    condition: Condition
    limits: Limits
    tasks: dict[str, SearchTask] = field(default_factory=dict)
    mappings: list[GridMapping] = field(default_factory=list)
    of: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    _sides: dict[tuple[str, int], StoredSnapshot] = field(default_factory=dict)

    def add(self, one: VersionHistory, shard: Shard, view: SearchView) -> None:
        """Add the tasks for a plan, with the features of a view."""
        store, name = self.history.store, one.version.shard_name(shard)
        wanted = frozenset(feature.key for feature in view.features)
        records = VirtualShard(str(one.version.latest()), shard, store, name, wanted)
        try:
            opened = records.opened
        except UnreadableSnapshotError as error:
            self.problems[shard.name] = str(error)
            return
        plan = opened.plan
        for at, told in enumerate((plan.left, plan.right)):
            own = self._own(opened, at, told)
            if all(feature.key in own for feature in view.features):
                features = tuple(own[feature.key] for feature in view.features)
                self._add_side(shard, opened, at, SearchView(features, view.asked), told)
                return
        self.of[shard.name] = frozenset({plan.left.label, plan.right.label})
        payload = one.version.schema.payload
        self._add(SearchTask(shard.name, records, (view,), payload, self.condition, self.limits))

    def _add_side(
        self, shard: Shard, opened: OpenedPairPlan, at: int, view: SearchView, told: Input
    ) -> None:
        own = tuple(feature.name for feature in view.features)
        if self.history.find_input(told) is not None and own == view.asked:
            return  # Its version is searched anyway, and the pairs follow.
        snapshot = self._snapshot(told)
        first, last = (opened.plan.cover.left, opened.plan.cover.right)[at]
        names: list[str | None] = [None] * len(snapshot.shards)
        for place, records in enumerate(list_records(snapshot, view.features)):
            if not first <= place < last:
                continue
            name = f"{snapshot.shard_name(snapshot.shards[place])} by {', '.join(own)}"
            names[place] = name
            self.of[name] = frozenset({told.label})
            payload = snapshot.schema.payload
            self._add(SearchTask(name, records, (view,), payload, self.condition, self.limits))
        nothing = (None,) * len((opened.grid.right, opened.grid.left)[at])
        left, right = (nothing, tuple(names)) if at else (tuple(names), nothing)
        grid, cover = opened.grid, opened.plan.cover
        self.mappings.append(GridMapping(shard.name, left, right, grid, cover, virtual=True))

    def _own(self, opened: OpenedPairPlan, at: int, told: Input) -> Mapping[Key, Feature]:
        """Return the features of a side by their keys in a pair."""
        names = (opened.bound.names.left, opened.bound.names.right)[at]
        schema = self._snapshot(told).schema
        return {
            (feature.sequence, name): feature
            for feature in schema.features
            if (name := names[feature.key]) is not None
        }

    def _add(self, task: SearchTask) -> None:
        self.tasks.setdefault(task.name, task)

    def _snapshot(self, told: Input) -> StoredSnapshot:
        key = (told.label, told.snapshot)
        if key not in self._sides:
            version = self.history.index.version(told.label)
            self._sides[key] = version.snapshot(told.snapshot)
        return self._sides[key]

    def find_problems(self, found: Iterable[SearchResult]) -> dict[str, str]:
        """Return the plans whose records could not all be read, with the problem."""
        failed = {one.name: one.problem for one in found if one.problem}
        told = dict(self.problems)
        told |= {name: why for name, why in failed.items() if name in self._plans()}
        for relation in self.mappings:
            for name in sorted(set(relation.list_sources()) & set(failed)):
                told.setdefault(relation.name, failed[name])
        return told

    def _plans(self) -> set[str]:
        return {name for name, shard in self.history.shards.items() if shard.virtual}

    def find_matching_plans(self, found: Iterable[SearchResult]) -> dict[str, frozenset[str]]:
        """Return the plans with matching pairs, and the versions of their records."""
        hits = {one.name for one in found if len(one.rows)}
        told = {name: self.of[name] for name in hits & self._plans() & set(self.of)}
        for relation in self.mappings:
            for name in set(relation.list_sources()) & hits:
                told[relation.name] = told.get(relation.name, frozenset()) | self.of[name]
        return told


def search_pair_plans(
    history: DatasetHistory, condition: Condition, limits: Limits
) -> PairPlanSearch:
    """Return the search of each existing plan of the versions that have the features."""
    search = PairPlanSearch(history, condition, limits)
    for one in history.versions.values():
        plans = [s for name, s in one.shards.items() if s.virtual and name in history.files]
        if not plans:
            continue
        for view in list_views(history, one, condition):
            for shard in plans:
                search.add(one, shard, view)
    return search
