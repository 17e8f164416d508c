"""What a version was made of, and what was made of it, at the level that one asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

from shardline.lineage.field_ancestry import FieldAncestry
from shardline.lineage.graph import Graph
from shardline.lineage.readable import Readable
from shardline.lineage.shard_ancestry import ShardAncestry
from shardline.lineage.snapshot_ancestry import SnapshotAncestry
from shardline.lineage.version_ancestry import VersionAncestry, VersionAtSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.lineage.graph import Edge, Link, Node
    from shardline.provenance.catalog import Catalog

Level: TypeAlias = Literal["versions", "snapshots", "shards", "fields"]
LEVELS: tuple[Level, ...] = get_args(Level)


class Ancestry(Protocol):
    """One level: where one starts, and what lies next to a node."""

    def start(self) -> Sequence[Node]:
        """The nodes that are asked about."""
        ...

    def parents(self, node: str) -> Iterable[Link]:
        """What a node was made of."""
        ...

    def children(self, node: str) -> Iterable[Link]:
        """What was made of a node."""
        ...


_LEVELS: dict[Level, type[SnapshotAncestry | ShardAncestry | FieldAncestry]] = {
    "versions": VersionAtSnapshot,
    "snapshots": SnapshotAncestry,
    "shards": ShardAncestry,
    "fields": FieldAncestry,
}


def ancestry(
    catalog: Catalog,
    version: str,
    snapshot: int | None = None,
    *,
    level: Level = "versions",
    up: bool = True,
    down: bool = True,
) -> Graph:
    """The graph of all that a version was made of (`up`) and that was made of it (`down`).

    With a snapshot, that one is meant, and not what came later: versions are told as the snapshots
    that were read. Shards are those of the newest snapshot unless another is told. What was deleted
    or cannot be read is in the graph too, and says so. Logs are read, and no shard.
    """
    readable = Readable(catalog)
    asked: Ancestry = _LEVELS[level](readable, version, snapshot)
    if level == "versions" and snapshot is None:
        asked = VersionAncestry(readable, version)
    start = asked.start()
    nodes = {node.id: node for node in start}
    edges: dict[tuple[str, str, str, str], Edge] = {}
    for wanted, neighbours in ((up, asked.parents), (down, asked.children)):
        waiting = [node.id for node in start] if wanted else []
        seen = set(waiting)
        for one in waiting:  # it grows while it is read
            for link in neighbours(one):
                nodes.setdefault(link.node.id, link.node)
                edge = link.edge
                edges.setdefault((edge.of, edge.made, edge.operation, edge.how), edge)
                if link.node.id not in seen:
                    seen.add(link.node.id)
                    waiting.append(link.node.id)
    begin = tuple(node.id for node in start)
    return Graph(level, begin, nodes, tuple(edges.values()), readable.unread)
