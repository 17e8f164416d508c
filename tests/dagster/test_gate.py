"""The gate: what fails its checks goes nowhere, in this run, in another one, or outside Dagster."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.errors import SnapshotNotFoundError
from shardline.operations.landing_folder import LandingFolder, scan_landing_folders
from tests.dagster.platforms import (
    GROWING,
    REBUILT,
    Platform,
    get_evaluations,
    make_platform,
    reported,
)
from tests.dagster.suites import at_most, write_suite


@pytest.fixture
def expecting(tmp_path: Path) -> Platform:
    """A platform whose suite wants no id above 1,000."""
    return make_platform(tmp_path, suite=write_suite(tmp_path / "notes.json", at_most("id", 1000)))


def test_passing_snapshot_flows_downstream_in_same_run(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    result = notes.run(instance)
    assert result.success
    assert all(evaluation.passed for evaluation in get_evaluations(result).values())
    assert notes.version().published().records == 5
    assert notes.version("notes/single").published().records == 5
    assert (notes.folder / "notes.tfrecord").is_file()


def test_every_check_attests_its_result(expecting: Platform, instance: dg.DagsterInstance) -> None:
    expecting.land("a", range(5))
    expecting.run(instance, GROWING)
    told = {
        attestation.check: attestation.passed
        for entry in expecting.version().log.entries(1)
        for attestation in entry.attestations
    }
    names = ("integrity", "schema", "expectations", "drift", "volume")
    assert told == dict.fromkeys(names, True)


def test_rejected_source_changes_no_other_check(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    before = notes.version("notes/single").published().content
    notes.land_damaged()
    notes.land("b", range(5, 9), weight=1.5)
    result = notes.run(instance)
    found = get_evaluations(result)
    for check in ("integrity", "schema", "published"):
        assert found[f"notes_v1:{check}"].passed
    (event,) = result.asset_materializations_for_node("notes_v1")
    assert event.metadata["shardline/rejected_sources"].value == 2
    assert notes.version().published().number == 1
    assert notes.version("notes/single").published().content == before


def test_corrupt_file_does_not_block_next_file(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    notes.land_damaged()
    notes.run(instance)
    notes.land("b", range(5, 9))
    result = notes.run(instance)
    assert result.success
    assert notes.version("notes/single").published().records == 9


def test_failed_suite_rejects_only_its_snapshot(
    expecting: Platform, instance: dg.DagsterInstance
) -> None:
    expecting.land("a", range(5))
    assert expecting.run(instance).success
    expecting.land("b", [7, 2000])
    result = expecting.run(instance)
    assert not result.success
    for check in ("expectations", "published"):
        failed = get_evaluations(result)[f"notes_v1:{check}"]
        assert (failed.passed, failed.severity) == (False, dg.AssetCheckSeverity.ERROR)
    published = get_evaluations(result)["notes_v1:published"]
    assert published.metadata["shardline/blockers"].value == 1, "a rejection names the failure once"
    assert "sha256" not in str(published.description)
    version = expecting.version()
    assert version.snapshot(2).rejected
    assert version.published().records == 5
    assert expecting.version("notes/single").published().records == 5
    expecting.land("c", range(5, 8))
    assert expecting.run(instance).success
    assert expecting.version().published().records == 8, "the rejected batch stays out"
    assert expecting.version("notes/single").published().records == 8


def test_rejected_source_can_be_retried(expecting: Platform, instance: dg.DagsterInstance) -> None:
    expecting.land("a", [2000])
    assert not expecting.run(instance, GROWING).success
    write_suite(expecting.folder / "notes.json", at_most("id", 3000))
    assert not expecting.run(instance, GROWING).success, "nothing is published"
    assert expecting.version().latest().records == 0, "it stays out by itself"
    result = expecting.run(instance, GROWING, config={"retry_rejected": True})
    assert result.success
    assert expecting.version().published().records == 1
    assert get_evaluations(result)["notes_v1:sources_accepted"].passed, "it was retried"


def test_failed_retry_is_counted(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    notes.land("b", range(5, 9), weight=1.5)
    (notes.landing / "README").write_text("no data")
    notes.run(instance, GROWING)
    assert notes.run(instance, GROWING).success, "it is known, and nothing is new"
    again = notes.run(instance, GROWING, config={"retry_rejected": True})
    (event,) = again.asset_materializations_for_node("notes_v1")
    assert event.metadata["shardline/rejected_sources"].value == 2


def test_rejected_first_file_fails_the_run(notes: Platform, instance: dg.DagsterInstance) -> None:
    path = notes.land_damaged()
    result = notes.run(instance)
    assert not result.success
    failure = result.failure_data_for_node("notes_v1")
    assert failure is not None
    assert failure.error is not None
    where = f"{path}: data-crc at record 2, offset"
    assert where in failure.error.to_string()
    notes.land("a", range(5))
    assert notes.run(instance).success


def test_known_file_in_launchpad_is_skipped(notes: Platform, instance: dg.DagsterInstance) -> None:
    path = notes.land("a", range(5))
    notes.run(instance, GROWING)
    notes.run(instance, GROWING, config={"files": [str(path)]})
    assert scan_landing_folders(notes.version(), [LandingFolder(str(notes.landing))]).known == 1


def test_later_run_reads_published_snapshot(
    expecting: Platform, instance: dg.DagsterInstance
) -> None:
    expecting.land("a", range(5))
    expecting.run(instance, GROWING)
    expecting.land("b", [2000])
    assert not expecting.run(instance, GROWING).success
    assert expecting.run(instance, REBUILT).success
    assert expecting.version("notes/single").published().records == 5


def test_downstream_without_published_snapshot_fails(
    expecting: Platform, instance: dg.DagsterInstance
) -> None:
    expecting.land("a", [2000])
    assert not expecting.run(instance, GROWING).success
    with pytest.raises(SnapshotNotFoundError, match="no published snapshot"):
        expecting.run(instance, REBUILT, raise_on_error=True)


def test_raising_check_fails(expecting: Platform, instance: dg.DagsterInstance) -> None:
    (expecting.folder / "notes.json").write_text("no JSON")
    expecting.land("a", range(5))
    result = expecting.run(instance)
    assert not result.success
    failed = get_evaluations(result)["notes_v1:expectations"]
    assert not failed.passed
    assert "notes.json" in (failed.description or "")
    with pytest.raises(SnapshotNotFoundError):
        expecting.version().published()


def test_checks_alone_use_latest_snapshot(
    expecting: Platform, instance: dg.DagsterInstance
) -> None:
    suite = expecting.folder / "notes.json"
    content = suite.read_text()
    suite.write_text("no JSON")
    expecting.land("a", range(5))
    expecting.run(instance, GROWING)
    suite.write_text(content)
    ran = expecting.check(instance)
    assert all(evaluation.passed for evaluation in get_evaluations(ran).values())
    assert expecting.version().published().records == 5


def test_materialize_without_new_sources_reports_latest(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    result = notes.run(instance)
    assert result.success
    assert reported(instance, GROWING) == [1, 1]
    first, second = (
        record.asset_materialization
        for record in instance.fetch_materializations(GROWING, limit=2).records
    )
    assert first is not None
    assert second is not None
    assert first.tags == second.tags, "the same data version"
    assert first.metadata["shardline/added_rows"].value == 0


def test_launchpad_takes_files_and_limit(notes: Platform, instance: dg.DagsterInstance) -> None:
    paths = [notes.land(name, range(n, n + 1)) for n, name in enumerate("abc")]
    notes.run(instance, GROWING, config={"files": [str(paths[1])]})
    assert notes.version().latest().records == 1
    notes.run(instance, GROWING, config={"limit": 1})
    assert notes.version().latest().records == 2
    notes.run(instance, GROWING)
    assert notes.version().latest().records == 3
