"""What a maker of fields declares: refused at once where it cannot be meant, and who it is."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

from shardline import canonical_json as canonical
from shardline.errors import SchemaMismatchError, UDFError
from shardline.schema.schema import Feature, Schema, Text
from shardline.udf import batch_udf, record_udf, tensor_udf
from tests.errors import raises
from tests.test_imports import loaded_by
from tests.udf.batches import AREA, BOXES, batch_of, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAKERS: list[Any] = [record_udf, batch_udf, tensor_udf]
BOTH = ["width", "height"]
WHOLE: dict[str, list[Any]] = {
    "width": [4, 5], "height": [1, 1], "weight": [None, 1], "name": ["", None], "raw": [b"", b""],
    "grid": [None, None], "tags": [[], []], "pairs": [[], []],
}  # fmt: skip


def area(record: dict[str, Any]) -> dict[str, Any]:
    return {"area": record["width"] * record["height"]}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("features", "code", "feature"),
    [
        ((), "no-features", None),
        ((AREA, AREA), "duplicate-feature", "area"),
        ((Feature("steps", "int64", sequence=True),), "invalid-udf", "steps"),
        (("area",), "invalid-udf", None),
        ((area,), "invalid-udf", None),
    ],
)
def test_fields_that_cannot_be_made_are_refused(
    maker: Callable[..., Any], features: tuple[Any, ...], code: str, feature: str | None
) -> None:
    with raises(UDFError, code, feature=feature):
        maker(*features, reads=["width"])(area)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        ({"reads": "width"}, "invalid-argument", "a list of"),
        ({"reads": []}, "invalid-argument", "at least 1"),
        ({"reads": [AREA]}, "invalid-argument", "at least 1"),
        ({"reads": ["width", "width"]}, "duplicate-feature", "width"),
        ({"reads": ["width"], "code": 1}, "invalid-argument", "code"),
        ({"reads": ["width"], "code": ""}, "invalid-argument", "code"),
    ],
)
def test_what_else_is_declared_wrongly_is_refused(
    maker: Callable[..., Any], options: dict[str, Any], code: str, word: str
) -> None:
    with raises(UDFError, code) as caught:
        maker(AREA, **options)(area)
    assert word in caught.value.message


def test_what_is_no_function_is_refused() -> None:
    with raises(UDFError, "invalid-udf", feature=None):
        record_udf(AREA)(7)  # type: ignore[arg-type] # which is why


@pytest.mark.parametrize("maker", [batch_udf, tensor_udf])
def test_functions_of_batches_must_say_what_they_read(maker: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="reads"):
        maker(AREA)


@pytest.mark.parametrize("maker", MAKERS)
def test_unknown_feature_lists_existing(
    maker: Callable[..., Any],
) -> None:
    fields = maker(AREA, reads=["width", "colour"])(area)
    with raises(SchemaMismatchError, "unknown-feature", feature="colour") as caught:
        fields.bind(BOXES)
    assert all(repr(feature.name) in str(caught.value.hint) for feature in BOXES.features)
    with raises(SchemaMismatchError, "opaque-records"):
        fields.bind(Schema.opaque())


def test_a_function_of_records_that_says_nothing_reads_all_of_the_context() -> None:
    steps = Feature("steps", "int64", sequence=True)
    schema = Schema((*BOXES.features, steps), "sequence_example")
    fields = record_udf(AREA)(area)
    assert fields.reads is None
    assert fields.bind(schema).reads == list(BOXES.features)
    with raises(SchemaMismatchError, "no-features"):
        fields.bind(Schema((steps,), "sequence_example"))


def test_features_of_the_feature_lists_are_read_where_they_are_named() -> None:
    steps = Feature("steps", "int64", sequence=True)
    both = Feature("width", "int64", sequence=True)
    schema = Schema((*BOXES.features, steps, both), "sequence_example")
    bound = record_udf(AREA, reads=["steps", "width"])(area).bind(schema)
    assert bound.reads == [steps, BOXES.feature("width")]
    assert bound.features == (AREA,)


def test_a_declared_function_can_still_be_called() -> None:
    fields = record_udf(AREA)(area)
    assert fields({"width": 2, "height": 3}) == {"area": 6}
    assert fields.label == "function 'area'"


def test_a_function_without_a_code_version_has_no_identity() -> None:
    assert record_udf(AREA)(area).identity() is None


@pytest.mark.parametrize("maker", MAKERS)
def test_an_identity_holds_all_that_was_declared(maker: Callable[..., Any]) -> None:
    fields = maker(AREA, reads=["width"], code="1")(area)
    named = replace(AREA, meaning=None, doc="square metres")
    others = [
        maker(AREA, reads=["width"], code="2")(area),
        maker(AREA, reads=["height"], code="1")(area),
        maker(replace(AREA, required=False), reads=["width"], code="1")(area),
        maker(AREA, reads=["width"], code="1")(lambda given: given),
    ]
    told = {canonical.encode(one.identity()) for one in (fields, *others)}
    assert len(told) == 5
    assert maker(named, reads=["width"], code="1")(area).identity() == fields.identity()
    assert fields.settled() is fields


def test_module_identity_by_name_or_path(tmp_path: Path) -> None:
    def one_of(module: str) -> bytes:
        function = FunctionType(area.__code__, {}, "area")
        function.__module__ = module
        return canonical.encode(record_udf(AREA, code="1")(function).identity())

    assert one_of("my_fields") == one_of(str(tmp_path / "my_fields.py"))
    told = {one_of(name) for name in ("my_fields", "a.my_fields", "b.my_fields", "/a/others.py")}
    assert len(told) == 4


def test_kinds_of_functions_have_identities_of_their_own() -> None:
    told = [maker(AREA, reads=["width"], code="1")(area).identity() for maker in MAKERS]
    assert len({canonical.encode(one) for one in told}) == 3


def test_features_are_kept_as_they_are_declared() -> None:
    feature = Feature("note", "bytes", required=False, meaning=Text(), doc="why")
    assert record_udf(AREA, feature)(area).features == (AREA, feature)


def test_declaring_loads_neither_tensorflow_nor_pandas_nor_pools_of_processes() -> None:
    modules = loaded_by("import shardline.udf; shardline.record_udf; shardline.table_join")
    assert "shardline.udf.worker_process" in modules
    assert modules.isdisjoint({"tensorflow", "pandas", "multiprocessing.pool"})
    assert "concurrent.futures.process" not in modules


@record_udf(AREA, code="1")
def factorial(record: dict[str, Any]) -> dict[str, Any]:
    width = record["width"]
    return {"area": width * factorial({"width": width - 1})["area"] if width else 1}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_declared_function_can_be_sent_to_other_nodes(maker: Callable[..., Any]) -> None:
    for function in (area, lambda record: {"area": record["width"] * record["height"]}):
        fields = maker(AREA, reads=BOTH, code="1")(function)
        again = pickle.loads(pickle.dumps(fields))  # noqa: S301 - ours
        assert (type(again), again.identity()) == (type(fields), fields.identity())
        assert again({"width": 2, "height": 3}) == {"area": 6}


def test_so_can_one_that_calls_itself() -> None:
    again = pickle.loads(pickle.dumps(factorial))  # noqa: S301 - ours
    assert again({"width": 5}) == {"area": 120}
    with closing(replace(factorial, processes=True).bind(BOXES)) as bound:
        assert values(bound.compute(batch_of(BOXES.features, **WHOLE), every=True)) == [24, 120]


def test_the_error_can_be_sent_between_processes() -> None:
    sent = UDFError("no such field", code="unknown-feature", feature="depth")
    error = pickle.loads(pickle.dumps(sent))  # noqa: S301 - ours
    assert (type(error), str(error)) == (UDFError, "no such field")
    assert (error.code, error.feature) == ("unknown-feature", "depth")
