"""A platform under random steps: runs, kills, overlaps, external commits, restores and repairs.

A step does what people, programs and accidents do. A round is what the daemon does until it has
nothing left to do. What must hold after each is asserted from the logs and Dagster's records, by
code of its own.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.appended import appended_version
from assets.combined import combined_version
from assets.declared import DeclaredVersion
from assets.extended import extended_version
from assets.rebuilt import rebuilt_version
from checks.gate import required_checks
from checks.publication import publication_of
from dagster_project.dagster_records import CheckState, check_results
from dagster_project.platform import platform
from dagster_project.resources import ShardlineResource
from shardline.errors import ShardlineError
from shardline.fields import record_fields
from shardline.log.schema import Feature
from shardline.log.version import Version
from shardline.operations.append import append
from shardline.operations.arrivals import LandingFolder
from shardline.operations.check import check_version
from shardline.operations.repair import repair
from shardline.operations.restore import restore_version
from tests.dagster_project.platforms import QUIET, SCHEMA, Platform
from tests.dagster_project.suites import at_most, write_suite
from tests.dagster_project.ticks import Reconciling, Ticks

if TYPE_CHECKING:
    from datetime import datetime

BASE, DERIVED = "notes/v1", {"rebuilt": "notes/single", "overlay": "notes/v2", "plan": "pairs/v1"}
GROWING = dg.AssetKey("notes_v1")
FAILS, WARNS = 1000, 500
"""From which id on a row fails the suite, and from which it makes the suite warn."""
_ROUNDS = 12
_FLAG = "own check fails"


class KilledError(Exception):
    """Stands for the end of a process in the middle of a step."""


class InterruptedResource(ShardlineResource):
    """A resource that lets something happen when a version is opened."""

    def version(self, name: str, *, run: str = "", code: str = "") -> Version:
        """Open a version."""
        for happen in INTERRUPTIONS:
            happen(name)
        return super().version(name, run=run, code=code)


INTERRUPTIONS: list[Callable[[str], None]] = []


@record_fields(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    """Compute how long the name is."""
    return {"length": len(record["name"])}


@dg.asset_check(asset=GROWING, blocking=True)
def own(shardline: ShardlineResource) -> dg.AssetCheckResult:
    """Fail while a flag is set: the blocking check of a user."""
    return dg.AssetCheckResult(passed=not (Path(shardline.reports) / _FLAG).exists())


def make_model_platform(folder: Path, kind: str, *, has_suite: bool) -> Platform:
    """Declare a version that grows and one that is derived from it."""
    for name in ("landing", "reports"):
        (folder / name).mkdir(exist_ok=True)
    suite = folder / "notes.json"
    if has_suite and not suite.exists():
        write_suite(suite, at_most("id", FAILS - 1), at_most("id", WARNS - 1, severity="warning"))
    growing = appended_version(
        BASE,
        schema=SCHEMA,
        landing=LandingFolder(str(folder / "landing"), settle_seconds=0),
        expectations=suite if has_suite else None,
    )
    resource = InterruptedResource(root=str(folder / "root"), reports=str(folder / "reports"))
    defs = platform(growing, _derived(folder, kind), shardline=resource)
    merged = dg.Definitions.merge(defs, dg.Definitions(asset_checks=[own]))
    return Platform(folder, merged, resource)


def _derived(folder: Path, kind: str) -> DeclaredVersion:
    name = DERIVED[kind]
    if kind == "rebuilt":
        return rebuilt_version(name, of=BASE, export=folder / "notes.tfrecord")
    if kind == "overlay":
        return extended_version(name, of=BASE, fields=length)
    collide: dict[str, Any] = {"on_collision": "prefix", "right_prefix": "other_"}
    return combined_version(name, left=BASE, right=BASE, mode="virtual", **collide)


@dataclass
class Model:
    """A platform, its daemon, and what has happened to them."""

    folder: Path
    instance: dg.DagsterInstance
    seed: int
    draw: random.Random = field(init=False)
    trace: list[str] = field(default_factory=list)
    files: int = 0

    def __post_init__(self) -> None:
        """Choose what is declared."""
        self.draw = random.Random(self.seed)
        self.kind = self.draw.choice(sorted(DERIVED))
        self.has_suite = self.draw.random() < 0.3
        self.start_daemon()

    def start_daemon(self) -> None:
        """Load the definitions; cursors are those that the instance kept."""
        self.platform = make_model_platform(self.folder, self.kind, has_suite=self.has_suite)
        reconciling, ticks = getattr(self, "reconciling", None), getattr(self, "ticks", None)
        self.reconciling = Reconciling(
            self.platform, self.instance, reconciling.cursor if reconciling else None
        )
        self.ticks = Ticks(self.platform, self.instance, ticks.cursor if ticks else None)

    @property
    def base(self) -> Version:
        return self.platform.version(BASE)

    @property
    def derived(self) -> Version:
        return self.platform.version(DERIVED[self.kind])

    @property
    def derived_key(self) -> dg.AssetKey:
        return dg.AssetKey(DERIVED[self.kind].replace("/", "_"))

    def step(self) -> None:
        """Do one thing, by chance."""
        steps = [
            *(self.land_good,) * 3,
            self.land_mismatch,
            self.land_duplicate,
            self.land_changed,
            self.land_suspicious,
            *(self.materialize,) * 5,
            *(self.run_checks,) * 2,
            self.overlap,
            self.kill_checks,
            self.kill_before_report,
            *(self.commit_outside,) * 2,
            self.restore,
            self.repair,
            self.toggle_own_check,
            self.retry,
            self.reset_reconciler,
            self.reset_automation,
            self.restart,
        ]
        chosen = self.draw.choice(steps)
        self.trace.append(chosen.__name__)
        chosen()

    def _note(self, *words: object) -> None:
        self.trace.append("  " + " ".join(map(str, words)))

    def _file(self, ids: range, **more: object) -> Path:
        self.files += 1
        lines = [{"id": number, "name": f"note {number}", **more} for number in ids]
        path = self.platform.landing / f"{self.files}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def _ids(self, first: int = 0) -> range:
        start = first + 10 * self.files
        return range(start, start + self.draw.randint(1, 4))

    def land_good(self) -> None:
        self._file(self._ids())

    def land_mismatch(self) -> None:
        self._file(self._ids(), weight=1.5)

    def land_suspicious(self) -> None:
        self._file(self._ids(self.draw.choice([WARNS, FAILS])))

    def land_duplicate(self) -> None:
        known = sorted(self.platform.landing.iterdir())
        if known:
            self.files += 1
            content = self.draw.choice(known).read_bytes()
            (self.platform.landing / f"{self.files}.jsonl").write_bytes(content)

    def land_changed(self) -> None:
        known = sorted(self.platform.landing.iterdir())
        if known:
            path = self.draw.choice(known)
            path.write_text(self._file(self._ids()).read_text())

    def _run(
        self, assets: set[dg.AssetKey], checks: set[dg.AssetCheckKey] | None, **config: object
    ) -> bool:
        job = self.platform.defs.resolve_implicit_global_asset_job_def()
        subset = job.get_subset(asset_selection=assets, asset_check_selection=checks)
        ops = {name: {"config": given} for name, given in config.items()}
        result = subset.execute_in_process(
            instance=self.instance, run_config={**QUIET, "ops": ops}, raise_on_error=False
        )
        named = [key.to_user_string() for key in assets]
        chosen = "all" if checks is None else sorted(key.name for key in checks)
        self._note(named, chosen, "succeeded" if result.success else "failed")
        return result.success

    def _check_keys(self, *keys: dg.AssetKey) -> list[dg.AssetCheckKey]:
        graph = self.platform.defs.resolve_asset_graph()
        return sorted(key for key in graph.asset_check_keys if key.asset_key in keys)

    def materialize(self) -> None:
        assets = {
            *self.draw.choice(
                [(GROWING,), (GROWING,), (GROWING, self.derived_key), (self.derived_key,)]
            )
        }
        known = self._check_keys(*assets)
        some = set(self.draw.sample(known, self.draw.randrange(len(known))))
        self._run(assets, self.draw.choice([None, None, set(), some]))

    def run_checks(self) -> None:
        key = self.draw.choice([GROWING, GROWING, self.derived_key])
        known = self._check_keys(key)
        chosen = set(self.draw.sample(known, self.draw.randint(1, len(known))))
        config = {f"{key.to_user_string()}_checks": {"reread": self.draw.random() < 0.3}}
        ours = any(check.name != "own" for check in chosen)
        self._run(set(), chosen, **(config if ours else {}))

    def _interrupted(self, happen: Callable[[str], None], then: Callable[[], object]) -> None:
        INTERRUPTIONS.append(happen)
        try:
            then()
        finally:
            INTERRUPTIONS.clear()

    def overlap(self) -> None:
        """Run a second materialization when the first is about to begin, or to be checked."""
        self._file(self._ids())
        at = self.draw.choice([1, 2])
        opened = 0

        def happen(name: str) -> None:
            nonlocal opened
            opened += name == BASE
            if opened == at and name == BASE:
                opened += 10
                self._file(self._ids())
                self._run({GROWING}, None)

        self._interrupted(happen, lambda: self._run({GROWING}, None))

    def kill_checks(self) -> None:
        """End a run between its commit and its checks."""
        self._file(self._ids())
        opened = 0

        def happen(name: str) -> None:
            nonlocal opened
            opened += name == BASE
            if opened > 1:
                raise KilledError

        self._interrupted(happen, lambda: self._run({GROWING}, None))

    def kill_before_report(self) -> None:
        """End a run after its commit, before it could report it; run monitoring notices later."""
        job = self.platform.defs.resolve_implicit_global_asset_job_def()
        run = self.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        version = Version(self.folder / "root", BASE, run=run.run_id)
        append(version, self._outside_file(), schema=SCHEMA, checks=self._required)
        if self.draw.random() < 0.5:
            self.reconciling.tick()
        self.instance.report_run_failed(run)

    @property
    def _required(self) -> Any:  # noqa: ANN401 - the checks of the log
        return required_checks(("expectations",) if self.has_suite else ())

    def _outside_file(self) -> Path:
        path = self._file(self._ids())
        return path.rename(self.folder / f"outside-{path.name}")

    def commit_outside(self) -> None:
        """Append by another program, which may check what it commits."""
        version = self.base
        append(version, self._outside_file(), schema=SCHEMA, checks=self._required)
        if self.draw.random() < 0.5:
            check_version(version)

    def restore(self) -> None:
        version = self.base
        if version.exists and version.state.snapshot > 1:
            number = self.draw.randint(1, version.state.snapshot - 1)
            self._note("to", number)
            restore_version(version, str(number))

    def repair(self) -> None:
        """Flip a bit in a shard, and repair it as well as possible."""
        version = self.base
        if not version.exists or not version.state.snapshot or not version.newest().shards:
            return
        shard = self.draw.choice(version.newest().shards)
        path = self.folder / "root" / version.shard_name(shard)
        content = bytearray(path.read_bytes())
        content[self.draw.randrange(len(content))] ^= 1
        path.write_bytes(content)
        try:
            report = repair(version, lossy=True)
            self._note("made by", [one.how for one in report.repaired])
        except ShardlineError as error:
            self._note("not repaired", error.code)

    def toggle_own_check(self) -> None:
        flag = self.folder / "reports" / _FLAG
        if flag.exists():
            flag.unlink()
        else:
            flag.touch()

    def retry(self) -> None:
        self._run({GROWING}, None, notes_v1={"reland": True})

    def reset_reconciler(self) -> None:
        self.reconciling.cursor = None

    def reset_automation(self) -> None:
        self.ticks.cursor = None

    def restart(self) -> None:
        self.start_daemon()

    def round(self) -> None:
        """Let the daemon work until neither sensor has anything left to do."""
        idle = 0
        for _ in range(_ROUNDS):
            before = self._records()
            for request in self.reconciling.tick():
                self._assert_allowed(set(request.asset_selection or ()))
                done = self.reconciling.run(request)
                self._note("reconciler:", request.run_key, "ok" if done.success else "failed")
            wanted = self.ticks.requested()
            if wanted:
                self._assert_allowed(wanted)
                self._note("automation:", *wanted)
                self._run(wanted, None)
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
        keys = [check for check in self._check_keys(key) if graph.get(check).blocking]
        results = check_results(self.instance, keys)
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
        for version, key in ((self.base, GROWING), (self.derived, self.derived_key)):
            if not version.exists or not version.state.snapshot:
                continue
            number = version.state.snapshot
            publication = publication_of(
                version, number, self._required if key == GROWING else required_checks(())
            )
            assert publication.unchecked == (), f"{version.name}@{number} is stuck"
            states = self._states(key)
            assert (states["published"] == "passed") == publication.is_open, states
            assert CheckState.MISSING.value not in states.values(), states
            event = self.instance.get_latest_materialization_event(key)
            assert event is not None
            assert event.asset_materialization is not None
            told = event.asset_materialization.metadata
            assert told["snapshot"].value == number
            assert told["digest"].value == version.newest().content
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
            assert all(number < FAILS for number in ids)
