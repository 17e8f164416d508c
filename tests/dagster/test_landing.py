"""What lands is appended exactly once, by the schedule, by the sensor, or by both."""

import json
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from shardline.api import Version
from shardline.dagster.automation.landing_sensor import MAX_ATTEMPTS, MAX_FAILED, MAX_FILES
from shardline.dagster.resources import ShardlineResource
from shardline.storage import open_store
from tests.dagster.opened_files import OpenedFiles
from tests.dagster.platforms import GROWING, Platform, make_platform
from tests.storage.recording import RecordingStore

READ: list[str] = []
"""The objects that a RecordingResource read."""
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


class RecordingResource(ShardlineResource):
    """Notes the name of each object that is read, in READ."""

    def version(self, name: str, *, run: str = "", code: str = "") -> Version:
        return Version(RecordingStore(open_store(self.root), READ), name, run=run, code=code)


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
        tags=tags_of(request),
        raise_on_error=False,
    )


def start_run(
    notes: Platform,
    instance: dg.DagsterInstance,
    request: dg.RunRequest,
    status: dg.DagsterRunStatus,
) -> dg.DagsterRun:
    """A run that was asked for and has come so far."""
    job = notes.defs.resolve_implicit_global_asset_job_def()
    return instance.create_run_for_job(job, tags=tags_of(request), status=status)


def tags_of(request: dg.RunRequest) -> dict[str, str]:
    """The tags that the daemon gives to the run of a request."""
    return {**request.tags, "dagster/run_key": request.run_key or ""}


def files_of(request: dg.RunRequest) -> list[str]:
    """The files that a run is asked for."""
    files: list[str] = request.run_config["ops"]["notes_v1"]["config"]["files"]
    return files


def test_schedule_appends_all_files_in_one_snapshot(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.land("b", range(5, 9))
    (request,) = tick_schedule(notes, instance).run_requests
    assert execute(notes, instance, request).success
    newest = notes.version().latest()
    assert (newest.number, newest.records) == (1, 9)


def test_schedule_skip_names_reason(notes: Platform, instance: dg.DagsterInstance) -> None:
    assert "nothing new" in (tick_schedule(notes, instance).skip_message or "")
    notes.land("a", range(5))
    notes.run(instance, GROWING)
    skipped = tick_schedule(notes, instance)
    assert not skipped.run_requests
    assert "1 source known" in (skipped.skip_message or "")


def test_same_tick_requests_same_run(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    first, again = (tick_sensor(notes, instance) for _ in range(2))
    assert first.run_requests
    assert again.run_requests
    assert first.run_requests[0].run_key == again.run_requests[0].run_key
    at_noon = [tick_schedule(notes, instance).run_requests for _ in range(2)]
    assert at_noon[0][0].run_key == at_noon[1][0].run_key


def test_sensor_requests_new_files(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    first = tick_sensor(notes, instance)
    (request,) = first.run_requests
    assert execute(notes, instance, request).success
    assert notes.version().latest().records == 5
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
    assert notes.version().latest().records == 9


def test_no_run_is_requested_while_one_is_unfinished(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    first = tick_sensor(notes, instance)
    (request,) = first.run_requests
    notes.land("b", range(5, 9))
    for status in ("STARTING", "STARTED", "CANCELING"):  # only a daemon queues a run
        run = start_run(notes, instance, request, dg.DagsterRunStatus(status))
        for cursor in (first.cursor, None):
            busy = tick_sensor(notes, instance, cursor)
            assert not busy.run_requests, "also if the cursor was reset"
            assert run.run_id in (busy.skip_message or "")
        instance.delete_run(run.run_id)
    assert execute(notes, instance, request).success
    (request,) = tick_sensor(notes, instance, first.cursor).run_requests
    assert files_of(request) == [str((notes.landing / "b.jsonl").resolve())]


def test_files_beyond_a_request_wait_for_its_run(
    notes: Platform, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(MAX_FILES + 10):
        notes.land(f"{number:04}", [number])
    first = tick_sensor(notes, instance)
    (request,) = first.run_requests
    assert len(files_of(request)) == MAX_FILES
    run = start_run(notes, instance, request, dg.DagsterRunStatus.STARTED)
    queries = []
    get_runs = instance.get_runs

    def counted(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - Dagster's own
        queries.append(options)
        return get_runs(*args, **options)

    monkeypatch.setattr(instance, "get_runs", counted)
    assert not tick_sensor(notes, instance, first.cursor).run_requests
    assert [options.get("limit") for options in queries] == [1]
    monkeypatch.undo()
    instance.report_run_failed(run)
    (request,) = tick_sensor(notes, instance, first.cursor).run_requests
    assert len(files_of(request)) == MAX_FILES
    assert files_of(request)[:10] == [
        str((notes.landing / f"{number:04}.jsonl").resolve())
        for number in range(MAX_FILES, MAX_FILES + 10)
    ], "fresh files come before those of a run that failed"


def failing_ticks(
    notes: Platform, instance: dg.DagsterInstance, cursor: str | None = None
) -> tuple[list[dg.RunRequest], str | None]:
    """The requests of a sensor whose runs all fail, until it requests none, and its cursor."""
    requests: list[dg.RunRequest] = []
    while True:
        tick = tick_sensor(notes, instance, cursor)
        cursor = tick.cursor
        assert len(cursor or "") < 20_000
        if not tick.run_requests:
            return requests, cursor
        requests += tick.run_requests
        start_run(notes, instance, tick.run_requests[0], dg.DagsterRunStatus.FAILURE)


def test_file_that_fails_is_tried_a_few_times(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    requests, cursor = failing_ticks(notes, instance)
    assert len({request.run_key for request in requests}) == MAX_ATTEMPTS
    notes.land("b", range(5, 9))
    more, cursor = failing_ticks(notes, instance, cursor)
    assert [files_of(request) for request in more] == [
        [str(notes.landing / "b.jsonl")]
    ] * MAX_ATTEMPTS
    notes.land("a", range(6))
    (request,) = tick_sensor(notes, instance, cursor).run_requests
    assert files_of(request) == [str(notes.landing / "a.jsonl")], "it has other content now"


def test_cursor_reset_retries_failed_files(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    used: set[str | None] = set()
    for _ in range(3):
        requests, _cursor = failing_ticks(notes, instance, None)
        keys = {request.run_key for request in requests}
        assert len(requests) == MAX_ATTEMPTS
        assert not keys & used, "Dagster never launches a second run for a run key"
        used |= keys
    first, again = (tick_sensor(notes, instance, None).run_requests[0] for _ in range(2))
    assert first.run_key == again.run_key, "a tick that is repeated asks for the same run"
    assert execute(notes, instance, first).success
    assert notes.version().latest().records == 5
    assert not tick_sensor(notes, instance, None).run_requests


def test_cursor_is_bounded_however_many_files_fail(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    files = MAX_FAILED + MAX_FILES
    for number in range(files):
        (notes.landing / f"{number:05}.jsonl").write_text(f'{{"id": {number}, "name": "x"}}\n')
    requests, cursor = failing_ticks(notes, instance)
    asked = Counter(path for request in requests for path in files_of(request))
    assert set(asked.values()) == {MAX_ATTEMPTS}
    assert len(asked) == MAX_FAILED, "then it stops, and says so"
    assert failing_ticks(notes, instance, cursor)[0] == []
    for path in notes.landing.iterdir():
        path.unlink()
    notes.land("late", [files])
    tick = tick_sensor(notes, instance, cursor)
    assert [files_of(request) for request in tick.run_requests] == [
        [str(notes.landing / "late.jsonl")]
    ]
    assert len(tick.cursor) < 200


@pytest.mark.slow
def test_tick_over_100_000_files_takes_two_seconds(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    for number in range(100_000):
        (notes.landing / f"{number:06}.jsonl").touch()
    seconds: list[float] = []
    cursor: str | None = None
    for _ in range(3):
        began = time.process_time()
        tick = tick_sensor(notes, instance, cursor)
        seconds.append(time.process_time() - began)
        (request,) = tick.run_requests
        assert len(files_of(request)) == MAX_FILES
        assert len(tick.cursor or "") < 20_000
        cursor = tick.cursor
    assert min(seconds) < 2


def test_cursor_of_an_earlier_release_counts_as_reset(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    path = notes.land("a", range(5))
    old = json.dumps({str(path): ["5-1-1-1", "notes_v1_landing:0123", 3]})
    for cursor in (old, "{}", "[]", "no JSON"):
        assert tick_sensor(notes, instance, cursor).run_requests


def test_ticks_read_no_source_and_no_shard(
    notes: Platform, instance: dg.DagsterInstance, opened_files: OpenedFiles
) -> None:
    """However many files and entries there are: one derived file, and one entry of the log."""
    resource = RecordingResource(root=notes.resource.root, reports=notes.resource.reports)
    recorded = replace(notes, resource=resource)
    cursor = None
    for batch in range(2):
        for number in range(batch * 20, batch * 20 + 20):
            notes.land(f"{number:03}", [number])
        (request,) = tick_sensor(notes, instance, cursor).run_requests
        assert execute(notes, instance, request).success
        cursor = tick_sensor(notes, instance, cursor).cursor
        entry = notes.version().state.snapshot_entry
        ticks = (partial(tick_sensor, cursor=cursor), tick_schedule)
        for tick in ticks:
            READ.clear()
            with opened_files.below(notes.landing) as opened:
                assert not tick(recorded, instance).run_requests
            assert (opened.listed, opened.files) == (1, [])
            assert ["notes/v1/arrivals.json", f"notes/v1/log/{entry:020}.json"] == READ


def test_schedule_and_sensor_append_each_file_once(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.land("b", range(5, 9))
    (by_sensor,) = tick_sensor(notes, instance).run_requests
    (by_schedule,) = tick_schedule(notes, instance).run_requests
    for request in (by_sensor, by_schedule, by_sensor):
        assert execute(notes, instance, request).success
    newest = notes.version().latest()
    assert (newest.number, newest.records) == (1, 9)


def test_lost_cursor_appends_nothing_twice(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = make_platform(tmp_path)
    notes.land("a", range(5))
    (request,) = tick_sensor(notes, instance).run_requests
    assert execute(notes, instance, request).success
    reloaded = make_platform(tmp_path)
    assert not tick_sensor(reloaded, instance, None).run_requests
    assert not tick_schedule(reloaded, instance).run_requests
