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
from shardline.arguments import TARGET_BYTES, each_of
from shardline.dagster.asset_names import asset_key, group_name
from shardline.dagster.automation.landing_sensor import append_schedule, landing_sensor
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.column_schema import schema_metadata
from shardline.dagster.versions.declaration import (
    DeclaredVersion,
    DryRun,
    VersionPlan,
    declaring,
    gate_of,
    parse_target,
)
from shardline.dagster.versions.metadata import Made, result, standing
from shardline.dagster.versions.progress import logging_engine
from shardline.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from shardline.hints import Hint
from shardline.log.version import refuse_no_schema
from shardline.operations.append import AppendReport, append, validate_declared
from shardline.operations.append_task import LandingOptions
from shardline.operations.landing_folder import Arrival, Arrivals, LandingFolder, look, remember
from shardline.operations.source_selection import OnChanged, OnDuplicate, SourceRules
from shardline.release import __version__
from shardline.schema.schema import Schema
from shardline.sources import RecordSource, as_source
from shardline.text import counted, human_bytes
from shardline.tfrecord.compression import Compression

Landing: TypeAlias = LandingFolder | str | PathLike[str]

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
    landing: Landing | Sequence[Landing],
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
) -> DeclaredVersion:
    """Declare a version, `digits/v1`, that grows by what lands in its folders.

    `landing` is a LandingFolder or the path of a folder, or several of them. `target_bytes` is a
    number, or a size such as "128MB".

    It is appended to at the times of `cron`, and soon after a file lands if the folders are looked
    into every `watch_seconds`; nothing runs where nothing is new. Up to `quarantine_share` of the
    rows of a source may not fit the schema. `on_duplicate` and `on_changed` are those of `append`.
    `expectations` is the file of its suite in `checks/expectations/`.
    """
    with declaring(name):
        folders = _folders(landing)
        refuse_no_schema(schema, name)
        target = parse_target("target_bytes", target_bytes)
        LandingOptions(target, Compression(compression), quarantine_share)
        SourceRules(on_duplicate, on_changed)
        _refuse_times(timezone, watch_seconds)
    gate = gate_of(name, expectations, grows=True)
    landing_of = f"\n\nAppended from {', '.join(f'`{folder.where}`' for folder in folders)}."

    @dg.asset(
        key=asset_key(name),
        group_name=group_name(name),
        kinds={"tfrecord"},
        description=(description or f"`{name}`, appended to by what lands.") + landing_of,
        owners=list(owners),
        tags={**(tags or {}), "shardline/made_by": "append"},
        metadata=schema_metadata(schema),
        code_version=code_version,
        output_required=False,
    )
    def appended(
        context: dg.AssetExecutionContext, config: AppendConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        version = shardline.version(name, run=context.run.run_id, code=code_version)
        _validate_schema(version, schema)
        found = _chosen(version, look(version, folders), config)
        _tell(context, name, found)
        if version.exists:
            version.require(gate.required)
        began = time.perf_counter()
        report = append(
            version,
            [_opened(arrival, folders) for arrival in found.new],
            schema=schema,
            checks=gate.required,
            target_bytes=config.target_shard_mb * _MEGABYTE or target,
            compression=compression,
            quarantine_share=quarantine_share,
            set_aside=True,
            reland=config.reland,
            on_duplicate=config.on_duplicate or on_duplicate,
            on_changed=config.on_changed or on_changed,
            engine=logging_engine(context.log),
        )
        seconds = time.perf_counter() - began
        told = (report.landed, report.skipped, report.set_aside)
        remember(version, found, [one.source for group in told for one in group])
        _tell_report(context, report)
        made = _made(version, report, seconds) or standing(
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
        yield result(version, replace(made, set_aside=aside, duplicates=same))

    def plan(shardline: ShardlineResource, config: AppendConfig) -> VersionPlan:
        version = shardline.version(name)
        _validate_schema(version, schema)
        return _plan(_chosen(version, look(version, folders), config))

    return DeclaredVersion(
        name,
        (appended,),
        gate.definition(),
        suite=gate.suite,
        dry_run=DryRun(AppendConfig, plan),
        derive_schema=lambda _: schema,
        schedules=[append_schedule(name, folders, cron, timezone)] if cron else [],
        sensors=[landing_sensor(name, folders, watch_seconds)] if watch_seconds else [],
    )


def _folders(landing: Landing | Sequence[Landing]) -> tuple[LandingFolder, ...]:
    """Return the folders, of which each may be given by its path."""
    one = isinstance(landing, LandingFolder | str | PathLike)
    given = [landing] if one else list(each_of(landing, "landing"))
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


def _refuse_times(timezone: str, watch_seconds: int | None) -> None:
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
        validate_declared(version, schema)
    except SchemaMismatchError as error:
        raise error.set_hint(_migrate(version.name)) from None


def _migrate(name: str) -> Hint:
    return Hint.of(
        f"keep the schema of {name}, and declare the new schema as a version of its own: "
        f"`migrated_version('DATASET/VERSION', of='{name}', rename=..., drop=..., cast=..., "
        "default=...)`"
    )


def _chosen(version: Version, found: Arrivals, config: AppendConfig) -> Arrivals:
    """Of what has arrived, what the launchpad asks for."""
    new = found.new
    if config.reland:
        new += found.rejected(version)
    if config.files:
        by_path = {arrival.path: arrival for arrival in (*new, *found.settling)}
        new = tuple(_named(path, by_path) for path in config.files)
    if config.limit:
        new = new[: config.limit]
    return replace(found, new=new)


def _named(path: str, arrivals: Mapping[str, Arrival]) -> Arrival:
    """A file that was named by hand, which may lie anywhere."""
    where = path if "://" in path else Path(path).resolve().as_posix()
    return arrivals.get(where, Arrival(where, "", 0, 0.0))


def _opened(arrival: Arrival, folders: Sequence[LandingFolder]) -> RecordSource | str:
    """What has arrived, read as its folder says; the path where it cannot be: append tells why."""
    inside = [f for f in folders if arrival.path.startswith(_place(f) + "/")]
    try:
        return as_source(arrival.path, format=inside[0].format if inside else None)
    except SourceError:
        return arrival.path


def _place(folder: LandingFolder) -> str:
    where = folder.where
    return where.rstrip("/") if "://" in where else Path(where).resolve().as_posix()


def _made(version: Version, report: AppendReport, seconds: float) -> Made | None:
    if report.snapshot is None:
        return None
    return Made(
        version.snapshot(report.snapshot),
        added_rows=report.records,
        added_bytes=report.bytes,
        added_shards=sum(len(landing.shards) for landing in report.landed),
        quarantined_rows=report.refused,
        quarantine=report.quarantine,
        seconds=seconds,
    )


def _tell(context: dg.AssetExecutionContext, name: str, found: Arrivals) -> None:
    if found.new:
        size = sum(arrival.size for arrival in found.new)
        context.log.info("%s: %d sources to append, %d bytes", name, len(found.new), size)
    else:
        context.log.info("%s: nothing is new; %d sources are known", name, found.known)
    if found.settling:
        paths = ", ".join(arrival.path for arrival in found.settling[:_SHOWN])
        context.log.info("written to just now, and left to settle: %s", paths)


def _plan(found: Arrivals) -> VersionPlan:
    rows = [
        dg.TableRecord({"source": arrival.path, "bytes": arrival.size}) for arrival in found.new
    ]
    columns = dg.TableSchema([dg.TableColumn("source"), dg.TableColumn("bytes", "int")])
    size = sum(arrival.size for arrival in found.new)
    return VersionPlan(
        f"{counted(len(rows), 'source')} to append, {human_bytes(size)}; {found.known} known, "
        f"{len(found.settling)} left to settle",
        {
            "would_append": len(rows),
            "sources": dg.MetadataValue.table(rows[:_SHOWN], columns),
        },
    )


def _tell_report(context: dg.AssetExecutionContext, report: AppendReport) -> None:
    for refusal in report.set_aside:
        context.log.error("set aside: %s", refusal.why)
    if any(refusal.code == SchemaMismatchError.code for refusal in report.set_aside):
        context.log.info("hint: %s", _migrate(report.version))
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
