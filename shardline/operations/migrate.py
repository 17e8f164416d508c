"""Migrate: the records of a version under another schema, in a version of their own.

Features are renamed, left out, cast to another kind, or given a value where they are missing. What
is not named goes on byte for byte.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline import canonical_json as canonical
from shardline.errors import InvalidArgumentError, InvalidTypeError, SchemaMismatchError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint, Option
from shardline.log.parameters import MigrateParameters
from shardline.log.version import refuse_no_version
from shardline.operations.transform_version import VersionTransform, parse_shard_compression
from shardline.schema.arrow_types import column_type, infer_arrow_feature, is_list
from shardline.schema.conversion import ConvertedColumn, convert_to_feature
from shardline.schema.logical_types import Array, Image
from shardline.schema.schema import get_feature, has_feature
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf.transform import Transform, map_unchanged_names
from shardline.udf.udf_declaration import BoundUDF
from shardline.udf.udf_result import UDFResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener
    from shardline.log.model import Checks
    from shardline.log.version import StoredVersion
    from shardline.operations.transform_version import TransformReport
    from shardline.schema.schema import Feature, Kind, Schema
    from shardline.tfrecord.compression import Compression
    from shardline.tfrecord.reader import Limits
    from shardline.udf.udf_declaration import UDF


@dataclass(frozen=True, slots=True)
class MigrationSpec:
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

    def to_parameters(self) -> MigrateParameters:
        """Return what an entry stores: of default values, only the names."""
        return MigrateParameters(
            rename=dict(self.rename),
            drop=tuple(self.drop),
            cast=dict(self.cast),
            default=tuple(sorted(self.default)),
        )

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
    steps: MigrationSpec,
    *,
    which: str | int = "published",
    compression: Compression | str | None = None,
    max_quarantined: float = 0.0,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> TransformReport:
    """Make the records of a snapshot those of another version, with another schema.

    What is there already is not made again, so that the new version can follow the old one. A
    value that the new kind cannot hold stops it with InvalidRecordsError, and nothing is committed;
    or up to a share of such records go to quarantine, and are missing in the new version. A new
    version gets `checks`, or those of the base.
    """
    work = prepare_migration(
        base,
        into,
        steps,
        which=which,
        compression=compression,
        max_quarantined=max_quarantined,
        checks=checks,
        limits=limits,
    )
    return work.done(executor or ThreadExecutor(), progress)


def prepare_migration(
    base: StoredVersion,
    into: StoredVersion,
    steps: MigrationSpec,
    *,
    which: str | int = "published",
    compression: Compression | str | None = None,
    max_quarantined: float = 0.0,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> VersionTransform:
    """The same, ready to be done: its `plan` tells what it would do."""
    refuse_no_version(base=base, into=into)
    base.refresh()
    snapshot = base.find(which)
    return VersionTransform(
        "migrate",
        base,
        snapshot,
        into,
        make_migrate_transform(snapshot.schema, steps),
        "rewrite",
        parse_shard_compression(compression),
        max_quarantined,
        limits,
        steps.to_parameters(),
        checks,
    )


def make_migrate_transform(schema: Schema, steps: MigrationSpec) -> Transform:
    """The transform that migrates records of a schema. Raises SchemaMismatchError if none can."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features to migrate", code="opaque-records"
        )
    validate_migration_spec(steps)
    names = map_unchanged_names(schema)
    after = {feature.key: feature for feature in schema.features}
    fields: list[UDF] = []
    for old, new in steps.rename.items():
        feature = get_feature(schema, old)
        names[feature.key] = new
        after[feature.key] = replace(feature, name=new)
    for name in steps.drop:
        key = get_feature(schema, name).key
        names[key] = None
        del after[key]
    for name, kind in steps.cast.items():
        feature = get_feature(schema, name)
        cast = CastUdf(_cast(feature, kind, steps.rename.get(name, feature.name)), feature.name)
        names[feature.key] = None
        after[feature.key] = cast.feature
        fields.append(cast)
    for name, value in steps.default.items():
        given = _make_default(schema, name, steps.rename.get(name), value)
        key = (False, given.name) if isinstance(given, FillUdf) else given.feature.key
        after[key] = replace(given.feature, required=True)
        fields.append(given)
    return Transform(schema, replace(schema, features=tuple(after.values())), names, tuple(fields))


def validate_migration_spec(steps: MigrationSpec) -> None:
    """Raise ValueError for steps that change nothing, or that contradict each other."""
    if not isinstance(steps, MigrationSpec):
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


def _make_default(
    schema: Schema, old: str, new: str | None, value: object
) -> ConstantUdf | FillUdf:
    """What gives records a value: all of them, or those that lack it."""
    if not has_feature(schema, old):
        return ConstantUdf(infer_feature(old, value), value)
    feature = get_feature(schema, old)
    return FillUdf(_fillable(feature, new or feature.name), feature.name, value)


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


_INEXACT = "holds a number that a float cannot hold exactly"


class _BoundColumnUdf(BoundUDF):
    """A change of one column, ready for records."""

    def __init__(
        self,
        reads: list[Feature],
        feature: Feature,
        change: Callable[[pa.RecordBatch], ConvertedColumn],
    ) -> None:
        super().__init__(reads, (feature,))
        self._change = change

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:  # noqa: ARG002 - all at once
        """The column for these records."""
        return UDFResult([(self.features[0], self._change(batch))])


@dataclass(frozen=True, slots=True)
class _SingleFeatureUdf(ABC):
    """What makes one feature, all of which it declares itself."""

    feature: Feature

    @property
    def features(self) -> tuple[Feature, ...]:
        """What it makes."""
        return (self.feature,)

    def settled(self) -> Self:
        """The same: nothing of it lies elsewhere."""
        return self


@dataclass(frozen=True, slots=True)
class CastUdf(_SingleFeatureUdf):
    """A feature's numbers as those of another kind, if it can hold them exactly."""

    name: str

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.name,)

    @property
    def label(self) -> str:
        """What people call it."""
        return f"the cast of {self.name!r}"

    def identity(self) -> Json:
        """All that the result depends on besides the records."""
        return {"cast": self.name, "feature": self.feature.to_dict()}

    def bind(self, schema: Schema) -> BoundUDF:
        """Make it ready for records of a schema."""
        return _BoundColumnUdf(
            [schema.feature(self.name, sequence=False)], self.feature, self._cast
        )

    def _cast(self, batch: pa.RecordBatch) -> ConvertedColumn:
        column = batch.column(0)
        fitted = convert_to_feature(self.feature, column)
        if self.feature.kind != "float":
            return fitted
        values, owners = _flatten_lists(column)
        numbers = np.asarray(pc.fill_null(values, 0))
        rounded = numbers.astype(np.float32).astype(np.float64)
        # As a float of 64 bits a number may be rounded as well, and to the same.
        inexact = (rounded != numbers) | (rounded >= 2.0**63)
        inexact |= np.where(rounded < 2.0**63, rounded, 0).astype(np.int64) != numbers
        bad = dict.fromkeys(np.unique(owners[inexact]).tolist(), _INEXACT)
        return ConvertedColumn(fitted.array, {**bad, **fitted.bad})


def _flatten_lists(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The values in all the lists of a column, and which row each is of."""
    owners = np.arange(len(array))
    while is_list(array.type):
        owners = owners[np.asarray(pc.list_parent_indices(array))]
        array = array.flatten()
    return array, owners


@dataclass(frozen=True, slots=True)
class ConstantUdf(_SingleFeatureUdf):
    """A new feature with the same value in every record."""

    value: Any

    @property
    def reads(self) -> tuple[str, ...]:
        """It reads nothing."""
        return ()

    @property
    def label(self) -> str:
        """What people call it."""
        return f"the value of {self.feature.name!r}"

    def identity(self) -> Json:
        """All that the result depends on besides the records."""
        return {"constant": self.feature.to_dict(), "value": _digest(self.feature, self.value)}

    def bind(self, schema: Schema) -> BoundUDF:  # noqa: ARG002 - it reads nothing
        """Make it ready for records of a schema."""
        one = _make_single_value(self.feature, self.value)

        def everywhere(batch: pa.RecordBatch) -> ConvertedColumn:
            return ConvertedColumn(one.take(pa.array(np.zeros(batch.num_rows, np.int64))))

        return _BoundColumnUdf([], self.feature, everywhere)


@dataclass(frozen=True, slots=True)
class FillUdf(_SingleFeatureUdf):
    """A value for the records that lack a feature; in the others it stays as it is."""

    name: str
    value: Any

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.name,)

    @property
    def label(self) -> str:
        """What people call it."""
        return f"the default of {self.name!r}"

    def identity(self) -> Json:
        """All that the result depends on besides the records."""
        return {
            "filled": self.name,
            "feature": self.feature.to_dict(),
            "value": _digest(self.feature, self.value),
        }

    def bind(self, schema: Schema) -> BoundUDF:
        """Make it ready for records of a schema."""
        one = _make_single_value(self.feature, self.value)

        def where_missing(batch: pa.RecordBatch) -> ConvertedColumn:
            there = np.asarray(batch.column(0).is_valid())
            return ConvertedColumn(one.take(pa.array(np.zeros(len(there), np.int64), mask=there)))

        known = schema.feature(self.name, sequence=False)
        return _BoundColumnUdf([known], self.feature, where_missing)


def infer_feature(name: str, value: object) -> Feature:
    """The feature that a value suggests."""
    feature = infer_arrow_feature(name, _array(name, value).type)
    if feature is None or feature.sequence:
        raise SchemaMismatchError(
            f"feature {name!r}: a feature cannot contain the given value",
            code="invalid-value",
            hint=Hint.of("give a number, text, bytes, or a list of these"),
            feature=name,
        )
    return feature


def _array(name: str, value: object) -> pa.Array:
    try:
        if isinstance(value, list | tuple) and value:
            inner = pa.array(list(value))
            return pa.FixedSizeListArray.from_arrays(inner, len(value))
        return pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"feature {name!r}: a feature cannot contain the given value",
            code="invalid-value",
            hint=Hint.of("give a number, text, bytes, or a list of these"),
            feature=name,
        ) from error


def _make_single_value(feature: Feature, value: object) -> pa.Array:
    """A column with this value alone; refused if it does not fit."""
    fitted = convert_to_feature(feature, _array(feature.name, value))
    if fitted.bad or fitted.array.null_count:
        why = fitted.bad.get(0, "is missing")
        raise SchemaMismatchError(
            f"feature {feature.name!r}: the given value does not fit: it {why}",
            code="invalid-value",
            feature=feature.name,
        )
    return fitted.array.cast(column_type(feature))


def _digest(feature: Feature, value: object) -> str:
    return canonical.sha256(repr(_make_single_value(feature, value).to_pylist()))
