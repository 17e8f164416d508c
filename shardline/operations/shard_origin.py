"""Origin of a shard according to the log: rows of a source, or slices of other shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from shardline.errors import IndexMismatchError, ShardlineError, SourceError
from shardline.kernel.types import HEADER_BYTES
from shardline.log.model import RECEIPT
from shardline.log.parameters import AppendParameters, EntryParameters, RebuildParameters
from shardline.log.version import StoredVersion
from shardline.operations.rebuild import SliceShardWriter
from shardline.operations.shard_slice import (
    ShardSlice,
    get_span,
    list_whole_slices,
    number_outputs,
    plan_rebuild,
)
from shardline.operations.shard_writer import get_stem, make_stem, split_frames
from shardline.provenance.catalog import find_all_versions
from shardline.provenance.log_index import find_added_shard
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import NO_RECORD
from shardline.sidecars.sidecar_reader import SidecarMismatchError, SidecarReader
from shardline.sources import open_source
from shardline.sources.source import EncodedChunk
from shardline.sources.tfrecord_source import RecordChunk
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import hash_object
from shardline.tfrecord.index import read_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from shardline.execution.executor import TaskContext
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.operations.shard_writer import OpenShard, ShardWriter
    from shardline.schema.schema import Schema
    from shardline.sidecars.receipt import Receipt
    from shardline.sources import Chunk, EncodedRows, RecordSource
    from shardline.sources.source_format import SourceFormat
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source from `first` up to `end`, None for its end.

    `records` is the number of records that they gave, if known.
    """

    source: RecordSource
    first: int
    end: int | None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class OldPositions:
    """Offsets of the records of an uncompressed shard before it was corrupted.

    If the file has another size, later records have moved. Then a record is only identified if
    counting, with one record for each corrupt range, gives the same number.
    """

    offsets: IntArray
    same_size: bool

    @classmethod
    def of(cls, store: Store, name: str, shard: Shard) -> OldPositions | None:
        """Read the offsets of a shard; None if it is compressed, or has no valid index."""
        info = store.info(name)
        if shard.compression != "none" or info is None:
            return None
        try:
            offsets = list(read_offsets(store, name, shard.bytes, shard.records, shard.sha256))
        except IndexMismatchError:
            return None
        return cls(np.concatenate(offsets)[: shard.records], info.size == shard.bytes)

    def numbers(self, chunk: Chunk, frames: EncodedRows) -> IntArray:
        """Return the old numbers of salvaged records, -1 for unknown ones."""
        read = chunk.chunk if isinstance(chunk, EncodedChunk) else chunk
        if not isinstance(read, RecordChunk) or not len(self.offsets):
            return np.full(len(frames.rows), NO_RECORD, np.int64)
        block = read.block
        starts = block.starts[frames.rows - block.record] + (block.offset - HEADER_BYTES)
        numbers = np.minimum(np.searchsorted(self.offsets, starts), len(self.offsets) - 1)
        is_known = self.same_size | (frames.rows == numbers)
        return np.where((self.offsets[numbers] == starts) & is_known, numbers, NO_RECORD)


@dataclass(frozen=True, slots=True)
class PieceShardWriter:
    """Writer of what a shard was rebuilt from: slices, or rows of a source."""

    store: Store
    pieces: tuple[ShardSlice | SourceRows, ...]
    schema: Schema
    limits: Limits
    running: TaskContext

    def begin(self) -> None:
        """Do nothing: every attempt begins with the first piece."""

    def fill(self, part: OpenShard) -> bool:
        """Copy all pieces in order."""
        for piece in self.pieces:
            writer: ShardWriter
            if isinstance(piece, SourceRows):
                writer = RowShardWriter(piece, self.schema, self.running)
            else:
                writer = SliceShardWriter(self.store, (piece,), self.limits, self.running)
            writer.fill(part)
        return True


@dataclass(frozen=True, slots=True)
class RowShardWriter:
    """Writer of rows of a source.

    Refused rows go to quarantine only with `keep_refused`: those of the source of a shard are in
    quarantine since it was appended.
    """

    rows: SourceRows
    schema: Schema
    running: TaskContext
    keep_refused: bool = False
    positions: OldPositions | None = None

    def begin(self) -> None:
        """Do nothing: every attempt begins with the first row."""

    def fill(self, part: OpenShard) -> bool:
        """Add the rows. Raises SourceError if they give another number of records than before."""
        records = 0
        for chunk in self.rows.source.chunks(self.schema, self.rows.first):
            frames = chunk.frames()
            end = self.rows.end
            if end is not None and len(frames.rows) and frames.rows[-1] >= end:
                frames, _ = split_frames(frames, int(np.searchsorted(frames.rows, end)))
            if len(frames.starts):
                part.shard.add(frames.data, frames.starts, frames.lengths)
                if self.positions is not None:
                    part.add_origins(self.positions.numbers(chunk, frames))
            for row in frames.refused if self.keep_refused else ():
                part.quarantine(row)
            records += len(frames.starts)
            part.end = chunk.end
            self.running.report(chunk.position, records)
            if end is not None and chunk.end >= end:
                break
        if self.rows.records not in {None, records}:
            raise SourceError(
                f"{self.rows.source.label}: gives other records than before",
                code="source-changed",
                path=self.rows.source.label,
            )
        return True


def find_source_rows(version: StoredVersion, shard: Shard, limits: Limits) -> SourceRows | None:
    """Return the source rows of a shard; None if the source is no file, or has changed."""
    entry, original = find_added_shard(version, shard)
    source = _find_source(entry, original, limits)
    if source is None:
        return None
    records = original.records
    receipt = _read_shard_receipt(version, original)
    if receipt is not None:
        return SourceRows(source, receipt.first, receipt.end, records)
    # Without a receipt: each row gave a record, unless some were quarantined.
    parts = [item.shard for item in entry.added if item.shard.source == original.source]
    if len(parts) == 1:
        return SourceRows(source, 0, None, records)
    if any(rows.source == original.source for rows in entry.read(EntryParameters).quarantine):
        return None
    first = sum(part.records for part in parts[: parts.index(original)])
    return SourceRows(source, first, first + records, records)


def _read_shard_receipt(version: StoredVersion, shard: Shard) -> Receipt | None:
    """Read the receipt of a shard; None if it is missing, corrupt or not the committed one."""
    try:
        (data,) = SidecarReader(version).read([f"{shard.name}{RECEIPT}"])
    except SidecarMismatchError:
        return None
    return parse_receipt(data)


def _find_source(entry: Entry, shard: Shard, limits: Limits) -> RecordSource | None:
    """Open the source of an appended shard; None if it is no file, or has changed."""
    recorded = next((source for source in entry.sources if source.key == shard.source), None)
    if entry.operation != "append" or recorded is None or recorded.path is None:
        return None
    path, parameters = recorded.path, entry.read(AppendParameters)
    try:
        source = open_source(
            Path(path) if "://" not in path else path,
            format=cast("SourceFormat | None", parameters.format),
            salvage=parameters.salvage,
            limits=limits,
        )
        return source if source.identity() == recorded else None
    except (ShardlineError, OSError):
        return None


def find_input_slices(
    version: StoredVersion, shard: Shard, limits: Limits
) -> tuple[ShardSlice, ...] | None:
    """Return the slices that a shard was rebuilt from; None if it was not, or they are unknown."""
    entry, original = find_added_shard(version, shard)
    if entry.operation == "append":
        return _list_left_slices(version, entry, original, limits)
    if entry.operation != "rebuild":
        return None
    parameters = entry.read(RebuildParameters)
    try:
        target = parameters.target_bytes
        outputs = number_outputs(
            plan_rebuild(version.store, _list_inputs(version, entry), target, limits)
        )
    except (ShardlineError, OSError):
        return None
    packing = Compression(parameters.compression)
    stem = get_stem(original.name)
    matches = (out.slices for out in outputs if make_stem(out.identity(packing)) == stem)
    return next(matches, None)


def _list_left_slices(
    version: StoredVersion, entry: Entry, shard: Shard, limits: Limits
) -> tuple[ShardSlice, ...] | None:
    """Return the spans of an old shard that a replacement kept, by its receipt."""
    names = [item.shard.name for item in entry.added]
    position = names.index(shard.name)
    old = version.state.shard_history.named(entry.bases[position : position + 1])
    receipt = _read_shard_receipt(version, shard)
    if not old or receipt is None or not receipt.is_countable(shard.records):
        return None
    (interval,) = old.values()
    whole = ShardSlice(version.shard_name(interval.shard), interval.shard)
    ends = [0, *(last + 1 for _, last in receipt.refused)]
    starts = [*(first for first, _ in receipt.refused), receipt.end]
    try:
        return tuple(
            replace(whole, span=get_span(version.store, whole, begin, end, limits))
            for begin, end in zip(ends, starts, strict=True)
            if begin < end
        )
    except (ShardlineError, OSError):
        return None


def find_input_pieces(
    version: StoredVersion, shard: Shard, limits: Limits
) -> tuple[ShardSlice | SourceRows, ...] | None:
    """Return what a shard was rebuilt from: intact slices, or the source rows of corrupt ones.

    None if it was not rebuilt, or if one of the slices has neither.
    """
    slices = find_input_slices(version, shard, limits)
    if slices is None:
        return None
    pieces: list[ShardSlice | SourceRows] = []
    for part in slices:
        if is_intact(version.store, part):
            pieces.append(part)
            continue
        owner = StoredVersion(version.store, f"{part.name.split('/')[0]}/{part.shard.owner}")
        rows = find_source_rows(owner, part.shard, limits)
        origin = (rows,) if rows is not None else find_input_pieces(owner, part.shard, limits)
        if part.span is not None or part.layered is not None or origin is None:
            return None
        pieces += origin
    return tuple(pieces)


def is_intact(store: Store, part: ShardSlice) -> bool:
    """Return True if the files of a slice are the committed ones."""
    files = [(file.file.name, file.shard) for file in part.files] or [(part.name, part.shard)]
    return all(hash_object(store, name, shard.bytes) == shard.sha256 for name, shard in files)


def _list_inputs(version: StoredVersion, entry: Entry) -> list[ShardSlice]:
    """Return the shards that a rebuild read."""
    if entry.inputs:
        recorded = entry.inputs[0]
        base = StoredVersion(version.store, recorded.label)
        return list_whole_slices(base.snapshot(recorded.snapshot))
    inputs = {
        part.shard.name: part for part in list_whole_slices(version.snapshot(entry.snapshot - 1))
    }
    return [inputs[name] for name in entry.removed]


def find_copied_pieces(
    version: StoredVersion, names: Collection[str], limits: Limits
) -> tuple[ShardSlice, ...] | None:
    """Find slices of rebuilt shards with all records of a shard, by the names that it had.

    They are located by counting records. None if no intact shard was rebuilt from it.
    """
    for other in _list_versions(version):
        try:
            entries = list(other.log.entries(1)) if other.exists else []
        except ShardlineError:
            continue
        for entry in entries:
            slices = _find_copied_slices(version, other, entry, names, limits)
            if slices is not None:
                return slices
    return None


def list_containing_shards(version: StoredVersion, shard: str) -> set[str]:
    """Return the shards of a version with records of a shard: itself, and those rebuilt from it.

    They may be removed by now, after other shards were rebuilt from them.
    """
    containing = {shard}
    for entry in version.log.entries(1):
        if entry.operation == "rebuild" and not entry.inputs and containing & set(entry.removed):
            before = _list_rebuild_inputs(version, entry)
            after = [item.shard for item in entry.added]
            for name in containing & set(entry.removed):
                containing |= {other.name for other, _, _ in _find_positions(before, after, {name})}
    return containing


def _list_versions(version: StoredVersion) -> Iterator[StoredVersion]:
    """List all versions, this one first."""
    yield version
    for name in find_all_versions(version.store):
        if name != version.name:
            yield StoredVersion(version.store, name)


def _find_copied_slices(
    version: StoredVersion,
    other: StoredVersion,
    entry: Entry,
    names: Collection[str],
    limits: Limits,
) -> tuple[ShardSlice, ...] | None:
    """Return the intact slices that a rebuild copied from a shard, None if there are none."""
    if entry.operation != "rebuild" or not entry.added:
        return None
    try:
        before = _list_rebuild_inputs(version, entry)
        slices = _find_at_same_position(before, other, entry, names, limits) if before else []
        intact = all(is_intact(version.store, part) for part in slices)
    except (ShardlineError, OSError):
        return None
    return tuple(slices) if slices and intact else None


def _list_rebuild_inputs(version: StoredVersion, entry: Entry) -> list[Shard]:
    """Return the shards of a version that a rebuild read, in order."""
    if entry.inputs:
        recorded = entry.inputs[0]
        is_input = recorded.label == version.name
        return list(version.snapshot(recorded.snapshot).shards) if is_input else []
    intervals = (
        version.state.shard_history.named(entry.removed) if entry.label == version.name else {}
    )
    return [intervals[name].shard for name in entry.removed if name in intervals]


def _find_at_same_position(
    before: Sequence[Shard],
    other: StoredVersion,
    entry: Entry,
    names: Collection[str],
    limits: Limits,
) -> list[ShardSlice]:
    """Return what a rebuild wrote at the position of a shard."""
    added = [item.shard for item in entry.added]
    after = other.snapshot(entry.snapshot).shards if entry.inputs else added
    slices = []
    for shard, begin, stop in _find_positions(before, after, names):
        if shard.name in names or shard.base is not None or shard.virtual:
            return []
        part = ShardSlice(other.shard_name(shard), shard)
        if (begin, stop) != (0, shard.records):
            part = replace(part, span=get_span(other.store, part, begin, stop, limits))
        slices.append(part)
    return slices


def _find_positions(
    before: Sequence[Shard], after: Sequence[Shard], names: Collection[str]
) -> Iterator[tuple[Shard, int, int]]:
    """Yield the shards at the position of a named shard, each with a range of its records."""
    position = next((index for index, shard in enumerate(before) if shard.name in names), None)
    if position is None:
        return
    first = sum(shard.records for shard in before[:position])
    end = first + before[position].records
    start = 0
    for shard in after:
        begin, stop = max(first - start, 0), min(end - start, shard.records)
        start += shard.records
        if begin < stop:
            yield shard, begin, stop
