"""Migrate: change the schema of the records of a version, in a new version.

Features are renamed, dropped, cast to another type, or given a default. All other bytes of a record
are copied.
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
from shardline.hints import Hint, Option
from shardline.kernel.columns import is_list
from shardline.log.parameters import MigrateParameters
from shardline.log.version import validate_version
from shardline.operations.transform import TransformPlan, parse_options, transform_inferred_file
from shardline.operations.transform_records import FIX_CAST_HINT
from shardline.schema.arrow_types import get_column_type, infer_arrow_feature
from shardline.schema.conversion import ConvertedColumn, convert_to_feature
from shardline.schema.logical_types import Array, Image
from shardline.schema.schema import get_feature, has_feature
from shardline.udf.transform import Transform, map_unchanged_names
from shardline.udf.udf_declaration import BoundUDF
from shardline.udf.udf_result import UDFResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from numpy.typing import NDArray

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener
    from shardline.log.version import StoredVersion
    from shardline.operations.transform import (
        FileTransformOptions,
        FileTransformReport,
        TransformOptions,
        TransformReport,
    )
    from shardline.schema.schema import Feature, Kind, Schema
    from shardline.udf.udf_declaration import UDF


@dataclass(frozen=True, slots=True)
class MigrationSpec:
    """Changes of a schema. Each feature has the name that it has in the old version.

    If the context and the feature_lists both have a feature `x`, write `context:x` or
    `feature_lists:x`.

    Attributes:
        rename: New names by old names.
        drop: Features to leave out.
        cast: New types of numbers, "int64" or "float".
        default: Values for records without the feature, which becomes required. A feature that is
            not in the schema is added to all records.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    drop: Sequence[str] = ()
    cast: Mapping[str, Kind] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Remove duplicates from the features to drop."""
        object.__setattr__(self, "drop", tuple(dict.fromkeys(self.drop)))

    def to_parameters(self) -> MigrateParameters:
        """Return the parameters of a log entry: of default values, only the names."""
        return MigrateParameters(
            rename=dict(self.rename),
            drop=tuple(self.drop),
            cast=dict(self.cast),
            default=tuple(sorted(self.default)),
        )

    def lines(self) -> list[str]:
        """Return the changes as text, one line each."""
        lines = [f"rename {old!r} to {new!r}" for old, new in self.rename.items()]
        lines += [f"drop {name!r}" for name in self.drop]
        lines += [f"cast {name!r} to {kind}" for name, kind in self.cast.items()]
        lines += [f"give {name!r} a value where it is missing" for name in self.default]
        return lines


def migrate(
    version: StoredVersion,
    spec: MigrationSpec,
    into: StoredVersion,
    *,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
    **options: Unpack[TransformOptions],
) -> TransformReport:
    """Change the schema of the records of a snapshot, in another version.

    Later calls rewrite only what is new in the base.

    Args:
        version: The version to read.
        spec: Features to rename, drop, cast, or give a default.
        into: The version to write, which may be new.
        executor: Runs the tasks. By default on threads.
        progress: Called with the progress of each task.
        **options: See `TransformOptions`.

    Returns:
        The new entry and its shards.

    Raises:
        InvalidRecordsError: If a value does not fit its new type in more records than may go to
            quarantine, where they are left out. Nothing is committed.
        CorruptFileError: If a record is corrupt. Nothing is committed.

    Example:
        migrate(root["digits/v1"], MigrationSpec(rename={"label": "digit"}), root["digits/v2"])
    """
    plan = plan_migration(version, spec, into, **options)
    return plan.execute(executor=executor, progress=progress)


def plan_migration(
    version: StoredVersion,
    spec: MigrationSpec,
    into: StoredVersion,
    **options: Unpack[TransformOptions],
) -> TransformPlan:
    """Plan `migrate`, to look at or to execute. Reads no record."""
    validate_version(version=version, into=into)
    version.refresh()
    snapshot = version.find(options.get("snapshot", "published"))
    transform = make_migrate_transform(snapshot.schema, spec)
    return TransformPlan(
        "migrate",
        version,
        snapshot,
        into,
        transform,
        "rewrite",
        spec.to_parameters(),
        **parse_options(options),
    )


def migrate_file(
    path: Path | str,
    spec: MigrationSpec,
    output: Path | str,
    **options: Unpack[FileTransformOptions],
) -> FileTransformReport:
    """Change the schema of the records of a file, in another file.

    A file without records gives an empty file.

    Args:
        path: The file to read.
        spec: Features to rename, drop, cast, or give a default.
        output: The file to write.
        **options: See `FileTransformOptions`.

    Raises:
        CorruptFileError: If a record is corrupt. No output is left.
        InvalidRecordsError: If a value does not fit its new type. No output is left.

    Example:
        migrate_file("old.tfrecord", MigrationSpec(drop=["notes"]), "new.tfrecord")
    """

    def plan(schema: Schema) -> Transform:
        return make_migrate_transform(schema, spec)

    return transform_inferred_file(path, output, plan, hint=FIX_CAST_HINT, **options)


def make_migrate_transform(schema: Schema, spec: MigrationSpec) -> Transform:
    """Return the transform that migrates records of a schema. Raises SchemaMismatchError."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features to migrate", code="opaque-records"
        )
    validate_migration_spec(spec)
    names = map_unchanged_names(schema)
    after = {feature.key: feature for feature in schema.features}
    udfs: list[UDF] = []
    for old, new in spec.rename.items():
        feature = get_feature(schema, old)
        names[feature.key] = new
        after[feature.key] = replace(feature, name=new)
    for name in spec.drop:
        key = get_feature(schema, name).key
        names[key] = None
        del after[key]
    for name, kind in spec.cast.items():
        feature = get_feature(schema, name)
        new_name = spec.rename.get(name, feature.name)
        cast = CastUdf(_cast_feature(feature, kind, new_name), feature.name)
        names[feature.key] = None
        after[feature.key] = cast.feature
        udfs.append(cast)
    for name, value in spec.default.items():
        default = _make_default(schema, name, spec.rename.get(name), value)
        key = (False, default.name) if isinstance(default, FillUdf) else default.feature.key
        after[key] = replace(default.feature, required=True)
        udfs.append(default)
    return Transform(schema, replace(schema, features=tuple(after.values())), names, tuple(udfs))


def validate_migration_spec(spec: MigrationSpec) -> None:
    """Raise an error for a spec without changes, or with changes that contradict each other."""
    if not isinstance(spec, MigrationSpec):
        raise InvalidTypeError(f"spec: expected MigrationSpec, got {type(spec).__name__}")
    if not spec.lines():
        options = Hint.join(", ", (Hint.of(Option(name)) for name in ("rename", "drop", "cast")))
        raise InvalidArgumentError(
            "nothing to migrate",
            code="missing-argument",
            hint=Hint.of("set ", options, " or ", Option("default")),
        )
    for old, new in spec.rename.items():
        if not new:
            raise _make_feature_error(old, "the new name is empty", "invalid-name")
    for name in spec.drop:
        for names, change in (
            (spec.rename, "renamed"),
            (spec.cast, "cast"),
            (spec.default, "set"),
        ):
            if name in names:
                raise _make_feature_error(
                    name, f"cannot be both dropped and {change}", "conflicting-arguments"
                )
    for name in spec.cast:
        if name in spec.default:
            raise _make_feature_error(
                name,
                "cannot be both cast and given a default",
                "conflicting-arguments",
                "migrate twice",
            )


def _make_feature_error(
    name: str, problem: str, code: str, hint: str | None = None
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"feature {name!r}: {problem}",
        code=code,
        hint=Hint.of(hint) if hint else None,
        feature=name,
    )


def _cast_feature(feature: Feature, kind: Kind, name: str) -> Feature:
    if feature.sequence:
        raise _make_feature_error(
            feature.name, "cannot cast a feature of the feature_lists", "unsupported-feature"
        )
    if "bytes" in {feature.kind, kind}:
        raise _make_feature_error(
            feature.name,
            f"cannot cast {feature.kind} to {kind}",
            "unsupported-cast",
            "cast int64 to float or float to int64, or compute a new feature",
        )
    if feature.kind == kind:
        raise _make_feature_error(feature.name, f"the type is {kind} already", "redundant-cast")
    meaning = feature.meaning
    if meaning is not None and kind not in meaning.kinds:
        meaning = None
    return replace(feature, name=name, kind=kind, meaning=meaning, nan=False)


def _make_default(
    schema: Schema, old: str, new: str | None, value: object
) -> ConstantUdf | FillUdf:
    """Return the UDF that sets a value: in all records, or in those without the feature."""
    if not has_feature(schema, old):
        return ConstantUdf(infer_feature(old, value), value)
    feature = get_feature(schema, old)
    _validate_fillable(feature)
    return FillUdf(replace(feature, name=new or feature.name), feature.name, value)


def _validate_fillable(feature: Feature) -> None:
    subject = "cannot give a default to"
    if feature.sequence:
        raise _make_feature_error(
            feature.name, f"{subject} a feature of the feature_lists", "unsupported-feature"
        )
    if feature.required:
        raise _make_feature_error(feature.name, f"{subject} a required feature", "required-feature")
    if isinstance(feature.meaning, Array | Image):
        raise _make_feature_error(
            feature.name,
            f"{subject} {feature.meaning}",
            "unsupported-feature",
            "compute a new feature",
        )


_INEXACT = "holds a number that a float cannot hold exactly"


class _BoundColumnUdf(BoundUDF):
    """A bound function that computes one feature from columns."""

    def __init__(
        self,
        reads: list[Feature],
        feature: Feature,
        compute: Callable[[pa.RecordBatch], ConvertedColumn],
    ) -> None:
        super().__init__(reads, (feature,))
        self._compute = compute

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:  # noqa: ARG002 - all at once
        """Compute the feature of these records."""
        return UDFResult([(self.features[0], self._compute(batch))])


@dataclass(frozen=True, slots=True)
class _SingleFeatureUdf(ABC):
    """Base of UDFs that compute one feature and need no files."""

    feature: Feature

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features that it computes."""
        return (self.feature,)

    def settled(self) -> Self:
        """Return itself: there is nothing to read."""
        return self


@dataclass(frozen=True, slots=True)
class CastUdf(_SingleFeatureUdf):
    """A cast of numbers to another type that holds them exactly."""

    name: str

    @property
    def reads(self) -> tuple[str, ...]:
        """Features that it reads."""
        return (self.name,)

    @property
    def label(self) -> str:
        """Label in messages."""
        return f"the cast of {self.name!r}"

    def identity(self) -> Json:
        """Return everything the result depends on besides the records."""
        return {"cast": self.name, "feature": self.feature.to_dict()}

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind to records of a schema."""
        return _BoundColumnUdf(
            [schema.feature(self.name, sequence=False)], self.feature, self._cast
        )

    def _cast(self, batch: pa.RecordBatch) -> ConvertedColumn:
        column = batch.column(0)
        converted = convert_to_feature(self.feature, column)
        if self.feature.kind != "float":
            return converted
        values, rows = _flatten_lists(column)
        numbers = np.asarray(pc.fill_null(values, 0))
        rounded = numbers.astype(np.float32).astype(np.float64)
        # NumPy compares int64 and float64 as float64, which may round both to the same number.
        inexact = (rounded != numbers) | (rounded >= 2.0**63)
        inexact |= np.where(rounded < 2.0**63, rounded, 0).astype(np.int64) != numbers
        bad = dict.fromkeys(np.unique(rows[inexact]).tolist(), _INEXACT)
        return ConvertedColumn(converted.array, {**bad, **converted.bad})


def _flatten_lists(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the values in all lists of a column, and the row of each."""
    rows = np.arange(len(array))
    while is_list(array.type):
        rows = rows[np.asarray(pc.list_parent_indices(array))]
        array = array.flatten()
    return array, rows


@dataclass(frozen=True, slots=True)
class ConstantUdf(_SingleFeatureUdf):
    """A new feature with the same value in every record."""

    value: Any

    @property
    def reads(self) -> tuple[str, ...]:
        """Features that it reads: none."""
        return ()

    @property
    def label(self) -> str:
        """Label in messages."""
        return f"the value of {self.feature.name!r}"

    def identity(self) -> Json:
        """Return everything the result depends on besides the records."""
        return {"constant": self.feature.to_dict(), "value": _digest(self.feature, self.value)}

    def bind(self, schema: Schema) -> BoundUDF:  # noqa: ARG002 - it reads nothing
        """Bind to records of a schema."""
        value = _make_value_array(self.feature, self.value)

        def repeat(batch: pa.RecordBatch) -> ConvertedColumn:
            return ConvertedColumn(value.take(pa.array(np.zeros(batch.num_rows, np.int64))))

        return _BoundColumnUdf([], self.feature, repeat)


@dataclass(frozen=True, slots=True)
class FillUdf(_SingleFeatureUdf):
    """A value for records without a feature. Other records do not change."""

    name: str
    value: Any

    @property
    def reads(self) -> tuple[str, ...]:
        """Features that it reads."""
        return (self.name,)

    @property
    def label(self) -> str:
        """Label in messages."""
        return f"the default of {self.name!r}"

    def identity(self) -> Json:
        """Return everything the result depends on besides the records."""
        return {
            "filled": self.name,
            "feature": self.feature.to_dict(),
            "value": _digest(self.feature, self.value),
        }

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind to records of a schema."""
        value = _make_value_array(self.feature, self.value)

        def fill(batch: pa.RecordBatch) -> ConvertedColumn:
            present = np.asarray(batch.column(0).is_valid())
            rows = pa.array(np.zeros(len(present), np.int64), mask=present)
            return ConvertedColumn(value.take(rows))

        known = schema.feature(self.name, sequence=False)
        return _BoundColumnUdf([known], self.feature, fill)


def infer_feature(name: str, value: object) -> Feature:
    """Return the feature that contains a value. Raises SchemaMismatchError if none can."""
    feature = infer_arrow_feature(name, _make_array(name, value).type)
    if feature is None or feature.sequence:
        raise _make_value_error(name)
    return feature


def _make_array(name: str, value: object) -> pa.Array:
    try:
        if isinstance(value, list | tuple) and value:
            return pa.FixedSizeListArray.from_arrays(pa.array(list(value)), len(value))
        return pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise _make_value_error(name) from error


def _make_value_error(name: str) -> SchemaMismatchError:
    return _make_feature_error(
        name,
        "a feature cannot contain the given value",
        "invalid-value",
        "give a number, text, bytes, or a list of these",
    )


def _make_value_array(feature: Feature, value: object) -> pa.Array:
    """Return a column with a single value. Raises SchemaMismatchError if the value does not fit."""
    converted = convert_to_feature(feature, _make_array(feature.name, value))
    if converted.bad or converted.array.null_count:
        reason = converted.bad.get(0, "is missing")
        raise _make_feature_error(
            feature.name, f"the given value does not fit: it {reason}", "invalid-value"
        )
    return converted.array.cast(get_column_type(feature))


def _digest(feature: Feature, value: object) -> str:
    return canonical.sha256(repr(_make_value_array(feature, value).to_pylist()))
