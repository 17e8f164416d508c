"""Dependents of replaced shards: versions that read them, or derive from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.log.layers import list_stacks
from shardline.log.version import StoredVersion
from shardline.provenance.catalog import find_all_versions
from shardline.provenance.commands import find_deriving_entry, get_recreate_command
from shardline.provenance.dependencies import get_shard_object, list_dependency_layers
from shardline.provenance.log_index import find_added_shard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from shardline.hints import Command
    from shardline.log.entry import Entry
    from shardline.log.snapshot import StoredSnapshot


@dataclass(frozen=True, slots=True)
class Dependent:
    """A version that depends on replaced shards, and the command that derives it again.

    If it `reads` them, its `snapshot` cannot be read until then; otherwise it has copies.
    """

    snapshot: str
    reads: bool
    command: Command


def list_dependents(
    version: StoredVersion, replaced: Collection[str], changed: Collection[str]
) -> list[Dependent]:
    """Return the versions that depend on shards of this one, in the order to derive them again.

    They read `replaced` shards, or have copies of `changed` ones. Versions that cannot be read are
    skipped: `verify` and `audit` report them.
    """
    store = version.store
    folder = f"{version.log.dataset}/shards"
    search = _DependentSearch(
        version.name,
        frozenset(f"{folder}/{name}" for name in replaced),
        frozenset(f"{folder}/{name}" for name in changed),
    )
    dependents: dict[str, tuple[Entry, Dependent]] = {}
    for name in find_all_versions(store):
        try:
            dependent = search.find(StoredVersion(store, name))
        except (ShardlineError, ValueError):
            continue
        if dependent is not None:
            dependents[name] = dependent
    return [dependents[name][1] for name in _sort_by_dependency(dependents)]


@dataclass(frozen=True, slots=True)
class _DependentSearch:
    """Shard files of a version that others may depend on."""

    origin: str
    replaced: frozenset[str]
    changed: frozenset[str]

    def find(self, version: StoredVersion) -> tuple[Entry, Dependent] | None:
        """Return a version as a dependent, with its deriving entry; None if it is independent."""
        if not version.exists or not version.state.snapshot or version.name == self.origin:
            return None
        snapshot = version.latest()
        entry = find_deriving_entry(version, snapshot.number)
        if entry is None:
            return None
        layers = list_dependency_layers(snapshot)
        reads = any(get_shard_object(layer) in self.replaced for layer in layers)
        if not reads and (layers or not self._is_copied(version, snapshot)):
            return None
        return entry, Dependent(str(snapshot), reads, get_recreate_command(entry))

    def _is_copied(self, version: StoredVersion, snapshot: StoredSnapshot) -> bool:
        """Return True if a shard of a snapshot derives from a changed one, by its entry."""
        seen: dict[tuple[str, int], set[str]] = {}
        for shard in snapshot.shards if self.changed else ():
            entry, first = find_added_shard(version, shard)
            names = [added.shard.name for added in entry.added]
            base = entry.bases[names.index(first.name)] if entry.bases else None
            for source in entry.inputs:
                key = source.label, source.snapshot
                if key not in seen:
                    seen[key] = self._list_changed(
                        StoredVersion(version.store, key[0]).snapshot(key[1])
                    )
                if base in seen[key] or (base is None and seen[key]):
                    return True
        return False

    def _list_changed(self, snapshot: StoredSnapshot) -> set[str]:
        """Return the shards of a snapshot that are changed or read from changed ones."""
        return {
            stack.top.shard.name
            for stack in list_stacks(snapshot)
            if any(
                get_shard_object(layer) in self.changed
                for layer in (stack.top, *list_dependency_layers(snapshot, [stack]))
            )
        }


def _sort_by_dependency(dependents: dict[str, tuple[Entry, Dependent]]) -> Iterator[str]:
    """Yield each version after its inputs."""
    pending = dict.fromkeys(dependents)
    while pending:
        ready = [
            name
            for name in pending
            if not any(source.label in pending for source in dependents[name][0].inputs)
        ]
        for name in ready or list(pending):
            del pending[name]
            yield name
