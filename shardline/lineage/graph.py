"""A graph of what was made of what, at one level: versions, snapshots, shards or fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry

Kind: TypeAlias = Literal["version", "snapshot", "shard", "field", "source", "consumer"]
Lack: TypeAlias = Literal["gone", "damaged", "unreadable", "unknown"]
"""Why no more is told: it was deleted, its log is damaged or of a later release, or none says."""


@dataclass(frozen=True, slots=True)
class Node:
    """Something that was made, or that others were made of.

    `id` is as people write it: `digits/v1`, `digits/v1@3`, `digits/v1.0123….tfrecord`,
    `digits/v1:label`. `facts` is what is known of it, `gone` why it is not there any more, or
    cannot be told of; `lack` says which.
    """

    id: str
    kind: Kind
    facts: Json = field(default_factory=dict)
    gone: str = ""
    lack: Lack = "gone"

    def to_json(self) -> Json:
        """The node for machines."""
        told: Json = {"id": self.id, "kind": self.kind, **self.facts}
        return {**told, self.lack: self.gone} if self.gone else told


@dataclass(frozen=True, slots=True)
class Edge:
    """That `made` was made of `of`, by which entries; time, run and code are those of the last.

    `records` is how many there are of it, if that is told. `how` says more of it, as which
    function computed a field.
    """

    of: str
    made: str
    operation: str
    entries: tuple[int, ...] = ()
    time: datetime | None = None
    run: str = ""
    code: str = ""
    records: int | None = None
    how: str = ""

    def to_json(self) -> Json:
        """The edge for machines."""
        told: Json = {
            "of": self.of,
            "made": self.made,
            "operation": self.operation,
            "entries": list(self.entries),
            "time": self.time and self.time.isoformat(),
            "run": self.run,
            "code": self.code,
        }
        told |= {} if self.records is None else {"records": self.records}
        return {**told, "how": self.how} if self.how else told


@dataclass(frozen=True, slots=True)
class Link:
    """An edge, and the node at its other end."""

    node: Node
    edge: Edge


@dataclass(frozen=True)
class Graph:
    """Nodes and edges that can be reached from where one looks: `start`.

    `unread` are the versions whose logs were asked and cannot be read, and why: what they would
    tell is not in it.
    """

    level: str
    start: tuple[str, ...]
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    unread: dict[str, str] = field(default_factory=dict)

    def parents(self, node: str) -> list[Edge]:
        """What a node was made of."""
        return self._by_end[0].get(node, [])

    def children(self, node: str) -> list[Edge]:
        """What was made of a node."""
        return self._by_end[1].get(node, [])

    @cached_property
    def _by_end(self) -> tuple[dict[str, list[Edge]], dict[str, list[Edge]]]:
        made: dict[str, list[Edge]] = {}
        of: dict[str, list[Edge]] = {}
        for edge in self.edges:
            made.setdefault(edge.made, []).append(edge)
            of.setdefault(edge.of, []).append(edge)
        return made, of

    def to_json(self) -> Json:
        """The graph for machines."""
        return {
            "level": self.level,
            "start": list(self.start),
            "nodes": [node.to_json() for node in self.nodes.values()],
            "edges": [edge.to_json() for edge in self.edges],
            "unread": self.unread,
        }


def edge_by(entry: Entry, of: str, made: str, records: int | None = None, how: str = "") -> Edge:
    """An edge that an entry tells of."""
    maker = entry.maker
    return Edge(
        of,
        made,
        entry.operation,
        (entry.number,),
        entry.time,
        maker.run,
        maker.code,
        records,
        how,
    )


def together(links: Iterable[Link], *, same_records: bool = False) -> list[Link]:
    """Links with one edge for all entries that did the same to the same, in their order.

    The records of all are counted; with `same_records` they are the same each time.
    """
    found: dict[tuple[str, str, str, str], Link] = {}
    for link in links:
        edge = link.edge
        key = (edge.of, edge.made, edge.operation, edge.how)
        if key in found:
            old = found[key].edge
            counts = [one.records for one in (old, edge) if one.records is not None]
            edge = replace(
                edge,
                entries=tuple(sorted({*old.entries, *edge.entries})),
                records=(max if same_records else sum)(counts) if counts else None,
            )
        found[key] = Link(link.node, edge)
    return list(found.values())
