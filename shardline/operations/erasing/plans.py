"""Look for the records that are meant in virtual versions, whose pairs lie in no file.

A pair is asked by the names that its version gives to features. If all that is asked is of one
side, the shards of that side are read, each once, and which pairs are meant follows from where they
stand; else the pairs are made and read. The records may well be those of another dataset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.errors import UnreadableSnapshotError
from shardline.log.version import StoredVersion
from shardline.operations.erasing.pairs import Paired
from shardline.operations.erasing.search import SearchTask, View, views_of
from shardline.readers.records import records_of
from shardline.readers.virtual import VirtualShard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shardline.log.model import Input, Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.erasing.condition import Condition
    from shardline.operations.erasing.history import DatasetHistory, VersionHistory
    from shardline.operations.erasing.search import Found
    from shardline.pairing.feature_names import Key
    from shardline.readers.virtual import Opened
    from shardline.schema.schema import Feature
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True)
class PlanSearch:
    """What is to be read for the plans of a dataset, and how pairs follow from what is found.

    `of` are the versions whose records a task reads, by its name. `problems` tell of plans that
    cannot be searched, and why.
    """

    history: DatasetHistory
    condition: Condition
    limits: Limits
    tasks: dict[str, SearchTask] = field(default_factory=dict)
    relations: list[Paired] = field(default_factory=list)
    of: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    _sides: dict[tuple[str, int], StoredSnapshot] = field(default_factory=dict)

    def add(self, one: VersionHistory, shard: Shard, view: View) -> None:
        """Search one plan, as one view has the features that are asked for."""
        store, name = self.history.store, one.version.shard_name(shard)
        wanted = frozenset(feature.key for feature in view.features)
        records = VirtualShard(str(one.version.newest()), shard, store, name, wanted)
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
                self._add_side(shard, opened, at, View(features, view.asked), told)
                return
        self.of[shard.name] = frozenset({plan.left.shown, plan.right.shown})
        payload = one.version.schema.payload
        self._add(SearchTask(shard.name, records, (view,), payload, self.condition, self.limits))

    def _add_side(self, shard: Shard, opened: Opened, at: int, view: View, told: Input) -> None:
        own = tuple(feature.name for feature in view.features)
        if self.history.of_input(told) is not None and own == view.asked:
            return  # its version is searched for just that, and the pairs follow
        snapshot = self._snapshot(told)
        first, last = (opened.plan.cover.left, opened.plan.cover.right)[at]
        names: list[str | None] = [None] * len(snapshot.shards)
        for place, records in enumerate(records_of(snapshot, view.features)):
            if not first <= place < last:
                continue
            name = f"{snapshot.shard_name(snapshot.shards[place])} by {', '.join(own)}"
            names[place] = name
            self.of[name] = frozenset({told.shown})
            payload = snapshot.schema.payload
            self._add(SearchTask(name, records, (view,), payload, self.condition, self.limits))
        nothing = (None,) * len((opened.grid.right, opened.grid.left)[at])
        left, right = (nothing, tuple(names)) if at else (tuple(names), nothing)
        grid, cover = opened.grid, opened.plan.cover
        self.relations.append(Paired(shard.name, left, right, grid, cover, virtual=True))

    def _own(self, opened: Opened, at: int, told: Input) -> Mapping[Key, Feature]:
        """The features of a side by the keys that they have in a pair."""
        names = (opened.recipe.names.left, opened.recipe.names.right)[at]
        schema = self._snapshot(told).schema
        return {
            (feature.sequence, name): feature
            for feature in schema.features
            if (name := names[feature.key]) is not None
        }

    def _add(self, task: SearchTask) -> None:
        self.tasks.setdefault(task.name, task)

    def _snapshot(self, told: Input) -> StoredSnapshot:
        key = (told.shown, told.snapshot)
        if key not in self._sides:
            self._sides[key] = StoredVersion(self.history.store, told.shown).snapshot(told.snapshot)
        return self._sides[key]

    def unsearched(self, found: Iterable[Found]) -> dict[str, str]:
        """The plans of which not all that is asked for could be read, and why."""
        failed = {one.name: one.problem for one in found if one.problem}
        told = dict(self.problems)
        told |= {name: why for name, why in failed.items() if name in self._plans()}
        for relation in self.relations:
            for name in sorted(set(relation.names()) & set(failed)):
                told.setdefault(relation.name, failed[name])
        return told

    def _plans(self) -> set[str]:
        return {name for name, shard in self.history.shards.items() if shard.virtual}

    def holding(self, found: Iterable[Found]) -> dict[str, frozenset[str]]:
        """The plans with pairs that are meant, and the versions of whose records these are made."""
        hits = {one.name for one in found if len(one.rows)}
        told = {name: self.of[name] for name in hits & self._plans() & set(self.of)}
        for relation in self.relations:
            for name in set(relation.names()) & hits:
                told[relation.name] = told.get(relation.name, frozenset()) | self.of[name]
        return told


def search_plans(history: DatasetHistory, condition: Condition, limits: Limits) -> PlanSearch:
    """What has to be read: for every plan of which there is a file, where its version can tell."""
    search = PlanSearch(history, condition, limits)
    for one in history.versions.values():
        plans = [s for name, s in one.shards.items() if s.virtual and name in history.files]
        if not plans:
            continue
        for view in views_of(history, one, condition):
            for shard in plans:
                search.add(one, shard, view)
    return search
