"""Derived versions follow what was published, and nothing else."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.dagster.automation.conditions import (
    FOLLOW_SECONDS_VARIABLE,
    build_follow_condition,
    build_follow_sensor,
)
from shardline.dagster.resources import ShardlineResource
from tests.dagster.platforms import GROWING, QUIET, REBUILT, get_evaluations, make_platform
from tests.dagster.suites import at_most, write_suite
from tests.dagster.ticks import Ticks

EXPORT = dg.AssetKey("notes_single_export")


@pytest.fixture
def ticks(tmp_path: Path, instance: dg.DagsterInstance) -> Ticks:
    """The automation of a platform whose suite wants no id above 1,000."""
    suite = write_suite(tmp_path / "notes.json", at_most("id", 1000))
    return Ticks(make_platform(tmp_path, suite=suite), instance)


def test_published_snapshot_is_followed_once(ticks: Ticks) -> None:
    ticks.requested()
    ticks.platform.land("a", range(5))
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.follow() == [REBUILT, EXPORT]
    assert ticks.platform.version("notes/single").published().records == 5
    assert ticks.requested() == set()
    assert ticks.requested() == set()


def test_change_at_end_of_run_is_followed(ticks: Ticks) -> None:
    ticks.platform.land("a", range(5))
    ticks.platform.run(ticks.instance)
    ticks.requested()
    ticks.platform.land("b", range(5, 7))
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.platform.run(ticks.instance, *ticks.requested()).success
    ticks.platform.land("c", range(7, 9))
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.follow() == [REBUILT, EXPORT]
    assert ticks.platform.version("notes/single").published().records == 9


def test_publication_after_a_run_is_followed(ticks: Ticks) -> None:
    ticks.platform.land("a", range(5))
    ticks.platform.run(ticks.instance)
    ticks.requested()
    ticks.platform.land("b", range(5, 7))
    job = ticks.platform.defs.resolve_implicit_global_asset_job_def()
    unchecked = job.get_subset(asset_selection={GROWING}, asset_check_selection=set())
    assert unchecked.execute_in_process(instance=ticks.instance, run_config=QUIET).success
    assert ticks.requested() == set()
    assert ticks.platform.run(ticks.instance, REBUILT).success  # of the snapshot before
    assert ticks.requested() == set()
    checks = {
        key for key in job.asset_layer.asset_graph.asset_check_keys if key.asset_key == GROWING
    }
    checked = job.get_subset(asset_selection=set(), asset_check_selection=checks)
    assert checked.execute_in_process(instance=ticks.instance, run_config=QUIET).success
    assert ticks.follow() == [REBUILT, EXPORT]
    assert ticks.platform.version("notes/single").published().records == 7


def test_publication_with_warning_is_followed(ticks: Ticks) -> None:
    platform = ticks.platform
    write_suite(platform.folder / "notes.json", at_most("id", 5, severity="warning"))
    platform.land("a", range(5))
    platform.run(ticks.instance)
    ticks.requested()
    platform.land("b", range(5, 9))
    result = platform.run(ticks.instance, GROWING)
    warned = {name for name, one in get_evaluations(result).items() if not one.passed}
    assert "notes_v1:expectations" in warned
    assert ticks.follow() == [REBUILT, EXPORT]
    assert platform.version("notes/single").published().records == 9


def test_report_of_same_content_requests_nothing(ticks: Ticks) -> None:
    ticks.platform.land("a", range(5))
    ticks.platform.run(ticks.instance)
    ticks.requested()
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.requested() == set()


def test_failed_snapshot_is_not_followed_but_next_is(ticks: Ticks) -> None:
    ticks.platform.land("a", range(5))
    ticks.platform.run(ticks.instance)
    ticks.requested()
    ticks.platform.land("b", [2000])
    assert not ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.requested() == set()
    assert ticks.requested() == set()
    ticks.platform.land("c", range(5, 7))
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.follow() == [REBUILT, EXPORT]
    assert ticks.platform.version("notes/single").published().records == 7


def test_corrupt_file_is_not_followed_but_next_is(ticks: Ticks) -> None:
    ticks.platform.land("a", range(5))
    ticks.platform.run(ticks.instance)
    ticks.requested()
    ticks.platform.land_damaged()
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.requested() == set()
    ticks.platform.land("c", range(5, 7))
    assert ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.follow() == [REBUILT, EXPORT]


@pytest.mark.parametrize(("text", "seconds"), [(None, 30), ("", 30), ("1", 1), ("600", 600)])
def test_follow_interval_comes_from_environment(
    monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: int
) -> None:
    monkeypatch.delenv(FOLLOW_SECONDS_VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(FOLLOW_SECONDS_VARIABLE, text)
    assert build_follow_sensor().minimum_interval_seconds == seconds


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "soon"])
def test_invalid_follow_interval_raises(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(FOLLOW_SECONDS_VARIABLE, text)
    with pytest.raises(ValueError, match=FOLLOW_SECONDS_VARIABLE):
        build_follow_sensor()


@dg.asset_check(asset=GROWING, blocking=True)
def few_notes(shardline: ShardlineResource) -> dg.AssetCheckResult:
    """A check of a user, which allows six rows."""
    return dg.AssetCheckResult(passed=shardline.version("notes/v1").latest().records <= 6)


def test_failing_check_of_a_user_is_not_followed(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(make_platform(tmp_path, own_checks=[few_notes]), instance)
    ticks.platform.land("a", range(5))
    ticks.platform.run(ticks.instance)
    ticks.requested()
    ticks.platform.land("b", [5, 6])
    assert not ticks.platform.run(ticks.instance, GROWING).success
    assert ticks.platform.version().published().records == 7
    assert ticks.requested() == set()
    assert ticks.requested() == set()


def test_input_with_a_missing_partition_is_followed(instance: dg.DagsterInstance) -> None:
    partitions = dg.StaticPartitionsDefinition(["monday", "tuesday"])

    @dg.asset(key=GROWING, partitions_def=partitions)
    def growing(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion(context.run.run_id))

    @dg.asset_check(asset=GROWING, blocking=True)
    def published() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset(deps=[growing], automation_condition=build_follow_condition())
    def follower() -> None:
        """Follow what was published."""

    defs = dg.Definitions([growing, follower], asset_checks=[published])
    job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={GROWING})
    first = dg.evaluate_automation_conditions(defs=defs, instance=instance)
    assert first.total_requested == 0
    assert job.execute_in_process(
        instance=instance, run_config=QUIET, partition_key="monday"
    ).success
    second = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=first.cursor)
    assert second.get_requested_partitions(follower.key) == {None}
