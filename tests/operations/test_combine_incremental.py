"""A combination follows its inputs: what is there stays, and only what is new is made."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.errors import CorruptFileError
from shardline.operations.combine import plan_combine
from shardline.operations.rebuild import rebuild
from tests.errors import raises
from tests.operations.combinations import (
    LEFT,
    RIGHT,
    by_shards,
    combined,
    contents,
    each_two,
    flat,
    land_shards,
    lefts,
    nested,
    rights,
    side,
)

if TYPE_CHECKING:
    from pathlib import Path


def two(root: Path, left: int, right: int, each: int = 2) -> tuple[Version, Version, Version]:
    """Sides of so many shards of a few records each, and where they are combined."""
    return (
        side(root, "lefts/v1", LEFT, *(lefts(n * each, (n + 1) * each) for n in range(left))),
        side(root, "rights/v1", RIGHT, *(rights(n * each, (n + 1) * each) for n in range(right))),
        Version(root, "pairs/v1"),
    )


def test_a_shard_more_on_either_side_of_a_hundred_computes_its_pairs_alone(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 100, 100, each=1)
    target = 20 * 100 * 80
    first = combined(left, right, into, target_bytes=target)
    assert (first.records, len(first.reused)) == (10_000, 0)
    assert len(first.written) < 10
    land_shards(left, lefts(100, 101))
    more = combined(left, right, into, target_bytes=target)
    assert (more.records, len(more.reused)) == (100, len(first.written))
    assert flat(contents(into)[len(first.written) :]) == nested(lefts(100, 101), rights(0, 100))
    land_shards(right, rights(100, 101))
    more = combined(left, right, into, target_bytes=target)
    assert more.records == 101
    land_shards(left, lefts(101, 102))
    land_shards(right, rights(101, 102))
    plan = plan_combine(
        left, right, into, left_snapshot="latest", right_snapshot="latest", target_bytes=target
    )
    both = combined(left, right, into, target_bytes=target)
    assert plan.estimate.pairs == both.records == 101 + 101 + 1
    assert (plan.compute, plan.reuse, plan.drop) == (len(both.written), len(both.reused), 0)
    assert into.latest().records == 102 * 102
    assert Counter(flat(contents(into))) == Counter(nested(lefts(0, 102), rights(0, 102)))
    assert combined(left, right, into, target_bytes=target).entry is None


def test_small_pairs_of_shards_are_gathered_into_shards_of_the_target_size(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 6, 5)
    size = combined(left, right, into).bytes
    (whole,) = into.latest().shards
    assert (whole.records, whole.bytes) == (120, size)
    shards = (
        [lefts(n * 2, n * 2 + 2) for n in range(6)],
        [rights(n * 2, n * 2 + 2) for n in range(5)],
    )
    assert flat(contents(into)) == by_shards(*shards)
    for parts in (2, 6, 12, 25):
        other = Version(tmp_path, f"pairs/v{parts}")
        report = combined(left, right, other, target_bytes=size // parts)
        assert parts <= len(report.written) <= 2 * parts
        assert max(shard.bytes for shard in report.written) <= 1.05 * size / parts
        assert flat(contents(other)) == by_shards(*shards)


def test_a_pair_of_shards_over_the_target_size_is_cut_by_records_of_the_left(
    tmp_path: Path,
) -> None:
    left, right, into = two(tmp_path, 2, 1, each=6)
    report = combined(left, right, into, target_bytes=1)
    assert [shard.records for shard in report.written] == [6] * 12
    assert flat(contents(into)) == nested(lefts(0, 12), rights(0, 6))
    assert report.entry is not None
    told = report.entry.parameters["outputs"]
    assert told[:2] == [[0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 1, 2]]
    land_shards(right, rights(6, 7))
    more = combined(left, right, into, target_bytes=1)
    assert (len(more.reused), more.records) == (12, 12)
    assert combined(left, right, into, target_bytes=10**6).entry is None


def test_the_entry_tells_inputs_rule_and_what_each_shard_covers(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 2, 3)
    report = combined(left, right, into, on_collision="prefix", left_prefix="l_")
    assert (report.created, report.snapshot, report.incremental) == (True, 1, True)
    assert report.entry is not None
    assert report.entry.operation == "combine"
    assert [(one.dataset, one.version, one.snapshot) for one in report.entry.inputs] == [
        ("lefts", "v1", 1),
        ("rights", "v1", 1),
    ]
    assert report.entry.parameters == {
        "rule": {"on_collision": "prefix", "left_prefix": "l_"},
        "compression": "none",
        "target_bytes": 128 * 2**20,
        "outputs": [[0, 2, 0, 3]],
        "computed": 1,
        "reused": 0,
    }
    assert [feature.name for feature in into.schema.features] == ["b", "l_a", "l_text", "word"]


def test_what_is_gone_from_an_input_goes_and_what_is_left_is_not_made_again(
    tmp_path: Path,
) -> None:
    left, right, into = two(tmp_path, 1, 2)
    combined(left, right, into)
    land_shards(left, lefts(2, 4))
    combined(left, right, into)
    before = into.latest().shards
    left.restore(1)
    report = combined(left, right, into)
    assert (report.written, report.reused) == ((), before[:1])
    assert into.latest().shards == before[:1]
    left.restore(2)
    back = combined(left, right, into)
    assert (back.written, back.reused) == ((), before)


def test_the_pairs_that_are_left_of_a_shard_that_goes_are_made_anew(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 2)
    land_shards(left, lefts(2, 4))
    combined(left, right, into)
    left.restore(1)
    report = combined(left, right, into)
    assert (len(report.written), report.reused, report.records) == (1, (), 8)
    assert flat(contents(into)) == nested(lefts(0, 2), rights(0, 2)) + nested(
        lefts(0, 2), rights(2, 4)
    )


def test_an_input_that_was_rebuilt_is_combined_anew(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 2, 2)
    combined(left, right, into)
    rebuild(left, snapshot="latest")
    report = combined(left, right, into)
    assert (report.reused, report.records) == ((), 16)
    assert flat(contents(into)) == by_shards([lefts(0, 4)], [rights(0, 2), rights(2, 4)])


def test_another_rule_or_packing_makes_all_anew(tmp_path: Path) -> None:
    left, _, into = two(tmp_path, 2, 2)
    options = {"on_collision": "prefix", "left_prefix": "l_", "right_prefix": "r_"}
    assert len(combined(left, left, into, **options).written) == 1
    assert combined(left, left, into, **options).entry is None
    once = combined(left, left, into, **options, unordered=True)
    assert (once.reused, once.records) == ((), 6)
    packed = combined(left, left, into, **options, unordered=True, compression="gzip")
    assert (packed.reused, [shard.compression for shard in packed.written]) == ((), ["gzip"])


def test_what_was_made_under_a_rule_before_is_found_again(tmp_path: Path) -> None:
    left, _, into = two(tmp_path, 2, 2)
    options = {"on_collision": "prefix", "left_prefix": "l_", "right_prefix": "r_"}
    combined(left, left, into, **options)
    whole = into.latest().shards
    combined(left, left, into, **options, unordered=True)
    again = combined(left, left, into, **options)
    assert (again.written, again.reused) == ((), whole)
    assert combined(left, left, into, **options).entry is None
    land_shards(left, lefts(4, 5))
    assert combined(left, left, into, **options).records == 9


def test_pairs_of_one_version_with_itself_grow_with_it(tmp_path: Path) -> None:
    left = side(tmp_path, "lefts/v1", LEFT, *(lefts(n, n + 1) for n in range(5)), lefts(5, 9))
    into = Version(tmp_path, "pairs/v1")
    options = {
        "on_collision": "prefix",
        "left_prefix": "l_",
        "right_prefix": "r_",
        "unordered": True,
    }
    first = combined(left, left, into, **options, target_bytes=600)
    assert first.records == 36
    assert 2 < len(first.written) < 20
    prefixes = ("l_", "r_")
    assert Counter(flat(contents(into))) == Counter(each_two(lefts(0, 9), prefixes))
    land_shards(left, lefts(9, 11), [])
    more = combined(left, left, into, **options, target_bytes=600)
    assert (more.records, len(more.reused)) == (9 * 2 + 1, len(first.written))
    assert Counter(flat(contents(into))) == Counter(each_two(lefts(0, 11), prefixes))
    assert combined(left, left, into, **options, target_bytes=600).entry is None


def test_a_triangle_over_the_target_size_is_cut_where_its_pairs_are_even(tmp_path: Path) -> None:
    left = side(tmp_path, "lefts/v1", LEFT, lefts(0, 20))
    into = Version(tmp_path, "pairs/v1")
    options = {
        "on_collision": "prefix",
        "left_prefix": "l_",
        "right_prefix": "r_",
        "unordered": True,
    }
    report = combined(left, left, into, **options, target_bytes=190 * 82 // 4)
    counts = [shard.records for shard in report.written]
    assert sum(counts) == 190
    assert len(counts) in {4, 5}
    assert max(counts) - min(counts) < 20
    assert flat(contents(into)) == each_two(lefts(0, 20), ("l_", "r_"))


def test_a_rejected_snapshot_is_made_anew_under_other_names(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 1)
    combined(left, right, into)
    bad = {shard.name for shard in into.latest().shards}
    into.reject(1, reason="someone looked")
    report = combined(left, right, into)
    assert (report.records, report.reused) == (4, ())
    assert not bad & {shard.name for shard in report.written}


def test_inputs_without_a_record_make_no_shard(tmp_path: Path) -> None:
    left = side(tmp_path, "lefts/v1", LEFT, [], lefts(0, 2), [])
    right = side(tmp_path, "rights/v1", RIGHT, [])
    into = Version(tmp_path, "pairs/v1")
    assert combined(left, right, into).entry is None
    land_shards(right, [], rights(0, 2))
    assert combined(left, right, into).records == 4
    land_shards(left, [])
    assert combined(left, right, into).entry is None


def test_a_damaged_input_stops_it_and_what_was_made_is_used_when_it_is_mended(
    tmp_path: Path,
) -> None:
    left, right, into = two(tmp_path, 2, 1)
    path = tmp_path / left.shard_name(left.latest().shards[1])
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"!")
    with raises(CorruptFileError, "corrupt-file", path=str(path), record=1):
        combined(left, right, into, target_bytes=400)
    assert not into.exists
    made = {one.name: one.stat().st_mtime_ns for one in (tmp_path / "pairs/shards").iterdir()}
    assert not [name for name in made if name.startswith(".")]
    path.write_bytes(good)
    assert combined(left, right, into, target_bytes=400).records == 8
    after = {one.name: one.stat().st_mtime_ns for one in (tmp_path / "pairs/shards").iterdir()}
    assert made.items() <= after.items()
