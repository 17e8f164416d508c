"""What a maker of fields declares, checked before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import FieldsError, SchemaMismatchError
from shardline.hints import Hint, Option
from shardline.schema.logical_types import check_text
from shardline.schema.schema import Feature

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.schema.schema import Schema


_DECLARE = Hint.of("declare each feature that it computes, e.g. `Feature('area', 'int64')`")


def checked_features(shown: str, features: Iterable[object]) -> tuple[Feature, ...]:
    """The features that are made; FieldsError if they cannot be."""
    found: list[Feature] = []
    for feature in features:
        if not isinstance(feature, Feature):
            raise FieldsError(
                f"{shown}: expected a Feature, got {type(feature).__name__}",
                code="invalid-udf",
                hint=_DECLARE,
            )
        if feature.sequence:
            raise FieldsError(
                f"{shown}: cannot compute a sequence feature ({feature.name!r})",
                code="invalid-udf",
                hint=Hint.of("leave out ", Option("sequence"), ": new features are in the context"),
                feature=feature.name,
            )
        if feature.name in {other.name for other in found}:
            raise FieldsError(
                f"{shown}: duplicate feature {feature.name!r}",
                code="duplicate-feature",
                feature=feature.name,
            )
        found.append(feature)
    if not found:
        raise FieldsError(f"{shown}: no features declared", code="no-features", hint=_DECLARE)
    return tuple(found)


def checked_reads(shown: str, reads: object) -> tuple[str, ...]:
    """The names of the features that are read; FieldsError if these are none."""
    if isinstance(reads, str) or not isinstance(reads, list | tuple):
        raise FieldsError(
            f"{shown}: invalid reads: expected a list of names",
            code="invalid-argument",
            hint=Hint.of("pass a list such as `reads=['image']`"),
        )
    names = tuple(reads)
    if not names or not all(isinstance(name, str) for name in names):
        raise FieldsError(
            f"{shown}: invalid reads: expected at least 1 feature name", code="invalid-argument"
        )
    for name in names:
        if names.count(name) > 1:
            raise FieldsError(
                f"{shown}: duplicate feature {name!r} in reads",
                code="duplicate-feature",
                feature=name,
            )
    return names


def checked_code(shown: str, code: object) -> None:
    """Refuse what is no code version."""
    if code is None:
        return
    if not isinstance(code, str) or not code:
        raise FieldsError(
            f"{shown}: invalid code version: expected a string",
            code="invalid-argument",
            hint=Hint.of("pass a string, e.g. ", Option("code", "1")),
        )
    check_text(f"the code version of {shown}", code)


def found_features(shown: str, reads: tuple[str, ...] | None, schema: Schema) -> list[Feature]:
    """The features of these names; without names all of the context.

    A name that stands in the context and in the feature_lists means that in the context.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            f"{shown}: opaque records have no features", code="opaque-records"
        )
    known = {feature.key: feature for feature in schema.features}
    if reads is None:
        context = [feature for feature in schema.features if not feature.sequence]
        if not context:
            raise SchemaMismatchError(
                f"{shown}: the context has no features to read",
                code="no-features",
                hint=Hint.of("name the features of the feature_lists that it reads in `reads`"),
            )
        return context
    found = []
    for name in reads:
        feature = known.get((False, name)) or known.get((True, name))
        if feature is None:
            names = [feature.name for feature in schema.features]
            close = Hint.closest(name, (one for one in names if one not in reads))
            has = f"the schema has {', '.join(map(repr, names)) or 'none'}"
            raise SchemaMismatchError(
                f"{shown}: unknown feature {name!r}",
                code="unknown-feature",
                hint=Hint.of(close, " " if close else "", has),
                feature=name,
            )
        found.append(feature)
    return found
