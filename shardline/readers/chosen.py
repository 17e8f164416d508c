"""Which features of a schema a reader was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.log.schema import Feature, Schema


def chosen_features(schema: Schema, columns: Sequence[str] | None, raw: str) -> list[Feature]:
    """The features of these names in their order, all of them for None.

    A name that stands in the context and in the feature_lists stands for both. `raw` tells how
    records can be read that have no features.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(f"the records are opaque, and have no features to read: {raw}")
    if isinstance(columns, str):
        raise SchemaMismatchError(f"columns are several names: write [{columns!r}]")
    if columns is None:
        found = list(schema.features)
    else:
        found = [feature for name in columns for feature in _named(schema, name)]
    if not found:
        raise SchemaMismatchError(f"there is no feature to read: name one at least, or {raw}")
    if len({feature.key for feature in found}) < len(found):
        raise SchemaMismatchError("a column is asked for twice: name each once")
    return found


def _named(schema: Schema, name: str) -> list[Feature]:
    found = [feature for feature in schema.features if feature.name == name]
    return found or [schema.feature(name)]
