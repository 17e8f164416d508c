"""Retention: shards that no retained snapshot contains."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from shardline.log.snapshot_history import microseconds

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

    `released` are better times than those of the entries, if known. Without a time to keep there
    are none, whatever the clocks say.
    """
    if not retention:
        return np.empty(0, np.int64)
    times = state.snapshot_history.column("released") if released is None else released
    return np.flatnonzero(times > microseconds(now - retention)) + 1


def find_retained(
    state: State,
    now: datetime,
    retention: timedelta,
    *,
    but: Collection[str] = (),
    released: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The snapshots that are kept, in order.

    They are the head, the newest published one, those with a tag or pin, and those that were one
    of these until less than `retention` ago. The pins in `but` do not count.
    """
    young = find_recently_unreferenced(state, now, retention, released)
    pins = (pin for name, pin in state.pins.items() if name not in but)
    holds = (*state.tags.values(), *pins)
    held = [hold.snapshot for hold in holds if hold.snapshot is not None]
    now_in_use = [number for number in (state.snapshot, state.published) if number]
    return np.unique(np.concatenate([young, np.array([*held, *now_in_use], np.int64)]))


def find_unreferenced(
    state: State,
    now: datetime,
    retention: timedelta,
    *,
    but: Collection[str] = (),
    released: NDArray[np.int64] | None = None,
) -> set[str]:
    """The shards that were in the list once and are in no snapshot that is kept.

    Snapshots that only the pins in `but` hold are not kept.
    """
    numbers = find_retained(state, now, retention, but=but, released=released)
    since, until = state.shard_history.column("since"), state.shard_history.column("until")
    inside = np.searchsorted(numbers, until, "left") > np.searchsorted(numbers, since, "left")
    names = state.shard_history.names().to_pylist()
    kept = {name for name, is_kept in zip(names, inside.tolist(), strict=True) if is_kept}
    return set(names) - kept


CLOCK_SLACK = timedelta(minutes=5)
"""Difference of two clocks from which one counts as wrong."""
_SLACK = CLOCK_SLACK // timedelta(microseconds=1)


class ReleaseTimes:
    """The last release of each snapshot of a version, and the times of all entries."""

    def __init__(self) -> None:
        self._times: list[int] = [0]
        self._first: list[int] = [0]
        self._stored: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        self._head = 0
        self._published: int | None = None
        self._holds: dict[tuple[str, str], int] = {}

    def note_stored(self, entry: int, modified: datetime) -> None:
        """Record when the store wrote the file of an entry."""
        self._stored[entry] = microseconds(modified)

    def take(self, entry: Entry) -> None:
        """Add the next entry."""
        time = microseconds(entry.time)
        copied = time == self._times[-1]
        self._first.append(self._first[-1] if copied else entry.number)
        self._times.append(time)
        for snapshot in self._released_by(entry):
            self._entries[snapshot] = entry.number

    def _released_by(self, entry: Entry) -> Iterable[int]:
        if entry.changes_data and self._head:
            yield self._head
        self._head = entry.snapshot
        for kind, hold in (("tag", entry.tag), ("pin", entry.pin)):
            yield from self._moved(kind, hold)
        if self._published is not None and entry.published != self._published:
            yield self._published
        self._published = entry.published

    def _moved(self, kind: str, hold: Ref | None) -> Iterable[int]:
        if hold is None:
            return
        before = self._holds.pop((kind, hold.name), None)
        if before is not None:
            yield before
        if hold.snapshot is not None:
            self._holds[kind, hold.name] = hold.snapshot

    def column(self, state: State, now: datetime, *, erased: bool = False) -> NDArray[np.int64]:
        """Return when each snapshot was last released, in microseconds; 0 if never.

        A snapshot that was released after the last entry taken here keeps the time of its entry.
        With `erased`, the time of a clock that was ahead does not count.
        """
        released: NDArray[np.int64] = state.snapshot_history.column("released").copy()
        present = microseconds(now)
        for snapshot, entry in self._entries.items():
            if released[snapshot - 1] == self._times[entry]:
                released[snapshot - 1] = self._time(entry, present, erased=erased)
        if erased:
            released[released > present + _SLACK] = 0
        return released

    def _time(self, entry: int, present: int, *, erased: bool) -> int:
        """Return when an entry was committed, as late as any clock that can be right says."""
        told, stored = self._times[entry], self._stored.get(entry)
        if stored is None or stored > present + _SLACK:
            return told  # The store does not know, or its own clock is wrong.
        copied = self._first[entry] != entry
        if (copied or erased) and self._is_ahead(self._first[entry], present):
            return stored
        return max(told, stored)

    def _is_ahead(self, entry: int, present: int) -> bool:
        """Return True if the clock that an entry's time is from was ahead."""
        told, stored = self._times[entry], self._stored.get(entry)
        return told > present or (stored is not None and stored + _SLACK < told)
