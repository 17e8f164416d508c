"""The reconciler makes Dagster agree with the logs, whatever ran, failed or was killed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from shardline.api import Version
from shardline.dagster.automation import reconcile_plan
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.combine import combined_version
from shardline.dagster.versions.extend import extended_version
from shardline.dagster.versions.rebuild import rebuilt_version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.repair import repair
from shardline.operations.restore import restore_version
from shardline.schema.schema import Feature
from shardline.udf import record_udf
from tests.cli.command import shardline as command
from tests.dagster.opened_files import OpenedFiles
from tests.dagster.platforms import (
    GROWING,
    REBUILT,
    SCHEMA,
    Platform,
    get_evaluations,
    make_platform,
    reported,
)
from tests.dagster.suites import at_most, write_suite
from tests.dagster.ticks import Reconciling, Ticks, describe

EXPORT = dg.AssetKey("notes_single_export")
ALL = "notes_v1 drift integrity published schema sources_accepted volume"
SINGLE = "notes_single integrity published schema"


@pytest.fixture
def reconciler(notes: Platform, instance: dg.DagsterInstance) -> Reconciling:
    """The reconciler of a platform to which nothing has landed yet."""
    return Reconciling(notes, instance)


def latest(instance: dg.DagsterInstance, key: dg.AssetKey = GROWING) -> dict[str, Any]:
    """The metadata of the latest materialization."""
    event = instance.get_latest_materialization_event(key)
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def metadata_size(instance: dg.DagsterInstance, key: dg.AssetKey = GROWING) -> int:
    """The bytes that the metadata of the latest materialization adds to the event."""
    event = instance.get_latest_materialization_event(key)
    assert event is not None
    made = event.asset_materialization
    assert made is not None
    return len(dg.serialize_value(made)) - len(dg.serialize_value(made._replace(metadata={})))


def commit_outside(notes: Platform, name: str, ids: range) -> Version:
    """Append a file outside Dagster; nothing is checked."""
    version = notes.version()
    append(version, notes.land(name, ids), schema=SCHEMA)
    return version


def test_cli_commit_is_followed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    suite = write_suite(tmp_path / "notes.json", at_most("id", 6, severity="warning"))
    notes = make_platform(tmp_path, suite=suite)
    reconciler = Reconciling(notes, instance)
    notes.land("a", range(5))
    notes.run(instance)
    ticks = Ticks(notes, instance)
    ticks.requested()
    path = notes.land("b", range(5, 9))
    done = command("append", "notes/v1", path, "--root", notes.resource.root, "--json")
    (request,) = reconciler.tick()
    assert reported(instance, GROWING) == [1, 2]
    facts, snapshot = latest(instance), done.json["snapshot"]
    assert facts["shardline/snapshot"] == snapshot["snapshot"]
    assert facts["dagster/row_count"] == snapshot["records"] == 9
    assert facts["shardline/added_rows"] == 4
    assert metadata_size(instance) < 2200
    assert describe(request) == ALL.replace("integrity", "expectations integrity")
    failed = {
        name for name, one in get_evaluations(reconciler.run(request)).items() if not one.passed
    }
    assert failed == {"notes_v1:expectations", "notes_v1:drift"}
    assert ticks.follow() == [REBUILT, EXPORT]
    assert reconciler.settle() == []
    assert notes.version("notes/single").published().records == 9


def test_external_version_is_reported_from_first_commit(
    reconciler: Reconciling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile_plan, "REPORTS_AT_ONCE", 2)
    for number in range(3):
        commit_outside(reconciler.platform, f"{number}", range(number, number + 1))
    assert reconciler.tick() == []
    assert reported(reconciler.instance, GROWING) == [1, 2]
    (request,) = reconciler.tick()
    assert reported(reconciler.instance, GROWING) == [1, 2, 3]
    assert reconciler.run(request).success
    reconciler.cursor = None  # someone resets it
    assert reconciler.settle() == [REBUILT.to_user_string(), EXPORT.to_user_string()]
    assert reported(reconciler.instance, GROWING) == [1, 2, 3]
    assert len(str(reconciler.cursor)) < 200


def test_restore_is_reported_with_its_content(reconciler: Reconciling) -> None:
    notes, instance = reconciler.platform, reconciler.instance
    notes.land("a", range(5))
    notes.run(instance)
    content = notes.version().latest().content
    notes.land("b", range(5, 9))
    notes.run(instance)
    reconciler.settle()
    restore_version(notes.version(), "1")
    (request,) = reconciler.tick()
    assert reported(instance, GROWING) == [1, 2, 3]
    assert latest(instance)["shardline/content_digest"] == content
    assert reconciler.run(request).success


def test_snapshot_without_checks_is_checked(reconciler: Reconciling) -> None:
    notes = reconciler.platform
    notes.land("a", range(5))
    notes.commit_unchecked(reconciler.instance)
    assert notes.version().state.published is None
    (request,) = reconciler.tick()
    assert describe(request) == ALL
    assert reconciler.run(request).success
    assert notes.version().published().records == 5
    assert reconciler.tick() == []
    assert "notes/v1@1" in reconciler.skipped


def test_unfinished_run_reports_its_snapshot(reconciler: Reconciling) -> None:
    notes, instance = reconciler.platform, reconciler.instance
    job = notes.defs.resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    version = Version(notes.folder / "root", "notes/v1", run=run.run_id)
    append(version, notes.land("a", range(5)), schema=SCHEMA)
    assert reconciler.tick() == []
    assert reported(instance, GROWING) == []
    instance.report_run_failed(run)  # as run monitoring does of a run that was killed
    (request,) = reconciler.tick()
    assert reported(instance, GROWING) == [1]
    assert reconciler.run(request).success
    assert notes.version().published().records == 5


def test_failed_checks_are_requested_a_few_times(reconciler: Reconciling) -> None:
    notes = reconciler.platform
    notes.land("a", range(5))
    notes.commit_unchecked(reconciler.instance)
    shards = notes.folder / "root/notes/shards"
    hidden = shards.rename(shards.with_name("hidden"))
    shards.write_text("in the way")  # no shard can be read, and none is known to be corrupt
    assert reconciler.settle() == [ALL] * reconcile_plan.TRIES
    assert "execute" in reconciler.skipped
    reconciler.cursor = None
    assert reconciler.settle() == []
    shards.unlink()
    hidden.rename(shards)
    assert notes.check(reconciler.instance).success
    assert notes.version().published().records == 5


@dg.asset_check(asset=GROWING, blocking=True)
def few_notes(shardline: ShardlineResource) -> dg.AssetCheckResult:
    """Fail for more than six rows: the blocking check of a user."""
    return dg.AssetCheckResult(passed=shardline.version("notes/v1").latest().records <= 6)


def test_checks_left_by_each_failed_run_are_requested(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = make_platform(tmp_path, own_checks=[few_notes])
    reconciler = Reconciling(notes, instance)
    notes.land("a", range(5))
    assert notes.run(instance).success
    notes.land("b", range(5, 9))
    for _ in range(reconcile_plan.TRIES + 2):
        assert not notes.run(instance).success  # It plans checks of the rebuilt version.
        assert reconciler.settle() == [SINGLE]
    assert reported(instance, REBUILT) == [1]


class InterleavedResource(ShardlineResource):
    """A resource that lets another run happen when a version is opened for the first time."""

    def version(self, name: str, *, run: str = "", code: str = "") -> Version:
        """Open a version."""
        if INTERLEAVED and name == "notes/v1":
            INTERLEAVED.pop()()
        return super().version(name, run=run, code=code)


INTERLEAVED: list[Callable[[], object]] = []


def test_overlapping_runs_are_followed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    resource = InterleavedResource(root=str(tmp_path / "root"), reports=str(tmp_path / "reports"))
    notes = make_platform(tmp_path, resource=resource)
    reconciler, ticks = Reconciling(notes, instance), Ticks(notes, instance)
    ticks.requested()
    notes.land("a", range(5))
    INTERLEAVED.append(lambda: notes.run(instance, GROWING))
    assert notes.run(instance, GROWING).success
    assert reported(instance, GROWING) == [1, 1]
    assert ticks.requested() == set(), "the result with the highest id is of the other run"
    (request,) = reconciler.tick()
    assert describe(request) == ALL
    assert reconciler.run(request).success
    assert ticks.follow() == [REBUILT, EXPORT]
    assert reconciler.settle() == []


def test_older_report_after_a_newer_is_corrected(reconciler: Reconciling) -> None:
    notes, instance = reconciler.platform, reconciler.instance
    for number in (1, 2):
        notes.land(f"{number}", range(5 * number, 5 * number + 5))
        notes.run(instance, GROWING)
    first = instance.fetch_materializations(GROWING, limit=1, ascending=True).records[0]
    assert first.asset_materialization is not None
    instance.report_runless_asset_event(first.asset_materialization)
    assert describe(reconciler.tick()[0]) == ALL
    assert reported(instance, GROWING) == [1, 2, 1, 2]
    assert latest(instance)["shardline/added_rows"] == 0


def test_unpublished_by_verification_turns_red(reconciler: Reconciling) -> None:
    notes, instance = reconciler.platform, reconciler.instance
    notes.land("a", range(5))
    assert notes.run(instance).success
    assert reconciler.settle() == []
    Path(notes.version().latest().files()[0]).unlink()
    check_version(notes.version(), recheck=True)
    (request,) = reconciler.tick()
    assert describe(request) == "notes_v1 published"
    (evaluation,) = get_evaluations(reconciler.run(request)).values()
    assert not evaluation.passed
    assert reconciler.settle() == []


def test_rejection_shows_what_is_published(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    suite = write_suite(tmp_path / "notes.json", at_most("id", 1000))
    notes = make_platform(tmp_path, suite=suite)
    reconciler = Reconciling(notes, instance)
    notes.land("a", range(5))
    assert notes.run(instance).success
    notes.land("b", [2000])
    result = notes.run(instance)
    assert not result.success
    gate = get_evaluations(result)["notes_v1:published"]
    assert not gate.passed
    assert gate.metadata["shardline/published_rows"].value == 5
    requests = reconciler.tick()
    facts = latest(instance)
    assert (facts["shardline/snapshot"], facts["dagster/row_count"]) == (3, 5)
    assert (facts["shardline/published_snapshot"], facts["shardline/published_rows"]) == (3, 5)
    everything = ALL.replace("integrity", "expectations integrity")
    assert [describe(request) for request in requests] == [everything, SINGLE]
    assert all(reconciler.run(request).success for request in requests)
    assert reconciler.settle() == []


def test_corrupt_log_stops_no_other_version(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = make_platform(tmp_path)
    reconciler = Reconciling(notes, instance)
    notes.land("a", range(5))
    assert notes.run(instance).success
    commit_outside(notes, "b", range(5, 9))
    path = notes.folder / "root" / notes.version("notes/single").log.entry_name(2)
    path.write_bytes(path.read_bytes().replace(b"rebuild", b"rebuilt"))
    requests = reconciler.tick()
    assert reported(instance, GROWING) == [1, 2]
    named = {describe(request): request for request in requests}
    assert set(named) == {ALL, SINGLE}
    red = get_evaluations(reconciler.run(named[SINGLE]))
    assert {one.passed for one in red.values()} == {False}
    assert reconciler.run(named[ALL]).success
    assert reconciler.settle() == []
    assert "notes_single: cannot be read" in reconciler.skipped


@record_udf(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


def test_new_declaration_is_materialized(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    assert notes.run(instance).success
    more = make_platform(notes.folder, rebuilt_version("notes/copy", of="notes/v1"))
    ticks, reconciler = Ticks(more, instance), Reconciling(more, instance)
    assert ticks.requested() == set()
    assert reconciler.settle() == ["notes_copy"]
    assert more.version("notes/copy").published().records == 5
    assert ticks.requested() == set()


def test_failed_dependent_is_not_requested_again(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    assert notes.run(instance).success

    def late() -> Any:  # noqa: ANN401 - it raises
        raise ValueError("no fields today")

    more = make_platform(notes.folder, extended_version("notes/v2", of="notes/v1", udfs=late))
    reconciler = Reconciling(more, instance)
    assert reconciler.settle() == ["notes_v2"]
    reconciler.cursor = None
    assert reconciler.settle() == []
    notes.land("b", range(5, 9))
    notes.run(instance)
    assert reconciler.settle() == ["notes_v2"]


def test_dependents_of_repaired_input_are_requested(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    overlay = extended_version("notes/v2", of="notes/v1", udfs=length)
    pairs = combined_version(
        "pairs/v1",
        left="notes/v1",
        right="notes/v1",
        mode="virtual",
        on_collision="prefix",
        right_prefix="other_",
    )
    notes = make_platform(tmp_path, overlay, pairs)
    reconciler = Reconciling(notes, instance)
    notes.land("a", range(5))
    assert notes.run(instance).success
    assert reconciler.settle() == []
    content = bytearray(Path(notes.version().latest().files()[0]).read_bytes())
    content[40] ^= 1
    Path(notes.version().latest().files()[0]).write_bytes(content)
    assert repair(notes.version()).repaired
    names = ("notes/v2", "pairs/v1")
    requested = reconciler.settle()
    assert set(requested) >= {"notes_v2 published", "pairs_v1 published", "notes_v2", "pairs_v1"}
    for name in names:
        version = notes.version(name)
        assert version.published().number == version.latest().number == 2
        assert version.published().to_arrow().read_all().num_rows > 0
    assert reconciler.settle() == []


def test_forgotten_dependent_is_requested(reconciler: Reconciling) -> None:
    notes, instance = reconciler.platform, reconciler.instance
    notes.land("a", range(5))
    assert notes.run(instance).success
    notes.land("b", range(5, 9))
    assert notes.run(instance, GROWING).success
    ticks = Ticks(notes, instance)  # its cursor was reset
    assert ticks.requested() == set()
    assert reconciler.settle() == [REBUILT.to_user_string(), EXPORT.to_user_string()]
    assert notes.version("notes/single").published().records == 9


def test_ticks_read_no_shard(reconciler: Reconciling, opened_files: OpenedFiles) -> None:
    notes = reconciler.platform
    notes.land("a", range(5))
    assert notes.run(reconciler.instance).success
    commit_outside(notes, "b", range(5, 9))
    with opened_files.below(notes.folder / "root/notes/shards") as opened:
        requests = reconciler.tick()
    assert (opened.listed, opened.files) == (0, [])
    assert [describe(request) for request in requests] == [ALL]
    assert reported(reconciler.instance, GROWING) == [1, 2]


def test_idle_tick_is_small(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    assert notes.run(instance).success
    assert notes.run(instance).success
    for key in (GROWING, REBUILT):
        assert latest(instance, key)["shardline/added_rows"] == 0
        assert metadata_size(instance, key) < 2200
    node = notes.defs.resolve_asset_graph().get(GROWING)
    (columns,) = [value for name, value in node.metadata.items() if "column_schema" in name]
    assert [column.name for column in columns.schema.columns] == ["id", "name"]


def test_cursor_is_readable_json(reconciler: Reconciling) -> None:
    notes = reconciler.platform
    notes.land("a", range(5))
    notes.commit_unchecked(reconciler.instance)
    reconciler.tick()
    assert json.loads(reconciler.cursor or "")["entries"] == {"notes/v1": 2}
