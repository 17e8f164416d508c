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
    """Features of a condition in a version, and their `names` in the condition."""

    features: tuple[Feature, ...]
    names: tuple[str, ...]

    def schema(self, payload: str) -> Schema:
        """Return the features as a schema, by their names in the condition."""
        named = zip(self.features, self.names, strict=True)
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
    for version in history.versions.values():
        views = list_views(history, version, condition)
        if not views:
            continue
        shards = tuple(
            shard
            for name, shard in version.shards.items()
            if name in history.files and not shard.virtual
        )
        if not shards:
            continue
        features = {feature.key: feature for view in views for feature in view.features}
        live = {shard.name for shard in version.live}
        for shard, records in _list_records(version, shards, list(features.values())):
            if shard.name in {file.shard.name for file in records.files}:
                payload = version.version.schema.payload
                owner = version.name if shard.name in live else ""
                yield SearchTask(shard.name, records, views, payload, condition, limits, owner)


def _list_records(
    version: VersionHistory, shards: Sequence[Shard], features: Sequence[Feature]
) -> list[tuple[Shard, Records]]:
    """Return the records of shards; an old overlay that does not fit its base is read alone."""
    part = version.version.latest().with_shards(shards)
    try:
        return list(zip(shards, list_records(part, features), strict=True))
    except UnreadableSnapshotError:
        if len(shards) > 1:
            return [pair for shard in shards for pair in _list_records(version, [shard], features)]
        if shards[0] in version.live:
            raise
        return [(shards[0], open_shard_file(part, shards[0]))]


def list_views(
    history: DatasetHistory, version: VersionHistory, condition: Condition
) -> tuple[SearchView, ...]:
    """Return the views of a version on a condition; none if it lacks a feature."""
    schema = version.version.schema
    own = {name: name for name in condition.reads}
    views = []
    for names in (own, *_iter_side_names(history, version, condition)):
        features = [schema.find(names[name], sequence=False) for name in condition.reads]
        if None not in features:
            known = tuple(feature for feature in features if feature is not None)
            views.append(SearchView(known, condition.reads))
    return tuple(dict.fromkeys(views))


def _iter_side_names(
    history: DatasetHistory, version: VersionHistory, condition: Condition
) -> Iterator[Mapping[str, str]]:
    """Yield the names in a combined version of the features of each side."""
    combined = [entry for entry in version.entries if entry.operation == "combine"]
    for entry in combined[-1:]:
        for source, names in zip(entry.inputs, _get_pair_names(history, entry), strict=False):
            if history.find_input(source) is not None and all(
                names.get(name) for name in condition.reads
            ):
                yield {name: names[name] for name in condition.reads}


def _get_pair_names(history: DatasetHistory, entry: Entry) -> Sequence[Mapping[str, str]]:
    """Return the names in a pair of the features of each side."""
    parameters = entry.read(CombineParameters)
    schemas = [history.get_schema(source) for source in entry.inputs]
    keys = [[feature.key for feature in schema.features] for schema in schemas]
    shared = [left for left, right in parameters.keys if left == right]
    names = name_features(PairNaming.from_rule(parameters.rule), keys[0], keys[1], shared)
    left, right = (
        {key[1]: name for key, name in side.items() if name is not None and not key[0]}
        for side in (names.left, names.right)
    )
    # A pair has a key once if both sides have it under one name.
    shared_names = {
        other: left[own] for own, other in parameters.keys if own in left and other not in right
    }
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
    # The base of an overlay belongs to another version, which its file name begins with.
    owner = SHARD_NAME.fullmatch(error.path.replace("\\", "/").rpartition("/")[2])
    name = version if owner is None else f"{version.partition('/')[0]}/{owner['version']}"
    return CorruptShardError.of(name, error)


def _search_records(task: SearchTask, running: TaskContext) -> SearchResult:
    matches = [np.zeros(0, np.int64)]
    matched: set[int] = set()
    total = max(task.records.shard.records, 1)
    for view in task.views:
        matcher = task.condition.bind(view.schema(task.payload))
        features = dict(zip(view.names, view.features, strict=True))
        selected = [features[feature.name] for feature in matcher.reads]
        names = [feature.name for feature in matcher.reads]
        batches = BatchBuilder(selected)

        def find_rows(block: RecordBlock, batches: BatchBuilder = batches) -> tuple[int, IntArray]:
            batch = batches.of(task.records, block).rename_columns(names)  # noqa: B023 - at once
            end = block.record + len(block.starts)
            try:
                return end, block.record + np.flatnonzero(matcher.get_mask(batch))  # noqa: B023
            except BatchMismatchError as error:
                raise make_batch_error(task.name, block.record, error) from error.__cause__

        try:
            blocks = task.records.blocks(limits=task.limits, block_bytes=_BLOCK_BYTES)
            for end, rows in run_tasks(find_rows, blocks, workers=running.workers):
                matches.append(rows)
                running.report(task.size * end // total, end)
        finally:
            matcher.close()
        matched.update(matcher.matched)
    return SearchResult(task.name, np.unique(np.concatenate(matches)), matched=frozenset(matched))


@dataclass(frozen=True)
class PairPlanSearch:
    """Search of the plans of a dataset: the tasks, and the mappings of their matches to pairs.

    `inputs` are the versions whose records a task reads, by its name. `problems` has the plans that
    cannot be searched.
    """

    history: DatasetHistory
    condition: Condition
    limits: Limits
    tasks: dict[str, SearchTask] = field(default_factory=dict)
    mappings: list[GridMapping] = field(default_factory=list)
    inputs: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    _sides: dict[tuple[str, int], StoredSnapshot] = field(default_factory=dict)

    def add(self, version: VersionHistory, shard: Shard, view: SearchView) -> None:
        """Add the tasks for a plan, with the features of a view."""
        store, name = self.history.store, version.version.shard_name(shard)
        keys = frozenset(feature.key for feature in view.features)
        records = VirtualShard(str(version.version.latest()), shard, store, name, keys)
        try:
            opened = records.opened
        except UnreadableSnapshotError as error:
            self.problems[shard.name] = str(error)
            return
        plan = opened.plan
        for side, source in enumerate((plan.left, plan.right)):
            own = self._get_side_features(opened, side, source)
            if all(feature.key in own for feature in view.features):
                features = tuple(own[feature.key] for feature in view.features)
                self._add_side(shard, opened, side, SearchView(features, view.names), source)
                return
        self.inputs[shard.name] = frozenset({plan.left.label, plan.right.label})
        payload = version.version.schema.payload
        self._add(SearchTask(shard.name, records, (view,), payload, self.condition, self.limits))

    def _add_side(
        self, shard: Shard, opened: OpenedPairPlan, side: int, view: SearchView, source: Input
    ) -> None:
        own = tuple(feature.name for feature in view.features)
        if self.history.find_input(source) is not None and own == view.names:
            return  # Its version is searched anyway, and the pairs follow.
        snapshot = self._get_snapshot(source)
        first, last = (opened.plan.cover.left, opened.plan.cover.right)[side]
        names: list[str | None] = [None] * len(snapshot.shards)
        for position, records in enumerate(list_records(snapshot, view.features)):
            if not first <= position < last:
                continue
            name = f"{snapshot.shard_name(snapshot.shards[position])} by {', '.join(own)}"
            names[position] = name
            self.inputs[name] = frozenset({source.label})
            payload = snapshot.schema.payload
            self._add(SearchTask(name, records, (view,), payload, self.condition, self.limits))
        others = (None,) * len((opened.grid.right, opened.grid.left)[side])
        left, right = (others, tuple(names)) if side else (tuple(names), others)
        grid, cover = opened.grid, opened.plan.cover
        self.mappings.append(GridMapping(shard.name, left, right, grid, cover, virtual=True))

    def _get_side_features(
        self, opened: OpenedPairPlan, side: int, source: Input
    ) -> Mapping[Key, Feature]:
        """Return the features of a side by their keys in a pair."""
        names = (opened.bound.names.left, opened.bound.names.right)[side]
        schema = self._get_snapshot(source).schema
        return {
            (feature.sequence, name): feature
            for feature in schema.features
            if (name := names[feature.key]) is not None
        }

    def _add(self, task: SearchTask) -> None:
        self.tasks.setdefault(task.name, task)

    def _get_snapshot(self, source: Input) -> StoredSnapshot:
        key = (source.label, source.snapshot)
        if key not in self._sides:
            version = self.history.index.version(source.label)
            self._sides[key] = version.snapshot(source.snapshot)
        return self._sides[key]

    def find_problems(self, results: Iterable[SearchResult]) -> dict[str, str]:
        """Return the plans with unreadable records, and the problem of each."""
        failed = {result.name: result.problem for result in results if result.problem}
        plans = self._list_plans()
        problems = dict(self.problems)
        problems |= {name: problem for name, problem in failed.items() if name in plans}
        for mapping in self.mappings:
            for name in sorted(set(mapping.list_sources()) & set(failed)):
                problems.setdefault(mapping.name, failed[name])
        return problems

    def _list_plans(self) -> set[str]:
        return {name for name, shard in self.history.shards.items() if shard.virtual}

    def find_matching_plans(self, results: Iterable[SearchResult]) -> dict[str, frozenset[str]]:
        """Return the plans with matching pairs, and the versions of their records."""
        matches = {result.name for result in results if len(result.rows)}
        plans = {
            name: self.inputs[name] for name in matches & self._list_plans() & set(self.inputs)
        }
        for mapping in self.mappings:
            for name in set(mapping.list_sources()) & matches:
                plans[mapping.name] = plans.get(mapping.name, frozenset()) | self.inputs[name]
        return plans


def search_pair_plans(
    history: DatasetHistory, condition: Condition, limits: Limits
) -> PairPlanSearch:
    """Return the search of each existing plan of the versions that have the features."""
    search = PairPlanSearch(history, condition, limits)
    for version in history.versions.values():
        shards = version.shards.items()
        plans = [shard for name, shard in shards if shard.virtual and name in history.files]
        for view in list_views(history, version, condition) if plans else ():
            for shard in plans:
                search.add(version, shard, view)
    return search
