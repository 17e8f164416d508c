"""Appending what has landed: at the times of a schedule, and soon after a file arrives.

Neither has to be right about what is new: the same source never lands twice, whoever asks. They
only see to it that every source is asked for, and that nothing is run where nothing is new.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from dagster_project.naming import asset_key, asset_name
from dagster_project.resources import ShardlineResource
from shardline.cli.wording import counted
from shardline.operations.arrivals import Arrival, Arrivals, LandingFolder, look

FILES_AT_ONCE = 200
TRIES = 3
_KEY_DIGITS = 24


def append_schedule(
    version: str, folders: Sequence[LandingFolder], cron: str, timezone: str
) -> dg.ScheduleDefinition:
    """The schedule of a version: all that has landed, in one snapshot."""

    @dg.schedule(
        name=f"{asset_name(version)}_append",
        cron_schedule=cron,
        execution_timezone=timezone,
        target=dg.AssetSelection.assets(asset_key(version)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Appends to {version} what has landed.",
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, shardline: ShardlineResource
    ) -> dg.RunRequest | dg.SkipReason:
        found = look(shardline.version(version), folders)
        if not found.new:
            return dg.SkipReason(nothing_new(version, folders, found))
        return dg.RunRequest(
            run_key=f"{asset_name(version)}_append:{context.scheduled_execution_time.isoformat()}"
        )

    return schedule


def landing_sensor(
    version: str, folders: Sequence[LandingFolder], seconds: int
) -> dg.SensorDefinition:
    """The sensor of a version: what has arrived since its last look, so many files at a time."""

    @dg.sensor(
        name=f"{asset_name(version)}_landing",
        target=dg.AssetSelection.assets(asset_key(version)),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Appends to {version} soon after a file lands.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, shardline: ShardlineResource
    ) -> dg.SensorResult:
        found = look(shardline.version(version), folders)
        asked = still_open(read_asked(context.cursor), found.new)
        runs = {ask.run_key for ask in asked.values()}
        running = {key for key in runs if _is_running(context.instance, key)}
        chosen = choose(found.new, asked, running)
        if not chosen:
            why = _why_not(version, folders, found, len(running))
            return dg.SensorResult(skip_reason=why, cursor=write_asked(asked))
        run_key = run_key_of(version, chosen)
        paths = [arrival.path for arrival, _ in chosen]
        request = dg.RunRequest(
            run_key=run_key,
            run_config={"ops": {asset_name(version): {"config": {"files": paths}}}},
        )
        now = {one.path: Ask(one.stamp, run_key, tries) for one, tries in chosen}
        return dg.SensorResult(run_requests=[request], cursor=write_asked({**asked, **now}))

    return sensor


def nothing_new(version: str, folders: Sequence[LandingFolder], found: Arrivals) -> str:
    """Why there is nothing to append, for people."""
    where = ", ".join(folder.where for folder in folders)
    missing = [folder.where for folder in folders if folder.is_missing]
    if missing:
        return f"there is no folder {', '.join(missing)}: nothing can land for {version}"
    settling = f"; {len(found.settling)} were written to just now" if found.settling else ""
    skipped = f"; skipped {counted(len(found.skipped), 'file')}" if found.skipped else ""
    known = counted(found.known, "source")
    return f"nothing new for {version} in {where}: {known} known{settling}{skipped}"


@dataclass(frozen=True, slots=True)
class Ask:
    """That a run was asked for an arrival, as it was then, for the so many-th time."""

    stamp: str
    run_key: str
    tries: int


def read_asked(cursor: str | None) -> dict[str, Ask]:
    """What the sensor has asked for, by path."""
    return {path: Ask(*told) for path, told in json.loads(cursor or "{}").items()}


def write_asked(asked: Mapping[str, Ask]) -> str:
    """The same as a cursor. It holds what has not landed yet, and so does not grow."""
    told = {path: [ask.stamp, ask.run_key, ask.tries] for path, ask in sorted(asked.items())}
    return json.dumps(told)


def still_open(asked: Mapping[str, Ask], new: Iterable[Arrival]) -> dict[str, Ask]:
    """What was asked for, has not landed, and has not been written to since."""
    stamps = {arrival.path: arrival.stamp for arrival in new}
    return {path: ask for path, ask in asked.items() if stamps.get(path) == ask.stamp}


def choose(
    new: Iterable[Arrival], asked: Mapping[str, Ask], running: Collection[str]
) -> list[tuple[Arrival, int]]:
    """What to ask a run for now, each with the number of the try.

    What a run is at is left to it; what a run has ended without landing it is tried again.
    """
    fresh, again = [], []
    for arrival in new:
        ask = asked.get(arrival.path)
        if ask is None:
            fresh.append((arrival, 1))
        elif ask.run_key not in running and ask.tries < TRIES:
            again.append((arrival, ask.tries + 1))
    return [*fresh, *again][:FILES_AT_ONCE]


def run_key_of(version: str, chosen: Iterable[tuple[Arrival, int]]) -> str:
    """The same for the same arrivals at the same try: a tick that is repeated asks for no more."""
    told = sorted([arrival.path, arrival.stamp, tries] for arrival, tries in chosen)
    digest = hashlib.sha256(json.dumps([version, told]).encode()).hexdigest()
    return f"{asset_name(version)}_landing:{digest[:_KEY_DIGITS]}"


def _is_running(instance: dg.DagsterInstance, run_key: str) -> bool:
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": run_key}), limit=1)
    return bool(runs) and not runs[0].is_finished


def _why_not(version: str, folders: Sequence[LandingFolder], found: Arrivals, running: int) -> str:
    if not found.new:
        return nothing_new(version, folders, found)
    if running:
        return f"{running} runs are appending what has landed"
    return (
        f"{len(found.new)} sources did not land in {TRIES} runs: see what those say, mend it, and "
        f"materialize {asset_name(version)} by hand"
    )
