"""A platform, its daemon, and what must hold after each step and each round.

`model_steps.py` has the steps: what people, programs and accidents do. A round is what the daemon
does until it has nothing left to do. The asserts read the logs and Dagster's records.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from shardline.api import Version
from shardline.dagster.checks.log_checks import get_publication
from shardline.dagster.checks.version_checks import get_required_checks
from shardline.dagster.definitions import build_definitions
from shardline.dagster.instance_records import CheckState, get_check_results
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.append import appended_version
from shardline.dagster.versions.combine import combined_version
from shardline.dagster.versions.declaration import VersionDefs
from shardline.dagster.versions.extend import extended_version
from shardline.dagster.versions.rebuild import rebuilt_version
from shardline.log.model import INTEGRITY
from shardline.operations.append import append
from shardline.operations.landing_folder import LandingFolder, scan_landing_folders
from shardline.operations.source_selection import OnChanged
from shardline.operations.status import iter_blockers
from shardline.schema.schema import Feature
from shardline.udf import record_udf
from tests.dagster.platforms import QUIET, SCHEMA, Platform
from tests.dagster.suites import at_most, write_suite
from tests.dagster.ticks import Reconciling, Ticks, landing_ticks

if TYPE_CHECKING:
    from datetime import datetime

BASE, DERIVED = "notes/v1", {"rebuilt": "notes/single", "overlay": "notes/v2", "plan": "pairs/v1"}
GROWING = dg.AssetKey("notes_v1")
FAILS, WARNS = 1000, 500
"""From which id on a row fails the suite, and from which it makes the suite warn."""
_ROUNDS = 12
OWN_CHECK_FAILS = "own check fails"


class InterruptedResource(ShardlineResource):
    """A resource that lets something happen when a version is opened."""

    def version(self, name: str, *, run: str = "", code: str = "") -> Version:
        """Open a version."""
        for happen in INTERRUPTIONS:
            happen(name)
        return super().version(name, run=run, code=code)


INTERRUPTIONS: list[Callable[[str], None]] = []


@record_udf(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    """Compute how long the name is."""
    return {"length": len(record["name"])}


@dg.asset_check(asset=GROWING, blocking=True)
def own(shardline: ShardlineResource) -> dg.AssetCheckResult:
    """Fail while a flag is set: the blocking check of a user."""
    return dg.AssetCheckResult(passed=not (Path(shardline.reports) / OWN_CHECK_FAILS).exists())


def make_model_platform(
    folder: Path, kind: str, *, has_suite: bool, on_changed: OnChanged
) -> Platform:
    """Declare a version that grows and one that is derived from it."""
    for name in ("landing", "reports"):
        (folder / name).mkdir(exist_ok=True)
    suite = folder / "notes.json"
    if has_suite and not suite.exists():
        write_limits(folder, FAILS)
    growing = appended_version(
        BASE,
        schema=SCHEMA,
        landing=landing_folder(folder),
        watch_seconds=1,
        expectations=suite if has_suite else None,
        on_changed=on_changed,
    )
    resource = InterruptedResource(root=str(folder / "root"), reports=str(folder / "reports"))
    defs = build_definitions(growing, _derived(folder, kind), shardline=resource)
    merged = dg.Definitions.merge(defs, dg.Definitions(asset_checks=[own]))
    return Platform(folder, merged, resource)


def landing_folder(folder: Path) -> LandingFolder:
    """Return the landing folder of the version that grows."""
    return LandingFolder(str(folder / "landing"), settle_seconds=0)


def write_limits(folder: Path, fails: int) -> None:
    """Write the suite: ids warn from WARNS on, and fail from `fails` on."""
    warning = at_most("id", WARNS - 1, severity="warning")
    write_suite(folder / "notes.json", at_most("id", fails - 1), warning)


def _derived(folder: Path, kind: str) -> VersionDefs:
    name = DERIVED[kind]
    if kind == "rebuilt":
        return rebuilt_version(name, of=BASE, export=folder / "notes.tfrecord")
    if kind == "overlay":
        return extended_version(name, of=BASE, udfs=length)
    collide: dict[str, Any] = {"on_collision": "prefix", "right_prefix": "other_"}
    return combined_version(name, left=BASE, right=BASE, mode="virtual", **collide)


@dataclass
class Model:
    """A platform, its daemon, and what has happened to them.

    In half of the sequences the landing sensor is on. `fails` is from which id on the suite fails.
    """

    folder: Path
    instance: dg.DagsterInstance
    seed: int
    needs_suite: bool = False
    trace: list[str] = field(default_factory=list)
    fails: int = FAILS
    files: int = 0

    def __post_init__(self) -> None:
        """Choose what is declared."""
        self.draw = random.Random(self.seed)
        self.kind = self.draw.choice(sorted(DERIVED))
        self.has_suite = self.draw.random() < 0.2 or self.needs_suite
        self.is_watched = self.draw.random() < 0.5
        on_changed: tuple[OnChanged, ...] = ("reject", "append", "replace")
        self.on_changed = self.draw.choice(on_changed)
        self.start_daemon()

    def start_daemon(self) -> None:
        """Load the definitions; cursors are those that the instance kept."""
        self.platform = make_model_platform(
            self.folder, self.kind, has_suite=self.has_suite, on_changed=self.on_changed
        )
        self.reconciling = Reconciling(self.platform, self.instance, self._cursor("reconciling"))
        self.landing = landing_ticks(self.platform, self.instance, self._cursor("landing"))
        self.ticks = Ticks(self.platform, self.instance, self._cursor("ticks"))

    def _cursor(self, name: str) -> Any:  # noqa: ANN401 - of a sensor, or of the automation
        return getattr(getattr(self, name, None), "cursor", None)

    @property
    def base(self) -> Version:
        return self.platform.version(BASE)

    @property
    def derived(self) -> Version:
        return self.platform.version(DERIVED[self.kind])

    @property
    def derived_key(self) -> dg.AssetKey:
        return dg.AssetKey(DERIVED[self.kind].replace("/", "_"))

    @property
    def required(self) -> Any:  # noqa: ANN401 - the checks of the log
        return get_required_checks(("expectations",) if self.has_suite else ())

    @property
    def has_snapshot(self) -> bool:
        version = self.base
        return version.exists and version.state.snapshot > 0

    @property
    def is_published(self) -> bool:
        """Whether the latest snapshot is published."""
        state = self.base.state
        return state.published == state.snapshot

    @property
    def is_corrupt(self) -> bool:
        """Whether the latest snapshot has a corrupt shard, as far as the log knows."""
        blockers = iter_blockers(self.base, self.base.state.snapshot)
        return any((found.check, found.kind) == (INTEGRITY, "failed") for found in blockers)

    def describe(self) -> str:
        """Return what was declared and what happened, for a failing test."""
        declared = f"seed {self.seed}, {self.kind}, on_changed {self.on_changed}"
        options = f"suite: {self.has_suite}, landing sensor: {self.is_watched}"
        return "\n".join([f"{declared}, {options}", *self.trace])

    def note(self, *words: object) -> None:
        self.trace.append("  " + " ".join(map(str, words)))

    def ids(self, first: int = 0) -> range:
        """Return ids that no other file has."""
        start = first + 10 * self.files
        return range(start, start + self.draw.randint(1, 4))

    def widen_suite(self) -> None:
        """Let the suite accept what it rejected so far."""
        self.fails *= 10
        write_limits(self.folder, self.fails)

    def land(self, ids: range, **more: object) -> Path:
        """Let a file of JSON lines arrive."""
        self.files += 1
        return self.platform.land(str(self.files), ids, **more)

    def append_outside(self, version: Version, ids: range) -> None:
        """Append a file from another folder, as another program does."""
        path = self.land(ids)
        outside = path.rename(self.folder / f"outside-{path.name}")
        append(version, outside, schema=SCHEMA, checks=self.required)

    def append_landed(self) -> None:
        """Let the landing sensor append what has landed, or a person."""
        if self.is_watched:
            self._tick_landing()
        else:
            self.run({GROWING}, None)
        self.assert_nothing_new()

    def _tick_landing(self) -> None:
        for request in self.landing.tick():
            done = self.landing.run(request)
            self.note("landing sensor:", "ok" if done.success else "failed")

    def list_new(self) -> list[str]:
        """Return the files in the landing folder that nothing has read yet."""
        scan = scan_landing_folders(self.base, [landing_folder(self.folder)])
        return [file.path for file in scan.new]

    def assert_nothing_new(self) -> None:
        assert self.list_new() == []

    def run(
        self, assets: set[dg.AssetKey], checks: set[dg.AssetCheckKey] | None, **config: object
    ) -> bool:
        job = self.platform.defs.resolve_implicit_global_asset_job_def()
        if checks is not None:
            job = job.get_subset(asset_selection=assets, asset_check_selection=checks)
        ops = {name: {"config": given} for name, given in config.items()}
        result = job.execute_in_process(
            instance=self.instance,
            asset_selection=sorted(assets) if checks is None else None,
            run_config={**QUIET, "ops": ops},
            raise_on_error=False,
        )
        named = [key.to_user_string() for key in assets]
        chosen = "all" if checks is None else sorted(key.name for key in checks)
        self.note(named, chosen, "succeeded" if result.success else "failed")
        return result.success

    def check_keys(self, *keys: dg.AssetKey) -> list[dg.AssetCheckKey]:
        graph = self.platform.defs.resolve_asset_graph()
        return sorted(key for key in graph.asset_check_keys if key.asset_key in keys)

    def interrupted(self, happen: Callable[[str], None], then: Callable[[], object]) -> None:
        """Let something happen each time that a version is opened."""
        INTERRUPTIONS.append(happen)
        try:
            then()
        finally:
            INTERRUPTIONS.clear()

    def round(self) -> None:
        """Let the daemon work until neither sensor has anything left to do."""
        idle = 0
        for _ in range(_ROUNDS):
            before = self._records()
            if self.is_watched:
                self._tick_landing()
            for request in self.reconciling.tick():
                self._assert_allowed(set(request.asset_selection or ()))
                done = self.reconciling.run(request)
                self.note("reconciler:", request.run_key, "ok" if done.success else "failed")
            wanted = self.ticks.requested()
            if wanted:
                self._assert_allowed(wanted)
                self.note("automation:", *wanted)
                self.run(wanted, None)
            idle = 0 if self._records() != before or wanted else idle + 1
            if idle == 2:
                return
        raise AssertionError("the daemon finds no end")

    def _records(self) -> tuple[int, int]:
        latest = self.instance.get_latest_materialization_event(GROWING)
        return self.instance.get_runs_count(), 0 if latest is None else int(latest.timestamp * 1e6)

    def _assert_allowed(self, assets: set[dg.AssetKey]) -> None:
        """Assert that nobody requests what a failing blocking check of its input holds back."""
        if self.derived_key in assets and GROWING not in assets:
            failing = [key for key, state in self._states(GROWING).items() if state != "passed"]
            assert failing == [], "requested in spite of its input's checks"

    def _states(self, key: dg.AssetKey) -> dict[str, str]:
        graph = self.platform.defs.resolve_asset_graph()
        keys = [check for check in self.check_keys(key) if graph.get(check).blocking]
        results = get_check_results(self.instance, keys)
        return {check.name: result.state.value for check, result in results.items()}

    def assert_safe(self) -> None:
        """Assert that downstream holds published content only."""
        version = self.derived
        if not version.exists:
            return
        ever: dict[int, datetime] = {}
        for entry in self.base.log.entries(1):
            if entry.published is not None:
                ever.setdefault(entry.published, entry.time)
        for entry in version.log.entries(1):
            for given in entry.inputs:
                assert given.snapshot in ever, "made of a snapshot that was never published"
                assert ever[given.snapshot] <= entry.time

    def assert_settled(self) -> None:
        """Assert that nothing published is unfollowed, and that nothing is stuck."""
        if self.is_watched:
            self.assert_nothing_new()
        for version, key in ((self.base, GROWING), (self.derived, self.derived_key)):
            if not version.exists or not version.state.snapshot:
                continue
            number = version.state.snapshot
            publication = get_publication(
                version, number, self.required if key == GROWING else get_required_checks(())
            )
            assert publication.unchecked == (), f"{version.name}@{number} is stuck"
            states = self._states(key)
            assert (states["published"] == "passed") == publication.is_open, states
            assert CheckState.MISSING.value not in states.values(), states
            event = self.instance.get_latest_materialization_event(key)
            assert event is not None
            assert event.asset_materialization is not None
            told = event.asset_materialization.metadata
            assert told["shardline/snapshot"].value == number
            assert told["shardline/content_digest"].value == version.latest().content
        self._assert_followed()

    def _assert_followed(self) -> None:
        if set(self._states(GROWING).values()) != {"passed"}:
            return
        published = self.base.published()
        assert published.number == self.base.state.snapshot
        derived = self.derived.published()
        rows = published.records
        if self.kind == "rebuilt":
            assert derived.content == published.content or derived.records == rows
            assert (self.folder / "notes.tfrecord").exists()
        expected = rows * rows if self.kind == "plan" else rows
        assert derived.records == derived.to_arrow().read_all().num_rows == expected
        ids = sorted(set(derived.to_arrow(["id"]).read_all()["id"].to_pylist()))
        assert ids == sorted(set(published.to_arrow(["id"]).read_all()["id"].to_pylist()))
        if self.has_suite:
            assert all(number < self.fails for number in ids)
