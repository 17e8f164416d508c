"""Bind the options of a combination to the schemas of its inputs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.types import Column
from shardline.pairing.pair_features import (
    combine_schemas,
    name_features,
    validate_has_features,
    validate_side_names,
)
from shardline.udf.predicate_filter import PredicateFilter
from shardline.udf.transform import BoundUDFs, Transform
from shardline.udf.udf_declaration import FunctionUDF

if TYPE_CHECKING:
    from collections.abc import Collection

    from shardline.pairing.combine_spec import CombineSpec
    from shardline.pairing.pair_features import PairFeatureNames
    from shardline.schema.schema import Feature, Key, Schema

_KEY_KINDS = ("int64", "bytes")


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Key features of both sides, in the same order."""

    left: tuple[Column, ...] = ()
    right: tuple[Column, ...] = ()


def get_key_columns(spec: CombineSpec, left: Schema, right: Schema) -> KeyColumns:
    """Return the columns of the key features. Raises SchemaMismatchError for invalid ones."""
    columns: tuple[list[Column], list[Column]] = ([], [])
    for names in spec.on:
        features = [
            _find_key_feature(label, schema, name)
            for label, schema, name in zip(("left", "right"), (left, right), names, strict=True)
        ]
        if features[0].kind != features[1].kind:
            raise SchemaMismatchError(
                f"key {names[0]!r} of the left has type {features[0].kind}, key {names[1]!r} of "
                f"the right {features[1].kind}",
                code="key-mismatch",
                hint=Hint.of("migrate a side to the type of the other"),
                feature=names[0],
            )
        for feature, side in zip(features, columns, strict=True):
            side.append(Column(feature.name, feature.kind))
    return KeyColumns(tuple(columns[0]), tuple(columns[1]))


def _find_key_feature(side: str, schema: Schema, name: str) -> Feature:
    feature = schema.find(name, sequence=False)
    if feature is None:
        known = (other.name for other in schema.features if not other.sequence)
        raise SchemaMismatchError(
            f"unknown feature {name!r} of the {side}",
            code="unknown-feature",
            hint=Hint.nearest(name, known, "features"),
            feature=name,
        )
    if feature.kind not in _KEY_KINDS or feature.shape:
        raise SchemaMismatchError(
            f"feature {name!r} of the {side} cannot be a key ({feature})",
            code="invalid-key",
            hint=Hint.of("choose a feature with a single int64 or bytes value"),
            feature=name,
        )
    return feature


@dataclass(frozen=True, slots=True)
class BoundCombineSpec:
    """A spec for records of two schemas, with its functions bound to the features of pairs.

    All tasks share the functions. Another process binds them again.
    """

    spec: CombineSpec
    names: PairFeatureNames
    keys: KeyColumns = field(default_factory=KeyColumns)
    where: BoundUDFs | None = None
    udfs: BoundUDFs | None = None

    def validate_side_names(self) -> None:
        """Raise SchemaMismatchError if the context and the feature_lists get the same name.

        Existing versions with such pairs can still be read.
        """
        new = [feature.key for udf in self.spec.udfs for feature in udf.features]
        validate_side_names(self.names, new)

    def close(self) -> None:
        """Close the functions."""
        for bound in (self.where, self.udfs):
            if bound is not None:
                bound.__exit__()


def bind_plain_spec(
    spec: CombineSpec, left: Collection[Key], right: Collection[Key]
) -> BoundCombineSpec:
    """Bind a spec that reads no values, so that names are enough."""
    return BoundCombineSpec(spec, name_features(spec.naming, left, right))


def _list_side_names(names: PairFeatureNames) -> dict[str, str]:
    """Map `left.NAME` and `right.NAME` to names in a pair; a pair's own name comes first."""
    sides = [
        {key[1]: name for key, name in side.items() if name is not None and not key[0]}
        for side in (names.left, names.right)
    ]
    return {
        f"{label}.{name}": new
        for label, side in zip(("left", "right"), sides, strict=True)
        for name, new in side.items()
        if all(f"{label}.{name}" not in side.values() for side in sides)
    }


def bind_spec(spec: CombineSpec, left: Schema, right: Schema) -> tuple[BoundCombineSpec, Schema]:
    """Bind a spec to records of two schemas. Returns it with the schema of the pairs.

    Raises SchemaMismatchError if names collide, or if a feature is missing.
    """
    for label, schema in (("the left", left), ("the right", right)):
        validate_has_features(label, schema)
    keys = get_key_columns(spec, left, right)
    shared = [name for name, other in spec.on if name == other]
    names = name_features(
        spec.naming,
        [feature.key for feature in left.features],
        [feature.key for feature in right.features],
        shared,
    )
    pairs = combine_schemas(left, right, names, optional=spec.how == "left")
    known = {feature.key for feature in pairs.features}
    new = [feature for udf in spec.udfs for feature in udf.features]
    for feature in new:
        if feature.key in known:
            raise SchemaMismatchError(
                f"feature {feature.name!r} exists already",
                code="duplicate-feature",
                hint=Hint.of("rename the new feature"),
                feature=feature.name,
            )
        known.add(feature.key)
    after = replace(pairs, features=(*pairs.features, *new))
    chooser = spec.where
    if isinstance(chooser, PredicateFilter):
        chooser = chooser.alias(_list_side_names(names))
    for udf in spec.udfs if chooser is None else (chooser, *spec.udfs):
        if isinstance(udf, FunctionUDF | PredicateFilter):
            udf.validate(pairs)
    where = udfs = None
    if chooser is not None:
        where = BoundUDFs(Transform(pairs, pairs, {}, (chooser,)))
    if spec.udfs:
        udfs = BoundUDFs(Transform(pairs, after, {}, spec.udfs))
    return BoundCombineSpec(spec, names, keys, where, udfs), after
