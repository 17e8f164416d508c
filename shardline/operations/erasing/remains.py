"""Whether a shard of another dataset, from which records were erased, still has some that go."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shardline.operations.erasing.above import Above, Histories
from shardline.operations.erasing.relations import Aligned, Laid, relations_of, spread

if TYPE_CHECKING:
    from shardline.log.model import Shard
    from shardline.operations.erasing.history import DatasetHistory
    from shardline.operations.erasing.relations import Relation, Rows

_NONE = np.zeros(0, np.int64)


@dataclass
class Remains:
    """Asks of shards whether they are made of some of these rows of a dataset."""

    history: DatasetHistory
    rows: Rows
    _histories: Histories = field(init=False)
    _relations: dict[str, list[Relation]] = field(init=False, default_factory=dict)
    _known: dict[str, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Read no log twice."""
        self._histories = Histories(self.history.store, {self.history.dataset: self.history})

    def hold(self, dataset: str, shard: Shard) -> bool:
        """Whether a shard of another dataset is; also if that cannot be told."""
        key = f"{dataset}/{shard.name}"
        if key not in self._known:
            self._known[key] = self._hold(dataset, {shard.name: np.arange(shard.records)})
        return self._known[key]

    def _hold(self, dataset: str, rows: Rows) -> bool:
        known = {dataset: rows}
        waiting = deque([dataset])
        while waiting:
            name = waiting.popleft()
            one = self._histories.of(name)
            here = spread(known[name], self._one_by_one(one)).rows
            found = Above(self._histories, one)
            found.look(here, set(), plans=True, others=False)
            if found.maybe or _is_paired_within(one, here):
                return True
            for (other, shard), some in found.every.items():
                if other == self.history.dataset:
                    if np.isin(some, self.rows.get(shard, _NONE)).any():
                        return True
                    continue
                before = known.setdefault(other, {}).get(shard, _NONE)
                merged = np.union1d(before, some)
                if len(merged) > len(before):
                    known[other][shard] = merged
                    waiting.append(other)
        return False

    def _one_by_one(self, history: DatasetHistory) -> list[Relation]:
        """How records follow from one another; a pair tells nothing of others of its records."""
        if history.dataset not in self._relations:
            self._relations[history.dataset] = [
                one for one in relations_of(history) if isinstance(one, Aligned | Laid)
            ]
        return self._relations[history.dataset]


def _is_paired_within(history: DatasetHistory, rows: Rows) -> bool:
    """Whether some of these are pairs of records of their own dataset, which are not followed."""
    return any(
        added.shard.name in rows
        for one in history.versions.values()
        for entry in one.entries
        if entry.operation == "combine"
        and any(told.dataset == history.dataset for told in entry.inputs)
        for added in entry.added
    )
