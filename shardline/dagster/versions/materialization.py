"""What a run tells Dagster of a version: the snapshot that it made, or the one that stands."""

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.checks.checked_snapshot import reported_snapshot
from shardline.dagster.versions.metadata import (
    Made,
    brief_metadata,
    parents_table,
    snapshot_metadata,
)


def last_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> int | None:
    """The newest snapshot that Dagster was told of."""
    return reported_snapshot(instance.get_latest_materialization_event(key))


def standing(version: Version, instance: dg.DagsterInstance, key: dg.AssetKey) -> Made | None:
    """The newest snapshot, for a run that made none; None if the version has none.

    A run that was killed after its commit could not report it: it is adopted here.
    """
    if not version.exists or not version.state.snapshot:
        return None
    snapshot = version.newest()
    told = last_reported(instance, key)
    adopted = told is None or told < snapshot.number
    return Made(snapshot, adopted=adopted, is_known=not adopted)


def result(version: Version, made: Made) -> dg.MaterializeResult[None]:
    """The materialization. Its data version is the content, so that staleness is the truth."""
    return dg.MaterializeResult(
        metadata=(brief_metadata if made.is_known else snapshot_metadata)(version, made),
        data_version=dg.DataVersion(made.snapshot.content),
    )


def materialization(
    key: dg.AssetKey, version: Version, snapshot: Snapshot, *, added_rows: int
) -> dg.AssetMaterialization:
    """The materialization of a commit that no run reported: a small event, made from the log."""
    entry = version.log.entry(snapshot.entry)
    parents = {"parents": parents_table(snapshot.store, entry)} if entry.inputs else {}
    return dg.AssetMaterialization(
        asset_key=key,
        metadata={**brief_metadata(version, Made(snapshot, added_rows=added_rows)), **parents},
        tags={"dagster/data_version": snapshot.content},
    )
