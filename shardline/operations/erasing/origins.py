"""The records of other datasets that erased ones were made of: there they are still.

Whoever makes the dataset anew of them brings the erased ones back. A record of a pair that others
are made of too, which stay, is told of, and does not count: it need not be anyone's own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.operations.erasing.above import Above, Histories
from shardline.operations.erasing.holders import Holder
from shardline.operations.erasing.relations import relations_of, spread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from shardline.log.model import Input
    from shardline.operations.erasing.history import DatasetHistory, VersionHistory
    from shardline.operations.erasing.relations import Rows

Place: TypeAlias = "tuple[str, str]"
"""A dataset, and a shard of it."""
_NONE = np.zeros(0, np.int64)


def origin_holders(
    history: DatasetHistory, rows: Rows, unread: Collection[str] = ()
) -> Iterator[Holder]:
    """The versions of other datasets whose records those rows were made of, and so on above.

    `unread` are shards that were given up since they could not be read.
    """
    histories = Histories(history.store, {history.dataset: history})
    known: dict[str, Rows] = {history.dataset: rows}
    shared: set[Place] = set()
    maybe: set[Input] = set()
    waiting = deque([history.dataset])
    while waiting:
        dataset = waiting.popleft()
        first = dataset == history.dataset
        found = Above(histories, histories.of(dataset))
        found.look(known[dataset], set(unread) if first else set(), plans=not first)
        maybe |= found.maybe
        shared |= found.shared
        for other, more in found.by_dataset().items():
            before = known.get(other, {})
            grown = spread(_union(before, more), relations_of(histories.of(other))).rows
            if other != history.dataset and _count(grown) > _count(before):
                known[other] = grown
                waiting.append(other)
    del known[history.dataset]
    yield from _told(history.dataset, histories, known, shared, maybe)


def _told(
    erased: str,
    histories: Histories,
    known: Mapping[str, Rows],
    shared: set[Place],
    maybe: set[Input],
) -> Iterator[Holder]:
    """What is found, as far as it is still there; of each version what is most certain."""
    held = {(dataset, name) for dataset, rows in known.items() for name in rows if len(rows[name])}
    listed = {(told.dataset, shard.name) for told in maybe for shard in histories.listed(told)}
    for dataset, history in sorted(histories.known.items()):
        for one in history.versions.values():
            there = {
                (dataset, name)
                for name, shard in one.shards.items()
                if not one.is_gone(name) and not shard.virtual and dataset != erased
            }
            if there & held:
                count = len(there & held)
                shards = "1 of its shards holds" if count == 1 else f"{count:,} of its shards hold"
                what = f"{shards} records that those of {erased} were made of"
                yield _origin(one, what, certain=True)
            elif there & listed:
                what = f"records of {erased} were made of its own; of which ones cannot be told"
                yield _origin(one, what, certain=False)
            elif there & shared:
                yield Holder(
                    "shared",
                    one.name,
                    f"records of {erased} were made of some of its own, of which others are made "
                    "too that stay",
                    "look whether these tell of what was erased; if so, erase them there",
                    certain=False,
                )


def _origin(one: VersionHistory, what: str, *, certain: bool) -> Holder:
    dataset = one.version.log.dataset
    return Holder(
        "origin",
        one.name,
        what,
        "erase there too, by what they are called there: else they can be made of it again",
        (("erase", dataset, "--where", "PREDICATE"),),
        certain=certain,
    )


def _union(some: Rows, more: Rows) -> Rows:
    return {
        name: np.union1d(some.get(name, _NONE), more.get(name, _NONE)) for name in {*some, *more}
    }


def _count(rows: Rows) -> int:
    return sum(map(len, rows.values()))
