"""The ticks of the automation and of the sensors, as the daemon makes them."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from shardline.dagster.automation.reconciler import RECONCILER
from tests.dagster.platforms import GROWING, QUIET, Platform

RUN_KEY = "dagster/run_key"


@dataclass
class Ticks:
    """The ticks of the automation, one behind the other, as the daemon makes them."""

    platform: Platform
    instance: dg.DagsterInstance
    cursor: Any = field(default=None)

    def requested(self) -> set[dg.AssetKey]:
        """What a tick asks for."""
        defs = self.platform.defs
        result = dg.evaluate_automation_conditions(
            defs=defs, instance=self.instance, cursor=self.cursor
        )
        self.cursor = result.cursor
        return {
            key for key in defs.resolve_all_asset_keys() if result.get_requested_partitions(key)
        }

    def follow(self) -> list[dg.AssetKey]:
        """Ticks, and the runs that they ask for, until one asks for nothing."""
        followed: list[dg.AssetKey] = []
        while wanted := self.requested():
            assert self.platform.run(self.instance, *wanted).success
            followed += sorted(wanted)
        return followed


@dataclass
class Reconciling:
    """The ticks of the reconciler, one after the other, and the runs that they request.

    Another `sensor` may be named. Its requests are for the version that grows unless they say so.
    """

    platform: Platform
    instance: dg.DagsterInstance
    cursor: str | None = None
    skipped: str = ""
    sensor: str = RECONCILER

    def tick(self) -> list[dg.RunRequest]:
        """Store what a tick reports, and return the requests whose run keys are new."""
        repository = self.platform.defs.get_repository_def()
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            repository_def=repository,
            resources={"shardline": self.platform.resource},
        )
        told = repository.get_sensor_def(self.sensor).evaluate_tick(context)
        for event in told.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor, self.skipped = told.cursor, told.skip_message or ""
        return [request for request in told.run_requests or () if not self._is_known(request)]

    def _is_known(self, request: dg.RunRequest) -> bool:
        tags = {RUN_KEY: str(request.run_key)}
        return bool(self.instance.get_runs(dg.RunsFilter(tags=tags), limit=1))

    def run(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Run what a tick requests."""
        job = self.platform.defs.resolve_implicit_global_asset_job_def()
        selected = request.asset_selection
        assets = {GROWING} if selected is None else set(selected)
        checks = None if request.asset_check_keys is None else set(request.asset_check_keys)
        subset = job.get_subset(asset_selection=assets, asset_check_selection=checks)
        return subset.execute_in_process(
            instance=self.instance,
            run_config={**QUIET, **request.run_config},
            raise_on_error=False,
            tags={**request.tags, RUN_KEY: str(request.run_key)},
        )

    def settle(self, ticks: int = 10) -> list[str]:
        """Tick and run until two ticks request and report nothing; return what was requested."""
        requested: list[str] = []
        quiet = 0
        for _ in range(ticks):
            before = self.cursor
            requests = self.tick()
            for request in requests:
                self.run(request)
            requested += [describe(request) for request in requests]
            quiet = 0 if requests or self.cursor != before else quiet + 1
            if quiet == 2:
                return requested
        raise AssertionError(f"the reconciler requests runs without end: {requested}")


def landing_ticks(
    platform: Platform, instance: dg.DagsterInstance, cursor: str | None = None
) -> Reconciling:
    """The ticks of the landing sensor of the version that grows."""
    return Reconciling(platform, instance, cursor, sensor="notes_v1_landing")


def describe(request: dg.RunRequest) -> str:
    """Name the assets and the checks of a request."""
    assets = [key.to_user_string() for key in request.asset_selection or ()]
    checks = [key.name for key in request.asset_check_keys or ()]
    keys = {key.asset_key.to_user_string() for key in request.asset_check_keys or ()}
    return " ".join([*assets, *sorted(keys), *checks])
