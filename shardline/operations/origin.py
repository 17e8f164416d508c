"""What a shard was made of, as the log tells: rows of a source, or slices of other shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.files.compression import Compression
from shardline.log.version import Version
from shardline.operations.rebuild_plan import numbered, plan_rebuild
from shardline.operations.receipt import RECEIPT, read_rows
from shardline.operations.shards import stem_of
from shardline.sources import as_source

if TYPE_CHECKING:
    from shardline.files.reader import Limits
    from shardline.log.entry import Entry
    from shardline.log.facts import Shard
    from shardline.operations.rebuild_plan import Slice
    from shardline.sources import RecordSource


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source, from `first` up to `end`; to its end if that is None."""

    source: RecordSource
    first: int
    end: int | None


def landing_of(version: Version, shard: Shard) -> tuple[Entry, Shard]:
    """The entry that brought a shard in, and the shard; of one made by a repair, the first one."""
    stay = version.state.stays.named([shard.name])[shard.name]
    entry = version.log.entry(stay.landed)
    if entry.operation == "repair":
        old = str(entry.parameters["shard"])
        return landing_of(version, version.state.stays.named([old])[old].shard)
    return entry, stay.shard


def source_rows(version: Version, shard: Shard, limits: Limits) -> SourceRows | None:
    """The rows that a shard was made of, if their source is a file that is still the same."""
    entry, first_one = landing_of(version, shard)
    found = [source for source in entry.sources if source.key == first_one.source]
    if entry.operation != "append" or not found or found[0].path is None:
        return None
    parameters = entry.parameters
    try:
        place = found[0].path
        source = as_source(
            Path(place) if "://" not in place else place,
            format=parameters.get("format"),
            salvage=bool(parameters.get("salvage")),
            limits=limits,
        )
        if source.identity() != found[0]:
            return None
    except (ShardlineError, OSError):
        return None
    rows = read_rows(version.store, version.shard_name(first_one) + RECEIPT)
    if rows is not None:
        return SourceRows(source, *rows)
    alone = sum(one.shard.source == first_one.source for one in entry.added) == 1
    return SourceRows(source, 0, None) if alone else None


def input_slices(version: Version, shard: Shard, limits: Limits) -> tuple[Slice, ...] | None:
    """The slices of other shards that a shard was rebuilt from, if those are still known."""
    entry, first_one = landing_of(version, shard)
    if entry.operation != "rebuild":
        return None
    try:
        of, shards = _inputs(version, entry)
        inputs = [(of.shard_name(one), one) for one in shards]
        target = entry.parameters.get("target_bytes")
        outputs = numbered(plan_rebuild(version.store, inputs, target, limits))
    except (ShardlineError, OSError):
        return None
    packing = Compression(entry.parameters["compression"])
    stem = first_one.name.split(".")[1]
    made_of = (out.slices for out in outputs if stem_of(out.identity(packing)) == stem)
    return next(made_of, None)


def _inputs(version: Version, entry: Entry) -> tuple[Version, tuple[Shard, ...]]:
    """The shards that a rebuild read, and the version in which they are."""
    if entry.inputs:
        told = entry.inputs[0]
        of = Version(version.store, f"{told.dataset}/{told.version}")
        return of, of.snapshot(told.snapshot).shards
    known = version.state.stays.named(entry.removed)
    return version, tuple(known[name].shard for name in entry.removed)
