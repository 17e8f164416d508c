"""Which records of which shards are the same, or made of each other, as the logs tell.

A record that is erased is erased in every version. So what is known of the rows of one shard is
carried on to the shards that were made of it, and to those that it was made of: by position, since
every operation either keeps the order of records or tells which of them it left out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from shardline.log.sidecar_names import RECEIPT
from shardline.operations.erasing.history import ERASE
from shardline.operations.erasing.pairs import Paired, count_pairs, pairs_of
from shardline.sidecars.receipt import parse_receipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.operations.erasing.history import DatasetHistory, VersionHistory

Rows: TypeAlias = "dict[str, IntArray]"


class Relation(Protocol):
    """How the records of some shards follow from those of others."""

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        ...

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        ...

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        ...


@dataclass(frozen=True, slots=True)
class Aligned:
    """Two shards of the same records in the same order; those in `gone` are in the first only."""

    first: str
    second: str
    gone: tuple[tuple[int, int], ...] = ()

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        return self.first, self.second

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        return self.names()

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        gone = rows_of(self.gone)
        if name == self.first:
            kept = np.setdiff1d(rows, gone)
            yield self.second, kept - np.searchsorted(gone, kept)
        else:
            # Before row r of the second so many of the first are gone that stand at or before it.
            shifted = gone - np.arange(len(gone))
            yield self.first, rows + np.searchsorted(shifted, rows, "right")


@dataclass(frozen=True, slots=True)
class Laid:
    """The same records, laid out in two lists of shards; each shard with its first row."""

    one: tuple[tuple[str, int, int], ...]
    other: tuple[tuple[str, int, int], ...]

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        return (name for name, _, _ in (*self.one, *self.other))

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        return self.names()

    def carry(self, name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        for here, there in ((self.one, self.other), (self.other, self.one)):
            for found, first, _ in here:
                if found != name:
                    continue
                places = rows + first
                for other, begin, end in there:
                    low, high = np.searchsorted(places, (begin, end))
                    if high > low:
                        yield other, places[low:high] - begin


def rows_of(spans: Sequence[tuple[int, int]]) -> IntArray:
    """All rows of spans of first and last."""
    parts = [np.arange(first, last + 1) for first, last in spans]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def spans_of(rows: IntArray) -> list[tuple[int, int]]:
    """Rows, which ascend, as spans of first and last."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(rows, cuts)]


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows with all that follow from them.

    Of plans from which nothing follows, `pairs` tells how many pairs are meant, and `rows` only
    that there are some.
    """

    rows: Rows
    pairs: dict[str, int]


def spread(found: Mapping[str, IntArray], relations: Iterable[Relation]) -> Spread:
    """The rows with all that follow from them, until nothing more does."""
    relations = list(relations)
    rows: Rows = {name: some for name, some in found.items() if len(some)}
    going_on = {name for relation in relations for name in relation.names()} | set(rows)
    plans: dict[str, list[Paired]] = {}
    touching: dict[str, list[Relation]] = {}
    for relation in relations:
        if isinstance(relation, Paired) and relation.virtual and relation.name not in going_on:
            plans.setdefault(relation.name, []).append(relation)
            continue
        for name in set(relation.names()):
            touching.setdefault(name, []).append(relation)
    waiting = deque(rows)
    while waiting:
        name = waiting.popleft()
        for relation in touching.get(name, ()):
            for other, more in relation.carry(name, rows[name]):
                known = rows.get(other)
                merged = np.unique(more) if known is None else np.union1d(known, more)
                if len(merged) > (0 if known is None else len(known)):
                    rows[other] = merged
                    waiting.append(other)
    pairs = {name: count_pairs(some, rows) for name, some in plans.items()}
    pairs = {name: count for name, count in pairs.items() if count}
    return Spread(rows | dict.fromkeys(pairs, np.zeros(0, np.int64)), pairs)


def reached(from_names: Iterable[str], relations: Iterable[Relation]) -> set[str]:
    """The shards whose rows follow, one way or another, from those of some."""
    touching: dict[str, list[Relation]] = {}
    for relation in relations:
        for name in set(relation.names()):
            touching.setdefault(name, []).append(relation)
    found = set(from_names)
    waiting = deque(found)
    while waiting:
        for relation in touching.get(waiting.popleft(), ()):
            more = set(relation.reaches())
            waiting.extend(more - found)
            found |= more
    return found


def erased_before(history: DatasetHistory) -> Rows:
    """The rows of old shards that an earlier erase took out, as the receipts of the new ones tell.

    Of shards that were given up and not written anew its entry tells, unless they are too many. So
    whatever was made of them and is still there is found, also if that erase was stopped.
    """
    found: Rows = {}
    for relation in _of_operation(history, ERASE):
        if isinstance(relation, Aligned) and relation.gone:
            found[relation.first] = rows_of(relation.gone)
    for one in history.versions.values():
        for entry in one.entries:
            if entry.operation == ERASE:
                older = entry.parameters.get("older", {})
                found |= {name: rows_of(spans) for name, spans in older.items()}
    return found


def relations_of(history: DatasetHistory) -> list[Relation]:
    """All that the logs of a dataset tell."""
    return list(_of_operation(history, None))


def _of_operation(history: DatasetHistory, operation: str | None) -> Iterator[Relation]:
    pending: list[tuple[Shard, Shard]] = []
    for one in history.versions.values():
        for entry in one.entries:
            if not entry.added or operation not in {None, entry.operation}:
                continue
            yield from _laid(history, one, entry)
            yield from pairs_of(history, entry)
            pending += _one_by_one(history, entry)
    yield from aligned(history, pending)


def _one_by_one(history: DatasetHistory, entry: Entry) -> Iterator[tuple[Shard, Shard]]:
    """Shards that an entry adds, with the one that each is made of."""
    of = list(entry.bases)
    if entry.operation == "repair" and not entry.parameters.get("lost_records"):
        of = list(entry.removed)
    for place, one in enumerate(entry.added):
        shard = one.shard
        if shard.base is not None and shard.base.name in history.shards:
            yield history.shards[shard.base.name], shard
        if place < len(of) and (shard.base is None or of[place] != shard.base.name):
            first = history.shards.get(of[place])
            if first is not None:
                yield first, shard


def aligned(history: DatasetHistory, pairs: Sequence[tuple[Shard, Shard]]) -> Iterator[Relation]:
    """Each two as they stand to each other; where some are missing, a receipt must tell which.

    The second of each two is of this dataset, the first may be of another. Raises
    SidecarMismatchError for a receipt that differs from the committed one.
    """
    cut = [pair for pair in pairs if pair[0].records != pair[1].records]
    for first, second in pairs:
        if first.records == second.records:
            yield Aligned(first.name, second.name)
    contents = _read_receipts(history, [second.name for _, second in cut])
    for first, second in cut:
        receipt = parse_receipt(contents[second.name])
        if receipt is None or receipt.first:
            continue
        if first.records - receipt.refused_rows == second.records:
            yield Aligned(first.name, second.name, receipt.refused)


def _read_receipts(history: DatasetHistory, shards: Sequence[str]) -> dict[str, bytes | None]:
    """Read the receipts of shards; raises SidecarMismatchError for one that was not committed."""
    by_owner: dict[str, list[str]] = {}
    for shard in shards:
        by_owner.setdefault(history.owner(shard).name, []).append(shard)
    found: dict[str, bytes | None] = {}
    for names in by_owner.values():
        receipts = [f"{name}{RECEIPT}" for name in names]
        contents = history.owner(names[0]).sidecars.read(receipts)
        found |= dict(zip(names, contents, strict=True))
    return found


def _laid(history: DatasetHistory, one: VersionHistory, entry: Entry) -> Iterator[Relation]:
    """What a rebuild laid out anew, in place or in another version."""
    if entry.operation != "rebuild":
        return
    if not entry.inputs:
        before = [one.shards[name] for name in entry.removed]
        after = [added.shard for added in entry.added]
    else:
        base = history.of_input(entry.inputs[0])
        if base is None or entry.inputs[0].snapshot > base.version.state.snapshot:
            return
        before = list(base.listed(entry.inputs[0].snapshot))
        after = list(one.listed(entry.snapshot))
    yield from laid_out(before, after, entry)


def laid_out(before: Sequence[Shard], after: Sequence[Shard], entry: Entry) -> Iterator[Laid]:
    """Where the records stand in the shards that an entry adds, and stood before."""
    if sum(shard.records for shard in before) != sum(shard.records for shard in after):
        return
    new = {added.shard.name for added in entry.added}
    placed = [place for place in _placed(after) if place[0] in new]
    if placed:
        low, high = placed[0][1], placed[-1][2]
        old = [place for place in _placed(before) if place[2] > low and place[1] < high]
        yield Laid(tuple(old), tuple(placed))


def _placed(shards: Sequence[Shard]) -> list[tuple[str, int, int]]:
    """Shards with the first row of each, and that behind its last."""
    ends = list(accumulate((shard.records for shard in shards), initial=0))
    return [(shard.name, ends[at], ends[at + 1]) for at, shard in enumerate(shards)]
