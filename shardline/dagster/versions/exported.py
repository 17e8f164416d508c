"""A published state as one file at a path that stays: an asset of its own, behind the checks."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg

from shardline.dagster.automation.conditions import follows_published
from shardline.dagster.naming import asset_key, asset_name, group_name
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.progress import logging_engine
from shardline.operations.export import export


def exported(name: str, path: Path, owners: Sequence[str] = ()) -> dg.AssetsDefinition:
    """The asset of a version's exported file. Its path is replaced whole, or left as it is."""

    @dg.asset(
        key=f"{asset_name(name)}_export",
        group_name=group_name(name),
        kinds={"tfrecord", "file"},
        deps=[asset_key(name)],
        description=f"What `{name}` has published, as one file: `{path}`.",
        owners=list(owners),
        tags={"shardline/made_by": "export"},
        automation_condition=follows_published(),
        output_required=False,
    )
    def export_file(
        context: dg.AssetExecutionContext, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        version = shardline.version(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        report = export(version, path, engine=logging_engine(context.log))
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
