"""Sides of a combination: the shards of a snapshot, with their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import IndexMismatchError, UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.kernel.types import FRAME_BYTES
from shardline.pairing.pair_features import get_name_growth
from shardline.pairing.pair_grid import estimate_extent
from shardline.pairing.pair_side import number_units
from shardline.readers.records import list_records
from shardline.tfrecord.index import read_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardline.log.snapshot import StoredSnapshot
    from shardline.pairing.pair_grid import RecordExtent
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.readers.records import Records
    from shardline.readers.shard_file import ShardFile
    from shardline.schema.schema import Key

_PACKED_TO = 4
"""Assumed compression ratio of a shard whose index is missing."""


@dataclass(frozen=True, slots=True)
class CombinationSide:
    """Shards of a snapshot as one side of a combination, with their sizes."""

    units: tuple[NumberedUnit, ...]
    extents: tuple[RecordExtent, ...]
    packed: bool


def get_combination_side(
    snapshot: StoredSnapshot, names: Mapping[Key, str | None]
) -> CombinationSide:
    """Return the shards of a snapshot as a combination side, without reading records.

    Raises UnreadableSnapshotError for a virtual snapshot.
    """
    if any(shard.virtual for shard in snapshot.shards):
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot combine a virtual snapshot",
            code="virtual-snapshot",
            hint=Hint.of(
                "write its pairs into a version first: run ",
                Command.of("rebuild", snapshot.version, "--into", "VERSION"),
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    records = list_records(snapshot)
    grown = get_name_growth(names)
    return CombinationSide(
        number_units((unit, unit.shard.records) for unit in records),
        tuple(estimate_extent(unit.shard.records, _payloads(unit), grown) for unit in records),
        any(file.shard.compression != "none" for unit in records for file in unit.files),
    )


def _payloads(records: Records) -> int:
    return sum(
        _get_decompressed_size(file) - FRAME_BYTES * file.shard.records for file in records.files
    )


def _get_decompressed_size(file: ShardFile) -> int:
    """Return the decompressed size of a file, from its index if possible."""
    shard, stored = file.shard, file.file
    if shard.compression == "none":
        return shard.bytes
    end = 0
    try:
        known = read_offsets(stored.store, stored.name, shard.bytes, shard.records, shard.sha256)
        for offsets in known:
            end = int(offsets[-1])
    except IndexMismatchError:
        return _PACKED_TO * shard.bytes + FRAME_BYTES * shard.records
    return end
