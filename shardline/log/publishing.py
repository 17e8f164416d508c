"""Which snapshots are published, and what keeps the others from it.

A snapshot is published if every shard in it passed each shard check, none of its shards came in
with a rejected snapshot or went to vacuum, it passed each snapshot check itself, was not rejected,
and is not empty. The latest attestation counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardline.log.state import MAX_CHECKS, RESERVED_CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from shardline.log.state import State


def newest_published(state: State) -> int | None:
    """The newest published snapshot, None if there is none: one pass over the history."""
    published = np.flatnonzero(are_published(state))
    return int(published[-1]) + 1 if len(published) else None


def are_published(state: State) -> NDArray[np.bool_]:
    """For each snapshot, 1 at place 0, whether it is published."""
    timeline = state.timeline
    good: NDArray[np.bool_] = (timeline.column("rejected") == 0) & (timeline.column("shards") > 0)
    ends = [policy.since for policy in state.policies[1:]] + [len(good) + 1]
    for policy, end in zip(state.policies, ends, strict=True):
        span = slice(policy.since - 1, end - 1)
        needed = _bits(state, policy.checks.snapshot)
        good[span] &= (timeline.column("passed")[span] & needed) == needed
        blocked = _blocked(state, _bits(state, policy.checks.shard), len(good))
        good[span] &= ~blocked[span]
    return good


def _blocked(state: State, needed: np.uint32, snapshots: int) -> NDArray[np.bool_]:
    """The snapshots that hold a shard which did not pass, by counting stays in and out."""
    stays = state.stays
    reserved = _bits(state, RESERVED_CHECKS)
    bad = ((stays.column("passed") & needed) != needed) | ((stays.column("failed") & reserved) != 0)
    since = stays.column("since")[bad]
    until = np.minimum(stays.column("until")[bad], snapshots + 1)
    change = np.bincount(since, minlength=snapshots + 2) - np.bincount(
        until, minlength=snapshots + 2
    )
    inside: NDArray[np.bool_] = np.cumsum(change)[1 : snapshots + 1] > 0
    return inside


def _bits(state: State, checks: Iterable[str]) -> np.uint32:
    """The set of checks as bits; one that was never attested has a bit that nothing can have."""
    bits = 0
    for check in checks:
        bits |= 1 << state.bits.get(check, MAX_CHECKS)
    return np.uint32(bits)


def is_published(state: State, number: int) -> bool:
    """Whether one snapshot is published."""
    return bool(are_published(state)[number - 1])
