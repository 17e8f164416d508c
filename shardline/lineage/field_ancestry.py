"""Ancestry of fields: of which features of other versions each was made, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.lineage.graph import Link, Node, edge_by, together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.readable import Readable
    from shardline.log.entry import Entry


class FieldAncestry:
    """The features of a version; where they come from is told by the last entry that read others.

    With a snapshot, that is the last entry up to it.
    """

    def __init__(self, readable: Readable, version: str, snapshot: int | None) -> None:
        self._readable = readable
        self._version = version
        self._snapshot = snapshot

    def start(self) -> list[Node]:
        """The features of the version."""
        state = self._readable.state(self._version)
        features = () if state is None or state.schema is None else state.schema.features
        return [self._node(self._version, feature.name) for feature in features]

    def parents(self, node: str) -> list[Link]:
        """The features that one was made of."""
        version, _, feature = node.partition(":")
        entry = self._told(version) if feature else None
        if entry is None:
            return []
        lost = [name for name in (one.shown for one in entry.inputs) if self._readable.gone(name)]
        return [
            *(link for made, link in self._links(entry) if made == feature),
            *(
                Link(
                    self._lost(name),
                    edge_by(entry, name, node, how="its features are not known"),
                )
                for name in dict.fromkeys(lost)
            ),
        ]

    def children(self, node: str) -> list[Link]:
        """The features that were made of one."""
        version = node.partition(":")[0]
        links = []
        for name in dict.fromkeys(one.shown for one in self._readable.readers(version)):
            entry = self._told(name, version)
            for made, link in () if entry is None else self._links(entry):
                if link.edge.of == node:
                    links.append(Link(self._node(name, made), link.edge))
        return together(links)

    def _told(self, version: str, of: str = "") -> Entry | None:
        """The last entry of a version that tells where its features come from.

        If a snapshot was asked about: the last one up to it, or that was made `of` it.
        """
        found = None
        for entry in self._readable.entries(version):
            if entry.inputs and (self._snapshot is None or self._is_asked(entry, of)):
                found = entry
        return found

    def _is_asked(self, entry: Entry, of: str) -> bool:
        if of == self._version:
            return any((one.shown, one.snapshot) == (of, self._snapshot) for one in entry.inputs)
        return entry.shown != self._version or entry.snapshot <= (self._snapshot or 0)

    def _links(self, entry: Entry) -> Iterator[tuple[str, Link]]:
        for made, origin in self._readable.histories.origins(entry).items():
            how = f"{origin.how} by {origin.by}" if origin.by else origin.how
            for version, feature in origin.of:
                of = self._node(version, feature)
                edge = edge_by(entry, of.id, f"{entry.shown}:{made}", how=how)
                yield made, Link(of, edge)

    def _node(self, version: str, feature: str) -> Node:
        state = self._readable.state(version)
        found = None
        if state is not None and state.schema is not None:
            found = next((one for one in state.schema.features if one.name == feature), None)
        facts = {} if found is None else {"kind_of_values": found.kind, "shape": list(found.shape)}
        gone, lack = self._readable.gone(version), self._readable.lack(version)
        return Node(f"{version}:{feature}", "field", facts, gone, lack)

    def _lost(self, version: str) -> Node:
        gone, lack = self._readable.gone(version), self._readable.lack(version)
        return Node(version, "version", gone=gone, lack=lack)
