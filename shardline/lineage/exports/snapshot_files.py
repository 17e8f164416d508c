"""The files that a snapshot needs: which they are, and which were removed since."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
    from collections.abc import Iterator

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.storage import Store


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A shard and its name, counted from the root."""

    name: str
    shard: Shard

    @property
    def file_name(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]


def list_snapshot_files(snapshot: StoredSnapshot) -> list[SnapshotFile]:
    """List the shards of a snapshot, their bases, and the shards that its pair plans read.

    Reads only logs and plans. Each file is listed once, in order. Raises UnreadableSnapshotError
    if the logs do not lead to all files.
    """
    return list({file.name: file for file in _iter_files(snapshot)}.values())


def _iter_files(snapshot: StoredSnapshot) -> Iterator[SnapshotFile]:
    for stack in list_stacks(snapshot):
        if stack.mismatch is not None:
            raise UnreadableSnapshotError(
                f"{snapshot}: cannot list its files: {stack.mismatch}",
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
    for source, span in plan.sides:
        side = StoredVersion(snapshot.store, source.label).snapshot(source.snapshot)
        yield from _iter_files(side.with_shards(side.shards[slice(*span)]))


def get_relative_path(folder: Path | None, store: Store, name: str) -> str:
    """Return the path of an object from a folder, or its URI if it is not on the local disk.

    Without a folder, the path counts from the root.
    """
    if folder is None:
        return name
    path = store.local_path(name)
    return (
        object_uri(store, name) if path is None else Path(os.path.relpath(path, folder)).as_posix()
    )


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A shard that entries of its log erased or vacuumed; `deleted` if the file is missing."""

    version: str
    shard: Shard
    entries: tuple[Entry, ...]
    deleted: bool

    @property
    def reason(self) -> str:
        """The entries that removed the file: `erased in entry 7, vacuumed in entry 9`."""
        removals = [
            f"{'erased' if entry.operation == 'erase' else 'vacuumed'} in entry {entry.number}"
            for entry in self.entries
        ]
        return f"{', '.join(removals)}{'' if self.deleted else '; not deleted yet'}"


def list_removed_files(index: LogIndex, snapshot: StoredSnapshot) -> list[RemovedFile]:
    """List the files that a snapshot needs and that a log has erased or vacuumed."""
    shards: dict[str, dict[str, Shard]] = {}
    for version, shard in _iter_removed_shards(index, snapshot):
        shards.setdefault(version, {})[shard.name] = shard
    removed = []
    for version, named in shards.items():
        entries: dict[str, list[Entry]] = {name: [] for name in named}
        for entry in index.entries(version):
            for name in entries.keys() & set(entry.tombstones):
                entries[name].append(entry)
        for name, shard in named.items():
            deleted = index.store.info(index.version(version).shard_name(shard)) is None
            removed.append(RemovedFile(version, shard, tuple(entries[name]), deleted))
    return removed


def _iter_removed_shards(index: LogIndex, snapshot: StoredSnapshot) -> Iterator[tuple[str, Shard]]:
    for stack in list_stacks(snapshot):
        for layer in stack.layers:
            if index.version(layer.version).state.get_tombstone(layer.shard.name) is not None:
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
    for source, span in plan.sides:
        version = StoredVersion(snapshot.store, source.label)
        if version.exists:
            side = version.snapshot(source.snapshot)
            yield from _iter_removed_shards(index, side.with_shards(side.shards[slice(*span)]))


def validate_files_exist(snapshot: StoredSnapshot) -> None:
    """Raise UnreadableSnapshotError if a file of the snapshot was erased or vacuumed."""
    removed = list_removed_files(LogIndex(snapshot.store), snapshot)
    if removed:
        first = removed[0]
        others = f" and {format_count(len(removed) - 1, 'other')}" if len(removed) > 1 else ""
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot export removed files "
            f"({first.shard.name} of {first.version}, {first.reason}{others})",
            code="snapshot-erased",
            hint=Hint.of("choose a later snapshot: ", Command.of("status", snapshot.version)),
            path=first.shard.name,
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def render_sha256sums(snapshot: StoredSnapshot, folder: Path | None = None) -> str:
    """Return a line for each file that a snapshot needs, as `sha256sum -c` reads it.

    The digests come from the log, so that `sha256sum` verifies the files independently.

    Args:
        snapshot: A snapshot whose files all exist.
        folder: The folder of the list, from which paths count. Without a folder they count from
            the root, where `sha256sum` runs after a bucket was copied to a disk.
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
    base = None if store.local_path(files[0].name) is None else folder
    # No name needs an escape: names of roots and shards contain no such characters.
    return "".join(
        f"{file.shard.sha256}  {get_relative_path(base, store, file.name)}\n" for file in files
    )
