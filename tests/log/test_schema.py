"""Schemas: what can be declared, how it is written down, and raw arrays that are never misread."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline.errors import SchemaMismatchError
from shardline.hints import Option
from shardline.schema.logical_types import ITEM_BYTES
from shardline.schema.schema import Array, Category, Embedding, Feature, Image, Schema, Text
from tests.errors import raises
from tests.log.schemas import schemas

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE = Feature("image", "bytes", meaning=Image("png"), doc="as scanned")
LABEL = Feature("label", "int64", meaning=Category(("cat", "dog")))
VECTOR = Feature("vector", "float", (3,), required=False, meaning=Embedding(), nan=True)
WORDS = Feature("words", "bytes", (None,), meaning=Text(), sequence=True)
RAW = Feature("raw", "bytes", meaning=Array("int32", (None, 2)))
SCHEMA = Schema((WORDS, VECTOR, RAW, LABEL, IMAGE), "sequence_example", "scanned digits")


def test_features_stand_in_the_order_of_their_names_with_feature_lists_last() -> None:
    assert SCHEMA.features == (IMAGE, LABEL, RAW, VECTOR, WORDS)


def test_a_feature_is_found_by_its_name() -> None:
    assert SCHEMA.feature("raw") is RAW
    assert SCHEMA.find("words") is WORDS
    assert SCHEMA.find("words", sequence=False) is None
    assert SCHEMA.find("Raw") is None
    with raises(SchemaMismatchError, "unknown-feature", feature="Raw") as caught:
        SCHEMA.feature("Raw")
    assert "'raw'" in str(caught.value.hint)
    with raises(SchemaMismatchError, "unknown-feature", feature="xyz") as caught:
        SCHEMA.feature("xyz")
    assert all(repr(feature.name) in str(caught.value.hint) for feature in SCHEMA.features)
    with raises(SchemaMismatchError, "unknown-feature", feature="a"):
        Schema().feature("a")


def test_a_name_may_stand_in_the_context_and_in_the_feature_lists() -> None:
    both = Schema((Feature("a", "int64", sequence=True), Feature("a", "bytes")), "sequence_example")
    assert both.feature("a", sequence=True).kind == "int64"
    assert both.feature("a", sequence=False).kind == "bytes"
    with raises(SchemaMismatchError, "ambiguous-feature", feature="a") as caught:
        both.find("a")
    assert caught.value.hint is not None
    assert Option("sequence", value=True) in caught.value.hint.parts
    assert Option("sequence", value=False) in caught.value.hint.parts


def test_nothing_can_be_changed_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        LABEL.kind = "bytes"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        SCHEMA.doc = ""  # type: ignore[misc]


def test_lists_are_taken_for_tuples() -> None:
    shape: Any = [28, 28]
    labels: Any = ["a", "b"]
    assert Feature("a", "int64", shape).shape == (28, 28)
    assert Array("int8", shape).shape == (28, 28)
    assert hash(Feature("a", "int64", meaning=Category(labels)))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "text in numbers": (
        lambda: Feature("a", "int64", meaning=Text()),
        "invalid-logical-type",
    ),
    "categories of floats": (
        lambda: Feature("a", "float", meaning=Category()),
        "invalid-logical-type",
    ),
    "an image of floats": (
        lambda: Feature("a", "float", meaning=Image("png")),
        "invalid-logical-type",
    ),
    "an array of numbers": (
        lambda: Feature("a", "int64", meaning=Array("int8", ())),
        "invalid-logical-type",
    ),
    "an embedding of bytes": (
        lambda: Feature("a", "bytes", (3,), meaning=Embedding()),
        "invalid-logical-type",
    ),
    "an embedding without a length": (
        lambda: Feature("a", "float", meaning=Embedding()),
        "invalid-shape",
    ),
    "an embedding of any length": (
        lambda: Feature("a", "float", (None,), meaning=Embedding()),
        "invalid-shape",
    ),
    "an embedding in two dimensions": (
        lambda: Feature("a", "float", (3, 3), meaning=Embedding()),
        "invalid-shape",
    ),
    "NaN in whole numbers": (lambda: Feature("a", "int64", nan=True), "invalid-schema"),
    "an unknown kind": (
        lambda: Feature("a", "int32"),  # type: ignore[arg-type]
        "invalid-schema",
    ),
    "None behind the first dimension": (
        lambda: Feature("a", "int64", (3, None)),
        "invalid-shape",
    ),
    "two Nones": (lambda: Feature("a", "int64", (None, None)), "invalid-shape"),
    "no values": (lambda: Feature("a", "int64", (0,)), "invalid-shape"),
    "fewer than none": (lambda: Feature("a", "int64", (-1,)), "invalid-shape"),
    "a truth as a length": (lambda: Feature("a", "int64", (True,)), "invalid-shape"),
    "more than fits": (lambda: Feature("a", "int64", (2**16, 2**16)), "invalid-shape"),
    "a name beyond UTF-8": (lambda: Feature("\udcff", "int64"), "invalid-schema"),
    "a doc beyond UTF-8": (lambda: Feature("a", "int64", doc="\ud800"), "invalid-schema"),
    "a label beyond UTF-8": (lambda: Category(("\ud800",)), "invalid-schema"),
    "no labels": (lambda: Category(()), "invalid-logical-type"),
    "a text for labels": (lambda: Category("ab"), "invalid-logical-type"),  # type: ignore[arg-type]
    "a label twice": (lambda: Category(("a", "b", "a")), "invalid-logical-type"),
    "an unknown encoding": (
        lambda: Image("webp"),  # type: ignore[arg-type]
        "invalid-logical-type",
    ),
    "an unknown dtype": (lambda: Array("complex64", ()), "invalid-logical-type"),
    "a dtype by another name": (lambda: Array("<i4", ()), "invalid-logical-type"),
    "a feature twice": (
        lambda: Schema((Feature("a", "int64"), Feature("b", "int64"), Feature("a", "bytes"))),
        "duplicate-feature",
    ),
    "steps in an Example": (
        lambda: Schema((Feature("a", "int64", sequence=True),)),
        "invalid-schema",
    ),
    "features of what is no Example": (
        lambda: Schema((Feature("a", "int64"),), "opaque"),
        "invalid-schema",
    ),
    "an unknown payload": (lambda: Schema((), "json"), "invalid-schema"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_change(case: str) -> None:
    build, code = REFUSED[case]
    with raises(SchemaMismatchError, code) as caught:
        build()
    assert caught.value.feature in {None, "a"}


@given(schemas())
def test_a_schema_comes_back_from_json_as_it_was(schema: Schema) -> None:
    text = json.dumps(schema.to_dict())
    assert Schema.from_dict(json.loads(text)) == schema
    assert "." not in "".join(c for c in text if c in "0123456789."), "there are no floats"


def test_json_tells_only_what_is_unusual() -> None:
    assert Schema((Feature("a", "int64"),)).to_dict() == {
        "payload": "example",
        "features": [{"name": "a", "kind": "int64"}],
    }
    assert SCHEMA.to_dict() == {
        "payload": "sequence_example",
        "doc": "scanned digits",
        "features": [
            {"name": "image", "kind": "bytes", "meaning": {"is": "image", "encoding": "png"},
             "doc": "as scanned"},
            {"name": "label", "kind": "int64",
             "meaning": {"is": "category", "labels": ["cat", "dog"]}},
            {"name": "raw", "kind": "bytes",
             "meaning": {"is": "array", "dtype": "int32", "shape": [None, 2]}},
            {"name": "vector", "kind": "float", "shape": [3], "required": False, "nan": True,
             "meaning": {"is": "embedding"}},
            {"name": "words", "kind": "bytes", "shape": [None], "meaning": {"is": "text"},
             "sequence": True},
        ],
    }  # fmt: skip
    assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    assert Schema.from_dict(Schema.opaque("x").to_dict()) == Schema.opaque("x")


def test_json_may_tell_what_is_usual_too() -> None:
    usual = {"name": "a", "kind": "int64", "shape": [], "required": True, "sequence": False,
             "nan": False, "doc": ""}  # fmt: skip
    told = Schema.from_dict({"payload": "example", "features": [usual], "doc": ""})
    assert told == Schema((Feature("a", "int64"),))


def damaged(at: str, value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A schema's JSON with one thing changed: `features.0.kind` is where it is."""
    told = json.loads(json.dumps(SCHEMA.to_dict()))
    *way, last = [int(step) if step.isdigit() else step for step in at.split(".")]
    inner = told
    for step in way:
        inner = inner[step]
    inner[last] = value
    return told


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        ("format", 1, "'format'"),
        ("payload", None, "'payload'"),
        ("payload", "text", "payload 'text'"),
        ("features", {}, "'features'"),
        ("doc", 5, "'doc'"),
        ("features.0", "image", "a feature"),
        ("features.0.type", "int64", "'type'"),
        ("features.0.kind", "int32", "kind 'int32'"),
        ("features.0.kind", 3, "'kind'"),
        ("features.0.name", None, "'name'"),
        ("features.0.required", 1, "'required'"),
        ("features.0.required", "no", "'required'"),
        ("features.0.shape", 3, "'shape'"),
        ("features.0.shape", [2.0], "shape"),
        ("features.0.shape", [True], "shape"),
        ("features.0.nan", None, "'nan'"),
        ("features.0.meaning", "text", "'meaning'"),
        ("features.0.meaning", {}, "'is'"),
        ("features.0.meaning.is", "sound", "'sound'"),
        ("features.0.meaning.encoding", "webp", "webp"),
        ("features.0.meaning.size", 3, "'size'"),
        ("features.1.meaning.labels", ["a", 1], "'labels'"),
        ("features.1.meaning.labels", "ab", "'labels'"),
        ("features.1.meaning.labels", None, "'labels'"),
        ("features.2.meaning.shape", [3, None], "shape"),
        ("features.2.meaning.dtype", "int", "'int'"),
        ("features.4.sequence", "yes", "'sequence'"),
    ],
)
def test_json_that_is_not_a_schema_is_refused_by_the_key(
    at: str, value: object, message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message) as caught:
        Schema.from_dict(damaged(at, value))
    invalid = {"invalid-schema", "invalid-shape", "invalid-logical-type"}
    assert caught.value.code in invalid


@pytest.mark.parametrize("value", [None, [], "schema", 5, {}, {"payload": "example"}])
def test_what_is_not_even_an_object_with_the_right_keys_is_refused(value: object) -> None:
    with raises(SchemaMismatchError, "invalid-schema"):
        Schema.from_dict(value)


def test_the_fingerprint_is_the_digest_of_canonical_json() -> None:
    schema = Schema((Feature("größe", "float", (2,), doc="x"),), doc="y")
    told = '{"features":[{"kind":"float","name":"größe","shape":[2]}],"payload":"example"}'
    assert schema.fingerprint == hashlib.sha256(told.encode()).hexdigest()


def test_the_fingerprint_holds_what_matters_to_data_and_nothing_else() -> None:
    same = [
        replace(SCHEMA, doc="other"),
        replace(SCHEMA, features=SCHEMA.features[::-1]),
        replace(SCHEMA, features=(*SCHEMA.features[1:], replace(IMAGE, doc="other"))),
    ]
    assert {schema.fingerprint for schema in same} == {SCHEMA.fingerprint}
    parts: tuple[dict[str, Any], ...] = (
        {"name": "labels"}, {"kind": "bytes"}, {"shape": (1,)}, {"required": False},
        {"meaning": None}, {"meaning": Category()}, {"meaning": Category(("dog", "cat"))},
        {"sequence": True},
    )  # fmt: skip
    others = [
        replace(SCHEMA, features=(IMAGE, RAW, VECTOR, WORDS, replace(LABEL, **part)))
        for part in parts
    ]
    others.append(replace(SCHEMA, features=(IMAGE, RAW, LABEL, WORDS, replace(VECTOR, nan=False))))
    others += [Schema(), Schema((), "sequence_example"), Schema.opaque()]
    assert len({schema.fingerprint for schema in (SCHEMA, *others)}) == len(others) + 1


def test_the_order_of_the_texts_that_may_occur_makes_no_difference() -> None:
    one = Schema((Feature("a", "bytes", meaning=Category(("x", "y"))),))
    other = Schema((Feature("a", "bytes", meaning=Category(("y", "x"))),))
    assert one.fingerprint == other.fingerprint
    assert other.feature("a").meaning == Category(("y", "x")), "it is kept as it was declared"


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@given(data=st.data())
def test_an_array_comes_back_as_it_was(dtype: str, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(), (3,), (2, 3), (4, 1, 2)]))
    free = data.draw(st.booleans())
    meaning = Array(dtype, (None, *shape) if free else shape)
    if free:
        shape = (data.draw(st.integers(0, 3)), *shape)
    size = int(np.prod(shape, dtype=int)) * ITEM_BYTES[dtype]
    raw = data.draw(st.binary(min_size=size, max_size=size))
    array = meaning.decode(raw, dtype)
    assert (array.dtype.name, array.shape) == (dtype, shape)
    assert meaning.encode(array) == raw


def test_numbers_are_little_endian_whatever_the_array_was() -> None:
    meaning = Array("int32", (2,))
    assert meaning.encode(np.array([1, 2], ">i4")) == b"\1\0\0\0\2\0\0\0"
    assert meaning.encode(np.array([1, 9, 2, 9], "<i4")[::2]) == b"\1\0\0\0\2\0\0\0"
    assert Array("int8", (2, 2)).encode(np.array([[1, 2], [3, 4]], "i1").T) == b"\1\3\2\4"
    assert meaning.decode(b"\1\0\0\0\2\0\0\0").tolist() == [1, 2]
    assert meaning.decode(memoryview(b"\1\0\0\0\2\0\0\0")).tolist() == [1, 2]


def test_bfloat16_is_known() -> None:
    array = np.array([1.0, -2.5], ml_dtypes.bfloat16)
    meaning = Array("bfloat16", (None,))
    assert meaning.encode(array) == b"\x80\x3f\x20\xc0"
    assert meaning.decode(b"\x80\x3f\x20\xc0").tolist() == [1.0, -2.5]


def test_int32_written_is_never_read_as_int64() -> None:
    meaning = Array("int32", (None,))
    raw = meaning.encode(np.arange(4, dtype=np.int32))
    with raises(SchemaMismatchError, "dtype-mismatch"):
        meaning.decode(raw, "int64")
    with raises(SchemaMismatchError, "dtype-mismatch"):
        meaning.encode(np.arange(4))


@pytest.mark.parametrize(
    ("meaning", "size", "takes"),
    [
        (Array("int32", (2, 2)), 12, "16"),
        (Array("int32", (2, 2)), 32, "16"),
        (Array("int32", (2, 2)), 17, "16"),
        (Array("int64", ()), 0, "8"),
        (Array("int16", (None, 3)), 10, "6"),
    ],
)
def test_bytes_of_another_size_are_refused_without_showing_them(
    meaning: Array, size: int, takes: str
) -> None:
    with raises(SchemaMismatchError, "length-mismatch") as caught:
        meaning.decode((b"secret" * 10)[:size])
    assert {takes, str(size)} <= set(re.findall(r"\d+", str(caught.value)))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "found"),
    [((4,), (2, 2)), ((2, 2), (4,)), ((None, 2), (2,)), ((None, 2), (2, 3)), ((), (1,))],
)
def test_an_array_of_another_shape_is_refused(declared: Any, found: Any) -> None:  # noqa: ANN401
    with raises(SchemaMismatchError, "shape-mismatch"):
        Array("int8", declared).encode(np.zeros(found, np.int8))


@pytest.mark.parametrize("meaning", [Text, "text", 3])
def test_a_meaning_must_be_one(meaning: object) -> None:
    with raises(SchemaMismatchError, "invalid-logical-type", feature="t"):
        Feature("t", "bytes", meaning=meaning)  # type: ignore[arg-type]
