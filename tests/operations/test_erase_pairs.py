"""Erase among pairs: those that lie in files, chosen or all, and those that a plan tells of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shardline.api import Version
from shardline.log.model import ROWS
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase, plan_erase
from shardline.operations.erasure.condition import WhereCondition
from shardline.operations.erasure.erasure_proof import prove_erasure
from shardline.operations.erasure.record_search import search_pair_plans
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.pairing.coverage import Coverage, estimate
from shardline.pairing.pair_grid import PairGrid, RecordExtent
from shardline.provenance.log_index import LogIndex
from shardline.provenance.shard_mapping import NO_ROWS, GridMapping, count_pairs
from shardline.schema.predicate import Predicate
from shardline.schema.schema import Feature
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf import batch_udf
from tests.operations.erasures import emptied, files_with, landed, marked, marker, opened
from tests.operations.extensions import SCHEMA, double, table
from tests.operations.landings import ids, json_lines

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.kernel.types import IntArray
    from shardline.operations.erase import ErasePlan
    from shardline.operations.erasure.residual_copies import ResidualCopy

PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


def faces(tmp_path: Path, *spans: tuple[int, int]) -> Version:
    """A version of another dataset, with a shard for each span of ids; the sources are gone."""
    version = Version(tmp_path / "root", "faces/v1")
    for first, last in spans:
        source = json_lines(tmp_path / f"faces-{first}.jsonl", marked(first, last))
        append(version, source, schema=SCHEMA)
        source.unlink()
    assert check_version(version).ok
    return version


def combined(left: Version, right: Version, name: str, **rule: Any) -> Version:  # noqa: ANN401 - of combine
    """The pairs of two versions as they stand now, published."""
    into = Version(left.store, name)
    combine(opened(left), opened(right), into, **rule)
    assert check_version(into).ok
    return opened(into)


def planned(tmp_path: Path, where: str, dataset: str = "digits") -> ErasePlan:
    return plan_erase(tmp_path / "root", dataset, where=where)


def holders(tmp_path: Path, where: str, dataset: str = "digits") -> list[ResidualCopy]:
    """Who would still hold the pairs that are meant; versions without the feature aside."""
    found = planned(tmp_path, where, dataset).residual_copies
    return [one for one in found if one.location != "digits/v1@1"]


@pytest.mark.parametrize(
    ("where", "pairs"), [("b_id == 2", 4), ("a_id == 1 and b_id == 2", 1), ("b_id in [2, 4]", 8)]
)
def test_a_plan_that_pairs_another_dataset_is_searched_and_its_pairs_are_counted(
    tmp_path: Path, where: str, pairs: int
) -> None:
    other = faces(tmp_path, (0, 3), (3, 5))
    combined(landed(tmp_path, (0, 4)), other, "digits/pairs", mode="virtual", **PREFIXES)
    plan = planned(tmp_path, where)
    assert plan.versions == ()
    (holder,) = holders(tmp_path, where)
    assert (holder.kind, holder.location, holder.certain) == ("virtual", "digits/pairs@1", True)
    counted = f"its plan makes {pairs} {'pair' if pairs == 1 else 'pairs'} of them"
    assert holder.detail.startswith(counted)
    assert "faces/v1" in holder.hint
    combine_anew, *vacuums = [" ".join(command) for command in holder.commands]
    again = (
        "combine digits/v1 faces/v1 --into digits/pairs --on-collision prefix "
        "--left-prefix a_ --right-prefix b_ --mode virtual"
    )
    assert combine_anew == again
    keep_nothing = "--delete --retention 0"
    assert sorted(vacuums) == [f"vacuum {one} {keep_nothing}" for one in ("digits", "faces")]
    assert holders(tmp_path, where.replace("2", "7").replace("4", "9")) == []


def test_the_plan_of_a_dataset_with_no_records_of_its_own_is_searched(tmp_path: Path) -> None:
    other = faces(tmp_path, (0, 5))
    combined(other, other, "pairs/v1", mode="virtual", unordered=True, **PREFIXES)
    combined(other, other, "pairs/v2", mode="virtual", on_collision="keep-left")
    (holder, _) = planned(tmp_path, "b_id == 2", "pairs").residual_copies
    assert holder.location == "pairs/v1@1"
    assert "makes 2 pairs" in holder.detail
    (unsearched,) = planned(tmp_path, "a_id == 9", "pairs").residual_copies
    assert (unsearched.kind, unsearched.location) == ("unsearched", "pairs/v2@1")
    by_left = planned(tmp_path, "id == 2", "pairs").residual_copies
    assert [(one.kind, one.location) for one in by_left] == [
        ("virtual", "pairs/v2@1"),
        ("unsearched", "pairs/v1@1"),
    ]
    assert "makes 5 pairs" in by_left[0].detail


def test_each_shard_of_a_side_is_read_once_however_many_plans_pair_it(tmp_path: Path) -> None:
    digits, other = landed(tmp_path, (0, 4)), faces(tmp_path, (0, 3))
    combined(digits, other, "digits/pairs", mode="virtual", **PREFIXES)
    faces(tmp_path, (3, 5))
    landed(tmp_path, (4, 8))
    pairs = combined(digits, other, "digits/pairs", mode="virtual", **PREFIXES)
    assert len(pairs.latest().shards) > 2
    history = LogIndex(pairs.store).dataset("digits")
    search = search_pair_plans(history, WhereCondition(Predicate("b_id == 2")), DEFAULT_LIMITS)
    assert len(search.tasks) == 2
    (holder,) = [one for one in planned(tmp_path, "b_id == 2").residual_copies if one.certain]
    assert "makes 8 pairs" in holder.detail


def test_pairs_with_erased_records_are_gone_when_all_that_is_advised_was_done(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    digits, other = landed(tmp_path, (0, 4)), faces(tmp_path, (10, 13))
    pairs = combined(digits, other, "digits/pairs", mode="virtual", **PREFIXES)
    with_proof = prove_erasure(root, "digits", plan=planned(tmp_path, "b_id == 11"))
    assert not with_proof.complete
    erase(root, "faces", where="id == 11")
    check_version(opened(other))
    (holder,) = prove_erasure(root, "faces").certain_copies
    assert (holder.kind, holder.location) == ("descendant", "digits/pairs")
    combined(digits, other, "digits/pairs", mode="virtual", **PREFIXES)
    assert holders(tmp_path, "b_id == 11") == []
    assert len(planned(tmp_path, "b_id == 11").versions) == 1, "the old plan is given up"
    erase(root, "digits", where="b_id == 11")
    for dataset in ("faces", "digits"):
        emptied(tmp_path, dataset)
    assert files_with(root, marker(11)) == []
    assert prove_erasure(root, "faces", plan=planned(tmp_path, "id == 11", "faces")).complete
    assert table(opened(pairs).published())["b_id"] == [10, 12] * 4


def test_a_plan_whose_side_cannot_be_read_is_told_not_to_be_searched(tmp_path: Path) -> None:
    digits, other = landed(tmp_path, (0, 4)), faces(tmp_path, (10, 13))
    combined(digits, other, "digits/pairs", mode="virtual", **PREFIXES)
    path = tmp_path / "root" / other.shard_name(other.latest().shards[0])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (holder,) = holders(tmp_path, "b_id == 11")
    assert (holder.kind, holder.certain, holder.is_open) == ("unsearched", False, True)
    assert "record 2" in holder.detail
    assert [one.kind for one in planned(tmp_path, "id == 2").residual_copies] == ["virtual"]
    erase(tmp_path / "root", "digits", where="id == 2")
    assert ids(digits, opened(digits).latest()) == [0, 1, 3]


@batch_udf(Feature("keep", "int64"), reads=["a_id", "b_id"], code="1")
def near(batch: pa.RecordBatch) -> dict[str, Any]:
    """Pairs of ids that are next to each other."""
    apart = pc.abs(pc.subtract(batch["a_id"], batch["b_id"]))
    return {"keep": pc.cast(pc.less_equal(apart, 1), pa.int64())}


@pytest.mark.parametrize(
    "rule",
    [{"on": "id"}, {"on": "id", "how": "left"}, {"where": near}, {"limit": 30}, {"sample": 40}],
    ids=["on", "left", "where", "limit", "sample"],
)
def test_chosen_pairs_are_followed_by_what_their_row_map_tells(
    tmp_path: Path, rule: dict[str, Any]
) -> None:
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(v1, double, v2, mode="rewrite")
    assert check_version(v2).ok
    pairs = combined(v1, v1, "digits/pairs", target_bytes=200, **PREFIXES, **rule)
    before = [(a, b) for a, b in zip(*_ids(pairs), strict=True)]
    plan = planned(tmp_path, "double in [4, 12]")
    assert plan.residual_copies == ()
    erase(tmp_path / "root", "digits", where="double in [4, 12]")
    left = [(a, b) for a, b in before if a not in {2, 6} and b not in {2, 6}]
    assert len(left) < len(before)
    assert [(a, b) for a, b in zip(*_ids(pairs), strict=True)] == left
    emptied(tmp_path)
    assert files_with(tmp_path / "root", marker(6)) == []


def _ids(version: Version) -> tuple[list[int], list[int]]:
    read = table(opened(version).latest())
    return read["a_id"], read["b_id"]


def test_chosen_pairs_without_their_row_map_are_told_not_to_be_searched(tmp_path: Path) -> None:
    v1 = landed(tmp_path, (0, 4))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(v1, double, v2, mode="rewrite")
    pairs = combined(v1, v1, "digits/pairs", on="id", **PREFIXES)
    (shard,) = pairs.latest().shards
    path = tmp_path / "root" / f"{pairs.shard_name(shard)}{ROWS}"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (holder,) = planned(tmp_path, "double == 4").residual_copies
    assert (holder.kind, holder.location, holder.certain) == ("unsearched", "digits/pairs@1", False)


def test_pairs_follow_from_records_as_counting_them_one_by_one_tells() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        once = bool(random.integers(2))
        counts = [random.integers(0, 5, random.integers(1, 4)).tolist() for _ in range(2)]
        counts[1] = counts[0] if once else counts[1]
        left, right = (tuple(RecordExtent(count, 0) for count in side) for side in counts)
        grid = PairGrid(left, right, once)
        rows, columns = (sorted(random.integers(0, len(one) + 1, 2)) for one in (left, right))
        cover = Coverage((int(rows[0]), int(rows[1])), (int(columns[0]), int(columns[1])))
        if rows[1] - rows[0] == columns[1] - columns[0] == 1 and rows[0] <= columns[0] * once:
            ends = sorted(random.integers(0, left[rows[0]].records + 1, 2))
            cover = Coverage(cover.left, cover.right, (int(ends[0]), int(ends[1])))
        total = estimate(grid, cover).pairs
        names = [
            tuple(f"{side} {at}" for at in range(len(one)))
            for side, one in enumerate((left, right))
        ]
        names[1] = names[0] if once else names[1]
        related = GridMapping("pairs", names[0], names[1], grid, cover)
        for name in sorted(set(related.list_sources())):
            some = _some(random, name, counts)
            found = map_pairs(related, name, some)
            expected = _one_by_one(related, total, name, set(some.tolist()))
            assert found.tolist() == expected
            if cover.span is None:
                assert count_pairs([related], {name: some}) == len(expected)
        if cover.span is None:
            chosen = {
                name: _some(random, name, counts) for name in sorted(set(related.list_sources()))
            }
            carried = [map_pairs(related, *one) for one in chosen.items()]
            assert count_pairs([related], chosen) == len(
                {place for one in carried for place in one}
            )


def map_pairs(related: GridMapping, name: str, rows: IntArray) -> IntArray:
    """The pairs of records, each of which is the pair of its row."""
    parts = [NO_ROWS]
    for mapped in related.map_rows(name, rows):
        ((_, numbers),) = related.list_records(mapped.rows)
        starts = [
            np.cumsum([0, *(one.records for one in side)])
            for side in (related.grid.left, related.grid.right)
        ]
        sides = [
            names.index(name) if name in names else None for names in (related.left, related.right)
        ]
        is_of = [
            numbers[:, side] == starts[side][at] + mapped.source_rows
            for side, at in enumerate(sides)
            if at is not None
        ]
        assert np.logical_or.reduce(is_of).all()
        parts.append(mapped.rows)
    return np.unique(np.concatenate(parts))


def _some(random: np.random.Generator, name: str, counts: list[list[int]]) -> IntArray:
    """Some rows of a shard, whose name tells its side and place."""
    some = np.flatnonzero(random.random(5) < 0.4)
    return some[some < counts[int(name[0])][int(name[2:])]]


def _one_by_one(related: GridMapping, total: int, name: str, some: set[int]) -> list[int]:
    grid, cover, skipped = related.grid, related.cover, 0
    if cover.span is not None:
        skipped = estimate(grid, Coverage(cover.left, cover.right, (0, cover.span[0]))).pairs
    places = np.arange(total) + skipped
    if not total:
        return []
    numbers = grid.locate(places, cover.left, cover.right)
    meant = []
    for side, (extents, of) in enumerate(((grid.left, related.left), (grid.right, related.right))):
        ends = np.cumsum([one.records for one in extents])
        shard = np.searchsorted(ends, numbers[side], "right")
        inside = numbers[side] - (ends - [one.records for one in extents])[shard]
        meant.append([of[a] == name and b in some for a, b in zip(shard, inside, strict=True)])
    return [at for at, pair in enumerate(zip(*meant, strict=True)) if any(pair)]


@pytest.mark.parametrize(
    ("where", "pairs"),
    [("a_double == 4", 3), ("a_double == 4 and a_id == 2", 3), ("a_double == 4 and b_id == 11", 1)],
)
def test_a_side_of_overlays_is_searched_in_the_layers_that_have_the_features(
    tmp_path: Path, where: str, pairs: int
) -> None:
    base, other = landed(tmp_path, (0, 4), compression="gzip"), faces(tmp_path, (10, 13))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(base, double, v2)
    assert check_version(v2).ok
    combined(v2, other, "digits/pairs", mode="virtual", **PREFIXES)
    (holder,) = [one for one in planned(tmp_path, where).residual_copies if one.certain]
    assert holder.location == "digits/pairs@1"
    assert f"makes {pairs} pair" in holder.detail
    # By its own name it goes from the files, and the plan is told of without reading it.
    erasing = planned(tmp_path, "double == 4")
    assert [one.version for one in erasing.versions] == ["digits/v1", "digits/v2"]
    assert "makes 3 pairs" in erasing.residual_copies[0].detail


def origins(tmp_path: Path, dataset: str = "matched") -> list[tuple[str, str, bool]]:
    """The versions of other datasets that the proof of one tells of."""
    proof = prove_erasure(tmp_path / "root", dataset)
    return [
        (one.kind, one.location, one.certain)
        for one in proof.remaining
        if one.kind in {"origin", "shared"}
    ]


def test_records_that_pairs_were_made_of_count_until_they_are_erased_in_their_datasets(
    tmp_path: Path,
) -> None:
    digits, others = landed(tmp_path, (0, 2), (2, 4), (4, 6)), faces(tmp_path, (1, 3), (3, 5))
    combined(digits, others, "matched/v1", **PREFIXES, on=["id"])
    report = erase(tmp_path / "root", "matched", where="a_id == 2")
    check_version(Version(tmp_path / "root", "matched/v1"))
    told = [(one.kind, one.location, one.certain) for one in report.open_copies]
    assert told == [("origin", "digits/v1", True), ("origin", "faces/v1", True)]
    assert all("1 shard" in one.detail for one in report.open_copies)
    assert [one.commands for one in report.open_copies] == [
        (("erase", "digits", "--where", "PREDICATE"),),
        (("erase", "faces", "--where", "PREDICATE"),),
    ]
    emptied(tmp_path, "matched")
    both = [("origin", "digits/v1", True), ("origin", "faces/v1", True)]
    assert origins(tmp_path) == both
    erase(tmp_path / "root", "digits", where="id == 3")
    assert origins(tmp_path) == both, "another record was erased of the same shard"
    erase(tmp_path / "root", "digits", where="id == 2")
    assert origins(tmp_path) == both[1:]
    erase(tmp_path / "root", "faces", where="id == 2")
    assert origins(tmp_path) == []
    assert prove_erasure(tmp_path / "root", "matched").complete


def test_what_stays_in_other_pairs_is_told_of_and_does_not_count(tmp_path: Path) -> None:
    digits, others = landed(tmp_path, (0, 2), (2, 4)), faces(tmp_path, (5, 7), (7, 8))
    combined(digits, others, "matched/v1", **PREFIXES)
    report = erase(tmp_path / "root", "matched", where="a_id == 2")
    assert [(one.kind, one.location, one.is_open) for one in report.residual_copies] == [
        ("origin", "digits/v1", True),
        ("shared", "faces/v1", False),
    ]
    report = erase(tmp_path / "root", "matched", where="a_id == 1 and b_id == 6")
    assert [(one.kind, one.location) for one in report.open_copies] == [
        ("origin", "digits/v1"),
        ("origin", "faces/v1"),
    ], "neither is of this pair alone, and together they make it again"


def test_origins_are_followed_through_datasets_and_versions(tmp_path: Path) -> None:
    digits = landed(tmp_path, (0, 2), (2, 4))
    root = tmp_path / "root"
    noses = Version(root, "noses/v1")
    extend(digits, double, noses, mode="rewrite")
    assert check_version(noses).ok
    rebuild(opened(noses), into=Version(root, "ears/v1"))
    report = erase(root, "ears", where="id == 2")
    assert [(one.kind, one.location) for one in report.open_copies] == [
        ("origin", "digits/v1"),
        ("origin", "noses/v1"),
    ]
    erase(root, "noses", where="id == 2")
    assert origins(tmp_path, "ears") == [("origin", "digits/v1", True)]
    erase(root, "digits", where="id == 2")
    assert origins(tmp_path, "ears") == []


def test_records_of_older_snapshots_alone_are_followed_to_what_they_were_made_of(
    tmp_path: Path,
) -> None:
    digits, others = landed(tmp_path, (0, 2), (2, 4)), faces(tmp_path, (1, 3))
    combined(digits, others, "matched/v1", **PREFIXES, on=["id"])
    erase(tmp_path / "root", "digits", where="id == 2")
    assert check_version(opened(digits)).ok
    combined(digits, others, "matched/v1", **PREFIXES, on=["id"])
    report = erase(tmp_path / "root", "matched", where="a_id == 2")
    assert [len(one.plan.older_shards) for one in report.versions] == [1]
    assert [(one.kind, one.location) for one in report.open_copies] == [("origin", "faces/v1")]
    emptied(tmp_path, "matched")
    assert origins(tmp_path) == [("origin", "faces/v1", True)]


def test_without_a_row_map_the_origins_may_hold_the_records(tmp_path: Path) -> None:
    digits, others = landed(tmp_path, (0, 2), (2, 4)), faces(tmp_path, (1, 3))
    matched = combined(digits, others, "matched/v1", **PREFIXES, on=["id"])
    for shard in matched.latest().shards:
        (tmp_path / "root" / f"{matched.shard_name(shard)}{ROWS}").unlink()
    report = erase(tmp_path / "root", "matched", where="a_id == 2")
    assert [
        (one.kind, one.location, one.certain, one.is_open) for one in report.residual_copies
    ] == [
        ("origin", "digits/v1", False, True),
        ("origin", "faces/v1", False, True),
    ]


def test_a_descendant_of_which_other_records_were_erased_still_holds_those_that_go(
    tmp_path: Path,
) -> None:
    digits, others = landed(tmp_path, (0, 2), (2, 4)), faces(tmp_path, (1, 4))
    root = tmp_path / "root"
    matched = combined(digits, others, "matched/v1", **PREFIXES, on=["id"])
    rebuild(matched, into=Version(root, "wider/v1"))

    def descendants(where: str) -> list[str]:
        plan = plan_erase(root, "digits", where=where)
        return [one.location for one in plan.residual_copies if one.kind == "descendant"]

    erase(root, "wider", where="a_id == 1")
    erase(root, "matched", where="a_id == 1")
    assert descendants("id == 2") == ["matched/v1", "wider/v1"]
    erase(root, "wider", where="a_id == 2")
    assert descendants("id == 2") == ["matched/v1"]
    erase(root, "matched", where="a_id == 2")
    assert descendants("id == 2") == []
    assert descendants("id == 3") == ["matched/v1", "wider/v1"]
