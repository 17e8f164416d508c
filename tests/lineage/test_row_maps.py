"""Row maps: each entry is found by its place, and one that is damaged is never believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from shardline.sidecars.row_map import NO_RECORD, RowMap, RowMapError, RowMapWriter, choose_width
from shardline.storage import open_store
from tests.errors import raises
from tests.tfrecord.samples import flipped

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.kernel.types import IntArray


def written(root: Path, width: int, *lots: list[IntArray]) -> RowMap:
    """A row map of entries that came in several lots, each by columns."""
    store = open_store(root)
    with store.writer("x.rows") as file:
        writer = RowMapWriter(file, len(lots[0]), width)
        for lot in lots:
            writer.add(*lot)
        writer.finish()
    return RowMap(store, "x.rows", sum(len(lot[0]) for lot in lots), len(lots[0]))


@pytest.mark.parametrize(("width", "most"), [(4, 2**32 - 1), (8, 2**62)])
@pytest.mark.parametrize("sizes", [[1], [512], [511, 1, 1], [2000, 0, 700]])
def test_row_map_finds_every_entry(tmp_path: Path, width: int, most: int, sizes: list[int]) -> None:
    assert choose_width(most) == width
    random = np.random.default_rng(len(sizes))
    lots = [[random.integers(-1, most, size) for _ in range(2)] for size in sizes]
    found = written(tmp_path, width, *lots)
    rows = np.concatenate([np.stack(lot, axis=1) for lot in lots])
    rows[0, 1] = rows[0, 1]
    assert np.array_equal(np.concatenate([lot for _, lot in found.blocks()]), rows)
    for at in {0, len(rows) // 2, len(rows) - 1}:
        assert found.find(at) == tuple(rows[at].tolist())


def test_row_map_keeps_missing_and_largest_number_apart(tmp_path: Path) -> None:
    found = written(tmp_path, 4, [np.array([2**32 - 2, NO_RECORD])])
    assert [found.find(at) for at in range(2)] == [(2**32 - 2,), (NO_RECORD,)]


def test_corrupt_row_map_is_refused(tmp_path: Path) -> None:
    found = written(tmp_path, 4, [np.arange(700)])
    path = tmp_path / "x.rows"
    whole = path.read_bytes()
    for byte in [*range(16), 16, 2063, 2064, 2067]:
        path.write_bytes(flipped(whole, 8 * byte))
        with raises(RowMapError, "corrupt-row-map", path="x.rows"):
            found.find(5)
    path.write_bytes(whole[:-1])
    assert found.find(5) == (5,)
    with raises(RowMapError, "row-map-unreadable", path="x.rows"):
        found.find(600)
    path.unlink()
    with raises(RowMapError, "row-map-not-found", path="x.rows"):
        found.find(5)
