"""Schema mismatches between a source and a version."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.schema.arrow_types import find_mismatch, find_shape_mismatch, infer_arrow_feature
from shardline.schema.comparison import compare
from shardline.schema.schema import Array, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from shardline.schema.comparison import SchemaDiff
    from shardline.schema.schema import Feature

_WHAT_TO_DO = Hint.of(
    "append to a new version with the new schema, or convert the source to this schema"
)
_UNKNOWN = "not in the schema"


class SourceSchemaError(SchemaMismatchError):
    """Source whose schema differs from that of the version.

    `differences` lists dicts with `feature`, `change` (as `schema_diff` names it, or `unfit`),
    `old` and `new`; for an unfit column, `new` is the reason.
    """

    _DETAILS = ("differences",)

    def __init__(self, label: str, unfit: dict[str, str], diff: SchemaDiff) -> None:
        lines = [f"feature {name!r}: {reason}" for name, reason in unfit.items()] + diff.lines()
        listed = "".join(f"\n  {line}" for line in lines)
        self.differences: list[dict[str, Any]] = [
            *(
                {"feature": name, "change": "unfit", "old": "", "new": reason}
                for name, reason in unfit.items()
            ),
            *(
                {
                    "feature": change.feature,
                    "change": change.what,
                    "old": change.old,
                    "new": change.new,
                }
                for change in diff.changes
            ),
        ]
        names = list(dict.fromkeys(change["feature"] for change in self.differences))
        super().__init__(
            f"{label}: schema differs from that of the version:{listed}",
            hint=_WHAT_TO_DO,
            feature=names[0] if len(names) == 1 else None,
        )


def index_features_by_name(label: str, schema: Schema) -> dict[str, Feature]:
    """Index the features of a schema by column name."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            f"{label}: only TFRecord files can be appended to opaque records",
            code="opaque-records",
        )
    features = {feature.name: feature for feature in schema.features}
    if len(features) < len(schema.features):
        raise SchemaMismatchError(
            f"{label}: feature names are ambiguous (in the context and in the feature_lists)",
            code="ambiguous-feature",
            hint=Hint.of("append such records as TFRecord files"),
        )
    return features


def validate_types(label: str, schema: Schema, types: pa.Schema) -> None:
    """Raise SourceSchemaError for unknown, missing or mistyped columns that no row could fit."""
    by_name = index_features_by_name(label, schema)
    _validate_unique_names(label, types.names)
    own: list[Feature] = []
    unfit: dict[str, str] = {}
    for column in types:
        feature = by_name.get(column.name)
        reason = None
        if feature is not None:
            reason = find_mismatch(feature, column.type) or find_shape_mismatch(
                feature, column.type
            )
            if reason is None:
                own.append(feature)
                continue
        inferred = infer_arrow_feature(column.name, column.type)
        if inferred is None or (feature is not None and _is_indistinguishable(feature, inferred)):
            unfit[column.name] = reason or _UNKNOWN
            own += [] if feature is None else [feature]
        elif feature is None:
            own.append(inferred)
        else:
            own.append(replace(inferred, required=feature.required, meaning=None))
    there = set(types.names)
    own += [f for name, f in by_name.items() if not f.required and name not in there]
    _raise_schema_mismatch(label, schema, own, unfit)


def validate_names(label: str, schema: Schema, names: Sequence[str]) -> None:
    """Raise an error for unknown, missing or duplicate columns in a header.

    Unknown and missing columns raise SourceSchemaError, duplicates SchemaMismatchError.
    """
    by_name = index_features_by_name(label, schema)
    _validate_unique_names(label, names)
    unfit = {name: _UNKNOWN for name in names if name not in by_name}
    there = set(names)
    own = [f for name, f in by_name.items() if name in there or not f.required]
    _raise_schema_mismatch(label, schema, own, unfit)


def validate_rows(label: str, schema: Schema, own: Schema, *, exact: bool) -> None:
    """Raise SourceSchemaError if the schema of rows that do not fit differs.

    Other features or kinds count as differences; unless `exact`, integers and floats are
    interchangeable.
    """
    by_key = {feature.key: feature for feature in own.features}
    compared: list[Feature] = []
    for feature in schema.features:
        inferred = by_key.pop(feature.key, None)
        if inferred is None and not feature.required:
            compared.append(feature)
        elif inferred is not None:
            fits = (
                inferred.kind == feature.kind
                or isinstance(feature.meaning, Array)
                or (not exact and "bytes" not in {inferred.kind, feature.kind})
            )
            compared.append(feature if fits else inferred)
    _raise_schema_mismatch(label, schema, [*compared, *by_key.values()], {})


def _raise_schema_mismatch(
    label: str, schema: Schema, own: Iterable[Feature], unfit: dict[str, str]
) -> None:
    features = tuple(own)
    if not unfit and features == schema.features:
        return
    steps = any(feature.sequence for feature in features)
    payload = "sequence_example" if steps else schema.payload
    diff = compare(schema, replace(schema, features=features, payload=payload))
    if unfit or diff.changes:
        raise SourceSchemaError(label, unfit, diff)


def list_duplicate_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _validate_unique_names(label: str, names: Sequence[str]) -> None:
    twice = list_duplicate_names(names)
    if twice:
        raise SchemaMismatchError(
            f"{label}: duplicate column {twice[0]!r}",
            code="duplicate-column",
            hint=Hint.of("rename a column"),
            feature=twice[0],
        )


def _is_indistinguishable(feature: Feature, inferred: Feature) -> bool:
    """Return True if a comparison would not show the difference."""
    return (feature.kind, feature.shape, feature.sequence) == (
        inferred.kind,
        inferred.shape,
        inferred.sequence,
    )
