"""Of which two records each pair of a combined shard is made: by counting, or by its row map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shardline.log.sidecar_names import ROWS
from shardline.operations.erasing.pairs import is_chosen
from shardline.pairing.coverage import Cover, estimate
from shardline.pairing.grid import Extent, Grid
from shardline.sidecars.reader import SidecarMismatchError
from shardline.sidecars.row_map import RowMap, RowMapError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.sidecars.reader import SidecarReader
    from shardline.storage import Store

_LOT = 256 * 1024


@dataclass(frozen=True)
class PairedSides:
    """The shards of a combination's entry, and those of the two snapshots that it paired."""

    store: Store
    entry: Entry
    listed: tuple[tuple[Shard, ...], tuple[Shard, ...]]
    sidecars: SidecarReader

    @cached_property
    def _grid(self) -> Grid:
        left, right = (tuple(Extent(one.records, 0) for one in side) for side in self.listed)
        return Grid(left, right, bool(self.entry.parameters["rule"].get("once")))

    @cached_property
    def firsts(self) -> tuple[IntArray, IntArray]:
        """The number of the first record of each shard, on each side."""
        counts = [np.array([one.records for one in side], np.int64) for side in self.listed]
        return np.cumsum(counts[0]) - counts[0], np.cumsum(counts[1]) - counts[1]

    def lots(self, place: int, rows: IntArray | None = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Pairs of the shard at a place among those added, some at a time; all, or these rows.

        Each lot tells which pairs these are, and the numbers of their two records; -1 is for none.
        Raises RowMapError where that cannot be told, also for a row map that differs from the
        committed one.
        """
        shard = self.entry.added[place].shard
        outputs = self.entry.parameters.get("outputs")
        cover = None
        if isinstance(outputs, list) and len(outputs) == len(self.entry.added):
            cover = Cover.from_json(outputs[place])
        if is_chosen(self.entry):
            try:
                self.sidecars.compare(f"{shard.name}{ROWS}")
            except SidecarMismatchError as error:
                raise RowMapError(error.message, code=error.code, path=error.path) from None
            name = f"{self.entry.dataset}/shards/{shard.name}{ROWS}"
            yield from self._mapped(RowMap(self.store, name, shard.records, 2), cover)
            return
        if cover is None or estimate(self._grid, cover).pairs != shard.records:
            raise RowMapError("its entry does not list its shard pairs", code="origin-not-recorded")
        before = 0
        if cover.span is not None:
            cut = Cover(cover.left, cover.right, (0, cover.span[0]))
            before = estimate(self._grid, cut).pairs
        for some in [rows] if rows is not None else _ranges(shard.records):
            pair = self._grid.locate(some + before, cover.left, cover.right)
            yield some, np.stack(pair, axis=1)

    def _mapped(self, row_map: RowMap, cover: Cover | None) -> Iterator[tuple[IntArray, IntArray]]:
        begin = (0, 0) if cover is None else (cover.left[0], cover.right[0])
        shift = np.array([first[at] for first, at in zip(self.firsts, begin, strict=True)])
        for first, numbers in row_map.lots():
            some = np.arange(first, first + len(numbers))
            yield some, np.where(numbers < 0, -1, numbers + shift)

    def placed(self, side: int, numbers: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The shards of a side that hold records of these numbers, and their rows there."""
        known = np.unique(numbers[numbers >= 0])
        firsts = self.firsts[side]
        # Of shards that begin with the same number all but the last are empty.
        at = np.searchsorted(firsts, known, "right") - 1
        for place in np.unique(at).tolist():
            yield self.listed[side][place].name, known[at == place] - firsts[place]


def _ranges(records: int) -> Iterator[IntArray]:
    return (np.arange(at, min(at + _LOT, records)) for at in range(0, records, _LOT))
