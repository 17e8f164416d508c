"""Extend: new fields for old records, in a version of their own.

As an overlay only the new fields are written, record for record beside the shards of the base,
which are not copied. As a rewrite, each shard of the base becomes one that holds old and new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from shardline.arguments import validate_choice
from shardline.errors import (
    FieldsError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableSnapshotError,
)
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint, Option
from shardline.log.parameters import ExtendParameters
from shardline.log.version import refuse_no_version
from shardline.operations.transform_version import (
    TransformMode,
    VersionTransform,
    parse_shard_compression,
)
from shardline.schema.schema import get_feature
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf.transform import Transform, map_unchanged_names
from shardline.udf.udf_declaration import describe_udf, is_udf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.execution.executor import Executor, ProgressListener
    from shardline.log.model import Checks
    from shardline.log.version import StoredVersion
    from shardline.operations.transform_version import TransformReport
    from shardline.schema.schema import Feature, Schema
    from shardline.tfrecord.compression import Compression
    from shardline.tfrecord.reader import Limits
    from shardline.udf.udf_declaration import UDF


def extend(
    base: StoredVersion,
    fields: UDF | Iterable[UDF],
    into: StoredVersion,
    *,
    which: str | int = "published",
    mode: TransformMode = "overlay",
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    compression: Compression | str | None = None,
    max_quarantined: float = 0.0,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> TransformReport:
    """Give the records of a snapshot new fields, as the content of another version.

    `fields` are made by `record_udf`, `batch_udf`, `tensor_udf` and `table_join`. With
    mode "overlay" only they are written, and the base is pinned; it must be of the same dataset.
    With "rewrite" whole records are; some features may be left out (`drop`), and a new field may
    have the name of an old one (`replaces`). When the base has grown, only what is new in it is
    computed; that needs a code version of every function. A new version gets `checks`, or those of
    the base.

    A record for which a function raises, or gives what does not fit, stops it with
    InvalidRecordsError and nothing is committed; or up to a share of them go to quarantine.
    They are missing in the new version then. In an overlay they are there without the new
    fields, which must be optional.
    """
    work = prepare_extend(
        base,
        fields,
        into,
        which=which,
        mode=mode,
        replaces=replaces,
        drop=drop,
        compression=compression,
        max_quarantined=max_quarantined,
        checks=checks,
        limits=limits,
    )
    return work.done(executor or ThreadExecutor(), progress)


def prepare_extend(
    base: StoredVersion,
    fields: UDF | Iterable[UDF],
    into: StoredVersion,
    *,
    which: str | int = "published",
    mode: TransformMode = "overlay",
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    compression: Compression | str | None = None,
    max_quarantined: float = 0.0,
    checks: Checks | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> VersionTransform:
    """The same, ready to be done: its `plan` tells what it would do."""
    validate_choice("mode", mode, get_args(TransformMode))
    refuse_no_version(base=base, into=into)
    makers = settle_udfs(fields)
    base.refresh()
    snapshot = base.find(which)
    if mode == "overlay" and (drop or replaces):
        raise InvalidArgumentError(
            f"mode: an overlay cannot {'drop' if drop else 'replace'} features",
            code="conflicting-arguments",
            hint=Hint.of("set ", Option("mode", "rewrite")),
        )
    if mode == "overlay" and any(shard.virtual for shard in snapshot.shards):
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot overlay a virtual snapshot",
            code="virtual-snapshot",
            hint=Hint.of(
                "set ", Option("mode", "rewrite"), ", or compute the features with combine"
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    transform = make_extend_transform(snapshot.schema, makers, replaces=replaces, drop=drop)
    if mode == "overlay" and max_quarantined and any(f.required for f in transform.new.features):
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
    parameters = ExtendParameters(
        mode=mode, udfs=tuple(describe_udf(udf) for udf in makers), drop=tuple(drop)
    )
    return VersionTransform(
        "extend",
        base,
        snapshot,
        into,
        transform,
        mode,
        parse_shard_compression(compression),
        max_quarantined,
        limits,
        parameters,
        checks,
    )


def settle_udfs(fields: UDF | Iterable[UDF]) -> tuple[UDF, ...]:
    """One or several makers of fields, with what lies outside of this process read."""
    makers: tuple[Any, ...] = (fields,)
    if not isinstance(fields, str) and isinstance(fields, Iterable):
        makers = tuple(fields)
    for one in makers:
        if not is_udf(one):
            raise FieldsError(
                f"fields: {type(one).__name__} does not declare its features",
                code="undeclared-udf",
                hint=Hint.of(
                    "wrap a function in record_udf(...), batch_udf(...) or "
                    "tensor_udf(...), and a table in table_join(...)"
                ),
            )
    return tuple(one.settled() for one in makers)


def make_extend_transform(
    schema: Schema, fields: Sequence[UDF], *, replaces: Sequence[str], drop: Sequence[str]
) -> Transform:
    """The transform that adds fields to records of a schema."""
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            "opaque records have no features to extend", code="opaque-records"
        )
    if not fields and drop:
        raise InvalidArgumentError(
            "no features to add",
            code="missing-argument",
            hint=Hint.of(
                f"to drop features only, migrate with Steps(drop=[{', '.join(map(repr, drop))}])"
            ),
        )
    if not fields:
        raise InvalidArgumentError(
            "no features to add",
            code="missing-argument",
            hint=Hint.of("see record_udf, batch_udf and table_join"),
        )
    names = map_unchanged_names(schema)
    for name in drop:
        names[get_feature(schema, name).key] = None
    for name in replaces:
        names[_find_replaced(schema, name).key] = None
    new = [feature for one in fields for feature in one.features]
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
    kept = [feature for feature in schema.features if names[feature.key] is not None]
    after = replace(schema, features=(*kept, *new))
    return Transform(schema, after, names, tuple(fields))


def _find_replaced(schema: Schema, name: str) -> Feature:
    """The feature whose place a new one takes, in the context."""
    feature = schema.find(name, sequence=False) or schema.feature(name)
    if feature.sequence:
        raise SchemaMismatchError(
            f"feature {name!r} of the feature_lists cannot be replaced by a context feature",
            code="unsupported-feature",
            hint=Hint.of(f"name {name!r} in ", Option("drop")),
            feature=name,
        )
    return feature
