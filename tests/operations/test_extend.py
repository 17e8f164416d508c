"""Extending a version: new fields beside the old records or in them, and only for what is new."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.errors import (
    ColumnError,
    ConflictError,
    CorruptFileError,
    InvalidArgumentError,
    InvalidRecordsError,
    LogError,
    SchemaMismatchError,
    ShardlineError,
    SnapshotNotFoundError,
    UDFError,
    UnreadableSnapshotError,
)
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Command, Option
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.example_file import write_examples
from shardline.operations.extend import extend, extend_file, plan_extend
from shardline.operations.rebuild import rebuild
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Category, Feature, Schema, Text
from shardline.tfrecord.reader import Limits
from shardline.udf import batch_udf, record_udf, table_join, tensor_udf
from tests.errors import raises
from tests.operations.extensions import (
    base_of,
    by_protobuf,
    by_tensorflow,
    double,
    grown,
    length,
    table,
    version_in,
)
from tests.operations.landings import payloads, stored
from tests.tfrecord.samples import flipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.operations.transform import TransformMode

MODES: tuple[TransformMode, ...] = ("overlay", "rewrite")
AT_ONCE = timedelta(0)


@pytest.mark.parametrize("mode", MODES)
def test_every_reader_sees_the_old_features_and_the_new_ones(
    tmp_path: Path, mode: TransformMode
) -> None:
    base, into = base_of(tmp_path, (0, 3), (3, 5)), version_in(tmp_path)
    report = extend(base, [double, length], into, mode=mode)
    assert (report.snapshot, report.created, len(report.written)) == (1, True, 2)
    assert check_version(into).ok
    snapshot = into.published()
    wanted = {
        "double": [0, 2, 4, 6, 8],
        "id": [0, 1, 2, 3, 4],
        "length": [7] * 5,
        "name": [f"größe {number}" for number in range(5)],
    }
    assert table(snapshot) == wanted
    records = [dict(zip(wanted, row, strict=True)) for row in zip(*wanted.values(), strict=True)]
    encoded = [{**record, "name": str(record["name"]).encode()} for record in records]
    assert by_tensorflow(snapshot) == encoded
    assert by_protobuf(snapshot) == encoded
    assert verify_version(into).ok


def test_an_overlay_holds_the_new_fields_alone_and_copies_nothing(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    before = stored(base, "shards")
    extend(base, double, into)
    (shard,) = into.latest().shards
    assert shard.base is not None
    assert (shard.base.name, shard.base.sha256) == (
        base.latest().shards[0].name,
        base.latest().shards[0].sha256,
    )
    held = [tf.train.Example.FromString(payload) for payload in payloads(into)]
    assert [list(example.features.feature) for example in held] == [["double"], ["double"]]
    assert {name: stored(base, "shards")[name] for name in before} == before


def test_a_rewritten_record_is_the_old_bytes_and_the_new_ones_in_one_message(
    tmp_path: Path,
) -> None:
    base, into = base_of(tmp_path, (0, 9)), version_in(tmp_path)
    beside = version_in(tmp_path, "digits/v3")
    extend(base, double, into, mode="rewrite")
    extend(base, double, beside)
    assert payloads(into) == [
        bytes((old[0], len(old) + len(new) - 4)) + old[2:] + new[2:]
        for old, new in zip(payloads(base), payloads(beside), strict=True)
    ]


@pytest.mark.parametrize("mode", MODES)
def test_one_more_shard_in_a_base_of_a_hundred_is_all_that_is_computed(
    tmp_path: Path, mode: TransformMode
) -> None:
    base = base_of(tmp_path, *((number, number + 1) for number in range(100)))
    into = version_in(tmp_path)
    assert len(extend(base, double, into, mode=mode).written) == 100
    grown(base, tmp_path / "landing", (100, 102))
    plan = plan_extend(base, double, into, mode=mode)
    assert (plan.compute, plan.reuse, plan.records) == (1, 100, 2)
    report = extend(base, double, into, mode=mode)
    assert (len(report.written), len(report.reused), report.records) == (1, 100, 2)
    assert report.entry is not None
    assert report.entry.parameters["computed"] == 1
    assert report.entry.parameters["reused"] == 100
    assert table(into.latest(), ["double"])["double"] == [2 * number for number in range(102)]
    assert extend(base, double, into, mode=mode).entry is None


def test_a_function_without_a_code_version_is_computed_anew_each_time(tmp_path: Path) -> None:
    @batch_udf(Feature("double", "int64"), reads=["id"])
    def nameless(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"double": batch["id"]}

    base, into = base_of(tmp_path, (0, 1), (1, 2)), version_in(tmp_path)
    extend(base, nameless, into)
    grown(base, tmp_path / "landing", (2, 3))
    report = extend(base, nameless, into)
    assert (len(report.written), len(report.reused)) == (3, 0)


def test_another_code_version_is_computed_anew(tmp_path: Path) -> None:
    @batch_udf(Feature("double", "int64"), reads=["id"], code="2")
    def other(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"double": batch["id"]}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    extend(base, double, into)
    assert len(extend(base, other, into).written) == 1
    assert table(into.latest(), ["double"])["double"] == [0, 1]


def test_a_restored_base_drops_what_is_gone_and_takes_it_back_without_computing(
    tmp_path: Path,
) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    grown(base, tmp_path / "landing", (2, 4))
    extend(base, double, into)
    base.restore(1)
    report = extend(base, double, into)
    assert (len(report.written), len(report.reused)) == (0, 1)
    assert table(into.latest(), ["double"])["double"] == [0, 2]
    base.restore(2)
    report = extend(base, double, into)
    assert (len(report.written), len(report.reused)) == (0, 2)
    assert check_version(into).ok
    assert table(into.published(), ["double"])["double"] == [0, 2, 4, 6]


def test_a_rebuilt_base_is_computed_anew(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2), (2, 4)), version_in(tmp_path)
    extend(base, double, into)
    rebuild(base)
    assert check_version(base).ok
    report = extend(base, double, into)
    assert (len(report.written), len(report.reused)) == (1, 0)
    assert table(into.latest(), ["double"])["double"] == [0, 2, 4, 6]


@pytest.mark.parametrize("mode", MODES)
def test_a_function_that_raises_tells_the_record_and_the_error_and_commits_nothing(
    tmp_path: Path, mode: TransformMode
) -> None:
    @record_udf(Feature("inverse", "float"), reads=["id"], code="1")
    def inverse(record: dict[str, Any]) -> dict[str, Any]:
        return {"inverse": 1 / (record["id"] - 7)}

    base, into = base_of(tmp_path, (0, 5), (5, 10)), version_in(tmp_path)
    before = stored(base)
    with raises(InvalidRecordsError, "invalid-rows", record=2, bad=1) as caught:
        extend(base, inverse, into, mode=mode, executor=ThreadExecutor(1))
    assert str(caught.value.path).endswith(base.latest().shards[1].name)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not version_in(tmp_path).exists
    left = set(stored(base)) - set(before)
    assert not any(base.latest().shards[1].name in name for name in left)


@pytest.mark.parametrize("mode", MODES)
def test_a_result_that_is_no_dict_of_the_declared_fields_names_the_record_or_goes_to_quarantine(
    tmp_path: Path, mode: TransformMode
) -> None:
    @record_udf(Feature("x", "int64", required=False), reads=["id"], code="1")
    def forgets(record: dict[str, Any]) -> dict[str, Any]:
        wrong = {2: None, 4: {"y": 1}}
        return wrong.get(record["id"], {"x": 1})  # type: ignore[return-value] # that is the point

    base, into = base_of(tmp_path, (0, 5)), version_in(tmp_path)
    with raises(InvalidRecordsError, "invalid-rows", record=2) as caught:
        extend(base, forgets, into, mode=mode)
    assert str(caught.value.path).endswith(base.latest().shards[0].name)
    assert "function 'forgets'" in str(caught.value)
    report = extend(base, forgets, into, mode=mode, max_quarantined=0.4)
    assert report.quarantined_rows == 2
    told = into.store.read(report.quarantine_files[0]).decode()
    assert "'y'" in told
    kept = {"overlay": [1, 1, None, 1, None], "rewrite": [1, 1, 1]}
    assert table(into.latest(), ["x"])["x"] == kept[mode]


def _short_from(wrong: int) -> Callable[[pa.RecordBatch], dict[str, Any]]:
    """A function that gives a row too few for batches with the ids from a number on."""

    def short(batch: pa.RecordBatch) -> dict[str, Any]:
        ids = batch["id"]
        return {"x": ids[1:] if pc.max(ids).as_py() >= wrong else ids}

    return short


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("processes", [False, True])
def test_a_batch_function_that_gives_too_few_rows_tells_the_file_and_the_records(
    tmp_path: Path,
    mode: TransformMode,
    processes: bool,  # noqa: FBT001 - as it is declared
) -> None:
    short = batch_udf(Feature("x", "int64"), reads=["id"], processes=processes)(_short_from(170))
    base, into = base_of(tmp_path, (0, 100), (100, 200)), version_in(tmp_path)
    with pytest.raises(InvalidRecordsError, match="function 'short'") as caught:
        extend(base, short, into, mode=mode, executor=ThreadExecutor(1))
    error = caught.value
    assert str(error.path).endswith(base.latest().shards[1].name)
    assert error.record is not None
    assert error.record <= 70 < error.record + error.bad
    numbers = re.findall(r"\d+", str(error).rpartition("'short'")[2])
    assert sorted(map(int, numbers)) == [error.bad - 1, error.bad]
    assert not version_in(tmp_path).exists


def test_a_tensor_function_that_gives_too_few_rows_tells_the_file_and_the_records(
    tmp_path: Path,
) -> None:
    @tensor_udf(Feature("x", "int64"), reads=["id"], batch=10)
    def short(tensors: dict[str, Any]) -> dict[str, Any]:
        return {"x": tf.boolean_mask(tensors["id"], tensors["id"] != 125)}

    base, into = base_of(tmp_path, (0, 100), (100, 200)), version_in(tmp_path)
    with pytest.raises(InvalidRecordsError, match="function 'short'") as caught:
        extend(base, short, into, executor=ThreadExecutor(1))
    assert (caught.value.record, caught.value.bad) == (20, 10)
    assert str(caught.value.path).endswith(base.latest().shards[1].name)
    assert (caught.value.bad, len(caught.value.refused)) == (10, 1)


def test_a_function_that_fails_on_no_record_alone_tells_the_file_and_the_records(
    tmp_path: Path,
) -> None:
    @batch_udf(Feature("x", "int64"), reads=["id"], processes=False)
    def few(batch: pa.RecordBatch) -> dict[str, Any]:
        if batch.num_rows > 1:
            raise MemoryError("too many")
        return {"x": batch["id"]}

    base, into = base_of(tmp_path, (0, 4)), version_in(tmp_path)
    with pytest.raises(InvalidRecordsError) as caught:
        extend(base, few, into)
    assert (caught.value.record, caught.value.bad) == (0, 2)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_whole_numbers_become_floats_as_they_do_when_they_are_appended(tmp_path: Path) -> None:
    @batch_udf(Feature("x", "float"), reads=["id"], code="1")
    def large(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"x": np.full(batch.num_rows, 2**53 + 1)}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    extend(base, large, into)
    other = version_in(tmp_path, "others/v1")
    append(other, [{"x": 2**53 + 1}] * 2, batch="1", schema=Schema((Feature("x", "float"),)))
    assert table(into.latest(), ["x"]) == table(other.latest()) == {"x": [2.0**53] * 2}


WRONG_VALUES = [
    (Feature("x", "int64"), [1, 2], "holds a list, and one value belongs there"),
    (Feature("x", "int64", (3,)), [1, 2], "holds 2 values, not 3"),
    (Feature("x", "int64"), "text", "holds bytes values, not int64"),
    (Feature("x", "int64"), 1.5, "holds a number that is not whole"),
    (Feature("x", "float"), float("nan"), "holds NaN"),
    (Feature("x", "int64"), None, "is required"),
    (Feature("x", "bytes", meaning=Text()), b"\xff", "not UTF-8"),
    (Feature("x", "int64", meaning=Category(("a", "b"))), 2, "outside of 0 to 1"),
]


@pytest.mark.parametrize(("feature", "value", "why"), WRONG_VALUES)
def test_a_value_that_does_not_fit_names_record_and_field(
    tmp_path: Path, feature: Feature, value: object, why: str
) -> None:
    @record_udf(feature, reads=["id"], code="1")
    def wrong(_record: dict[str, Any]) -> dict[str, Any]:
        return {"x": value}

    base = base_of(tmp_path, (0, 2))
    with pytest.raises(InvalidRecordsError) as caught:
        extend(base, wrong, version_in(tmp_path))
    told = str(caught.value)
    assert "record 0" in told
    assert "'x'" in told
    assert why in told


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        (Feature("x", "bytes"), b"\x00\xff"),
        (Feature("x", "bytes", (2,)), [b"a", b""]),
        (Feature("x", "bytes", (None,)), [b"a"]),
        (Feature("x", "int64", (2, 2)), [[1, 2], [3, 4]]),
        (Feature("x", "int64", (None,)), []),
        (Feature("x", "float"), 0.5),
        (Feature("x", "float", (3,)), np.array([1, 2, 3], np.float32)),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_fields_of_every_kind_and_shape_are_read_as_they_were_made(
    tmp_path: Path, mode: TransformMode, feature: Feature, value: object
) -> None:
    @record_udf(feature, reads=["id"], code="1")
    def made(_record: dict[str, Any]) -> dict[str, Any]:
        return {"x": value}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    extend(base, made, into, mode=mode)
    assert check_version(into).ok
    (first, _) = table(into.latest(), ["x"])["x"]
    assert np.array_equal(np.array(first), np.array(value))


def test_refused_records_go_to_quarantine_and_are_missing_in_a_rewrite(tmp_path: Path) -> None:
    @record_udf(Feature("half", "int64"), reads=["id"], code="1")
    def half(record: dict[str, Any]) -> dict[str, Any]:
        return {"half": record["id"] / 2}

    base, into = base_of(tmp_path, (0, 6)), version_in(tmp_path)
    with raises(InvalidRecordsError, "invalid-rows", bad=3, rows=6):
        extend(base, half, into, mode="rewrite", max_quarantined=0.4)
    assert not version_in(tmp_path).exists
    report = extend(base, half, into, mode="rewrite", max_quarantined=0.5)
    assert (report.quarantined_rows, report.records) == (3, 3)
    assert table(into.latest(), ["id", "half"]) == {"id": [0, 2, 4], "half": [0, 1, 2]}
    (name,) = report.quarantine_files
    lines = [json.loads(line) for line in into.store.read(name).splitlines()]
    assert [(line["row"], line["feature"]) for line in lines] == [
        (1, "half"),
        (3, "half"),
        (5, "half"),
    ]
    assert report.entry is not None
    assert report.entry.parameters["quarantine"] == [{"rows": 3, "files": [name]}]


def test_refused_records_stay_in_an_overlay_without_the_new_field(tmp_path: Path) -> None:
    optional = Feature("half", "int64", required=False)

    @record_udf(optional, reads=["id"], code="1")
    def half(record: dict[str, Any]) -> dict[str, Any]:
        return {"half": record["id"] / 2}

    base, into = base_of(tmp_path, (0, 4)), version_in(tmp_path)
    report = extend(base, half, into, max_quarantined=0.5)
    assert (report.quarantined_rows, report.records) == (2, 4)
    assert check_version(into).ok
    assert table(into.latest(), ["id", "half"]) == {"id": [0, 1, 2, 3], "half": [0, None, 1, None]}
    with raises(InvalidArgumentError, "conflicting-arguments") as caught:
        extend(base, double, version_in(tmp_path, "digits/v3"), max_quarantined=0.5)
    assert caught.value.hint is not None
    assert Option("required", value=False) in caught.value.hint.parts


def test_a_field_that_is_there_already_is_refused_unless_it_is_replaced(tmp_path: Path) -> None:
    @batch_udf(Feature("id", "int64"), reads=["id"], code="1")
    def shifted(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"id": pa.compute.add(batch["id"], 100)}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    with raises(SchemaMismatchError, "duplicate-feature", feature="id") as caught:
        extend(base, shifted, into, mode="rewrite")
    assert caught.value.hint is not None
    assert Option("replaces") in caught.value.hint.parts
    with raises(InvalidArgumentError, "conflicting-arguments") as refused:
        extend(base, shifted, into, replaces=["id"])
    assert refused.value.hint is not None
    assert Option("mode", "rewrite") in refused.value.hint.parts
    extend(base, shifted, into, mode="rewrite", replaces=["id"], drop=["name"])
    assert table(into.latest()) == {"id": [100, 101]}
    assert check_version(into).ok


WRONG_CALLS: list[tuple[dict[str, Any], type[ShardlineError], str, str]] = [
    ({"mode": "sideways"}, InvalidArgumentError, "invalid-choice", "'sideways'"),
    ({"replaces": ["name"], "mode": "rewrite"}, SchemaMismatchError, "missing-feature", "'name'"),
    ({"snapshot": "7"}, SnapshotNotFoundError, "snapshot-not-found", "snapshot 7"),
    ({"compression": "zlib"}, InvalidArgumentError, "unsupported-compression", "ZLIB"),
    (
        {"max_quarantined": 2.0, "mode": "rewrite"},
        InvalidArgumentError,
        "out-of-range",
        "max_quarantined",
    ),
    ({"udfs": []}, InvalidArgumentError, "missing-argument", "features"),
    (
        {"udfs": [], "drop": ["name"], "mode": "rewrite"},
        InvalidArgumentError,
        "missing-argument",
        "MigrationSpec(drop=['name'])",
    ),
    ({"udfs": len}, UDFError, "undeclared-udf", "tensor_udf(...)"),
    ({"udfs": "double"}, UDFError, "undeclared-udf", "str"),
    ({"udfs": [double, len]}, UDFError, "undeclared-udf", "builtin_function_or_method"),
]


@pytest.mark.parametrize(("arguments", "kind", "code", "part"), WRONG_CALLS)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    tmp_path: Path, arguments: dict[str, Any], kind: type[ShardlineError], code: str, part: str
) -> None:
    base = base_of(tmp_path, (0, 2))
    before = stored(base)
    with raises(kind, code) as caught:
        extend(base, into=version_in(tmp_path), **{"udfs": double, **arguments})
    assert part in caught.value.describe()
    assert stored(base) == before


def test_an_unknown_feature_cannot_be_dropped(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 2))
    with pytest.raises(SchemaMismatchError, match="feature 'nothing'"):
        extend(base, double, version_in(tmp_path), drop=["nothing"], mode="rewrite")


def test_a_version_cannot_be_extended_into_itself_or_beside_another_dataset(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 2))
    with raises(LogError, "same-version", version="digits/v1"):
        extend(base, double, base)
    with raises(InvalidArgumentError, "dataset-mismatch", version="letters/v1"):
        extend(base, double, version_in(tmp_path, "letters/v1"))
    with raises(InvalidArgumentError, "root-mismatch", version="digits/v2"):
        extend(base, double, Version(tmp_path / "elsewhere", "digits/v2"))
    extend(base, double, version_in(tmp_path, "letters/v1"), mode="rewrite")
    assert table(version_in(tmp_path, "letters/v1").latest(), ["double"])["double"] == [0, 2]


def test_what_was_appended_to_is_not_extended_into(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    row = {"id": 1, "name": "x", "double": 2}
    append(into, [row], batch="one", schema=Schema((*base.schema.features, *double.features)))
    with raises(ConflictError, "appended-version", version=into.name):
        extend(base, double, into)


def test_opaque_records_cannot_be_extended(tmp_path: Path) -> None:
    base = Version(tmp_path / "root", "blobs/v1")
    base.create(Schema.opaque())
    with pytest.raises(ShardlineError):
        extend(base, double, version_in(tmp_path, "blobs/v2"), snapshot="latest")


def test_an_unpublished_base_is_not_read_unless_it_is_named(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 2))
    append(base, [{"id": 9, "name": "x"}], batch="unchecked")
    into = version_in(tmp_path)
    assert extend(base, double, into).records == 2
    assert extend(base, double, into, snapshot="latest").records == 1


def test_context_features_of_sequence_examples_are_extended(tmp_path: Path) -> None:
    schema = Schema(
        (Feature("id", "int64"), Feature("steps", "float", (None,), sequence=True)),
        "sequence_example",
    )
    base = Version(tmp_path / "root", "walks/v1")
    rows = [{"id": number, "steps": [[0.5] * number, []]} for number in range(3)]
    append(base, rows, batch="walks", schema=schema)
    assert check_version(base).ok
    for mode, name in (("overlay", "walks/v2"), ("rewrite", "walks/v3")):
        into = version_in(tmp_path, name)
        extend(base, double, into, mode=mode)  # type: ignore[arg-type]
        assert check_version(into).ok
        assert table(into.latest()) == {
            "double": [0, 2, 4],
            "id": [0, 1, 2],
            "steps": [[[0.5] * number, []] for number in range(3)],
        }
        read = [
            (int(context["double"]), int(context["id"]), lists["steps"].to_list())
            for context, lists in into.published().to_tf()
        ]
        wanted = [(2 * number, number, [[0.5] * number, []]) for number in range(3)]
        assert read == wanted
        assert list(map(walk, into.published().to_tf(parse=False))) == wanted


def walk(payload: tf.Tensor) -> tuple[int, int, list[list[float]]]:
    """What protobuf reads in a record of them, which must hold nothing else."""
    record = tf.train.SequenceExample.FromString(payload.numpy())
    context, lists = record.context.feature, record.feature_lists.feature_list
    assert (set(context), set(lists)) == ({"double", "id"}, {"steps"})
    (double,), (number,) = (context[name].int64_list.value for name in ("double", "id"))
    return double, number, [list(step.float_list.value) for step in lists["steps"].feature]


def test_a_tensorflow_function_and_a_table_make_fields(tmp_path: Path) -> None:
    @tensor_udf(Feature("square", "int64"), reads=["id"], code="1")
    def square(tensors: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"square": tensors["id"] * tensors["id"]}

    names = tmp_path / "names.csv"
    names.write_text("id,label\n0,zero\n1,one\n2,two\n")
    base, into = base_of(tmp_path, (0, 2), (2, 3)), version_in(tmp_path)
    report = extend(base, [square, table_join(names, key="id")], into)
    assert table(into.latest(), ["square", "label"]) == {
        "square": [0, 1, 4],
        "label": ["zero", "one", "two"],
    }
    assert report.entry is not None
    assert [one["reads"] for one in report.entry.parameters["fields"]] == [["id"], ["id"]]
    names.write_text("id,label\n0,null\n1,eins\n2,zwei\n")
    again = extend(base, [square, table_join(names, key="id")], into)
    assert len(again.written) == 2
    assert table(into.latest(), ["label"])["label"] == ["null", "eins", "zwei"]


def test_a_damaged_base_stops_it_with_file_record_offset_and_what_to_do(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 3)), version_in(tmp_path)
    (path,) = [tmp_path / "root" / base.shard_name(shard) for shard in base.latest().shards]
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, 8 * (len(whole) - 20)))
    for mode in MODES:
        with raises(CorruptFileError, "corrupt-file", path=str(path), record=2) as caught:
            extend(base, double, into, mode=mode)
        assert caught.value.kind == "data-crc"
        assert caught.value.hint is not None
        assert Command.of("repair", base.name) in caught.value.hint.commands
    assert not into.exists


def test_the_base_of_an_overlay_is_kept_from_vacuum(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2), (2, 4)), version_in(tmp_path)
    extend(base, double, into)
    rebuild(base)
    assert check_version(base).ok
    vacuum(base.store, "digits", retention=AT_ONCE, dry_run=False)
    assert table(into.latest()) == table_of(4)
    assert verify_version(into).ok
    extend(base, double, into)
    assert check_version(into).ok
    vacuum(base.store, "digits", retention=AT_ONCE, dry_run=False)
    assert table(into.latest()) == table_of(4)


def table_of(count: int) -> dict[str, list[Any]]:
    """What a version that was extended by `double` holds."""
    return {
        "double": [2 * number for number in range(count)],
        "id": list(range(count)),
        "name": [f"größe {number}" for number in range(count)],
    }


def test_a_pin_is_let_go_of_when_a_later_one_keeps_the_same(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    for first in (2, 4, 6):
        extend(base, double, into)
        grown(base, tmp_path / "landing", (first, first + 2))
    extend(base, double, into)
    base.refresh()
    assert [hold.snapshot for hold in base.state.pins.values()] == [4]


def test_vacuum_lets_go_of_pins_that_nothing_needs_any_more(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2), (2, 4)), version_in(tmp_path)
    extend(base, double, into)
    rebuild(base)
    assert check_version(base).ok
    extend(base, double, into)
    assert check_version(into).ok
    base.refresh()
    assert [hold.snapshot for hold in base.state.pins.values()] == [1, 2]
    vacuum(base.store, "digits", retention=timedelta(days=1), dry_run=False)
    base.refresh()
    assert [hold.snapshot for hold in base.state.pins.values()] == [1, 2]
    vacuum(base.store, "digits", retention=AT_ONCE, dry_run=False)
    base.refresh()
    assert [hold.snapshot for hold in base.state.pins.values()] == [2]
    left = [name for name in stored(base, "shards") if name.endswith(".tfrecord")]
    assert len(left) == 2
    assert table(into.published()) == table_of(4)


def test_overlays_on_overlays_are_read_and_rebuilt_as_one(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 3), (3, 4))
    second, third = version_in(tmp_path), version_in(tmp_path, "digits/v3")
    extend(base, double, second)
    assert check_version(second).ok
    extend(second, length, third)
    assert check_version(third).ok
    wanted = {**table_of(4), "length": [7] * 4}
    assert table(third.published()) == wanted
    assert {frozenset(record) for record in by_protobuf(third.published())} == {frozenset(wanted)}
    with pytest.raises(UnreadableSnapshotError, match=r"to_tf.*rebuild"):
        third.published().files()
    rewritten = version_in(tmp_path, "digits/v4")
    extend(base, [double, length], rewritten, mode="rewrite")
    rebuild(third)
    assert check_version(third).ok
    assert table(third.published()) == wanted
    assert payloads(third) == payloads(rewritten)
    assert len(third.published().files()) == 1


def test_content_changes_with_the_lowest_base_of_a_stack(tmp_path: Path) -> None:
    @batch_udf(Feature("one", "int64"), reads=["id"], code="1")
    def one(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"one": [1] * batch.num_rows}

    @batch_udf(Feature("two", "int64"), reads=["id"], code="1")
    def two(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"two": [2] * batch.num_rows}

    base = base_of(tmp_path, (0, 2))
    second, third = version_in(tmp_path), version_in(tmp_path, "digits/v3")
    contents = set()
    for span in ((0, 2), (2, 4)):
        if span != (0, 2):
            base.reject(1)
            grown(base, tmp_path / "landing", span)
        extend(base, one, second)
        extend(second, two, third, snapshot="latest")
        contents.add(third.latest().content)
    assert len(contents) == 2


def test_two_who_extend_into_one_version_at_once_leave_one_list(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)

    class Meddling(ThreadExecutor):
        """Someone else does the same while the first task runs."""

        meddled = False

        def run(self, work: Any, tasks: Any, progress: Any = None) -> Any:  # noqa: ANN401
            made = list(super().run(work, tasks, progress))
            if not self.meddled:
                self.meddled = True
                grown(base, tmp_path / "landing", (2, 3))
                extend(Version(tmp_path / "root", "digits/v1"), double, version_in(tmp_path))
            return iter(made)

    report = extend(base, double, into, executor=Meddling(1))
    assert report.entry is not None
    assert table(into.latest(), ["double"])["double"] == [0, 2]
    assert verify_version(into).ok


def test_a_run_that_was_stopped_goes_on_with_the_shards_that_are_left(tmp_path: Path) -> None:
    computed: list[int] = []
    limit = [2]

    @record_udf(Feature("seen", "int64"), reads=["id"], code="1", processes=False)
    def seen(record: dict[str, Any]) -> dict[str, Any]:
        if len(computed) >= limit[0]:
            raise KeyboardInterrupt
        computed.append(record["id"])
        return {"seen": record["id"]}

    base, into = base_of(tmp_path, *((n, n + 1) for n in range(5))), version_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        extend(base, seen, into, executor=ThreadExecutor(1))
    assert not into.exists
    limit[0] = 100
    report = extend(base, seen, into, executor=ThreadExecutor(1))
    assert computed == [0, 1, 2, 3, 4]
    assert (len(report.written), report.recovered, report.records) == (5, 2, 5)
    assert report.entry is not None
    told = report.entry.parameters
    assert (told["computed"], told["found"], told["reused"]) == (3, 2, 0)


def test_a_stopped_run_on_an_object_store_goes_on_with_the_shards_that_are_left() -> None:
    computed: list[int] = []
    stop = [True]  # a list: the source digest has the value of a plain variable

    @batch_udf(Feature("double", "int64"), reads=["id"], code="1", processes=False)
    def interrupted(batch: pa.RecordBatch) -> dict[str, Any]:
        if stop[0] and len(computed) == 3:
            raise KeyboardInterrupt
        computed.extend(batch["id"].to_pylist())
        return {"double": batch["id"]}

    base = Version("memory://stopped-extension", "digits/v1")
    schema = Schema((Feature("id", "int64"),))
    for number in range(5):
        append(base, [{"id": number}], batch=str(number), schema=schema)
    check_version(base)
    into = Version(base.store, "digits/v2")
    with pytest.raises(KeyboardInterrupt):
        extend(base, interrupted, into, executor=ThreadExecutor(1))
    stop[0] = False
    extend(base, interrupted, into, executor=ThreadExecutor(1))
    assert computed == [0, 1, 2, 3, 4]
    assert table(into.latest(), ["double"])["double"] == [0, 1, 2, 3, 4]
    assert check_version(into).ok


def test_a_shard_of_which_every_record_is_refused_stays_in_the_list_and_is_not_tried_again(
    tmp_path: Path,
) -> None:
    @record_udf(Feature("double", "int64"), reads=["id"], code="1")
    def small(record: dict[str, Any]) -> dict[str, Any]:
        if record["id"] >= 4:
            raise ValueError("too far")
        return {"double": 2 * record["id"]}

    base, into = base_of(tmp_path, (0, 4), (4, 8)), version_in(tmp_path)
    first = extend(base, small, into, mode="rewrite", max_quarantined=0.5)
    assert (first.quarantined_rows, [shard.records for shard in into.latest().shards]) == (
        4,
        [4, 0],
    )
    assert extend(base, small, into, mode="rewrite", max_quarantined=0.5).entry is None
    grown(base, tmp_path / "landing", (8, 9))
    with raises(InvalidRecordsError, "invalid-rows", bad=1, rows=1) as caught:
        extend(base, small, into, mode="rewrite", max_quarantined=0.5)
    assert re.search(r"v1\.[0-9a-f]+.*record 0", str(caught.value.refused[0]))
    assert check_version(into).ok
    assert table(into.published(), ["id"])["id"] == [0, 1, 2, 3]


def test_a_version_of_which_every_record_is_refused_has_a_snapshot_with_none(
    tmp_path: Path,
) -> None:
    @record_udf(Feature("double", "int64"), reads=["id"], code="1")
    def never(record: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(len(record))

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    report = extend(base, never, into, mode="rewrite", max_quarantined=1)
    assert (report.snapshot, report.quarantined_rows, into.latest().records) == (1, 2, 0)
    assert check_version(into).ok
    assert by_tensorflow(into.published()) == []


def test_a_record_that_gets_too_large_by_what_is_new_is_refused_or_goes_to_quarantine(
    tmp_path: Path,
) -> None:
    @record_udf(Feature("much", "bytes"), reads=["id"], code="1")
    def padded(record: dict[str, Any]) -> dict[str, Any]:
        return {"much": bytes(170 if record["id"] == 1 else 1)}

    base, into = base_of(tmp_path, (0, 3)), version_in(tmp_path)
    limits = Limits(max_record_bytes=200)
    with raises(InvalidRecordsError, "invalid-rows", record=1) as caught:
        extend(base, padded, into, mode="rewrite", limits=limits)
    assert re.search(r"much.*200", str(caught.value.refused[0]))
    report = extend(base, padded, into, mode="rewrite", limits=limits, max_quarantined=0.5)
    assert report.quarantined_rows == 1
    assert table(into.latest(), ["id"])["id"] == [0, 2]


@pytest.mark.parametrize("mode", MODES)
def test_a_rebuild_in_place_stays_when_the_base_grows(tmp_path: Path, mode: TransformMode) -> None:
    base, into = base_of(tmp_path, (0, 2), (2, 4)), version_in(tmp_path)
    extend(base, double, into, mode=mode)
    rebuild(into, snapshot="latest")
    (folded,) = into.latest().shards
    assert extend(base, double, into, mode=mode).entry is None
    grown(base, tmp_path / "landing", (4, 6))
    report = extend(base, double, into, mode=mode)
    assert (len(report.written), report.reused) == (1, (folded,))
    rebuild(into, snapshot="latest")
    assert extend(base, double, into, mode=mode).entry is None
    assert table(into.latest(), ["double"])["double"] == [0, 2, 4, 6, 8, 10]
    base.restore(1)
    check_version(base)
    assert len(extend(base, double, into, mode=mode).reused) == 2
    assert table(into.latest(), ["double"])["double"] == [0, 2, 4, 6]


def test_what_others_hold_of_a_shard_of_the_same_length_is_noticed(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 3), (3, 6)), version_in(tmp_path)
    first, second = [tmp_path / "root" / base.shard_name(s) for s in base.latest().shards]
    assert first.stat().st_size == second.stat().st_size
    first.write_bytes(second.read_bytes())
    with pytest.raises(ShardlineError) as caught:
        extend(base, double, into)
    assert caught.value.path == str(first)
    assert not into.exists


@pytest.mark.parametrize("workers", [1, 4])
def test_extend_bytes_do_not_depend_on_workers(tmp_path: Path, workers: int) -> None:
    base, into = base_of(tmp_path, (0, 3000)), version_in(tmp_path)
    extend(base, [double, length], into, mode="rewrite", executor=ThreadExecutor(workers))
    (shard,) = into.latest().shards
    other = version_in(tmp_path, "digits/v3")
    extend(base, [double, length], other, mode="rewrite")
    assert other.latest().shards[0].sha256 == shard.sha256


@pytest.mark.parametrize("mode", MODES)
def test_large_records_are_computed_many_at_a_time_and_still_told_by_their_number(
    tmp_path: Path, mode: TransformMode
) -> None:
    given: list[int] = []

    @batch_udf(Feature("double", "int64"), reads=["id"], processes=False)
    def up_to(batch: pa.RecordBatch) -> dict[str, Any]:
        given.append(batch.num_rows)
        if last in batch["id"].to_pylist():
            raise ValueError("too far")
        return {"double": pc.multiply(batch["id"], 2)}

    schema = Schema((Feature("id", "int64"), Feature("image", "bytes")))
    base, into = Version(tmp_path / "root", "digits/v1"), version_in(tmp_path)
    append(
        base,
        ({"id": number, "image": bytes(2**20)} for number in range(30)),
        batch="large",
        schema=schema,
    )
    check_version(base)
    last = 17
    with raises(InvalidRecordsError, "invalid-rows", record=17):
        extend(base, up_to, into, mode=mode, executor=ThreadExecutor(1))
    last, given = 30, []
    extend(base, up_to, into, mode=mode, executor=ThreadExecutor(1))
    assert table(into.latest(), ["double"])["double"] == [2 * number for number in range(30)]
    assert given == [30] if mode == "overlay" else max(given) < 10


def test_a_record_with_a_feature_that_the_schema_does_not_tell_stops_a_rewrite(
    tmp_path: Path,
) -> None:
    path, out = tmp_path / "in.tfrecord", tmp_path / "out.tfrecord"
    ids = [1, 2, 3]
    write_examples(path, {"id": ids, "odd": pa.array([None, None, 7], pa.int64())})
    known = Schema((Feature("id", "int64"),))
    with pytest.raises(ColumnError, match=r"in\.tfrecord") as caught:
        extend_file(path, double, out, schema=known)
    assert (caught.value.record, caught.value.feature) == (2, "odd")
    assert not out.exists()
