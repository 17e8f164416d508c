"""Ancestry at each level: what features, shards, snapshots and versions came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, get_args

from shardline.lineage.ancestry_graph import (
    AncestryGraph,
    AncestryLink,
    AncestryNode,
    ReadableLogs,
    make_edge,
    make_source_node,
    make_sources_link,
    merge_links,
    merge_source_links,
)
from shardline.log.parameters import RepairParameters
from shardline.log.state import RESTORING_OPERATIONS
from shardline.pairing.coverage import get_coverage
from shardline.provenance.log_index import TraceGapError, get_base_shard, is_in_place_entry
from shardline.provenance.row_mapping import find_first_repair
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.lineage.ancestry_graph import AncestryEdge
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.provenance.log_index import LogIndex, ShardListing

AncestryLevel: TypeAlias = Literal["versions", "snapshots", "shards", "features"]
ANCESTRY_LEVELS: tuple[AncestryLevel, ...] = get_args(AncestryLevel)


class AncestryView(Protocol):
    """A level: the start nodes, and the neighbors of a node."""

    def start(self) -> Sequence[AncestryNode]:
        """Return the start nodes."""
        ...

    def upstream(self, node: str) -> Iterable[AncestryLink]:
        """Return the links to what a node came from."""
        ...

    def downstream(self, node: str) -> Iterable[AncestryLink]:
        """Return the links to what came from a node."""
        ...


def build_ancestry_graph(
    index: LogIndex,
    version: str,
    snapshot: int | None = None,
    *,
    level: AncestryLevel = "versions",
    upstream: bool = True,
    downstream: bool = True,
) -> AncestryGraph:
    """Build the graph of what a version came from, and of what came from it.

    Reads logs, but no shard. Nodes that were deleted or cannot be read have a problem.

    Args:
        index: The logs of the root.
        version: The version.
        snapshot: A snapshot of it, without later ones. Other versions then appear as the
            snapshots that were read. Shards are those of the latest snapshot by default.
        level: The kind of the nodes.
        upstream: Include what it came from.
        downstream: Include what came from it.
    """
    logs = ReadableLogs(index)
    view: AncestryView = _LEVELS[level](logs, version, snapshot)
    if level == "versions" and snapshot is None:
        view = VersionAncestry(logs, version)
    start = view.start()
    nodes = {node.id: node for node in start}
    edges: dict[tuple[str, str, str, str], AncestryEdge] = {}
    for included, list_links in ((upstream, view.upstream), (downstream, view.downstream)):
        pending = [node.id for node in start] if included else []
        seen = set(pending)
        for node_id in pending:  # Grows while it is read.
            for link in list_links(node_id):
                nodes.setdefault(link.node.id, link.node)
                edges.setdefault(link.edge.key, link.edge)
                if link.node.id not in seen:
                    seen.add(link.node.id)
                    pending.append(link.node.id)
    start_ids = tuple(node.id for node in start)
    return AncestryGraph(level, start_ids, nodes, tuple(edges.values()), logs.unreadable)


class FeatureAncestry:
    """Features, by the last entry of each version that read others.

    With a snapshot, by the last entry up to it.
    """

    def __init__(self, logs: ReadableLogs, version: str, snapshot: int | None) -> None:
        self._logs = logs
        self._version = version
        self._snapshot = snapshot

    def start(self) -> list[AncestryNode]:
        """Return the features of the version."""
        state = self._logs.state(self._version)
        features = () if state is None or state.schema is None else state.schema.features
        return [self._make_node(self._version, feature.name) for feature in features]

    def upstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the features that a feature came from."""
        version, _, feature = node.partition(":")
        entry = self._find_entry(version) if feature else None
        if entry is None:
            return []
        links = [link for name, link in self._iter_links(entry) if name == feature]
        for name in dict.fromkeys(source.label for source in entry.inputs):
            problem, reason = self._logs.problem(name)
            if problem:
                unknown = AncestryNode(name, "version", problem=problem, reason=reason)
                edge = make_edge(entry, name, node, how="its features are unknown")
                links.append(AncestryLink(unknown, edge))
        return links

    def downstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the features that came from a feature."""
        version = node.partition(":")[0]
        links = []
        for name in dict.fromkeys(entry.label for entry in self._logs.readers(version)):
            entry = self._find_entry(name, version)
            for feature, link in () if entry is None else self._iter_links(entry):
                if link.edge.upstream == node:
                    links.append(AncestryLink(self._make_node(name, feature), link.edge))
        return merge_links(links)

    def _find_entry(self, version: str, source: str = "") -> Entry | None:
        """Return the last entry of a version that read others.

        With a snapshot of this ancestry, the last one up to it, or that read it as `source`.
        """
        last = None
        for entry in self._logs.entries(version):
            if entry.inputs and (self._snapshot is None or self._is_included(entry, source)):
                last = entry
        return last

    def _is_included(self, entry: Entry, source: str) -> bool:
        if source == self._version:
            inputs = {(read.label, read.snapshot) for read in entry.inputs}
            return (source, self._snapshot) in inputs
        return entry.label != self._version or entry.snapshot <= (self._snapshot or 0)

    def _iter_links(self, entry: Entry) -> Iterator[tuple[str, AncestryLink]]:
        for feature, origin in self._logs.index.get_origins(entry).items():
            how = f"{origin.change} by {origin.function}" if origin.function else origin.change
            for version, source in origin.upstream:
                node = self._make_node(version, source)
                edge = make_edge(entry, node.id, f"{entry.label}:{feature}", how=how)
                yield feature, AncestryLink(node, edge)

    def _make_node(self, version: str, name: str) -> AncestryNode:
        state = self._logs.state(version)
        features = () if state is None or state.schema is None else state.schema.features
        facts = next(
            (
                {"feature_kind": feature.kind, "shape": list(feature.shape)}
                for feature in features
                if feature.name == name
            ),
            {},
        )
        return AncestryNode(f"{version}:{name}", "feature", facts, *self._logs.problem(version))


class ShardAncestry:
    """Shards of a snapshot, by default the latest."""

    def __init__(self, logs: ReadableLogs, version: str, snapshot: int | None) -> None:
        self._logs = logs
        self._version = version
        self._snapshot = snapshot
        self._adding: dict[str, dict[str, list[Entry]]] = {}
        self._downstream: dict[str, list[AncestryLink]] | None = None

    def start(self) -> list[AncestryNode]:
        """Return the shards of the snapshot."""
        state = self._logs.state(self._version)
        latest = 0 if state is None else state.snapshot
        listing = self._logs.listing(self._version, self._snapshot or latest)
        shards = () if listing is None else listing.shards
        return [self._make_node(self._version, shard.name, shard) for shard in shards]

    def upstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the shards or the source that a shard came from."""
        version, shard = _parse_shard_node(node)
        links = [
            link
            for entry in self._get_adding_entries(version).get(shard, ())
            for link in self._iter_links(entry, shard)
        ]
        # Entries that reuse a shard derive the same records.
        return merge_links(links, same_records=True)

    def downstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the shards that came from a shard."""
        if self._downstream is None:
            self._downstream = {}
            for name in self._logs.index.list_folders():
                for shard, entries in self._get_adding_entries(name).items():
                    target = self._make_node(name, shard)
                    for link in (
                        link for entry in entries for link in self._iter_links(entry, shard)
                    ):
                        links = self._downstream.setdefault(link.node.id, [])
                        links.append(AncestryLink(target, link.edge))
        return merge_links(self._downstream.get(node, ()), same_records=True)

    def _get_adding_entries(self, version: str) -> dict[str, list[Entry]]:
        """Return the entries that added each shard of a version."""
        if version not in self._adding:
            adding: dict[str, list[Entry]] = {}
            for entry in self._logs.entries(version) if version else ():
                if entry.operation not in RESTORING_OPERATIONS:
                    for added in entry.added:
                        adding.setdefault(added.shard.name, []).append(entry)
            self._adding[version] = adding
        return self._adding[version]

    def _iter_links(self, entry: Entry, name: str) -> Iterator[AncestryLink]:
        """Yield the links to what a shard of an entry came from."""
        shard = next(added.shard for added in entry.added if added.shard.name == name)
        target = _format_shard_node(entry.label, name)
        if entry.operation == "append" and shard.source is not None:
            for source in entry.sources:
                if source.key == shard.source:
                    node = make_source_node(source)
                    edge = make_edge(entry, node.id, target, shard.records)
                    yield AncestryLink(node, edge)
            return
        try:
            # A shard that is paired with itself is listed for both sides.
            inputs = dict.fromkeys(
                (listing.version, input_name)
                for listing, names in _iter_input_shards(self._logs.index, entry, shard)
                for input_name in names
            )
            nodes = [self._make_node(*pair) for pair in inputs]
        except TraceGapError as error:
            problems = (self._logs.problem(source.label)[0] for source in entry.inputs)
            problem = next((problem for problem in problems if problem), None) or "unknown"
            node_id = f"inputs of {target}"
            nodes = [AncestryNode(node_id, "shard", problem=problem, reason=str(error))]
        for node in nodes:
            yield AncestryLink(node, make_edge(entry, node.id, target, shard.records))

    def _make_node(self, version: str, name: str, shard: Shard | None = None) -> AncestryNode:
        node_id = _format_shard_node(version, name)
        state = self._logs.state(version)
        if state is None:
            return AncestryNode(node_id, "shard", {}, *self._logs.problem(version))
        if shard is None:
            interval = state.shard_history.named([name]).get(name)
            shard = None if interval is None else interval.shard
        facts = {} if shard is None else {"records": shard.records, "bytes": shard.bytes}
        number = state.get_tombstone(name)
        if number is None:
            return AncestryNode(node_id, "shard", facts)
        erased = self._logs.index.entry(version, number).operation == "erase"
        reason = f"{'erased' if erased else 'vacuumed'} in entry {number}"
        return AncestryNode(node_id, "shard", facts, "missing", reason)


def _iter_input_shards(
    index: LogIndex, entry: Entry, shard: Shard
) -> Iterator[tuple[ShardListing, Sequence[str]]]:
    """Yield the shards that an entry derived a shard from, with their snapshot."""
    if entry.operation == "combine":
        coverage = get_coverage(entry, index.get_position(entry, shard.name))
        for side, source in enumerate(entry.inputs):
            listing = index.get_input(source)
            span = slice(None)
            if coverage is not None:
                span = slice(*(coverage.left, coverage.right)[side])
            yield listing, [other.name for other in listing.shards[span]]
    elif entry.operation == "rebuild":
        yield _find_rebuilt_inputs(index, entry, shard)
    elif entry.operation == "repair":
        is_salvage = entry.read(RepairParameters).is_salvage
        first, name = (entry, entry.removed[0]) if is_salvage else find_first_repair(index, entry)
        yield index.get_previous_listing(first), [name]
    elif entry.inputs or is_in_place_entry(entry):
        listing = (
            index.get_input(entry.inputs[0]) if entry.inputs else index.get_previous_listing(entry)
        )
        yield listing, [get_base_shard(entry, index.get_position(entry, shard.name))]


def _find_rebuilt_inputs(
    index: LogIndex, entry: Entry, shard: Shard
) -> tuple[ShardListing, Sequence[str]]:
    """Return the shards whose records are in a rebuilt one, by their positions."""
    if entry.inputs:
        listing = index.get_input(entry.inputs[0])
        first = index.get_listing(entry.label, entry.snapshot).number(shard.name, 0) or 0
    else:
        listing = index.get_previous_listing(entry)
        first = listing.number(entry.removed[0], 0) or 0
        earlier = entry.added[: index.get_position(entry, shard.name)]
        first += sum(added.shard.records for added in earlier)
    end = first + shard.records
    return listing, [
        other.name
        for position, other in enumerate(listing.shards)
        if listing.get_start(position) < end and listing.get_start(position) + other.records > first
    ]


def _format_shard_node(version: str, shard: str) -> str:
    return f"{version.partition('/')[0]}/{shard}"


def _parse_shard_node(node: str) -> tuple[str, str]:
    """Return the version and the shard of a node, both empty for another node."""
    dataset, _, shard = node.partition("/")
    owner, dot, _ = shard.partition(".")
    return (f"{dataset}/{owner}", shard) if dot and not dataset.startswith("source ") else ("", "")


class SnapshotAncestry:
    """Snapshots, linked if one has shards that an entry derived from the other.

    Without a snapshot, starts from the latest and from those that others read.
    """

    links_own_version: ClassVar[bool] = True

    def __init__(self, logs: ReadableLogs, version: str, snapshot: int | None) -> None:
        self._logs = logs
        self._version = version
        self._snapshot = snapshot

    def start(self) -> list[AncestryNode]:
        """Return the snapshots to start from."""
        if self._snapshot is not None:
            return [self._make_node(self._version, self._snapshot)]
        numbers = self._list_used(self._version)
        return [self._make_node(self._version, number) for number in numbers]

    def upstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the snapshots and sources that a snapshot came from."""
        return merge_links(merge_source_links(list(self._iter_upstream(node))))

    def _iter_upstream(self, node: str) -> Iterator[AncestryLink]:
        version, number = _parse_snapshot_node(node)
        for entry_number, shards in self._group_shards(version, number).items():
            entry = self._logs.index.entry(version, entry_number)
            records = sum(shard.records for shard in shards)
            if entry.operation == "append":
                yield make_sources_link(entry, node, shards)
            for source in _list_read_snapshots(entry):
                source_node = self._make_node(*source)
                edge = make_edge(entry, source_node.id, node, records)
                yield AncestryLink(source_node, edge)

    def downstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the snapshots and consumers that came from a snapshot."""
        version, number = _parse_snapshot_node(node)
        links: list[AncestryLink] = []
        entries = self._logs.entries(version) if self.links_own_version else ()
        own = [entry for entry in entries if not entry.inputs]
        for entry in (*own, *self._logs.readers(version)):
            if (version, number) in _list_read_snapshots(entry):
                links += self._iter_snapshot_links(entry, node)
        return [*merge_links(links), *self._logs.consumers(version, node, number)]

    def _iter_snapshot_links(self, entry: Entry, source: str) -> Iterator[AncestryLink]:
        """Yield links to the used snapshots with shards of an entry, or to its own snapshot."""
        version = entry.label
        shards_by_snapshot = {
            number: shards
            for number in self._list_used(version)
            if number >= entry.snapshot
            and (shards := self._group_shards(version, number).get(entry.number))
        }
        if not shards_by_snapshot:
            shards_by_snapshot = {entry.snapshot: [added.shard for added in entry.added]}
        for number, shards in shards_by_snapshot.items():
            node = self._make_node(version, number)
            records = sum(shard.records for shard in shards)
            yield AncestryLink(node, make_edge(entry, source, node.id, records))

    def _group_shards(self, version: str, number: int) -> dict[int, list[Shard]]:
        """Group the shards of a snapshot by the entry that added them."""
        listing = self._logs.listing(version, number)
        groups: dict[int, list[Shard]] = {}
        for interval in () if listing is None else listing.intervals:
            groups.setdefault(interval.added_entry, []).append(interval.shard)
        return groups

    def _list_used(self, version: str) -> list[int]:
        """List the snapshots of a version that others read, its start and its latest."""
        read = {
            source.snapshot
            for entry in self._logs.readers(version)
            for source in entry.inputs
            if source.label == version
        }
        state = self._logs.state(version)
        latest = 0 if state is None else state.snapshot
        start = (self._snapshot or 0) if version == self._version else 0
        return sorted({*read, start, latest} - {0})

    def _make_node(self, version: str, number: int) -> AncestryNode:
        node_id = f"{version}@{number}"
        state = self._logs.state(version)
        listing = self._logs.listing(version, number)
        if state is None or listing is None:
            problem, reason = self._logs.problem(version)
            reason = reason or f"{version} has no snapshot {number}"
            return AncestryNode(node_id, "snapshot", {}, problem or "missing", reason)
        snapshot_row = state.snapshot_history.get_row(number)
        facts = {"time": snapshot_row.time.isoformat(), **snapshot_row.totals.to_dict()}
        if snapshot_row.rejected:
            facts["rejected"] = snapshot_row.rejected
        removed = sum(state.get_tombstone(shard.name) is not None for shard in listing.shards)
        if not removed:
            return AncestryNode(node_id, "snapshot", facts)
        shards = format_count(len(listing.shards), "shard")
        reason = f"{removed:,} of its {shards} erased or vacuumed"
        return AncestryNode(node_id, "snapshot", facts, "missing", reason)


def _list_read_snapshots(entry: Entry) -> list[tuple[str, int]]:
    """List the snapshots that an entry derived its shards from."""
    if entry.inputs:
        return list(dict.fromkeys((source.label, source.snapshot) for source in entry.inputs))
    if is_in_place_entry(entry) and entry.added:
        return [(entry.label, entry.snapshot - 1)]
    return []


def _parse_snapshot_node(node: str) -> tuple[str, int]:
    """Return the version and the number of a node, empty and 0 for another node."""
    version, _, number = node.rpartition("@")
    return (version, int(number)) if number.isdigit() else ("", 0)


class VersionAtSnapshot(SnapshotAncestry):
    """A version as of a snapshot, linked to snapshots of other versions.

    Steps inside the version are left out: the source of a rebuilt shard is the source of the
    shards that it was rebuilt from.
    """

    links_own_version = False

    def _group_shards(self, version: str, number: int) -> dict[int, list[Shard]]:
        """Group the shards of a snapshot, or those they replaced, by the entry that added them."""
        listing = self._logs.listing(version, number)
        pending = [] if listing is None else list(listing.intervals)
        seen = {interval.shard.name for interval in pending}
        groups: dict[int, list[Shard]] = {}
        for interval in pending:  # Grows while it is read.
            entry = self._logs.index.entry(version, interval.added_entry)
            if entry.inputs or not is_in_place_entry(entry):
                groups.setdefault(interval.added_entry, []).append(interval.shard)
                continue
            before = self._logs.listing(version, entry.snapshot - 1)
            for earlier in () if before is None else before.intervals:
                name = earlier.shard.name
                if name in entry.removed and name not in seen:
                    seen.add(name)
                    pending.append(earlier)
        return groups


class VersionAncestry:
    """A version with its whole history, linked to other versions."""

    def __init__(self, logs: ReadableLogs, version: str) -> None:
        self._logs = logs
        self._version = version

    def start(self) -> list[AncestryNode]:
        """Return the version."""
        return [self._make_node(self._version)]

    def upstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the versions and sources that a version came from."""
        return merge_links(merge_source_links(list(self._iter_upstream(node))))

    def _iter_upstream(self, version: str) -> Iterator[AncestryLink]:
        for entry in self._logs.entries(version):
            if entry.operation == "append" and entry.added:
                yield make_sources_link(entry, version, [added.shard for added in entry.added])
            for source in dict.fromkeys(source.label for source in entry.inputs):
                yield AncestryLink(self._make_node(source), make_edge(entry, source, version))

    def downstream(self, node: str) -> list[AncestryLink]:
        """Return the links to the versions and consumers that came from a version."""
        links = [
            AncestryLink(self._make_node(entry.label), make_edge(entry, node, entry.label))
            for entry in self._logs.readers(node)
        ]
        return [*merge_links(links), *self._logs.consumers(node, node)]

    def _make_node(self, version: str) -> AncestryNode:
        state = self._logs.state(version)
        if state is None:
            return AncestryNode(version, "version", {}, *self._logs.problem(version))
        facts = {
            "snapshot": state.snapshot,
            "published": state.published,
            **state.totals.to_dict(),
            "entries": state.number,
        }
        return AncestryNode(version, "version", facts)


_LEVELS: dict[AncestryLevel, type[SnapshotAncestry | ShardAncestry | FeatureAncestry]] = {
    "versions": VersionAtSnapshot,
    "snapshots": SnapshotAncestry,
    "shards": ShardAncestry,
    "features": FeatureAncestry,
}
