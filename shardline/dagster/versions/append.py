"""A version that grows: each materialization appends what has landed since, exactly once."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias
from zoneinfo import available_timezones

import dagster as dg
from pydantic import Field

from shardline.api import Version
from shardline.arguments import TARGET_BYTES, list_items
from shardline.dagster.asset_names import get_asset_key, group_name
from shardline.dagster.automation.landing_sensor import build_append_schedule, build_landing_sensor
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.declaration import (
    DryRun,
    VersionDefs,
    VersionPlan,
    create_version_checks,
    parse_target,
    raise_declaration_error,
)
from shardline.dagster.versions.materialization import (
    StepReport,
    build_result,
    build_schema_metadata,
    get_latest_report,
)
from shardline.dagster.versions.progress import create_logging_executor
from shardline.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from shardline.hints import Hint
from shardline.log.version import get_no_schema_error
from shardline.operations.append import AppendReport, append, validate_declared_schema
from shardline.operations.append_task import AppendOptions
from shardline.operations.landing_folder import (
    LandingFile,
    LandingFolder,
    LandingScan,
    record_scan,
    scan_landing_folders,
)
from shardline.operations.source_selection import OnChanged, OnDuplicate, SourceRules
from shardline.release import __version__
from shardline.schema.schema import Schema
from shardline.sources import RecordSource, open_source
from shardline.text import format_bytes, format_count
from shardline.tfrecord.compression import Compression

LandingArgument: TypeAlias = LandingFolder | str | PathLike[str]

_MEGABYTE = 1024 * 1024
_SHOWN = 20


class AppendConfig(dg.Config):
    """What can be set in the launchpad; all of it may be left out."""

    files: list[str] = Field(
        default=[],
        description="Append these files only, by path or URI; they need not lie in the landing "
        "folder. Empty: all that has landed.",
    )
    limit: int = Field(default=0, ge=0, description="At most so many sources; 0 for all.")
    target_shard_mb: int = Field(
        default=0, ge=0, description="Begin a new shard at so many MB; 0 for the declared size."
    )
    reland: bool = Field(
        default=False,
        description="Also append what was rejected or set aside before; what was rolled back by a "
        "restore comes in again if it is named in files.",
    )
    on_duplicate: Literal["", "skip", "append"] = Field(
        default="",
        description="Content that has landed under another path: skip or append it. Empty: as "
        "declared.",
    )
    on_changed: Literal["", "reject", "append", "replace"] = Field(
        default="",
        description="A path that has landed and now has other content: reject it, append it as "
        "well, or replace its records. Empty: as declared.",
    )


def appended_version(
    name: str,
    *,
    schema: Schema,
    landing: LandingArgument | Sequence[LandingArgument],
    cron: str | None = None,
    timezone: str = "UTC",
    watch_seconds: int | None = None,
    quarantine_share: float = 0.0,
    on_duplicate: OnDuplicate = "skip",
    on_changed: OnChanged = "reject",
    expectations: str | Path | None = None,
    target_bytes: int | str = TARGET_BYTES,
    compression: str = "none",
    description: str = "",
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    code_version: str = __version__,
) -> VersionDefs:
    """Declare a version, `digits/v1`, that grows by what lands in its folders.

    `landing` is a LandingFolder or the path of a folder, or several of them. `target_bytes` is a
    number, or a size such as "128MB".

    It is appended to at the times of `cron`, and soon after a file lands if the folders are looked
    into every `watch_seconds`; nothing runs where nothing is new. Up to `quarantine_share` of the
    rows of a source may not fit the schema. `on_duplicate` and `on_changed` are those of `append`.
    `expectations` is the file of its suite in `checks/expectations/`.
    """
    with raise_declaration_error(name):
        folders = _parse_folders(landing)
        get_no_schema_error(schema, name)
        target = parse_target("target_bytes", target_bytes)
        AppendOptions(target, Compression(compression), quarantine_share)
        SourceRules(on_duplicate, on_changed)
        _validate_times(timezone, watch_seconds)
    gate = create_version_checks(name, expectations, grows=True)
    landing_of = f"\n\nAppended from {', '.join(f'`{folder.where}`' for folder in folders)}."

    @dg.asset(
        key=get_asset_key(name),
        group_name=group_name(name),
        kinds={"tfrecord"},
        description=(description or f"`{name}`, appended to by what lands.") + landing_of,
        owners=list(owners),
        tags={**(tags or {}), "shardline/made_by": "append"},
        metadata=build_schema_metadata(schema),
        code_version=code_version,
        output_required=False,
    )
    def appended(
        context: dg.AssetExecutionContext, config: AppendConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        version = shardline.version(name, run=context.run.run_id, code=code_version)
        _validate_schema(version, schema)
        found = _select_arrivals(version, scan_landing_folders(version, folders), config)
        _log_arrivals(context, name, found)
        if version.exists:
            version.require(gate.required)
        began = time.perf_counter()
        report = append(
            version,
            [_open_arrival(arrival, folders) for arrival in found.new],
            schema=schema,
            checks=gate.required,
            target_bytes=config.target_shard_mb * _MEGABYTE or target,
            compression=compression,
            quarantine_share=quarantine_share,
            set_aside=True,
            reland=config.reland,
            on_duplicate=config.on_duplicate or on_duplicate,
            on_changed=config.on_changed or on_changed,
            executor=create_logging_executor(context.log),
        )
        seconds = time.perf_counter() - began
        told = (report.landed, report.skipped, report.set_aside)
        record_scan(version, found, [one.source for group in told for one in group])
        _log_report(context, report)
        made = _create_step_report(version, report, seconds) or get_latest_report(
            version, context.instance, context.asset_key
        )
        if made is None and report.set_aside:
            raise dg.Failure(
                f"{name} has no snapshot yet, and what landed cannot be appended: "
                f"{report.set_aside[0].why}",
                allow_retries=False,
            )
        if made is None:
            context.log.info("%s has no snapshot yet: nothing has landed", name)
            return
        aside, same = len(report.set_aside), len(report.duplicates)
        yield build_result(version, replace(made, set_aside=aside, duplicates=same))

    def plan(shardline: ShardlineResource, config: AppendConfig) -> VersionPlan:
        version = shardline.version(name)
        _validate_schema(version, schema)
        return _create_plan(
            _select_arrivals(version, scan_landing_folders(version, folders), config)
        )

    return VersionDefs(
        name,
        (appended,),
        gate.definition(),
        suite=gate.suite,
        dry_run=DryRun(AppendConfig, plan),
        derive_schema=lambda _: schema,
        schedules=[build_append_schedule(name, folders, cron, timezone)] if cron else [],
        sensors=[build_landing_sensor(name, folders, watch_seconds)] if watch_seconds else [],
    )


def _parse_folders(
    landing: LandingArgument | Sequence[LandingArgument],
) -> tuple[LandingFolder, ...]:
    """Return the folders, of which each may be given by its path."""
    one = isinstance(landing, LandingFolder | str | PathLike)
    given = [landing] if one else list(list_items(landing, "landing"))
    if not given:
        raise InvalidArgumentError(
            "landing: no folder given",
            code="missing-argument",
            hint=Hint.of("name the folder in which sources arrive"),
        )
    return tuple(
        folder if isinstance(folder, LandingFolder) else LandingFolder(folder)  # type: ignore[arg-type] # checked there
        for folder in given
    )


def _validate_times(timezone: str, watch_seconds: int | None) -> None:
    if watch_seconds is not None and watch_seconds < 1:
        raise InvalidArgumentError(
            f"invalid watch_seconds {watch_seconds}: expected 1 or more", code="out-of-range"
        )
    if timezone not in available_timezones():
        raise InvalidArgumentError(
            f"unknown timezone {timezone!r}",
            code="unknown-timezone",
            hint=Hint.of("use a name such as Europe/Berlin"),
        )


def _validate_schema(version: Version, schema: Schema) -> None:
    """Raise SchemaMismatchError if the log has another schema: name the factory that migrates."""
    try:
        validate_declared_schema(version, schema)
    except SchemaMismatchError as error:
        raise error.set_hint(_create_migrate_hint(version.name)) from None


def _create_migrate_hint(name: str) -> Hint:
    return Hint.of(
        f"keep the schema of {name}, and declare the new schema as a version of its own: "
        f"`migrated_version('DATASET/VERSION', of='{name}', rename=..., drop=..., cast=..., "
        "default=...)`"
    )


def _select_arrivals(version: Version, found: LandingScan, config: AppendConfig) -> LandingScan:
    """Of what has arrived, what the launchpad asks for."""
    new = found.new
    if config.reland:
        new += found.rejected(version)
    if config.files:
        by_path = {arrival.path: arrival for arrival in (*new, *found.settling)}
        new = tuple(_find_arrival(path, by_path) for path in config.files)
    if config.limit:
        new = new[: config.limit]
    return replace(found, new=new)


def _find_arrival(path: str, arrivals: Mapping[str, LandingFile]) -> LandingFile:
    """A file that was named by hand, which may lie anywhere."""
    where = path if "://" in path else Path(path).resolve().as_posix()
    return arrivals.get(where, LandingFile(where, "", 0, 0.0))


def _open_arrival(arrival: LandingFile, folders: Sequence[LandingFolder]) -> RecordSource | str:
    """What has arrived, read as its folder says; the path where it cannot be: append tells why."""
    inside = [f for f in folders if arrival.path.startswith(_format_folder(f) + "/")]
    try:
        return open_source(arrival.path, format=inside[0].format if inside else None)
    except SourceError:
        return arrival.path


def _format_folder(folder: LandingFolder) -> str:
    where = folder.where
    return where.rstrip("/") if "://" in where else Path(where).resolve().as_posix()


def _create_step_report(
    version: Version, report: AppendReport, seconds: float
) -> StepReport | None:
    if report.snapshot is None:
        return None
    return StepReport(
        version.snapshot(report.snapshot),
        added_rows=report.records,
        added_bytes=report.bytes,
        added_shards=sum(len(landing.shards) for landing in report.landed),
        quarantined_rows=report.refused,
        quarantine=report.quarantine,
        seconds=seconds,
    )


def _log_arrivals(context: dg.AssetExecutionContext, name: str, found: LandingScan) -> None:
    if found.new:
        size = sum(arrival.size for arrival in found.new)
        context.log.info("%s: %d sources to append, %d bytes", name, len(found.new), size)
    else:
        context.log.info("%s: nothing is new; %d sources are known", name, found.known)
    if found.settling:
        paths = ", ".join(arrival.path for arrival in found.settling[:_SHOWN])
        context.log.info("written to just now, and left to settle: %s", paths)


def _create_plan(found: LandingScan) -> VersionPlan:
    rows = [
        dg.TableRecord({"source": arrival.path, "bytes": arrival.size}) for arrival in found.new
    ]
    columns = dg.TableSchema([dg.TableColumn("source"), dg.TableColumn("bytes", "int")])
    size = sum(arrival.size for arrival in found.new)
    return VersionPlan(
        f"{format_count(len(rows), 'source')} to append, {format_bytes(size)}; "
        f"{found.known} known, "
        f"{len(found.settling)} left to settle",
        {
            "would_append": len(rows),
            "sources": dg.MetadataValue.table(rows[:_SHOWN], columns),
        },
    )


def _log_report(context: dg.AssetExecutionContext, report: AppendReport) -> None:
    for refusal in report.set_aside:
        context.log.error("set aside: %s", refusal.why)
    if any(refusal.code == SchemaMismatchError.code for refusal in report.set_aside):
        context.log.info("hint: %s", _create_migrate_hint(report.version))
    for skipped in report.skipped:
        log = context.log.warning if skipped.code == "duplicate" else context.log.info
        log("skipped %s: %s", skipped.source.path, skipped.why)
    if report.snapshot is not None:
        context.log.info(
            "%s@%d: +%d records of %d sources",
            report.version,
            report.snapshot,
            report.records,
            len(report.landed),
        )
