"""Extend: add features to the records of a version, in a new version.

An overlay stores only the new features, one shard for each shard of the base. A rewrite stores
whole records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from shardline.arguments import validate_choice
from shardline.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    UDFError,
    UnreadableSnapshotError,
)
from shardline.hints import Hint, Option
from shardline.log.parameters import ExtendParameters
from shardline.log.version import validate_version
from shardline.operations.transform import (
    TransformMode,
    TransformOptions,
    TransformPlan,
    parse_options,
    transform_inferred_file,
)
from shardline.schema.schema import get_feature
from shardline.udf.transform import Transform, map_unchanged_names
from shardline.udf.udf_declaration import describe_udf, is_udf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Unpack

    from shardline.execution.executor import Executor, ProgressListener
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.transform import (
        FileTransformOptions,
        FileTransformReport,
        TransformReport,
    )
    from shardline.schema.schema import Feature, Schema
    from shardline.udf.udf_declaration import UDF


class ExtendOptions(TransformOptions, total=False):
    """Keyword arguments of `extend`.

    Attributes:
        mode: "overlay" stores only the new features and pins the base, which must be of the same
            dataset. "rewrite" stores whole records.
        replaces: Features that new features of the same name replace, in a rewrite.
        drop: Features to leave out, in a rewrite.
    """

    mode: TransformMode
    replaces: Sequence[str]
    drop: Sequence[str]


def extend(
    version: StoredVersion,
    udfs: UDF | Iterable[UDF],
    into: StoredVersion,
    *,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
    **options: Unpack[ExtendOptions],
) -> TransformReport:
    """Add features to the records of a snapshot, in another version.

    Later calls compute only what is new in the base. Functions need a code version for that.

    Args:
        version: The version to read.
        udfs: UDFs that compute the features: `record_udf`, `batch_udf`, `tensor_udf`, `table_join`.
        into: The version to write, which may be new.
        executor: Runs the tasks. By default on threads.
        progress: Called with the progress of each task.
        **options: See `ExtendOptions` and `TransformOptions`.

    Returns:
        The new entry and its shards.

    Raises:
        InvalidRecordsError: If a function fails for more records than may go to quarantine. A
            rewrite leaves such records out, an overlay only their new features. Nothing is
            committed.
        CorruptFileError: If a record is corrupt. Nothing is committed.

    Example:
        extend(root["digits/v1"], brightness, root["digits/v2"])
    """
    plan = plan_extend(version, udfs, into, **options)
    return plan.execute(executor=executor, progress=progress)


def plan_extend(
    version: StoredVersion,
    udfs: UDF | Iterable[UDF],
    into: StoredVersion,
    *,
    mode: TransformMode = "overlay",
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    **options: Unpack[TransformOptions],
) -> TransformPlan:
    """Plan `extend`, to look at or to execute. Reads no record."""
    validate_choice("mode", mode, get_args(TransformMode))
    validate_version(version=version, into=into)
    udfs = settle_udfs(udfs)
    version.refresh()
    snapshot = version.find(options.get("snapshot", "published"))
    if mode == "overlay":
        _validate_overlay(snapshot, udfs, options, drop=drop, replaces=replaces)
    transform = make_extend_transform(snapshot.schema, udfs, replaces=replaces, drop=drop)
    parameters = ExtendParameters(
        mode=mode, udfs=tuple(describe_udf(udf) for udf in udfs), drop=tuple(drop)
    )
    return TransformPlan(
        "extend",
        version,
        snapshot,
        into,
        transform,
        mode,
        parameters,
        **parse_options(options),
    )


def _validate_overlay(
    snapshot: StoredSnapshot,
    udfs: Iterable[UDF],
    options: TransformOptions,
    *,
    drop: Sequence[str],
    replaces: Sequence[str],
) -> None:
    if drop or replaces:
        raise InvalidArgumentError(
            f"mode: an overlay cannot {'drop' if drop else 'replace'} features",
            code="conflicting-arguments",
            hint=Hint.of("set ", Option("mode", "rewrite")),
        )
    if any(shard.virtual for shard in snapshot.shards):
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot overlay a virtual snapshot",
            code="virtual-snapshot",
            hint=Hint.of(
                "set ", Option("mode", "rewrite"), ", or compute the features with combine"
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    required = any(feature.required for udf in udfs for feature in udf.features)
    if options.get("max_quarantined") and required:
        raise InvalidArgumentError(
            "max_quarantined: quarantined records of an overlay lack the required features",
            code="conflicting-arguments",
            hint=Hint.of(
                "declare the features with ",
                Option("required", value=False),
                ", or set ",
                Option("mode", "rewrite"),
            ),
        )


def extend_file(
    path: Path | str,
    udfs: UDF | Iterable[UDF],
    output: Path | str,
    *,
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    **options: Unpack[FileTransformOptions],
) -> FileTransformReport:
    """Add features to the records of a file, in another file.

    A file without records gives an empty file.

    Args:
        path: The file to read.
        udfs: UDFs that compute the features, as for `extend`.
        output: The file to write.
        replaces: Features that new features of the same name replace.
        drop: Features to leave out.
        **options: See `FileTransformOptions`.

    Raises:
        CorruptFileError: If a record is corrupt. No output is left.
        InvalidRecordsError: If a function fails for a record. No output is left.

    Example:
        extend_file("train.tfrecord", brightness, "bright.tfrecord")
    """
    udfs = settle_udfs(udfs)

    def plan(schema: Schema) -> Transform:
        return make_extend_transform(schema, udfs, replaces=replaces, drop=drop)

    return transform_inferred_file(path, output, plan, **options)


def settle_udfs(udfs: UDF | Iterable[UDF]) -> tuple[UDF, ...]:
    """Return one or several UDFs, with their tables read. Raises UDFError for other objects."""
    listed: tuple[Any, ...] = (udfs,)
    if not isinstance(udfs, str) and isinstance(udfs, Iterable):
        listed = tuple(udfs)
    for udf in listed:
        if not is_udf(udf):
            raise UDFError(
                f"fields: {type(udf).__name__} does not declare its features",
                code="undeclared-udf",
                hint=Hint.of(
                    "wrap a function in record_udf(...), batch_udf(...) or "
                    "tensor_udf(...), and a table in table_join(...)"
                ),
            )
    return tuple(udf.settled() for udf in listed)


def make_extend_transform(
    schema: Schema, udfs: Sequence[UDF], *, replaces: Sequence[str], drop: Sequence[str]
) -> Transform:
    """Return the transform that adds features to records of a schema."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features to extend", code="opaque-records"
        )
    if not udfs:
        dropped = ", ".join(map(repr, drop))
        migrate_hint = f"to drop features only, migrate with MigrationSpec(drop=[{dropped}])"
        raise InvalidArgumentError(
            "no features to add",
            code="missing-argument",
            hint=Hint.of(migrate_hint if drop else "see record_udf, batch_udf and table_join"),
        )
    names = map_unchanged_names(schema)
    for name in drop:
        names[get_feature(schema, name).key] = None
    for name in replaces:
        names[_find_replaced_feature(schema, name).key] = None
    new = [feature for udf in udfs for feature in udf.features]
    for name in replaces:
        if name not in {feature.name for feature in new}:
            raise SchemaMismatchError(
                f"feature {name!r}: cannot replace a feature that nothing computes",
                code="missing-feature",
                feature=name,
            )
    for feature in new:
        if names.get(feature.key) is not None:
            raise SchemaMismatchError(
                f"feature {feature.name!r} exists already",
                code="duplicate-feature",
                hint=Hint.of(
                    "rename the new feature, or set ",
                    Option("mode", "rewrite"),
                    f" and name {feature.name!r} in ",
                    Option("replaces"),
                ),
                feature=feature.name,
            )
    unchanged = [feature for feature in schema.features if names[feature.key] is not None]
    after = replace(schema, features=(*unchanged, *new))
    return Transform(schema, after, names, tuple(udfs))


def _find_replaced_feature(schema: Schema, name: str) -> Feature:
    feature = schema.find(name, sequence=False) or schema.feature(name)
    if feature.sequence:
        raise SchemaMismatchError(
            f"feature {name!r} of the feature_lists cannot be replaced by a context feature",
            code="unsupported-feature",
            hint=Hint.of(f"name {name!r} in ", Option("drop")),
            feature=name,
        )
    return feature
