"""Functions of pairs: they choose among them, and make new features of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shardline.api import Version
from shardline.errors import (
    InvalidArgumentError,
    InvalidRecordsError,
    SchemaMismatchError,
    ShardlineError,
)
from shardline.operations.combine_files import combine_files, plan_combine_files
from shardline.schema.schema import Feature, Schema, Text
from shardline.udf import batch_udf, record_udf
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.combinations import (
    LEFT,
    RIGHT,
    canonicals,
    combined,
    contents,
    flat,
    land_shards,
    lefts,
    nested,
    pair,
    refused_pairs,
    rights,
    side,
)
from tests.tfrecord.samples import example_of, records_of

if TYPE_CHECKING:
    from pathlib import Path

WANTED = Feature("wanted", "int64")


@batch_udf(WANTED, reads=["a", "b"], code="1")
def divides(batch: pa.RecordBatch) -> dict[str, Any]:
    """Whether the sum of both is a multiple of three."""
    total = pc.add(batch["a"], batch["b"]).to_numpy()
    return {"wanted": (total % 3 == 0).astype("int64")}


@batch_udf(Feature("sum", "int64"), reads=["b", "a"], code="1")
def added(batch: pa.RecordBatch) -> dict[str, Any]:
    """The sum of both."""
    return {"sum": pc.add(batch["a"], batch["b"])}


@record_udf(Feature("both", "bytes", meaning=Text()), reads=["text", "word"], code="1")
def both(record: dict[str, Any]) -> dict[str, Any]:
    """The texts of both."""
    return {"both": (record["text"] + record["word"]).decode()}


def two(root: Path, left: int = 2, right: int = 2) -> tuple[Version, Version, Version]:
    """Sides of so many shards of five records."""
    return (
        side(root, "lefts/v1", LEFT, *(lefts(5 * at, 5 * at + 5) for at in range(left))),
        side(root, "rights/v1", RIGHT, *(rights(5 * at, 5 * at + 5) for at in range(right))),
        Version(root, "pairs/v1"),
    )


def sums(version: Version) -> list[tuple[int, int]]:
    """The numbers of both records of each pair."""
    found = version.latest().to_arrow(["a", "b"]).read_all()
    return list(zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True))


def test_a_predicate_chooses_among_pairs(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    report = combined(left, right, into, where=divides)
    assert flat(contents(into)) == [
        pair(lefts(one, one + 1)[0], rights(other, other + 1)[0])
        for shard in (range(5), range(5, 10))
        for of in (range(5), range(5, 10))
        for one in shard
        for other in of
        if (one + other) % 3 == 0
    ]
    assert "wanted" not in {feature.name for feature in into.schema.features}
    assert report.records == len(sums(into)) == 34


def test_new_features_stand_behind_those_of_both_sides(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 1)
    combined(left, right, into, where=divides, udfs=[added, both])
    assert [feature.name for feature in into.schema.features] == [
        "a",
        "b",
        "both",
        "sum",
        "text",
        "word",
    ]
    assert into.schema.feature("both").meaning == Text()
    expected = [
        pair(pair(one, other), example_of(sum=a + b, both=b"l" * (a % 4) + b"r" * (b % 3)))
        for a, one in enumerate(lefts(0, 5))
        for b, other in enumerate(rights(0, 5))
        if (a + b) % 3 == 0
    ]
    assert flat(contents(into)) == expected


def test_functions_with_a_code_version_compute_only_what_is_new(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    options: dict[str, Any] = {"where": divides, "udfs": added}
    first = combined(left, right, into, **options)
    assert combined(left, right, into, **options).entry is None
    land_shards(left, lefts(10, 12))
    more = combined(left, right, into, **options)
    assert (more.reused, more.records) == (first.written, 6)
    assert into.latest().records == 40


def test_a_function_without_a_code_version_computes_all_anew(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)

    @batch_udf(Feature("sum", "int64"), reads=["a"])
    def unknown(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"sum": batch["a"]}

    first = combined(left, right, into, udfs=unknown)
    again = combined(left, right, into, udfs=unknown)
    assert (again.reused, again.records) == ((), first.records)
    assert {one.name for one in first.written}.isdisjoint(one.name for one in again.written)


def test_a_predicate_that_wants_nothing_leaves_a_shard_that_tells_so(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)

    @batch_udf(WANTED, reads=["a"], code="1")
    def none(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"wanted": [0] * batch.num_rows}

    report = combined(left, right, into, where=none, udfs=added)
    assert [shard.records for shard in report.written] == [0]
    assert combined(left, right, into, where=none, udfs=added).entry is None


def test_a_limit_counts_the_pairs_that_were_chosen(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    report = combined(left, right, into, where=divides, limit=4)
    assert (report.records, report.incremental) == (4, False)
    assert sums(into) == [(0, 0), (0, 3), (1, 2), (2, 1)]


def test_functions_see_pairs_under_the_names_that_they_have(tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    left.write_bytes(framed(*(example_of(id=number, x=number) for number in range(4))))
    right.write_bytes(framed(*(example_of(id=number, y=number / 2) for number in range(3))))

    @batch_udf(WANTED, reads=["r_id", "l_id"])
    def lower(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"wanted": pc.less(batch["r_id"], batch["l_id"])}

    options: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "l_", "right_prefix": "r_"}
    plan = plan_combine_files(left, right, **options, where=lower)
    assert (plan.estimate.pairs, plan.estimate.most) == (12, True)
    assert combine_files(left, right, tmp_path / "out", **options, where=lower).records == 6
    assert canonicals(records_of(tmp_path / "out")) == [
        pair(example_of(id=one, x=one), example_of(id=other, y=other / 2), ("l_", "r_"))
        for one in range(4)
        for other in range(min(one, 3))
    ]


def test_where_there_is_no_match_functions_see_nothing_of_the_right(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 0)
    land_shards(right, rights(3, 8))

    @record_udf(Feature("seen", "bytes"), reads=["b", "word"], code="1")
    def seen(record: dict[str, Any]) -> dict[str, Any]:
        return {"seen": repr((record.get("b"), record.get("word"))).encode()}

    combined(left, right, into, on={"a": "b"}, how="left", udfs=seen)
    found = into.latest().to_arrow(["seen"]).read_all()["seen"].to_pylist()
    assert found == [b"(None, None)"] * 3 + [b"(3, b'')", b"(4, b'r')"]


def test_a_function_that_raises_tells_which_pair_and_nothing_is_committed(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)

    @record_udf(Feature("ratio", "float"), reads=["a", "b"])
    def ratio(record: dict[str, Any]) -> dict[str, Any]:
        return {"ratio": record["a"] / (record["b"] - 7)}

    with raises(InvalidRecordsError, "invalid-rows") as caught:
        combined(left, right, into, udfs=ratio)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert refused_pairs(caught.value)[0] == (0, 7)
    with raises(InvalidRecordsError, "invalid-rows") as caught:
        combined(left, right, into, where=_as_where(ratio))
    assert refused_pairs(caught.value)[0] == (0, 7)
    assert not into.exists


def _as_where(fields: Any) -> Any:  # noqa: ANN401 - makers of fields
    function = fields.function

    @record_udf(WANTED, reads=["a", "b"])
    def where(record: dict[str, Any]) -> dict[str, Any]:
        return {"wanted": int(function(record)["ratio"] > 0)}

    return where


@pytest.mark.parametrize("what", ["where", "udfs"])
def test_a_batch_function_that_gives_too_few_rows_tells_the_pairs(
    tmp_path: Path, what: str
) -> None:
    @batch_udf(WANTED, reads=["a"], processes=False)
    def one(_batch: pa.RecordBatch) -> dict[str, Any]:
        return {"wanted": [1]}

    left, right, into = two(tmp_path, 1, 1)
    with raises(InvalidRecordsError, "invalid-rows", bad=1) as caught:
        combined(left, right, into, **{what: one})
    first, last = refused_pairs(caught.value)
    assert first == (0, 0)
    assert last > first
    assert "function 'one'" in str(caught.value.refused[0])
    assert not Version(tmp_path, "pairs/v1").exists


def test_values_that_do_not_fit_are_refused_with_the_pair_and_the_field(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 1)

    @batch_udf(Feature("label", "int64"), reads=["a"])
    def texts(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"label": ["x"] * batch.num_rows}

    with raises(InvalidRecordsError, "invalid-rows") as caught:
        combined(left, right, into, udfs=texts)
    assert refused_pairs(caught.value)[0] == (0, 0)
    assert "'label'" in str(caught.value.refused[0])
    assert not into.exists


@pytest.mark.parametrize(
    ("options", "error", "code"),
    [
        ({"where": len}, InvalidArgumentError, "undeclared-udf"),
        ({"udfs": [added, len]}, InvalidArgumentError, "undeclared-udf"),
        ({"where": both}, InvalidArgumentError, "invalid-filter"),
        ({"where": divides, "sample": 3}, InvalidArgumentError, "conflicting-arguments"),
        ({"udfs": [added, added]}, SchemaMismatchError, "duplicate-feature"),
    ],
)
def test_functions_that_cannot_be_meant_are_refused(
    tmp_path: Path, options: dict[str, Any], error: type[ShardlineError], code: str
) -> None:
    left, right, into = two(tmp_path, 1, 1)
    with raises(error, code):
        combined(left, right, into, **options)
    assert not into.exists


def test_a_function_that_reads_what_no_pair_has_is_refused(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 1)

    @batch_udf(WANTED, reads=["nothing"])
    def lost(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"wanted": batch["nothing"]}

    with pytest.raises(SchemaMismatchError, match="'nothing'"):
        combined(left, right, into, where=lost)
    taken = Schema((Feature("sum", "int64"),))
    other = side(tmp_path, "others/v1", taken, [])
    with raises(SchemaMismatchError, "duplicate-feature", feature="sum"):
        combined(left, other, into, udfs=added)
    assert not into.exists


def test_pairs_of_large_records_are_looked_at_a_few_at_a_time(tmp_path: Path) -> None:
    big = [example_of(a=number, text=bytes([number]) * 700_000) for number in range(4)]
    left = side(tmp_path, "lefts/v1", LEFT, big)
    right = side(tmp_path, "rights/v1", RIGHT, rights(0, 9))
    into = Version(tmp_path, "pairs/v1")
    combined(left, right, into, where=divides, udfs=both)
    assert [
        len(one) for one in into.latest().to_arrow(["both"]).read_all()["both"].to_pylist()
    ] == [700_000 + b % 3 for a in range(4) for b in range(9) if (a + b) % 3 == 0]
    assert len(nested(big, rights(0, 9))) == 36


def test_an_answer_that_is_neither_yes_nor_no_is_refused(tmp_path: Path) -> None:
    @batch_udf(WANTED, reads=["a"], code="1")
    def twice(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"wanted": [2] * batch.num_rows}

    left, right, into = two(tmp_path)
    with raises(InvalidRecordsError, "invalid-rows") as caught:
        combined(left, right, into, where=twice)
    assert "neither 0 nor" in str(caught.value.refused[0])
    assert not into.exists
