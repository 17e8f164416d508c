"""What the reconciler decides, from plain data."""

from collections import Counter
from dataclasses import replace

import pytest

from shardline.dagster.automation import reconcile_plan
from shardline.dagster.automation.reconcile_plan import (
    MAX_REQUESTS,
    TRIES,
    DependentView,
    EntryView,
    ReconcileCursor,
    ReconcilePlan,
    ReconcileRequest,
    ReportPlan,
    VersionView,
    plan_reports,
    plan_requests,
)
from shardline.dagster.instance_records import CheckResult, CheckState

PASSED, FAILED = CheckResult(CheckState.PASSED, 100.0), CheckResult(CheckState.FAILED, 100.0)
MISSING, RUNNING = CheckResult(CheckState.MISSING), CheckResult(CheckState.RUNNING)
CHECKS = ("integrity", "schema", "drift", "published")
GREEN = {"integrity": PASSED, "schema": PASSED, "published": PASSED}
NOTES = VersionView(
    "notes/v1",
    "notes_v1",
    CHECKS,
    GREEN,
    latest=3,
    is_open=True,
    published=3,
    content="c3",
    materialization=17,
)
FOLLOWER = DependentView(
    "notes_single", ("notes/v1",), input_contents={"notes/v1": "c3"}, attempted=90.0
)


def planned(*versions: VersionView, attempts: int = 0) -> ReconcilePlan:
    return plan_requests(versions, (), {}, lambda _: attempts, no_subject)


def no_subject(run_id: str) -> str:  # noqa: ARG001 - the reconciler requested no run
    return ""


def checks(version: VersionView, attempts: int = 0) -> set[str]:
    """The checks that are requested for a version."""
    return {
        check
        for request in planned(version, attempts=attempts).requests
        for check in request.checks
    }


def test_agreement_requests_nothing() -> None:
    assert planned(NOTES).requests == ()
    closed = replace(NOTES, is_open=False, blocking={**GREEN, "published": FAILED})
    assert planned(closed).requests == ()
    assert planned(VersionView("notes/v1", "notes_v1", CHECKS)).requests == ()


@pytest.mark.parametrize("check", ["integrity", "published"])
def test_missing_result_requests_all_checks(check: str) -> None:
    assert checks(replace(NOTES, blocking={**GREEN, check: MISSING})) == set(CHECKS)


def test_missing_result_of_a_user_requests_that_check() -> None:
    assert checks(replace(NOTES, blocking={**GREEN, "own": MISSING})) == {"own", "published"}


@pytest.mark.parametrize("is_open", [True, False])
def test_opposite_result_requests_published(*, is_open: bool) -> None:
    result = FAILED if is_open else PASSED
    found = checks(replace(NOTES, is_open=is_open, blocking={**GREEN, "published": result}))
    assert found == {"published"}


def test_failing_check_of_a_user_is_a_result() -> None:
    assert checks(replace(NOTES, blocking={**GREEN, "own": FAILED})) == set()


def test_unchecked_snapshot_requests_all_checks() -> None:
    blocking = {**GREEN, "published": FAILED, "own": MISSING}
    version = replace(NOTES, is_open=False, unchecked=("integrity",), blocking=blocking)
    assert checks(version) == {*CHECKS, "own"}
    (first,) = planned(version).requests
    (second,) = planned(version, attempts=1).requests
    assert first.subject == second.subject
    assert first.run_key != second.run_key
    assert planned(version, attempts=TRIES).requests == ()


def test_running_checks_are_awaited() -> None:
    version = replace(NOTES, is_open=False, unchecked=("schema",), blocking={"published": RUNNING})
    assert planned(version).requests == ()
    assert planned(replace(version, is_reported=True)).requests == ()
    assert planned(replace(NOTES, blocking={}, is_waiting="a run is at work")).requests == ()


def test_reported_snapshot_has_no_result_yet() -> None:
    assert checks(replace(NOTES, is_reported=True)) == set(CHECKS)


def test_subject_follows_the_materialization_and_the_log() -> None:
    blocking = {**GREEN, "integrity": MISSING}
    versions = [
        replace(NOTES, blocking=blocking),
        replace(NOTES, blocking=blocking, materialization=18),
        replace(NOTES, blocking=blocking, is_open=False),
        replace(NOTES, blocking=blocking, latest=4),
    ]
    subjects = {planned(version).requests[0].subject for version in versions}
    assert len(subjects) == len(versions)


@pytest.mark.parametrize("state", [CheckState.MISSING, CheckState.FAILED])
def test_state_left_by_other_run_is_requested(state: CheckState) -> None:
    """Runs of the reconciler count as attempts. Each other run leaves a new state to repair."""
    tags: dict[str, str] = {}

    def request(run_id: str) -> ReconcileRequest | None:
        left = replace(NOTES, blocking={**GREEN, "published": CheckResult(state, run_id=run_id)})
        counts = Counter(tags.values())
        plan = plan_requests([left], (), {}, counts.__getitem__, lambda run: tags.get(run, ""))
        return plan.requests[0] if plan.requests else None

    for outside in ("", "killed", "killed again"):
        left_by = outside
        for attempt in range(1, TRIES + 1):
            requested = request(left_by)
            assert requested is not None
            assert (requested.attempt, requested) == (attempt, request(left_by))
            left_by = f"reconciler {len(tags)}"
            tags[left_by] = requested.subject
        assert request(left_by) is None
    assert len(set(tags.values())) == 3


def test_corrupt_log_requests_checks_once() -> None:
    corrupt = VersionView("notes/v1", "notes_v1", CHECKS, GREEN, corruption="2 edited-entry")
    assert checks(corrupt) == set(CHECKS)
    assert checks(corrupt, attempts=1) == set()
    red = replace(corrupt, blocking=dict.fromkeys(GREEN, FAILED))
    assert checks(red) == set()


def test_fault_of_a_version_affects_no_other() -> None:
    broken = VersionView("faces/v1", "faces_v1", CHECKS, is_waiting="cannot be read")
    stale = replace(NOTES, blocking={**GREEN, "schema": MISSING})
    plan = planned(broken, stale)
    assert [request.asset for request in plan.requests] == ["notes_v1"]
    assert "faces/v1" in plan.notes[0]


def test_requests_are_capped() -> None:
    versions = [
        replace(NOTES, name=f"n/v{n}", asset=f"n_v{n}", blocking={"published": MISSING})
        for n in range(MAX_REQUESTS + 3)
    ]
    assert len(planned(*versions).requests) == MAX_REQUESTS


@pytest.mark.parametrize(
    "change",
    [
        {"is_missing": True, "input_contents": {}},
        {"is_broken": True},
        {"input_contents": {"notes/v1": "c2"}},
    ],
)
def test_dependent_is_requested_in_second_tick(change: dict[str, object]) -> None:
    behind = replace(FOLLOWER, **change)  # type: ignore[arg-type]
    first = plan_requests([NOTES], [behind], {}, lambda _: 0, no_subject)
    assert first.requests == ()
    second = plan_requests([NOTES], [behind], first.seen, lambda _: 0, no_subject)
    (request,) = second.requests
    assert (request.asset, request.checks) == ("notes_single", ())
    assert plan_requests([NOTES], [behind], second.seen, lambda _: 1, no_subject).requests == ()
    moved = replace(NOTES, latest=4, published=4, content="c4")
    seen = plan_requests([moved], [behind], {}, lambda _: 0, no_subject).seen
    (third,) = plan_requests([moved], [behind], seen, lambda _: 0, no_subject).requests
    assert third.subject != request.subject


@pytest.mark.parametrize(
    "dependent",
    [
        FOLLOWER,
        replace(FOLLOWER, is_missing=True, attempted=101.0),
        replace(FOLLOWER, is_missing=True, is_waiting="a run is at work"),
        replace(FOLLOWER, is_missing=True, inputs=("notes/v1", "faces/v1")),
    ],
)
def test_dependent_is_not_requested(dependent: DependentView) -> None:
    seen = {"notes_single": "notes_single from notes/v1@3"}
    assert plan_requests([NOTES], [dependent], seen, lambda _: 0, no_subject).requests == ()


@pytest.mark.parametrize(
    "version",
    [
        replace(NOTES, blocking={**GREEN, "own": FAILED}),
        replace(NOTES, is_open=False),
        replace(NOTES, is_reported=True),
        replace(NOTES, is_waiting="a run is at work"),
    ],
)
def test_dependent_waits_for_its_input(version: VersionView) -> None:
    missing = replace(FOLLOWER, is_missing=True, attempted=0.0)
    plan = plan_requests([version], [missing], {}, lambda _: 0, no_subject)
    assert "notes_single" not in plan.seen


def entries(*numbers: int, run: str = "") -> list[EntryView]:
    return [EntryView(2 * n, n, f"d{n}", run=run) for n in numbers]


def reports(
    found: list[EntryView],
    *,
    reported: int = 0,
    known: tuple[int, ...] = (),
    unfinished: str = "",
    latest: EntryView | None = None,
) -> ReportPlan:
    return plan_reports(
        found,
        found[-1].number if found else 100,
        latest or found[-1],
        reported=(reported, f"d{reported}") if reported else None,
        known=lambda: {(n, f"d{n}") for n in known},
        is_unfinished=lambda run: bool(run) and run == unfinished,
    )


def numbers(found: ReportPlan) -> list[int]:
    return [entry.snapshot for entry in found.entries]


def test_unknown_commits_are_reported_in_order() -> None:
    found = reports(entries(1, 2, 3), known=(2,), reported=2)
    assert (numbers(found), found.is_complete) == ([1, 3], True)


def test_known_latest_is_reported_last_again() -> None:
    found = reports(entries(1, 2, 3), known=(3,), reported=3)
    assert numbers(found) == [1, 2, 3]
    assert [entry.snapshot for entry in found.new] == [1, 2]


def test_older_report_after_a_newer_is_corrected() -> None:
    latest = entries(3)[0]
    assert numbers(reports([], latest=latest, reported=2)) == [3]
    assert numbers(reports([], latest=latest, reported=3)) == []


def test_rejection_is_reported_as_the_latest_only() -> None:
    first, second, third = entries(1, 2, 3)
    rejection = second._replace(is_rejection=True)
    assert numbers(reports([first, rejection, third], reported=1, known=(1,))) == [3]
    assert numbers(reports([first, rejection], reported=1, known=(1,))) == [2]


def test_unfinished_run_reports_its_own_commit() -> None:
    found = [*entries(1), *entries(2, run="r"), *entries(3)]
    waiting = reports(found, unfinished="r")
    assert (numbers(waiting), waiting.last_seen, waiting.unfinished) == ([1], 3, "r")
    assert not waiting.is_complete
    assert numbers(reports(found)) == [1, 2, 3]


def test_long_history_is_reported_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile_plan, "REPORTS_AT_ONCE", 2)
    found = reports(entries(1, 2, 3, 4, 5))
    assert (numbers(found), found.last_seen, found.is_complete) == ([1, 2], 4, False)


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "no JSON", '{"notes/v1": 3}'])
def test_unusable_cursor_is_empty(text: str | None) -> None:
    assert ReconcileCursor.parse(text) == ReconcileCursor()


def test_cursor_round_trips() -> None:
    cursor = ReconcileCursor({"notes/v1": 7}, {"notes_single": "notes_single from notes/v1@3"})
    assert ReconcileCursor.parse(cursor.encode()) == cursor
