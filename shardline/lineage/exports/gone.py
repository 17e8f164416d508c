"""The files of a snapshot that are gone, or will be: erased, or given to vacuum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import ObjectMissingError, UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.lineage.exports.files import part_of
from shardline.log.layers import stacks_of
from shardline.log.version import StoredVersion
from shardline.pairing.pair_plan import PairPlan
from shardline.provenance.catalog import Catalog
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot


@dataclass(frozen=True, slots=True)
class GoneFile:
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


def gone_files(catalog: Catalog, snapshot: StoredSnapshot) -> list[GoneFile]:
    """Those of the files that a snapshot needs which its own log or another's condemned."""
    shards: dict[str, dict[str, Shard]] = {}
    for version, shard in _gone(catalog, snapshot):
        shards.setdefault(version, {})[shard.name] = shard
    found = []
    for version, gone in shards.items():
        told: dict[str, list[Entry]] = {name: [] for name in gone}
        for entry in catalog.entries(version):
            for name in told.keys() & set(entry.condemned):
                told[name].append(entry)
        for name, shard in gone.items():
            deleted = catalog.store.info(catalog.version(version).shard_name(shard)) is None
            found.append(GoneFile(version, shard, tuple(told[name]), deleted))
    return found


def words_for(gone: Sequence[GoneFile]) -> str:
    """What that means for a snapshot: only what is deleted keeps it from being read."""
    if any(one.deleted for one in gone):
        return "it cannot be read any more"
    return "it holds what was erased or given to vacuum"


def refuse_gone(snapshot: StoredSnapshot) -> None:
    """Refuse a snapshot of which a file is gone; UnreadableSnapshotError names the first."""
    gone = gone_files(Catalog(snapshot.store), snapshot)
    if gone:
        first = gone[0]
        others = f" and {counted(len(gone) - 1, 'other')}" if len(gone) > 1 else ""
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot be exported, {words_for(gone)}: {first.shard.name} of "
            f"{first.version} ({first.why}){others}",
            code="snapshot-erased",
            hint=Hint.of("choose a later snapshot: ", Command.of("status", snapshot.version)),
            path=first.shard.name,
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def _gone(catalog: Catalog, snapshot: StoredSnapshot) -> Iterator[tuple[str, Shard]]:
    for stack in stacks_of(snapshot):
        for layer in stack.layers:
            state = catalog.version(layer.version).state
            if state.condemned_in(layer.shard.name) is not None:
                yield layer.version, layer.shard
        if stack.top.shard.virtual:
            yield from _paired(catalog, snapshot, stack.top.shard)


def _paired(
    catalog: Catalog, snapshot: StoredSnapshot, shard: Shard
) -> Iterator[tuple[str, Shard]]:
    try:
        plan = PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard)
    except ObjectMissingError:
        return
    for told, places in plan.sides:
        version = StoredVersion(snapshot.store, told.shown)
        if version.exists:
            side = version.snapshot(told.snapshot)
            yield from _gone(catalog, part_of(side, side.shards[slice(*places)]))
