"""Restore: an old snapshot as the new latest snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import TombstonedShardError
from shardline.log.changes import Restore, build_entry
from shardline.log.model import CommitInfo
from shardline.log.snapshot import diff
from shardline.log.version import DerivedFrom, StoredVersion, utc_now, validate_version
from shardline.provenance.dependencies import list_dependency_layers, list_direct_dependencies
from shardline.provenance.pins import pin_inputs
from shardline.release import __version__
from shardline.report import Report

if TYPE_CHECKING:
    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.snapshot import SnapshotDiff, StoredSnapshot


@dataclass(frozen=True, slots=True)
class RestoreReport(Report):
    """Result of a restore, or its plan with `dry_run`.

    `entry` is None if the latest snapshot has the same content. `diff` compares the latest snapshot
    before the restore with the restored one.
    """

    restored: StoredSnapshot
    diff: SnapshotDiff
    entry: Entry | None
    dry_run: bool

    @property
    def published(self) -> bool:
        """Return True if the new snapshot is published at once."""
        return self.entry is not None and self.entry.published == self.entry.snapshot

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "version": self.restored.version,
            "dry_run": self.dry_run,
            "restored": self.restored.number,
            "snapshot": self.entry and self.entry.snapshot,
            "entry": self.entry and self.entry.number,
            "published": self.published,
            "diff": self.diff.to_dict(),
        }


def restore_version(version: StoredVersion, which: str, *, dry_run: bool = False) -> RestoreReport:
    """Commit an old snapshot as the latest one, and pin again what it depends on.

    Args:
        version: Version of the snapshot.
        which: Snapshot number, tag or "published".
        dry_run: Plan without writing.

    Raises:
        TombstonedShardError: Vacuum deleted a shard of the snapshot or of its dependencies.

    Example:
        >>> restore_version(version, "3").entry.snapshot
    """
    validate_version(version=version)
    restored, latest = version.find(which), version.latest()
    _validate_dependencies(restored)
    if dry_run:
        built = build_entry(
            version.state,
            Restore(restored.number, latest.number),
            id="",
            now=utc_now(),
            commit_info=CommitInfo(__version__),
        )
        entry = built[1] if built else None
    else:
        _pin_dependencies(version, restored)
        entry = version.restore(restored.number, head=latest.number)
    return RestoreReport(restored, diff(latest, restored), entry, dry_run)


def _validate_dependencies(snapshot: StoredSnapshot) -> None:
    """Raise TombstonedShardError if a shard of another version was vacuumed or erased."""
    lost = [layer for layer in list_dependency_layers(snapshot) if layer.tombstone is not None]
    if lost:
        first, more = lost[0], f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        raise TombstonedShardError(
            f"{snapshot}: shard {first.shard.name} of {first.version}{more} was vacuumed or erased "
            f"(entry {first.tombstone})",
            tuple(layer.shard.name for layer in lost),
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def _pin_dependencies(version: StoredVersion, snapshot: StoredSnapshot) -> None:
    """Pin the dependencies of a snapshot, and theirs: vacuum may have released these pins.

    For each shard, that is the latest snapshot which contains it and can still be pinned.
    """
    for owner, names in list_direct_dependencies(snapshot).items():
        other = StoredVersion(version.store, owner)
        missing = set(names)
        for number in range(other.state.snapshot, 0, -1):
            listed = {interval.shard.name for interval in other.state.shard_history.at(number)}
            if not listed & missing or any(map(other.state.get_tombstone, listed)):
                continue
            candidate = other.snapshot(number)
            pin_inputs(version, [DerivedFrom(other, candidate)])
            _pin_dependencies(other, candidate)
            missing -= listed
            if not missing:
                break
        if missing:
            raise TombstonedShardError(
                f"{snapshot}: cannot pin shard {min(missing)} of {owner}: each snapshot with it "
                "lost other shards",
                tuple(sorted(missing)),
                version=snapshot.version,
                snapshot=snapshot.number,
            )
