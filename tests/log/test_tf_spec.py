"""Schemas as TensorFlow's specs: real records come out of real parsers as they went in."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import SchemaMismatchError
from shardline.schema.comparison import compare
from shardline.schema.schema import Feature, Schema, Text
from shardline.schema.tf_spec import from_tf_spec, to_tf_spec
from tests.errors import raises
from tests.log.schemas import records, schemas, size
from tests.tfrecord.samples import example_of, sequence_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.log.schemas import Content

RAGGED = tf.io.RaggedFeature

FLAT = Schema(
    (
        Feature("label", "int64"),
        Feature("image", "float", (2, 3)),
        Feature("name", "bytes", required=False, meaning=Text()),
        Feature("mask", "int64", (2, 2), required=False),
        Feature("tags", "bytes", (None,)),
        Feature("boxes", "float", (None, 3)),
        Feature("cubes", "int64", (None, 1, 2)),
    )
)
RECORDS = [
    example_of(label=1, image=[0.0, 1, 2, 3, 4, 5], name=b"a", mask=[1, 2, 3, 4], tags=[b"x", b"y"],
               boxes=[1.0, 2, 3, 4, 5, 6], cubes=[1, 2, 3, 4]),
    example_of(label=2, image=[5.0, 4, 3, 2, 1, 0], tags=[b"z"], boxes=[7.0, 8, 9], cubes=[5, 6]),
]  # fmt: skip
STEPS = Schema(
    (
        Feature("id", "int64"),
        Feature("note", "bytes", required=False),
        Feature("frames", "float", (2,), sequence=True),
        Feature("marks", "int64", sequence=True, required=False),
        Feature("words", "bytes", (None,), sequence=True),
        Feature("boxes", "int64", (None, 2), sequence=True, required=False),
    ),
    "sequence_example",
)
SEQUENCES = [
    sequence_of({"id": 1, "note": b"n"}, frames=[[1.0, 2], [3, 4]], marks=[[1], [2], [3]],
                words=[[b"a", b"b"], []], boxes=[[1, 2, 3, 4], [5, 6]]),
    sequence_of({"id": 2}, frames=[[5.0, 6]], words=[]),
]  # fmt: skip


def plain(value: Any) -> Any:  # noqa: ANN401 - tensors into lists
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    array = value.numpy()
    return array if isinstance(array, bytes) else array.tolist()


def test_fixed_features_are_tensors_and_the_others_ragged() -> None:
    uniform = RAGGED.UniformRowLength
    assert to_tf_spec(FLAT) == {
        "label": tf.io.FixedLenFeature((), tf.int64),
        "image": tf.io.FixedLenFeature((2, 3), tf.float32),
        "name": RAGGED(tf.string),
        "mask": RAGGED(tf.int64, partitions=[uniform(2)]),
        "tags": RAGGED(tf.string),
        "boxes": RAGGED(tf.float32, partitions=[uniform(3)]),
        "cubes": RAGGED(tf.int64, partitions=[uniform(1), uniform(2)]),
    }
    assert to_tf_spec(STEPS) == (
        {"id": tf.io.FixedLenFeature((), tf.int64), "note": RAGGED(tf.string)},
        {
            "frames": tf.io.FixedLenSequenceFeature((2,), tf.float32),
            "marks": tf.io.FixedLenSequenceFeature((), tf.int64, allow_missing=True),
            "words": RAGGED(tf.string),
            "boxes": RAGGED(tf.int64, partitions=[uniform(2)]),
        },
    )


def test_a_batch_is_parsed_into_the_shapes_declared() -> None:
    parsed = tf.io.parse_example(RECORDS, to_tf_spec(FLAT))
    assert {name: plain(value) for name, value in parsed.items()} == {
        "label": [1, 2],
        "image": [[[0, 1, 2], [3, 4, 5]], [[5, 4, 3], [2, 1, 0]]],
        "name": [[b"a"], []],
        "mask": [[[1, 2], [3, 4]], []],
        "tags": [[b"x", b"y"], [b"z"]],
        "boxes": [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9]]],
        "cubes": [[[[1, 2]], [[3, 4]]], [[[5, 6]]]],
    }
    assert parsed["boxes"].shape.as_list() == [2, None, 3]


def test_a_single_record_is_parsed_into_the_shapes_declared() -> None:
    parsed = tf.io.parse_single_example(RECORDS[0], to_tf_spec(FLAT))
    assert {name: plain(value) for name, value in parsed.items()} == {
        "label": 1,
        "image": [[0, 1, 2], [3, 4, 5]],
        "name": [b"a"],
        "mask": [[1, 2], [3, 4]],
        "tags": [b"x", b"y"],
        "boxes": [[1, 2, 3], [4, 5, 6]],
        "cubes": [[[1, 2]], [[3, 4]]],
    }
    without = tf.io.parse_single_example(RECORDS[1], to_tf_spec(FLAT))
    assert without["mask"].shape.as_list() == [0, 2]


def test_a_batch_of_sequences_is_parsed_into_the_shapes_declared() -> None:
    context, lists, lengths = tf.io.parse_sequence_example(SEQUENCES, *to_tf_spec(STEPS))
    assert {name: plain(value) for name, value in context.items()} == {
        "id": [1, 2],
        "note": [[b"n"], []],
    }
    assert {name: plain(value) for name, value in lists.items()} == {
        "frames": [[[1, 2], [3, 4]], [[5, 6], [0, 0]]],
        "marks": [[1, 2, 3], [0, 0, 0]],
        "words": [[[b"a", b"b"], []], []],
        "boxes": [[[[1, 2], [3, 4]], [[5, 6]]], []],
    }
    assert {name: plain(value) for name, value in lengths.items()} == {
        "frames": [2, 1],
        "marks": [3, 0],
    }


def test_a_single_sequence_is_parsed_into_the_shapes_declared() -> None:
    context, lists = tf.io.parse_single_sequence_example(SEQUENCES[0], *to_tf_spec(STEPS))
    assert (plain(context["id"]), plain(context["note"])) == (1, [b"n"])
    assert {name: plain(value) for name, value in lists.items()} == {
        "frames": [[1, 2], [3, 4]],
        "marks": [1, 2, 3],
        "words": [[b"a", b"b"], []],
        "boxes": [[[1, 2], [3, 4]], [[5, 6]]],
    }
    assert (
        plain(tf.io.parse_single_sequence_example(SEQUENCES[1], *to_tf_spec(STEPS))[1]["marks"])
        == []
    )


def test_a_missing_required_feature_is_refused_by_tensorflow_too() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="label"):
        tf.io.parse_example([example_of(image=[0.0] * 6)], to_tf_spec(FLAT))
    with pytest.raises(tf.errors.InvalidArgumentError, match="frames"):
        tf.io.parse_sequence_example([sequence_of({"id": 1})], *to_tf_spec(STEPS))


def flattened(value: Any) -> list[Any]:  # noqa: ANN401 - nested lists
    return (
        [inner for one in value for inner in flattened(one)] if isinstance(value, list) else [value]
    )


def values_of(content: Content, feature: Feature) -> list[Any]:
    if feature.sequence:
        return flattened(content.lists.get(feature.name, ("", []))[1])
    return list(content.context.get(feature.name, ("", []))[1])


@settings(max_examples=30)
@given(st.data())
def test_every_record_that_fits_is_parsed_to_what_it_holds(data: st.DataObject) -> None:
    schema = data.draw(schemas().filter(lambda schema: schema.features))
    schema = replace(schema, features=tuple(replace(f, nan=False) for f in schema.features))
    contents = data.draw(st.lists(records(schema), min_size=1, max_size=3))
    payloads = [content.payload() for content in contents]
    spec = to_tf_spec(schema)
    lengths: dict[str, Any] = {}
    if isinstance(spec, tuple):
        context, lists, lengths = tf.io.parse_sequence_example(payloads, *spec)
        singles = [tf.io.parse_single_sequence_example(payload, *spec) for payload in payloads]
    else:
        context, lists = tf.io.parse_example(payloads, spec), {}
        singles = [(tf.io.parse_single_example(payload, spec), {}) for payload in payloads]
    for feature in schema.features:
        batch = plain((lists if feature.sequence else context)[feature.name])
        for row, (content, single) in enumerate(zip(contents, singles, strict=True)):
            expected = values_of(content, feature)
            assert flattened(plain(single[feature.sequence][feature.name])) == expected
            filled = batch[row]
            if feature.sequence and feature.name in lengths:
                filled = filled[: int(lengths[feature.name][row])]
            assert flattened(filled) == expected


def bare(schema: Schema) -> Schema:
    """The schema with no more than a spec can tell."""
    kept = (replace(f, meaning=None, nan=False, doc="") for f in schema.features)
    return replace(schema, features=tuple(kept), doc="")


@given(schemas())
def test_a_schema_comes_back_from_its_spec_as_far_as_a_spec_can_tell(schema: Schema) -> None:
    spec = to_tf_spec(schema)
    back = from_tf_spec(*spec) if isinstance(spec, tuple) else from_tf_spec(spec)
    assert compare(back, bare(schema)).compatible, "whatever fits the schema can be parsed"
    for feature, before in zip(back.features, bare(schema).features, strict=True):
        free = before.shape[:1] == (None,)
        if before.required != free or (before.sequence and not free):
            assert feature == before
        else:
            assert (feature.required, size(feature.shape)) == (
                False,
                size((None, *before.shape[1:])),
            )


def test_every_spec_that_can_be_is_read() -> None:
    spec = {
        "one": tf.io.FixedLenFeature([], tf.int64),
        "maybe": tf.io.FixedLenFeature([2], tf.float32, default_value=[0.0, 0.0]),
        "shape": tf.io.FixedLenFeature(tf.TensorShape([2, 3]), tf.string),
        "number": tf.io.FixedLenFeature(4, tf.string),
        "sparse": tf.io.VarLenFeature(tf.string),
        "ragged": tf.io.RaggedFeature(tf.int64),
        "renamed": tf.io.RaggedFeature(tf.int64, value_key="other"),
        "rows": tf.io.FixedLenSequenceFeature([3], tf.float32, allow_missing=True),
    }
    steps = {
        "frames": tf.io.FixedLenSequenceFeature([3], tf.float32),
        "marks": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
        "words": tf.io.VarLenFeature(tf.string),
        "more": tf.io.RaggedFeature(tf.string),
    }
    context = (
        Feature("one", "int64"),
        Feature("maybe", "float", (2,), required=False),
        Feature("shape", "bytes", (2, 3)),
        Feature("number", "bytes", (4,)),
        Feature("sparse", "bytes", (None,), required=False),
        Feature("ragged", "int64", (None,), required=False),
        Feature("other", "int64", (None,), required=False),
        Feature("rows", "float", (None, 3), required=False),
    )
    assert from_tf_spec(spec, doc="from code") == Schema(context, doc="from code")
    lists = (
        Feature("frames", "float", (3,), sequence=True),
        Feature("marks", "int64", required=False, sequence=True),
        Feature("words", "bytes", (None,), required=False, sequence=True),
        Feature("more", "bytes", (None,), required=False, sequence=True),
    )
    assert from_tf_spec(spec, steps) == Schema((*context, *lists), "sequence_example")
    assert from_tf_spec({}, {}).payload == "sequence_example"
    with_nan = from_tf_spec(spec, nan=True)
    assert [f.name for f in with_nan.features if f.nan] == ["maybe", "rows"]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "sparse": (lambda: tf.io.SparseFeature("i", "v", tf.int64, 5), "unsupported-tf-spec"),
    "int32": (lambda: tf.io.FixedLenFeature([], tf.int32), "unsupported-type"),
    "double": (lambda: tf.io.VarLenFeature(tf.float64), "unsupported-type"),
    "unknown length": (lambda: tf.io.FixedLenFeature([None], tf.int64), "invalid-shape"),
    "unknown rows": (
        lambda: tf.io.FixedLenSequenceFeature([None], tf.int64, allow_missing=True),
        "invalid-shape",
    ),
    "partitions": (
        lambda: RAGGED(tf.int64, partitions=[RAGGED.RowLengths("lengths")]),
        "unsupported-tf-spec",
    ),
    "something else": (lambda: tf.TensorSpec([], tf.int64), "unsupported-tf-spec"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_schema_cannot_tell_is_refused_with_advice(case: str) -> None:
    spec, code = REFUSED[case]
    with raises(SchemaMismatchError, code, feature="f") as caught:
        from_tf_spec({"f": spec()})
    assert caught.value.hint


def test_steps_cannot_be_a_fixed_feature() -> None:
    with raises(SchemaMismatchError, "unsupported-tf-spec", feature="f"):
        from_tf_spec({}, {"f": tf.io.FixedLenFeature([], tf.int64)})


def test_opaque_records_have_no_spec() -> None:
    with raises(SchemaMismatchError, "opaque-schema"):
        to_tf_spec(Schema.opaque())


def test_a_spec_is_read_without_loading_tensorflow() -> None:
    program = """
import sys
from collections import namedtuple
from shardline.schema.tf_spec import from_tf_spec
VarLenFeature = namedtuple("VarLenFeature", ["dtype"])
print(from_tf_spec({"a": VarLenFeature("int64")}).features, "tensorflow" in sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "name='a', kind='int64', shape=(None,)" in result.stdout
    assert result.stdout.endswith("False\n")
