"""Pairs of two versions: by shards, in order, limited or drawn, and read alike by everyone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.errors import (
    BudgetError,
    ConflictError,
    InvalidArgumentError,
    LogError,
    SchemaMismatchError,
    SnapshotNotFoundError,
    UnknownArgumentError,
)
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Option
from shardline.operations.check import check_version
from shardline.operations.combine import combine, plan_combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.pairing.pair_grid import PairGrid, RecordExtent
from shardline.schema.schema import Feature, Schema
from shardline.udf import batch_udf
from tests.errors import raises
from tests.execution.test_cluster import sent
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
    pair,
    rights,
    side,
)
from tests.operations.shard_files import assert_whole
from tests.tfrecord.samples import example_of, sequence_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from shardline.execution.executor import Progress

PREFIX: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "l_", "right_prefix": "r_"}


def two(root: Path, left: int = 3, right: int = 2) -> tuple[Version, Version, Version]:
    """Sides of so many shards of three records."""
    return (
        side(root, "lefts/v1", LEFT, *(lefts(3 * at, 3 * at + 3) for at in range(left))),
        side(root, "rights/v1", RIGHT, *(rights(3 * at, 3 * at + 3) for at in range(right))),
        Version(root, "pairs/v1"),
    )


def all_pairs(left: int = 3, right: int = 2) -> list[bytes]:
    """Their pairs, in order."""
    return by_shards(
        [lefts(3 * at, 3 * at + 3) for at in range(left)],
        [rights(3 * at, 3 * at + 3) for at in range(right)],
    )


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_pairs_come_by_shards_the_left_record_outside(tmp_path: Path, compression: str) -> None:
    left, right, into = two(tmp_path)
    report = combined(left, right, into, compression=compression, target_bytes=1500)
    assert flat(contents(into)) == all_pairs()
    assert (report.records, report.bytes) == (54, into.latest().bytes)
    assert_whole(into.latest())
    assert check_version(into).ok
    assert into.published().records == 54


def test_the_published_snapshots_are_combined_unless_others_are_named(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    with pytest.raises(SnapshotNotFoundError, match=r"lefts/v1.* published snapshot"):
        combine(left, right, into)
    for version in (left, right):
        assert check_version(version).ok
    land_shards(left, lefts(9, 12))
    assert combine(left, right, into).records == 54
    assert combine(left, right, into, left_snapshot="latest").records == 18


def test_examples_and_sequence_examples_are_read_alike_by_everyone(tmp_path: Path) -> None:
    schema = Schema(
        (Feature("b", "int64"), Feature("frames", "int64", (None,), sequence=True)),
        "sequence_example",
    )
    steps = [sequence_of({"b": at}, frames=[[1] * at, [2]]) for at in range(3)]
    left = side(tmp_path, "lefts/v1", LEFT, lefts(0, 2), lefts(2, 3))
    right = side(tmp_path, "rights/v1", schema, steps)
    into = Version(tmp_path, "pairs/v1")
    combined(left, right, into)
    assert check_version(into).ok
    assert flat(contents(into)) == nested(lefts(0, 3), steps)
    ours = into.latest().to_arrow(["a", "b", "frames"]).read_all().to_pylist()
    assert ours == [{"a": a, "b": b, "frames": [[1] * b, [2]]} for a in range(3) for b in range(3)]
    theirs = [
        {"a": int(context["a"]), "b": int(context["b"]), "frames": lists["frames"].to_list()}
        for context, lists in into.published().to_tf()
    ]
    assert theirs == ours
    found = [tf.train.SequenceExample.FromString(payload) for payload in flat(contents(into))]
    assert [one.context.feature["a"].int64_list.value[0] for one in found] == [
        a for a in range(3) for _ in range(3)
    ]


def test_records_that_lie_in_layers_are_combined_whole(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)

    @batch_udf(Feature("double", "int64"), reads=["a"], code="1")
    def double(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"double": [2 * one.as_py() for one in batch["a"]]}

    layered = Version(tmp_path, "lefts/v2")
    extend(left, double, layered, snapshot="latest")
    assert all(shard.base is not None for shard in layered.latest().shards)
    combined(layered, right, into)
    whole = [
        [
            pair(one, example_of(double=2 * (3 * at + n)))
            for n, one in enumerate(lefts(3 * at, 3 * at + 3))
        ]
        for at in range(3)
    ]
    assert flat(contents(into)) == by_shards(whole, [rights(0, 3), rights(3, 6)])


def test_packed_inputs_are_combined_and_estimated_by_what_is_in_them(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    rebuild(left, snapshot="latest", compression="gzip")
    options: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    plan = plan_combine(left, right, into, **options)
    report = combined(left, right, into)
    assert plan.estimate.pairs == report.records == 54
    assert abs(plan.estimate.bytes - report.bytes) < 0.05 * report.bytes
    assert flat(contents(into)) == by_shards([lefts(0, 9)], [rights(0, 3), rights(3, 6)])


def test_a_limit_takes_the_first_pairs_and_says_that_it_is_not_incremental(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    for limit, target in ((1, 10**6), (10, 300), (10**9, 300)):
        report = combined(left, right, into, limit=limit, target_bytes=target)
        assert flat(contents(into)) == all_pairs()[:limit]
        assert report.incremental is False
        assert report.entry is not None
        assert report.entry.parameters["incremental"] is False
        assert report.entry.parameters["limit"] == limit
    assert combined(left, right, into, limit=10**9, target_bytes=300).entry is None
    land_shards(left, lefts(9, 12))
    assert combined(left, right, into, limit=60, target_bytes=300).reused == ()


def test_a_sample_is_drawn_of_all_pairs_in_order_and_the_same_each_time(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    report = combined(left, right, into, sample=20, seed=3, target_bytes=400)
    places = sorted(random.Random(3).sample(range(54), 20))
    assert flat(contents(into)) == [all_pairs()[at] for at in places]
    assert (report.incremental, len(report.written) > 2) == (False, True)
    assert report.entry is not None
    told = report.entry.parameters
    assert (told["sample"], told["seed"], told["incremental"]) == (20, 3, False)
    assert combined(left, right, into, sample=20, seed=3, target_bytes=400).entry is None
    combined(left, right, into, sample=20, seed=4)
    assert flat(contents(into)) != [all_pairs()[at] for at in places]
    combined(left, right, into, sample=1000)
    assert flat(contents(into)) == all_pairs()


def test_a_sample_of_each_two_records_has_no_mirrored_or_identical_pairs(tmp_path: Path) -> None:
    left = side(tmp_path, "lefts/v1", LEFT, lefts(0, 4), lefts(4, 5), lefts(5, 9))
    into = Version(tmp_path, "pairs/v1")
    combined(left, left, into, **PREFIX, unordered=True)
    whole = flat(contents(into))
    assert sorted(whole) == sorted(each_two(lefts(0, 9), ("l_", "r_")))
    combined(left, left, into, **PREFIX, unordered=True, sample=36)
    assert flat(contents(into)) == whole


extents = tuple(RecordExtent(records, 10 * records) for records in (3, 0, 1, 5))


@pytest.mark.parametrize("once", [False, True])
def test_the_nth_pair_is_found_without_the_others(once: bool) -> None:  # noqa: FBT001 - a parameter
    grid = PairGrid(extents, extents, once)
    firsts = [0, 3, 3, 4]
    expected = [
        (firsts[left] + one, firsts[right] + other)
        for left in range(4)
        for right in range(4)
        for one in range(extents[left].records)
        for other in range(extents[right].records)
        if not once or firsts[left] + one < firsts[right] + other
    ]
    lefts_found, rights_found = grid.locate(grid.sample(10**6, 0))
    assert list(zip(lefts_found.tolist(), rights_found.tolist(), strict=True)) == expected
    assert grid.pairs == len(expected)


def test_every_pair_of_very_many_is_as_likely_and_found() -> None:
    drawn = [int(PairGrid(extents[:1], extents[:1]).sample(1, seed)[0]) for seed in range(900)]
    assert all(60 < drawn.count(at) < 140 for at in range(9))
    huge = PairGrid((RecordExtent(2 * 10**9, 0),), (RecordExtent(2 * 10**9, 0),), unordered=True)
    places = huge.sample(1000, 1)
    one, other = huge.locate(places)
    assert (one < other).all()
    assert one.min() >= 0
    assert other.max() < 2 * 10**9
    before = one * (2 * 2 * 10**9 - one - 1) // 2
    assert (before + (other - one - 1) == places).all()
    with raises(InvalidArgumentError, "too-many-pairs"):
        PairGrid((RecordExtent(10**10, 0),), (RecordExtent(10**10, 0),)).sample(1, 0)


def test_more_than_the_budget_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    with raises(BudgetError, "budget-exceeded", pairs=54) as caught:
        combined(left, right, into, budget_bytes=1000)
    assert caught.value.bytes > 1000
    assert caught.value.hint is not None
    assert Option("mode", "virtual") in caught.value.hint.parts
    assert not into.exists
    assert not (tmp_path / "pairs" / "shards").exists()
    told = sent(BudgetError("too much", 2, 3))
    assert (str(told), told.pairs, told.bytes) == ("too much", 2, 3)
    combined(left, right, into, budget_bytes=10**5)
    land_shards(left, lefts(9, 10))
    assert combined(left, right, into, budget_bytes=1000).records == 6


def test_what_cannot_be_combined_is_refused(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    other = Version(tmp_path / "other", "pairs/v1")
    with raises(InvalidArgumentError, "root-mismatch", version="pairs/v1"):
        combined(left, right, other)
    with raises(LogError, "same-version", version="lefts/v1"):
        combined(left, right, left)
    unknown: dict[str, Any] = {"onn": "a"}
    for function in (combine, plan_combine):
        with raises(UnknownArgumentError, "unknown-argument") as caught:
            function(left, right, into, **unknown)
        assert str(caught.value).startswith(f"{function.__name__}: ")
        assert caught.value.hint is not None
        assert Option("on") in caught.value.hint.parts
    with raises(InvalidArgumentError, "out-of-range"):
        combined(left, right, into, target_bytes=0)
    with raises(InvalidArgumentError, "unsupported-compression"):
        combined(left, right, into, compression="zlib")
    with raises(InvalidArgumentError, "conflicting-arguments") as refused:
        combined(left, right, into, unordered=True)
    assert "lefts/v1@1 and rights/v1@1" in str(refused.value)
    land_shards(left, lefts(9, 12))
    with raises(InvalidArgumentError, "conflicting-arguments") as refused:
        combined(left, left, into, left_snapshot=1, unordered=True, **PREFIX)
    assert "lefts/v1@1 and lefts/v1@2" in str(refused.value)
    assert not into.exists


def test_a_version_with_another_schema_or_with_records_of_its_own_is_refused(
    tmp_path: Path,
) -> None:
    left, right, _ = two(tmp_path)
    other = side(tmp_path, "others/v1", RIGHT)
    with raises(SchemaMismatchError, "schema-mismatch", version="others/v1"):
        combined(left, right, other)
    options: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    with raises(SchemaMismatchError, "schema-mismatch", version="others/v1"):
        plan_combine(left, right, other, **options)
    both = Schema((*LEFT.features, *RIGHT.features))
    appended = side(tmp_path, "appended/v1", both, [example_of(a=1, b=1, text=b"", word=b"")])
    with raises(ConflictError, "appended-version", version="appended/v1"):
        combined(left, right, appended)


def test_the_plan_reads_nothing_and_changes_nothing(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    for version in (left, right):
        for shard in version.latest().shards:
            (tmp_path / version.shard_name(shard)).unlink()
    options: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    plan = plan_combine(left, right, into, **options, target_bytes=1500)
    assert (plan.estimate.pairs, plan.reuse, plan.drop, plan.incremental) == (54, 0, 0, True)
    assert plan.compute > 1
    assert [feature.name for feature in plan.schema.features] == ["a", "b", "text", "word"]
    assert str(plan.estimate).startswith("54 pairs, about ")
    assert not into.exists
    assert plan_combine(left, right, into, **options, sample=5).incremental is False


def test_progress_hears_of_bytes_and_pairs(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    heard: list[Progress] = []
    report = combined(left, right, into, progress=heard.append)
    assert (heard[-1].step, heard[-1].records) == ("combining", report.records)
    assert heard[-1].done == heard[-1].total


class Watched:
    """An engine that sees what became of each task."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def run(self, work: Any, tasks: Sequence[Any], progress: Any = None) -> Iterator[Any]:  # noqa: ANN401 - whatever it is
        """Run them here."""
        for task, made in zip(tasks, ThreadExecutor(2).run(work, tasks, progress), strict=True):
            self.seen.append((task, made))
            yield made


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "gzip"}, {"target_bytes": 100}, {"limit": 7}, {"left_prefix": "p" * 200}],
)
def test_no_shard_is_larger_than_was_said_before(tmp_path: Path, options: dict[str, Any]) -> None:
    left, right, into = two(tmp_path)
    land_shards(left, [example_of(a=1, text=b"x" * 70_000), *lefts(0, 2)])
    rule = {"on_collision": "prefix"} if "left_prefix" in options else {}
    executor = Watched()
    combined(left, right, into, **rule, **options, executor=executor)
    assert executor.seen
    for task, made in executor.seen:
        assert task.plan.max_bytes is not None
        assert made.shard.bytes <= task.plan.max_bytes


def test_how_large_a_shard_of_new_fields_gets_is_not_said(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    executor = Watched()
    named = batch_udf(Feature("more", "int64"), reads=["a"], code="1")(is_more)
    combined(left, right, into, udfs=named, executor=executor)
    assert [task.plan.max_bytes for task, _ in executor.seen] == [None]


def is_more(batch: pa.RecordBatch) -> dict[str, Any]:
    """A number for each."""
    return {"more": batch["a"]}


class Elsewhere:
    """An engine that sends what it runs to another place first, as a cluster does."""

    def run(self, work: Any, tasks: Sequence[Any], progress: Any = None) -> Iterator[Any]:  # noqa: ANN401 - whatever it is
        """Run what arrives."""
        yield from ThreadExecutor(1).run(sent(work), [sent(task) for task in tasks], progress)


def is_even(batch: pa.RecordBatch) -> dict[str, Any]:
    """Every second record of the left."""
    return {"wanted": [int(one.as_py() % 2 == 0) for one in batch["a"]]}


even = batch_udf(Feature("wanted", "int64"), reads=["a"], code="1")(is_even)


@pytest.mark.parametrize("options", [{}, {"sample": 9}, {"on": {"a": "b"}}, {"where": even}])
def test_tasks_that_were_sent_make_the_same_shards(tmp_path: Path, options: dict[str, Any]) -> None:
    left, right, into = two(tmp_path)
    here = combined(left, right, into, **options, target_bytes=1500)
    there = Version(tmp_path, "pairs/v2")
    away = combined(left, right, there, **options, target_bytes=1500, executor=Elsewhere())
    assert [one.sha256 for one in here.written] == [one.sha256 for one in away.written]
