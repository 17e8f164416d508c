"""A version that follows another version: the same records, under another schema."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from shardline.api import Version
from shardline.arguments import list_items, validate_share
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
from shardline.dagster.versions.derivation import (
    build_derived_asset,
    create_step_report,
    log_transform,
    require_declared_checks,
    select_input,
)
from shardline.dagster.versions.materialization import build_result
from shardline.dagster.versions.progress import create_logging_executor
from shardline.operations.migrate import (
    MigrationSpec,
    make_migrate_transform,
    prepare_migration,
    validate_migration_spec,
)
from shardline.operations.transform_version import VersionTransform, parse_shard_compression
from shardline.release import __version__
from shardline.schema.schema import Kind, Schema
from shardline.udf.transform import validate_side_names


class MigrateConfig(dg.Config):
    """What can be set in the launchpad; all of it may be left out."""

    input_snapshot: int = Field(
        default=0, ge=0, description="Migrate this snapshot of the input; 0: the latest published."
    )


def migrated_version(
    name: str,
    *,
    of: str | VersionDefs,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    cast: Mapping[str, Kind] | None = None,
    default: Mapping[str, Any] | None = None,
    quarantine_share: float = 0.0,
    compression: str | None = None,
    expectations: str | Path | None = None,
    description: str = "",
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    code_version: str = __version__,
) -> VersionDefs:
    """Declare a version, `digits/v2`, with what `of` has published, under another schema.

    The version follows `of`, and migrates what is new in it. Features are named as `of` calls
    them.

    Args:
        name: the new version.
        of: the version to migrate, or its name.
        rename: new names of features, by their old names.
        drop: features to leave out.
        cast: new kinds of features, "float" or "int64". A number that the new kind cannot hold
            exactly stops the run.
        default: values for records that lack the feature, which is required from then on. If no
            record has the feature, all get it.
        quarantine_share: share of the records, from 0 to 1, that may fail a cast. They go to
            quarantine.
        compression: "none" or "gzip" for new shards, as in `of` if it is left out.
        expectations: file of its suite in `checks/expectations/`.
        description: text for the asset's page.
        owners: owners of the asset.
        tags: tags of the asset.
        code_version: version of the code, recorded in the log.

    Returns:
        The declared version, for `platform`.

    Raises:
        DeclarationError: if the steps are empty or contradict each other.

    Example:
        digits_v2 = migrated_version("digits/v2", of=digits_v1, rename={"label": "digit"})
    """
    source = of if isinstance(of, str) else of.name
    validate_inputs(name, [source])
    with raise_declaration_error(name):
        steps = MigrationSpec(
            rename=rename or {},
            drop=[str(one) for one in list_items(drop, "drop")],
            cast=cast or {},
            default=default or {},
        )
        validate_migration_spec(steps)
        validate_share("quarantine_share", quarantine_share)
        parse_shard_compression(compression)
    gate = create_version_checks(name, expectations, grows=False)

    def planned(base: Version, version: Version, config: MigrateConfig) -> VersionTransform:
        snapshot = select_input(base, config.input_snapshot, "input_snapshot")
        return prepare_migration(
            base,
            version,
            steps,
            which=snapshot.number,
            compression=compression,
            quarantine_share=quarantine_share,
            checks=gate.required,
        )

    @build_derived_asset(
        name,
        (source,),
        made_by="migrate",
        description=description or f"`{source}`, under another schema.",
        owners=owners,
        tags=tags,
        code_version=code_version,
    )
    def migrated(
        context: dg.AssetExecutionContext, config: MigrateConfig, shardline: ShardlineResource
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
            context.log.info("%s has no record to migrate", source)
            return
        refused = replace(made, quarantined_rows=report.refused, quarantine=report.quarantine)
        yield build_result(version, refused)

    def plan(shardline: ShardlineResource, config: MigrateConfig) -> VersionPlan:
        work = planned(shardline.version(source), shardline.version(name), config)
        return create_transform_plan(work.plan())

    def derive_schema(schemas: Schemas) -> Schema | None:
        base = schemas[source]
        if base is None:
            return None
        transform = make_migrate_transform(base, steps)
        validate_side_names(transform)
        return transform.after

    return VersionDefs(
        name,
        (migrated,),
        gate.definition(),
        inputs=(source,),
        suite=gate.suite,
        dry_run=DryRun(MigrateConfig, plan),
        derive_schema=derive_schema,
    )
