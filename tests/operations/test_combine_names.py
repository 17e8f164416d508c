"""What both sides have is refused, or told apart by a rule that someone chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import SchemaMismatchError
from shardline.hints import Option
from shardline.schema.schema import Category, Feature, Image, Schema, Text
from tests.errors import raises
from tests.operations.combinations import combined, contents, flat, pair, side
from tests.tfrecord.samples import example_of, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

LEFT = Schema(
    (
        Feature("id", "int64", doc="who"),
        Feature("image", "bytes", meaning=Image("png"), required=False),
        Feature("label", "int64", meaning=Category(("no", "yes"))),
    ),
    doc="pictures",
)
RIGHT = Schema(
    (
        Feature("id", "int64"),
        Feature("label", "bytes"),
        Feature("words", "bytes", (None,), meaning=Text()),
    )
)
LEFT_RECORD = example_of(id=1, label=0)
RIGHT_RECORD = example_of(id=2, label=b"cat", words=[b"a", b"b"])


def schema_of(tmp_path: Path, left: Schema, right: Schema, **options: Any) -> Schema:  # noqa: ANN401 - as they come
    """The schema of the pairs of records of two schemas; the sides have a shard without records."""
    into = Version(tmp_path, "pairs/v1")
    sides = side(tmp_path, "lefts/v1", left, []), side(tmp_path, "rights/v1", right, [])
    combined(*sides, into, **options)
    return into.schema


def test_common_names_are_refused_with_all_of_them_and_what_to_do(tmp_path: Path) -> None:
    with raises(SchemaMismatchError, "feature-collision", feature="id") as caught:
        schema_of(tmp_path, LEFT, RIGHT)
    assert "'id', 'label'" in str(caught.value)
    assert caught.value.hint is not None
    for way in ("prefix", "keep-left", "keep-right"):
        assert Option("on_collision", way) in caught.value.hint.parts
    assert not Version(tmp_path, "pairs/v1").exists


def test_a_prefix_is_put_before_every_name_of_its_side(tmp_path: Path) -> None:
    made = schema_of(tmp_path, LEFT, RIGHT, on_collision="prefix", right_prefix="r_")
    assert [feature.name for feature in made.features] == [
        "id",
        "image",
        "label",
        "r_id",
        "r_label",
        "r_words",
    ]
    assert made.feature("id") == LEFT.feature("id")
    assert made.feature("image").meaning == Image("png")
    assert not made.feature("image").required
    assert made.feature("r_words") == Feature("r_words", "bytes", (None,), meaning=Text())


def test_prefixes_that_do_not_tell_names_apart_are_refused(tmp_path: Path) -> None:
    right = Schema((Feature("d", "int64"), Feature("label", "bytes")))
    with raises(SchemaMismatchError, "feature-collision", feature="id"):
        schema_of(tmp_path, LEFT, right, on_collision="prefix", right_prefix="i")
    other = tmp_path / "other"
    options = {"on_collision": "prefix", "left_prefix": "x_", "right_prefix": "x_"}
    with raises(SchemaMismatchError, "feature-collision", feature="x_label"):
        schema_of(other, LEFT, right, **options)


@pytest.mark.parametrize(("rule", "label"), [("keep-left", "int64"), ("keep-right", "bytes")])
def test_one_side_can_be_kept_of_what_both_have(tmp_path: Path, rule: str, label: str) -> None:
    into = Version(tmp_path, "pairs/v1")
    left = side(tmp_path, "lefts/v1", LEFT, [LEFT_RECORD])
    right = side(tmp_path, "rights/v1", RIGHT, [RIGHT_RECORD])
    combined(left, right, into, on_collision=rule)
    assert into.schema.feature("label").kind == label
    assert {feature.name for feature in into.schema.features} == {"id", "image", "label", "words"}
    kept = {
        "keep-left": pair(LEFT_RECORD, example_of(words=[b"a", b"b"])),
        "keep-right": pair(RIGHT_RECORD, None),
    }
    assert flat(contents(into)) == [kept[rule]]


def test_the_feature_lists_of_one_side_stand_beside_the_context_of_the_other(
    tmp_path: Path,
) -> None:
    steps = Schema(
        (Feature("other", "int64"), Feature("ids", "int64", sequence=True)), "sequence_example"
    )
    into = Version(tmp_path, "pairs/v1")
    left = side(tmp_path, "lefts/v1", LEFT, [LEFT_RECORD])
    record = sequence_of({"other": 3}, ids=[[1], [2]])
    right = side(tmp_path, "rights/v1", steps, [record])
    combined(left, right, into)
    assert into.schema.payload == "sequence_example"
    assert flat(contents(into)) == [pair(LEFT_RECORD, record)]
    with raises(SchemaMismatchError, "feature-collision", feature="ids"):
        schema_of(
            tmp_path / "other",
            steps,
            Schema((Feature("ids", "float", sequence=True),), "sequence_example"),
        )


@pytest.mark.parametrize("which", ["left", "right"])
def test_opaque_records_are_refused(tmp_path: Path, which: str) -> None:
    schemas = (Schema.opaque(), LEFT) if which == "left" else (LEFT, Schema.opaque())
    with raises(SchemaMismatchError, "opaque-records") as caught:
        schema_of(tmp_path, *schemas)
    assert str(caught.value).startswith(f"the {which}: ")


def test_a_key_of_one_name_is_the_same_on_both_sides_and_there_once(tmp_path: Path) -> None:
    right = Schema((Feature("id", "int64"), Feature("word", "bytes")))
    made = schema_of(tmp_path, LEFT, right, on="id")
    assert [feature.name for feature in made.features] == ["id", "image", "label", "word"]
    both = {"on": "id", "on_collision": "prefix", "right_prefix": "r_"}
    made = schema_of(tmp_path / "other", LEFT, right, **both)
    assert made.find("r_id") is not None


@pytest.mark.parametrize("rule", ["refuse", "keep-left", "keep-right"])
def test_a_record_without_a_match_keeps_its_key(tmp_path: Path, rule: str) -> None:
    schema = Schema((Feature("id", "int64"), Feature("word", "bytes")))
    into = Version(tmp_path, "pairs/v1")
    left = side(tmp_path, "lefts/v1", LEFT, [example_of(id=n, label=0) for n in (1, 2)])
    right = side(tmp_path, "rights/v1", schema, [example_of(id=2, word=b"two")])
    combined(left, right, into, on="id", how="left", on_collision=rule)
    assert flat(contents(into)) == [
        example_of(id=1, label=0), example_of(id=2, label=0, word=b"two"),
    ]  # fmt: skip
    assert into.schema.feature("id").required


def test_without_a_match_the_features_of_the_right_may_be_missing(tmp_path: Path) -> None:
    right = Schema((Feature("key", "int64"), Feature("word", "bytes")))
    made = schema_of(tmp_path, LEFT, right, on={"id": "key"}, how="left")
    assert [made.feature(name).required for name in ("id", "label", "key", "word")] == [
        True,
        True,
        False,
        False,
    ]
