"""What a run tells Dagster of a version: the snapshot that it made, or the one that stands."""

import dagster as dg

from assets.metadata import Made, snapshot_metadata
from checks.subject import reported_snapshot
from shardline.log.snapshot import Snapshot
from shardline.log.version import Version


def last_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> int | None:
    """The newest snapshot that Dagster was told of."""
    return reported_snapshot(instance.get_latest_materialization_event(key))


def standing(version: Version, instance: dg.DagsterInstance, key: dg.AssetKey) -> Made | None:
    """The newest snapshot, for a run that made none; None if the version has none.

    A run that was killed behind its commit could not report it: it is adopted here.
    """
    if not version.exists or not version.state.snapshot:
        return None
    snapshot = version.newest()
    told = last_reported(instance, key)
    return Made(snapshot, adopted=told is None or told < snapshot.number)


def result(version: Version, made: Made) -> dg.MaterializeResult[None]:
    """The materialization. Its data version is the content, so that staleness is the truth."""
    return dg.MaterializeResult(
        metadata=snapshot_metadata(version, made),
        data_version=dg.DataVersion(made.snapshot.content),
    )


def materialization(
    key: dg.AssetKey, version: Version, snapshot: Snapshot, *, added_rows: int, drawn: bool
) -> dg.AssetMaterialization:
    """The same for a commit that was made outside Dagster."""
    made = Made(snapshot, added_rows=added_rows)
    return dg.AssetMaterialization(
        asset_key=key,
        metadata=snapshot_metadata(version, made, drawn=drawn),
        tags={"dagster/data_version": snapshot.content},
    )
