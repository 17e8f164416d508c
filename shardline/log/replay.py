"""Replay of a log that recomputes the claims of each entry.

`State` keeps columns and folds pending edits on access. A replay accesses the histories after every
entry, so its histories are lists. An entry costs what it changes, regardless of the log's length.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shardline.errors import CorruptLogError
from shardline.log.changes import may_publish
from shardline.log.model import Totals
from shardline.log.publication import PublicationTracker, ReplayedShard, ReplayedSnapshot
from shardline.log.shard_history import LIVE
from shardline.log.state import (
    REJECTION,
    RESTORING_OPERATIONS,
    VACUUM,
    LogState,
    content_digest,
    validate_next_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from shardline.log.entry import Entry
    from shardline.log.model import Added, Shard


class _ShardList:
    """Shard history as lists, with content digest and totals of the latest snapshot.

    `live` are the shards of the latest snapshot, `rows` all intervals, `named` the same by name.
    """

    def __init__(self, publication: PublicationTracker) -> None:
        self.live: list[ReplayedShard] = []
        self.rows: list[ReplayedShard] = []
        self.named: dict[str, list[ReplayedShard]] = {}
        self.fingerprint: str | None = None
        self.totals = Totals()
        self.content: str | None = None
        self._publication = publication
        self._digests: list[bytes] = []

    def append(self, snapshot: int, entry: int, shards: Sequence[Shard]) -> None:
        """Add shards at the end."""
        rows = [ReplayedShard(shard, snapshot, LIVE, entry) for shard in shards]
        self._add(rows)
        self.live += rows
        self._update_totals(len(self.live) - len(rows))
        self._publication.add_shards(rows)

    def relist(
        self,
        snapshot: int,
        entry: int,
        added: tuple[Added, ...],
        removed: Iterable[str],
        *,
        restored: bool,
        version: str,
    ) -> None:
        """Remove shards and insert others; `restored` ones keep their check results."""
        leaving = set(removed)
        after: list[ReplayedShard | Shard] = [
            row for row in self.live if row.shard.name not in leaving
        ]
        if len(self.live) - len(after) != len(leaving):
            raise CorruptLogError(version, entry, "it removes shards that are not live")
        for item in sorted(added, key=lambda item: LIVE if item.at is None else item.at):
            known = self.named.get(item.shard.name) if restored else None
            row: ReplayedShard | Shard = known[-1] if known else item.shard
            after.insert(len(after) if item.at is None else item.at, row)
        same = 0
        while same < min(len(self.live), len(after)) and after[same] is self.live[same]:
            same += 1
        for ended in self.live[same:]:
            ended.until = snapshot
        rows = [
            row.reopen(snapshot, LIVE)
            if isinstance(row, ReplayedShard)
            else ReplayedShard(row, snapshot, LIVE, entry)
            for row in after[same:]
        ]
        self._add(rows)
        is_appended = same == len(self.live)
        self.live[same:] = rows
        self._update_totals(same)
        if is_appended:
            self._publication.add_shards(rows)
        else:
            self._publication.reset_count()

    def mark(self, entry: int, names: Sequence[str], bit: int, *, passed: bool) -> None:
        """Record a check result of shards that were added before."""
        for name in names:
            for row in self.named.get(name, ()):
                if row.added_entry >= entry:
                    continue
                old = row.passed, row.failed
                new = _mark(row, bit, passed=passed)
                if passed:
                    row.ever_passed |= 1 << bit
                else:
                    row.failed_entry = entry
                if new != old:
                    row.passed, row.failed = new
                    self._publication.update_shard(row, *old)

    def _add(self, rows: Sequence[ReplayedShard]) -> None:
        self.rows += rows
        for row in rows:
            self.named.setdefault(row.shard.name, []).append(row)

    def _update_totals(self, same: int) -> None:
        """Recompute digest and totals, of a list whose first `same` shards are unchanged."""
        digests = self._digests
        if same < len(digests):
            del digests[same:]
            self.totals = Totals.of([row.shard for row in self.live])
        else:
            self.totals += Totals.of([row.shard for row in self.live[same:]])
        last = digests[-1] if digests else bytes.fromhex(content_digest(self.fingerprint, ()))
        for row in self.live[same:]:
            shard = row.shard
            base = b"" if shard.base is None else bytes.fromhex(shard.base.sha256)
            last = hashlib.sha256(last + bytes.fromhex(shard.sha256) + base).digest()
            digests.append(last)
        self.content = last.hex()


class _SnapshotList:
    """Snapshot history as a list."""

    def __init__(self) -> None:
        self.rows: list[ReplayedSnapshot] = []
        self.by_content: dict[str, list[ReplayedSnapshot]] = {}

    def add(
        self,
        entry: int,
        time: datetime,
        totals: Totals,
        content: str,
        *,
        parent: int,
        restored: bool,
    ) -> None:
        """Add a snapshot; a `restored` content keeps its check results."""
        row = ReplayedSnapshot(len(self.rows) + 1, entry, time)
        row.totals, row.content, row.parent = totals, content, parent
        same = self.by_content.setdefault(content, [])
        if same and restored:
            other = same[-1]
            row.passed, row.failed, row.failed_entry = (
                other.passed,
                other.failed,
                other.failed_entry,
            )
        same.append(row)
        self.rows.append(row)

    def release(self, number: int, time: datetime) -> None:
        """Record when a snapshot lost a reference."""
        self.rows[number - 1].unreferenced = time

    def reject(self, number: int, entry: int) -> None:
        """Record that a snapshot was rejected."""
        self.rows[number - 1].rejected = entry

    def mark(self, entry: int, content: str, bit: int, *, passed: bool) -> None:
        """Record a check result of all snapshots with a content."""
        for row in self.by_content.get(content, ()):
            row.passed, row.failed = _mark(row, bit, passed=passed)
            row.failed_entry = row.failed_entry if passed else entry


def _mark(row: ReplayedShard | ReplayedSnapshot, bit: int, *, passed: bool) -> tuple[int, int]:
    flag = 1 << bit
    if passed:
        return row.passed | flag, row.failed & ~flag
    return row.passed & ~flag, row.failed | flag


class Replay(LogState):
    """State of a log that checks the claims of each entry.

    `publication` has the published snapshots.
    """

    shard_history: _ShardList
    snapshot_history: _SnapshotList

    def __init__(self, dataset: str, version: str) -> None:
        snapshots = _SnapshotList()
        bits = {REJECTION: 0, VACUUM: 1}
        self.publication = PublicationTracker(bits, snapshots.rows)
        super().__init__(
            dataset,
            version,
            bits=bits,
            shard_history=_ShardList(self.publication),
            snapshot_history=snapshots,
        )

    @property
    def live(self) -> list[ReplayedShard]:
        """Shards of the latest snapshot, in order."""
        return self.shard_history.live

    @property
    def rows(self) -> list[ReplayedShard]:
        """Intervals of all shards."""
        return self.shard_history.rows

    @property
    def named(self) -> dict[str, list[ReplayedShard]]:
        """Intervals of each shard."""
        return self.shard_history.named

    @property
    def snapshots(self) -> list[ReplayedSnapshot]:
        """All snapshots."""
        return self.snapshot_history.rows

    def at(self, snapshot: int) -> list[ReplayedShard]:
        """Return the shards of a snapshot, in order."""
        if snapshot == self.snapshot:
            return self.live
        return [row for row in self.rows if row.since <= snapshot < row.until]

    def row_at(self, shard: str, snapshot: int) -> ReplayedShard | None:
        """Return a shard of a snapshot; None if the snapshot does not contain it."""
        rows = self.named.get(shard, ())
        return next((row for row in rows if row.since <= snapshot < row.until), None)

    def has_content(self, content: str) -> bool:
        """Return True if a snapshot ever had this content."""
        return content in self.snapshot_history.by_content

    def take(self, entry: Entry) -> list[str]:
        """Replay the next entry and return its false claims.

        Raises CorruptLogError for an entry that cannot be next. The replay is then unusable.
        """
        validate_next_entry(self, entry)
        false = list(self._list_invalid_shards(entry)) if entry.added else []
        self.apply_changes(entry)
        claims = []
        if entry.totals != self.shard_history.totals:
            claims.append("totals")
        if entry.content != self.shard_history.content:
            claims.append("content")
        if entry.fingerprint != self.shard_history.fingerprint:
            claims.append("fingerprint")
        if entry.changes_data:
            self.add_snapshot(entry)
        self.apply_results(entry)
        published = self.published
        if may_publish(entry, self.checks):
            published = self.publication.latest()
        if entry.published != published:
            claims.append("published")
        self.accept_claims(entry)
        return [
            *false,
            *(f"false claim: {name!r} differs from the replay" for name in claims),
        ]

    def _list_invalid_shards(self, entry: Entry) -> Iterator[str]:
        """List invalid added shards."""
        restored = entry.operation in RESTORING_OPERATIONS
        for item in entry.added:
            shard, known = item.shard, self.named.get(item.shard.name)
            if restored and known and known[-1].shard != shard:
                yield f"restored shard {shard.name} differs from the original"
            if shard.owner != self.version:
                yield f"added shard {shard.name} belongs to another version"
            if (tombstone := self.get_tombstone(shard.name)) is not None:
                yield f"added shard {shard.name} was tombstoned in entry {tombstone}"
            if known and known[-1].until == LIVE and shard.name not in entry.removed:
                yield f"added shard {shard.name} is live already"

    def apply_changes(self, entry: Entry) -> None:
        """Apply what an entry changes."""
        if entry.schema is not None:
            self.shard_history.fingerprint = entry.schema.fingerprint
        if entry.checks is not None:
            self.publication.require(self.snapshot + 1, entry.checks)
        super().apply_changes(entry)

    def add_snapshot(self, entry: Entry) -> None:
        """Add the snapshot of an entry."""
        super().add_snapshot(entry)
        self.snapshots[-1].digest = entry.digest
        self.publication.add_snapshot(self.snapshot, self.live)

    def accept_claims(self, entry: Entry) -> None:
        """Set the state that an entry claims."""
        if entry.published is not None and entry.published != self.published:
            row = self.snapshots[entry.published - 1]
            row.published = row.published or entry.number
        super().accept_claims(entry)
