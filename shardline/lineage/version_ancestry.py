"""Ancestry of versions: which were read to make others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.lineage.graph import Link, Node, edge_by, together
from shardline.lineage.readable import Readable, merged, sources_link
from shardline.lineage.snapshot_ancestry import SnapshotAncestry
from shardline.provenance.log_index import is_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.model import Shard


class VersionAncestry:
    """A version as it is now, with all that ever happened to it, and its neighbours."""

    def __init__(self, readable: Readable, version: str) -> None:
        self._readable = readable
        self._version = version

    def start(self) -> list[Node]:
        """The version."""
        return [self._node(self._version)]

    def parents(self, node: str) -> list[Link]:
        """The versions that it was made of, and the sources that were appended to it."""
        return together(merged(list(self._parents(node))))

    def _parents(self, version: str) -> Iterator[Link]:
        for entry in self._readable.entries(version):
            if entry.operation == "append" and entry.added:
                yield sources_link(entry, version, [one.shard for one in entry.added])
            for read in dict.fromkeys(one.shown for one in entry.inputs):
                yield Link(self._node(read), edge_by(entry, read, version))

    def children(self, node: str) -> list[Link]:
        """The versions that were made of it, and who registered on it."""
        links = [
            Link(self._node(entry.shown), edge_by(entry, node, entry.shown))
            for entry in self._readable.readers(node)
        ]
        return [*together(links), *self._readable.consumers(node, node)]

    def _node(self, version: str) -> Node:
        gone = self._readable.gone(version)
        state = self._readable.state(version)
        if state is None:
            return Node(version, "version", gone=gone, lack=self._readable.lack(version))
        facts = {
            "snapshot": state.snapshot,
            "published": state.published,
            **state.totals.to_json(),
            "entries": state.number,
        }
        return Node(version, "version", facts)


class VersionAtSnapshot(SnapshotAncestry):
    """A version as one snapshot of it was: the snapshots of others, and what was done in place.

    What a version did to its own shards is no step of its own here: a rebuilt shard is of the
    sources of those that it was rebuilt of.
    """

    steps_in_place = False

    def _landings(self, version: str, number: int) -> dict[int, list[Shard]]:
        """The shards of a snapshot, or those they were made of in place, by their entry."""
        listing = self._readable.listing(version, number)
        waiting = [] if listing is None else list(listing.stays)
        seen = {stay.shard.name for stay in waiting}
        found: dict[int, list[Shard]] = {}
        for stay in waiting:  # it grows while it is read
            entry = self._readable.histories.entry(version, stay.landed)
            if entry.inputs or not is_in_place(entry):
                found.setdefault(stay.landed, []).append(stay.shard)
                continue
            before = self._readable.listing(version, entry.snapshot - 1)
            for one in () if before is None else before.stays:
                if one.shard.name in entry.removed and one.shard.name not in seen:
                    seen.add(one.shard.name)
                    waiting.append(one)
        return found
