"""Every file without which a snapshot cannot be read, as the logs tell it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import ObjectNotFoundError, UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.log.layers import list_stacks
from shardline.log.version import StoredVersion
from shardline.pairing.pair_plan import PairPlan
from shardline.provenance.log_index import LogIndex
from shardline.storage import object_uri
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.entry import Entry
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


def list_snapshot_files(snapshot: StoredSnapshot) -> list[SnapshotFile]:
    """The shards of a snapshot, those that they lie beside, and those that their plans pair.

    Each is told once, in order. Nothing but logs and plans is read. Raises UnreadableSnapshotError
    if the logs do not lead to all of them.
    """
    return list({one.name: one for one in _iter_files(snapshot)}.values())


def _iter_files(snapshot: StoredSnapshot) -> Iterator[SnapshotFile]:
    for stack in list_stacks(snapshot):
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
            yield from _iter_paired_files(snapshot, stack.top.shard)


def _iter_paired_files(snapshot: StoredSnapshot, shard: Shard) -> Iterator[SnapshotFile]:
    plan = PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard)
    for told, places in plan.sides:
        side = StoredVersion(snapshot.store, told.shown).snapshot(told.snapshot)
        yield from _iter_files(select_shards(side, side.shards[slice(*places)]))


def select_shards(snapshot: StoredSnapshot, shards: tuple[Shard, ...]) -> StoredSnapshot:
    """The snapshot as if it had these shards only."""
    return replace(snapshot, list_shards=lambda: shards)


def get_relative_path(folder: Path | None, store: Store, name: str) -> str:
    """A file as seen from a folder, or by its URI where there is no way from there to it.

    Without a folder it is seen from the root.
    """
    if folder is None:
        return name
    local = store.local_path(name)
    return object_uri(store, name) if local is None else _get_local_path(local, folder)


def _get_local_path(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A shard of a version that entries of its log condemned; `deleted` if it is not there now."""

    version: str
    shard: Shard
    entries: tuple[Entry, ...]
    deleted: bool

    @property
    def why(self) -> str:
        """`erased in entry 7, given to vacuum in entry 9`."""
        told = [
            f"{'erased' if one.operation == 'erase' else 'given to vacuum'} in entry {one.number}"
            for one in self.entries
        ]
        left = "" if self.deleted else "; its file waits for vacuum"
        return f"{', '.join(told)}{left}"


def list_removed_files(index: LogIndex, snapshot: StoredSnapshot) -> list[RemovedFile]:
    """Those of the files that a snapshot needs which its own log or another's condemned."""
    shards: dict[str, dict[str, Shard]] = {}
    for version, shard in _iter_removed_shards(index, snapshot):
        shards.setdefault(version, {})[shard.name] = shard
    found = []
    for version, gone in shards.items():
        told: dict[str, list[Entry]] = {name: [] for name in gone}
        for entry in index.entries(version):
            for name in told.keys() & set(entry.condemned):
                told[name].append(entry)
        for name, shard in gone.items():
            deleted = index.store.info(index.version(version).shard_name(shard)) is None
            found.append(RemovedFile(version, shard, tuple(told[name]), deleted))
    return found


def format_removed_files(gone: Sequence[RemovedFile]) -> str:
    """What that means for a snapshot: only what is deleted keeps it from being read."""
    if any(one.deleted for one in gone):
        return "it cannot be read any more"
    return "it holds what was erased or given to vacuum"


def validate_files_exist(snapshot: StoredSnapshot) -> None:
    """Refuse a snapshot of which a file is gone; UnreadableSnapshotError names the first."""
    gone = list_removed_files(LogIndex(snapshot.store), snapshot)
    if gone:
        first = gone[0]
        others = f" and {format_count(len(gone) - 1, 'other')}" if len(gone) > 1 else ""
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot be exported, {format_removed_files(gone)}: {first.shard.name} of "
            f"{first.version} ({first.why}){others}",
            code="snapshot-erased",
            hint=Hint.of("choose a later snapshot: ", Command.of("status", snapshot.version)),
            path=first.shard.name,
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def _iter_removed_shards(index: LogIndex, snapshot: StoredSnapshot) -> Iterator[tuple[str, Shard]]:
    for stack in list_stacks(snapshot):
        for layer in stack.layers:
            state = index.version(layer.version).state
            if state.condemned_in(layer.shard.name) is not None:
                yield layer.version, layer.shard
        if stack.top.shard.virtual:
            yield from _iter_removed_pairs(index, snapshot, stack.top.shard)


def _iter_removed_pairs(
    index: LogIndex, snapshot: StoredSnapshot, shard: Shard
) -> Iterator[tuple[str, Shard]]:
    try:
        plan = PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard)
    except ObjectNotFoundError:
        return
    for told, places in plan.sides:
        version = StoredVersion(snapshot.store, told.shown)
        if version.exists:
            side = version.snapshot(told.snapshot)
            yield from _iter_removed_shards(index, select_shards(side, side.shards[slice(*places)]))


def sha256sums(snapshot: StoredSnapshot, folder: Path | None = None) -> str:
    """A line for each file that a snapshot needs, as `sha256sum -c` takes it.

    The digests are those of the log: no file is read, so that the tool's word is one of its own.
    Names are as seen from `folder`, where the list is to lie; without one from the root, which is
    also where to run the tool after a bucket was copied to a disk.
    """
    validate_files_exist(snapshot)
    files = list_snapshot_files(snapshot)
    if not files:
        raise UnreadableSnapshotError(
            f"{snapshot}: no files to list",
            code="snapshot-empty",
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    store = snapshot.store
    seen_from = None if store.local_path(files[0].name) is None else folder
    # No name needs to be escaped: neither a root nor a shard can be called what would.
    return "".join(
        f"{one.shard.sha256}  {get_relative_path(seen_from, store, one.name)}\n" for one in files
    )
