"""Materializations: the result of a step, and the snapshot that it reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.instance_records import get_reported_snapshot
from shardline.dagster.previews.preview import render_preview
from shardline.dagster.versions.metadata_values import (
    build_column_lineage,
    build_column_schema,
    build_lineage_table,
    build_quarantine_value,
    build_source_table,
    build_upstream_table,
    format_commands,
    format_read_code,
    locate_object,
)
from shardline.errors import ShardlineError
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Schema

Metadata: TypeAlias = dict[str, dg.MetadataValue[Any] | bool | int | float | str]


@dataclass(frozen=True, slots=True)
class StepReport:
    """The result of a step, and the snapshot that it reports.

    Attributes:
        snapshot: The snapshot to report.
        added_rows: Rows that the step added.
        added_bytes: Size of the shards that it added.
        added_shards: Shards that it added.
        quarantined_rows: Rows that gave no record.
        quarantine: Files of the store with those rows.
        rejected_sources: Sources that could not be appended.
        duplicate_sources: Sources that were skipped as known content.
        counts: More numbers by metadata key. All reports of an operation have the same keys.
        seconds: Duration of the work, 0 if nothing was done.
        is_recovered: Whether another run committed the snapshot and could not report it.
        is_known: Whether the snapshot was reported before.
    """

    snapshot: Snapshot
    added_rows: int = 0
    added_bytes: int = 0
    added_shards: int = 0
    quarantined_rows: int = 0
    quarantine: tuple[str, ...] = ()
    rejected_sources: int = 0
    duplicate_sources: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    is_recovered: bool = False
    is_known: bool = False


def build_result(version: Version, report: StepReport) -> dg.MaterializeResult[None]:
    """Return the materialization, whose data version is the content digest."""
    build = build_brief_metadata if report.is_known else build_snapshot_metadata
    return dg.MaterializeResult(
        metadata=build(version, report), data_version=dg.DataVersion(report.snapshot.content)
    )


def build_materialization(
    key: dg.AssetKey, version: Version, snapshot: Snapshot, *, added_rows: int
) -> dg.AssetMaterialization:
    """Return the materialization of a commit that no run reported, built from the log alone."""
    entry = version.log.entry(snapshot.entry)
    metadata = build_brief_metadata(version, StepReport(snapshot, added_rows=added_rows))
    if entry.inputs:
        metadata[keys.UPSTREAM_SNAPSHOTS] = build_upstream_table(snapshot.store, entry)
    return dg.AssetMaterialization(
        asset_key=key, metadata=metadata, tags={"dagster/data_version": snapshot.content}
    )


def get_latest_report(
    version: Version, instance: dg.DagsterInstance, key: dg.AssetKey
) -> StepReport | None:
    """Return the latest snapshot for a run that committed nothing, None if there is no snapshot.

    A run that was killed after its commit could not report it, so this run does.
    """
    if not version.exists or not version.state.snapshot:
        return None
    snapshot = version.latest()
    reported = get_reported_snapshot(instance.get_latest_materialization_event(key))
    is_recovered = reported is None or reported < snapshot.number
    return StepReport(snapshot, is_recovered=is_recovered, is_known=not is_recovered)


def build_schema_metadata(schema: Schema) -> dict[str, dg.TableSchemaMetadataValue]:
    """Return the metadata of an asset's definition for a declared schema.

    The asset page shows it even if the latest materialization is too brief to include it.
    """
    return {"dagster/column_schema": dg.MetadataValue.table_schema(build_column_schema(schema))}


def build_brief_metadata(version: Version, report: StepReport) -> Metadata:
    """Return the numbers and digests of a snapshot. No shard and no other log is read."""
    snapshot = report.snapshot
    sources = {
        keys.REJECTED_SOURCES: report.rejected_sources,
        keys.DUPLICATE_SOURCES: report.duplicate_sources,
    }
    return {
        "dagster/row_count": int(snapshot.records),
        **build_published_metadata(version),
        keys.SNAPSHOT: int(snapshot.number),
        keys.BYTES: int(snapshot.bytes),
        keys.SHARDS: int(snapshot.totals.shards),
        keys.ADDED_ROWS: int(report.added_rows),
        **{key: int(count) for key, count in report.counts.items()},
        **{key: int(count) for key, count in sources.items() if count},
        "dagster/uri": locate_object(snapshot.store, version.name),
        keys.CONTENT_DIGEST: snapshot.content,
        keys.ENTRY_DIGEST: version.log.entry(snapshot.entry).digest,
    }


def build_published_metadata(version: Version) -> dict[str, int]:
    """Return the published snapshot and its rows, 0 if there is none."""
    published = version.state.published or 0
    rows = version.snapshot(published).records if published else 0
    return {keys.PUBLISHED_SNAPSHOT: int(published), keys.PUBLISHED_ROWS: int(rows)}


def build_snapshot_metadata(version: Version, report: StepReport) -> Metadata:
    """Return everything that the UI shows of a snapshot."""
    snapshot = report.snapshot
    entry = version.log.entry(snapshot.entry)
    metadata: Metadata = {
        "dagster/row_count": int(snapshot.records),
        **build_published_metadata(version),
        keys.PREVIEW: dg.MetadataValue.md(render_preview(version, snapshot, entry)),
        **_build_numbers(report),
        **build_schema_metadata(snapshot.schema),
        "dagster/uri": locate_object(snapshot.store, version.name),
        "dagster/storage_kind": "tfrecord",
        keys.CONTENT_DIGEST: snapshot.content,
        keys.ENTRY_DIGEST: entry.digest,
        keys.READ_CODE: dg.MetadataValue.md(format_read_code(snapshot)),
        keys.COMMANDS: dg.MetadataValue.md(format_commands(snapshot)),
    }
    metadata |= _build_lineage_metadata(snapshot)
    if entry.inputs:
        metadata[keys.UPSTREAM_SNAPSHOTS] = build_upstream_table(snapshot.store, entry)
    if entry.sources and entry.rejects is None:  # a rejection names the sources that it removes
        metadata[keys.SOURCES] = build_source_table(entry)
    if report.quarantine:
        metadata[keys.QUARANTINE] = build_quarantine_value(snapshot.store, report.quarantine)
    if report.is_recovered:
        metadata[keys.RECOVERED] = True
    return metadata


def _build_numbers(report: StepReport) -> Metadata:
    """Return plain numbers, because Dagster refuses those of NumPy."""
    snapshot, seconds = report.snapshot, float(report.seconds)
    row_rate = float(report.added_rows) / seconds if seconds > 0 else 0.0
    byte_rate = float(report.added_bytes) / seconds if seconds > 0 else 0.0
    return {
        keys.SNAPSHOT: int(snapshot.number),
        keys.ENTRY: int(snapshot.entry),
        keys.BYTES: int(snapshot.bytes),
        keys.SHARDS: int(snapshot.totals.shards),
        keys.ADDED_ROWS: int(report.added_rows),
        keys.ADDED_BYTES: int(report.added_bytes),
        keys.ADDED_SHARDS: int(report.added_shards),
        keys.QUARANTINED_ROWS: int(report.quarantined_rows),
        keys.REJECTED_SOURCES: int(report.rejected_sources),
        keys.DUPLICATE_SOURCES: int(report.duplicate_sources),
        **{key: int(count) for key, count in report.counts.items()},
        keys.ROWS_PER_SECOND: round(row_rate, 1),
        keys.BYTES_PER_SECOND: round(byte_rate, 1),
    }


def _build_lineage_metadata(snapshot: Snapshot) -> Metadata:
    """Return the upstream columns of a derived version, nothing if its logs cannot be read."""
    try:
        origins = LogIndex(snapshot.store).get_snapshot_origins(snapshot)
    except ShardlineError:
        return {}
    if not origins:
        return {}
    lineage = build_column_lineage(origins)
    return {
        "dagster/column_lineage": dg.MetadataValue.column_lineage(lineage),
        keys.UPSTREAM_COLUMNS: build_lineage_table(lineage),
    }
