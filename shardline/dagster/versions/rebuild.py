"""A published state as one file at a path that stays: an asset of its own, behind the checks."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg
from pydantic import Field

from shardline.api import Snapshot
from shardline.dagster.asset_names import get_asset_key, get_asset_name, group_name
from shardline.dagster.automation.conditions import build_follow_condition
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.declaration import (
    DryRun,
    VersionDefs,
    VersionPlan,
    create_version_checks,
    parse_target,
    raise_declaration_error,
    validate_inputs,
)
from shardline.dagster.versions.derivation import (
    build_derived_asset,
    create_step_report,
    require_declared_checks,
    select_input,
)
from shardline.dagster.versions.materialization import build_result
from shardline.dagster.versions.progress import create_logging_executor
from shardline.operations.export import export
from shardline.operations.rebuild import rebuild
from shardline.operations.transform_version import parse_shard_compression
from shardline.release import __version__
from shardline.text import format_count


def build_export_asset(name: str, path: Path, owners: Sequence[str] = ()) -> dg.AssetsDefinition:
    """The asset of a version's exported file. Its path is replaced whole, or left as it is."""

    @dg.asset(
        key=f"{get_asset_name(name)}_export",
        group_name=group_name(name),
        kinds={"tfrecord", "file"},
        deps=[get_asset_key(name)],
        description=f"What `{name}` has published, as one file: `{path}`.",
        owners=list(owners),
        tags={"shardline/made_by": "export"},
        automation_condition=build_follow_condition(),
        output_required=False,
    )
    def export_file(
        context: dg.AssetExecutionContext, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        version = shardline.version(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        report = export(version, path, executor=create_logging_executor(context.log))
        told = report.exported
        if not report.written:
            context.log.info("%s holds snapshot %d already", path, told.snapshot)
        yield dg.MaterializeResult(
            metadata={
                "dagster/row_count": told.records,
                "bytes": told.bytes,
                "snapshot": told.snapshot,
                "digest": told.content,
                "sha256": told.sha256,
                "compression": told.compression,
                "written": report.written,
                "file": dg.MetadataValue.path(path.resolve()),
            },
            data_version=dg.DataVersion(told.sha256),
        )

    return export_file


_MEGABYTE = 1024 * 1024


class RebuildConfig(dg.Config):
    """What can be set in the launchpad; all of it may be left out."""

    input_snapshot: int = Field(
        default=0, ge=0, description="Rebuild this snapshot of the input; 0: the newest published."
    )
    target_shard_mb: int = Field(
        default=0, ge=0, description="Shards of so many MB; 0 for the declared size."
    )


def rebuilt_version(
    name: str,
    *,
    of: str | VersionDefs,
    target_bytes: int | str | None = None,
    compression: str | None = None,
    export: str | Path | None = None,
    expectations: str | Path | None = None,
    description: str = "",
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    code_version: str = __version__,
) -> VersionDefs:
    """Declare a version, `digits/single`, that holds what `of` has published, rebuilt.

    It becomes one file, or files of `target_bytes`, such as "128MB"; `export` is a path at which
    the newest published state also lies as one file, replaced whole. It follows `of` by itself.
    """
    source = of if isinstance(of, str) else of.name
    validate_inputs(name, [source])
    with raise_declaration_error(name):
        target = None if target_bytes is None else parse_target("target_bytes", target_bytes)
        parse_shard_compression(compression)
    gate = create_version_checks(name, expectations, grows=False)

    @build_derived_asset(
        name,
        (source,),
        made_by="rebuild",
        description=description or f"`{source}`, rebuilt.",
        owners=owners,
        tags=tags,
        code_version=code_version,
    )
    def rebuilt(
        context: dg.AssetExecutionContext, config: RebuildConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        run = context.run.run_id
        base = shardline.version(source, run=run, code=code_version)
        version = shardline.version(name, run=run, code=code_version)
        snapshot = select_input(base, config.input_snapshot, "input_snapshot")
        require_declared_checks(version, gate)
        began = time.perf_counter()
        report = rebuild(
            base,
            snapshot.number,
            into=version,
            target_bytes=config.target_shard_mb * _MEGABYTE or target,
            compression=compression,
            checks=gate.required,
            executor=create_logging_executor(context.log),
        )
        made = create_step_report(version, report, time.perf_counter() - began, context)
        if made is None:
            context.log.info("%s has no record to rebuild", source)
            return
        yield build_result(version, made)

    def plan(shardline: ShardlineResource, config: RebuildConfig) -> VersionPlan:
        base = shardline.version(source)
        return _create_plan(select_input(base, config.input_snapshot, "input_snapshot"))

    return VersionDefs(
        name,
        (
            rebuilt,
            *([build_export_asset(name, Path(export), owners)] if export is not None else []),
        ),
        gate.definition(),
        inputs=(source,),
        suite=gate.suite,
        exports=() if export is None else (Path(export),),
        dry_run=DryRun(RebuildConfig, plan),
        derive_schema=lambda schemas: schemas[source],
    )


def _create_plan(snapshot: Snapshot) -> VersionPlan:
    shards, records = snapshot.totals.shards, snapshot.records
    return VersionPlan(
        f"{snapshot} to rebuild, {format_count(records, 'record')} in "
        f"{format_count(shards, 'shard')}",
        {
            "input_snapshot": snapshot.number,
            "shards_to_read": int(shards),
            "rows_to_read": int(records),
            "bytes_to_read": int(snapshot.bytes),
        },
    )
