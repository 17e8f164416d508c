"""Restore an old snapshot, or see beforehand what that would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline import __version__
from shardline.log.changes import Restore
from shardline.log.facts import Maker
from shardline.log.next_entry import next_entry
from shardline.log.snapshot import diff
from shardline.log.version import utc_now

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.log.snapshot import Snapshot, SnapshotDiff
    from shardline.log.version import Version


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What restoring a snapshot did, or would do with `dry_run`.

    `entry` is None where the head held the same already. `diff` is from the head as it was to the
    snapshot that was restored.
    """

    restored: Snapshot
    diff: SnapshotDiff
    entry: Entry | None
    dry_run: bool

    @property
    def published(self) -> bool:
        """Whether the new head is published at once."""
        return self.entry is not None and self.entry.published == self.entry.snapshot


def restore_version(version: Version, which: str, *, dry_run: bool = False) -> RestoreReport:
    """Make an old snapshot the head as a new one. Raises ConflictError if vacuum took a shard."""
    restored, head = version.find(which), version.newest()
    if dry_run:
        made = next_entry(
            version.state,
            Restore(restored.number, head.number),
            id="",
            now=utc_now(),
            maker=Maker(__version__),
        )
        entry = made[1] if made else None
    else:
        entry = version.restore(restored.number, head=head.number)
    return RestoreReport(restored, diff(head, restored), entry, dry_run)
