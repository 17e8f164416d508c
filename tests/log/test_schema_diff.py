"""Whether data of one schema may be appended where another holds: exactly, and told in words."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.schema.comparison import SchemaChange, SchemaDiff, compare
from shardline.schema.schema import Array, Category, Embedding, Feature, Image, Schema, Text
from tests.log.schemas import (
    JPEG,
    MEANINGS,
    PNG,
    SHAPES,
    list_fits,
    misfits,
    possible,
    records,
    related,
    schemas,
)
from tests.sampling import drawn

if TYPE_CHECKING:
    from shardline.schema.schema import Kind, Shape


def diff_of(old: Feature, new: Feature) -> SchemaDiff:
    lists = old.sequence or new.sequence
    payload: Any = "sequence_example" if lists else "example"
    return compare(Schema((old,), payload), Schema((new,), payload))


@pytest.mark.sweep
@settings(max_examples=drawn(500))
@given(st.data())
def test_a_record_that_fits_a_compatible_schema_fits_the_old_one(data: st.DataObject) -> None:
    old = data.draw(schemas())
    new = data.draw(related(old))
    payload = data.draw(records(new)).payload()
    assert misfits(new, payload) == []
    if compare(old, new).compatible:
        assert misfits(old, payload) == []


@given(schemas())
def test_a_schema_is_the_same_as_itself(schema: Schema) -> None:
    diff = compare(schema, Schema.from_dict(schema.to_dict()))
    assert (diff.classification, diff.compatible, diff.changes) == ("same", True, ())
    assert str(diff).startswith("same: ")


@given(schemas(), schemas())
def test_schemas_are_the_same_exactly_if_their_fingerprints_are(old: Schema, new: Schema) -> None:
    assert (compare(old, new).classification == "same") == (old.fingerprint == new.fingerprint)


def bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


VALUES: dict[Kind, list[Any]] = {
    "int64": [0, 1, 2, 3, -1],
    "float": [bits(0.5), bits(float("nan"))],
    "bytes": [
        b"cat",
        b"dog",
        b"eel",
        "größe".encode(),
        b"text",
        b"\xff",
        PNG,
        JPEG,
        JPEG + b"12345",
    ]
    + [bytes(size) for size in (0, 1, 2, 3, 4, 8, 12, 16, 24, 32)],
}
CANDIDATES = {
    kind: [[value] * count for value in values for count in range(13)]
    for kind, values in VALUES.items()
}
"""Lists enough to tell any two of the features below apart."""


def catalogue(kind: Kind) -> list[Feature]:
    made = (
        possible(name="f", kind=kind, shape=shape, meaning=meaning, nan=nan)
        for shape in SHAPES
        for meaning in MEANINGS[kind]
        for nan in (False, True)
    )
    return [feature for feature in made if feature is not None]


def rows(shape: Shape) -> set[int]:
    """How many values the rows of each dimension have, but for single values and the whole."""
    sizes = [size or 0 for size in shape]
    return {math.prod(sizes[place:]) for place in range(1, len(sizes))} - {1, math.prod(sizes)}


def cut_otherwise(one: Shape, other: Shape) -> bool:
    return not (rows(one) <= rows(other) or rows(other) <= rows(one))


def contradict(old: Feature, new: Feature) -> bool:
    """Whether the two say different things of the same values."""
    if cut_otherwise(old.shape, new.shape):
        return True
    one, other = old.meaning, new.meaning
    if one is None or other is None:
        return False
    if isinstance(one, Array) and isinstance(other, Array):
        return one.dtype != other.dtype or cut_otherwise(one.shape, other.shape)
    if isinstance(one, Category) and isinstance(other, Category) and old.kind == "int64":
        pairs = zip(one.labels or (), other.labels or (), strict=False)
        return any(before != after for before, after in pairs)
    texts = (Text, Category)
    return type(one) is not type(other) and not (
        isinstance(one, texts) and isinstance(other, texts)
    )


@pytest.mark.parametrize("kind", ["bytes", "float", "int64"])
def test_features_are_compatible_exactly_if_all_values_fit_and_nothing_contradicts(
    kind: Kind,
) -> None:
    made = catalogue(kind)
    taken = [
        sum(1 << i for i, items in enumerate(CANDIDATES[kind]) if list_fits(feature, kind, items))
        for feature in made
    ]
    wrong = [
        (old, new)
        for (old, by_old), (new, by_new) in itertools.product(
            zip(made, taken, strict=True), repeat=2
        )
        if diff_of(old, new).compatible != (by_new & ~by_old == 0 and not contradict(old, new))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("old", "new", "compatible"),
    [
        ((None,), (), True),
        ((), (None,), False),
        ((1,), (), True),
        ((None,), (28, 28), True),
        ((784,), (28, 28), True),
        ((28, 28), (784,), True),
        ((28, 28), (28, 28, 1), True),
        ((28, 28), (14, 56), False),
        ((2, 3), (3, 2), False),
        ((2, 3), (1, 6), True),
        ((None, 2, 3), (1, 2, 3), True),
        ((None, 2, 3), (2, 3), True),
        ((None, 2, 3), (None, 3), False),
        ((None, 3), (None, 2, 3), True),
        ((None, 3), (4, 2, 3), True),
        ((None, 3), (6,), True),
        ((None, 3), (2, 6), False),
        ((None, 3), (None, 6), False),
        ((None, 6), (4, 2, 3), True),
    ],
)
def test_shapes_are_compatible_if_the_values_fit_and_are_not_cut_at_odds(
    old: Shape,
    new: Shape,
    compatible: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    flat = Feature("f", "int64")
    assert diff_of(replace(flat, shape=old), replace(flat, shape=new)).compatible == compatible


@pytest.mark.parametrize("sequence", [False, True])
def test_presence_decides_too(sequence: bool) -> None:  # noqa: FBT001 - a parameter of the test
    needed = Feature("f", "int64", sequence=sequence)
    optional = replace(needed, required=False)
    payload: Any = "sequence_example"
    without = Schema((), payload)
    assert diff_of(optional, needed).compatible
    assert not diff_of(needed, optional).compatible
    assert compare(Schema((optional,), payload), without).compatible
    assert not compare(Schema((needed,), payload), without).compatible
    assert not compare(without, Schema((optional,), payload)).compatible
    assert not compare(without, Schema((needed,), payload)).compatible


def test_anything_fits_an_opaque_schema_and_an_opaque_one_fits_no_other() -> None:
    typed = Schema((Feature("f", "int64"),))
    assert compare(Schema.opaque(), typed).classification == "compatible"
    assert compare(typed, Schema.opaque()).classification == "migration"
    assert compare(Schema.opaque("a"), Schema.opaque("b")).classification == "compatible"


def test_examples_are_sequence_examples_without_lists() -> None:
    flat = Schema((Feature("f", "int64"),))
    lists = replace(flat, payload="sequence_example")
    assert compare(flat, lists).changes == (
        SchemaChange(None, "payload", "example", "sequence_example", compatible=True),
    )
    assert compare(lists, flat).compatible
    steps = Schema((*flat.features, Feature("s", "int64", sequence=True)), "sequence_example")
    assert not compare(flat, steps).compatible
    assert not compare(steps, flat).compatible


def test_a_feature_that_moves_to_the_feature_lists_is_told_once() -> None:
    old = Schema((Feature("f", "int64", required=False),), "sequence_example")
    new = Schema((Feature("f", "int64", sequence=True),), "sequence_example")
    (change,) = compare(old, new).changes
    assert (change.what, change.old, change.new, change.compatible) == (
        "sequence",
        "in the context",
        "in the feature_lists",
        False,
    )
    assert compare(new, old).changes[0].what == "sequence"


OLD = Feature("f", "bytes")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (OLD, Feature("f", "float"), "kind bytes -> float: migration"),
        (
            Feature("f", "int64", (None,)),
            Feature("f", "int64", (8,)),
            "shape [?] -> [8]: compatible",
        ),
        (
            Feature("f", "int64", (8,)),
            Feature("f", "int64", (None,)),
            "shape [8] -> [?]: migration",
        ),
        (OLD, replace(OLD, required=False), "required required -> optional: migration"),
        (Feature("f", "float"), Feature("f", "float", nan=True), "nan no NaN -> NaN: migration"),
        (Feature("f", "float", nan=True), Feature("f", "float"), "nan NaN -> no NaN: compatible"),
        (OLD, replace(OLD, meaning=Text()), "meaning none -> text: compatible"),
        (
            replace(OLD, meaning=Image("png")),
            replace(OLD, meaning=Image("jpeg")),
            "meaning png image -> jpeg image: migration",
        ),
        (
            replace(OLD, meaning=Array("int32", (28, 28))),
            replace(OLD, meaning=Array("int64", (28, 28))),
            "dtype int32 -> int64: migration",
        ),
        (
            replace(OLD, meaning=Array("int32", (None, 28))),
            replace(OLD, meaning=Array("int32", (28, 28))),
            "meaning int32 array [?, 28] -> int32 array [28, 28]: compatible",
        ),
        (
            Feature("f", "int64", meaning=Category(("a", "b"))),
            Feature("f", "int64", meaning=Category(("a", "b", "c"))),
            "labels 2 labels -> 3 labels (new: 'c'): migration",
        ),
        (
            Feature("f", "int64", meaning=Category(("a", "b"))),
            Feature("f", "int64", meaning=Category(("b",))),
            "labels 2 labels -> 1 labels (in other places): migration",
        ),
        (
            Feature("f", "int64", meaning=Category(("a", "b"))),
            Feature("f", "int64", meaning=Category(("a",))),
            "labels 2 labels -> 1 labels: compatible",
        ),
        (
            Feature("f", "int64", meaning=Category()),
            Feature("f", "int64", meaning=Category(tuple("abc"))),
            "labels any -> 3 labels: compatible",
        ),
        (
            Feature("f", "float", (8,), meaning=Embedding()),
            Feature("f", "float", (4, 2)),
            "shape [8] -> [4, 2], meaning embedding -> none: compatible",
        ),
        (OLD, replace(OLD, doc="new"), "doc: compatible"),
    ],
)
def test_each_difference_is_told_in_one_line(old: Feature, new: Feature, line: str) -> None:
    assert diff_of(old, new).lines() == [f"feature 'f': {line}"]


def test_the_report_has_one_line_per_feature() -> None:
    old = Schema((Feature("a", "int64"), Feature("b", "bytes"), Feature("c", "float")))
    new = Schema(
        (Feature("b", "int64", (2,)), Feature("c", "float"), Feature("d", "float", (8,))), doc="x"
    )
    diff = compare(old, new)
    headline, *lines = str(diff).splitlines()
    assert (headline.split(":")[0], lines) == ("migration", diff.lines())
    assert [line.split(":")[0] for line in lines] == [
        "the schema",
        "feature 'a'",
        "feature 'b'",
        "feature 'd'",
    ]
    assert [(change.feature, change.what, change.old, change.new) for change in diff.changes] == [
        (None, "doc", "", "x"),
        ("a", "removed", "int64 [] required", ""),
        ("b", "kind", "bytes", "int64"),
        ("b", "shape", "[]", "[2]"),
        ("d", "added", "", "float [8] required"),
    ]
    assert [change.compatible for change in diff.changes] == [True, False, False, False, False]


def test_a_name_cannot_break_the_report() -> None:
    diff = compare(Schema(), Schema((Feature("two\nlines", "int64"),)))
    assert len(str(diff).splitlines()) == 2
