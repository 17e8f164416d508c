"""The check `sources_accepted` reports what the log says, whichever run asks."""

from pathlib import Path

import dagster as dg

from shardline.dagster.checks.log_checks import MAX_SOURCES, SOURCES
from shardline.operations.rejected_sources import dismiss, open_sources
from tests.cli.command import shardline as command
from tests.dagster.platforms import GROWING, Platform, get_evaluations, make_platform, table_rows
from tests.dagster.suites import at_most, write_suite

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
KEY = dg.AssetCheckKey(GROWING, SOURCES)


def of_run(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    """What the check said in a run."""
    return get_evaluations(result)[f"notes_v1:{SOURCES}"]


def execute_alone(notes: Platform, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    """What the check says when it is executed by itself, as from its page."""
    job = notes.defs.resolve_implicit_global_asset_job_def()
    subset = job.get_subset(asset_selection=set(), asset_check_selection={KEY})
    result = subset.execute_in_process(instance=instance)
    assert result.success
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


def test_rejected_source_fails_until_closed(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    damaged = notes.land_damaged()
    other = notes.land("other", range(3), weight=1.5)
    result = notes.run(instance)
    assert result.success, "it blocks nothing"
    assert notes.version("notes/single").published().records == 5
    red = of_run(result)
    assert (red.passed, red.severity, red.blocking) == (False, ERROR, False)
    assert red.metadata["shardline/rejected_sources"].value == 2
    rows = {row["source"]: row for row in table_rows(red.metadata["shardline/rejected"])}
    assert set(rows) == {str(damaged), str(other)}
    (listed, _) = open_sources(notes.version()).rejected
    row = rows[str(damaged)]
    assert (row["record"], row["offset"], row["entry"]) == (2, listed.offset, listed.entry)
    assert "weight" in rows[str(other)]["reason"]
    assert all(path not in row["reason"] for path, row in rows.items()), "a column has the path"

    for again in (execute_alone(notes, instance), of_run(notes.run(instance, GROWING))):
        assert (again.passed, again.severity) == (False, ERROR)
    notes.land("b", range(5, 9))
    assert not of_run(notes.run(instance, GROWING)).passed, "a good file settles nothing"

    notes.land("other", range(20, 23))
    left = of_run(notes.run(instance, GROWING))
    assert (left.passed, left.metadata["shardline/rejected_sources"].value) == (False, 1)
    dismiss(notes.version(), [damaged])
    green = execute_alone(notes, instance)
    assert (green.passed, green.metadata["shardline/rejected_sources"].value) == (True, 0)


def test_skipped_duplicate_warns_until_it_is_dismissed(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    first = notes.land("a", range(5))
    assert of_run(notes.run(instance, GROWING)).passed
    copy = notes.land("copy", range(5))
    notes.run(instance, GROWING)
    notes.land("b", range(5, 9))
    warning = of_run(notes.run(instance, GROWING))
    assert (warning.passed, warning.severity) == (False, WARN)
    (row,) = table_rows(warning.metadata["shardline/duplicates"])
    assert (row["source"], row["first"]) == (str(copy), str(first))
    notes.land("bad", range(3), weight=1.5)
    red = of_run(notes.run(instance, GROWING))
    assert (red.severity, red.metadata["shardline/duplicate_sources"].value) == (ERROR, 1)
    dismiss(notes.version(), open_sources(notes.version()).all)
    assert execute_alone(notes, instance).passed


def test_status_lists_rejected_sources_and_duplicates(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    assert notes.run(instance, GROWING).success
    bad, copy = notes.land("bad", range(3), weight=1.5), notes.land("copy", range(5))
    notes.run(instance, GROWING)
    arguments = ("status", "notes/v1", "--root", notes.resource.root, "--json")
    (listed,) = command(*arguments).json["versions"]
    assert [source["path"] for source in listed["rejected_sources"]] == [str(bad)]
    assert [source["path"] for source in listed["duplicates"]] == [str(copy)]
    dismiss(notes.version(), [bad, copy])
    (listed,) = command(*arguments).json["versions"]
    assert listed["rejected_sources"] == listed["duplicates"] == []


def test_sources_of_rejected_snapshot_fail(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    suite = write_suite(tmp_path / "notes.json", at_most("id", 1000))
    notes = make_platform(tmp_path, suite=suite)
    notes.land("a", range(5))
    assert of_run(notes.run(instance, GROWING)).passed
    late = notes.land("late", [2000])
    red = of_run(notes.run(instance, GROWING))
    (row,) = table_rows(red.metadata["shardline/rejected"])
    assert (red.passed, row["source"]) == (False, str(late))


def test_rejected_sources_without_snapshot_fail(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    assert execute_alone(notes, instance).passed, "there is no version yet"
    for number in range(MAX_SOURCES + 2):
        notes.land(f"bad {number}", [number], weight=1.5)
    assert not notes.run(instance, GROWING).success
    red = execute_alone(notes, instance)
    assert (red.passed, red.metadata["shardline/rejected_sources"].value) == (
        False,
        MAX_SOURCES + 2,
    )
    assert len(table_rows(red.metadata["shardline/rejected"])) == MAX_SOURCES
