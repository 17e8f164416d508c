"""Virtual combinations: a plan instead of pairs, which readers make."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.errors import InvalidArgumentError, ShardlineError, UnreadableSnapshotError
from shardline.hints import Command, Option
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine, plan_combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Feature, Schema
from tests.errors import raises
from tests.operations.extensions import (
    base_of,
    by_protobuf,
    by_tensorflow,
    double,
    grown,
    table,
    version_in,
)
from tests.operations.landings import stored

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.operations.combine import CombineReport

PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


def pairs_of(base: Version, into: Version, **options: Any) -> CombineReport:  # noqa: ANN401
    """Combine a version with itself, virtually, and check what came of it."""
    report = combine(base, base, into, mode="virtual", **PREFIXES, **options)
    assert check_version(into).ok
    return report


def ids(version: Version) -> list[tuple[int, int]]:
    """The ids of both records of each pair."""
    read = table(version.published(), ["a_id", "b_id"])
    return list(zip(read["a_id"], read["b_id"], strict=True))


@pytest.mark.parametrize("once", [False, True])
def test_every_reader_makes_the_pairs_that_would_have_been_written(
    tmp_path: Path, *, once: bool
) -> None:
    base = base_of(tmp_path, (0, 3), (3, 4), (4, 6))
    virtual, written = version_in(tmp_path, "pairs/v1"), version_in(tmp_path, "pairs/v2")
    report = pairs_of(base, virtual, unordered=once)
    combine(base, base, written, **PREFIXES, unordered=once)
    assert check_version(written).ok
    of_plan, of_files = virtual.published(), written.published()
    assert of_plan.records == of_files.records == (15 if once else 36)
    assert table(of_plan) == table(of_files)
    assert by_tensorflow(of_plan) == by_tensorflow(of_files)
    assert by_protobuf(of_plan) == by_protobuf(of_files)
    assert int(of_plan.to_tf().cardinality()) == of_plan.records
    assert report.bytes < 1000
    own = [name for name in stored(virtual, "shards") if "/v1." in name]
    assert [name.endswith(".plan") for name in own] == [True]
    assert verify_version(virtual).ok


def test_pairs_of_sequence_examples_are_made_alike_by_all_who_make_them(tmp_path: Path) -> None:
    steps = Feature("steps", "float", (None,), sequence=True)
    schema = Schema((Feature("id", "int64"), steps), "sequence_example")
    base = Version(tmp_path / "root", "walks/v1")
    rows = [{"id": number, "steps": [[0.5] * number, []]} for number in range(3)]
    append(base, rows, batch="walks", schema=schema)
    assert check_version(base).ok
    virtual, written = version_in(tmp_path, "pairs/v1"), version_in(tmp_path, "pairs/v2")
    pairs_of(base, virtual)
    combine(base, base, written, **PREFIXES)
    assert check_version(written).ok
    assert table(virtual.published()) == table(written.published())
    raw = [
        [payload.numpy() for payload in version.published().to_tf(parse=False)]
        for version in (virtual, written)
    ]
    assert raw[0] == raw[1]
    message = tf.train.SequenceExample.FromString(raw[0][5])
    assert message.context.feature["a_id"].int64_list.value == [1]
    assert message.context.feature["b_id"].int64_list.value == [2]
    lists = message.feature_lists.feature_list
    assert [len(lists[name].feature) for name in ("a_steps", "b_steps")] == [2, 2]
    (context, parsed) = list(virtual.published().to_tf())[5]
    assert (int(context["a_id"]), int(context["b_id"])) == (1, 2)
    assert parsed["b_steps"].to_list() == [[0.5, 0.5], []]


def test_any_pair_is_read_by_its_number(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 3), (3, 5)), version_in(tmp_path, "pairs/v1")
    pairs_of(base, into, unordered=True)
    every = ids(into)
    numbers = [9, 0, 4, 4, 7]
    taken = into.published().take(numbers, ["a_id", "b_id"]).to_pydict()
    assert list(zip(taken["a_id"], taken["b_id"], strict=True)) == [every[at] for at in numbers]


@pytest.mark.parametrize("once", [False, True])
def test_when_the_input_grows_a_plan_for_the_new_pairs_is_added(
    tmp_path: Path, *, once: bool
) -> None:
    base, into = base_of(tmp_path, (0, 3)), version_in(tmp_path, "pairs/v1")
    pairs_of(base, into, unordered=once)
    before = ids(into)
    grown(base, tmp_path / "landing", (3, 5))
    plan = plan_combine(base, base, into, mode="virtual", **PREFIXES, unordered=once)
    report = pairs_of(base, into, unordered=once)
    new = 10 - 3 if once else 25 - 9
    assert (report.records, plan.estimate.pairs, len(report.reused)) == (new, new, 1)
    after = ids(into)
    assert after[: len(before)] == before
    numbers = range(5)
    wanted = {(a, b) for a in numbers for b in numbers if not once or a < b}
    assert (len(after), set(after)) == (len(wanted), wanted)
    everywhere = into.published().take(list(range(len(after))), ["a_id", "b_id"]).to_pydict()
    assert list(zip(everywhere["a_id"], everywhere["b_id"], strict=True)) == after
    assert pairs_of(base, into, unordered=once).entry is None


def test_the_inputs_are_kept_from_vacuum(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2), (2, 3)), version_in(tmp_path, "pairs/v1")
    pairs_of(base, into)
    before = ids(into)
    rebuild(base)
    assert check_version(base).ok
    vacuum(base.store, "digits", retention=timedelta(0), dry_run=False)
    assert ids(into) == before
    assert verify_version(into).ok


def test_a_rebuild_into_another_version_writes_the_pairs(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 3)), version_in(tmp_path, "pairs/v1")
    pairs_of(base, into)
    with pytest.raises(UnreadableSnapshotError, match="virtual") as caught:
        into.published().files()
    for way in ("to_tf", "shardline rebuild pairs/v1"):
        assert way in caught.value.describe()
    plain = version_in(tmp_path, "pairs/plain")
    rebuild(into, into=plain)
    assert check_version(plain).ok
    assert table(plain.published()) == table(into.published())
    assert len(plain.published().files()) == 1


@pytest.mark.parametrize(
    "option", [{"on": "id"}, {"limit": 3}, {"sample": 3}, {"udfs": double}, {"where": double}]
)
def test_what_a_reader_cannot_make_is_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    (name,) = option
    with raises(InvalidArgumentError, "conflicting-arguments") as caught:
        combine(base, base, into, mode="virtual", **PREFIXES, **option)
    assert caught.value.hint is not None
    assert Option(name) in caught.value.hint.parts
    assert not into.exists


def test_pairs_of_pairs_and_overlays_on_them_are_refused(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    pairs_of(base, into)
    where = {"version": "pairs/v1", "snapshot": 1}
    with raises(UnreadableSnapshotError, "virtual-snapshot", **where) as caught:
        combine(into, into, version_in(tmp_path, "pairs/v2"), **PREFIXES)
    assert caught.value.hint is not None
    rebuild = Command.of("rebuild", "pairs/v1", "--into", "VERSION")
    assert caught.value.hint.commands == (rebuild,)
    with raises(UnreadableSnapshotError, "virtual-snapshot", **where) as caught:
        extend(into, double, version_in(tmp_path, "pairs/v2"))
    assert caught.value.hint is not None
    assert Option("mode", "rewrite") in caught.value.hint.parts


def test_a_plan_that_leads_nowhere_is_told_by_readers_verify_and_check(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    pairs_of(base, into)
    snapshot = into.published()
    (plan,) = [tmp_path / "root" / into.shard_name(shard) for shard in snapshot.shards]
    good = plan.read_bytes()
    plan.write_bytes(good.replace(b'"a_"', b'"c_"'))
    report = verify_version(into)
    (problem,) = report.shards[0].problems
    assert "SHA-256" in problem
    plan.write_bytes(b"no plan")
    with pytest.raises(UnreadableSnapshotError, match=plan.name):
        table(snapshot)
    plan.write_bytes(good)
    (file,) = [tmp_path / "root" / base.shard_name(shard) for shard in base.latest().shards]
    file.unlink()
    assert not verify_version(into).ok
    with pytest.raises(ShardlineError, match=file.name):
        table(snapshot)


def test_releases_that_know_no_plans_are_told_so_by_the_entry(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    report = pairs_of(base, into)
    assert report.entry is not None
    assert report.entry.to_dict()["features"] == ["virtual"]
    assert report.entry.parameters["mode"] == "virtual"
    assert Version(tmp_path / "root", "pairs/v1").log.entry(report.entry.number) == report.entry
