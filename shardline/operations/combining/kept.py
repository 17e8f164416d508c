"""What the shards of a combination cover, read back from the entries that they landed with.

An entry of a combination tells its rule, and for each shard that it adds, in the same order, what
that covers: `outputs`, by the places of shards in the snapshots that are its two `inputs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import LogError
from shardline.log.version import Version
from shardline.operations.combining.plan import Cover

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.facts import Input, Json, Shard
    from shardline.log.state import State
    from shardline.operations.combining.plan import Covered
    from shardline.operations.derive import Origin

OPERATION = "combine"


@dataclass(frozen=True, slots=True)
class _Told:
    """What an entry tells: what its shards cover, and where the shards of its inputs are now."""

    covers: dict[str, Cover]
    left: IntArray
    right: IntArray


def keep(
    into: Version,
    state: State,
    origins: tuple[Origin, Origin],
    told: Json,
    covered: Covered,
    *,
    matched: bool,
) -> list[Shard]:
    """The shards of the head that still cover what is wanted, in order; noted in `covered`.

    Those that failed a check, of an entry that does not tell the same, or made of a shard that is
    gone, are not among them. If records are `matched`, the right must be what it was, all of it.
    """
    if not state.snapshot:
        return []
    reading = _Reading(into, origins, told)
    whole = len(covered.grid.right) if matched else None
    kept = []
    for stay in state.stays.at(state.snapshot):
        if stay.failed:
            continue
        entry = reading.entry(stay.landed)
        cover = None if entry is None else entry.covers.get(stay.shard.name)
        if entry is None or cover is None:
            continue
        if whole is None:
            fits = covered.add(cover, entry.left, entry.right)
        else:
            fits = _all_of(entry.right, cover, whole) and covered.add_rows(cover, entry.left)
        kept += [stay.shard] if fits else []
    return kept


def _all_of(right: IntArray, cover: Cover, count: int) -> bool:
    """Whether what was matched with was just the shards that there are on the right."""
    return cover.right == (0, count) and np.array_equal(right, np.arange(count))


class _Reading:
    """Entries of a combination, each read once."""

    def __init__(self, into: Version, origins: tuple[Origin, Origin], told: Json) -> None:
        self._into = into
        self._told = told
        self._origins = origins
        self._now = [
            {(shard.name, shard.content): at for at, shard in enumerate(origin.snapshot.shards)}
            for origin in origins
        ]
        self._entries: dict[int, _Told | None] = {}

    def entry(self, number: int) -> _Told | None:
        """What an entry tells, None if that is of no use."""
        if number not in self._entries:
            self._entries[number] = self._read(self._into.log.entry(number))
        return self._entries[number]

    def _read(self, entry: Entry) -> _Told | None:
        """What an entry tells, if it is one of the same combination."""
        outputs = entry.parameters.get("outputs")
        if (
            entry.operation != OPERATION
            or not self._told.items() <= entry.parameters.items()
            or len(entry.inputs) != len(self._origins)
            or not isinstance(outputs, list)
            or len(outputs) != len(entry.added)
        ):
            return None
        left, right = (
            self._places(told, origin, now)
            for told, origin, now in zip(entry.inputs, self._origins, self._now, strict=True)
        )
        if left is None or right is None:
            return None
        names = (one.shard.name for one in entry.added)
        try:
            covers = dict(zip(names, map(Cover.from_json, outputs), strict=True))
        except ValueError:
            return None
        listed = covers.values()
        outside = any(one.left[1] > len(left) or one.right[1] > len(right) for one in listed)
        return None if outside else _Told(covers, left, right)

    def _places(
        self, told: Input, origin: Origin, now: dict[tuple[str, str], int]
    ) -> IntArray | None:
        """Where the shards of an input are in that of today; None if it is of another dataset."""
        version = origin.version
        if told.dataset != version.log.dataset:
            return None
        name = told.shown
        if name != version.name:
            version = Version(version.store, name)
        try:
            snapshot = version.snapshot(told.snapshot)
        except LogError:
            return None
        if version.log.entry(snapshot.entry).digest != told.entry:
            return None
        places = (now.get((shard.name, shard.content), -1) for shard in snapshot.shards)
        return np.fromiter(places, np.int64, len(snapshot.shards))
