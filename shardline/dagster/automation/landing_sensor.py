"""Appending what has landed: at the times of a schedule, and soon after a file arrives.

Neither has to be right about what is new: the same source never lands twice, whoever asks. They
only see to it that every source is asked for, and that nothing is run where nothing is new. A tick
reads stamps of files, one derived object and one log entry: never a source, and never a shard.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import dagster as dg

from shardline.dagster.asset_names import get_asset_key, get_asset_name
from shardline.dagster.resources import ShardlineResource
from shardline.operations.landing_folder import (
    LandingFile,
    LandingFolder,
    LandingScan,
    scan_landing_folders,
)
from shardline.text import format_count

MAX_FILES = 200
MAX_ATTEMPTS = 3
MAX_FAILED = 1000
"""How many files that did not land the cursor of a sensor may hold."""
LANDING_TAG = "shardline/landing"
"""The tag of each run that a landing sensor requests; its value is the name of the asset."""
_KEY_DIGITS = 24
_FILE_DIGITS = 12
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_LAUNCHED = [status for status in dg.DagsterRunStatus if status.name != "NOT_STARTED"]


def build_append_schedule(
    version: str, folders: Sequence[LandingFolder], cron: str, timezone: str
) -> dg.ScheduleDefinition:
    """The schedule of a version: all that has landed, in one snapshot."""

    @dg.schedule(
        name=f"{get_asset_name(version)}_append",
        cron_schedule=cron,
        execution_timezone=timezone,
        target=dg.AssetSelection.assets(get_asset_key(version)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Appends to {version} what has landed.",
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, shardline: ShardlineResource
    ) -> dg.RunRequest | dg.SkipReason:
        found = scan_landing_folders(shardline.version(version), folders)
        if not found.new:
            return dg.SkipReason(format_skip_reason(version, folders, found))
        return dg.RunRequest(
            run_key=f"{get_asset_name(version)}_append:{context.scheduled_execution_time.isoformat()}"
        )

    return schedule


def build_landing_sensor(
    version: str, folders: Sequence[LandingFolder], seconds: int
) -> dg.SensorDefinition:
    """Return the sensor of a version: it requests one run at a time, for so many files at most."""

    @dg.sensor(
        name=f"{get_asset_name(version)}_landing",
        target=dg.AssetSelection.assets(get_asset_key(version)),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Append to {version} soon after a file lands. Resetting the cursor tries "
        f"files again that did not land in {MAX_ATTEMPTS} runs.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, shardline: ShardlineResource
    ) -> dg.SensorResult:
        name = get_asset_name(version)
        running = _find_latest_run(context.instance, name, _UNFINISHED)
        if running is not None:
            return dg.SensorResult(skip_reason=f"run {running} is appending", cursor=context.cursor)
        cursor = LandingCursor.parse(context.cursor)
        if cursor is None:
            # Run keys of an earlier generation return no run: the latest run begins another.
            cursor = LandingCursor(_find_latest_run(context.instance, name, _LAUNCHED) or "")
        found = scan_landing_folders(shardline.version(version), folders)
        step = cursor.advance(found.new)
        if not step.chosen:
            reason = _format_wait_reason(version, folders, found, step.cursor)
            return dg.SensorResult(skip_reason=reason, cursor=step.cursor.to_text())
        paths = [arrival.path for arrival in step.chosen]
        request = dg.RunRequest(
            run_key=f"{name}_landing:{step.run_key}",
            run_config={"ops": {name: {"config": {"files": paths}}}},
            tags={LANDING_TAG: name},
        )
        return dg.SensorResult(run_requests=[request], cursor=step.cursor.to_text())

    return sensor


def format_skip_reason(version: str, folders: Sequence[LandingFolder], found: LandingScan) -> str:
    """Why there is nothing to append, for people."""
    where = ", ".join(folder.where for folder in folders)
    missing = [folder.where for folder in folders if folder.is_missing]
    if missing:
        return f"there is no folder {', '.join(missing)}: nothing can land for {version}"
    settling = f"; {len(found.settling)} were written to just now" if found.settling else ""
    skipped = f"; skipped {format_count(len(found.skipped), 'file')}" if found.skipped else ""
    known = format_count(found.known, "source")
    return f"nothing new for {version} in {where}: {known} known{settling}{skipped}"


@dataclass(frozen=True)
class LandingCursor:
    """What a landing sensor has to remember, in bounded size: the log and the folder say the rest.

    `generation` begins with each reset of the cursor, and `requests` counts within it. `asked` are
    the files of the latest request, and `failed` tells in how many runs a file did not land. Files
    are known by a digest of path and stamp, so a file that is written to again counts as another.
    """

    generation: str
    requests: int = 0
    asked: tuple[str, ...] = ()
    failed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "LandingCursor | None":
        """Parse a cursor; None for one that was reset, or that an earlier release wrote."""
        try:
            payload = json.loads(text or "null")
            return cls(
                str(payload["generation"]),
                int(payload["requests"]),
                tuple(_split_digests(payload["asked"])),
                {
                    digest: tries
                    for tries, digests in enumerate(payload["failed"], 1)
                    for digest in _split_digests(digests)
                },
            )
        except (ValueError, KeyError, TypeError):
            return None

    def to_text(self) -> str:
        """Serialize; the digests of files that failed as often are joined to one text."""
        failed = [
            "".join(digest for digest, tries in self.failed.items() if tries == count)
            for count in range(1, MAX_ATTEMPTS + 1)
        ]
        payload = {
            "generation": self.generation,
            "requests": self.requests,
            "asked": "".join(self.asked),
            "failed": failed,
        }
        return json.dumps(payload, separators=(",", ":"))

    @property
    def given_up(self) -> int:
        """How many files are not tried again."""
        return sum(tries >= MAX_ATTEMPTS for tries in self.failed.values())

    def advance(self, new: Sequence[LandingFile]) -> "LandingStep":
        """Choose the files of the next request, now that no run is at those of the latest.

        What is still new and was asked for has failed once more. Fresh files come first, unless so
        many have failed that the cursor could not hold those of another failed run.
        """
        tracked = set(self.asked).union(self.failed)
        digests = [_get_digest(arrival) for arrival in new] if tracked else []
        asked = set(self.asked)
        failed = {
            digest: min(self.failed.get(digest, 0) + (digest in asked), MAX_ATTEMPTS)
            for digest in digests
            if digest in tracked
        }
        room = min(MAX_FILES, max(MAX_FAILED - len(failed), 0))
        fresh = _select_first(new, digests, failed, room)
        again = [
            arrival
            for arrival, digest in zip(new, digests, strict=False)
            if 0 < failed.get(digest, 0) < MAX_ATTEMPTS
        ]
        chosen = [*fresh, *again][:MAX_FILES]
        after = replace(self, asked=(), failed=failed)
        if chosen:
            wanted = tuple(_get_digest(arrival) for arrival in chosen)
            after = replace(after, requests=self.requests + 1, asked=wanted)
        return LandingStep(chosen, after)


@dataclass(frozen=True)
class LandingStep:
    """The files to request, and the cursor after the request."""

    chosen: Sequence[LandingFile]
    cursor: LandingCursor

    @cached_property
    def run_key(self) -> str:
        """The same for the same files and cursor: a repeated tick requests nothing twice."""
        cursor = self.cursor
        payload = [cursor.generation, cursor.requests, *sorted(cursor.asked)]
        return hashlib.sha256(json.dumps(payload).encode()).hexdigest()[:_KEY_DIGITS]


def _select_first(
    new: Sequence[LandingFile], digests: Sequence[str], failed: Collection[str], most: int
) -> list[LandingFile]:
    """Return the first files that have not failed."""
    if not failed:
        return list(new[:most])
    fresh: list[LandingFile] = []
    for arrival, digest in zip(new, digests, strict=True):
        if len(fresh) == most:
            break
        if digest not in failed:
            fresh.append(arrival)
    return fresh


def _get_digest(arrival: LandingFile) -> str:
    text = f"{arrival.path}\0{arrival.stamp}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_FILE_DIGITS]


def _split_digests(text: str) -> list[str]:
    return [text[first : first + _FILE_DIGITS] for first in range(0, len(text), _FILE_DIGITS)]


def _find_latest_run(
    instance: dg.DagsterInstance, name: str, statuses: Sequence[dg.DagsterRunStatus]
) -> str | None:
    """Return the latest run in one of these statuses that the sensor of an asset requested."""
    runs = instance.get_runs(
        dg.RunsFilter(tags={LANDING_TAG: name}, statuses=list(statuses)), limit=1
    )
    return runs[0].run_id if runs else None


def _format_wait_reason(
    version: str, folders: Sequence[LandingFolder], found: LandingScan, cursor: LandingCursor
) -> str:
    if not found.new:
        return format_skip_reason(version, folders, found)
    return (
        f"{format_count(cursor.given_up, 'source')} did not land in {MAX_ATTEMPTS} runs. "
        "Fix what those runs "
        "report, then reset the cursor of this sensor"
    )
