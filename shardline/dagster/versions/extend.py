"""A version that follows another one: the same records, with new fields."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import dagster as dg
from pydantic import Field

from shardline.api import Version
from shardline.arguments import list_items
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.declaration import (
    DryRun,
    Schemas,
    VersionDefs,
    VersionPlan,
    create_transform_plan,
    create_version_checks,
    raise_declaration_error,
    validate_inputs,
)
from shardline.dagster.versions.declared_udfs import DeclaredUdfs, LateUdfs, Udfs
from shardline.dagster.versions.derivation import (
    build_derived_asset,
    create_step_report,
    log_transform,
    require_declared_checks,
    select_input,
)
from shardline.dagster.versions.materialization import build_result
from shardline.dagster.versions.progress import create_logging_executor
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint, Option
from shardline.operations.extend import make_extend_transform, prepare_extend
from shardline.operations.transform_version import (
    TransformMode,
    VersionTransform,
    parse_shard_compression,
)
from shardline.release import __version__
from shardline.schema.schema import Schema
from shardline.udf.transform import validate_side_names

_REWRITE = Option("mode", "rewrite")
_OPTIONAL = Option("required", value=False)


class ExtendConfig(dg.Config):
    """What can be set in the launchpad; all of it may be left out."""

    input_snapshot: int = Field(
        default=0, ge=0, description="Extend this snapshot of the input; 0: the newest published."
    )


def extended_version(
    name: str,
    *,
    of: str | VersionDefs,
    fields: Udfs | LateUdfs,
    mode: TransformMode = "overlay",
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    quarantine_share: float = 0.0,
    compression: str | None = None,
    expectations: str | Path | None = None,
    description: str = "",
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    code_version: str = __version__,
) -> VersionDefs:
    """Declare a version, `digits/v2`, that holds what `of` has published, with new fields.

    `fields` is a maker of fields (`record_udf`, `batch_udf`, `tensor_udf`,
    `table_join`), or several, or a function without arguments that gives them when it runs. As
    an overlay only the new fields are written, beside `of`, which stays as it is. As a rewrite
    whole records are, in which old fields can be replaced or dropped. It follows `of` by itself,
    and computes what is new in it; without a code version of every function, all of it each time.
    """
    source = of if isinstance(of, str) else of.name
    validate_inputs(name, [source])
    with raise_declaration_error(name):
        for option, names in (("drop", drop), ("replaces", replaces)):
            list_items(names, option)
        _validate_mode(name, source, mode, drop=drop, replaces=replaces)
        declared = DeclaredUdfs.of(fields)
        if declared.given == ():
            raise InvalidArgumentError(
                "no fields to add",
                code="no-features",
                hint=Hint.of("pass fields made by record_udf or table_join"),
            )
        _validate_share(mode, quarantine_share, declared)
        parse_shard_compression(compression)
    gate = create_version_checks(name, expectations, grows=False)

    def planned(base: Version, version: Version, config: ExtendConfig) -> VersionTransform:
        snapshot = select_input(base, config.input_snapshot, "input_snapshot")
        return prepare_extend(
            base,
            declared.settled(),
            version,
            which=snapshot.number,
            mode=mode,
            replaces=replaces,
            drop=drop,
            compression=compression,
            quarantine_share=quarantine_share,
            checks=gate.required,
        )

    @build_derived_asset(
        name,
        (source,),
        made_by="extend",
        description=description or f"`{source}`, with new fields.",
        owners=owners,
        tags=tags,
        code_version=code_version,
    )
    def extended(
        context: dg.AssetExecutionContext, config: ExtendConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        run = context.run.run_id
        base = shardline.version(source, run=run, code=code_version)
        version = shardline.version(name, run=run, code=code_version)
        work = planned(base, version, config)
        require_declared_checks(version, gate)
        began = time.perf_counter()
        report = work.done(create_logging_executor(context.log), None)
        log_transform(context, report)
        made = create_step_report(version, report, time.perf_counter() - began, context)
        if made is None:
            context.log.info("%s has no record to extend", source)
            return
        refused = replace(made, quarantined_rows=report.refused, quarantine=report.quarantine)
        yield build_result(version, refused)

    def plan(shardline: ShardlineResource, config: ExtendConfig) -> VersionPlan:
        work = planned(shardline.version(source), shardline.version(name), config)
        return create_transform_plan(work.plan())

    def derive_schema(schemas: Schemas) -> Schema | None:
        base = schemas[source]
        if base is None:
            return None
        declared.validate(base)
        if declared.declared is None:
            return None
        transform = make_extend_transform(base, declared.declared, replaces=replaces, drop=drop)
        validate_side_names(transform)
        return transform.after

    return VersionDefs(
        name,
        (extended,),
        gate.definition(),
        inputs=(source,),
        suite=gate.suite,
        dry_run=DryRun(ExtendConfig, plan),
        derive_schema=derive_schema,
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
            hint=Hint.of(f"make it a version of {dataset}, or use ", _REWRITE),
        )
    if drop or replaces:
        raise InvalidArgumentError(
            "an overlay cannot drop or replace features",
            code="conflicting-arguments",
            hint=Hint.of("use ", _REWRITE),
        )


def _validate_share(mode: str, share: float, declared: DeclaredUdfs) -> None:
    if not 0 <= share <= 1:
        raise InvalidArgumentError(
            f"invalid quarantine share {share}: expected 0 to 1", code="out-of-range"
        )
    if mode != "overlay" or not share:
        return
    for one in declared.functions:
        for feature in one.features:
            if feature.required:
                raise InvalidArgumentError(
                    f"an overlay with quarantine cannot have the required feature {feature.name!r}",
                    code="conflicting-arguments",
                    hint=Hint.of("declare it with ", _OPTIONAL, ", or use ", _REWRITE),
                    feature=feature.name,
                )
