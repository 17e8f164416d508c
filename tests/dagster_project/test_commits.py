"""What was committed outside Dagster is reported there, checked, and then followed."""

import json
from typing import Any

import dagster as dg
import pytest

from shardline.operations.append import append
from shardline.operations.restore import restore_version
from tests.cli.command import shardline as command
from tests.dagster_project.platforms import (
    GROWING,
    REBUILT,
    SCHEMA,
    Platform,
    reported,
    verdicts,
)


def tick(notes: Platform, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:  # noqa: ANN401 - the type is not public
    """What the sensor says; what it reports is stored, as the daemon does."""
    repository = notes.defs.get_repository_def()
    context = dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        repository_def=repository,
        resources={"shardline": notes.resource},
    )
    told = repository.get_sensor_def("outside_commits").evaluate_tick(context)
    for event in told.asset_events:
        instance.report_runless_asset_event(event)
    return told


def run_checks(
    notes: Platform, instance: dg.DagsterInstance, request: dg.RunRequest
) -> dg.ExecuteInProcessResult:
    job = notes.defs.resolve_implicit_global_asset_job_def()
    subset = job.get_subset(
        asset_selection=set(request.asset_selection or ()),
        asset_check_selection=set(request.asset_check_keys or ()),
    )
    return subset.execute_in_process(instance=instance, raise_on_error=False)


def test_an_append_on_the_command_line_is_reported_and_checked(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    path = notes.land("b", range(5, 9))
    done = command("append", "notes/v1", path, "--root", notes.resource.root, "--json")
    told = tick(notes, instance)
    assert reported(instance, GROWING) == [1, 2]
    event = instance.get_latest_materialization_event(GROWING)
    assert event is not None
    assert event.asset_materialization is not None
    facts = event.asset_materialization.metadata
    snapshot = done.json["snapshot"]
    assert facts["snapshot"].value == snapshot["snapshot"]
    assert facts["dagster/row_count"].value == snapshot["records"] == 9
    assert facts["added_rows"].value == 4
    (request,) = told.run_requests
    checked = run_checks(notes, instance, request)
    assert {name for name in verdicts(checked) if verdicts(checked)[name].passed} >= {
        "notes_v1:integrity",
        "notes_v1:schema",
    }
    assert notes.run(instance, REBUILT).success
    assert notes.version("notes/single").published().records == 9


def test_nothing_is_reported_twice_and_runs_are_not_reported_again(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    first = tick(notes, instance)
    assert not first.asset_events
    append(notes.version(), notes.land("b", range(5, 9)))
    second = tick(notes, instance, first.cursor)
    assert len(second.asset_events) == 1
    third = tick(notes, instance, second.cursor)
    assert (third.asset_events, third.run_requests) == ([], [])
    assert third.skip_message


def test_a_restore_is_reported_with_the_content_that_stands_now(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    content = notes.version().newest().content
    notes.land("b", range(5, 9))
    notes.run(instance)
    cursor = tick(notes, instance).cursor
    restore_version(notes.version(), "1")
    tick(notes, instance, cursor)
    assert reported(instance, GROWING) == [1, 2, 3]
    event = instance.get_latest_materialization_event(GROWING)
    assert event is not None
    assert event.asset_materialization is not None
    assert (event.asset_materialization.tags or {})["dagster/data_version"] == content


def test_a_version_that_was_made_outside_is_reported_from_its_first_commit(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    for number in range(3):
        append(notes.version(), notes.land(f"{number}", [number]), schema=SCHEMA)
    tick(notes, instance)
    assert reported(instance, GROWING) == [1, 2, 3]


def test_a_long_history_is_reported_in_pieces(
    notes: Platform, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_project.commits.ENTRIES_AT_ONCE", 2)
    for number in range(3):
        append(notes.version(), notes.land(f"{number}", [number]), schema=SCHEMA)
    cursor = tick(notes, instance).cursor
    assert reported(instance, GROWING) == [1]
    assert json.loads(cursor)["notes/v1"] == 2
    tick(notes, instance, cursor)
    assert reported(instance, GROWING) == [1, 2, 3]
