"""Ancestry of fields: of which features of other versions each was made, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, get_args

from shardline.lineage.ancestry_graph import (
    AncestryGraph,
    AncestryLink,
    AncestryNode,
    ReadableCatalog,
    make_edge,
    make_source_node,
    make_sources_link,
    merge_links,
    merge_source_links,
)
from shardline.log.parameters import RepairParameters
from shardline.log.state import BRINGS_BACK
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


class FieldAncestry:
    """The features of a version; where they come from is told by the last entry that read others.

    With a snapshot, that is the last entry up to it.
    """

    def __init__(self, readable: ReadableCatalog, version: str, snapshot: int | None) -> None:
        self._readable = readable
        self._version = version
        self._snapshot = snapshot

    def start(self) -> list[AncestryNode]:
        """The features of the version."""
        state = self._readable.state(self._version)
        features = () if state is None or state.schema is None else state.schema.features
        return [self._node(self._version, feature.name) for feature in features]

    def parents(self, node: str) -> list[AncestryLink]:
        """The features that one was made of."""
        version, _, feature = node.partition(":")
        entry = self._told(version) if feature else None
        if entry is None:
            return []
        lost = [name for name in (one.shown for one in entry.inputs) if self._readable.gone(name)]
        return [
            *(link for made, link in self._links(entry) if made == feature),
            *(
                AncestryLink(
                    self._lost(name),
                    make_edge(entry, name, node, how="its features are not known"),
                )
                for name in dict.fromkeys(lost)
            ),
        ]

    def children(self, node: str) -> list[AncestryLink]:
        """The features that were made of one."""
        version = node.partition(":")[0]
        links = []
        for name in dict.fromkeys(one.shown for one in self._readable.readers(version)):
            entry = self._told(name, version)
            for made, link in () if entry is None else self._links(entry):
                if link.edge.of == node:
                    links.append(AncestryLink(self._node(name, made), link.edge))
        return merge_links(links)

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

    def _links(self, entry: Entry) -> Iterator[tuple[str, AncestryLink]]:
        for made, origin in self._readable.index.origins(entry).items():
            how = f"{origin.how} by {origin.by}" if origin.by else origin.how
            for version, feature in origin.of:
                of = self._node(version, feature)
                edge = make_edge(entry, of.id, f"{entry.shown}:{made}", how=how)
                yield made, AncestryLink(of, edge)

    def _node(self, version: str, feature: str) -> AncestryNode:
        state = self._readable.state(version)
        found = None
        if state is not None and state.schema is not None:
            found = next((one for one in state.schema.features if one.name == feature), None)
        facts = {} if found is None else {"kind_of_values": found.kind, "shape": list(found.shape)}
        gone, lack = self._readable.gone(version), self._readable.lack(version)
        return AncestryNode(f"{version}:{feature}", "field", facts, gone, lack)

    def _lost(self, version: str) -> AncestryNode:
        gone, lack = self._readable.gone(version), self._readable.lack(version)
        return AncestryNode(version, "version", gone=gone, lack=lack)


class ShardAncestry:
    """The shards of a snapshot, the newest unless told, and what they were made of."""

    def __init__(self, readable: ReadableCatalog, version: str, snapshot: int | None) -> None:
        self._readable = readable
        self._version = version
        self._snapshot = snapshot
        self._landed: dict[str, dict[str, list[Entry]]] = {}
        self._made: dict[str, list[AncestryLink]] | None = None

    def start(self) -> list[AncestryNode]:
        """The shards that are asked about."""
        state = self._readable.state(self._version)
        newest = 0 if state is None else state.snapshot
        listing = self._readable.listing(self._version, self._snapshot or newest)
        stays = () if listing is None else listing.stays
        return [self._node(self._version, stay.shard.name, stay.shard) for stay in stays]

    def parents(self, node: str) -> list[AncestryLink]:
        """The shards that one was made of, or its source."""
        version, shard = _parse_shard_node(node)
        links: list[AncestryLink] = []
        for entry in self._landings(version).get(shard, ()):
            links += self._of(entry, shard)
        # A shard that is reused is made again by the log, and not by more records.
        return merge_links(links, same_records=True)

    def children(self, node: str) -> list[AncestryLink]:
        """The shards that were made of one."""
        if self._made is None:
            self._made = {}
            for name in self._readable.index.found():
                for shard, entries in self._landings(name).items():
                    for entry in entries:
                        made = self._node(name, shard)
                        for link in self._of(entry, shard):
                            found = self._made.setdefault(link.node.id, [])
                            found.append(AncestryLink(made, link.edge))
        return merge_links(self._made.get(node, ()), same_records=True)

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

    def _of(self, entry: Entry, shard: str) -> Iterator[AncestryLink]:
        """What an entry made a shard of."""
        index, version = self._readable.index, entry.shown
        made = next(one.shard for one in entry.added if one.shard.name == shard)
        node = _format_shard_node(version, shard)
        if entry.operation == "append" and made.source is not None:
            for source in entry.sources:
                if source.key == made.source:
                    of = make_source_node(source)
                    yield AncestryLink(of, make_edge(entry, of.id, node, made.records))
            return
        try:
            # Of a shard that is paired with itself, both sides are one.
            shards = dict.fromkeys(
                (listing.version, name)
                for listing, names in _iter_input_shards(index, entry, made)
                for name in names
            )
            for one in shards:
                of = self._node(*one)
                yield AncestryLink(of, make_edge(entry, of.id, node, made.records))
        except TraceGapError as error:
            lost = [one.shown for one in entry.inputs if self._readable.gone(one.shown)]
            lack = self._readable.lack(lost[0]) if lost else "unknown"
            of = AncestryNode(f"what {node} was made of", "shard", gone=str(error), lack=lack)
            yield AncestryLink(of, make_edge(entry, of.id, node, made.records))

    def _node(self, version: str, name: str, shard: Shard | None = None) -> AncestryNode:
        state = self._readable.state(version)
        if state is None:
            gone, lack = self._readable.gone(version), self._readable.lack(version)
            return AncestryNode(_format_shard_node(version, name), "shard", gone=gone, lack=lack)
        if shard is None:
            stay = state.stays.named([name]).get(name)
            shard = None if stay is None else stay.shard
        entry = state.condemned_in(name)
        gone = ""
        if entry is not None:
            erased = self._readable.index.entry(version, entry).operation == "erase"
            gone = f"it {'was erased' if erased else 'went to vacuum'} in entry {entry}"
        facts = {} if shard is None else {"records": shard.records, "bytes": shard.bytes}
        return AncestryNode(_format_shard_node(version, name), "shard", facts, gone)


def _iter_input_shards(
    index: LogIndex, entry: Entry, made: Shard
) -> Iterator[tuple[ShardListing, Sequence[str]]]:
    """The shards of which an entry made one, with the snapshots in which they stand."""
    if entry.operation == "combine":
        cover = get_coverage(entry, index.place(entry, made.name))
        for side, told in enumerate(entry.inputs):
            listing = index.input(told)
            places = slice(None) if cover is None else slice(*(cover.left, cover.right)[side])
            yield listing, [stay.shard.name for stay in listing.stays[places]]
    elif entry.operation == "rebuild":
        yield _find_rebuilt_inputs(index, entry, made)
    elif entry.operation == "repair":
        whole = not entry.read(RepairParameters).is_salvage
        first, old = find_first_repair(index, entry) if whole else (entry, entry.removed[0])
        yield index.before(first), [old]
    elif entry.inputs or is_in_place_entry(entry):
        place = index.place(entry, made.name)
        listing = index.input(entry.inputs[0]) if entry.inputs else index.before(entry)
        yield listing, [get_base_shard(entry, place)]


def _find_rebuilt_inputs(
    index: LogIndex, entry: Entry, made: Shard
) -> tuple[ShardListing, Sequence[str]]:
    """The shards whose records are in a rebuilt one: by where they stand."""
    if entry.inputs:
        listing = index.input(entry.inputs[0])
        after = index.listing(entry.shown, entry.snapshot)
        first = after.number(made.name, 0) or 0
    else:
        listing = index.before(entry)
        place = index.place(entry, made.name)
        first = listing.number(entry.removed[0], 0) or 0
        first += sum(one.shard.records for one in entry.added[:place])
    last = first + made.records
    return listing, [
        stay.shard.name
        for at, stay in enumerate(listing.stays)
        if listing.start(at) < last and listing.start(at) + stay.shard.records > first
    ]


def _format_shard_node(version: str, shard: str) -> str:
    return f"{version.partition('/')[0]}/{shard}"


def _parse_shard_node(node: str) -> tuple[str, str]:
    """The version that owns a shard, and its name; of a node that is no shard, none of them."""
    dataset, _, shard = node.partition("/")
    owner, dot, _ = shard.partition(".")
    return (f"{dataset}/{owner}", shard) if dot and not dataset.startswith("source ") else ("", "")


class SnapshotAncestry:
    """Snapshots: one was made of another if it holds shards that an entry made of that.

    Of a version all snapshots are meant that others read, and the newest, unless one is told.
    """

    steps_in_place: ClassVar[bool] = True

    def __init__(self, readable: ReadableCatalog, version: str, snapshot: int | None) -> None:
        self._readable = readable
        self._version = version
        self._snapshot = snapshot

    def start(self) -> list[AncestryNode]:
        """The snapshots that are asked about."""
        if self._snapshot is not None:
            return [self._node(self._version, self._snapshot)]
        return [self._node(self._version, number) for number in self._used(self._version)]

    def parents(self, node: str) -> list[AncestryLink]:
        """What the shards of a snapshot were made of."""
        return merge_links(merge_source_links(list(self._parents(node))))

    def _parents(self, node: str) -> Iterator[AncestryLink]:
        version, number = _parse_snapshot_node(node)
        for landed, shards in self._landings(version, number).items():
            entry = self._readable.index.entry(version, landed)
            records = sum(shard.records for shard in shards)
            if entry.operation == "append":
                yield make_sources_link(entry, node, shards)
            for of in _list_read_snapshots(entry):
                yield AncestryLink(
                    self._node(*of), make_edge(entry, _format_snapshot_node(*of), node, records)
                )

    def children(self, node: str) -> list[AncestryLink]:
        """The snapshots that hold what was made of one, and who registered on it."""
        version, number = _parse_snapshot_node(node)
        links: list[AncestryLink] = []
        entries = self._readable.entries(version) if self.steps_in_place else ()
        own = [one for one in entries if not one.inputs]
        for entry in (*own, *self._readable.readers(version)):
            if (version, number) in _list_read_snapshots(entry):
                links += self._holders(entry, node)
        return [*merge_links(links), *self._readable.consumers(version, node, number)]

    def _holders(self, entry: Entry, of: str) -> Iterator[AncestryLink]:
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
            made = _format_snapshot_node(version, number)
            yield AncestryLink(self._node(version, number), make_edge(entry, of, made, records))

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

    def _node(self, version: str, number: int) -> AncestryNode:
        name = _format_snapshot_node(version, number)
        state = self._readable.state(version)
        listing = self._readable.listing(version, number)
        if state is None or listing is None:
            gone = self._readable.gone(version) or f"{version} has no snapshot {number}"
            return AncestryNode(name, "snapshot", gone=gone, lack=self._readable.lack(version))
        moment = state.timeline.moment(number)
        shards = [stay.shard.name for stay in listing.stays]
        lost = sum(state.condemned_in(shard) is not None for shard in shards)
        of = f"{lost:,} of its {format_count(len(shards), 'shard')}"
        gone = f"{of} {'was' if lost == 1 else 'were'} erased or given to vacuum" if lost else ""
        facts = {"time": moment.time.isoformat(), **moment.totals.to_dict()}
        if moment.rejected:
            facts["rejected"] = moment.rejected
        return AncestryNode(name, "snapshot", facts, gone)


def _list_read_snapshots(entry: Entry) -> list[tuple[str, int]]:
    """The snapshots of which an entry made its shards."""
    if entry.inputs:
        return list(dict.fromkeys((one.shown, one.snapshot) for one in entry.inputs))
    if is_in_place_entry(entry) and entry.added:
        return [(entry.shown, entry.snapshot - 1)]
    return []


def _format_snapshot_node(version: str, number: int) -> str:
    return f"{version}@{number}"


def _parse_snapshot_node(node: str) -> tuple[str, int]:
    """The version and the number; of a node that is no snapshot, none of them."""
    version, _, number = node.rpartition("@")
    return (version, int(number)) if number.isdigit() else ("", 0)


class VersionAncestry:
    """A version as it is now, with all that ever happened to it, and its neighbours."""

    def __init__(self, readable: ReadableCatalog, version: str) -> None:
        self._readable = readable
        self._version = version

    def start(self) -> list[AncestryNode]:
        """The version."""
        return [self._node(self._version)]

    def parents(self, node: str) -> list[AncestryLink]:
        """The versions that it was made of, and the sources that were appended to it."""
        return merge_links(merge_source_links(list(self._parents(node))))

    def _parents(self, version: str) -> Iterator[AncestryLink]:
        for entry in self._readable.entries(version):
            if entry.operation == "append" and entry.added:
                yield make_sources_link(entry, version, [one.shard for one in entry.added])
            for read in dict.fromkeys(one.shown for one in entry.inputs):
                yield AncestryLink(self._node(read), make_edge(entry, read, version))

    def children(self, node: str) -> list[AncestryLink]:
        """The versions that were made of it, and who registered on it."""
        links = [
            AncestryLink(self._node(entry.shown), make_edge(entry, node, entry.shown))
            for entry in self._readable.readers(node)
        ]
        return [*merge_links(links), *self._readable.consumers(node, node)]

    def _node(self, version: str) -> AncestryNode:
        gone = self._readable.gone(version)
        state = self._readable.state(version)
        if state is None:
            return AncestryNode(version, "version", gone=gone, lack=self._readable.lack(version))
        facts = {
            "snapshot": state.snapshot,
            "published": state.published,
            **state.totals.to_dict(),
            "entries": state.number,
        }
        return AncestryNode(version, "version", facts)


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
            entry = self._readable.index.entry(version, stay.landed)
            if entry.inputs or not is_in_place_entry(entry):
                found.setdefault(stay.landed, []).append(stay.shard)
                continue
            before = self._readable.listing(version, entry.snapshot - 1)
            for one in () if before is None else before.stays:
                if one.shard.name in entry.removed and one.shard.name not in seen:
                    seen.add(one.shard.name)
                    waiting.append(one)
        return found


AncestryLevel: TypeAlias = Literal["versions", "snapshots", "shards", "fields"]
ANCESTRY_LEVELS: tuple[AncestryLevel, ...] = get_args(AncestryLevel)


class AncestryView(Protocol):
    """One level: where one starts, and what lies next to a node."""

    def start(self) -> Sequence[AncestryNode]:
        """The nodes that are asked about."""
        ...

    def parents(self, node: str) -> Iterable[AncestryLink]:
        """What a node was made of."""
        ...

    def children(self, node: str) -> Iterable[AncestryLink]:
        """What was made of a node."""
        ...


_LEVELS: dict[AncestryLevel, type[SnapshotAncestry | ShardAncestry | FieldAncestry]] = {
    "versions": VersionAtSnapshot,
    "snapshots": SnapshotAncestry,
    "shards": ShardAncestry,
    "fields": FieldAncestry,
}


def build_ancestry_graph(
    index: LogIndex,
    version: str,
    snapshot: int | None = None,
    *,
    level: AncestryLevel = "versions",
    up: bool = True,
    down: bool = True,
) -> AncestryGraph:
    """The graph of all that a version was made of (`up`) and that was made of it (`down`).

    With a snapshot, that one is meant, and not what came later: versions are told as the snapshots
    that were read. Shards are those of the newest snapshot unless another is told. What was deleted
    or cannot be read is in the graph too, and says so. Logs are read, and no shard.
    """
    readable = ReadableCatalog(index)
    asked: AncestryView = _LEVELS[level](readable, version, snapshot)
    if level == "versions" and snapshot is None:
        asked = VersionAncestry(readable, version)
    start = asked.start()
    nodes = {node.id: node for node in start}
    edges: dict[tuple[str, str, str, str], AncestryEdge] = {}
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
    return AncestryGraph(level, begin, nodes, tuple(edges.values()), readable.unread)
