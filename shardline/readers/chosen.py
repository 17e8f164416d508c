"""Which features of a schema a reader was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import InvalidArgumentError, SchemaMismatchError
from shardline.hints import Hint
from shardline.paths import each_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.schema.schema import Feature, Schema


def chosen_features(schema: Schema, columns: Sequence[str] | None, raw: Hint) -> list[Feature]:
    """The features of these names in their order, all of them for None.

    A name in both the context and the feature_lists selects both. `raw` says how to read records
    without features.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features", code="opaque-records", hint=raw
        )
    if isinstance(columns, str):
        raise InvalidArgumentError(
            "invalid columns: expected a list of names, got a string",
            hint=Hint.of(f"pass [{columns!r}]"),
        )
    if columns is not None:
        columns = [str(name) for name in each_of(columns, "columns")]
    if columns is None:
        found = list(schema.features)
    else:
        found = [feature for name in columns for feature in _named(schema, name)]
    if not found:
        raise SchemaMismatchError(
            "no features selected",
            code="no-features",
            hint=Hint.of("name at least one feature, or ", raw),
        )
    keys = [feature.key for feature in found]
    for feature in found:
        if keys.count(feature.key) > 1:
            raise SchemaMismatchError(
                f"duplicate column {feature.name!r}", code="duplicate-feature", feature=feature.name
            )
    return found


def _named(schema: Schema, name: str) -> list[Feature]:
    found = [feature for feature in schema.features if feature.name == name]
    if not found:
        known = ", ".join(repr(feature.name) for feature in schema.features) or "none"
        raise SchemaMismatchError(
            f"unknown feature {name!r}",
            code="unknown-feature",
            feature=name,
            hint=Hint.of(f"the schema has {known}"),
        )
    return found
