"""Tasks side by side: results in the order of the tasks, and the first error comes out."""

from __future__ import annotations

import hashlib
import threading
import weakref
from contextlib import closing

import pytest

from shardline.execution.threads import run_tasks


def some_work(task: int) -> int:
    """About a millisecond of it, so that 2,000 tasks take far longer than it takes to stop them."""
    hashlib.sha256(bytes(2**20)).digest()
    return task


def test_results_come_in_the_order_of_the_tasks_whichever_ends_first() -> None:
    second_done = threading.Event()

    def run(task: int) -> int:
        if task == 0:
            assert second_done.wait(300), "the second task runs beside the first"
        else:
            second_done.set()
        return task * 10

    assert list(run_tasks(run, [0, 1], workers=2)) == [0, 10]


def test_many_tasks_use_no_more_threads_than_asked_for() -> None:
    names: set[str] = set()

    def run(task: int) -> int:
        names.add(threading.current_thread().name)
        return task

    assert list(run_tasks(run, range(100), workers=3)) == list(range(100))
    assert 1 <= len(names) <= 3


@pytest.mark.parametrize("workers", [1, 2, None])
def test_an_error_comes_out_and_stops_the_tasks_that_have_not_begun(workers: int | None) -> None:
    ran: list[int] = []

    def run(task: int) -> int:
        if task == 1:
            raise ValueError("task 1")
        ran.append(task)
        return some_work(task)

    results = run_tasks(run, range(2_000), workers=workers)
    assert next(results) == 0
    with pytest.raises(ValueError, match="task 1"):
        next(results)
    assert len(ran) < 1_000


def test_one_worker_runs_in_the_callers_own_thread() -> None:
    threads = list(run_tasks(lambda _: threading.get_ident(), range(3), workers=1))
    assert threads == [threading.get_ident()] * 3


def test_no_tasks_give_no_results() -> None:
    assert list(run_tasks(lambda task: task, [])) == []


def test_who_stops_listening_is_not_made_to_wait_for_all_tasks() -> None:
    ran: list[int] = []

    def run(task: int) -> int:
        ran.append(task)
        return some_work(task)

    with closing(run_tasks(run, range(2_000), workers=2)) as results:  # type: ignore[type-var]
        assert next(results) == 0
    assert len(ran) < 1_000


def test_results_are_not_kept_once_they_are_taken() -> None:
    class Result:
        pass

    alive: list[weakref.ref[Result]] = []

    def run(_: int) -> Result:
        result = Result()
        alive.append(weakref.ref(result))
        return result

    most = 0
    for _ in run_tasks(run, range(200), workers=2):
        most = max(most, sum(reference() is not None for reference in alive))
    assert most < 20
