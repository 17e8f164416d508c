"""Appends of new sources: on a schedule, and soon after a file arrives.

An append never appends a source twice, so the schedule and the sensor may request known sources.
They only ensure that every source is requested and that nothing runs without new sources. A tick
reads file stamps, one derived object and one log entry, and never a source or a shard.
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
"""Maximum number of failed files in the cursor of a sensor."""
LANDING_TAG = "shardline/landing"
"""Tag of each run that a landing sensor requests. Its value is the name of the asset."""
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
    """Return the schedule of a version, which appends all new sources in one snapshot."""

    @dg.schedule(
        name=f"{get_asset_name(version)}_append",
        cron_schedule=cron,
        execution_timezone=timezone,
        target=dg.AssetSelection.assets(get_asset_key(version)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Append new landing files to {version}.",
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, shardline: ShardlineResource
    ) -> dg.RunRequest | dg.SkipReason:
        scan = scan_landing_folders(shardline.version(version), folders)
        if not scan.new:
            return dg.SkipReason(format_skip_reason(version, folders, scan))
        return dg.RunRequest(
            run_key=f"{get_asset_name(version)}_append:{context.scheduled_execution_time.isoformat()}"
        )

    return schedule


def build_landing_sensor(
    version: str, folders: Sequence[LandingFolder], seconds: int
) -> dg.SensorDefinition:
    """Return the sensor of a version. It requests a run at a time, with few files."""

    @dg.sensor(
        name=f"{get_asset_name(version)}_landing",
        target=dg.AssetSelection.assets(get_asset_key(version)),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Append to {version} soon after a file lands. Reset the cursor to retry "
        f"files that failed in {MAX_ATTEMPTS} runs.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, shardline: ShardlineResource
    ) -> dg.SensorResult:
        name = get_asset_name(version)
        running = _find_latest_run(context.instance, name, _UNFINISHED)
        if running is not None:
            return dg.SensorResult(skip_reason=f"waiting for run {running}", cursor=context.cursor)
        cursor = LandingCursor.parse(context.cursor)
        if cursor is None:
            # A run key of an earlier generation would return no run, so the latest run starts a new
            # one.
            cursor = LandingCursor(_find_latest_run(context.instance, name, _LAUNCHED) or "")
        scan = scan_landing_folders(shardline.version(version), folders)
        step = cursor.advance(scan.new)
        if not step.chosen:
            reason = _format_wait_reason(version, folders, scan, step.cursor)
            return dg.SensorResult(skip_reason=reason, cursor=step.cursor.to_text())
        paths = [file.path for file in step.chosen]
        request = dg.RunRequest(
            run_key=f"{name}_landing:{step.run_key}",
            run_config={"ops": {name: {"config": {"files": paths}}}},
            tags={LANDING_TAG: name},
        )
        return dg.SensorResult(run_requests=[request], cursor=step.cursor.to_text())

    return sensor


def format_skip_reason(version: str, folders: Sequence[LandingFolder], scan: LandingScan) -> str:
    """Return the reason why there is nothing to append."""
    where = ", ".join(folder.location for folder in folders)
    missing = [folder.location for folder in folders if folder.is_missing]
    if missing:
        return f"{version}: landing folder not found: {', '.join(missing)}"
    settling = f", {len(scan.settling)} still being written" if scan.settling else ""
    skipped = f"; skipped {format_count(len(scan.skipped), 'file')}" if scan.skipped else ""
    known = format_count(scan.known, "source")
    return f"{version}: nothing new in {where}: {known} known{settling}{skipped}"


@dataclass(frozen=True)
class LandingCursor:
    """The bounded memory of a landing sensor. Everything else is in the log and the folders.

    A file is known by a digest of its path and stamp, so a file that is written again counts as
    new.

    Attributes:
        generation: Changes with each reset of the cursor.
        requests: Number of requests in this generation.
        requested: Files of the latest request.
        failed: Number of runs in which a file was not appended.
    """

    generation: str
    requests: int = 0
    requested: tuple[str, ...] = ()
    failed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "LandingCursor | None":
        """Parse a cursor. Returns None for one that was reset or written by an earlier release."""
        try:
            payload = json.loads(text or "null")
            return cls(
                str(payload["generation"]),
                int(payload["requests"]),
                tuple(_split_digests(payload["requested"])),
                {
                    digest: tries
                    for tries, digests in enumerate(payload["failed"], 1)
                    for digest in _split_digests(digests)
                },
            )
        except (ValueError, KeyError, TypeError):
            return None

    def to_text(self) -> str:
        """Serialize. The digests of files with equal numbers of failures are joined to one text."""
        failed = [
            "".join(digest for digest, tries in self.failed.items() if tries == count)
            for count in range(1, MAX_ATTEMPTS + 1)
        ]
        payload = {
            "generation": self.generation,
            "requests": self.requests,
            "requested": "".join(self.requested),
            "failed": failed,
        }
        return json.dumps(payload, separators=(",", ":"))

    @property
    def given_up(self) -> int:
        """Number of files that are not retried."""
        return sum(tries >= MAX_ATTEMPTS for tries in self.failed.values())

    def advance(self, new: Sequence[LandingFile]) -> "LandingStep":
        """Choose the files of the next request. The run of the latest request has ended.

        A file of that request that is still new has failed again. Files that never failed come
        first, unless the cursor has no room for the failures of another run.
        """
        tracked = set(self.requested).union(self.failed)
        digests = [_get_digest(file) for file in new] if tracked else []
        requested = set(self.requested)
        failed = {
            digest: min(self.failed.get(digest, 0) + (digest in requested), MAX_ATTEMPTS)
            for digest in digests
            if digest in tracked
        }
        room = min(MAX_FILES, max(MAX_FAILED - len(failed), 0))
        fresh = _select_first(new, digests, failed, room)
        retries = [
            file
            for file, digest in zip(new, digests, strict=False)
            if 0 < failed.get(digest, 0) < MAX_ATTEMPTS
        ]
        chosen = [*fresh, *retries][:MAX_FILES]
        after = replace(self, requested=(), failed=failed)
        if chosen:
            digests_to_request = tuple(_get_digest(file) for file in chosen)
            after = replace(after, requests=self.requests + 1, requested=digests_to_request)
        return LandingStep(chosen, after)


@dataclass(frozen=True)
class LandingStep:
    """The files to request, and the cursor after the request."""

    chosen: Sequence[LandingFile]
    cursor: LandingCursor

    @cached_property
    def run_key(self) -> str:
        """Run key of files and cursor, so that a repeated tick requests nothing twice."""
        cursor = self.cursor
        payload = [cursor.generation, cursor.requests, *sorted(cursor.requested)]
        return hashlib.sha256(json.dumps(payload).encode()).hexdigest()[:_KEY_DIGITS]


def _select_first(
    new: Sequence[LandingFile], digests: Sequence[str], failed: Collection[str], limit: int
) -> list[LandingFile]:
    """Return the first files that have not failed."""
    if not failed:
        return list(new[:limit])
    fresh: list[LandingFile] = []
    for file, digest in zip(new, digests, strict=True):
        if len(fresh) == limit:
            break
        if digest not in failed:
            fresh.append(file)
    return fresh


def _get_digest(file: LandingFile) -> str:
    text = f"{file.path}\0{file.stamp}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_FILE_DIGITS]


def _split_digests(text: str) -> list[str]:
    return [text[first : first + _FILE_DIGITS] for first in range(0, len(text), _FILE_DIGITS)]


def _find_latest_run(
    instance: dg.DagsterInstance, name: str, statuses: Sequence[dg.DagsterRunStatus]
) -> str | None:
    """Return the latest run with one of these statuses that the sensor of an asset requested."""
    runs = instance.get_runs(
        dg.RunsFilter(tags={LANDING_TAG: name}, statuses=list(statuses)), limit=1
    )
    return runs[0].run_id if runs else None


def _format_wait_reason(
    version: str, folders: Sequence[LandingFolder], scan: LandingScan, cursor: LandingCursor
) -> str:
    if not scan.new:
        return format_skip_reason(version, folders, scan)
    failed = format_count(cursor.given_up, "source")
    return (
        f"{failed} not appended in {MAX_ATTEMPTS} runs. Fix what those runs report, then reset the "
        "cursor of this sensor"
    )
