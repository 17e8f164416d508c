"""Which snapshot a check looks at: the one that this run reported, or the newest."""

import dagster as dg

from shardline.api import Snapshot, Version

SNAPSHOT = "snapshot"
"""The metadata key under which a materialization tells the number of its snapshot."""


def reported_snapshot(event: dg.EventLogEntry | None) -> int | None:
    """The snapshot that a materialization event tells of."""
    told = None if event is None else event.asset_materialization
    value = None if told is None else told.metadata.get(SNAPSHOT)
    number = None if value is None else value.value
    return number if isinstance(number, int) else None


def snapshot_of_run(instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey) -> int | None:
    """The snapshot that a run reported for an asset, None if it did not."""
    records = instance.get_records_for_run(
        run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    numbers = [
        reported_snapshot(record.event_log_entry)
        for record in records.records
        if record.event_log_entry.get_dagster_event().asset_key == key
    ]
    return numbers[-1] if numbers else None


def subject(
    version: Version, instance: dg.DagsterInstance, run_id: str, key: dg.AssetKey
) -> Snapshot | None:
    """The snapshot to check; None if there is none yet."""
    number = snapshot_of_run(instance, run_id, key)
    if number is not None:
        return version.snapshot(number)
    return version.newest() if version.exists and version.state.snapshot else None
