"""Restore an old snapshot, or see beforehand what that would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import TombstonedShardError
from shardline.log.changes import Restore, build_entry
from shardline.log.model import CommitInfo
from shardline.log.snapshot import diff
from shardline.log.version import DerivedFrom, StoredVersion, refuse_no_version, utc_now
from shardline.provenance.dependencies import (
    list_dependency_layers,
    list_direct_dependencies,
    pin_inputs,
)
from shardline.release import __version__

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.log.snapshot import SnapshotDiff, StoredSnapshot


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What restoring a snapshot did, or would do with `dry_run`.

    `entry` is None where the head held the same already. `diff` is from the head as it was to the
    snapshot that was restored.
    """

    restored: StoredSnapshot
    diff: SnapshotDiff
    entry: Entry | None
    dry_run: bool

    @property
    def published(self) -> bool:
        """Whether the new head is published at once."""
        return self.entry is not None and self.entry.published == self.entry.snapshot


def restore_version(version: StoredVersion, which: str, *, dry_run: bool = False) -> RestoreReport:
    """Make an old snapshot the head as a new one.

    What it is read from in other versions is pinned again. Raises TombstonedShardError, a
    ConflictError, if vacuum took a shard of it or of those.
    """
    refuse_no_version(version=version)
    restored, head = version.find(which), version.latest()
    _validate_dependencies(restored)
    if dry_run:
        made = build_entry(
            version.state,
            Restore(restored.number, head.number),
            id="",
            now=utc_now(),
            maker=CommitInfo(__version__),
        )
        entry = made[1] if made else None
    else:
        _pin_dependencies(version, restored)
        entry = version.restore(restored.number, head=head.number)
    return RestoreReport(restored, diff(head, restored), entry, dry_run)


def _validate_dependencies(snapshot: StoredSnapshot) -> None:
    """Refuse a snapshot that is read from shards of other versions which never come back."""
    gone = [one for one in list_dependency_layers(snapshot) if one.condemned is not None]
    if gone:
        first, more = gone[0], f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
        raise TombstonedShardError(
            f"{snapshot}: shard {first.shard.name} of {first.version}{more} was vacuumed or erased "
            f"(entry {first.condemned})",
            tuple(one.shard.name for one in gone),
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def _pin_dependencies(version: StoredVersion, snapshot: StoredSnapshot) -> None:
    """Pin what a snapshot is read from, and what that is read from: vacuum may have let go of it.

    Of the snapshots that hold it, the newest is pinned which still can be.
    """
    for owner, names in list_direct_dependencies(snapshot).items():
        other = StoredVersion(version.store, owner)
        left = set(names)
        for number in range(other.state.snapshot, 0, -1):
            listed = {stay.shard.name for stay in other.state.stays.at(number)}
            if not listed & left or any(map(other.state.condemned_in, listed)):
                continue
            held = other.snapshot(number)
            pin_inputs(version, [DerivedFrom(other, held)])
            _pin_dependencies(other, held)
            left -= listed
            if not left:
                break
        if left:
            raise TombstonedShardError(
                f"{snapshot}: cannot keep shard {min(left)} of {owner} from vacuum: every snapshot "
                "with it lost other shards",
                tuple(sorted(left)),
                version=snapshot.version,
                snapshot=snapshot.number,
            )
