"""Tell when a source plainly has another schema than the version, and how the two differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from shardline.errors import SchemaMismatchError
from shardline.log.schema import Array, Schema
from shardline.log.schema_diff import compare
from shardline.sources.arrow_types import declared_by, misfit, misfit_of_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from shardline.log.schema import Feature

_WHAT_TO_DO = (
    "A version has one schema: make a new version with the new schema, or give the source the "
    "features of this one"
)


def features_by_name(shown: str, schema: Schema) -> dict[str, Feature]:
    """The features of a schema by the names that columns have."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            f"{shown}: the version holds opaque records, which come from TFRecord files only"
        )
    features = {feature.name: feature for feature in schema.features}
    if len(features) < len(schema.features):
        raise SchemaMismatchError(
            f"{shown}: the version has a feature of the same name in the context and in the "
            "feature_lists: only TFRecord files can hold both"
        )
    return features


def refuse_types(shown: str, schema: Schema, types: pa.Schema) -> None:
    """Refuse columns of which no row could fit: unknown, missing, or of a wrong type."""
    wanted = features_by_name(shown, schema)
    _refuse_twice(shown, types.names)
    own: list[Feature] = []
    lines: list[str] = []
    for column in types:
        feature = wanted.get(column.name)
        why = None
        if feature is not None:
            why = misfit(feature, column.type) or misfit_of_shape(feature, column.type)
            if why is None:
                own.append(feature)
                continue
        made = declared_by(column.name, column.type)
        if made is None or (feature is not None and _alike(feature, made)):
            lines.append(f"feature {column.name!r}: {why or 'not in the schema'}")
            own += [] if feature is None else [feature]
        elif feature is None:
            own.append(made)
        else:
            own.append(replace(made, required=feature.required, meaning=None))
    own += [f for name, f in wanted.items() if not f.required and name not in types.names]
    _refuse(shown, schema, own, lines)


def refuse_names(shown: str, schema: Schema, names: Sequence[str]) -> None:
    """Refuse a header with columns that are unknown, missing, or there twice."""
    wanted = features_by_name(shown, schema)
    _refuse_twice(shown, names)
    lines = [f"feature {name!r}: not in the schema" for name in names if name not in wanted]
    own = [f for name, f in wanted.items() if name in names or not f.required]
    _refuse(shown, schema, own, lines)


def refuse_rows(shown: str, schema: Schema, own: Schema, *, exact: bool) -> None:
    """Refuse rows of which none fit, if they have other features, or features of other kinds.

    Unless they are `exact`, whole numbers are as good as others.
    """
    told = {feature.key: feature for feature in own.features}
    made: list[Feature] = []
    for feature in schema.features:
        found = told.pop(feature.key, None)
        if found is None and not feature.required:
            made.append(feature)
        elif found is not None:
            fits = (
                found.kind == feature.kind
                or isinstance(feature.meaning, Array)
                or (not exact and "bytes" not in {found.kind, feature.kind})
            )
            made.append(feature if fits else found)
    _refuse(shown, schema, [*made, *told.values()], [])


def _refuse(shown: str, schema: Schema, own: Iterable[Feature], lines: list[str]) -> None:
    features = tuple(own)
    steps = any(feature.sequence for feature in features)
    payload = "sequence_example" if steps else schema.payload
    lines = lines + compare(schema, replace(schema, features=features, payload=payload)).lines()
    if lines:
        raise_other_schema(shown, lines)


def raise_other_schema(shown: str, lines: Iterable[str]) -> NoReturn:
    """Raise the error that tells of another schema, difference by difference."""
    told = "\n".join(f"  {line}" for line in lines)
    raise SchemaMismatchError(
        f"{shown}: not the schema of the version. It differs from that in:\n{told}\n{_WHAT_TO_DO}"
    )


def _refuse_twice(shown: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaMismatchError(
            f"{shown}: there are two columns with the name {twice[0]!r}: rename one of them"
        )


def _alike(feature: Feature, made: Feature) -> bool:
    """Whether a comparison would not show what is wrong."""
    return (feature.kind, feature.shape, feature.sequence) == (
        made.kind,
        made.shape,
        made.sequence,
    )
