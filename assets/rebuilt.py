"""A version that follows another one: the same records in one file, or in files of one size."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg
from pydantic import Field

from assets.declared import DeclarationError, DeclaredVersion, gate_of
from assets.exported import exported
from assets.metadata import Made
from assets.progress import logging_engine
from assets.reporting import result, standing
from checks.gate import Gate
from dagster_project.automation import follows_published
from dagster_project.naming import asset_key, asset_name, group_name
from dagster_project.resources import ShardlineResource
from shardline import __version__
from shardline.errors import SnapshotMissingError
from shardline.log.snapshot import Snapshot
from shardline.log.version import Version
from shardline.operations.rebuild import RebuildReport, rebuild

_MEGABYTE = 1024 * 1024


class RebuildConfig(dg.Config):
    """What can be set in the launchpad; all of it may be left out."""

    input_snapshot: int = Field(
        default=0, ge=0, description="Rebuild this snapshot of the input; 0: the newest published."
    )
    target_shard_mb: int = Field(
        default=0, ge=0, description="Shards of so many MB; 0 for the declared size."
    )
    dry_run: bool = Field(default=False, description="Only tell what would be rebuilt.")


def rebuilt_version(
    name: str,
    *,
    of: str | DeclaredVersion,
    target_bytes: int | None = None,
    compression: str | None = None,
    export: str | Path | None = None,
    expectations: str | Path | None = None,
    description: str = "",
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    code_version: str = __version__,
) -> DeclaredVersion:
    """Declare a version, `digits/single`, that holds what `of` has published, rebuilt.

    It becomes one file, or files of `target_bytes`; `export` is a path at which the newest
    published state also lies as one file, replaced whole. It follows `of` by itself.
    """
    source = of if isinstance(of, str) else of.name
    if source == name:
        raise DeclarationError(f"{name} is made of itself: give the rebuilt version another name")
    gate = gate_of(name, expectations, grows=False)

    @dg.asset(
        key=asset_key(name),
        group_name=group_name(name),
        kinds={"tfrecord"},
        deps=[asset_key(source)],
        description=description or f"`{source}`, rebuilt.",
        owners=list(owners),
        tags={**(tags or {}), "shardline/made_by": "rebuild"},
        code_version=code_version,
        automation_condition=follows_published(source),
        output_required=False,
    )
    def rebuilt(
        context: dg.AssetExecutionContext, config: RebuildConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        run = context.run.run_id
        base = shardline.version(source, run=run, code=code_version)
        version = shardline.version(name, run=run, code=code_version)
        snapshot = _input(base, config.input_snapshot)
        if config.dry_run:
            context.log.info(
                "a dry run: %s@%d would be rebuilt, %d records in %d shards",
                source,
                snapshot.number,
                snapshot.records,
                len(snapshot.shards),
            )
            return
        _prepare(version, base, gate)
        began = time.perf_counter()
        report = rebuild(
            base,
            snapshot.number,
            into=version,
            target_bytes=config.target_shard_mb * _MEGABYTE or target_bytes,
            compression=compression,
            engine=logging_engine(context.log),
        )
        seconds = time.perf_counter() - began
        made = _made(version, report, seconds) or standing(
            version, context.instance, context.asset_key
        )
        if made is None:
            context.log.info("%s has no record to rebuild", source)
            return
        yield result(version, made, inputs={asset_name(source): base.schema})

    return DeclaredVersion(
        name,
        (rebuilt, *([exported(name, Path(export), owners)] if export is not None else [])),
        gate.definition(),
        inputs=(source,),
    )


def _input(base: Version, number: int) -> Snapshot:
    """The snapshot to rebuild: the newest published one, or another that is published."""
    if not number:
        return base.published()
    snapshot = base.snapshot(number)
    if not snapshot.published:
        raise SnapshotMissingError(
            f"{snapshot} is not published, and only what passed its checks is passed on: "
            f"'shardline status {base.name}' tells why; set input_snapshot to another one"
        )
    return snapshot


def _prepare(version: Version, base: Version, gate: Gate) -> None:
    """Let the declared checks publish this version, and not those of its input."""
    if version.exists:
        version.require(gate.required)
    else:
        version.create(base.schema, gate.required)


def _made(version: Version, report: RebuildReport, seconds: float) -> Made | None:
    if report.entry is None:
        return None
    before = version.snapshot(report.entry.snapshot - 1).records if report.entry.snapshot > 1 else 0
    snapshot = version.snapshot(report.entry.snapshot)
    return Made(
        snapshot,
        added_rows=snapshot.records - before,
        added_bytes=report.bytes,
        added_shards=len(report.made),
        seconds=seconds,
    )
