"""Hints for snapshots with an unreadable shard of their own or of a dependency."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shardline.errors import CorruptFileError, ShardlineError
from shardline.hints import Command, Hint
from shardline.log.version import StoredVersion
from shardline.provenance.commands import get_recreate_hint, get_release_hint, get_repair_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.model import Shard
    from shardline.readers.shard_file import ShardFile
    from shardline.storage import Store

_NO_DAMAGE = frozenset({"example", "oversized"})
"""Fault kinds of records that are as committed."""


def split_snapshot(snapshot: str) -> tuple[str, int]:
    """Split `digits/v1@3` into the version and the snapshot number."""
    name, _, number = snapshot.rpartition("@")
    return name, int(number)


def get_dependency_hint(store: Store, snapshot: str, owner: str, shard: Shard) -> Hint:
    """Return the hint for a snapshot that depends on an unusable shard of `owner`.

    A repair replaces the shard, so its dependents have to be recreated.
    """
    name, number = split_snapshot(snapshot)
    lost = f"{owner.partition('/')[0]}/shards/{shard.name}"
    with suppress(ShardlineError, ValueError):
        if hint := get_release_hint(StoredVersion(store, name), number, {lost}):
            return hint
    recreate = get_recreate_hint(store, name, number, lost)
    if _is_in_newest(store, owner, shard):
        return Hint.of("run ", Command.of("repair", owner), " and then ", recreate)
    return recreate


def _is_in_newest(store: Store, owner: str, shard: Shard) -> bool:
    try:
        return shard.name in {live.name for live in StoredVersion(store, owner).latest().shards}
    except ShardlineError:
        return True


def describe_fate(store: Store, owner: str, shard: Shard) -> str:
    """Return how and in which entry a shard of `owner` was deleted, or an empty string."""
    try:
        entries = StoredVersion(store, owner).log.entries(1)
        first = next((entry for entry in entries if shard.name in entry.tombstones), None)
    except ShardlineError:
        return ""
    if first is None:
        return ""
    removal = "records erased" if first.operation == "erase" else "vacuumed"
    return f"{removal} in entry {first.number} of {owner}"


def locate_error(
    snapshot: str, store: Store, files: Iterable[ShardFile], error: CorruptFileError
) -> CorruptFileError:
    """Add the snapshot and a hint to an error in a file that the snapshot is read from."""
    name, number = split_snapshot(snapshot)
    for file in files:
        if file.path != error.path:
            continue
        error.version, error.snapshot = name, number
        if error.kind in _NO_DAMAGE:
            continue
        owner = f"{file.snapshot.partition('/')[0]}/{file.shard.owner}"
        if owner != name:
            return error.set_hint(get_dependency_hint(store, snapshot, owner, file.shard))
        hint = get_shard_hint(store, snapshot, owner, file.shard)
        return error if hint is None else error.set_hint(hint)
    return error


def get_shard_hint(store: Store, snapshot: str, owner: str, shard: Shard) -> Hint | None:
    """Return the hint for a snapshot whose own shard is unusable."""
    version, number = StoredVersion(store, owner), split_snapshot(snapshot)[1]
    try:
        if not _is_in_newest(store, owner, shard):
            return get_release_hint(version, number, {version.shard_name(shard)})
        command = get_repair_command(version, [shard])
    except (ShardlineError, ValueError):
        return None
    if command is not None and command.arguments[0] == "repair":
        return Hint.of("run ", command)
    record = Hint.of("run ", Command.of("check", owner, "--recheck"), " to record the damage")
    return record if command is None else Hint.of(record, " and then ", command)
