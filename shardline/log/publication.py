"""Published snapshots, computed from all columns at once or tracked entry by entry.

`list_published` computes them from the columns of a state. `PublicationTracker` counts the blocking
shards of each snapshot, and a check result updates the counts of the snapshots that contain the
shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardline.log.state import MAX_CHECKS, RESERVED_CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from shardline.log.model import Checks, Shard, Totals
    from shardline.log.state import State
    from shardline.log.version import StoredVersion


_RESERVED = (1 << len(RESERVED_CHECKS)) - 1
_RECENT = 8


class ReplayedShard:
    """A shard in the snapshots [since, until), with its check results."""

    __slots__ = (
        *("added_entry", "ever_passed", "failed", "failed_entry", "passed", "shard", "since"),
        "until",
    )

    def __init__(self, shard: Shard, since: int, until: int, added_entry: int) -> None:
        self.shard = shard
        self.since = since
        self.until = until
        self.added_entry = added_entry
        self.passed = self.failed = self.ever_passed = self.failed_entry = 0

    def reopen(self, since: int, until: int) -> ReplayedShard:
        """Return another interval of the shard, with the same check results."""
        other = ReplayedShard(self.shard, since, until, self.added_entry)
        other.passed, other.failed = self.passed, self.failed
        other.ever_passed, other.failed_entry = self.ever_passed, self.failed_entry
        return other


class ReplayedSnapshot:
    """A snapshot with its check results, and the digest of its entry.

    `published` is the entry that first published it as the latest, 0 for none.
    """

    __slots__ = (
        *("content", "digest", "entry", "failed", "failed_entry", "number", "parent", "passed"),
        *("published", "rejected", "time", "totals", "unreferenced"),
    )

    def __init__(self, number: int, entry: int, time: datetime) -> None:
        self.number = number
        self.entry = entry
        self.time = time
        self.totals: Totals
        self.content = self.digest = ""
        self.unreferenced: datetime | None = None
        self.parent = self.rejected = self.published = 0
        self.passed = self.failed = self.failed_entry = 0


class _Policy:
    """Checks that snapshots from `since` on need, as bits."""

    __slots__ = ("checks", "of_shards", "of_snapshots", "since")

    def __init__(self, since: int, checks: Checks) -> None:
        self.since = since
        self.checks = checks
        self.of_shards = self.of_snapshots = 0


class PublicationTracker:
    """Tracker of published snapshots. `bits` has the bit of each attested check."""

    def __init__(self, bits: Mapping[str, int], snapshots: Sequence[ReplayedSnapshot]) -> None:
        self._bits = bits
        self._known = 0
        self._snapshots = snapshots
        self._policies: list[_Policy] = []
        self._bad = np.zeros(64, np.int32)
        self._live_bad: int | None = 0

    def require(self, since: int, checks: Checks) -> None:
        """Set the checks of snapshots from `since` on."""
        self._policies.append(_Policy(since, checks))
        self._known = 0
        self._live_bad = None

    def add_shards(self, rows: Iterable[ReplayedShard]) -> None:
        """Count shards that were added at the end."""
        self._catch_up()
        if self._live_bad is not None and self._policies:
            needed = self._policies[-1].of_shards
            self._live_bad += sum(not _is_good(row, needed) for row in rows)

    def reset_count(self) -> None:
        """Reset the count of the changed list."""
        self._live_bad = None

    def add_snapshot(self, number: int, live: Sequence[ReplayedShard]) -> None:
        """Add a snapshot with these shards."""
        self._catch_up()
        if self._live_bad is None:
            needed = self._policies[-1].of_shards if self._policies else 0
            self._live_bad = sum(not _is_good(row, needed) for row in live)
        if number > len(self._bad):
            self._bad = np.concatenate([self._bad, np.zeros_like(self._bad)])
        self._bad[number - 1] = self._live_bad

    def update_shard(self, row: ReplayedShard, passed: int, failed: int) -> None:
        """Update the counts for a shard that had the bits `passed` and `failed`."""
        self._catch_up()
        head = len(self._snapshots)
        end = min(row.until, head + 1)
        next_since = head + 1
        for policy in reversed(self._policies):
            needed = policy.of_shards
            was_good = (passed & needed) == needed and not failed & _RESERVED
            first, last = max(row.since, policy.since), min(end, next_since)
            if was_good != _is_good(row, needed):
                change = 1 if was_good else -1
                if last - first == 1:
                    self._bad[first - 1] += change
                elif last > first:
                    self._bad[first - 1 : last - 1] += change
                if policy is self._policies[-1] and row.until > head and self._live_bad is not None:
                    self._live_bad += change
            next_since = min(next_since, policy.since)
            if row.since >= policy.since:
                return

    def latest(self) -> int | None:
        """Return the latest published snapshot; None if there is none."""
        self._catch_up()
        head = len(self._snapshots)
        for number in range(head, max(0, head - _RECENT), -1):
            if self.is_published(number):
                return number
        rest = self._bad[: max(0, head - _RECENT)]
        for index in np.flatnonzero(rest == 0)[::-1].tolist():
            if self.is_published(index + 1):
                return int(index) + 1
        return None

    def is_published(self, number: int) -> bool:
        """Return True if a snapshot is published."""
        if self._known != len(self._bits):
            self._catch_up()
        row = self._snapshots[number - 1]
        if self._bad[number - 1] or row.rejected or not row.totals.shards:
            return False
        for policy in reversed(self._policies):
            if policy.since <= number:
                return (row.passed & policy.of_snapshots) == policy.of_snapshots
        return True

    def _catch_up(self) -> None:
        """Update the bits. A check that was never attested has a bit that no row has."""
        if self._known == len(self._bits):
            return
        self._known = len(self._bits)
        for policy in self._policies:
            policy.of_shards = self._encode(policy.checks.shard)
            policy.of_snapshots = self._encode(policy.checks.snapshot)

    def _encode(self, checks: Iterable[str]) -> int:
        needed = 0
        for check in checks:
            needed |= 1 << self._bits.get(check, MAX_CHECKS)
        return needed


def _is_good(row: ReplayedShard, needed: int) -> bool:
    return (row.passed & needed) == needed and not row.failed & _RESERVED


def find_latest_published(state: State) -> int | None:
    """Return the latest published snapshot; None if there is none. Reads the whole history."""
    published = np.flatnonzero(list_published(state))
    return int(published[-1]) + 1 if len(published) else None


def list_published(state: State) -> NDArray[np.bool_]:
    """Return True for each published snapshot, from 1 on."""
    snapshots = state.snapshot_history
    good: NDArray[np.bool_] = (snapshots.column("rejected") == 0) & (snapshots.column("shards") > 0)
    ends = [policy.since for policy in state.policies[1:]] + [len(good) + 1]
    for policy, end in zip(state.policies, ends, strict=True):
        span = slice(policy.since - 1, end - 1)
        needed = _encode_checks(state, policy.checks.snapshot)
        good[span] &= (snapshots.column("passed")[span] & needed) == needed
        blocked = _find_blocked(state, _encode_checks(state, policy.checks.shard), len(good))
        good[span] &= ~blocked[span]
    return good


def _find_blocked(state: State, needed: np.uint32, snapshots: int) -> NDArray[np.bool_]:
    """Return the snapshots with a blocking shard, by counting intervals in and out."""
    intervals = state.shard_history
    reserved = _encode_checks(state, RESERVED_CHECKS)
    bad = ((intervals.column("passed") & needed) != needed) | (
        (intervals.column("failed") & reserved) != 0
    )
    since = intervals.column("since")[bad]
    until = np.minimum(intervals.column("until")[bad], snapshots + 1)
    change = np.bincount(since, minlength=snapshots + 2) - np.bincount(
        until, minlength=snapshots + 2
    )
    inside: NDArray[np.bool_] = np.cumsum(change)[1 : snapshots + 1] > 0
    return inside


def _encode_checks(state: State, checks: Iterable[str]) -> np.uint32:
    """Return checks as bits. A check that was never attested has a bit that no row has."""
    bits = 0
    for check in checks:
        bits |= 1 << state.bits.get(check, MAX_CHECKS)
    return np.uint32(bits)


def is_published(state: State, number: int) -> bool:
    """Return True if a snapshot is published."""
    return bool(list_published(state)[number - 1])


def has_check(version: StoredVersion, bits: int, check: str) -> bool:
    """Return True if the bits of a shard or a snapshot contain a check."""
    bit = version.state.bits.get(check)
    return bit is not None and bool(bits >> bit & 1)
