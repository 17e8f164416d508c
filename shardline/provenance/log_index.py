"""Cached logs of a root, histories of its datasets, and sidecars of its shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from shardline.errors import (
    CorruptLogError,
    ShardlineError,
    UnknownFormatError,
    VersionNotFoundError,
)
from shardline.hints import Hint
from shardline.log.model import RECEIPT, ROWS
from shardline.log.parameters import CombineParameters, EntryParameters, RepairParameters
from shardline.log.version import StoredVersion
from shardline.pairing.pair_grid import PairGrid, RecordExtent
from shardline.provenance.catalog import find_all_versions, find_versions
from shardline.provenance.feature_origin import infer_feature_origins
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapError
from shardline.sidecars.sidecar_reader import SidecarMismatchError, SidecarReader
from shardline.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import RootLocation, Store


ERASE = "erase"


@dataclass(frozen=True)
class VersionHistory:
    """A version and all its entries."""

    version: StoredVersion
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """Full name, such as "digits/v1"."""
        return self.version.name

    @cached_property
    def sidecars(self) -> SidecarReader:
        """Reader of its sidecars, which compares them with the log."""
        return SidecarReader(self.version)

    @cached_property
    def shards(self) -> dict[str, Shard]:
        """Every shard that was ever in the version, by name."""
        intervals = self.version.state.shard_history
        names = list(dict.fromkeys(intervals.names().to_pylist()))
        return {name: interval.shard for name, interval in intervals.named(names).items()}

    @cached_property
    def live(self) -> tuple[Shard, ...]:
        """Shards of the latest snapshot, in order."""
        state = self.version.state
        return tuple(interval.shard for interval in state.shard_history.at(state.snapshot))

    def list_shards(self, snapshot: int) -> tuple[Shard, ...]:
        """Return the shards of a snapshot, in order."""
        return tuple(interval.shard for interval in self.version.state.shard_history.at(snapshot))

    def is_condemned(self, shard: str) -> bool:
        """Return True for a shard that was erased or vacuumed and can never return."""
        return self.version.state.get_tombstone(shard) is not None

    def list_snapshots_with(self, names: set[str]) -> list[int]:
        """List the snapshots that contain one of these shards."""
        intervals = self.version.state.shard_history
        since, until = intervals.column("since").tolist(), intervals.column("until").tolist()
        snapshots: set[int] = set()
        latest = self.version.state.snapshot
        for name, first, last in zip(intervals.names().to_pylist(), since, until, strict=True):
            if name in names:
                snapshots.update(range(first, min(last, latest + 1)))
        return sorted(snapshots)


@dataclass(frozen=True)
class DatasetHistory:
    """All versions of a dataset that have a log."""

    index: LogIndex
    dataset: str
    versions: dict[str, VersionHistory] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Store of the root."""
        return self.index.store

    @cached_property
    def shards(self) -> dict[str, Shard]:
        """Every shard that was ever in the dataset, by name."""
        return {
            name: shard
            for version in self.versions.values()
            for name, shard in version.shards.items()
        }

    @cached_property
    def files(self) -> frozenset[str]:
        """Names of the files in the folder of its shards."""
        listed = self.store.list(f"{self.dataset}/shards")
        return frozenset(file.name.rpartition("/")[2] for file in listed)

    @cached_property
    def quarantine(self) -> frozenset[str]:
        """Committed quarantine files: an entry names them or their shard."""
        named = (
            name
            for version in self.versions.values()
            for entry in version.entries
            for rows in entry.read(EntryParameters).quarantine
            for name in rows.files
        )
        folder = f"{self.dataset}/quarantine"
        implied = (f"{folder}/{name.removesuffix('.tfrecord')}.jsonl" for name in self.shards)
        return frozenset((*named, *implied))

    def get_owner(self, shard: str) -> VersionHistory:
        """Return the version whose log has a shard."""
        return self.versions[shard.split(".", 1)[0]]

    def find_version(self, name: str) -> VersionHistory:
        """Return a version by its full name."""
        return self.versions[name.removeprefix(f"{self.dataset}/")]

    def find_input(self, source: Input) -> VersionHistory | None:
        """Return the version of an input, or None if it is of another dataset."""
        return self.versions.get(source.version) if source.dataset == self.dataset else None

    def get_schema(self, source: Input) -> Schema:
        """Return the schema of an input, of this dataset or another."""
        history = self.find_input(source)
        version = self.index.version(source.label) if history is None else history.version
        return version.schema

    @cached_property
    def replaced(self) -> dict[str, str]:
        """Shards that an erase rewrote, with the new shards."""
        return {
            base: added.shard.name
            for version in self.versions.values()
            for entry in version.entries
            if entry.operation == ERASE
            for base, added in zip(entry.bases, entry.added, strict=False)
        }


class TraceGapError(ShardlineError):
    """An origin that the logs and the files next to the shards do not record."""

    code = "origin-not-recorded"


@dataclass(frozen=True)
class ShardListing:
    """The shards of a snapshot in order, and the number of the first record of each."""

    version: str
    snapshot: int
    intervals: Sequence[ShardInterval]

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards in order."""
        return tuple(interval.shard for interval in self.intervals)

    @cached_property
    def ends(self) -> IntArray:
        """Number of records up to the end of each shard."""
        return np.cumsum([interval.shard.records for interval in self.intervals], dtype=np.int64)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Position of each shard."""
        return {interval.shard.name: index for index, interval in enumerate(self.intervals)}

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.ends[-1]) if self.intervals else 0

    def get_start(self, position: int) -> int:
        """Return the number of the first record of the shard at a position."""
        return int(self.ends[position - 1]) if position else 0

    def locate(self, record: int) -> tuple[ShardInterval, int]:
        """Return the shard with a record, and the number of the record in it."""
        position = int(np.searchsorted(self.ends, record, "right"))
        return self.intervals[position], record - self.get_start(position)

    def number(self, shard: str, inside: int) -> int | None:
        """Return the number of a record of a shard; None if the shard is not in the snapshot."""
        position = self.positions.get(shard)
        return None if position is None else self.get_start(position) + inside


class LogIndex:
    """The logs of a root and the sidecars of its shards, each read once.

    Args:
        root: The root.
        versions: Open versions to use instead of reading them again.
    """

    def __init__(self, root: RootLocation, *versions: StoredVersion) -> None:
        self.store = open_store(root)
        self._versions = {version.name: version for version in versions}
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._datasets: dict[str, DatasetHistory] = {}
        self._listings: dict[tuple[str, int], ShardListing] = {}
        self._receipts: dict[str, Receipt | None] = {}
        self._sidecars: dict[str, SidecarReader] = {}
        self._origins: dict[tuple[str, int], Mapping[str, FeatureOrigin]] = {}
        self._grids: dict[tuple[str, int], PairGrid] = {}

    def list_versions(self, dataset: str | None = None) -> list[str]:
        """Return the versions that have a log, of one dataset or of all, in order."""
        return [name for name in self.list_folders(dataset) if self.version(name).log.exists(1)]

    def list_folders(self, dataset: str | None = None) -> list[str]:
        """Return the versions that have a folder for a log, even an empty one."""
        if dataset is None:
            return find_all_versions(self.store)
        return [f"{dataset}/{name}" for name in find_versions(self.store, dataset)]

    def version(self, name: str) -> StoredVersion:
        """Return a version, which may not exist."""
        if name not in self._versions:
            self._versions[name] = StoredVersion(self.store, name, keep_entries=True)
        return self._versions[name]

    def entries(self, name: str) -> tuple[Entry, ...]:
        """Return all entries of a log. Raises CorruptLogError if one cannot be read."""
        if name not in self._entries:
            self._entries[name] = tuple(self.version(name).log.entries(1))
        return self._entries[name]

    def entry(self, version: str, number: int) -> Entry:
        """Return an entry of a log."""
        return self.version(version).log.entry(number)

    def dataset(self, name: str) -> DatasetHistory:
        """Return the history of a dataset, without versions that do not exist."""
        if name not in self._datasets:
            history = DatasetHistory(self, name)
            for short in find_versions(self.store, name):
                version = self.version(f"{name}/{short}")
                if version.exists:
                    entries = self.entries(version.name)[: version.state.number]
                    history.versions[short] = VersionHistory(version, entries)
            self._datasets[name] = history
        return self._datasets[name]

    def refresh(self, dataset: str) -> DatasetHistory:
        """Return the history of a dataset with what was committed since it was read."""
        for name in [name for name in self._versions if name.startswith(f"{dataset}/")]:
            self._versions[name].refresh()
            self._entries.pop(name, None)
            self._sidecars.pop(name, None)
        self._datasets.pop(dataset, None)
        return self.dataset(dataset)

    def get_snapshot_entry(self, name: str, snapshot: int) -> Entry:
        """Return the entry that committed a snapshot."""
        return self.entry(name, self.version(name).snapshot(snapshot).entry)

    def get_listing(self, version: str, snapshot: int) -> ShardListing:
        """Return the shards of a snapshot. Raises TraceGapError if it does not exist."""
        key = (version, snapshot)
        if key not in self._listings:
            state = self.version(version).state
            if not 1 <= snapshot <= state.snapshot:
                missing = f"snapshot {snapshot}" if state.number else "log"
                raise TraceGapError(
                    f"{version} has no {missing} in this root: deleted or moved",
                    code="snapshot-not-found" if state.number else "version-not-found",
                    version=version,
                    snapshot=snapshot,
                )
            self._listings[key] = ShardListing(version, snapshot, state.shard_history.at(snapshot))
        return self._listings[key]

    def get_first_entry(self, version: str, shard: str) -> int:
        """Return the first entry that added a shard to a version; later ones may have reused it."""
        intervals = self.version(version).state.shard_history
        rows = pc.equal(intervals.names(), shard).to_numpy(zero_copy_only=False)
        return int(intervals.column("landed")[rows].min())

    def get_input(self, source: Input) -> ShardListing:
        """Return the snapshot that an operation read.

        Raises TraceGapError if it is missing or differs now.
        """
        version = source.label
        try:
            listing = self.get_listing(version, source.snapshot)
        except (CorruptLogError, UnknownFormatError) as error:
            raise TraceGapError(
                f"its input {version} cannot be read: {error.message}",
                code=error.code,
                hint=error.hint,
                version=version,
            ) from None
        snapshot_row = self.version(version).state.snapshot_history.get_row(source.snapshot)
        if self.entry(version, snapshot_row.entry).digest != source.entry:
            raise TraceGapError(
                f"{version}@{source.snapshot} differs from the snapshot that was read: its log was "
                "rewritten",
                code="log-rewritten",
                hint=Hint.run("audit"),
                version=version,
                snapshot=source.snapshot,
            )
        return listing

    def get_previous_listing(self, entry: Entry) -> ShardListing:
        """Return the shards of a version before an entry."""
        return self.get_listing(entry.label, entry.snapshot - 1)

    def receipt(self, version: str, shard: Shard) -> Receipt:
        """Return the receipt of a shard. Raises TraceGapError if missing or not its own."""
        return self.receipts(version, [shard])[0]

    def receipts(self, version: str, shards: Sequence[Shard]) -> list[Receipt]:
        """Return the receipts of several shards, read together."""
        names = [self._get_sidecar_path(version, shard, RECEIPT) for shard in shards]
        missing = [index for index, name in enumerate(names) if name not in self._receipts]
        if missing:
            try:
                contents = self.sidecars(version).read(
                    [f"{shards[index].name}{RECEIPT}" for index in missing]
                )
            except SidecarMismatchError as error:
                raise TraceGapError(
                    f"{error.path} differs from the committed receipt",
                    code=error.code,
                    path=error.path,
                    hint=error.hint,
                ) from None
            self._receipts.update(
                (names[index], parse_receipt(data))
                for index, data in zip(missing, contents, strict=True)
            )
        receipts = []
        for shard, name in zip(shards, names, strict=True):
            receipt = self._receipts[name]
            if receipt is None:
                raise TraceGapError(
                    f"{shard.name} has no receipt", code="receipt-not-found", path=name
                )
            if receipt.shard is None or receipt.shard.sha256 != shard.sha256:
                raise TraceGapError(
                    f"the receipt of {shard.name} is for another file",
                    code="receipt-mismatch",
                    path=name,
                )
            receipts.append(receipt)
        return receipts

    def row_map(self, version: str, shard: Shard, columns: int) -> RowMap:
        """Return the row map of a shard, which may be missing.

        Raises RowMapError if it differs from the committed one.
        """
        name = self._get_sidecar_path(version, shard, ROWS)
        try:
            self.sidecars(version).compare(f"{shard.name}{ROWS}")
        except SidecarMismatchError as error:
            raise RowMapError(
                f"its row map differs from the committed one ({name})",
                code=error.code,
                hint=error.hint,
                path=name,
            ) from None
        return RowMap(self.store, name, shard.records, columns)

    def sidecars(self, version: str) -> SidecarReader:
        """Return the reader of the sidecars of a version, which compares them with the log."""
        if version not in self._sidecars:
            self._sidecars[version] = SidecarReader(self.version(version))
        return self._sidecars[version]

    def _get_sidecar_path(self, version: str, shard: Shard, suffix: str) -> str:
        return f"{self.version(version).shard_name(shard)}{suffix}"

    def get_origins(self, entry: Entry) -> Mapping[str, FeatureOrigin]:
        """Return the origin of each feature of a derived version.

        Empty if an input cannot be read.
        """
        key = (entry.label, entry.number)
        if key not in self._origins:
            try:
                schemas = [self.version(source.label).schema for source in entry.inputs]
                self._origins[key] = infer_feature_origins(entry, schemas)
            except (VersionNotFoundError, CorruptLogError, UnknownFormatError):
                self._origins[key] = {}
        return self._origins[key]

    def get_snapshot_origins(self, snapshot: StoredSnapshot) -> Mapping[str, FeatureOrigin]:
        """Return the origin of each feature of a snapshot; empty if its records were appended."""
        timeline, number = self.version(snapshot.version).state.snapshot_history, snapshot.number
        while number:
            entry = self.entry(snapshot.version, timeline.get_row(number).entry)
            if entry.inputs or entry.operation == "append":
                return self.get_origins(entry)
            number = int(timeline.column("made_from")[number - 1])
        return {}

    def grid(self, entry: Entry) -> PairGrid:
        """Return the grid of the shards of both inputs of a combination."""
        key = (entry.label, entry.number)
        if key not in self._grids:
            if len(entry.inputs) != 2:
                raise TraceGapError(f"entry {entry.number} does not list its two inputs")
            left, right = (self.get_input(source).shards for source in entry.inputs)
            self._grids[key] = make_pair_grid(left, right, entry)
        return self._grids[key]

    def get_position(self, entry: Entry, shard: str) -> int:
        """Return the position of a shard among those that an entry added."""
        for position, added in enumerate(entry.added):
            if added.shard.name == shard:
                return position
        raise CorruptLogError(entry.label, entry.number, f"it does not add {shard}")


def make_pair_grid(left: Sequence[Shard], right: Sequence[Shard], entry: Entry) -> PairGrid:
    """Return the grid of a combination of two lists of shards."""
    sides = [tuple(RecordExtent(shard.records, 0) for shard in side) for side in (left, right)]
    return PairGrid(sides[0], sides[1], entry.read(CombineParameters).is_unordered)


def group_by_input(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Group entries by the versions that they read."""
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        for name in dict.fromkeys(source.label for source in entry.inputs):
            grouped.setdefault(name, []).append(entry)
    return grouped


def get_base_shard(entry: Entry, position: int) -> str:
    """Return the shard that an added shard derives from.

    Raises TraceGapError if the entry does not say.
    """
    if len(entry.bases) == len(entry.added):
        return entry.bases[position]
    base = entry.added[position].shard.base
    if base is not None and entry.inputs:
        return base.name
    raise TraceGapError(
        f"entry {entry.number} of {entry.label} does not name the input of "
        f"{entry.added[position].shard.name}: an earlier release wrote it",
        version=entry.label,
    )


def find_added_shard(version: StoredVersion, shard: Shard) -> tuple[Entry, Shard]:
    """Return the entry that added a shard, and the shard; for a repaired shard, the original.

    Raises TraceGapError if a repair does not name an earlier shard.
    """
    history = version.state.shard_history
    interval = history.named([shard.name])[shard.name]
    entry = version.log.entry(interval.added_entry)
    while entry.operation == "repair":
        name = entry.read(RepairParameters).shard
        original = history.named([name]).get(name)
        if original is None or original.added_entry >= entry.number:
            raise TraceGapError(
                f"entry {entry.number} of {entry.label}: unknown original of the repaired shard",
                path=interval.shard.name,
                version=entry.label,
            )
        interval, entry = original, version.log.entry(original.added_entry)
    return entry, interval.shard


def is_in_place_entry(entry: Entry) -> bool:
    """Return True if an entry derived shards from those of its own version."""
    if entry.operation == "append":
        return bool(entry.removed)
    return entry.operation in IN_PLACE_OPERATIONS


IN_PLACE_OPERATIONS = frozenset({"rebuild", "erase", "repair"})
"""Operations that, without inputs, derive shards from those of their own version."""
