"""What lands is appended exactly once, by the schedule, by the sensor, or by both."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_project.landing import FILES_AT_ONCE, TRIES
from tests.dagster_project.platforms import GROWING, Platform, make_platform

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def tick_schedule(notes: Platform, instance: dg.DagsterInstance) -> Any:  # noqa: ANN401 - the type is not public
    """What the schedule says at noon."""
    repository = notes.defs.get_repository_def()
    schedule = repository.get_schedule_def("notes_v1_append")
    context = dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=NOON,
        repository_def=repository,
        resources={"shardline": notes.resource},
    )
    return schedule.evaluate_tick(context)


def tick_sensor(notes: Platform, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:  # noqa: ANN401 - the type is not public
    """What the sensor says, from a cursor on."""
    repository = notes.defs.get_repository_def()
    sensor = repository.get_sensor_def("notes_v1_landing")
    context = dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        repository_def=repository,
        resources={"shardline": notes.resource},
    )
    return sensor.evaluate_tick(context)


def execute(
    notes: Platform, instance: dg.DagsterInstance, request: dg.RunRequest
) -> dg.ExecuteInProcessResult:
    """The run that was asked for, with its run key, as the daemon launches it."""
    ops = request.run_config.get("ops", {})
    job = notes.defs.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=instance,
        asset_selection=[GROWING],
        run_config={"ops": ops},
        tags={"dagster/run_key": request.run_key or ""},
        raise_on_error=False,
    )


def start_run(
    notes: Platform,
    instance: dg.DagsterInstance,
    request: dg.RunRequest,
    status: dg.DagsterRunStatus,
) -> None:
    """A run that was asked for and has come so far."""
    job = notes.defs.resolve_implicit_global_asset_job_def()
    tags = {"dagster/run_key": request.run_key or ""}
    instance.create_run_for_job(job, tags=tags, status=status)


def test_the_schedule_appends_all_that_has_landed_in_one_snapshot(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.land("b", range(5, 9))
    (request,) = tick_schedule(notes, instance).run_requests
    assert execute(notes, instance, request).success
    newest = notes.version().newest()
    assert (newest.number, newest.records) == (1, 9)


def test_the_schedule_says_why_it_does_nothing(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    assert "nothing new" in (tick_schedule(notes, instance).skip_message or "")
    notes.land("a", range(5))
    notes.run(instance, GROWING)
    skipped = tick_schedule(notes, instance)
    assert not skipped.run_requests
    assert "1 source known" in (skipped.skip_message or "")


def test_the_same_tick_asks_for_the_same_run(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    first, again = (tick_sensor(notes, instance) for _ in range(2))
    assert first.run_requests
    assert again.run_requests
    assert first.run_requests[0].run_key == again.run_requests[0].run_key
    at_noon = [tick_schedule(notes, instance).run_requests for _ in range(2)]
    assert at_noon[0][0].run_key == at_noon[1][0].run_key


def test_the_sensor_asks_for_what_has_arrived_since(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    first = tick_sensor(notes, instance)
    (request,) = first.run_requests
    assert execute(notes, instance, request).success
    assert notes.version().newest().records == 5
    idle = tick_sensor(notes, instance, first.cursor)
    assert not idle.run_requests
    assert "nothing new" in (idle.skip_message or "")
    notes.land("b", range(5, 9))
    second = tick_sensor(notes, instance, idle.cursor)
    (request,) = second.run_requests
    assert request.run_config["ops"]["notes_v1"]["config"]["files"] == [
        str((notes.landing / "b.jsonl").resolve())
    ]
    assert execute(notes, instance, request).success
    assert notes.version().newest().records == 9


def test_what_a_run_is_at_is_not_asked_for_again(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    first = tick_sensor(notes, instance)
    (request,) = first.run_requests
    start_run(notes, instance, request, dg.DagsterRunStatus.STARTED)
    busy = tick_sensor(notes, instance, first.cursor)
    assert not busy.run_requests
    assert "runs are appending" in (busy.skip_message or "")
    notes.land("b", range(5, 9))
    (request,) = tick_sensor(notes, instance, busy.cursor).run_requests
    files = request.run_config["ops"]["notes_v1"]["config"]["files"]
    assert files == [str((notes.landing / "b.jsonl").resolve())]


def test_what_a_run_did_not_land_is_tried_again_a_few_times(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    cursor, keys = None, []
    for _ in range(TRIES):
        tick = tick_sensor(notes, instance, cursor)
        (request,) = tick.run_requests
        keys.append(request.run_key)
        start_run(notes, instance, request, dg.DagsterRunStatus.FAILURE)
        cursor = tick.cursor
    assert len(set(keys)) == TRIES
    given_up = tick_sensor(notes, instance, cursor)
    assert not given_up.run_requests
    assert "did not land" in (given_up.skip_message or "")
    notes.land("a", range(6))
    assert tick_sensor(notes, instance, given_up.cursor).run_requests, "it has other content now"


def test_the_sensor_asks_for_so_many_files_at_a_time(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    for number in range(FILES_AT_ONCE + 10):
        notes.land(f"{number:04}", [number])
    first = tick_sensor(notes, instance)
    (request,) = first.run_requests
    assert len(request.run_config["ops"]["notes_v1"]["config"]["files"]) == FILES_AT_ONCE
    start_run(notes, instance, request, dg.DagsterRunStatus.STARTED)
    (request,) = tick_sensor(notes, instance, first.cursor).run_requests
    assert len(request.run_config["ops"]["notes_v1"]["config"]["files"]) == 10


def test_when_the_schedule_and_the_sensor_both_fire_each_file_lands_once(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.land("b", range(5, 9))
    (by_sensor,) = tick_sensor(notes, instance).run_requests
    (by_schedule,) = tick_schedule(notes, instance).run_requests
    for request in (by_sensor, by_schedule, by_sensor):
        assert execute(notes, instance, request).success
    newest = notes.version().newest()
    assert (newest.number, newest.records) == (1, 9)


def test_a_new_location_and_a_lost_cursor_land_nothing_twice(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = make_platform(tmp_path)
    notes.land("a", range(5))
    (request,) = tick_sensor(notes, instance).run_requests
    assert execute(notes, instance, request).success
    reloaded = make_platform(tmp_path)
    assert not tick_sensor(reloaded, instance, None).run_requests
    assert not tick_schedule(reloaded, instance).run_requests
