"""The logs of a dataset, read once: its versions, every shard that they ever held, every entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from shardline.log.parameters import EntryParameters
from shardline.sidecars.sidecar_reader import SidecarReader

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.log.version import StoredVersion
    from shardline.provenance.log_index import LogIndex
    from shardline.schema.schema import Schema
    from shardline.storage import Store

ERASE = "erase"


@dataclass(frozen=True)
class VersionHistory:
    """One version, as it stands now."""

    version: StoredVersion
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """`digits/v1`."""
        return self.version.name

    @cached_property
    def sidecars(self) -> SidecarReader:
        """Reads its sidecars, compared with what its entries committed."""
        return SidecarReader(self.version)

    @cached_property
    def shards(self) -> dict[str, Shard]:
        """Every shard that it ever held, by its name."""
        stays = self.version.state.stays
        names = list(dict.fromkeys(stays.names().to_pylist()))
        return {name: stay.shard for name, stay in stays.named(names).items()}

    @cached_property
    def live(self) -> tuple[Shard, ...]:
        """The shards of its newest snapshot, in order."""
        state = self.version.state
        return tuple(stay.shard for stay in state.stays.at(state.snapshot))

    def listed(self, snapshot: int) -> tuple[Shard, ...]:
        """The shards of a snapshot, in order."""
        return tuple(stay.shard for stay in self.version.state.stays.at(snapshot))

    def is_gone(self, shard: str) -> bool:
        """Whether a shard never comes back: it was erased before, or went to vacuum."""
        return self.version.state.condemned_in(shard) is not None

    def holding(self, names: set[str]) -> list[int]:
        """The snapshots that hold one of these shards."""
        stays = self.version.state.stays
        since, until = stays.column("since").tolist(), stays.column("until").tolist()
        held: set[int] = set()
        newest = self.version.state.snapshot
        for name, first, last in zip(stays.names().to_pylist(), since, until, strict=True):
            if name in names:
                held.update(range(first, min(last, newest + 1)))
        return sorted(held)


@dataclass(frozen=True)
class DatasetHistory:
    """All versions of a dataset that have a log."""

    index: LogIndex
    dataset: str
    versions: dict[str, VersionHistory] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Where the root lies."""
        return self.index.store

    @cached_property
    def shards(self) -> dict[str, Shard]:
        """Every shard that the dataset ever held, by its name."""
        return {name: shard for one in self.versions.values() for name, shard in one.shards.items()}

    @cached_property
    def files(self) -> frozenset[str]:
        """The names of the files that are in its folder of shards."""
        listed = self.store.list(f"{self.dataset}/shards")
        return frozenset(file.name.rpartition("/")[2] for file in listed)

    @cached_property
    def quarantine(self) -> frozenset[str]:
        """The quarantine files that are committed: an entry names them, or has their shard."""
        named = (
            name
            for one in self.versions.values()
            for entry in one.entries
            for rows in entry.read(EntryParameters).quarantine
            for name in rows.files
        )
        folder = f"{self.dataset}/quarantine"
        beside = (f"{folder}/{name.removesuffix('.tfrecord')}.jsonl" for name in self.shards)
        return frozenset((*named, *beside))

    def owner(self, shard: str) -> VersionHistory:
        """The version in whose log a shard stands."""
        return self.versions[shard.split(".", 1)[0]]

    def of_input(self, told: Input) -> VersionHistory | None:
        """The version that an input is a snapshot of, if it is one of this dataset."""
        return self.versions.get(told.version) if told.dataset == self.dataset else None

    def schema_of(self, told: Input) -> Schema:
        """The schema of an input, of this dataset or another."""
        one = self.of_input(told)
        return self.index.version(told.shown).schema if one is None else one.version.schema

    @cached_property
    def replaced(self) -> dict[str, str]:
        """The shards in whose place an erase put others, and those."""
        found: dict[str, str] = {}
        for one in self.versions.values():
            for entry in one.entries:
                if entry.operation == ERASE:
                    found |= dict(zip(entry.bases, _list_names(entry), strict=False))
        return found


def _list_names(entry: Entry) -> list[str]:
    return [one.shard.name for one in entry.added]
