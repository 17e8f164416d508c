"""Random schemas, records that fit them, and an obvious, slow way to tell whether one does.

Nothing here asks the code under test what fits: records are written by hand and read by protobuf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from shardline.errors import ExampleError, SchemaMismatchError
from shardline.kernel import reference
from shardline.schema.schema import Array, Category, Embedding, Feature, Image, Schema, Text
from tests.kernel import examples
from tests.kernel.parsers import read_by_protobuf

if TYPE_CHECKING:
    from shardline.schema.logical_types import LogicalType
    from shardline.schema.schema import Kind, Shape

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
SHAPES: tuple[Shape, ...] = (
    (), (1,), (2,), (6,), (2, 3), (3, 2), (2, 3, 1), (1, 2, 3),
    (None,), (None, 1), (None, 2), (None, 3), (None, 6), (None, 2, 3),
)  # fmt: skip
MEANINGS: dict[Kind, tuple[LogicalType | None, ...]] = {
    "int64": (
        None,
        Category(),
        Category(("cat", "dog")),
        Category(("cat", "dog", "eel")),
        Category(("dog", "cat", "eel")),
    ),
    "float": (None, Embedding()),
    "bytes": (
        None,
        Text(),
        Category(),
        Category(("cat", "dog")),
        Category(("eel", "dog", "cat")),
        Category(("größe",)),
        Image("png"),
        Image("jpeg"),
        Array("uint8", (None,)),
        Array("int32", (None, 2)),
        Array("int32", (None,)),
        Array("int32", (2, 3)),
        Array("int32", (3, 2)),
        Array("int64", (None,)),
        Array("float32", (2, 2)),
        Array("float32", (4,)),
        Array("bool", ()),
    ),
}
CHANGES = ("none", "none", "gone", "all", "shape", "required", "nan", "meaning", "place")
NAMES = ("", "a", "größe", "image/encoded")


def possible(**parts: Any) -> Feature | None:  # noqa: ANN401 - a Feature's
    """A feature of these parts, None if they do not go together."""
    try:
        return Feature(**parts)
    except SchemaMismatchError:
        return None


@st.composite
def features(draw: st.DrawFn, name: str, *, sequence: bool = False) -> Feature:
    """Any feature of that name."""
    kind: Kind = draw(st.sampled_from(("bytes", "float", "int64")))
    meaning = draw(st.sampled_from(MEANINGS[kind]))
    shape = (3,) if isinstance(meaning, Embedding) else draw(st.sampled_from(SHAPES))
    return Feature(
        name,
        kind,
        shape,
        required=draw(st.booleans()),
        meaning=meaning,
        sequence=sequence,
        nan=kind == "float" and draw(st.booleans()),
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Any schema that is not opaque."""
    chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    declared = [draw(features(name)) for name in chosen]
    if not draw(st.booleans()):
        return Schema(tuple(declared))
    chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))
    declared += [draw(features(name, sequence=True)) for name in chosen]
    return Schema(tuple(declared), "sequence_example")


@st.composite
def related(draw: st.DrawFn, schema: Schema) -> Schema:
    """A schema that differs from another in a few places, if any."""
    kept: list[Feature] = []
    for old in schema.features:
        new = old
        change = draw(st.sampled_from(CHANGES))
        if change == "gone":
            continue
        if change == "all":
            new = draw(features(old.name, sequence=old.sequence))
        parts: dict[str, dict[str, Any]] = {
            "shape": {"shape": draw(st.sampled_from(SHAPES))},
            "required": {"required": not old.required},
            "nan": {"nan": not old.nan},
            "meaning": {"meaning": draw(st.sampled_from(MEANINGS[old.kind]))},
            "place": {"sequence": not old.sequence},
        }
        try:
            new = replace(new, **parts.get(change, {}))
        except SchemaMismatchError:
            new = old
        if new.key not in {feature.key for feature in kept}:
            kept.append(new)
    if draw(st.integers(0, 4)) == 0:
        added = draw(features("added", sequence=draw(st.booleans())))
        kept.append(added)
    lists = schema.payload == "sequence_example" or any(feature.sequence for feature in kept)
    return Schema(tuple(kept), "sequence_example" if lists else "example")


Values = list[Any]


@dataclass(slots=True)
class Content:
    """What a record says: a list by name, or lists by name, each with its kind."""

    context: dict[str, tuple[Kind, Values]] = field(default_factory=dict)
    lists: dict[str, tuple[Kind, list[Values]]] = field(default_factory=dict)

    def payload(self) -> bytes:
        """The record's bytes."""
        written = examples.example(
            *(examples.entry(name, _feature(*told)) for name, told in self.context.items())
        )
        steps = (
            examples.entry(name, examples.feature_list(*(_feature(kind, step) for step in told)))
            for name, (kind, told) in self.lists.items()
        )
        return written + (examples.feature_lists(*steps) if self.lists else b"")


def _feature(kind: Kind, values: Values) -> bytes:
    if kind == "bytes":
        return examples.bytes_feature(*values)
    return (examples.float_feature if kind == "float" else examples.int64_feature)(*values)


def size(shape: Shape) -> int:
    """The number of values, or what it is a multiple of."""
    return math.prod(length for length in shape if length)


def _one_of(feature: Feature) -> st.SearchStrategy[Any]:
    """Any value that the feature may have."""
    if feature.kind == "bytes":
        return _bytes_of(feature.meaning)
    if feature.kind == "float":
        return st.floats(width=32, allow_nan=feature.nan)
    if isinstance(feature.meaning, Category) and feature.meaning.labels is not None:
        return st.integers(0, len(feature.meaning.labels) - 1)
    return st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 3)


def _bytes_of(meaning: LogicalType | None) -> st.SearchStrategy[bytes]:
    if isinstance(meaning, Category) and meaning.labels is not None:
        return st.sampled_from([label.encode() for label in meaning.labels])
    if isinstance(meaning, Text | Category):
        return st.text(max_size=4).map(str.encode)
    if isinstance(meaning, Image):
        signature = PNG if meaning.encoding == "png" else JPEG
        return st.binary(max_size=4).map(signature.__add__)
    if isinstance(meaning, Array):
        unit = np.dtype(meaning.dtype).itemsize * size(meaning.shape)
        times = st.integers(0, 3) if None in meaning.shape else st.just(1)
        return times.flatmap(lambda n: st.binary(min_size=n * unit, max_size=n * unit))
    return st.binary(max_size=9)


@st.composite
def records(draw: st.DrawFn, schema: Schema) -> Content:
    """Any record that fits the schema."""

    def values(feature: Feature) -> Values:
        count = size(feature.shape) * (draw(st.integers(0, 3)) if None in feature.shape else 1)
        return draw(st.lists(_one_of(feature), min_size=count, max_size=count))

    content = Content()
    for feature in schema.features:
        if not feature.required and draw(st.booleans()):
            continue
        if feature.sequence:
            steps = [values(feature) for _ in range(draw(st.integers(0, 3)))]
            content.lists[feature.name] = feature.kind, steps
        else:
            content.context[feature.name] = feature.kind, values(feature)
    return content


def misfits(schema: Schema, payload: bytes) -> list[str | None]:
    """The features of a record that do not fit, one by one and in the most obvious way."""
    if schema.payload == "opaque":
        return []
    whole = examples.block([payload])
    try:
        reference.validate(whole.data, whole.starts, whole.lengths)
    except ExampleError as error:
        return [error.feature]
    read = read_by_protobuf(payload)
    found = {(False, name): [told] for name, told in read.context.items()}
    found |= {(True, name): told for name, told in read.lists.items()}
    declared = {(feature.sequence, feature.name): feature for feature in schema.features}
    bad = []
    for sequence, name in sorted(declared.keys() | found.keys()):
        feature = declared.get((sequence, name))
        lists = found.get((sequence, name))
        if feature is None:
            bad.append(name)
        elif lists is None:
            bad += [name] if feature.required else []
        elif not all(list_fits(feature, kind, items) for kind, items in lists):
            bad.append(name)
    return list(bad)


def list_fits(feature: Feature, kind: Kind, items: Values) -> bool:
    """Whether one list of values fits; floats are given by their bits."""
    count = size(feature.shape)
    if kind != feature.kind:
        return False
    if len(items) % count if None in feature.shape else len(items) != count:
        return False
    return all(_value_fits(feature, value) for value in items)


def _value_fits(feature: Feature, value: Any) -> bool:  # noqa: ANN401 - of any kind
    if feature.kind == "bytes":
        return _bytes_fit(feature.meaning, value)
    if feature.kind == "float":
        return feature.nan or not (value & 0x7F800000 == 0x7F800000 and value & 0x007FFFFF)
    labels = feature.meaning.labels if isinstance(feature.meaning, Category) else None
    return labels is None or value in range(len(labels))


def _bytes_fit(meaning: LogicalType | None, value: bytes) -> bool:
    if isinstance(meaning, Text | Category):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return False
        return isinstance(meaning, Text) or meaning.labels is None or text in meaning.labels
    if isinstance(meaning, Image):
        return value.startswith(PNG if meaning.encoding == "png" else JPEG)
    if isinstance(meaning, Array):
        numbers, rest = divmod(len(value), np.dtype(meaning.dtype).itemsize)
        unit = size(meaning.shape)
        return not rest and (not numbers % unit if None in meaning.shape else numbers == unit)
    return True
