"""Ancestry of snapshots: which were read to make the shards that one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shardline.lineage.graph import Link, Node, edge_by, together
from shardline.lineage.readable import Readable, merged, sources_link
from shardline.provenance.log_index import is_in_place
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.entry import Entry
    from shardline.log.model import Shard


class SnapshotAncestry:
    """Snapshots: one was made of another if it holds shards that an entry made of that.

    Of a version all snapshots are meant that others read, and the newest, unless one is told.
    """

    steps_in_place: ClassVar[bool] = True

    def __init__(self, readable: Readable, version: str, snapshot: int | None) -> None:
        self._readable = readable
        self._version = version
        self._snapshot = snapshot

    def start(self) -> list[Node]:
        """The snapshots that are asked about."""
        if self._snapshot is not None:
            return [self._node(self._version, self._snapshot)]
        return [self._node(self._version, number) for number in self._used(self._version)]

    def parents(self, node: str) -> list[Link]:
        """What the shards of a snapshot were made of."""
        return together(merged(list(self._parents(node))))

    def _parents(self, node: str) -> Iterator[Link]:
        version, number = _parsed(node)
        for landed, shards in self._landings(version, number).items():
            entry = self._readable.histories.entry(version, landed)
            records = sum(shard.records for shard in shards)
            if entry.operation == "append":
                yield sources_link(entry, node, shards)
            for of in _read_by(entry):
                yield Link(self._node(*of), edge_by(entry, _shown(*of), node, records))

    def children(self, node: str) -> list[Link]:
        """The snapshots that hold what was made of one, and who registered on it."""
        version, number = _parsed(node)
        links: list[Link] = []
        entries = self._readable.entries(version) if self.steps_in_place else ()
        own = [one for one in entries if not one.inputs]
        for entry in (*own, *self._readable.readers(version)):
            if (version, number) in _read_by(entry):
                links += self._holders(entry, node)
        return [*together(links), *self._readable.consumers(version, node, number)]

    def _holders(self, entry: Entry, of: str) -> Iterator[Link]:
        """The snapshots that others read, or the newest, with shards of an entry; else its own."""
        version = entry.shown
        held = [
            (number, self._landings(version, number).get(entry.number, []))
            for number in self._used(version)
            if number >= entry.snapshot
        ]
        added = [one.shard for one in entry.added]
        for number, shards in [one for one in held if one[1]] or [(entry.snapshot, added)]:
            records = sum(shard.records for shard in shards)
            made = _shown(version, number)
            yield Link(self._node(version, number), edge_by(entry, of, made, records))

    def _landings(self, version: str, number: int) -> dict[int, list[Shard]]:
        """The shards of a snapshot by the entry that they landed with."""
        listing = self._readable.listing(version, number)
        found: dict[int, list[Shard]] = {}
        for stay in () if listing is None else listing.stays:
            found.setdefault(stay.landed, []).append(stay.shard)
        return found

    def _used(self, version: str) -> list[int]:
        """The snapshots of a version that others read, and the newest."""
        read = {
            told.snapshot
            for entry in self._readable.readers(version)
            for told in entry.inputs
            if told.shown == version
        }
        state = self._readable.state(version)
        newest = 0 if state is None else state.snapshot
        asked = {self._snapshot} if version == self._version and self._snapshot else set()
        return sorted({*read, *asked, newest} - {0})

    def _node(self, version: str, number: int) -> Node:
        name = _shown(version, number)
        state = self._readable.state(version)
        listing = self._readable.listing(version, number)
        if state is None or listing is None:
            gone = self._readable.gone(version) or f"{version} has no snapshot {number}"
            return Node(name, "snapshot", gone=gone, lack=self._readable.lack(version))
        moment = state.timeline.moment(number)
        shards = [stay.shard.name for stay in listing.stays]
        lost = sum(state.condemned_in(shard) is not None for shard in shards)
        of = f"{lost:,} of its {counted(len(shards), 'shard')}"
        gone = f"{of} {'was' if lost == 1 else 'were'} erased or given to vacuum" if lost else ""
        facts = {"time": moment.time.isoformat(), **moment.totals.to_json()}
        if moment.rejected:
            facts["rejected"] = moment.rejected
        return Node(name, "snapshot", facts, gone)


def _read_by(entry: Entry) -> list[tuple[str, int]]:
    """The snapshots of which an entry made its shards."""
    if entry.inputs:
        return list(dict.fromkeys((one.shown, one.snapshot) for one in entry.inputs))
    if is_in_place(entry) and entry.added:
        return [(entry.shown, entry.snapshot - 1)]
    return []


def _shown(version: str, number: int) -> str:
    return f"{version}@{number}"


def _parsed(node: str) -> tuple[str, int]:
    """The version and the number; of a node that is no snapshot, none of them."""
    version, _, number = node.rpartition("@")
    return (version, int(number)) if number.isdigit() else ("", 0)
