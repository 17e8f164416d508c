"""Names of features that are in both the context and the feature_lists of a SequenceExample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.schema.schema import Feature, Key, Schema


_SIDES = {False: "context:", True: "feature_lists:"}


def named_feature(schema: Schema, name: str) -> Feature:
    """The feature that a name means; `context:x` and `feature_lists:x` tell two of one name apart.

    Raises SchemaMismatchError if there is none, or if it may be either.
    """
    twice = doubled(feature.key for feature in schema.features)
    if name in twice:
        both = " or ".join(repr(side + name) for side in _SIDES.values())
        raise SchemaMismatchError(
            f"feature {name!r} is in the context and in the feature_lists",
            code="ambiguous-feature",
            hint=Hint.of(f"write {both}"),
            feature=name,
        )
    for feature in schema.features:
        if feature.name in twice and name == full_name(feature):
            return feature
    return schema.feature(name)


def has_feature(schema: Schema, name: str) -> bool:
    """Whether a name means a feature, or may mean two."""
    return any(name in (feature.name, full_name(feature)) for feature in schema.features)


def full_name(feature: Feature) -> str:
    """What a feature is called where its name alone may mean another one."""
    return _SIDES[feature.sequence] + feature.name


def doubled(keys: Iterable[Key]) -> set[str]:
    """The names that are in the context and in the feature_lists."""
    names: tuple[set[str], set[str]] = (set(), set())
    for sequence, name in keys:
        names[sequence].add(name)
    return names[0] & names[1]


def refuse_doubled(names: Iterable[str], advice: Hint) -> None:
    """Refuse names that would be in the context and in the feature_lists, if there are any."""
    both = sorted(names)
    if both:
        raise SchemaMismatchError(
            f"context and feature_lists would both have {', '.join(map(repr, both))}",
            code="ambiguous-feature",
            hint=advice,
            feature=both[0],
        )
