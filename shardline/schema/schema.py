"""Schema of a version: the features of its records and their constraints."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, get_args

from shardline import canonical_json as canonical
from shardline.arguments import list_items
from shardline.codec import Converter, JsonObject, decode, encode, stored
from shardline.errors import InvalidTypeError, SchemaMismatchError, ShardlineError
from shardline.hints import Hint, Option
from shardline.kernel.types import KINDS, Kind
from shardline.schema import shapes
from shardline.schema.logical_types import (
    Array,
    Category,
    Embedding,
    Image,
    LogicalType,
    Text,
    parse_logical_type,
    validate_text,
)
from shardline.schema.shapes import Shape, StoredShape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.canonical_json import Json


__all__ = [
    "Array",
    "Category",
    "Embedding",
    "Feature",
    "Image",
    "Kind",
    "LogicalType",
    "Payload",
    "Schema",
    "Shape",
    "Text",
]

Payload: TypeAlias = Literal["example", "sequence_example", "opaque"]
"""Payload of a record: an Example, a SequenceExample, or bytes that are neither."""


_LogicalType = Annotated[LogicalType, Converter(dict, encode, parse_logical_type)]


@dataclass(frozen=True, slots=True)
class Feature(JsonObject):
    """Feature of a schema.

    `shape` is the shape of its values: `()` one value, `(28, 28)` fixed, `(None, 3)` any number of
    triples. With `sequence`, the feature is in the feature_lists of a SequenceExample: `shape` is
    that of one step, and the number of steps is free. `nan` allows NaN.
    """

    json_label: ClassVar = "a feature"
    name: str
    kind: Kind
    shape: StoredShape = ()
    required: bool = True
    meaning: _LogicalType | None = None
    sequence: bool = False
    nan: bool = False
    doc: str = ""

    def __post_init__(self) -> None:
        """Raise SchemaMismatchError for an invalid declaration."""
        subject = f"feature {self.name!r}"
        validate_text("the name of a feature", self.name)
        validate_text(f"the doc of {subject}", self.doc)
        if self.kind not in KINDS:
            raise self._invalid(f"unknown kind {self.kind!r}, expected {', '.join(KINDS)}")
        object.__setattr__(
            self, "shape", shapes.validate_shape(subject, self.shape, feature=self.name)
        )
        if self.nan and self.kind != "float":
            raise self._invalid(f"{self.kind} values cannot be NaN", "leave out `nan`")
        if self.meaning is None:
            return
        if not isinstance(self.meaning, get_args(LogicalType)):
            raise self._invalid(
                f"invalid meaning {self.meaning!r}",
                "write Text(), Category(), Embedding(), Image('png') or Array('int32', (2, 3))",
                code="invalid-logical-type",
            )
        if self.kind not in self.meaning.kinds:
            raise self._invalid(
                f"{self.kind} values cannot be {self.meaning}",
                f"make the kind {' or '.join(self.meaning.kinds)}, or change the meaning",
                code="invalid-logical-type",
            )
        if isinstance(self.meaning, Embedding) and (
            len(self.shape) != 1 or not shapes.is_fixed(self.shape)
        ):
            raise self._invalid(
                f"embedding of shape {shapes.format_shape(self.shape)}",
                "use one dimension of a fixed length, such as (128,)",
                code="invalid-shape",
            )

    def _invalid(
        self, problem: str, advice: str = "", *, code: str = "invalid-schema"
    ) -> SchemaMismatchError:
        """Build the error for an invalid declaration of this feature."""
        return SchemaMismatchError(
            f"feature {self.name!r}: {problem}",
            code=code,
            hint=Hint.of(advice) if advice else None,
            feature=self.name,
        )

    def __str__(self) -> str:
        parts = [
            self.kind,
            shapes.format_shape(self.shape),
            "required" if self.required else "optional",
        ]
        parts += ["per step"] if self.sequence else []
        parts += ["or NaN"] if self.nan else []
        return " ".join(parts) + ("" if self.meaning is None else f", {self.meaning}")

    @property
    def key(self) -> tuple[bool, str]:
        """Key that identifies the feature in its schema and defines the order."""
        return self.sequence, self.name


@dataclass(frozen=True)
class Schema(JsonObject):
    """Features of each record of a version, in the order of their names.

    Features of the feature_lists follow the others.
    """

    json_label: ClassVar = "a schema"
    features: tuple[Feature, ...] = field(default=(), metadata=stored(required=True))
    payload: Payload = field(default="example", metadata=stored(required=True))
    doc: str = ""

    def __post_init__(self) -> None:
        """Raise SchemaMismatchError for features that no record can have together."""
        validate_text("the doc of a schema", self.doc)
        for feature in list_items(self.features, "features"):
            if not isinstance(feature, Feature):
                raise InvalidTypeError(
                    f"features: expected a Feature, got {type(feature).__name__}"
                )
        if self.payload not in get_args(Payload):
            raise SchemaMismatchError(
                f"unknown payload {self.payload!r}, expected {', '.join(get_args(Payload))}",
                code="invalid-schema",
            )
        ordered = tuple(sorted(self.features, key=lambda feature: feature.key))
        object.__setattr__(self, "features", ordered)
        if self.payload == "opaque" and ordered:
            raise SchemaMismatchError(
                "opaque payload with features",
                code="invalid-schema",
                hint=Hint.of("leave out the features, or use ", Option("payload", "example")),
            )
        if len(self._by_key) < len(ordered):
            twice = next(a for a, b in pairwise(ordered) if a.key == b.key)
            raise SchemaMismatchError(
                f"duplicate feature {twice.name!r}", code="duplicate-feature", feature=twice.name
            )
        lists = [feature.name for feature in ordered if feature.sequence]
        if lists and self.payload != "sequence_example":
            raise SchemaMismatchError(
                f"feature {lists[0]!r}: steps need a SequenceExample",
                code="invalid-schema",
                hint=Hint.of("use ", Option("payload", "sequence_example")),
                feature=lists[0],
            )

    @classmethod
    def opaque(cls, doc: str = "") -> Schema:
        """Return the schema of records that are not Examples. Any record fits it."""
        return cls((), "opaque", doc)

    @cached_property
    def _by_key(self) -> dict[tuple[bool, str], Feature]:
        return {feature.key: feature for feature in self.features}

    def find(self, name: str, *, sequence: bool | None = None) -> Feature | None:
        """Return the feature with this name, or None.

        A name may be in both the context and the feature_lists. Then `sequence` must select one of
        them, or SchemaMismatchError is raised.
        """
        matches = [
            self._by_key[which, name]
            for which in ((False, True) if sequence is None else (sequence,))
            if (which, name) in self._by_key
        ]
        if len(matches) > 1:
            raise SchemaMismatchError(
                f"ambiguous feature {name!r}: in the context and in the feature_lists",
                code="ambiguous-feature",
                hint=Hint.of(
                    "choose ",
                    Option("sequence", value=False),
                    " or ",
                    Option("sequence", value=True),
                ),
                feature=name,
            )
        return matches[0] if matches else None

    def feature(self, name: str, *, sequence: bool | None = None) -> Feature:
        """Return the feature as `find` does. Raises SchemaMismatchError if it is missing."""
        feature = self.find(name, sequence=sequence)
        if feature is None:
            raise make_unknown_feature_error(name, self)
        return feature

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all that affects data. Schemas that differ only in docs share it."""
        identities = [_identity(feature) for feature in self.features]
        return canonical.sha256({"features": identities, "payload": self.payload})

    def to_dict(self) -> Json:
        """Serialize to JSON, the payload first: people read it before a long list of features."""
        return {"payload": self.payload, **encode(self)}

    @classmethod
    def from_dict(cls, payload: object) -> Schema:
        """Parse schema JSON. Raises SchemaMismatchError if it is invalid."""
        try:
            return decode(cls, payload)
        except ValueError as error:
            raise SchemaMismatchError(
                f"invalid schema: {error}",
                code=error.code if isinstance(error, ShardlineError) else "invalid-schema",
                hint=error.hint if isinstance(error, ShardlineError) else None,
                feature=error.feature if isinstance(error, ShardlineError) else None,
            ) from None


def make_unknown_feature_error(name: str, schema: Schema) -> SchemaMismatchError:
    """Build the error for a feature that a schema does not have."""
    return SchemaMismatchError(
        f"unknown feature {name!r}",
        code="unknown-feature",
        hint=Hint.nearest(name, (feature.name for feature in schema.features), "features"),
        feature=name,
    )


def _identity(feature: Feature) -> Json:
    """Return the feature as JSON, without fields that do not affect data."""
    payload = feature.to_dict()
    payload.pop("doc", None)
    if feature.kind == "bytes" and isinstance(feature.meaning, Category) and feature.meaning.labels:
        payload["meaning"] = Category(tuple(sorted(feature.meaning.labels))).to_dict()
    return payload


_FRAME_BYTES = 16
_LONGEST = {"float": 4, "int64": 10}
"""Largest encoded size of a value: always 4 bytes for a float, up to 10 for an int64."""


def estimate_record_bytes(features: Iterable[Feature]) -> int | None:
    """Return the largest size of a record with these features, or None if unbounded."""
    inside = 0
    for feature in features:
        longest = _LONGEST.get(feature.kind)
        if longest is None or not shapes.is_fixed(feature.shape):
            return None
        values = _measure_field(_measure_field(longest * shapes.unit(feature.shape)))
        inside += _measure_field(
            _measure_field(len(feature.name.encode())) + _measure_field(values)
        )
    return _FRAME_BYTES + _measure_field(inside)


def _measure_field(size: int) -> int:
    """Return the size of a message field with its tag and length, for `size` bytes."""
    return 1 + max(1, (size.bit_length() + 6) // 7) + size


Key: TypeAlias = tuple[bool, str]


_SIDES = {False: "context:", True: "feature_lists:"}


def get_feature(schema: Schema, name: str) -> Feature:
    """Return the named feature. `context:x` and `feature_lists:x` name either of two.

    Raises SchemaMismatchError if the feature is missing or the name is ambiguous.
    """
    twice = find_duplicate_names(feature.key for feature in schema.features)
    if name in twice:
        both = " or ".join(repr(side + name) for side in _SIDES.values())
        raise SchemaMismatchError(
            f"feature {name!r} is in the context and in the feature_lists",
            code="ambiguous-feature",
            hint=Hint.of(f"write {both}"),
            feature=name,
        )
    for feature in schema.features:
        if feature.name in twice and name == get_full_name(feature):
            return feature
    return schema.feature(name)


def has_feature(schema: Schema, name: str) -> bool:
    """Return True if a name matches one feature, or ambiguously two."""
    return any(name in (feature.name, get_full_name(feature)) for feature in schema.features)


def get_full_name(feature: Feature) -> str:
    """Return the unambiguous name of a feature, with the prefix of its side."""
    return _SIDES[feature.sequence] + feature.name


def find_duplicate_names(keys: Iterable[Key]) -> set[str]:
    """Return the names that are in both the context and the feature_lists."""
    names: tuple[set[str], set[str]] = (set(), set())
    for sequence, name in keys:
        names[sequence].add(name)
    return names[0] & names[1]


def validate_unique_sides(names: Iterable[str], advice: Hint) -> None:
    """Raise SchemaMismatchError if any names would be in both context and feature_lists."""
    both = sorted(names)
    if both:
        raise SchemaMismatchError(
            f"context and feature_lists would both have {', '.join(map(repr, both))}",
            code="ambiguous-feature",
            hint=advice,
            feature=both[0],
        )
