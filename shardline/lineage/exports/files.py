"""Every file without which a snapshot cannot be read, as the logs tell it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.log.layers import stacks_of
from shardline.log.version import StoredVersion
from shardline.pairing.pair_plan import PairPlan
from shardline.storage import object_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.storage import Store


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A shard and where it lies: `name` counts from the root."""

    name: str
    shard: Shard

    @property
    def file_name(self) -> str:
        """Its name in its folder."""
        return self.name.rpartition("/")[2]


def snapshot_files(snapshot: StoredSnapshot) -> list[SnapshotFile]:
    """The shards of a snapshot, those that they lie beside, and those that their plans pair.

    Each is told once, in order. Nothing but logs and plans is read. Raises UnreadableSnapshotError
    if the logs do not lead to all of them.
    """
    return list({one.name: one for one in _files(snapshot)}.values())


def _files(snapshot: StoredSnapshot) -> Iterator[SnapshotFile]:
    for stack in stacks_of(snapshot):
        if stack.misfit is not None:
            raise UnreadableSnapshotError(
                f"{snapshot}: files cannot be listed: {stack.misfit}",
                code="layer-mismatch",
                hint=Hint.of("run ", Command.of("verify", str(snapshot)), ", or choose another"),
                version=snapshot.version,
                snapshot=snapshot.number,
            )
        for layer in stack.layers:
            yield SnapshotFile(snapshot.shard_name(layer.shard), layer.shard)
        if stack.top.shard.virtual:
            yield from _paired(snapshot, stack.top.shard)


def _paired(snapshot: StoredSnapshot, shard: Shard) -> Iterator[SnapshotFile]:
    plan = PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard)
    for told, places in plan.sides:
        side = StoredVersion(snapshot.store, told.shown).snapshot(told.snapshot)
        yield from _files(part_of(side, side.shards[slice(*places)]))


def part_of(snapshot: StoredSnapshot, shards: tuple[Shard, ...]) -> StoredSnapshot:
    """The snapshot as if it had these shards only."""
    return replace(snapshot, list_shards=lambda: shards)


def path_from(folder: Path | None, store: Store, name: str) -> str:
    """A file as seen from a folder, or by its URI where there is no way from there to it.

    Without a folder it is seen from the root.
    """
    if folder is None:
        return name
    local = store.local_path(name)
    return object_uri(store, name) if local is None else _relative(local, folder)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
