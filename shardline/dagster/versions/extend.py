"""A version with the records of another and new features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack, get_args

from shardline.api import Version
from shardline.arguments import list_items, validate_option_names, validate_share
from shardline.dagster.versions.builder import (
    InputConfig,
    TransformOperation,
    VersionOptions,
    VersionStep,
    build_version,
)
from shardline.dagster.versions.declaration import (
    DeclaredUdfs,
    LateUdfs,
    Udfs,
    VersionDefs,
    get_version_name,
    raise_declaration_error,
)
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint, Option
from shardline.operations.extend import make_extend_transform, plan_extend
from shardline.operations.transform import (
    TransformMode,
    TransformPlan,
    parse_shard_compression,
)
from shardline.schema.schema import Schema
from shardline.udf.transform import Transform

_REWRITE = Option("mode", "rewrite")
_OPTIONAL = Option("required", value=False)


def extended_version(
    name: str,
    *,
    of: str | VersionDefs,
    udfs: Udfs | LateUdfs,
    mode: TransformMode = "overlay",
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    max_quarantined: float = 0.0,
    compression: str | None = None,
    **options: Unpack[VersionOptions],
) -> VersionDefs:
    """Declare a version with the published records of `of` and new features.

    The version follows `of` and computes only new shards. If a function has no code version, all
    shards are computed each time.

    Args:
        name: The new version.
        of: The version to extend, or its name.
        udfs: A UDF (`record_udf`, `batch_udf`, `tensor_udf`, `table_join`), several
            UDFs, or a function without arguments that returns them in a run.
        mode: "overlay" writes only the new features, next to the shards of `of`. "rewrite" writes
            whole records, in which old features can be replaced or dropped.
        replaces: Features of `of` that the new features replace.
        drop: Features of `of` to leave out.
        max_quarantined: Share of the records, from 0 to 1, for which a UDF may fail. They go to
            quarantine.
        compression: "none" or "gzip" for new shards. Default: as in `of`.
        **options: The options of all factories, see `VersionOptions`.

    Returns:
        The declared version, for `build_definitions`.

    Raises:
        DeclarationError: If the options contradict each other.

    Example:
        digits_v2 = extended_version("digits/v2", of=digits_v1, udfs=image_statistics)
    """
    validate_option_names(extended_version, options, VersionOptions.__annotations__)
    source = get_version_name(of)
    with raise_declaration_error(name):
        for option, features in (("drop", drop), ("replaces", replaces)):
            list_items(features, option)
        if name != source:
            _validate_mode(name, source, mode, drop=drop, replaces=replaces)
        declared = DeclaredUdfs.of(udfs)
        if declared.declaration == ():
            raise InvalidArgumentError(
                "no fields to add",
                code="no-features",
                hint=Hint.of("pass the result of record_udf or table_join"),
            )
        _validate_max_quarantined(mode, max_quarantined, declared)
        parse_shard_compression(compression)
    operation = _Extension(
        (source,), compression, max_quarantined, declared, mode, tuple(replaces), tuple(drop)
    )
    return build_version(name, operation, options)


@dataclass(frozen=True, slots=True)
class _Extension(TransformOperation):
    """The declared options of an extended version."""

    operation: ClassVar[str] = "extend"

    udfs: DeclaredUdfs
    mode: TransformMode
    replaces: tuple[str, ...]
    drop: tuple[str, ...]

    def describe(self) -> str:
        return f"Extends `{self.inputs[0]}`."

    def prepare_transform(
        self, step: VersionStep[InputConfig], base: Version, snapshot: int
    ) -> TransformPlan:
        return plan_extend(
            base,
            self.udfs.settled(),
            step.version,
            snapshot=snapshot,
            mode=self.mode,
            replaces=self.replaces,
            drop=self.drop,
            compression=self.compression,
            max_quarantined=self.max_quarantined,
            checks=step.checks,
        )

    def derive_transform(self, base: Schema) -> Transform | None:
        self.udfs.validate(base)
        if self.udfs.declared is None:
            return None
        return make_extend_transform(
            base, self.udfs.declared, replaces=self.replaces, drop=self.drop
        )


def _validate_mode(
    name: str, source: str, mode: str, *, drop: Sequence[str], replaces: Sequence[str]
) -> None:
    if mode not in get_args(TransformMode):
        raise InvalidArgumentError(
            f"invalid mode {mode!r}: expected {' or '.join(get_args(TransformMode))}",
            code="invalid-choice",
        )
    if mode != "overlay":
        return
    dataset = source.partition("/")[0]
    if name.partition("/")[0] != dataset:
        raise InvalidArgumentError(
            f"an overlay needs the dataset of its base ({dataset})",
            code="dataset-mismatch",
            hint=Hint.of(f"declare it as a version of {dataset}, or use ", _REWRITE),
        )
    if drop or replaces:
        raise InvalidArgumentError(
            "an overlay cannot drop or replace features",
            code="conflicting-arguments",
            hint=Hint.of("use ", _REWRITE),
        )


def _validate_max_quarantined(mode: str, share: float, udfs: DeclaredUdfs) -> None:
    validate_share("max_quarantined", share)
    if mode != "overlay" or not share:
        return
    for udf in udfs.functions:
        for feature in udf.features:
            if feature.required:
                raise InvalidArgumentError(
                    f"an overlay with quarantine cannot have the required feature {feature.name!r}",
                    code="conflicting-arguments",
                    hint=Hint.of("declare it with ", _OPTIONAL, ", or use ", _REWRITE),
                    feature=feature.name,
                )
