"""Look for the records that are meant in every file of a dataset, by the features of its version.

Only the features that the condition names are decoded. A version of pairs may hold them under the
names that it gave to each side: there a pair is meant if one of its two records is.
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
"""What is wrong with a shard, and not with how it is searched."""


@dataclass(frozen=True, slots=True)
class SearchView:
    """Under which names a version has the features that a condition looks at."""

    features: tuple[Feature, ...]
    asked: tuple[str, ...]

    def schema(self, payload: str) -> Schema:
        """The same features under the names that the condition knows."""
        named = zip(self.features, self.asked, strict=True)
        return Schema(
            tuple(replace(feature, name=name) for feature, name in named),
            payload,  # type: ignore[arg-type] # as the version's own
        )


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A shard to be searched; `live` is the version whose newest snapshot has it.

    One that is in no newest snapshot may turn out to be unreadable.
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
        """What people call it."""
        return self.name

    @property
    def size(self) -> int:
        """How many bytes it reads."""
        return count_read_bytes([self.records])


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The rows of a shard that are meant, or why it cannot be read.

    `met` are the places of the values that these have, if records are chosen by a list.
    """

    name: str
    rows: IntArray
    problem: str = ""
    matched: frozenset[int] = frozenset()


def list_search_tasks(
    history: DatasetHistory, condition: Condition, limits: Limits
) -> Iterator[SearchTask]:
    """What has to be read: every shard of which there is a file, where its version can tell.

    An overlay is passed over if what is looked at lies in its base, which is read by itself.
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
    """The records of shards; an old overlay that does not belong to its base is read alone."""
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
    """The ways in which the records of a version can be asked; none if it lacks a feature."""
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
    """What the features of each side are called in a version of pairs."""
    combined = [entry for entry in one.entries if entry.operation == "combine"]
    for entry in combined[-1:]:
        for told, names in zip(entry.inputs, _named(history, entry), strict=False):
            side = history.find_input(told)
            if side is not None and all(names.get(name) for name in condition.reads):
                yield {name: names[name] for name in condition.reads}


def _named(history: DatasetHistory, entry: Entry) -> Sequence[Mapping[str, str]]:
    """The names in a pair of the features of the left and of the right, by their own names."""
    parameters = entry.read(CombineParameters)
    on = parameters.keys
    keys = [[feature.key for feature in history.get_schema(told).features] for told in entry.inputs]
    shared = [left for left, right in on if left == right]
    named = name_features(PairNaming.from_rule(parameters.rule), keys[0], keys[1], shared)
    left, right = (
        {key[1]: name for key, name in side.items() if name is not None and not key[0]}
        for side in (named.left, named.right)
    )
    # A key stands in a pair once where both sides have it under one name.
    shared_names = {other: left[own] for own, other in on if own in left and other not in right}
    return left, {**shared_names, **right}


def search(task: SearchTask, running: TaskContext) -> SearchResult:
    """Do one task: read a shard, and say which of its records are meant."""
    try:
        return _search_records(task, running)
    except _UNREADABLE as error:
        if task.live:
            raise make_shard_error(task.live, error) from error
        if isinstance(error, StorageError) and error.transient:
            raise
        return SearchResult(task.name, np.zeros(0, np.int64), str(error))


def make_shard_error(version: str, error: Exception) -> Exception:
    """What is wrong with a shard of a version, with what makes that shard anew."""
    if not isinstance(error, CorruptFileError) or error.kind in {"oversized", "example"}:
        return error
    # The records of an overlay lie in files of other versions too: a name tells whose one is.
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
    """What is to be read for the plans of a dataset, and how pairs follow from what is found.

    `of` are the versions whose records a task reads, by its name. `problems` tell of plans that
    cannot be searched, and why.
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
        """Search one plan, as one view has the features that are asked for."""
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
            return  # its version is searched for just that, and the pairs follow
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
        """The features of a side by the keys that they have in a pair."""
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
        """The plans of which not all that is asked for could be read, and why."""
        failed = {one.name: one.problem for one in found if one.problem}
        told = dict(self.problems)
        told |= {name: why for name, why in failed.items() if name in self._plans()}
        for relation in self.mappings:
            for name in sorted(set(relation.names()) & set(failed)):
                told.setdefault(relation.name, failed[name])
        return told

    def _plans(self) -> set[str]:
        return {name for name, shard in self.history.shards.items() if shard.virtual}

    def find_matching_plans(self, found: Iterable[SearchResult]) -> dict[str, frozenset[str]]:
        """The plans with pairs that are meant, and the versions of whose records these are made."""
        hits = {one.name for one in found if len(one.rows)}
        told = {name: self.of[name] for name in hits & self._plans() & set(self.of)}
        for relation in self.mappings:
            for name in set(relation.names()) & hits:
                told[relation.name] = told.get(relation.name, frozenset()) | self.of[name]
        return told


def search_pair_plans(
    history: DatasetHistory, condition: Condition, limits: Limits
) -> PairPlanSearch:
    """What has to be read: for every plan of which there is a file, where its version can tell."""
    search = PairPlanSearch(history, condition, limits)
    for one in history.versions.values():
        plans = [s for name, s in one.shards.items() if s.virtual and name in history.files]
        if not plans:
            continue
        for view in list_views(history, one, condition):
            for shard in plans:
                search.add(one, shard, view)
    return search
