"""A graph of what was made of what, at one level: versions, snapshots, shards or fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import CorruptLogError, InvalidNameError, UnknownFormatError
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.log_index import LogIndex, TraceGapError
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Shard, Source
    from shardline.log.state import State
    from shardline.provenance.log_index import ShardListing


NodeKind: TypeAlias = Literal["version", "snapshot", "shard", "field", "source", "consumer"]
NodeProblem: TypeAlias = Literal["gone", "damaged", "unreadable", "unknown"]
"""Why no more is told: it was deleted, its log is damaged or of a later release, or none says."""


@dataclass(frozen=True, slots=True)
class AncestryNode:
    """Something that was made, or that others were made of.

    `id` is as people write it: `digits/v1`, `digits/v1@3`, `digits/v1.0123….tfrecord`,
    `digits/v1:label`. `facts` is what is known of it, `gone` why it is not there any more, or
    cannot be told of; `lack` says which.
    """

    id: str
    kind: NodeKind
    facts: Json = field(default_factory=dict)
    gone: str = ""
    lack: NodeProblem = "gone"

    def to_dict(self) -> Json:
        """The node for machines."""
        told: Json = {"id": self.id, "kind": self.kind, **self.facts}
        return {**told, self.lack: self.gone} if self.gone else told


@dataclass(frozen=True, slots=True)
class AncestryEdge:
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

    def to_dict(self) -> Json:
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
class AncestryLink:
    """An edge, and the node at its other end."""

    node: AncestryNode
    edge: AncestryEdge


@dataclass(frozen=True)
class AncestryGraph:
    """Nodes and edges that can be reached from where one looks: `start`.

    `unread` are the versions whose logs were asked and cannot be read, and why: what they would
    tell is not in it.
    """

    level: str
    start: tuple[str, ...]
    nodes: dict[str, AncestryNode]
    edges: tuple[AncestryEdge, ...]
    unread: dict[str, str] = field(default_factory=dict)

    def parents(self, node: str) -> list[AncestryEdge]:
        """What a node was made of."""
        return self._by_end[0].get(node, [])

    def children(self, node: str) -> list[AncestryEdge]:
        """What was made of a node."""
        return self._by_end[1].get(node, [])

    @cached_property
    def _by_end(self) -> tuple[dict[str, list[AncestryEdge]], dict[str, list[AncestryEdge]]]:
        made: dict[str, list[AncestryEdge]] = {}
        of: dict[str, list[AncestryEdge]] = {}
        for edge in self.edges:
            made.setdefault(edge.made, []).append(edge)
            of.setdefault(edge.of, []).append(edge)
        return made, of

    def to_dict(self) -> Json:
        """The graph for machines."""
        return {
            "level": self.level,
            "start": list(self.start),
            "nodes": [node.to_dict() for node in self.nodes.values()],
            "edges": [edge.to_dict() for edge in self.edges],
            "unread": self.unread,
        }


def make_edge(
    entry: Entry, of: str, made: str, records: int | None = None, how: str = ""
) -> AncestryEdge:
    """An edge that an entry tells of."""
    maker = entry.maker
    return AncestryEdge(
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


def merge_links(links: Iterable[AncestryLink], *, same_records: bool = False) -> list[AncestryLink]:
    """Links with one edge for all entries that did the same to the same, in their order.

    The records of all are counted; with `same_records` they are the same each time.
    """
    found: dict[tuple[str, str, str, str], AncestryLink] = {}
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
        found[key] = AncestryLink(link.node, edge)
    return list(found.values())


_SHAPES = {
    "version": "box",
    "snapshot": "box",
    "shard": "note",
    "field": "ellipse",
    "source": "folder",
    "consumer": "component",
}


def format_dot(graph: AncestryGraph) -> str:
    """The graph from left to right: what was made of something stands to the right of it."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    lines += [_format_node(node, bold=node.id in graph.start) for node in graph.nodes.values()]
    lines += [_format_edge(edge) for edge in graph.edges]
    return "\n".join([*lines, "}"])


def _format_node(node: AncestryNode, *, bold: bool) -> str:
    told = [node.id]
    if "records" in node.facts:
        told.append(format_count(node.facts["records"], "record"))
    if "sources" in node.facts:
        told.append(f"{len(node.facts['sources']):,} in all")
    told += [node.gone] if node.gone else []
    style = ["dashed"] if node.gone else []
    style += ["bold"] if bold else []
    look = f", style={_quote(','.join(style))}" if style else ""
    label = _quote("\n".join(told))
    return f"  {_quote(node.id)} [shape={_SHAPES[node.kind]}, label={label}{look}];"


def _format_edge(edge: AncestryEdge) -> str:
    label = _quote(edge.how or edge.operation)
    return f"  {_quote(edge.of)} -> {_quote(edge.made)} [label={label}];"


def _quote(text: str) -> str:
    """A text as DOT reads it: of what it would obey, only line ends are left."""
    plain = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)
    told = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{told}"'


UNREADABLE_LOG = "its log cannot be read"


class ReadableCatalog:
    """A log index whose versions may be gone or damaged."""

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._gone: dict[str, tuple[NodeProblem, str]] = {}
        self._readers: dict[str, list[Entry]] | None = None

    def entries(self, version: str) -> tuple[Entry, ...]:
        """The entries of a version; none if it cannot be read."""
        if version not in self._entries:
            found: tuple[Entry, ...] = ()
            lack: NodeProblem = "gone"
            try:
                found = self.index.entries(version)
                self.index.version(version).state.stays.names()
                why = "" if found else "there is no log of it in this root"
            except (CorruptLogError, UnknownFormatError) as error:
                why, found = f"{UNREADABLE_LOG}: {error}", ()
                lack = "damaged" if isinstance(error, CorruptLogError) else "unreadable"
            except InvalidNameError as error:
                why = str(error)
            self._entries[version], self._gone[version] = found, (lack, why)
        return self._entries[version]

    def gone(self, version: str) -> str:
        """Why a version cannot be read; empty if it can."""
        self.entries(version)
        return self._gone[version][1]

    def lack(self, version: str) -> NodeProblem:
        """In which way a version cannot be read, if it cannot."""
        self.entries(version)
        return self._gone[version][0]

    @property
    def unread(self) -> dict[str, str]:
        """The versions that were asked for so far whose logs are there and cannot be read."""
        return {name: why for name, (lack, why) in self._gone.items() if lack != "gone"}

    def state(self, version: str) -> State | None:
        """How a version stands; None if it cannot be read."""
        return None if self.gone(version) else self.index.version(version).state

    def listing(self, version: str, snapshot: int) -> ShardListing | None:
        """The shards of a snapshot; None if they cannot be told."""
        if self.gone(version):
            return None
        try:
            return self.index.listing(version, snapshot)
        except TraceGapError:
            return None

    def readers(self, version: str) -> Sequence[Entry]:
        """The entries of all versions that read a snapshot of this one."""
        if self._readers is None:
            self._readers = {}
            for name in self.index.found():
                for entry in self.entries(name):
                    for read in dict.fromkeys(one.shown for one in entry.inputs):
                        self._readers.setdefault(read, []).append(entry)
        return self._readers.get(version, ())

    def consumers(
        self, version: str, made: str, snapshot: int | None = None
    ) -> Iterator[AncestryLink]:
        """Who registered on a version, or on one snapshot of it."""
        state = self.state(version)
        for name, hold in ({} if state is None else state.pins).items():
            if name.startswith(CONSUMER_PREFIX) and snapshot in {None, hold.snapshot}:
                node = AncestryNode(
                    name, "consumer", {"snapshot": hold.snapshot, "reason": hold.reason}
                )
                yield AncestryLink(
                    node, AncestryEdge(made, name, "read", how=f"snapshot {hold.snapshot}")
                )


def make_sources_link(entry: Entry, made: str, shards: Sequence[Shard]) -> AncestryLink:
    """From the sources of these shards, which an append brought in, together as one node."""
    keys = {shard.source for shard in shards}
    named = [one for one in entry.sources if one.key in keys]
    node = AncestryNode(f"sources of {made}", "source", {"sources": [one.shown for one in named]})
    records = sum(shard.records for shard in shards if shard.source is not None)
    return AncestryLink(node, make_edge(entry, node.id, made, records))


def make_source_node(source: Source) -> AncestryNode:
    """One source."""
    return AncestryNode(f"source {source.shown}", "source", {"source": source.to_dict()})


def merge_source_links(links: Sequence[AncestryLink]) -> list[AncestryLink]:
    """Links of which those from sources have one node, with all names."""
    names: dict[str, list[str]] = {}
    for link in links:
        if "sources" in link.node.facts:
            names.setdefault(link.node.id, []).extend(link.node.facts["sources"])
    return [
        AncestryLink(
            AncestryNode(
                link.node.id, "source", {"sources": list(dict.fromkeys(names[link.node.id]))}
            ),
            link.edge,
        )
        if link.node.id in names
        else link
        for link in links
    ]
