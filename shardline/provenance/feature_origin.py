"""Where the features of a derived version come from, as its entries tell."""

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
    """What a feature is made of: features of other versions, and what made it of them.

    `of` are names of versions, with the features there. `by` is the function or table that made
    it, empty if it was taken over as it is, or under another name or kind. A feature that is
    "filled" has a value of its own where the records had none.
    """

    how: FeatureChange
    of: tuple[tuple[str, str], ...]
    by: str = ""


def infer_feature_origins(entry: Entry, inputs: Sequence[Schema]) -> dict[str, FeatureOrigin]:
    """Return the origin of each feature; empty if the entry has no inputs."""
    try:
        return _infer_origins(entry, inputs)
    except (AttributeError, KeyError, TypeError, ValueError, SchemaMismatchError):
        return {}


def _infer_origins(entry: Entry, inputs: Sequence[Schema]) -> dict[str, FeatureOrigin]:
    names = [one.label for one in entry.inputs]
    if entry.operation == "rebuild" and names:
        return _get_kept_origins(names[0], inputs[0])
    if entry.operation == "extend":
        extension = entry.read(ExtendParameters)
        if extension.problems.keys() & {"fields", "drop"}:
            return {}
        base = _get_kept_origins(names[0], inputs[0])
        kept = {name: one for name, one in base.items() if name not in extension.drop}
        return {**kept, **_get_computed_origins(base, inputs[0], extension.udfs)}
    if entry.operation == "migrate":
        return _get_migrated_origins(names[0], inputs[0], entry.read(MigrateParameters))
    if entry.operation == "combine" and has_rule(entry):
        return _get_combined_origins(names, inputs, entry.read(CombineParameters))
    return {}


def _get_kept_origins(version: str, schema: Schema) -> dict[str, FeatureOrigin]:
    return {one.name: FeatureOrigin("kept", ((version, one.name),)) for one in schema.features}


def _get_computed_origins(
    known: Mapping[str, FeatureOrigin], schema: Schema | None, udfs: Iterable[StoredUDF]
) -> dict[str, FeatureOrigin]:
    """Return the origins of computed features: those of the features that their UDF reads."""
    context = list(known)
    if schema is not None:
        context = [feature.name for feature in schema.features if not feature.sequence]
    found: dict[str, FeatureOrigin] = {}
    for udf in udfs:
        if problem := udf.problems.get("reads"):
            raise ValueError(problem)
        reads = context if udf.reads is None else udf.reads
        of = dict.fromkeys(one for name in reads if name in known for one in known[name].of)
        origin = FeatureOrigin("computed", tuple(of), udf.label)
        found |= dict.fromkeys(udf.features, origin)
    return found


def _get_migrated_origins(
    version: str, schema: Schema, parameters: MigrateParameters
) -> dict[str, FeatureOrigin]:
    rename, cast, filled = parameters.rename, parameters.cast, parameters.default
    there = [feature.name for feature in schema.features]
    found = {}
    known = [(said, one.name) for one in schema.features for said in (one.name, get_full_name(one))]
    for said, name in (*known, *((one, one) for one in filled if one not in dict(known))):
        how: FeatureChange = "renamed" if said in rename else "kept"
        how = "cast" if said in cast else "filled" if said in filled else how
        of = ((version, name),) if name in there else ()
        if said == name or how != "kept":
            found[rename.get(said, name)] = FeatureOrigin(how, of)
    for name in parameters.drop:
        found.pop(name, None)
    return found


def _get_combined_origins(
    names: Sequence[str], schemas: Sequence[Schema], parameters: CombineParameters
) -> dict[str, FeatureOrigin]:
    shared = [left for left, right in parameters.keys if left == right]
    left, right = ([feature.key for feature in schema.features] for schema in schemas)
    called = name_features(PairNaming.from_rule(parameters.rule), left, right, shared)
    found: dict[str, FeatureOrigin] = {}
    for version, side in zip(names, (called.left, called.right), strict=True):
        for (_, feature), name in side.items():
            if name is not None:
                how: FeatureChange = "kept" if name == feature else "renamed"
                # A name may stand in the context of one side, and in the feature_lists of another.
                known = found[name].of if name in found else ()
                found[name] = FeatureOrigin(how, (*known, (version, feature)))
    return {**found, **_get_computed_origins(found, None, parameters.udfs)}
