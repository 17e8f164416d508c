"""Plans: every pair is in exactly one shard, whatever is there already."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline.pairing.coverage import (
    Coverage,
    CoveredPairs,
    estimate,
    list_first_coverages,
    list_matched_coverages,
    list_missing_coverages,
    list_missing_rows,
)
from shardline.pairing.pair_grid import PairEstimate, PairGrid, RecordExtent

extents = st.lists(
    st.builds(
        lambda records, size: RecordExtent(records, records * size),
        st.integers(0, 6),
        st.integers(0, 90),
    ),
    max_size=6,
).map(tuple)
targets = st.integers(1, 6000)


def cells(grid: PairGrid, cover: Coverage) -> list[tuple[int, int, int, int]]:
    """The pairs of a cover: left shard, right shard, and the records in them, in order."""
    return [
        (left, right, one, other)
        for left in range(*cover.left)
        for right in range(*cover.right)
        if not grid.unordered or left <= right
        for one in range(*(cover.span or (0, grid.left[left].records)))
        for other in range(grid.right[right].records)
        if not grid.unordered or left < right or one < other
    ]


def every(grid: PairGrid) -> list[tuple[int, int, int, int]]:
    """All pairs, in order."""
    return cells(grid, Coverage((0, len(grid.left)), (0, len(grid.right))))


modes = st.sampled_from(["all", "once"])


@given(extents, extents, targets, modes)
def test_a_plan_has_every_pair_once_and_in_order(
    left: tuple[RecordExtent, ...], right: tuple[RecordExtent, ...], target: int, mode: str
) -> None:
    once = mode == "once"
    grid = PairGrid(left, left if once else right, once)
    planned = list(list_missing_coverages(CoveredPairs.empty(grid), target))
    assert [cell for cover, _ in planned for cell in cells(grid, cover)] == every(grid)
    for cover, found in planned:
        assert found.pairs == len(cells(grid, cover)) > 0
        small = cover.span is None or found.pairs <= grid.right[cover.right[0]].records
        assert small or found.bytes <= 2 * target
        assert Coverage.from_json(cover.to_json()) == cover
    assert sum(found.pairs for _, found in planned) == grid.pairs


@given(extents, extents, st.tuples(targets, targets), modes, st.data())
def test_only_what_is_not_covered_is_planned(
    left: tuple[RecordExtent, ...],
    right: tuple[RecordExtent, ...],
    sizes: tuple[int, int],
    mode: str,
    data: st.DataObject,
) -> None:
    before, target = sizes
    once = mode == "once"
    old = PairGrid(left, left if once else right, once)
    made = [cover for cover, _ in list_missing_coverages(CoveredPairs.empty(old), before)]
    there = [cover for cover in made if data.draw(st.booleans())]
    places = [[data.draw(st.integers(0, 3)) > 0 for _ in side] for side in (old.left, old.right)]
    if once:
        places[1] = places[0]
    more = data.draw(extents)
    now = [
        tuple(one for one, is_kept in zip(side, kept, strict=True) if is_kept) + more
        for side, kept in zip((old.left, old.right), places, strict=True)
    ]
    grid = PairGrid(now[0], now[1], once)
    moved = [
        np.array([sum(kept[:at]) if is_kept else -1 for at, is_kept in enumerate(kept)], np.int64)
        for kept in places
    ]
    covered = CoveredPairs.empty(grid)
    kept = [cover for cover in there if covered.add(cover, moved[0], moved[1])]
    assert all(covered.add(cover, moved[0], moved[1]) is False for cover in kept)
    found: Counter[tuple[int, int, int, int]] = Counter()
    for cover in kept:
        for one, other, *records in cells(old, cover):
            assert min(moved[0][one], moved[1][other]) >= 0
            found[int(moved[0][one]), int(moved[1][other]), records[0], records[1]] += 1
    gone = [cover for cover in there if cover not in kept]
    for cover in gone:
        shards = [*moved[0][slice(*cover.left)], *moved[1][slice(*cover.right)]]
        assert -1 in shards
    for cover, _ in list_missing_coverages(covered, target):
        found.update(cells(grid, cover))
    assert found == Counter(every(grid))


@given(extents, extents, targets, st.data())
def test_matched_records_are_planned_by_rows(
    left: tuple[RecordExtent, ...],
    right: tuple[RecordExtent, ...],
    target: int,
    data: st.DataObject,
) -> None:
    grid = PairGrid(left, right)
    counts = [data.draw(st.integers(0, 40)) for _ in left]
    covered = CoveredPairs.empty(grid)

    def planned(covered: CoveredPairs) -> list[Coverage]:
        rows = [(row, gap, counts[row]) for row, gap in list_missing_rows(covered)]
        return [cover for cover, _ in list_matched_coverages(grid, rows, target)]

    def records(covers: list[Coverage]) -> Counter[tuple[int, int]]:
        return Counter(
            (row, one)
            for cover in covers
            for row in range(*cover.left)
            for one in range(*(cover.span or (0, grid.left[row].records)))
        )

    whole = Counter((row, one) for row, unit in enumerate(left) for one in range(unit.records))
    first = planned(covered)
    assert records(first) == whole
    kept = [cover for cover in first if data.draw(st.booleans())]
    for cover in kept:
        assert covered.add_rows(cover, np.arange(len(left)))
        assert not covered.add_rows(cover, np.arange(len(left)))
    assert records(kept) + records(planned(covered)) == whole


def test_the_first_pairs_are_those_of_the_first_shards() -> None:
    grid = PairGrid((RecordExtent(2, 20), RecordExtent(2, 20)), (RecordExtent(3, 30),))
    covers = list(list_missing_coverages(CoveredPairs.empty(grid), 1))
    assert [found.pairs for _, found in covers] == [3, 3, 3, 3]
    assert [found.pairs for _, found in list_first_coverages(covers, 5)] == [3, 2]
    assert [cover for cover, _ in list_first_coverages(covers, 6)] == [
        cover for cover, _ in covers[:2]
    ]


def test_a_cover_that_nobody_wrote_is_refused() -> None:
    for told in (None, [0, 1], [0, 1, 0, 1, 2], [0, 1, 0, -1], [0, 1, 0, "1"], {"left": 1}):
        with pytest.raises(ValueError, match="pairs of shards"):
            Coverage.from_json(told)


def test_an_estimate_of_a_span_is_its_share() -> None:
    grid = PairGrid((RecordExtent(4, 40),), (RecordExtent(4, 40),), unordered=True)
    assert estimate(grid, Coverage((0, 1), (0, 1))).pairs == 6
    assert estimate(grid, Coverage((0, 1), (0, 1), (0, 1))).pairs == 3
    assert estimate(grid, Coverage((0, 1), (0, 1), (2, 4))).pairs == 1
    assert estimate(PairGrid((), ()), Coverage((0, 0), (0, 0))) == PairEstimate()
