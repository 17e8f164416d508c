"""A version with the records of another in new shards, and its export to a file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Unpack

import dagster as dg
from pydantic import Field

from shardline.api import Snapshot
from shardline.arguments import validate_option_names
from shardline.dagster import metadata_keys as keys
from shardline.dagster.asset_names import get_asset_key, get_asset_name, group_name
from shardline.dagster.automation.conditions import build_follow_condition
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.builder import (
    MEGABYTE,
    DerivedOperation,
    DerivedReport,
    InputConfig,
    VersionOptions,
    VersionStep,
    build_version,
    select_input,
)
from shardline.dagster.versions.declaration import (
    Schemas,
    VersionDefs,
    VersionPlan,
    get_version_name,
    parse_target,
    raise_declaration_error,
)
from shardline.dagster.versions.progress import create_logging_executor
from shardline.execution.executor import Executor
from shardline.operations.export import export as export_version
from shardline.operations.rebuild import rebuild
from shardline.operations.transform import parse_shard_compression
from shardline.schema.schema import Schema
from shardline.text import format_count


class RebuildConfig(InputConfig):
    """Launchpad options of a rebuilt version. All are optional."""

    target_shard_mb: int = Field(
        default=0, ge=0, description="Size of a shard in MB. 0: the declared size."
    )


def rebuilt_version(
    name: str,
    *,
    of: str | VersionDefs,
    target_bytes: int | str | None = None,
    compression: str | None = None,
    export: str | Path | None = None,
    **options: Unpack[VersionOptions],
) -> VersionDefs:
    """Declare a version with the published records of `of` in new shards.

    The version follows `of`.

    Args:
        name: The new version.
        of: The version to rebuild, or its name.
        target_bytes: Size of a shard, as a number or as text such as "128MB". Default: all records
            in one shard.
        compression: "none" or "gzip" for the shards. Default: as in `of`.
        export: Path of a file that holds the latest published snapshot. It is replaced atomically.
        **options: The options of all factories, see `VersionOptions`.

    Returns:
        The declared version, for `build_definitions`.

    Raises:
        DeclarationError: If an option is invalid.

    Example:
        digits_single = rebuilt_version("digits/single", of=digits_v1, export="digits.tfrecord")
    """
    validate_option_names(rebuilt_version, options, VersionOptions.__annotations__)
    with raise_declaration_error(name):
        target = None if target_bytes is None else parse_target("target_bytes", target_bytes)
        parse_shard_compression(compression)
    version = build_version(name, _Rebuild((get_version_name(of),), target, compression), options)
    if export is None:
        return version
    path = Path(export)
    asset = build_export_asset(name, path, options.get("owners", ()))
    return replace(version, assets=(*version.assets, asset), exports=(path,))


def build_export_asset(name: str, path: Path, owners: Sequence[str] = ()) -> dg.AssetsDefinition:
    """Return the asset of a version's exported file."""

    @dg.asset(
        key=f"{get_asset_name(name)}_export",
        group_name=group_name(name),
        kinds={"tfrecord", "file"},
        deps=[get_asset_key(name)],
        description=f"The latest published snapshot of `{name}` in one file: `{path}`.",
        owners=list(owners),
        tags={keys.OPERATION_TAG: "export"},
        automation_condition=build_follow_condition(),
        output_required=False,
    )
    def export_file(
        context: dg.AssetExecutionContext, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        version = shardline.version(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        report = export_version(version, path, executor=create_logging_executor(context.log))
        exported = report.exported
        if not report.written:
            context.log.info("%s: up to date (snapshot %d)", path, exported.snapshot)
        yield dg.MaterializeResult(
            metadata={
                "dagster/row_count": exported.records,
                keys.BYTES: exported.bytes,
                keys.SNAPSHOT: exported.snapshot,
                keys.CONTENT_DIGEST: exported.content,
                keys.FILE_SHA256: exported.sha256,
                keys.COMPRESSION: exported.compression,
                keys.IS_WRITTEN: report.written,
                keys.FILE: dg.MetadataValue.path(path.resolve()),
            },
            data_version=dg.DataVersion(exported.sha256),
        )

    return export_file


@dataclass(frozen=True, slots=True)
class _Rebuild(DerivedOperation[RebuildConfig]):
    """The declared options of a rebuilt version."""

    operation: ClassVar[str] = "rebuild"
    config: ClassVar[type[dg.Config]] = RebuildConfig

    inputs: tuple[str, ...]
    target_bytes: int | None
    compression: str | None

    def describe(self) -> str:
        return f"Rebuilt from `{self.inputs[0]}`."

    def prepare(self, step: VersionStep[RebuildConfig]) -> "_RebuildWork":
        base = step.inputs[self.inputs[0]]
        snapshot = select_input(base, step.config.input_snapshot, "input_snapshot")
        target = step.config.target_shard_mb * MEGABYTE or self.target_bytes
        return _RebuildWork(step, snapshot, target, self.compression)

    def derive_schema(self, schemas: Schemas) -> Schema | None:
        return schemas[self.inputs[0]]


@dataclass(frozen=True, slots=True)
class _RebuildWork:
    """A rebuild of a snapshot into a version."""

    step: VersionStep[RebuildConfig]
    snapshot: Snapshot
    target_bytes: int | None
    compression: str | None

    def plan(self) -> VersionPlan:
        shards, records = self.snapshot.totals.shards, self.snapshot.records
        return VersionPlan(
            f"{self.snapshot}: {format_count(records, 'record')} in "
            f"{format_count(shards, 'shard')} to rebuild",
            {
                keys.INPUT_SNAPSHOT: self.snapshot.number,
                keys.SHARDS_TO_READ: int(shards),
                keys.ROWS_TO_READ: int(records),
                keys.BYTES_TO_READ: int(self.snapshot.bytes),
            },
        )

    def run(self, executor: Executor) -> DerivedReport:
        report = rebuild(
            self.step.inputs[self.snapshot.version],
            self.step.version,
            snapshot=self.snapshot.number,
            target_bytes=self.target_bytes,
            compression=self.compression,
            checks=self.step.checks,
            executor=executor,
        )
        return DerivedReport(report.entry, report.written)
