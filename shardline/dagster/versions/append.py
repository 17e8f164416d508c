"""A version that grows: each materialization appends new sources, each source once."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, Unpack
from zoneinfo import available_timezones

import dagster as dg
from pydantic import Field

from shardline.api import Version
from shardline.arguments import TARGET_BYTES, list_items, validate_option_names
from shardline.dagster import metadata_keys as keys
from shardline.dagster.automation.landing_sensor import build_append_schedule, build_landing_sensor
from shardline.dagster.versions.builder import (
    MEGABYTE,
    VersionOperation,
    VersionOptions,
    VersionStep,
    build_version,
)
from shardline.dagster.versions.declaration import (
    Schemas,
    VersionDefs,
    VersionPlan,
    parse_target,
    raise_declaration_error,
)
from shardline.dagster.versions.materialization import (
    Metadata,
    StepReport,
    build_schema_metadata,
    get_latest_report,
)
from shardline.dagster.versions.progress import create_logging_executor
from shardline.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from shardline.hints import Hint
from shardline.log.version import validate_schema
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
from shardline.schema.schema import Schema
from shardline.sources import RecordSource, open_source
from shardline.text import format_bytes, format_count
from shardline.tfrecord.compression import Compression

LandingArgument: TypeAlias = LandingFolder | str | PathLike[str]

_MAX_NAMES = 20


class AppendConfig(dg.Config):
    """Launchpad options of a version that grows. All are optional."""

    files: list[str] = Field(
        default=[],
        description="Append only these files, by path or URI, from any folder. Empty: all new "
        "files in the landing folders.",
    )
    limit: int = Field(default=0, ge=0, description="Maximum number of sources. 0: all.")
    target_shard_mb: int = Field(
        default=0, ge=0, description="Size of a shard in MB. 0: the declared size."
    )
    retry_rejected: bool = Field(
        default=False,
        description="Also append sources that were rejected before. A source that a restore rolled "
        "back is appended again if it is named in files.",
    )
    on_duplicate: Literal["", "skip", "append"] = Field(
        default="",
        description="Known content under a new path: skip or append it. Empty: as declared.",
    )
    on_changed: Literal["", "reject", "append", "replace"] = Field(
        default="",
        description="A known path with new content: reject it, append it as well, or replace its "
        "records. Empty: as declared.",
    )


def appended_version(
    name: str,
    *,
    schema: Schema,
    landing: LandingArgument | Sequence[LandingArgument],
    cron: str | None = None,
    timezone: str = "UTC",
    watch_seconds: int | None = None,
    max_quarantined: float = 0.0,
    on_duplicate: OnDuplicate = "skip",
    on_changed: OnChanged = "reject",
    target_bytes: int | str = TARGET_BYTES,
    compression: str = "none",
    **options: Unpack[VersionOptions],
) -> VersionDefs:
    """Declare a version that grows by the sources in its landing folders.

    Args:
        name: The version.
        schema: The schema of its records.
        landing: A LandingFolder, the path of a folder, or several of them.
        cron: Times at which to append.
        timezone: The timezone of `cron`.
        watch_seconds: How often to look for new files, which are appended at once.
        max_quarantined: Share of the rows of a source, from 0 to 1, that may not fit the schema.
            They go to quarantine.
        on_duplicate: Known content under a new path: "skip" or "append".
        on_changed: A known path with new content: "reject", "append" or "replace".
        target_bytes: Size of a shard, as a number or as text such as "128MB".
        compression: "none" or "gzip" for the shards.
        **options: The options of all factories, see `VersionOptions`.

    Returns:
        The declared version, for `build_definitions`.

    Raises:
        DeclarationError: If an option is invalid.

    Example:
        notes = appended_version("notes/v1", schema=SCHEMA, landing="landing", watch_seconds=30)
    """
    validate_option_names(appended_version, options, VersionOptions.__annotations__)
    with raise_declaration_error(name):
        folders = _parse_folders(landing)
        validate_schema(schema, name)
        target = parse_target("target_bytes", target_bytes)
        AppendOptions(target, Compression(compression), max_quarantined)
        rules = SourceRules(on_duplicate, on_changed)
        _validate_times(timezone, watch_seconds)
    operation = _Append(name, schema, folders, target, compression, max_quarantined, rules)
    return build_version(
        name,
        operation,
        options,
        schedules=[build_append_schedule(name, folders, cron, timezone)] if cron else [],
        sensors=[build_landing_sensor(name, folders, watch_seconds)] if watch_seconds else [],
    )


@dataclass(frozen=True, slots=True)
class _Append(VersionOperation[AppendConfig]):
    """The declared options of a version that grows."""

    operation: ClassVar[str] = "append"
    config: ClassVar[type[dg.Config]] = AppendConfig
    grows: ClassVar[bool] = True

    name: str
    schema: Schema
    folders: tuple[LandingFolder, ...]
    target_bytes: int
    compression: str
    max_quarantined: float
    rules: SourceRules
    inputs: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"Appended from {', '.join(f'`{folder.location}`' for folder in self.folders)}."

    def build_asset_metadata(self) -> Metadata:
        return {**build_schema_metadata(self.schema)}

    def derive_schema(self, schemas: Schemas) -> Schema | None:  # noqa: ARG002 - it has no inputs
        return self.schema

    def plan(self, step: VersionStep[AppendConfig]) -> VersionPlan:
        return _create_plan(self.name, self._scan(step))

    def run(
        self, step: VersionStep[AppendConfig], context: dg.AssetExecutionContext
    ) -> StepReport | None:
        version, config = step.version, step.config
        scan = self._scan(step)
        _log_scan(context, self.name, scan)
        step.require_checks()
        start = time.perf_counter()
        report = append(
            version,
            [_open_file(file, self.folders) for file in scan.new],
            schema=self.schema,
            checks=step.checks,
            target_bytes=config.target_shard_mb * MEGABYTE or self.target_bytes,
            compression=self.compression,
            max_quarantined=self.max_quarantined,
            skip_invalid=True,
            retry_rejected=config.retry_rejected,
            on_duplicate=config.on_duplicate or self.rules.on_duplicate,
            on_changed=config.on_changed or self.rules.on_changed,
            executor=create_logging_executor(context.log),
        )
        seconds = time.perf_counter() - start
        results = (report.appended, report.skipped, report.rejected)
        record_scan(version, scan, [result.source for group in results for result in group])
        _log_report(context, report)
        step_report = _create_step_report(version, report, seconds) or get_latest_report(
            version, context.instance, context.asset_key
        )
        if step_report is None:
            if report.rejected:
                raise dg.Failure(
                    f"{self.name}: no snapshot yet, all sources were rejected: "
                    f"{report.rejected[0].reason}",
                    allow_retries=False,
                )
            return None
        return replace(
            step_report,
            rejected_sources=len(report.rejected),
            duplicate_sources=len(report.duplicates),
        )

    def _scan(self, step: VersionStep[AppendConfig]) -> LandingScan:
        """Scan the landing folders, and select the sources that the launchpad names."""
        version, config = step.version, step.config
        try:
            validate_declared_schema(version, self.schema)
        except SchemaMismatchError as error:
            raise error.set_hint(_create_migrate_hint(version.name)) from None
        scan = scan_landing_folders(version, self.folders)
        new = scan.new
        if config.retry_rejected:
            new += scan.rejected(version)
        if config.files:
            by_path = {file.path: file for file in (*new, *scan.settling)}
            new = tuple(_find_file(path, by_path) for path in config.files)
        if config.limit:
            new = new[: config.limit]
        return replace(scan, new=new)


def _parse_folders(
    landing: LandingArgument | Sequence[LandingArgument],
) -> tuple[LandingFolder, ...]:
    """Return the folders, each of which may be given by its path."""
    is_single = isinstance(landing, LandingFolder | str | PathLike)
    folders = [landing] if is_single else list(list_items(landing, "landing"))
    if not folders:
        raise InvalidArgumentError(
            "landing: no folder given",
            code="missing-argument",
            hint=Hint.of("name the folder in which sources arrive"),
        )
    return tuple(
        folder if isinstance(folder, LandingFolder) else LandingFolder(folder)  # type: ignore[arg-type] # checked there
        for folder in folders
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


def _create_migrate_hint(name: str) -> Hint:
    return Hint.of(
        f"keep the schema of {name}, and declare the new schema as a version of its own: "
        f"`migrated_version('DATASET/VERSION', of='{name}', rename=..., drop=..., cast=..., "
        "default=...)`"
    )


def _find_file(path: str, files: Mapping[str, LandingFile]) -> LandingFile:
    """Return a file that is named in the launchpad and may be in any folder."""
    full = path if "://" in path else Path(path).resolve().as_posix()
    return files.get(full, LandingFile(full, "", 0, 0.0))


def _open_file(file: LandingFile, folders: Sequence[LandingFolder]) -> RecordSource | str:
    """Open a file in the format of its folder. Returns the path of one that cannot be opened.

    The append then records why it was rejected.
    """
    parents = [folder for folder in folders if file.path.startswith(f"{_get_prefix(folder)}/")]
    try:
        return open_source(file.path, format=parents[0].format if parents else None)
    except SourceError:
        return file.path


def _get_prefix(folder: LandingFolder) -> str:
    path = folder.location
    return path.rstrip("/") if "://" in path else Path(path).resolve().as_posix()


def _create_step_report(
    version: Version, report: AppendReport, seconds: float
) -> StepReport | None:
    if report.snapshot is None:
        return None
    return StepReport(
        version.snapshot(report.snapshot),
        added_rows=report.records,
        added_bytes=report.bytes,
        added_shards=sum(len(source.shards) for source in report.appended),
        quarantined_rows=report.quarantined_rows,
        quarantine=report.quarantine_files,
        seconds=seconds,
    )


def _log_scan(context: dg.AssetExecutionContext, name: str, scan: LandingScan) -> None:
    known = format_count(scan.known, "known source")
    if scan.new:
        size = format_bytes(sum(file.size for file in scan.new))
        new = format_count(len(scan.new), "source")
        context.log.info("%s: %s to append (%s), %s", name, new, size, known)
    else:
        context.log.info("%s: no new sources, %s", name, known)
    if scan.settling:
        paths = ", ".join(file.path for file in scan.settling[:_MAX_NAMES])
        context.log.info("skipped as still being written: %s", paths)


def _create_plan(name: str, scan: LandingScan) -> VersionPlan:
    rows = [dg.TableRecord({"source": file.path, "bytes": file.size}) for file in scan.new]
    columns = dg.TableSchema([dg.TableColumn("source"), dg.TableColumn("bytes", "int")])
    size = format_bytes(sum(file.size for file in scan.new))
    return VersionPlan(
        f"{name}: {format_count(len(rows), 'source')} to append ({size}), "
        f"{scan.known} known, {len(scan.settling)} still being written",
        {
            keys.SOURCES_TO_APPEND: len(rows),
            keys.SOURCES: dg.MetadataValue.table(rows[:_MAX_NAMES], columns),
        },
    )


def _log_report(context: dg.AssetExecutionContext, report: AppendReport) -> None:
    for rejected in report.rejected:
        context.log.error("rejected source: %s", rejected.reason)
    if any(rejected.code == SchemaMismatchError.code for rejected in report.rejected):
        context.log.info("hint: %s", _create_migrate_hint(report.version))
    for skipped in report.skipped:
        log = context.log.warning if skipped.code == "duplicate" else context.log.info
        log("skipped %s: %s", skipped.source.path, skipped.reason)
    if report.snapshot is not None:
        context.log.info(
            "%s@%d: +%s from %s",
            report.version,
            report.snapshot,
            format_count(report.records, "record"),
            format_count(len(report.appended), "source"),
        )
