"""The promise of the platform, a test for each sentence, kept by the real daemon.

The sentence "materialize from the UI" is in `tests/browser/test_demo.py`, where a person clicks.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from shardline.dagster.automation.audit import AUDIT, AUDIT_CHECK
from shardline.dagster.automation.conditions import FOLLOW
from shardline.dagster.automation.reconciler import RECONCILER
from tests.dagster.platforms import table_rows
from tests.dagster.promise_site import (
    BAD_SNAPSHOT,
    FAULTS,
    GOOD_ROWS,
    TAMPERED,
    TIMED,
    PromiseSite,
    derived,
    grown,
    promise_site,
)
from tests.dagster.web_page import wait_until

pytestmark = [pytest.mark.sweep, pytest.mark.slow, pytest.mark.xdist_group("daemon")]

each_fault = pytest.mark.parametrize(("dataset", "check"), FAULTS.items())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PromiseSite]:
    """A daemon and its datasets."""
    with promise_site(tmp_path_factory.mktemp("promise")) as site:
        yield site


@pytest.fixture(scope="module")
def failed_run(site: PromiseSite) -> str:
    """A run of upstream and downstream assets, in which a check of each upstream asset fails."""
    site.page.stop_sensor("small", RECONCILER)  # the run itself has to check what it finds
    for dataset in FAULTS:
        site.commit_bad_shard(dataset)
    return site.launch(*(key for name in FAULTS for key in (grown(name), derived(name))))


@pytest.fixture(scope="module")
def later_run(site: PromiseSite, failed_run: str) -> str:
    """A run of the downstream assets, after every sensor had its turn."""
    del failed_run
    site.page.start_sensor("small", RECONCILER)
    site.wait_for_ticks(RECONCILER, FOLLOW)
    return site.launch(*map(derived, FAULTS))


@each_fault
def test_failed_check_stops_downstream_in_the_same_run(
    site: PromiseSite, failed_run: str, dataset: str, check: str
) -> None:
    found = site.get_checks(failed_run, grown(dataset))
    for name in (check, "published"):
        assert (found[name].passed, found[name].severity, found[name].blocking) == (
            False,
            dg.AssetCheckSeverity.ERROR,
            True,
        )
    assert site.run(failed_run).status is dg.DagsterRunStatus.FAILURE
    assert grown(dataset) in site.materialized(failed_run)
    assert derived(dataset) not in site.materialized(failed_run)


@each_fault
def test_failed_check_stops_downstream_across_runs(
    site: PromiseSite, later_run: str, dataset: str, check: str
) -> None:
    assert site.version(f"{dataset}/v1").snapshot(BAD_SNAPSHOT).rejected, check
    assert site.run(later_run).is_success
    assert derived(dataset) in site.materialized(later_run)
    version = site.version(f"{dataset}/single")
    inputs = [given.snapshot for entry in version.log.entries(1) for given in entry.inputs]
    assert BAD_SNAPSHOT not in inputs
    ids = version.published().to_arrow(["id"]).read_all()["id"].to_pylist()
    assert sorted(ids) == list(range(GOOD_ROWS))


def test_tampering_turns_the_audit_red(site: PromiseSite) -> None:
    key = dg.AssetCheckKey(dg.AssetKey(AUDIT), AUDIT_CHECK)
    (first,) = site.runs_of(key.asset_key)
    assert site.get_checks(first, key.asset_key)[AUDIT_CHECK].passed
    log = site.version(f"{TAMPERED}/v1").log
    path = log.store.local_path(log.entry_name(2))
    assert path is not None
    path.write_bytes(path.read_bytes().replace(b'"append"', b'"appond"'))
    found = site.get_checks(site.launch(key.asset_key), key.asset_key)[AUDIT_CHECK]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    rows = [
        row
        for row in table_rows(found.metadata["shardline/findings"])
        if row["severity"] == "error"
    ]
    assert {row["version"] for row in rows} == {f"{TAMPERED}/v1"}


def test_cron_tick_appends_exactly_once(site: PromiseSite) -> None:
    for sensor in (FOLLOW, RECONCILER):
        site.page.stop_sensor("small", sensor)  # waiting for the clock is cheaper without them

    def ticks() -> list[dict[str, Any]]:
        return site.page.schedule_ticks("small", f"{TIMED}_v1_append")

    wait_until(lambda: len(ticks()) > 1, "a second minute has begun")
    wait_until(lambda: all(map(is_ended, site.instance.get_runs())), "all runs have ended")
    run_ids = [run_id for tick in ticks() for run_id in tick["runIds"]]
    assert run_ids
    assert all(site.run(run_id).is_success for run_id in run_ids)
    version = site.version(f"{TIMED}/v1")
    assert [entry.operation for entry in version.log.entries(1)].count("append") == 1
    assert version.published().records == GOOD_ROWS


def is_ended(run: dg.DagsterRun) -> bool:
    """Return True for a run that has ended."""
    return run.is_finished
