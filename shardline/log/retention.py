"""Which shards may go: those that no snapshot worth keeping has held for long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardline.log.timeline import microseconds

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    from numpy.typing import NDArray

    from shardline.log.state import State


def recently_released(
    state: State, now: datetime, keep: timedelta, released: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the snapshots that were released less than `keep` ago, in order.

    `released` are better times than those of the entries, if known. Without a time to keep there
    are none, whatever the clocks say.
    """
    if not keep:
        return np.empty(0, np.int64)
    times = state.timeline.column("released") if released is None else released
    return np.flatnonzero(times > microseconds(now - keep)) + 1


def retained(
    state: State,
    now: datetime,
    keep: timedelta,
    *,
    but: Collection[str] = (),
    released: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The snapshots that are kept, in order.

    They are the head, the newest published one, those with a tag or pin, and those that were one
    of these until less than `keep` ago. The pins in `but` do not count.
    """
    young = recently_released(state, now, keep, released)
    pins = (pin for name, pin in state.pins.items() if name not in but)
    holds = (*state.tags.values(), *pins)
    held = [hold.snapshot for hold in holds if hold.snapshot is not None]
    now_in_use = [number for number in (state.snapshot, state.published) if number]
    return np.unique(np.concatenate([young, np.array([*held, *now_in_use], np.int64)]))


def unreferenced(
    state: State,
    now: datetime,
    keep: timedelta,
    *,
    but: Collection[str] = (),
    released: NDArray[np.int64] | None = None,
) -> set[str]:
    """The shards that were in the list once and are in no snapshot that is kept.

    Snapshots that only the pins in `but` hold are not kept.
    """
    numbers = retained(state, now, keep, but=but, released=released)
    since, until = state.stays.column("since"), state.stays.column("until")
    inside = np.searchsorted(numbers, until, "left") > np.searchsorted(numbers, since, "left")
    names = state.stays.names().to_pylist()
    kept = {name for name, is_kept in zip(names, inside.tolist(), strict=True) if is_kept}
    return set(names) - kept
