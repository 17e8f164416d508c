"""Rows of all shards of a dataset that follow from other rows, through every operation."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.log.model import RECEIPT, ROWS
from shardline.log.parameters import EraseParameters, RepairParameters
from shardline.pairing.coverage import has_rule
from shardline.provenance.log_index import ERASE, TraceGapError, make_pair_grid
from shardline.provenance.shard_mapping import (
    NO_ROWS,
    AlignedMapping,
    GridMapping,
    count_pairs,
    expand_spans,
    make_layout,
    make_pair_mapping,
)
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapError
from shardline.sidecars.sidecar_reader import SidecarMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.provenance.log_index import DatasetHistory, VersionHistory
    from shardline.provenance.shard_mapping import LayoutMapping, PairMapping, ShardMapping

ShardRows: TypeAlias = "dict[str, IntArray]"
"""Ascending rows by shard."""


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """Rows with all rows that follow from them.

    A plan that no other shard follows from has no rows here; `pairs` counts its pairs.
    """

    rows: ShardRows
    pairs: dict[str, int]


def spread_rows(rows: Mapping[str, IntArray], mappings: Iterable[ShardMapping]) -> RelatedRows:
    """Return the rows with all that follow from them, directly or through other shards."""
    mappings = list(mappings)
    related: ShardRows = {name: selected for name, selected in rows.items() if len(selected)}
    sources = {name for mapping in mappings for name in mapping.list_sources()} | set(related)
    plans: dict[str, list[GridMapping]] = {}
    followed: list[ShardMapping] = []
    for mapping in mappings:
        if isinstance(mapping, GridMapping) and mapping.virtual and mapping.name not in sources:
            plans.setdefault(mapping.name, []).append(mapping)
        else:
            followed.append(mapping)
    by_source = _group_by_source(followed)
    waiting = deque(related)
    while waiting:
        name = waiting.popleft()
        for mapping in by_source.get(name, ()):
            for mapped in mapping.map_rows(name, related[name]):
                known = related.get(mapped.shard, NO_ROWS)
                merged = np.union1d(known, mapped.rows)
                if len(merged) > len(known):
                    related[mapped.shard] = merged
                    waiting.append(mapped.shard)
    counts = {name: count_pairs(known, related) for name, known in plans.items()}
    pairs = {name: count for name, count in counts.items() if count}
    return RelatedRows(related | dict.fromkeys(pairs, NO_ROWS), pairs)


def list_reached_shards(shards: Iterable[str], mappings: Iterable[ShardMapping]) -> set[str]:
    """Return these shards and all whose rows follow from theirs."""
    by_source = _group_by_source(mappings)
    reached = set(shards)
    waiting = deque(reached)
    while waiting:
        for mapping in by_source.get(waiting.popleft(), ()):
            new = set(mapping.list_targets()) - reached
            waiting.extend(new)
            reached |= new
    return reached


def _group_by_source(mappings: Iterable[ShardMapping]) -> dict[str, list[ShardMapping]]:
    grouped: dict[str, list[ShardMapping]] = {}
    for mapping in mappings:
        for name in set(mapping.list_sources()):
            grouped.setdefault(name, []).append(mapping)
    return grouped


def get_erased_rows(history: DatasetHistory) -> ShardRows:
    """Return the rows that earlier erases removed, by shard.

    Receipts name the removed rows of rewritten shards. Entries name those of older shards, unless
    there are too many. So derived rows are found even if an erase was stopped.
    """
    rows: ShardRows = {}
    for mapping in _list_operation_mappings(history, ERASE):
        if isinstance(mapping, AlignedMapping) and mapping.missing:
            rows[mapping.first] = expand_spans(mapping.missing)
    for version in history.versions.values():
        for entry in version.entries:
            if entry.operation == ERASE:
                older = entry.read(EraseParameters).older
                rows |= {name: expand_spans(spans) for name, spans in older.items()}
    return rows


def list_mappings(history: DatasetHistory) -> list[ShardMapping]:
    """Return all mappings that the logs of a dataset and the sidecars of its shards give."""
    return list(_list_operation_mappings(history, None))


def _list_operation_mappings(
    history: DatasetHistory, operation: str | None
) -> Iterator[ShardMapping]:
    replaced: list[tuple[Shard, Shard]] = []
    for version in history.versions.values():
        for entry in version.entries:
            if not entry.added or operation not in {None, entry.operation}:
                continue
            yield from _list_layouts(history, version, entry)
            yield from _list_pair_mappings(history, entry)
            replaced += _list_replaced_shards(history, entry)
    yield from align_shards(history, replaced)


def _list_layouts(
    history: DatasetHistory, version: VersionHistory, entry: Entry
) -> Iterator[LayoutMapping]:
    """Yield how a rebuild moved records, in place or from another version of the dataset."""
    if entry.operation != "rebuild":
        return
    if entry.inputs:
        base = history.find_input(entry.inputs[0])
        if base is None or entry.inputs[0].snapshot > base.version.state.snapshot:
            return
        before, after = (
            base.list_shards(entry.inputs[0].snapshot),
            version.list_shards(entry.snapshot),
        )
    else:
        before = tuple(version.shards[name] for name in entry.removed)
        after = tuple(added.shard for added in entry.added)
    layout = make_layout(before, after, entry)
    if layout is not None:
        yield layout


def _list_pair_mappings(history: DatasetHistory, entry: Entry) -> Iterator[PairMapping]:
    """Yield the pairs of a combination that has a side of this dataset.

    A shard of pairs without an intact row map is left out.
    """
    if entry.operation != "combine" or not has_rule(entry) or len(entry.inputs) != 2:
        return
    is_own = [history.find_input(side) is not None for side in entry.inputs]
    if not any(is_own):
        return
    listed = [_list_input_shards(history, side) for side in entry.inputs]
    grid = make_pair_grid(listed[0], listed[1], entry)
    left, right = (
        tuple(shard.name if own else None for shard in shards)
        for own, shards in zip(is_own, listed, strict=True)
    )
    version = history.versions[entry.version]
    for position in range(len(entry.added)):
        try:
            yield make_pair_mapping(
                entry, position, grid, (left, right), lambda shard: _open_row_map(version, shard)
            )
        except (TraceGapError, RowMapError, SidecarMismatchError):
            continue


def _open_row_map(version: VersionHistory, shard: Shard) -> RowMap:
    """Open a row map that is the committed one, and intact to its end."""
    row_map = open_row_map(version, shard)
    for _ in row_map.blocks():
        pass
    return row_map


def open_row_map(version: VersionHistory, shard: Shard) -> RowMap:
    """Open the row map of a shard of pairs. Raises SidecarMismatchError if it was replaced."""
    version.sidecars.compare(f"{shard.name}{ROWS}")
    path = f"{version.version.shard_name(shard)}{ROWS}"
    return RowMap(version.version.store, path, shard.records, 2)


def _list_input_shards(history: DatasetHistory, source: Input) -> tuple[Shard, ...]:
    version = history.find_input(source)
    if version is not None:
        return version.list_shards(source.snapshot)
    return history.index.version(source.label).snapshot(source.snapshot).shards


def _list_replaced_shards(history: DatasetHistory, entry: Entry) -> Iterator[tuple[Shard, Shard]]:
    """Yield the shards that an entry adds, each after the shard that it derives from."""
    bases = list(entry.bases)
    if entry.operation == "repair" and not entry.read(RepairParameters).lost_records:
        bases = list(entry.removed)
    for position, added in enumerate(entry.added):
        shard = added.shard
        if shard.base is not None and shard.base.name in history.shards:
            yield history.shards[shard.base.name], shard
        if position < len(bases) and (shard.base is None or bases[position] != shard.base.name):
            base = history.shards.get(bases[position])
            if base is not None:
                yield base, shard


def align_shards(
    history: DatasetHistory, pairs: Sequence[tuple[Shard, Shard]]
) -> Iterator[AlignedMapping]:
    """Yield the mapping of each two shards. A receipt must name the rows that the second lacks.

    The second shard is of this dataset. Raises SidecarMismatchError for a receipt that differs
    from the committed one.
    """
    shortened = []
    for first, second in pairs:
        if first.records == second.records:
            yield AlignedMapping(first.name, second.name)
        else:
            shortened.append((first, second))
    contents = _read_receipts(history, [second.name for _, second in shortened])
    for first, second in shortened:
        receipt = parse_receipt(contents[second.name])
        if receipt is None or receipt.first:
            continue
        if first.records - receipt.refused_rows == second.records:
            yield AlignedMapping(first.name, second.name, receipt.refused)


def _read_receipts(history: DatasetHistory, shards: Sequence[str]) -> dict[str, bytes | None]:
    by_owner: dict[str, list[str]] = {}
    for shard in shards:
        by_owner.setdefault(history.get_owner(shard).name, []).append(shard)
    contents: dict[str, bytes | None] = {}
    for names in by_owner.values():
        receipts = [f"{name}{RECEIPT}" for name in names]
        read = history.get_owner(names[0]).sidecars.read(receipts)
        contents |= dict(zip(names, read, strict=True))
    return contents
