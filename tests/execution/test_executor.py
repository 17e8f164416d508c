"""The engine: results in order, the first real error, retries, progress, and stopping in time."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import threading
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from shardline.errors import (
    CancelledError,
    CommitStateUnknownError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnavailableError,
    UnsyncedWriteError,
)
from shardline.execution.executor import CancellationToken, Progress, ThreadExecutor
from tests.signals import default_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.execution.executor import TaskContext

SOON = 300
"""Seconds in which what is to stop must have stopped: only a test that hangs takes as long."""


@dataclass(frozen=True, slots=True)
class Count:
    """A task for tests: a number."""

    number: int
    size: int | None = 100
    step = "counting"

    @property
    def label(self) -> str:
        return f"number {self.number}"


def counts(last: int) -> list[Count]:
    return [Count(number) for number in range(last)]


def busy(running: TaskContext, started: threading.Event | None = None) -> None:
    """Compute until told to stop; fails if nobody does."""
    if started is not None:
        started.set()
    end = monotonic() + 2 * SOON
    while monotonic() < end:
        hashlib.sha256(bytes(2**20)).digest()
        running.report(1, 1)
    raise AssertionError("nobody stopped it")


def within(seconds: float, action: Callable[[], object]) -> None:
    """Do something that must end by itself soon enough."""
    done = threading.Thread(target=action, daemon=True)
    done.start()
    done.join(seconds)
    assert not done.is_alive(), "it went on"


def test_results_come_in_the_order_of_the_tasks_whichever_ends_first() -> None:
    second_done = threading.Event()

    def work(task: Count, running: TaskContext) -> int:
        del running
        if task.number == 0:
            assert second_done.wait(SOON), "the second task runs beside the first"
        else:
            second_done.set()
        return task.number * 10

    assert list(ThreadExecutor(2).run(work, counts(5))) == [0, 10, 20, 30, 40]
    assert list(ThreadExecutor(2).run(work, [])) == []


def test_the_workers_are_shared_out_among_the_tasks() -> None:
    def work(task: Count, running: TaskContext) -> int:
        del task
        return running.workers

    assert list(ThreadExecutor(8).run(work, counts(2))) == [4, 4]
    assert list(ThreadExecutor(8).run(work, counts(1))) == [8]
    assert list(ThreadExecutor(2).run(work, counts(3))) == [1, 1, 1]


def test_the_first_real_error_comes_out_and_not_the_cancellations_it_causes() -> None:
    started = threading.Event()

    def work(task: Count, running: TaskContext) -> None:
        if task.number == 0:
            busy(running, started)
        assert started.wait(SOON)
        raise ValueError(f"fault of {task.label}")

    def run() -> None:
        with pytest.raises(ValueError, match="of number 1"):
            list(ThreadExecutor(2).run(work, counts(2)))

    within(SOON, run)


def test_a_task_that_had_not_begun_when_another_failed_does_not_begin() -> None:
    ran: list[int] = []
    failed = threading.Event()

    def work(task: Count, running: TaskContext) -> None:
        ran.append(task.number)
        if task.number == 0:
            busy(running)
        failed.set()
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it is the one from above
        list(ThreadExecutor(2).run(work, counts(5)))
    assert failed.is_set()
    assert sorted(ran) == [0, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_busy_tasks_stop_soon_after_someone_asks(workers: int) -> None:
    cancellation = CancellationToken()
    started = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        executor = ThreadExecutor(workers, cancellation=cancellation)
        try:
            list(executor.run(lambda _, running: busy(running, started), counts(4)))
        except CancelledError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(SOON)
    cancellation.cancel()
    thread.join(SOON)
    assert [type(error) for error in errors] == [CancelledError]


def test_an_engine_that_was_asked_to_stop_begins_nothing() -> None:
    cancellation = CancellationToken()
    cancellation.cancel()
    ran: list[int] = []
    with pytest.raises(CancelledError):
        list(
            ThreadExecutor(1, cancellation=cancellation).run(
                lambda t, _: ran.append(t.number), counts(2)
            )
        )
    assert ran == []


def test_an_interrupt_of_who_waits_for_results_stops_the_workers() -> None:
    begun: list[int] = []
    ended: list[int] = []
    listening = threading.Event()

    def work(task: Count, running: TaskContext) -> None:
        begun.append(task.number)
        try:
            if task.number == 1:
                assert listening.wait(SOON)
                os.kill(os.getpid(), signal.SIGINT)
            if task.number:
                busy(running)
        finally:
            ended.append(task.number)

    def listen() -> None:
        with closing(ThreadExecutor(2).run(work, counts(3))) as results:  # type: ignore[type-var]
            for _ in results:
                listening.set()

    with default_signals(), pytest.raises(KeyboardInterrupt):
        listen()
    assert 1 in begun
    assert sorted(ended) == sorted(begun), "a worker went on"


def test_who_stops_listening_stops_the_workers() -> None:
    def work(task: Count, running: TaskContext) -> int:
        if task.number:
            busy(running)
        return task.number

    def run() -> None:
        results = ThreadExecutor(2).run(work, counts(3))
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]

    within(SOON, run)


def failing(errors: list[Exception]) -> Callable[[Count, TaskContext], int]:
    """Work that fails with each of these errors, and then is done."""

    def work(task: Count, running: TaskContext) -> int:
        del running
        if errors:
            raise errors.pop(0)
        return task.number

    return work


def test_what_may_work_later_is_tried_again() -> None:
    errors: list[Exception] = [
        UnavailableError("no answer"),
        CommitStateUnknownError("no answer"),
        UnavailableError("no answer"),
    ]
    assert list(ThreadExecutor(1, pause=0).run(failing(errors), counts(1))) == [0]
    assert errors == []


def test_it_is_not_tried_for_ever() -> None:
    errors: list[Exception] = [UnavailableError(f"no answer {n}") for n in range(10)]
    with pytest.raises(UnavailableError, match="no answer 2"):
        list(ThreadExecutor(1, max_tries=3, pause=0).run(failing(errors), counts(1)))
    assert len(errors) == 7


@pytest.mark.parametrize(
    "kind", [StorageError, ObjectNotFoundError, ObjectExistsError, UnsyncedWriteError, ValueError]
)
def test_what_will_not_work_later_is_not_tried_again(kind: type[Exception]) -> None:
    errors = [kind("first"), kind("second")]
    with pytest.raises(kind, match="first"):
        list(ThreadExecutor(1, pause=0).run(failing(list[Exception](errors)), counts(1)))


@pytest.mark.parametrize("who", ["another task", "someone"])
def test_a_task_that_waits_to_be_tried_again_stops_soon(who: str) -> None:
    cancellation = CancellationToken()
    waits = threading.Event()

    def work(task: Count, running: TaskContext) -> None:
        del running
        if task.number == 0:
            waits.set()
            raise UnavailableError("no answer")
        assert waits.wait(SOON)
        if who == "someone":
            cancellation.cancel()
        else:
            raise ValueError("the real fault")

    def run() -> None:
        executor = ThreadExecutor(2, cancellation=cancellation, pause=1000)
        expected = CancelledError if who == "someone" else ValueError
        with pytest.raises(expected):
            list(executor.run(work, counts(2)))

    within(SOON, run)


def test_progress_tells_step_task_and_how_much_is_done() -> None:
    heard: list[Progress] = []

    def work(task: Count, running: TaskContext) -> None:
        running.report(50, 3)
        running.report(100, 7 + task.number)

    list(ThreadExecutor(1).run(work, [Count(0), Count(1, None)], heard.append))
    assert heard == [
        Progress("counting", "number 0", 50, 100, 3),
        Progress("counting", "number 0", 100, 100, 7),
        Progress("counting", "number 1", 50, None, 3),
        Progress("counting", "number 1", 100, None, 8),
    ]


def test_a_listener_that_fails_stops_everything() -> None:
    def listen(progress: Progress) -> None:
        raise RuntimeError(progress.task)

    with pytest.raises(RuntimeError, match="number 0"):
        list(ThreadExecutor(1).run(lambda _, running: running.report(1, 1), counts(2), listen))


def test_what_an_engine_is_told_survives_pickling() -> None:
    told = Progress("counting", "number 0", 50, 100, 3)
    assert pickle.loads(pickle.dumps(told)) == told  # noqa: S301 - our own bytes
