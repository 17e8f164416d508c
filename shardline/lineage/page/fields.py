"""The fields of a version, and how they differ from those of the versions it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.lineage.page.model import Field
from shardline.lineage.page.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.lineage.page.model import Change
    from shardline.log.entry import Entry
    from shardline.provenance.catalog import Catalog
    from shardline.provenance.feature_origins import FieldOrigin
    from shardline.schema.schema import Feature, Schema

_NAME = 120


def fields_of(
    catalog: Catalog, schema: Schema, entries: Sequence[Entry], elder: str | None
) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """What a version is compared with, and its fields; those that are gone are behind the others.

    It is compared with the versions it was last made of. One that is made of none is compared with
    `elder`, the version of the dataset before it.
    """
    made = next((entry for entry in reversed(entries) if entry.inputs), None)
    names = [] if made is None else list(dict.fromkeys(one.shown for one in made.inputs))
    try:
        origins = {} if made is None else catalog.origins(made)
        old = {name: catalog.version(name).schema for name in names}
    except (ShardlineError, LookupError, TypeError, ValueError, AttributeError):
        return (), tuple(_declared(schema))  # it, or what it is made of, cannot be read
    if origins:
        return tuple(names), (*_derived(schema, origins, old), *_gone(origins, old))
    if elder is None:
        return (), tuple(_declared(schema))
    try:
        before = catalog.version(elder).schema
    except ShardlineError:
        return (), tuple(_declared(schema))
    return (elder,), tuple(_compared(schema, before))


def _declared(schema: Schema) -> Iterator[Field]:
    for feature in schema.features:
        yield _field(feature, "kept")


def _derived(
    schema: Schema, origins: Mapping[str, FieldOrigin], old: Mapping[str, Schema]
) -> Iterator[Field]:
    declared = {
        (name, feature.name): str(feature)
        for name, before in old.items()
        for feature in before.features
    }
    for feature in schema.features:
        origin = origins.get(feature.name)
        if origin is None:
            yield _field(feature, "added")
            continue
        was = declared.get(origin.of[0], "") if len(origin.of) == 1 else ""
        change = _change(feature, origin, was)
        told = was if change in {"cast", "changed"} and was != str(feature) else ""
        yield Field(
            shown(feature.name, _NAME),
            shown(feature),
            change,
            origin.how,
            tuple((version, shown(name, _NAME)) for version, name in origin.of),
            shown(origin.by),
            shown(told),
            shown(feature.doc),
        )


def _change(feature: Feature, origin: FieldOrigin, was: str) -> Change:
    if origin.how == "computed" or not origin.of:
        return "added"
    if origin.how != "kept":
        return origin.how
    return "kept" if was in {"", str(feature)} else "changed"


def _gone(origins: Mapping[str, FieldOrigin], old: Mapping[str, Schema]) -> Iterator[Field]:
    """The fields that a version does not have any more, under whatever name."""
    taken = {of for one in origins.values() if one.how != "computed" for of in one.of}
    for name, schema in old.items():
        for feature in schema.features:
            if (name, feature.name) not in taken:
                origin = ((name, shown(feature.name, _NAME)),)
                yield _field(feature, "removed", origin=origin)


def _compared(schema: Schema, before: Schema) -> Iterator[Field]:
    old = {feature.key: feature for feature in before.features}
    for feature in schema.features:
        other = old.pop(feature.key, None)
        if other is None:
            yield _field(feature, "added")
        elif str(other) == str(feature):
            yield _field(feature, "kept")
        else:
            yield _field(feature, "changed", was=shown(other))
    for feature in old.values():
        yield _field(feature, "removed")


def _field(
    feature: Feature,
    change: Change,
    *,
    origin: tuple[tuple[str, str], ...] = (),
    was: str = "",
) -> Field:
    name, spec, doc = shown(feature.name, _NAME), shown(feature), shown(feature.doc)
    return Field(name, spec, change, origin=origin, was=was, doc=doc)
