"""Where else the records of a shard lie: in what was rebuilt from it, if that is intact."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.log.version import StoredVersion
from shardline.operations.rebuild_plan import Slice, span_of
from shardline.operations.shard_origin import is_intact
from shardline.provenance.discovery import find_all_versions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.tfrecord.reader import Limits


def copied_pieces(
    version: StoredVersion, names: Collection[str], limits: Limits
) -> tuple[Slice, ...] | None:
    """Slices of rebuilt shards that hold all the records of a shard, by the names that it had.

    They are found by counting. None if nothing was rebuilt from it that is intact.
    """
    for other in _versions(version):
        try:
            entries = list(other.log.entries(1)) if other.exists else []
        except ShardlineError:
            continue
        for entry in entries:
            found = _copied(version, other, entry, names, limits)
            if found is not None:
                return found
    return None


def held_by(version: StoredVersion, shard: str) -> set[str]:
    """The shards of a version that hold the records of one: itself, and what was rebuilt from it.

    They may be gone by now, and others may have been made of them before.
    """
    found = {shard}
    for entry in version.log.entries(1):
        if entry.operation == "rebuild" and not entry.inputs and found & set(entry.removed):
            before, after = _read(version, entry), [one.shard for one in entry.added]
            for name in found & set(entry.removed):
                found |= {one.name for one, _, _ in _places(before, after, {name})}
    return found


def _versions(version: StoredVersion) -> Iterator[StoredVersion]:
    """This one first."""
    yield version
    for name in find_all_versions(version.store):
        if name != version.name:
            yield StoredVersion(version.store, name)


def _copied(
    version: StoredVersion,
    other: StoredVersion,
    entry: Entry,
    names: Collection[str],
    limits: Limits,
) -> tuple[Slice, ...] | None:
    """The slices that one rebuild made of a shard, if it read that and they are intact."""
    if entry.operation != "rebuild" or not entry.added:
        return None
    try:
        before = _read(version, entry)
        slices = _at_same_place(before, other, entry, names, limits) if before else []
        intact = all(is_intact(version.store, piece) for piece in slices)
    except (ShardlineError, OSError):
        return None
    return tuple(slices) if slices and intact else None


def _read(version: StoredVersion, entry: Entry) -> list[Shard]:
    """The shards of a version that a rebuild was made of, in order."""
    if entry.inputs:
        told = entry.inputs[0]
        return list(version.snapshot(told.snapshot).shards) if told.shown == version.name else []
    stays = version.state.stays.named(entry.removed) if entry.shown == version.name else {}
    return [stays[name].shard for name in entry.removed if name in stays]


def _at_same_place(
    before: Sequence[Shard],
    other: StoredVersion,
    entry: Entry,
    names: Collection[str],
    limits: Limits,
) -> list[Slice]:
    """What a rebuild put where a shard stood that it was made of."""
    made = [one.shard for one in entry.added]
    after = other.snapshot(entry.snapshot).shards if entry.inputs else made
    found = []
    for shard, begin, stop in _places(before, after, names):
        if shard.name in names or shard.base is not None or shard.virtual:
            return []
        piece = Slice(other.shard_name(shard), shard)
        if (begin, stop) != (0, shard.records):
            piece = replace(piece, span=span_of(other.store, piece, begin, stop, limits))
        found.append(piece)
    return found


def _places(
    before: Sequence[Shard], after: Sequence[Shard], names: Collection[str]
) -> Iterator[tuple[Shard, int, int]]:
    """The shards at the place of one that is named, and from where to where in each of them."""
    place = next((at for at, shard in enumerate(before) if shard.name in names), None)
    if place is None:
        return
    first = sum(shard.records for shard in before[:place])
    end = first + before[place].records
    start = 0
    for shard in after:
        begin, stop = max(first - start, 0), min(end - start, shard.records)
        start += shard.records
        if begin < stop:
            yield shard, begin, stop
