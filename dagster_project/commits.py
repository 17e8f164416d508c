"""Commits that were made outside Dagster: reported as materializations, then checked.

Whoever runs `shardline append` beside Dagster has committed a snapshot that Dagster knows nothing
of. Here it is told, in order, and the checks are asked for, which derived versions wait for.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from assets.reporting import materialization
from dagster_project.naming import asset_key
from dagster_project.resources import ShardlineResource
from shardline.log.entry import Entry
from shardline.log.version import Version

ENTRIES_AT_ONCE = 50
_INTERVAL_SECONDS = 30


def commits_sensor(checks: Mapping[str, Sequence[dg.AssetCheckKey]]) -> dg.SensorDefinition:
    """The sensor for some versions, each with the keys of its checks."""
    keys = [asset_key(version) for version in checks]

    @dg.sensor(
        name="outside_commits",
        target=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports what was committed by the command line or by other programs.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, shardline: ShardlineResource
    ) -> dg.SensorResult:
        seen: dict[str, int] = json.loads(context.cursor or "{}")
        events: list[dg.AssetMaterialization] = []
        requests: list[dg.RunRequest] = []
        for name, of_version in checks.items():
            version = shardline.version(name)
            last = min(version.state.number, seen.get(name, 0) + ENTRIES_AT_ONCE)
            found = list(outside(version, context.instance, seen.get(name, 0) + 1, last))
            events += [_event(version, entry, newest=entry is found[-1]) for entry in found]
            if found:
                requests.append(
                    dg.RunRequest(
                        run_key=f"outside_commits:{name}@{found[-1].snapshot}",
                        asset_selection=[],
                        asset_check_keys=list(of_version),
                    )
                )
            seen[name] = last
        return dg.SensorResult(
            asset_events=events,
            run_requests=requests,
            skip_reason=None if requests else "nothing was committed outside Dagster",
            cursor=json.dumps(seen),
        )

    return sensor


def outside(
    version: Version, instance: dg.DagsterInstance, first: int, last: int
) -> Iterator[Entry]:
    """The entries of a log that made a snapshot and that no run of this instance wrote."""
    for entry in version.log.entries(first):
        if entry.number > last:
            return
        if entry.changes_data and not (entry.maker.run and instance.has_run(entry.maker.run)):
            yield entry


def _event(version: Version, entry: Entry, *, newest: bool) -> dg.AssetMaterialization:
    snapshot = version.snapshot(entry.snapshot)
    before = version.snapshot(entry.snapshot - 1).records if entry.snapshot > 1 else 0
    added = max(0, snapshot.records - before)
    key = asset_key(version.name)
    return materialization(key, version, snapshot, added_rows=added, drawn=newest)
