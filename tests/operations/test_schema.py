"""The inferred schema: what all records together say, where files differ, and a spec that works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.errors import CorruptFileError
from shardline.schema.file_schema import FeatureSchema, feature_spec, infer_schema
from tests.kernel.frames import framed
from tests.tfrecord.samples import (
    example_of,
    flipped,
    gzip_member,
    made,
    read_by_tensorflow,
    sequence_of,
)

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [
    example_of(label=1, weights=[0.5, -2.0], name=b"cat", tags=[b"a", b"bb"], blob=b"\xff"),
    example_of(label=-7, weights=[float("nan"), 3.5], name=b"", tags=[], blob=b"\xfe\xff"),
    example_of(label=2**40, weights=[0.0, 1.0], name=b"dog", extra=[1, 2, 3]),
]
SEQUENCES = [
    sequence_of({"id": 1}, tokens=[[1, 2], [3]], marks=[[0.5], [1.5]], words=[[b"x"], [b"yz"]]),
    sequence_of({"id": 2}, tokens=[], marks=[], words=[[b"q"]]),
    sequence_of({"id": 3}, tokens=[[4]], marks=[[9.0]], words=[]),
]


def by_name(path: Path) -> dict[str, FeatureSchema]:
    return {feature.name: feature for feature in infer_schema([path]).merged.features}


def test_each_feature_is_told_with_kind_shape_presence_and_ranges(tmp_path: Path) -> None:
    features = by_name(made(tmp_path / "a", framed(*RECORDS)))
    assert list(features) == ["blob", "extra", "label", "name", "tags", "weights"]
    label = features["label"]
    assert (label.kind, label.shape, label.required) == ("int64", "[]", True)
    assert (label.low, label.high, label.present, label.records) == (-7, 2**40, 3, 3)
    weights = features["weights"]
    assert (weights.kind, weights.shape, weights.length) == ("float", "[2]", 2)
    assert (weights.low, weights.high, weights.nans) == (-2.0, 3.5, 1)
    name = features["name"]
    assert (name.kind, name.sizes, name.utf8) == ("bytes", (0, 3), True)
    assert features["tags"].kinds == ("bytes", "int64"), "an empty list was written as int64"
    blob = features["blob"]
    assert (blob.sizes, blob.utf8, blob.required, blob.present) == ((1, 2), False, False, 2)
    extra = features["extra"]
    assert (extra.shape, extra.present, extra.required) == ("[3]", 1, False)


def test_lists_of_different_lengths_have_a_variable_shape(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(example_of(a=[1, 2]), example_of(a=[]), example_of(a=[5])))
    feature = by_name(path)["a"]
    assert (feature.shape, feature.length, feature.lengths) == ("[?]", None, (0, 2))


def test_feature_lists_are_told_with_their_steps(tmp_path: Path) -> None:
    features = by_name(made(tmp_path / "a", framed(*SEQUENCES)))
    assert (features["id"].sequence, features["tokens"].sequence) == (False, True)
    assert (features["tokens"].shape, features["tokens"].steps) == ("[?, ?]", (0, 2))
    assert (features["tokens"].kind, features["tokens"].lengths) == ("int64", (1, 2))
    assert features["marks"].shape == "[?]"
    assert features["words"].sizes == (1, 2)


def test_a_feature_with_two_kinds_shows_both(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(example_of(a=1), example_of(a=1.5)))
    feature = by_name(path)["a"]
    assert feature.kinds == ("float", "int64")
    assert feature.kind == "float|int64"
    spec = feature_spec(infer_schema([path]).merged)
    assert "VarLen" not in spec
    assert '# "a"' in spec


def test_a_feature_list_that_never_has_a_step_has_no_kind(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(sequence_of({}, s=[])))
    (feature,) = infer_schema([path]).merged.features
    assert (feature.kind, feature.kinds, feature.steps) == ("unknown", (), (0, 0))
    assert "unknown" in feature_spec(infer_schema([path]).merged)


def test_an_empty_file_has_an_empty_schema(tmp_path: Path) -> None:
    report = infer_schema([made(tmp_path / "a", b"")])
    assert (report.merged.records, report.merged.features, report.differences) == (0, (), [])
    assert feature_spec(report.merged) == "features = {\n}\n"


def test_several_files_are_one_schema_and_agree_if_they_do(tmp_path: Path) -> None:
    paths = [
        made(tmp_path / "a", framed(example_of(x=1), example_of(x=5))),
        made(tmp_path / "b", gzip_member(framed(example_of(x=-3)))),
    ]
    report = infer_schema(paths)
    (feature,) = report.merged.features
    assert (feature.low, feature.high, feature.present, report.merged.records) == (-3, 5, 3, 3)
    assert [(file.file, file.records) for file in report.files] == [
        (str(paths[0]), 2),
        (str(paths[1]), 1),
    ]
    assert report.differences == []


def test_differences_are_told_feature_by_feature(tmp_path: Path) -> None:
    one = made(tmp_path / "one", framed(example_of(same=1, kind=1, shape=[1, 2], gone=1, seldom=1)))
    records = [
        example_of(same=9, kind=1.0, shape=[1], seldom=1),
        example_of(same=2, kind=2.0, shape=[1]),
    ]
    two = made(tmp_path / "two", framed(*records))
    empty = made(tmp_path / "empty", b"")
    report = infer_schema([one, two, empty])
    told = {difference.name: difference for difference in report.differences}
    assert {name: difference.what for name, difference in told.items()} == {
        "gone": ("missing",),
        "kind": ("kind",),
        "seldom": ("presence",),
        "shape": ("shape",),
    }
    assert told["kind"].files == {str(one): "int64 [] required", str(two): "float [] required"}
    assert told["gone"].files == {str(one): "int64 [] required", str(two): "missing"}
    assert told["shape"].files[str(one)] == "int64 [2] required"
    assert told["seldom"].files[str(two)] == "int64 [] optional"


def test_a_damaged_record_or_one_that_is_no_example_is_told_with_its_place(tmp_path: Path) -> None:
    data = framed(example_of(a=1), b"\x08 no Example", example_of(a=2))
    with pytest.raises(CorruptFileError) as caught:
        infer_schema([made(tmp_path / "a", data)])
    second = len(framed(example_of(a=1)))
    assert (caught.value.kind, caught.value.record, caught.value.offset) == ("example", 1, second)
    assert "no Example" not in caught.value.detail
    with pytest.raises(CorruptFileError) as caught:
        infer_schema([made(tmp_path / "a", flipped(data, 8 * (second + 13)))])
    assert (caught.value.kind, caught.value.record) == ("data-crc", 1)


def pasted(spec: str) -> dict[str, Any]:
    """What the text gives when it is run as it is."""
    names: dict[str, Any] = {"tf": tf}
    exec(spec, names)  # noqa: S102 - that it can be pasted and run is what is tested
    return names


def dense(value: Any) -> Any:  # noqa: ANN401 - a tensor of any kind
    if isinstance(value, tf.SparseTensor):
        return tf.RaggedTensor.from_sparse(value).to_list()
    return value.numpy().tolist()


def test_the_spec_parses_the_file_it_was_made_from(tmp_path: Path) -> None:
    records = [
        example_of(label=1, weights=[0.5, -2.0], name=b"cat", tags=[b"a", b"bb"]),
        example_of(label=-7, weights=[1.0, 3.5], name=b"", tags=[b"c"], extra=[1, 2, 3]),
    ]
    path = made(tmp_path / "a", framed(*records))
    spec = pasted(feature_spec(infer_schema([path]).merged))["features"]
    assert spec["label"] == tf.io.FixedLenFeature([], tf.int64)
    assert spec["weights"] == tf.io.FixedLenFeature([2], tf.float32)
    assert spec["tags"] == tf.io.VarLenFeature(tf.string)
    assert spec["extra"] == tf.io.VarLenFeature(tf.int64)
    parsed = tf.io.parse_example(read_by_tensorflow(path), spec)
    assert {name: dense(value) for name, value in parsed.items()} == {
        "label": [1, -7],
        "weights": [[0.5, -2.0], [1.0, 3.5]],
        "name": [b"cat", b""],
        "tags": [[b"a", b"bb"], [b"c"]],
        "extra": [[], [1, 2, 3]],
    }


def test_the_spec_of_sequences_parses_the_file_it_was_made_from(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*SEQUENCES))
    names = pasted(feature_spec(infer_schema([path]).merged))
    context, lists, lengths = tf.io.parse_sequence_example(
        read_by_tensorflow(path), names["context_features"], names["sequence_features"]
    )
    assert dense(context["id"]) == [1, 2, 3]
    assert tf.sparse.to_dense(lists["tokens"]).numpy()[0].tolist() == [[1, 2], [3, 0]]
    assert lists["marks"].numpy().tolist() == [[0.5, 1.5], [0.0, 0.0], [9.0, 0.0]]
    assert lengths["marks"].numpy().tolist() == [2, 0, 1]
    for payload in read_by_tensorflow(path):
        tf.io.parse_single_sequence_example(
            payload, names["context_features"], names["sequence_features"]
        )


@pytest.mark.parametrize(
    "name",
    ['with "quotes"', "back\\slash", "new\nline", "return\rhere", "nul\0", "tab\t", "größe", "名",
     "\U0001f600", "{brace}", "\u2028", "\x7f", "", "it's", "\\n", "image/encoded"],
)  # fmt: skip
def test_any_name_can_be_pasted(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "a", framed(example_of(**{name: 5})))
    spec = pasted(feature_spec(infer_schema([path]).merged))["features"]
    assert list(spec) == [name]
    assert tf.io.parse_example(read_by_tensorflow(path), spec)[name].numpy().tolist() == [5]


def test_a_name_that_no_parser_can_read_is_a_comment_that_stays_one(tmp_path: Path) -> None:
    name = 'x"\nimport os\rimport sys #'
    path = made(tmp_path / "a", framed(example_of(**{name: 5}), example_of(**{name: 5.0})))
    names = pasted(feature_spec(infer_schema([path]).merged))
    assert names["features"] == {}
    assert "os" not in names
    assert "sys" not in names


def test_the_progress_is_told_per_file(tmp_path: Path) -> None:
    paths = [made(tmp_path / name, framed(*RECORDS)) for name in ("a", "b")]
    seen: dict[Path, int] = {}
    infer_schema(paths, progress=seen.__setitem__)
    assert seen == {path: path.stat().st_size for path in paths}
