"""What a shard was made of, as the log tells: rows of a source, or slices of other shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from shardline.errors import ShardlineError
from shardline.log.model import RECEIPT
from shardline.log.parameters import AppendParameters, EntryParameters, RebuildParameters
from shardline.log.version import StoredVersion
from shardline.operations.shard_slice import (
    ShardSlice,
    get_span,
    list_whole_slices,
    number_outputs,
    plan_rebuild,
)
from shardline.operations.shard_writer import get_stem, make_stem
from shardline.provenance.catalog import find_all_versions
from shardline.provenance.log_index import find_added_shard
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.sidecar_reader import SidecarMismatchError, SidecarReader
from shardline.sources import open_source
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.sidecars.receipt import Receipt
    from shardline.sources import RecordSource
    from shardline.sources.source_format import SourceFormat
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source, from `first` up to `end`; to its end if that is None.

    `records` is how many records they gave, if that is known.
    """

    source: RecordSource
    first: int
    end: int | None
    records: int | None = None


def find_source_rows(version: StoredVersion, shard: Shard, limits: Limits) -> SourceRows | None:
    """The rows that a shard was made of, if their source is a file that is still the same."""
    entry, first_one = find_added_shard(version, shard)
    source = _find_source(entry, first_one, limits)
    if source is None:
        return None
    records = first_one.records
    receipt = _read_shard_receipt(version, first_one)
    if receipt is not None:
        return SourceRows(source, receipt.first, receipt.end, records)
    # Without its receipt: each row gave a record, unless some were refused.
    parts = [one.shard for one in entry.added if one.shard.source == first_one.source]
    if len(parts) == 1:
        return SourceRows(source, 0, None, records)
    if any(rows.source == first_one.source for rows in entry.read(EntryParameters).quarantine):
        return None
    first = sum(part.records for part in parts[: parts.index(first_one)])
    return SourceRows(source, first, first + records, records)


def _read_shard_receipt(version: StoredVersion, shard: Shard) -> Receipt | None:
    """Read the receipt of a shard; None if it is missing, corrupt or not the committed one."""
    try:
        (data,) = SidecarReader(version).read([f"{shard.name}{RECEIPT}"])
    except SidecarMismatchError:
        return None
    return parse_receipt(data)


def _find_source(entry: Entry, shard: Shard, limits: Limits) -> RecordSource | None:
    """The source of a shard that was appended, if it is a file that is still the same."""
    found = [source for source in entry.sources if source.key == shard.source]
    if entry.operation != "append" or not found or found[0].path is None:
        return None
    place, parameters = found[0].path, entry.read(AppendParameters)
    try:
        source = open_source(
            Path(place) if "://" not in place else place,
            format=cast("SourceFormat | None", parameters.format),
            salvage=parameters.salvage,
            limits=limits,
        )
        return source if source.identity() == found[0] else None
    except (ShardlineError, OSError):
        return None


def find_input_slices(
    version: StoredVersion, shard: Shard, limits: Limits
) -> tuple[ShardSlice, ...] | None:
    """The slices of other shards that a shard was rebuilt from, if those are still known."""
    entry, first_one = find_added_shard(version, shard)
    if entry.operation == "append":
        return _list_left_slices(version, entry, first_one, limits)
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
    stem = get_stem(first_one.name)
    made_of = (out.slices for out in outputs if make_stem(out.identity(packing)) == stem)
    return next(made_of, None)


def _list_left_slices(
    version: StoredVersion, entry: Entry, shard: Shard, limits: Limits
) -> tuple[ShardSlice, ...] | None:
    """The spans of an old shard that a replacement left, as its receipt tells."""
    place = next(at for at, one in enumerate(entry.added) if one.shard.name == shard.name)
    old = version.state.stays.named(entry.bases[place : place + 1])
    receipt = _read_shard_receipt(version, shard)
    if not old or receipt is None or not receipt.counts(shard.records):
        return None
    (stay,) = old.values()
    piece = ShardSlice(version.shard_name(stay.shard), stay.shard)
    ends = [0, *(last + 1 for _, last in receipt.refused)]
    starts = [*(first for first, _ in receipt.refused), receipt.end]
    try:
        return tuple(
            replace(piece, span=get_span(version.store, piece, begin, end, limits))
            for begin, end in zip(ends, starts, strict=True)
            if begin < end
        )
    except (ShardlineError, OSError):
        return None


def find_input_pieces(
    version: StoredVersion, shard: Shard, limits: Limits
) -> tuple[ShardSlice | SourceRows, ...] | None:
    """What a shard was rebuilt from: slices that are intact, or else the rows these were made of.

    None if it was not rebuilt, or something is left of which there is neither.
    """
    slices = find_input_slices(version, shard, limits)
    if slices is None:
        return None
    found: list[ShardSlice | SourceRows] = []
    for piece in slices:
        told = piece.shard
        if is_intact(version.store, piece):
            found.append(piece)
            continue
        of = StoredVersion(version.store, f"{piece.name.split('/')[0]}/{told.owner}")
        rows = find_source_rows(of, told, limits)
        deeper = (rows,) if rows is not None else find_input_pieces(of, told, limits)
        if piece.span is not None or piece.layered is not None or deeper is None:
            return None
        found += deeper
    return tuple(found)


def is_intact(store: Store, piece: ShardSlice) -> bool:
    """Whether the files of a slice are those that were committed."""
    files = [(file.file.name, file.shard) for file in piece.files] or [(piece.name, piece.shard)]
    return all(hash_object(store, name, shard.bytes) == shard.sha256 for name, shard in files)


def _list_inputs(version: StoredVersion, entry: Entry) -> list[ShardSlice]:
    """The shards that a rebuild read."""
    if entry.inputs:
        told = entry.inputs[0]
        of = StoredVersion(version.store, told.shown)
        return list_whole_slices(of.snapshot(told.snapshot))
    inputs = {
        piece.shard.name: piece for piece in list_whole_slices(version.snapshot(entry.snapshot - 1))
    }
    return [inputs[name] for name in entry.removed]


def find_copied_pieces(
    version: StoredVersion, names: Collection[str], limits: Limits
) -> tuple[ShardSlice, ...] | None:
    """Slices of rebuilt shards that hold all the records of a shard, by the names that it had.

    They are found by counting. None if nothing was rebuilt from it that is intact.
    """
    for other in _list_versions(version):
        try:
            entries = list(other.log.entries(1)) if other.exists else []
        except ShardlineError:
            continue
        for entry in entries:
            found = _find_copied_slices(version, other, entry, names, limits)
            if found is not None:
                return found
    return None


def list_containing_shards(version: StoredVersion, shard: str) -> set[str]:
    """The shards of a version that hold the records of one: itself, and what was rebuilt from it.

    They may be gone by now, and others may have been made of them before.
    """
    found = {shard}
    for entry in version.log.entries(1):
        if entry.operation == "rebuild" and not entry.inputs and found & set(entry.removed):
            before, after = _list_rebuild_inputs(version, entry), [one.shard for one in entry.added]
            for name in found & set(entry.removed):
                found |= {one.name for one, _, _ in _find_positions(before, after, {name})}
    return found


def _list_versions(version: StoredVersion) -> Iterator[StoredVersion]:
    """This one first."""
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
    """The slices that one rebuild made of a shard, if it read that and they are intact."""
    if entry.operation != "rebuild" or not entry.added:
        return None
    try:
        before = _list_rebuild_inputs(version, entry)
        slices = _find_at_same_position(before, other, entry, names, limits) if before else []
        intact = all(is_intact(version.store, piece) for piece in slices)
    except (ShardlineError, OSError):
        return None
    return tuple(slices) if slices and intact else None


def _list_rebuild_inputs(version: StoredVersion, entry: Entry) -> list[Shard]:
    """The shards of a version that a rebuild was made of, in order."""
    if entry.inputs:
        told = entry.inputs[0]
        return list(version.snapshot(told.snapshot).shards) if told.shown == version.name else []
    stays = version.state.stays.named(entry.removed) if entry.shown == version.name else {}
    return [stays[name].shard for name in entry.removed if name in stays]


def _find_at_same_position(
    before: Sequence[Shard],
    other: StoredVersion,
    entry: Entry,
    names: Collection[str],
    limits: Limits,
) -> list[ShardSlice]:
    """What a rebuild put where a shard stood that it was made of."""
    made = [one.shard for one in entry.added]
    after = other.snapshot(entry.snapshot).shards if entry.inputs else made
    found = []
    for shard, begin, stop in _find_positions(before, after, names):
        if shard.name in names or shard.base is not None or shard.virtual:
            return []
        piece = ShardSlice(other.shard_name(shard), shard)
        if (begin, stop) != (0, shard.records):
            piece = replace(piece, span=get_span(other.store, piece, begin, stop, limits))
        found.append(piece)
    return found


def _find_positions(
    before: Sequence[Shard], after: Sequence[Shard], names: Collection[str]
) -> Iterator[tuple[Shard, int, int]]:
    """The shards at the place of one that is named, and from where to where in each of them."""
    place = next((at for at, shard in enumerate(before) if shard.name in names), None)
    if place is None:
        return
    first = sum(shard.records for shard in before[:place])
    end = first + before[place].records
    start = 0
    for shard in after:
        begin, stop = max(first - start, 0), min(end - start, shard.records)
        start += shard.records
        if begin < stop:
            yield shard, begin, stop
