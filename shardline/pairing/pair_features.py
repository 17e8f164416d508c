"""Names of the features of a pair, and what to do if both sides have a name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

from shardline.arguments import validate_choice
from shardline.codec import JsonObject, stored
from shardline.errors import InvalidArgumentError, SchemaMismatchError
from shardline.hints import Hint, Option
from shardline.schema.schema import Schema, find_duplicate_names, validate_unique_sides

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shardline.canonical_json import Json
    from shardline.schema.schema import Feature, Key

OnCollision: TypeAlias = Literal["refuse", "prefix", "keep-left", "keep-right"]
_PREFIX = Hint.of(
    "set ", Option("on_collision", "prefix"), " and, for example, ", Option("right_prefix", "b_")
)


@dataclass(frozen=True, slots=True)
class PairNaming(JsonObject):
    """Options that name the features of a pair."""

    json_label: ClassVar = "a naming"
    on_collision: OnCollision = field(default="refuse", metadata=stored(required=True))
    left_prefix: str = ""
    right_prefix: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for a missing prefix, or for one that is not used."""
        validate_choice("on_collision", self.on_collision, get_args(OnCollision))
        has_prefix = bool(self.left_prefix or self.right_prefix)
        if self.on_collision == "prefix" and not has_prefix:
            raise InvalidArgumentError(
                "on_collision: missing prefix",
                code="missing-argument",
                hint=Hint.of(
                    "set ",
                    Option("left_prefix", "a_"),
                    ", ",
                    Option("right_prefix", "b_"),
                    " or both",
                ),
            )
        if self.on_collision != "prefix" and has_prefix:
            raise InvalidArgumentError(
                f"on_collision: {self.on_collision!r} takes no prefix",
                code="conflicting-arguments",
                hint=Hint.of("set ", Option("on_collision", "prefix"), ", or leave the prefix out"),
            )

    @classmethod
    def from_rule(cls, rule: Json) -> PairNaming:
        """Parse the rule of an entry, which has other keys too."""
        return cls(rule["on_collision"], rule.get("left_prefix", ""), rule.get("right_prefix", ""))


@dataclass(frozen=True, slots=True)
class PairFeatureNames:
    """Name in a pair of each feature of either side, None for a dropped one."""

    left: Mapping[Key, str | None]
    right: Mapping[Key, str | None]


def name_features(
    naming: PairNaming, left: Collection[Key], right: Collection[Key], shared: Collection[str] = ()
) -> PairFeatureNames:
    """Return the names of the features in a pair. Raises SchemaMismatchError if two are the same.

    The context and the feature_lists of a SequenceExample have separate names. `shared` are key
    features, which have the same value on both sides: a pair has them once.
    """
    prefixed = [
        {key: prefix + key[1] for key in keys}
        for prefix, keys in ((naming.left_prefix, left), (naming.right_prefix, right))
    ]
    of_left, of_right = ({(key[0], name) for key, name in side.items()} for side in prefixed)
    names, common = PairFeatureNames(prefixed[0], prefixed[1]), of_left & of_right
    if naming.on_collision != "prefix":
        # From the left, which every pair has: a record without a match keeps its key.
        same = {key for key in common if not key[0] and key[1] in shared}
        names = replace(names, right=_without(names.right, same))
        common -= same
    if naming.on_collision == "keep-left":
        return replace(names, right=_without(names.right, common))
    if naming.on_collision == "keep-right":
        return replace(names, left=_without(names.left, common))
    if not common:
        return names
    listed = ", ".join(
        _format_feature(key) for key in sorted(common, key=lambda key: (key[1], key[0]))
    )
    first = min(common, key=lambda key: (key[1], key[0]))[1]
    if naming.on_collision == "prefix":
        raise SchemaMismatchError(
            f"both sides have {listed} with these prefixes",
            code="feature-collision",
            hint=Hint.of("choose another prefix, or set a prefix for the other side too"),
            feature=first,
        )
    raise SchemaMismatchError(
        f"both sides have {listed}",
        code="feature-collision",
        hint=Hint.of(
            _PREFIX,
            ", or ",
            Option("on_collision", "keep-left"),
            " or ",
            Option("on_collision", "keep-right"),
        ),
        feature=first,
    )


def validate_side_names(names: PairFeatureNames, new: Collection[Key] = ()) -> None:
    """Raise SchemaMismatchError if the context and the feature_lists get the same name.

    A side that has such a name already may keep it.
    """
    sides = [
        {(key[0], name) for key, name in side.items() if name is not None}
        for side in (names.left, names.right)
    ]
    known = find_duplicate_names(sides[0]) | find_duplicate_names(sides[1])
    validate_unique_sides(
        find_duplicate_names({*sides[0], *sides[1]}) - known,
        _PREFIX,
    )
    rename = Hint.of("rename the new feature")
    validate_unique_sides(find_duplicate_names({*sides[0], *sides[1], *new}) - known, rename)


def _without(names: Mapping[Key, str | None], left_out: Collection[Key]) -> dict[Key, str | None]:
    return {key: None if (key[0], name) in left_out else name for key, name in names.items()}


def _format_feature(key: Key) -> str:
    return f"{key[1]!r}{' (in the feature_lists)' if key[0] else ''}"


def combine_schemas(
    left: Schema, right: Schema, names: PairFeatureNames, *, optional: bool
) -> Schema:
    """Return the schema of the pairs. With `optional`, right features may be missing."""
    of_left = _rename_features(left, names.left)
    of_right = _rename_features(right, names.right)
    if optional:
        of_right = [replace(feature, required=False) for feature in of_right]
    steps = "sequence_example" in {left.payload, right.payload}
    return Schema((*of_left, *of_right), "sequence_example" if steps else "example")


def _rename_features(schema: Schema, names: Mapping[Key, str | None]) -> list[Feature]:
    return [
        replace(feature, name=name)
        for feature in schema.features
        if (name := names[feature.key]) is not None
    ]


def validate_has_features(subject: str, schema: Schema) -> None:
    """Raise SchemaMismatchError for opaque records."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            f"{subject}: opaque records have no features to combine", code="opaque-records"
        )


def get_name_growth(names: Mapping[Key, str | None]) -> int:
    """Return by how many bytes the names in a record grow, if it has every feature."""
    renamed = ((key[1], name) for key, name in names.items() if name is not None)
    return sum(len(name.encode()) - len(old.encode()) for old, name in renamed)
