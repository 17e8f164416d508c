"""Pairs that are matched by a key: exactly those that are the same, in the order of the left."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.api import Version
from shardline.errors import SchemaMismatchError
from shardline.operations.combine import plan_combine
from shardline.schema.schema import Feature, Schema
from tests.errors import raises
from tests.operations.combinations import combined, contents, flat, land_shards, pair, side
from tests.tfrecord.samples import example_of

LEFT = Schema(
    (
        Feature("n", "int64"),
        Feature("key", "int64", required=False),
        Feature("name", "bytes", required=False),
    )
)
RIGHT = Schema(
    (
        Feature("m", "int64"),
        Feature("id", "int64", required=False),
        Feature("title", "bytes", required=False),
    )
)
INT = {"key": "id"}
BOTH = {"key": "id", "name": "title"}

numbers = st.none() | st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
names = st.none() | st.sampled_from([b"", b"a", b"a\0", b"\xff", b"long" * 20])
keys = st.lists(st.lists(st.tuples(numbers, names), max_size=5), min_size=1, max_size=3)


def records(
    shards: list[list[tuple[int | None, bytes | None]]], *columns: str
) -> list[list[bytes]]:
    """Shards of records with these keys, which tell their number."""
    made, number = [], 0
    for shard in shards:
        found = []
        for key, name in shard:
            told = {columns[0]: number, columns[1]: key, columns[2]: name}
            found.append(example_of(**{k: v for k, v in told.items() if v is not None}))
            number += 1
        made.append(found)
    return made


def expected(
    left: list[list[tuple[int | None, bytes | None]]],
    right: list[list[tuple[int | None, bytes | None]]],
    on: dict[str, str],
    how: str,
) -> list[bytes]:
    """The pairs, as two nested loops find them."""
    lefts = [one for shard in records(left, "n", "key", "name") for one in shard]
    rights = [one for shard in records(right, "m", "id", "title") for one in shard]
    left_keys, right_keys = (
        [one[: len(on)] for shard in side for one in shard] for side in (left, right)
    )
    made = []
    for key, one in zip(left_keys, lefts, strict=True):
        found = [
            pair(one, other)
            for own, other in zip(right_keys, rights, strict=True)
            if key == own and None not in key
        ]
        made += found or ([pair(one, None)] if how == "left" else [])
    return made


@settings(max_examples=15)
@given(keys, keys, st.sampled_from([INT, BOTH]), st.sampled_from(["inner", "left"]))
def test_matches_are_those_of_two_nested_loops(
    left: list[list[tuple[int | None, bytes | None]]],
    right: list[list[tuple[int | None, bytes | None]]],
    on: dict[str, str],
    how: str,
) -> None:
    with TemporaryDirectory() as name:
        root = Path(name)
        into = Version(root, "pairs/v1")
        combined(
            side(root, "lefts/v1", LEFT, *records(left, "n", "key", "name")),
            side(root, "rights/v1", RIGHT, *records(right, "m", "id", "title")),
            into,
            on=on,
            how=how,
        )
        made = flat(contents(into)) if into.state.snapshot else []
        assert made == expected(left, right, on, how)


def some(first: int, last: int, number: str, key: str) -> list[bytes]:
    """Records whose key is their number."""
    return [example_of(**{number: at, key: at}) for at in range(first, last)]


def matched(tmp_path: Path, left: int, right: int) -> tuple[Version, Version, Version]:
    """Sides of so many shards of ten records, whose keys are their numbers."""
    return (
        side(
            tmp_path,
            "lefts/v1",
            LEFT,
            *(some(10 * at, 10 * at + 10, "n", "key") for at in range(left)),
        ),
        side(
            tmp_path,
            "rights/v1",
            RIGHT,
            *(some(10 * at, 10 * at + 10, "m", "id") for at in range(right)),
        ),
        Version(tmp_path, "pairs/v1"),
    )


def test_a_left_that_grew_is_matched_alone_and_a_right_that_grew_matches_all_anew(
    tmp_path: Path,
) -> None:
    left, right, into = matched(tmp_path, 4, 3)
    options: dict[str, Any] = {"on": INT, "target_bytes": 1500}
    plan = plan_combine(
        left, right, into, left_snapshot="latest", right_snapshot="latest", **options
    )
    first = combined(left, right, into, **options)
    assert (plan.estimate.pairs, plan.compute) == (first.records, len(first.written)) == (30, 2)
    assert abs(plan.estimate.bytes - first.bytes) < 0.1 * first.bytes
    assert combined(left, right, into, **options).entry is None
    land_shards(left, some(0, 10, "n", "key"))
    more = combined(left, right, into, **options)
    assert (more.records, more.reused) == (10, first.written)
    land_shards(right, some(30, 50, "m", "id"))
    anew = combined(left, right, into, **options)
    assert (anew.records, anew.reused) == (50, ())


def test_left_shards_without_a_match_are_not_looked_at_again(tmp_path: Path) -> None:
    left, right, into = matched(tmp_path, 1, 1)
    land_shards(left, some(50, 60, "n", "key"))
    report = combined(left, right, into, on=INT, target_bytes=300)
    assert report.records == 10
    assert into.latest().shards[-1].records == 0
    assert combined(left, right, into, on=INT, target_bytes=300).entry is None


def test_one_left_shard_over_the_target_size_is_cut(tmp_path: Path) -> None:
    left, right, into = matched(tmp_path, 1, 1)
    report = combined(left, right, into, on=INT, target_bytes=200)
    assert len(report.written) > 2
    assert flat(contents(into)) == [
        pair(one, other)
        for one, other in zip(some(0, 10, "n", "key"), some(0, 10, "m", "id"), strict=True)
    ]
    assert combined(left, right, into, on=INT, target_bytes=200).entry is None


def test_many_duplicates_give_all_combinations_in_bounded_lots(tmp_path: Path) -> None:
    left = [example_of(n=at, key=7) for at in range(300)]
    right = [example_of(m=at, id=7) for at in range(400)]
    into = Version(tmp_path, "pairs/v1")
    report = combined(
        side(tmp_path, "lefts/v1", LEFT, left),
        side(tmp_path, "rights/v1", RIGHT, right),
        into,
        on=INT,
    )
    assert report.records == 120_000
    found = into.latest().to_arrow(["n", "m"]).read_all()
    assert found["n"].to_pylist() == [at for at in range(300) for _ in range(400)]
    assert found["m"].to_pylist() == list(range(400)) * 300


def test_records_of_one_version_are_matched_among_themselves_once(tmp_path: Path) -> None:
    shards = [
        [example_of(n=at, key=at % 3) for at in range(first, first + 4)] for first in (0, 4, 8)
    ]
    version = side(tmp_path, "lefts/v1", LEFT, *shards)
    into = Version(tmp_path, "pairs/v1")
    options: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "l_", "right_prefix": "r_"}
    combined(version, version, into, on="key", unordered=True, **options, target_bytes=300)
    whole = [one for shard in shards for one in shard]
    assert flat(contents(into)) == [
        pair(whole[one], whole[other], ("l_", "r_"))
        for one in range(12)
        for other in range(one + 1, 12)
        if one % 3 == other % 3
    ]


def test_a_limit_takes_the_first_matches_in_one_shard(tmp_path: Path) -> None:
    left, right, into = matched(tmp_path, 3, 3)
    report = combined(left, right, into, on=INT, limit=15, target_bytes=1)
    assert [shard.records for shard in report.written] == [15]
    assert into.latest().to_arrow(["n"]).read_all()["n"].to_pylist() == list(range(15))


@pytest.mark.parametrize(
    ("on", "code", "feature", "side_name"),
    [
        (["key"], "unknown-feature", "key", "right"),
        ({"nowhere": "id"}, "unknown-feature", "nowhere", "left"),
        ({"key": "title"}, "key-mismatch", "key", "left"),
        ({"key": "floats"}, "invalid-key", "floats", "right"),
        ({"list": "id"}, "invalid-key", "list", "left"),
    ],
)
def test_keys_that_cannot_be_matched_are_refused(
    tmp_path: Path, on: list[str] | dict[str, str], code: str, feature: str, side_name: str
) -> None:
    left = Schema((*LEFT.features, Feature("list", "int64", (3,))))
    right = Schema((*RIGHT.features, Feature("floats", "float")))
    sides = side(tmp_path, "lefts/v1", left, []), side(tmp_path, "rights/v1", right, [])
    with raises(SchemaMismatchError, code, feature=feature) as caught:
        combined(*sides, Version(tmp_path, "pairs/v1"), on=on)
    assert f"of the {side_name}" in str(caught.value)
