"""What a maker of fields declares, checked before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import FieldsError, SchemaMismatchError
from shardline.log.meanings import check_text
from shardline.log.schema import Feature

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.schema import Schema


def checked_features(shown: str, features: Iterable[object]) -> tuple[Feature, ...]:
    """The features that are made; FieldsError if they cannot be."""
    found: list[Feature] = []
    for feature in features:
        if not isinstance(feature, Feature):
            raise FieldsError(
                f"{shown} declares a {type(feature).__name__} where a Feature belongs: declare "
                "each field that it makes, as in Feature('area', 'int64')"
            )
        if feature.sequence:
            raise FieldsError(
                f"{shown} declares {feature.name!r} with steps: a new field is one of the "
                "context; leave sequence out"
            )
        if feature.name in {other.name for other in found}:
            raise FieldsError(f"{shown} declares {feature.name!r} twice: declare it once")
        found.append(feature)
    if not found:
        raise FieldsError(
            f"{shown} declares no field: declare each that it makes, as in Feature('area', 'int64')"
        )
    return tuple(found)


def checked_reads(shown: str, reads: object) -> tuple[str, ...]:
    """The names of the features that are read; FieldsError if these are none."""
    if isinstance(reads, str) or not isinstance(reads, list | tuple):
        raise FieldsError(f"{shown}: reads is a list of names, as in reads=['image']")
    names = tuple(reads)
    if not names or not all(isinstance(name, str) for name in names):
        raise FieldsError(f"{shown}: reads must name a feature at least, and nothing but features")
    if len(set(names)) < len(names):
        raise FieldsError(f"{shown}: reads names a feature twice: name each once")
    return names


def checked_code(shown: str, code: object) -> None:
    """Refuse what is no code version."""
    if code is None:
        return
    if not isinstance(code, str) or not code:
        raise FieldsError(f"{shown}: code is a version in text, as in code='1'")
    check_text(f"the code version of {shown}", code)


def found_features(shown: str, reads: tuple[str, ...] | None, schema: Schema) -> list[Feature]:
    """The features of these names; without names all of the context.

    A name that stands in the context and in the feature_lists means that in the context.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(f"{shown} reads features, and opaque records have none")
    known = {feature.key: feature for feature in schema.features}
    if reads is None:
        context = [feature for feature in schema.features if not feature.sequence]
        if not context:
            raise SchemaMismatchError(
                f"{shown} reads all features of the context, and there is none: say which ones of "
                "the feature_lists it reads, with reads=[...]"
            )
        return context
    found = []
    for name in reads:
        feature = known.get((False, name)) or known.get((True, name))
        if feature is None:
            has = ", ".join(repr(feature.name) for feature in schema.features) or "none"
            raise SchemaMismatchError(
                f"{shown} reads {name!r}, which is not in the schema of the records: it has {has}"
            )
        found.append(feature)
    return found
