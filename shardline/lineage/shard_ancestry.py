"""Ancestry of shards: of which others, or of which source, each was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.lineage.graph import Link, Node, edge_by, together
from shardline.lineage.readable import Readable, source_node
from shardline.log.state import BRINGS_BACK
from shardline.provenance.log_index import Untold, base_of, is_in_place
from shardline.provenance.upstream_rows import cover_of, first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.provenance.log_index import Histories, Listing


class ShardAncestry:
    """The shards of a snapshot, the newest unless told, and what they were made of."""

    def __init__(self, readable: Readable, version: str, snapshot: int | None) -> None:
        self._readable = readable
        self._version = version
        self._snapshot = snapshot
        self._landed: dict[str, dict[str, list[Entry]]] = {}
        self._made: dict[str, list[Link]] | None = None

    def start(self) -> list[Node]:
        """The shards that are asked about."""
        state = self._readable.state(self._version)
        newest = 0 if state is None else state.snapshot
        listing = self._readable.listing(self._version, self._snapshot or newest)
        stays = () if listing is None else listing.stays
        return [self._node(self._version, stay.shard.name, stay.shard) for stay in stays]

    def parents(self, node: str) -> list[Link]:
        """The shards that one was made of, or its source."""
        version, shard = _parsed(node)
        links: list[Link] = []
        for entry in self._landings(version).get(shard, ()):
            links += self._of(entry, shard)
        # A shard that is reused is made again by the log, and not by more records.
        return together(links, same_records=True)

    def children(self, node: str) -> list[Link]:
        """The shards that were made of one."""
        if self._made is None:
            self._made = {}
            for name in self._readable.histories.catalog.found():
                for shard, entries in self._landings(name).items():
                    for entry in entries:
                        made = self._node(name, shard)
                        for link in self._of(entry, shard):
                            found = self._made.setdefault(link.node.id, [])
                            found.append(Link(made, link.edge))
        return together(self._made.get(node, ()), same_records=True)

    def _landings(self, version: str) -> dict[str, list[Entry]]:
        """The entries that each shard of a version landed with."""
        if version not in self._landed:
            found: dict[str, list[Entry]] = {}
            for entry in self._readable.entries(version) if version else ():
                if entry.operation not in BRINGS_BACK:
                    for one in entry.added:
                        found.setdefault(one.shard.name, []).append(entry)
            self._landed[version] = found
        return self._landed[version]

    def _of(self, entry: Entry, shard: str) -> Iterator[Link]:
        """What an entry made a shard of."""
        histories, version = self._readable.histories, entry.shown
        made = next(one.shard for one in entry.added if one.shard.name == shard)
        node = _shown(version, shard)
        if entry.operation == "append" and made.source is not None:
            for source in entry.sources:
                if source.key == made.source:
                    of = source_node(source)
                    yield Link(of, edge_by(entry, of.id, node, made.records))
            return
        try:
            # Of a shard that is paired with itself, both sides are one.
            shards = dict.fromkeys(
                (listing.version, name)
                for listing, names in _made_of(histories, entry, made)
                for name in names
            )
            for one in shards:
                of = self._node(*one)
                yield Link(of, edge_by(entry, of.id, node, made.records))
        except Untold as error:
            lost = [one.shown for one in entry.inputs if self._readable.gone(one.shown)]
            lack = self._readable.lack(lost[0]) if lost else "unknown"
            of = Node(f"what {node} was made of", "shard", gone=str(error), lack=lack)
            yield Link(of, edge_by(entry, of.id, node, made.records))

    def _node(self, version: str, name: str, shard: Shard | None = None) -> Node:
        state = self._readable.state(version)
        if state is None:
            gone, lack = self._readable.gone(version), self._readable.lack(version)
            return Node(_shown(version, name), "shard", gone=gone, lack=lack)
        if shard is None:
            stay = state.stays.named([name]).get(name)
            shard = None if stay is None else stay.shard
        entry = state.condemned_in(name)
        gone = ""
        if entry is not None:
            erased = self._readable.histories.entry(version, entry).operation == "erase"
            gone = f"it {'was erased' if erased else 'went to vacuum'} in entry {entry}"
        facts = {} if shard is None else {"records": shard.records, "bytes": shard.bytes}
        return Node(_shown(version, name), "shard", facts, gone)


def _made_of(
    histories: Histories, entry: Entry, made: Shard
) -> Iterator[tuple[Listing, Sequence[str]]]:
    """The shards of which an entry made one, with the snapshots in which they stand."""
    if entry.operation == "combine":
        cover = cover_of(histories, entry, made.name)
        for side, told in enumerate(entry.inputs):
            listing = histories.input(told)
            places = slice(None) if cover is None else slice(*(cover.left, cover.right)[side])
            yield listing, [stay.shard.name for stay in listing.stays[places]]
    elif entry.operation == "rebuild":
        yield _rebuilt_of(histories, entry, made)
    elif entry.operation == "repair":
        whole = entry.parameters.get("how") != "salvage"
        first, old = first_of(histories, entry) if whole else (entry, entry.removed[0])
        yield histories.before(first), [old]
    elif entry.inputs or is_in_place(entry):
        place = histories.place(entry, made.name)
        listing = histories.input(entry.inputs[0]) if entry.inputs else histories.before(entry)
        yield listing, [base_of(entry, place)]


def _rebuilt_of(histories: Histories, entry: Entry, made: Shard) -> tuple[Listing, Sequence[str]]:
    """The shards whose records are in a rebuilt one: by where they stand."""
    if entry.inputs:
        listing = histories.input(entry.inputs[0])
        after = histories.listing(entry.shown, entry.snapshot)
        first = after.number(made.name, 0) or 0
    else:
        listing = histories.before(entry)
        place = histories.place(entry, made.name)
        first = listing.number(entry.removed[0], 0) or 0
        first += sum(one.shard.records for one in entry.added[:place])
    last = first + made.records
    return listing, [
        stay.shard.name
        for at, stay in enumerate(listing.stays)
        if listing.start(at) < last and listing.start(at) + stay.shard.records > first
    ]


def _shown(version: str, shard: str) -> str:
    return f"{version.partition('/')[0]}/{shard}"


def _parsed(node: str) -> tuple[str, str]:
    """The version that owns a shard, and its name; of a node that is no shard, none of them."""
    dataset, _, shard = node.partition("/")
    owner, dot, _ = shard.partition(".")
    return (f"{dataset}/{owner}", shard) if dot and not dataset.startswith("source ") else ("", "")
