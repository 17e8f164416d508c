"""The versions of a root as far as they can be read: what is missing or damaged says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import BadNameError, DamagedLogError, UnknownFormatError
from shardline.lineage.graph import Edge, Link, Node, edge_by
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.log_index import Histories, Untold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.lineage.graph import Lack
    from shardline.log.entry import Entry
    from shardline.log.model import Shard, Source
    from shardline.log.state import State
    from shardline.provenance.catalog import Catalog
    from shardline.provenance.log_index import Listing


UNREAD = "its log cannot be read"


class Readable:
    """A catalog whose versions may be gone or damaged."""

    def __init__(self, catalog: Catalog) -> None:
        self.histories = Histories(catalog)
        self._catalog = catalog
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._gone: dict[str, tuple[Lack, str]] = {}
        self._readers: dict[str, list[Entry]] | None = None

    def entries(self, version: str) -> tuple[Entry, ...]:
        """The entries of a version; none if it cannot be read."""
        if version not in self._entries:
            found: tuple[Entry, ...] = ()
            lack: Lack = "gone"
            try:
                found = self._catalog.entries(version)
                self._catalog.version(version).state.stays.names()
                why = "" if found else "there is no log of it in this root"
            except (DamagedLogError, UnknownFormatError) as error:
                why, found = f"{UNREAD}: {error}", ()
                lack = "damaged" if isinstance(error, DamagedLogError) else "unreadable"
            except BadNameError as error:
                why = str(error)
            self._entries[version], self._gone[version] = found, (lack, why)
        return self._entries[version]

    def gone(self, version: str) -> str:
        """Why a version cannot be read; empty if it can."""
        self.entries(version)
        return self._gone[version][1]

    def lack(self, version: str) -> Lack:
        """In which way a version cannot be read, if it cannot."""
        self.entries(version)
        return self._gone[version][0]

    @property
    def unread(self) -> dict[str, str]:
        """The versions that were asked for so far whose logs are there and cannot be read."""
        return {name: why for name, (lack, why) in self._gone.items() if lack != "gone"}

    def state(self, version: str) -> State | None:
        """How a version stands; None if it cannot be read."""
        return None if self.gone(version) else self._catalog.version(version).state

    def listing(self, version: str, snapshot: int) -> Listing | None:
        """The shards of a snapshot; None if they cannot be told."""
        if self.gone(version):
            return None
        try:
            return self.histories.listing(version, snapshot)
        except Untold:
            return None

    def readers(self, version: str) -> Sequence[Entry]:
        """The entries of all versions that read a snapshot of this one."""
        if self._readers is None:
            self._readers = {}
            for name in self._catalog.found():
                for entry in self.entries(name):
                    for read in dict.fromkeys(one.shown for one in entry.inputs):
                        self._readers.setdefault(read, []).append(entry)
        return self._readers.get(version, ())

    def consumers(self, version: str, made: str, snapshot: int | None = None) -> Iterator[Link]:
        """Who registered on a version, or on one snapshot of it."""
        state = self.state(version)
        for name, hold in ({} if state is None else state.pins).items():
            if name.startswith(CONSUMER_PREFIX) and snapshot in {None, hold.snapshot}:
                node = Node(name, "consumer", {"snapshot": hold.snapshot, "reason": hold.reason})
                yield Link(node, Edge(made, name, "read", how=f"snapshot {hold.snapshot}"))


def sources_link(entry: Entry, made: str, shards: Sequence[Shard]) -> Link:
    """From the sources of these shards, which an append brought in, together as one node."""
    keys = {shard.source for shard in shards}
    named = [one for one in entry.sources if one.key in keys]
    node = Node(f"sources of {made}", "source", {"sources": [one.shown for one in named]})
    records = sum(shard.records for shard in shards if shard.source is not None)
    return Link(node, edge_by(entry, node.id, made, records))


def source_node(source: Source) -> Node:
    """One source."""
    return Node(f"source {source.shown}", "source", {"source": source.to_json()})


def merged(links: Sequence[Link]) -> list[Link]:
    """Links of which those from sources have one node, with all names."""
    names: dict[str, list[str]] = {}
    for link in links:
        if "sources" in link.node.facts:
            names.setdefault(link.node.id, []).extend(link.node.facts["sources"])
    return [
        Link(
            Node(link.node.id, "source", {"sources": list(dict.fromkeys(names[link.node.id]))}),
            link.edge,
        )
        if link.node.id in names
        else link
        for link in links
    ]
