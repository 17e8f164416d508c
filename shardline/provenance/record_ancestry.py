"""Records of other datasets that rows derive from, by counting or by row maps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.pairing.coverage import has_rule
from shardline.provenance.log_index import TraceGapError, make_pair_grid
from shardline.provenance.related_rows import (
    align_shards,
    list_mappings,
    open_row_map,
    spread_rows,
)
from shardline.provenance.shard_mapping import (
    NO_ROWS,
    AlignedMapping,
    LayoutMapping,
    make_layout,
    make_pair_mapping,
)
from shardline.sidecars.row_map import RowMapError
from shardline.sidecars.sidecar_reader import SidecarMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.pairing.pair_grid import PairGrid
    from shardline.provenance.log_index import DatasetHistory, LogIndex, VersionHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.provenance.shard_mapping import ShardMapping
    from shardline.schema.predicate import Mask

AncestorKey: TypeAlias = "tuple[str, str]"
"""A dataset, and a shard of it."""
_UNKNOWN_PAIRS = (RowMapError, SidecarMismatchError, TraceGapError)


def list_input_shards(index: LogIndex, source: Input) -> tuple[Shard, ...]:
    """Return the shards of an input; none if its log does not have the snapshot."""
    version = index.dataset(source.dataset).versions.get(source.version)
    if version is None or source.snapshot > version.version.state.snapshot:
        return ()
    return version.list_shards(source.snapshot)


@dataclass(frozen=True)
class PairedInputs:
    """The shards of the two snapshots that a combination paired."""

    version: VersionHistory
    entry: Entry
    listed: tuple[tuple[Shard, ...], tuple[Shard, ...]]

    @cached_property
    def grid(self) -> PairGrid:
        """Grid of the shards of both sides."""
        return make_pair_grid(*self.listed, self.entry)

    @cached_property
    def firsts(self) -> tuple[IntArray, IntArray]:
        """Number of the first record of each shard, on each side."""
        counts = [np.array([shard.records for shard in side], np.int64) for side in self.listed]
        return np.cumsum(counts[0]) - counts[0], np.cumsum(counts[1]) - counts[1]


@dataclass(frozen=True, slots=True)
class PairedShard:
    """A shard of pairs, by its position in the entry of a combination."""

    inputs: PairedInputs
    position: int

    @property
    def shard(self) -> Shard:
        """The shard of pairs."""
        return self.inputs.entry.added[self.position].shard

    def list_records(self, rows: ShardRows) -> Iterator[tuple[Mask, IntArray]]:
        """Yield some pairs at a time: which are in `rows`, and the numbers of their records.

        Of a plan, which may have too many pairs to list, only those in `rows` are listed. Raises
        one of `_UNKNOWN_PAIRS` where the records are unknown.
        """
        selected = rows.get(self.shard.name, NO_ROWS)
        if self.shard.virtual and not len(selected):
            return
        inputs = self.inputs
        open_map = partial(open_row_map, inputs.version)
        mapping = make_pair_mapping(inputs.entry, self.position, inputs.grid, ((), ()), open_map)
        for pairs, numbers in mapping.list_records(selected if self.shard.virtual else None):
            yield np.isin(pairs, selected), numbers

    def list_rows(self, numbers: IntArray) -> Iterator[tuple[AncestorKey, IntArray]]:
        """Yield the shards of both sides that have records of pairs, with their rows."""
        for side, source in enumerate(self.inputs.entry.inputs):
            known = np.unique(numbers[:, side][numbers[:, side] >= 0])
            firsts = self.inputs.firsts[side]
            # Of shards that begin with the same number, all but the last are empty.
            positions = np.searchsorted(firsts, known, "right") - 1
            for position in np.unique(positions).tolist():
                rows = known[positions == position] - firsts[position]
                yield (source.dataset, self.inputs.listed[side][position].name), rows

    def number_rows(self, side: int, rows: Mapping[AncestorKey, IntArray]) -> IntArray:
        """Return the numbers of rows among all records of a side."""
        inputs = self.inputs
        dataset = inputs.entry.inputs[side].dataset
        parts = [
            rows.get((dataset, shard.name), NO_ROWS) + first
            for shard, first in zip(inputs.listed[side], inputs.firsts[side].tolist(), strict=True)
        ]
        return np.concatenate([NO_ROWS, *parts])


@dataclass
class RecordAncestry:
    """Rows of other datasets that rows of a dataset derive from.

    `every` has all of these rows. No remaining record derives from those in `exclusive`. Other
    records derive from all rows of the shards in `shared`. `uncertain` are inputs whose rows are
    unknown.
    """

    history: DatasetHistory
    every: dict[AncestorKey, IntArray] = field(default_factory=dict)
    exclusive: dict[AncestorKey, IntArray] = field(default_factory=dict)
    shared: set[AncestorKey] = field(default_factory=set)
    uncertain: set[Input] = field(default_factory=set)

    def search(
        self, rows: ShardRows, unread: set[str], *, plans: bool, compare: bool = True
    ) -> None:
        """Search all entries that read other datasets.

        Args:
            rows: The rows whose origins to find.
            unread: Shards that could not be read.
            plans: Follow virtual shards too.
            compare: Find what other records derive from the same rows. Otherwise all are
                exclusive.
        """
        rows = {name: selected for name, selected in rows.items() if len(selected)}
        pairs: list[PairedShard] = []
        for version in self.history.versions.values():
            for entry in version.entries:
                if all(source.dataset == self.history.dataset for source in entry.inputs):
                    continue
                added = [
                    (position, new.shard)
                    for position, new in enumerate(entry.added)
                    if plans or not new.shard.virtual
                ]
                if any(shard.name in unread for _, shard in added):
                    self._add_uncertain(entry)
                matches = [(position, shard) for position, shard in added if shard.name in rows]
                if entry.operation == "combine":
                    positions = [position for position, _ in (added if compare else matches)]
                    inputs = self._list_inputs(version, entry)
                    if inputs is not None:
                        pairs += [PairedShard(inputs, position) for position in positions]
                    elif matches:
                        self._add_uncertain(entry)
                elif matches:
                    self._search_derived(version, entry, matches, rows)
        if any(pair.shard.name in rows for pair in pairs):
            self._search_pairs([pair for pair in pairs if pair.shard.name not in unread], rows)

    def group_exclusive(self) -> dict[str, ShardRows]:
        """Return the exclusive rows of each other dataset."""
        grouped: dict[str, ShardRows] = {}
        for (dataset, name), rows in self.exclusive.items():
            if dataset != self.history.dataset and len(rows):
                grouped.setdefault(dataset, {})[name] = rows
        return grouped

    def _add_uncertain(self, entry: Entry) -> None:
        self.uncertain |= {
            source for source in entry.inputs if source.dataset != self.history.dataset
        }

    def _list_inputs(self, version: VersionHistory, entry: Entry) -> PairedInputs | None:
        listed = [list_input_shards(self.history.index, source) for source in entry.inputs]
        if len(listed) != 2 or not all(listed) or not has_rule(entry):
            return None
        return PairedInputs(version, entry, (listed[0], listed[1]))

    def _search_derived(
        self,
        version: VersionHistory,
        entry: Entry,
        matches: Sequence[tuple[int, Shard]],
        rows: ShardRows,
    ) -> None:
        """Search the input of an extension, migration or rebuild."""
        source = entry.inputs[0]
        before = list_input_shards(self.history.index, source)
        by_name = {shard.name: shard for shard in before}
        layout = make_layout(before, version.list_shards(entry.snapshot), entry)
        for position, shard in matches:
            mappings: list[ShardMapping] = [] if layout is None else [layout]
            if entry.operation != "rebuild":
                bases = entry.bases[position : position + 1]
                aligned = [(by_name[base], shard) for base in bases if base in by_name]
                mappings = list(align_shards(self.history, aligned))
            origins = [
                mapped
                for mapping in mappings
                for mapped in mapping.map_rows(shard.name, rows[shard.name])
            ]
            for mapped in origins:
                key = (source.dataset, mapped.shard)
                _add_rows(self.exclusive, key, mapped.rows)
                _add_rows(self.every, key, mapped.rows)
            if not origins:
                self._add_uncertain(entry)

    def _search_pairs(self, pairs: Sequence[PairedShard], rows: ShardRows) -> None:
        matched: dict[AncestorKey, IntArray] = {}
        others: dict[AncestorKey, IntArray] = {}
        for pair in pairs:
            try:
                for is_match, numbers in pair.list_records(rows):
                    for key, paired in pair.list_rows(numbers[is_match]):
                        _add_rows(matched, key, paired)
                    for key, paired in pair.list_rows(numbers[~is_match]):
                        _add_rows(others, key, paired)
            except _UNKNOWN_PAIRS:
                if pair.shard.name in rows:
                    self._add_uncertain(pair.inputs.entry)
        exclusive = {
            key: np.setdiff1d(paired, others.get(key, NO_ROWS)) for key, paired in matched.items()
        }
        for key, paired in matched.items():
            _add_rows(self.every, key, paired)
            _add_rows(self.exclusive, key, exclusive[key])
        for pair in pairs:
            if pair.shard.name in rows:
                self._add_shared_pairs(pair, rows, exclusive)
        self.shared |= {key for key in matched if not len(self.exclusive.get(key, NO_ROWS))}

    def _add_shared_pairs(
        self, pair: PairedShard, rows: ShardRows, exclusive: Mapping[AncestorKey, IntArray]
    ) -> None:
        """Add both records of a pair if each is in other pairs too: together they restore it."""
        numbers_of = [pair.number_rows(side, exclusive) for side in (0, 1)]
        try:
            for is_match, numbers in pair.list_records(rows):
                matches = numbers[is_match]
                has = [np.isin(matches[:, side], numbers_of[side]) for side in (0, 1)]
                for key, paired in pair.list_rows(matches[~(has[0] | has[1])]):
                    _add_rows(self.exclusive, key, paired)
        except _UNKNOWN_PAIRS:
            return


def _add_rows(target: dict[AncestorKey, IntArray], key: AncestorKey, rows: IntArray) -> None:
    target[key] = np.union1d(target.get(key, NO_ROWS), rows)


@dataclass
class RemainingRecords:
    """Search of shards for records that derive from given rows of a dataset."""

    history: DatasetHistory
    rows: ShardRows
    _mappings: dict[str, list[ShardMapping]] = field(init=False, default_factory=dict)
    _results: dict[str, bool] = field(init=False, default_factory=dict)

    def derive(self, dataset: str, shard: Shard) -> bool:
        """Return True if a shard of another dataset has such records, or if that is unknown."""
        key = f"{dataset}/{shard.name}"
        if key not in self._results:
            self._results[key] = self._search(dataset, {shard.name: np.arange(shard.records)})
        return self._results[key]

    def _search(self, dataset: str, rows: ShardRows) -> bool:
        known = {dataset: rows}
        waiting = deque([dataset])
        while waiting:
            name = waiting.popleft()
            history = self.history.index.dataset(name)
            related = spread_rows(known[name], self._list_one_to_one(history)).rows
            ancestry = RecordAncestry(history)
            ancestry.search(related, set(), plans=True, compare=False)
            if ancestry.uncertain or _has_own_pairs(history, related):
                return True
            for (other, shard), upstream in ancestry.every.items():
                if other == self.history.dataset:
                    if np.isin(upstream, self.rows.get(shard, NO_ROWS)).any():
                        return True
                    continue
                before = known.setdefault(other, {}).get(shard, NO_ROWS)
                merged = np.union1d(before, upstream)
                if len(merged) > len(before):
                    known[other][shard] = merged
                    waiting.append(other)
        return False

    def _list_one_to_one(self, history: DatasetHistory) -> list[ShardMapping]:
        """Return the mappings without pairs, which do not derive from each other."""
        if history.dataset not in self._mappings:
            self._mappings[history.dataset] = [
                mapping
                for mapping in list_mappings(history)
                if isinstance(mapping, AlignedMapping | LayoutMapping)
            ]
        return self._mappings[history.dataset]


def _has_own_pairs(history: DatasetHistory, rows: ShardRows) -> bool:
    """Return True if some rows are pairs of records of their own dataset, which is not followed."""
    return any(
        added.shard.name in rows
        for version in history.versions.values()
        for entry in version.entries
        if entry.operation == "combine"
        and any(source.dataset == history.dataset for source in entry.inputs)
        for added in entry.added
    )
