"""One name in the context and in the feature_lists of a SequenceExample: which of the two is meant.

Foreign files may have such names, and are read. None is made here: a reader that asks for a column
could not tell which it gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.schema import Feature, Schema
    from shardline.operations.transform import Key, Transform

_SIDES = {False: "context:", True: "feature_lists:"}


def named_feature(schema: Schema, name: str) -> Feature:
    """The feature that a name means; `context:x` and `feature_lists:x` tell two of one name apart.

    Raises SchemaMismatchError if there is none, or if it may be either.
    """
    twice = doubled(feature.key for feature in schema.features)
    if name in twice:
        both = " or ".join(repr(side + name) for side in _SIDES.values())
        raise SchemaMismatchError(
            f"feature {name!r} is in the context and in the feature_lists: write {both}"
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


def refuse_doubled(names: Iterable[str], advice: str) -> None:
    """Refuse names that would be in the context and in the feature_lists, if there are any."""
    listed = ", ".join(map(repr, sorted(names)))
    if listed:
        raise SchemaMismatchError(
            f"the context and the feature_lists would both have {listed}, and readers could not "
            f"tell which is meant: {advice}"
        )


def refuse_doubling(transform: Transform) -> None:
    """Refuse to give something new a name that stays on the other side of a SequenceExample."""
    before, after = (
        doubled(feature.key for feature in schema.features)
        for schema in (transform.before, transform.after)
    )
    refuse_doubled(after - before, "choose another name, or drop or rename what has it")
