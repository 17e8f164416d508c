"""Migrate: the records of a version under another schema, in a version of their own.

Features are renamed, left out, cast to another kind, or given a value where they are missing. What
is not named goes on byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardline.errors import InvalidArgumentError, InvalidTypeError, SchemaMismatchError
from shardline.execution.executor import Threads
from shardline.hints import Hint, Option
from shardline.log.version import refuse_no_version
from shardline.operations.change_shards import ShardChange, packing
from shardline.operations.recast import Cast, Constant, Filled, declared_value
from shardline.schema.feature_names import has_feature, named_feature
from shardline.schema.logical_types import Array, Image
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf.transform import Transform, unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import Engine, Listener
    from shardline.log.model import Checks
    from shardline.log.version import StoredVersion
    from shardline.operations.change_shards import ChangeReport
    from shardline.schema.schema import Feature, Kind, Schema
    from shardline.tfrecord.compression import Compression
    from shardline.tfrecord.reader import Limits
    from shardline.udf.base import Fields


@dataclass(frozen=True, slots=True)
class Steps:
    """What a migration changes; every feature is named as the old version calls it.

    Where the context and the feature_lists have the same name, `context:x` and `feature_lists:x`
    tell them apart.
    `default` is the value of records that lack the feature, which is required from then on. If no
    record has it, all get it.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    cast: Mapping[str, Kind] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take what is to be dropped twice for once."""
        object.__setattr__(self, "drop", tuple(dict.fromkeys(self.drop)))

    def to_json(self) -> Json:
        """The steps as an entry tells them."""
        told: Json = {
            "rename": dict(self.rename),
            "drop": list(self.drop),
            "cast": dict(self.cast),
            "default": sorted(self.default),
        }
        return {name: steps for name, steps in told.items() if steps}

    def lines(self) -> list[str]:
        """The steps in words, in the order in which they are named here."""
        lines = [f"rename {old!r} to {new!r}" for old, new in self.rename.items()]
        lines += [f"drop {name!r}" for name in self.drop]
        lines += [f"cast {name!r} to {kind}" for name, kind in self.cast.items()]
        lines += [f"give {name!r} a value where it is missing" for name in self.default]
        return lines


def migrate(
    base: StoredVersion,
    into: StoredVersion,
    steps: Steps,
    *,
    which: str | int = "published",
    compression: Compression | str | None = None,
    quarantine_share: float = 0.0,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
    engine: Engine | None = None,
    progress: Listener | None = None,
) -> ChangeReport:
    """Make the records of a snapshot those of another version, with another schema.

    What is there already is not made again, so that the new version can follow the old one. A
    value that the new kind cannot hold stops it with BadRecordsError, and nothing is committed; or
    up to a share of such records go to quarantine, and are missing in the new version. A new
    version gets `checks`, or those of the base.
    """
    work = planned_migration(
        base,
        into,
        steps,
        which=which,
        compression=compression,
        quarantine_share=quarantine_share,
        checks=checks,
        limits=limits,
    )
    return work.done(engine or Threads(), progress)


def planned_migration(
    base: StoredVersion,
    into: StoredVersion,
    steps: Steps,
    *,
    which: str | int = "published",
    compression: Compression | str | None = None,
    quarantine_share: float = 0.0,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> ShardChange:
    """The same, ready to be done: its `plan` tells what it would do."""
    refuse_no_version(base=base, into=into)
    base.refresh()
    snapshot = base.find(which)
    return ShardChange(
        "migrate",
        base,
        snapshot,
        into,
        migration(snapshot.schema, steps),
        "rewrite",
        packing(compression),
        quarantine_share,
        limits,
        steps.to_json(),
        checks,
    )


def migration(schema: Schema, steps: Steps) -> Transform:
    """The transform that migrates records of a schema. Raises SchemaMismatchError if none can."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features to migrate", code="opaque-records"
        )
    validate_steps(steps)
    names = unchanged(schema)
    after = {feature.key: feature for feature in schema.features}
    fields: list[Fields] = []
    for old, new in steps.rename.items():
        feature = named_feature(schema, old)
        names[feature.key] = new
        after[feature.key] = replace(feature, name=new)
    for name in steps.drop:
        key = named_feature(schema, name).key
        names[key] = None
        del after[key]
    for name, kind in steps.cast.items():
        feature = named_feature(schema, name)
        cast = Cast(_cast(feature, kind, steps.rename.get(name, feature.name)), feature.name)
        names[feature.key] = None
        after[feature.key] = cast.feature
        fields.append(cast)
    for name, value in steps.default.items():
        given = _given(schema, name, steps.rename.get(name), value)
        key = (False, given.name) if isinstance(given, Filled) else given.feature.key
        after[key] = replace(given.feature, required=True)
        fields.append(given)
    return Transform(schema, replace(schema, features=tuple(after.values())), names, tuple(fields))


def validate_steps(steps: Steps) -> None:
    """Raise ValueError for steps that change nothing, or that contradict each other."""
    if not isinstance(steps, Steps):
        raise InvalidTypeError(f"steps: expected Steps, got {type(steps).__name__}")
    if not steps.lines():
        raise InvalidArgumentError(
            "nothing to migrate",
            code="missing-argument",
            hint=Hint.of(
                "set ",
                Option("rename"),
                ", ",
                Option("drop"),
                ", ",
                Option("cast"),
                " or ",
                Option("default"),
            ),
        )
    for old, new in steps.rename.items():
        if not new:
            raise SchemaMismatchError(
                f"feature {old!r}: the new name is empty", code="invalid-name", feature=old
            )
    for name in steps.drop:
        for other, what in (
            (steps.rename, "renamed"),
            (steps.cast, "cast"),
            (steps.default, "set"),
        ):
            if name in other:
                raise SchemaMismatchError(
                    f"feature {name!r}: cannot be both dropped and {what}",
                    code="conflicting-arguments",
                    feature=name,
                )
    for name in steps.cast:
        if name in steps.default:
            raise SchemaMismatchError(
                f"feature {name!r}: cannot be both cast and given a default",
                code="conflicting-arguments",
                hint=Hint.of("migrate twice"),
                feature=name,
            )


def _cast(feature: Feature, kind: Kind, name: str) -> Feature:
    """The feature with values of another kind."""
    if feature.sequence:
        raise SchemaMismatchError(
            f"feature {feature.name!r}: cannot cast a feature of the feature_lists",
            code="unsupported-feature",
            feature=feature.name,
        )
    if "bytes" in {feature.kind, kind}:
        raise SchemaMismatchError(
            f"feature {feature.name!r}: cannot cast {feature.kind} to {kind}",
            code="unsupported-cast",
            hint=Hint.of("cast int64 to float or float to int64, or compute a new feature"),
            feature=feature.name,
        )
    if feature.kind == kind:
        raise SchemaMismatchError(
            f"feature {feature.name!r} has type {kind} already",
            code="redundant-cast",
            feature=feature.name,
        )
    meaning = feature.meaning
    if meaning is not None and kind not in meaning.kinds:
        meaning = None
    return replace(feature, name=name, kind=kind, meaning=meaning, nan=False)


def _given(schema: Schema, old: str, new: str | None, value: object) -> Constant | Filled:
    """What gives records a value: all of them, or those that lack it."""
    if not has_feature(schema, old):
        return Constant(declared_value(old, value), value)
    feature = named_feature(schema, old)
    return Filled(_fillable(feature, new or feature.name), feature.name, value)


def _fillable(feature: Feature, name: str) -> Feature:
    if feature.sequence:
        raise SchemaMismatchError(
            f"feature {feature.name!r}: cannot give a default to a feature of the feature_lists",
            code="unsupported-feature",
            feature=feature.name,
        )
    if feature.required:
        raise SchemaMismatchError(
            f"feature {feature.name!r}: cannot give a default to a required feature",
            code="required-feature",
            feature=feature.name,
        )
    if isinstance(feature.meaning, Array | Image):
        raise SchemaMismatchError(
            f"feature {feature.name!r}: cannot give a default to {feature.meaning}",
            code="unsupported-feature",
            hint=Hint.of("compute a new feature"),
            feature=feature.name,
        )
    return replace(feature, name=name)
