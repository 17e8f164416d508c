"""The graph of what came from what at one level: versions, snapshots, shards or features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import CorruptLogError, InvalidNameError, UnknownFormatError
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.log_index import LogIndex, TraceGapError, group_by_input
from shardline.report import Report
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Shard, Source
    from shardline.log.state import State
    from shardline.provenance.log_index import ShardListing

NodeKind: TypeAlias = Literal["version", "snapshot", "shard", "feature", "source", "consumer"]
NodeProblem: TypeAlias = Literal["missing", "corrupt", "unreadable", "unknown"]
"""Missing was deleted, unreadable has a log of a later release, unknown is not recorded."""
UNREADABLE_LOG = "its log cannot be read"


@dataclass(frozen=True, slots=True)
class AncestryNode(Report):
    """A version, snapshot, shard, feature, source or consumer.

    `id` is a reference: `digits/v1`, `digits/v1@3`, `digits/v1.0123….tfrecord`,
    `digits/v1:label`. `facts` are totals and the like. `reason` is the text of a `problem`.
    """

    id: str
    kind: NodeKind
    facts: Json = field(default_factory=dict)
    problem: NodeProblem | None = None
    reason: str = ""

    def to_dict(self) -> Json:
        """Return the node as JSON."""
        problem = {"problem": self.problem, "reason": self.reason} if self.problem else {}
        return {"id": self.id, "kind": self.kind, **self.facts, **problem}


@dataclass(frozen=True, slots=True)
class AncestryEdge(Report):
    """A derivation by one or more entries; time, run and code are those of the last.

    `records` is the number of downstream records, if it is known. `how` describes the derivation,
    such as the function of a feature.
    """

    upstream: str
    downstream: str
    operation: str
    entries: tuple[int, ...] = ()
    time: datetime | None = None
    run: str = ""
    code: str = ""
    records: int | None = None
    how: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The fields by which edges of several entries are the same."""
        return self.upstream, self.downstream, self.operation, self.how

    def to_dict(self) -> Json:
        """Return the edge as JSON."""
        records = {} if self.records is None else {"records": self.records}
        return {
            "upstream": self.upstream,
            "downstream": self.downstream,
            "operation": self.operation,
            "entries": list(self.entries),
            "time": self.time and self.time.isoformat(),
            "run": self.run,
            "code": self.code,
            **records,
            **({"how": self.how} if self.how else {}),
        }


@dataclass(frozen=True, slots=True)
class AncestryLink:
    """An edge and the node at its other end."""

    node: AncestryNode
    edge: AncestryEdge


@dataclass(frozen=True)
class AncestryGraph(Report):
    """The nodes and edges that are reachable from the `start` nodes.

    `unreadable` maps the versions with unreadable logs to the reason. What they came from is
    missing from the graph.
    """

    level: str
    start: tuple[str, ...]
    nodes: dict[str, AncestryNode]
    edges: tuple[AncestryEdge, ...]
    unreadable: dict[str, str] = field(default_factory=dict)

    def upstream(self, node: str) -> list[AncestryEdge]:
        """Return the edges to a node."""
        return self._edges_by_end[0].get(node, [])

    def downstream(self, node: str) -> list[AncestryEdge]:
        """Return the edges from a node."""
        return self._edges_by_end[1].get(node, [])

    @cached_property
    def _edges_by_end(self) -> tuple[dict[str, list[AncestryEdge]], dict[str, list[AncestryEdge]]]:
        upstream: dict[str, list[AncestryEdge]] = {}
        downstream: dict[str, list[AncestryEdge]] = {}
        for edge in self.edges:
            upstream.setdefault(edge.downstream, []).append(edge)
            downstream.setdefault(edge.upstream, []).append(edge)
        return upstream, downstream

    def to_dict(self) -> Json:
        """Return the graph as JSON."""
        return {
            "level": self.level,
            "start": list(self.start),
            "nodes": [node.to_dict() for node in self.nodes.values()],
            "edges": [edge.to_dict() for edge in self.edges],
            "unreadable": self.unreadable,
        }


def make_edge(
    entry: Entry, upstream: str, downstream: str, records: int | None = None, how: str = ""
) -> AncestryEdge:
    """Return the edge of an entry."""
    return AncestryEdge(
        upstream,
        downstream,
        entry.operation,
        (entry.number,),
        entry.time,
        entry.commit_info.run,
        entry.commit_info.code,
        records,
        how,
    )


def merge_links(links: Iterable[AncestryLink], *, same_records: bool = False) -> list[AncestryLink]:
    """Merge the links of several entries with the same nodes, operation and description.

    Adds the records up. With `same_records`, the entries derived the same records.
    """
    merged: dict[tuple[str, str, str, str], AncestryLink] = {}
    for link in links:
        edge = link.edge
        if edge.key in merged:
            earlier = merged[edge.key].edge
            counts = [n for n in (earlier.records, edge.records) if n is not None]
            edge = replace(
                edge,
                entries=tuple(sorted({*earlier.entries, *edge.entries})),
                records=(max if same_records else sum)(counts) if counts else None,
            )
        merged[edge.key] = AncestryLink(link.node, edge)
    return list(merged.values())


_SHAPES = {
    "version": "box",
    "snapshot": "box",
    "shard": "note",
    "feature": "ellipse",
    "source": "folder",
    "consumer": "component",
}


def format_dot(graph: AncestryGraph) -> str:
    """Format the graph in the DOT language, from left to right."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    lines += [_format_node(node, bold=node.id in graph.start) for node in graph.nodes.values()]
    lines += [_format_edge(edge) for edge in graph.edges]
    return "\n".join([*lines, "}"])


def _format_node(node: AncestryNode, *, bold: bool) -> str:
    lines = [node.id]
    if "records" in node.facts:
        lines.append(format_count(node.facts["records"], "record"))
    if "sources" in node.facts:
        lines.append(f"{len(node.facts['sources']):,} in all")
    lines += [node.reason] if node.problem else []
    styles = ["dashed"] if node.problem else []
    styles += ["bold"] if bold else []
    style = f", style={_quote(','.join(styles))}" if styles else ""
    label = _quote("\n".join(lines))
    return f"  {_quote(node.id)} [shape={_SHAPES[node.kind]}, label={label}{style}];"


def _format_edge(edge: AncestryEdge) -> str:
    label = _quote(edge.how or edge.operation)
    return f"  {_quote(edge.upstream)} -> {_quote(edge.downstream)} [label={label}];"


def _quote(text: str) -> str:
    """Quote a text for DOT, in which only line ends have a meaning."""
    plain = "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class ReadableLogs:
    """The logs of a root, in which missing and corrupt logs are empty and have a problem."""

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._problems: dict[str, tuple[NodeProblem, str]] = {}
        self._readers: dict[str, list[Entry]] | None = None

    def entries(self, version: str) -> tuple[Entry, ...]:
        """Return the entries of a version, or none if its log cannot be read."""
        if version not in self._entries:
            entries: tuple[Entry, ...] = ()
            try:
                entries = self.index.entries(version)
                self.index.version(version).state.shard_history.names()
                if not entries:
                    self._problems[version] = ("missing", "there is no log of it in this root")
            except (CorruptLogError, UnknownFormatError) as error:
                entries = ()
                is_corrupt = isinstance(error, CorruptLogError)
                reason = f"{UNREADABLE_LOG}: {error}"
                self._problems[version] = ("corrupt" if is_corrupt else "unreadable", reason)
            except InvalidNameError as error:
                self._problems[version] = ("missing", str(error))
            self._entries[version] = entries
        return self._entries[version]

    def problem(self, version: str) -> tuple[NodeProblem, str] | tuple[None, str]:
        """Return the problem of a version and its reason, or None and an empty reason."""
        self.entries(version)
        return self._problems.get(version, (None, ""))

    @property
    def unreadable(self) -> dict[str, str]:
        """The versions whose logs exist but cannot be read, with the reasons."""
        return {
            name: reason
            for name, (problem, reason) in self._problems.items()
            if problem != "missing"
        }

    def state(self, version: str) -> State | None:
        """Return the state of a version, or None if its log cannot be read."""
        return self.index.version(version).state if self.entries(version) else None

    def listing(self, version: str, snapshot: int) -> ShardListing | None:
        """Return the shards of a snapshot, or None if they are unknown."""
        if not self.entries(version):
            return None
        try:
            return self.index.get_listing(version, snapshot)
        except TraceGapError:
            return None

    def readers(self, version: str) -> Sequence[Entry]:
        """Return the entries of all versions that read a snapshot of a version."""
        if self._readers is None:
            names = self.index.list_folders()
            self._readers = group_by_input(entry for name in names for entry in self.entries(name))
        return self._readers.get(version, ())

    def consumers(
        self, version: str, node: str, snapshot: int | None = None
    ) -> Iterator[AncestryLink]:
        """Yield the consumers of a version, or of a snapshot of it, as links from a node."""
        state = self.state(version)
        for name, pin in ({} if state is None else state.pins).items():
            if name.startswith(CONSUMER_PREFIX) and snapshot in {None, pin.snapshot}:
                facts = {"snapshot": pin.snapshot, "reason": pin.reason}
                edge = AncestryEdge(node, name, "read", how=f"snapshot {pin.snapshot}")
                yield AncestryLink(AncestryNode(name, "consumer", facts), edge)


def make_sources_link(entry: Entry, downstream: str, shards: Sequence[Shard]) -> AncestryLink:
    """Return the link from the sources of appended shards, as a single node."""
    keys = {shard.source for shard in shards}
    names = [source.label for source in entry.sources if source.key in keys]
    node = AncestryNode(f"sources of {downstream}", "source", {"sources": names})
    records = sum(shard.records for shard in shards if shard.source is not None)
    return AncestryLink(node, make_edge(entry, node.id, downstream, records))


def make_source_node(source: Source) -> AncestryNode:
    """Return the node of a source."""
    return AncestryNode(f"source {source.label}", "source", {"source": source.to_dict()})


def merge_source_links(links: Sequence[AncestryLink]) -> list[AncestryLink]:
    """Merge the names of source nodes with the same id."""
    names: dict[str, dict[str, None]] = {}
    for link in links:
        if "sources" in link.node.facts:
            names.setdefault(link.node.id, {}).update(dict.fromkeys(link.node.facts["sources"]))
    return [
        AncestryLink(
            replace(link.node, facts={"sources": list(names[link.node.id])})
            if link.node.id in names
            else link.node,
            link.edge,
        )
        for link in links
    ]
