"""Retention: shards that no retained snapshot contains."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from shardline.log.snapshot_history import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from numpy.typing import NDArray

    from shardline.log.entry import Entry
    from shardline.log.model import Ref
    from shardline.log.state import State


def find_recently_unreferenced(
    state: State, now: datetime, retention: timedelta, released: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the snapshots that were released less than `retention` ago, in order.

    `released` replaces the times of the entries, if more exact times are known. A retention of 0
    retains none, whatever the clocks say.
    """
    if not retention:
        return np.empty(0, np.int64)
    times = state.snapshot_history.column("released") if released is None else released
    return np.flatnonzero(times > to_microseconds(now - retention)) + 1


def find_retained(
    state: State,
    now: datetime,
    retention: timedelta,
    *,
    ignored_pins: Collection[str] = (),
    released: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the retained snapshots, in order.

    They are the latest, the latest published, those with a tag or pin, and those that were one of
    these until less than `retention` ago.
    """
    young = find_recently_unreferenced(state, now, retention, released)
    pins = (pin for name, pin in state.pins.items() if name not in ignored_pins)
    refs = (*state.tags.values(), *pins)
    referenced = [ref.snapshot for ref in refs if ref.snapshot is not None]
    current = [number for number in (state.snapshot, state.published) if number]
    return np.unique(np.concatenate([young, np.array([*referenced, *current], np.int64)]))


def find_unreferenced(
    state: State,
    now: datetime,
    retention: timedelta,
    *,
    ignored_pins: Collection[str] = (),
    released: NDArray[np.int64] | None = None,
) -> set[str]:
    """Return the shards of earlier snapshots that no retained snapshot contains.

    Pins in `ignored_pins` retain no snapshot.
    """
    numbers = find_retained(state, now, retention, ignored_pins=ignored_pins, released=released)
    since, until = state.shard_history.column("since"), state.shard_history.column("until")
    inside = np.searchsorted(numbers, until, "left") > np.searchsorted(numbers, since, "left")
    names = state.shard_history.names().to_pylist()
    retained = {name for name, is_live in zip(names, inside.tolist(), strict=True) if is_live}
    return set(names) - retained


CLOCK_SLACK = timedelta(minutes=5)
"""Difference from which a clock counts as wrong."""
_SLACK = CLOCK_SLACK // timedelta(microseconds=1)


class ReleaseTimes:
    """Last release time of each snapshot of a version, and the times of all entries."""

    def __init__(self) -> None:
        self._times: list[int] = [0]
        self._first: list[int] = [0]
        self._stored: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        self._head = 0
        self._published: int | None = None
        self._refs: dict[tuple[str, str], int] = {}

    def note_stored(self, entry: int, modified: datetime) -> None:
        """Record when the store wrote the file of an entry."""
        self._stored[entry] = to_microseconds(modified)

    def take(self, entry: Entry) -> None:
        """Add the next entry."""
        time = to_microseconds(entry.time)
        copied = time == self._times[-1]
        self._first.append(self._first[-1] if copied else entry.number)
        self._times.append(time)
        for snapshot in self._list_released(entry):
            self._entries[snapshot] = entry.number

    def _list_released(self, entry: Entry) -> Iterable[int]:
        if entry.changes_data and self._head:
            yield self._head
        self._head = entry.snapshot
        for kind, ref in (("tag", entry.tag), ("pin", entry.pin)):
            yield from self._move_ref(kind, ref)
        if self._published is not None and entry.published != self._published:
            yield self._published
        self._published = entry.published

    def _move_ref(self, kind: str, ref: Ref | None) -> Iterable[int]:
        if ref is None:
            return
        before = self._refs.pop((kind, ref.name), None)
        if before is not None:
            yield before
        if ref.snapshot is not None:
            self._refs[kind, ref.name] = ref.snapshot

    def column(self, state: State, now: datetime, *, erased: bool = False) -> NDArray[np.int64]:
        """Return when each snapshot was last released, in microseconds; 0 if never.

        A snapshot that was released after the last added entry keeps the time of its entry. With
        `erased`, times of a clock that was ahead are ignored.
        """
        released: NDArray[np.int64] = state.snapshot_history.column("released").copy()
        present = to_microseconds(now)
        for snapshot, entry in self._entries.items():
            if released[snapshot - 1] == self._times[entry]:
                released[snapshot - 1] = self._get_commit_time(entry, present, erased=erased)
        if erased:
            released[released > present + _SLACK] = 0
        return released

    def _get_commit_time(self, entry: int, present: int, *, erased: bool) -> int:
        """Return the latest plausible time at which an entry was committed."""
        recorded, stored = self._times[entry], self._stored.get(entry)
        if stored is None or stored > present + _SLACK:
            return recorded  # Unknown to the store, or its own clock is wrong.
        copied = self._first[entry] != entry
        if (copied or erased) and self._is_ahead(self._first[entry], present):
            return stored
        return max(recorded, stored)

    def _is_ahead(self, entry: int, present: int) -> bool:
        """Return True if the clock of an entry was ahead."""
        recorded, stored = self._times[entry], self._stored.get(entry)
        return recorded > present or (stored is not None and stored + _SLACK < recorded)
