"""Origins of the features of a derived version, by its log entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import SchemaMismatchError
from shardline.log.parameters import (
    CombineParameters,
    ExtendParameters,
    MigrateParameters,
    StoredUDF,
)
from shardline.pairing.coverage import has_rule
from shardline.pairing.pair_features import PairNaming, name_features
from shardline.schema.schema import get_full_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shardline.log.entry import Entry
    from shardline.schema.schema import Schema


FeatureChange: TypeAlias = Literal["kept", "renamed", "cast", "filled", "computed"]


@dataclass(frozen=True, slots=True)
class FeatureOrigin:
    """The upstream features of a feature, by version and name, and how it derives from them.

    `function` is the label of the UDF or table that computed it. A "filled" feature has a default
    value where the upstream records have none.
    """

    change: FeatureChange
    upstream: tuple[tuple[str, str], ...]
    function: str = ""


def infer_feature_origins(entry: Entry, inputs: Sequence[Schema]) -> dict[str, FeatureOrigin]:
    """Return the origin of each feature; empty if the entry has no inputs."""
    try:
        return _infer_origins(entry, inputs)
    except (AttributeError, KeyError, TypeError, ValueError, SchemaMismatchError):
        return {}


def _infer_origins(entry: Entry, inputs: Sequence[Schema]) -> dict[str, FeatureOrigin]:
    names = [source.label for source in entry.inputs]
    if entry.operation == "rebuild" and names:
        return _get_unchanged_origins(names[0], inputs[0])
    if entry.operation == "extend":
        extension = entry.read(ExtendParameters)
        if extension.problems.keys() & {"fields", "drop"}:
            return {}
        base = _get_unchanged_origins(names[0], inputs[0])
        unchanged = {name: origin for name, origin in base.items() if name not in extension.drop}
        return {**unchanged, **_get_computed_origins(base, inputs[0], extension.udfs)}
    if entry.operation == "migrate":
        return _get_migrated_origins(names[0], inputs[0], entry.read(MigrateParameters))
    if entry.operation == "combine" and has_rule(entry):
        return _get_combined_origins(names, inputs, entry.read(CombineParameters))
    return {}


def _get_unchanged_origins(version: str, schema: Schema) -> dict[str, FeatureOrigin]:
    names = [feature.name for feature in schema.features]
    return {name: FeatureOrigin("kept", ((version, name),)) for name in names}


def _get_computed_origins(
    known: Mapping[str, FeatureOrigin], schema: Schema | None, udfs: Iterable[StoredUDF]
) -> dict[str, FeatureOrigin]:
    """Return the origins of computed features: those of the features that their UDF reads."""
    context = list(known)
    if schema is not None:
        context = [feature.name for feature in schema.features if not feature.sequence]
    origins: dict[str, FeatureOrigin] = {}
    for udf in udfs:
        if problem := udf.problems.get("reads"):
            raise ValueError(problem)
        reads = context if udf.reads is None else udf.reads
        upstream = dict.fromkeys(
            feature for name in reads if name in known for feature in known[name].upstream
        )
        origin = FeatureOrigin("computed", tuple(upstream), udf.label)
        origins |= dict.fromkeys(udf.features, origin)
    return origins


def _get_migrated_origins(
    version: str, schema: Schema, parameters: MigrateParameters
) -> dict[str, FeatureOrigin]:
    rename, cast, filled = parameters.rename, parameters.cast, parameters.default
    existing = [feature.name for feature in schema.features]
    # Parameters contain names or full names.
    keys = {
        key: feature.name
        for feature in schema.features
        for key in (feature.name, get_full_name(feature))
    }
    origins = {}
    for key, name in {**keys, **{name: name for name in filled if name not in keys}}.items():
        change: FeatureChange = "renamed" if key in rename else "kept"
        change = "cast" if key in cast else "filled" if key in filled else change
        upstream = ((version, name),) if name in existing else ()
        if key == name or change != "kept":
            origins[rename.get(key, name)] = FeatureOrigin(change, upstream)
    for name in parameters.drop:
        origins.pop(name, None)
    return origins


def _get_combined_origins(
    names: Sequence[str], schemas: Sequence[Schema], parameters: CombineParameters
) -> dict[str, FeatureOrigin]:
    shared = [left for left, right in parameters.keys if left == right]
    left, right = ([feature.key for feature in schema.features] for schema in schemas)
    names_in_pair = name_features(PairNaming.from_rule(parameters.rule), left, right, shared)
    origins: dict[str, FeatureOrigin] = {}
    for version, side in zip(names, (names_in_pair.left, names_in_pair.right), strict=True):
        for (_, feature), name in side.items():
            if name is not None:
                change: FeatureChange = "kept" if name == feature else "renamed"
                # The same name may be in the context of one side and the lists of the other.
                known = origins[name].upstream if name in origins else ()
                origins[name] = FeatureOrigin(change, (*known, (version, feature)))
    return {**origins, **_get_computed_origins(origins, None, parameters.udfs)}
