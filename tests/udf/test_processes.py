"""Functions in processes of their own: the same results, and no process that is left over."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import closing, suppress
from itertools import takewhile
from time import thread_time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from shardline.errors import UDFError
from shardline.hints import Option
from shardline.schema.schema import Feature, Text
from shardline.udf import batch_udf, record_udf
from shardline.udf.worker_process import NotPortableError
from tests.errors import raises
from tests.signals import default_signals
from tests.udf.batches import AREA, BOXES, bad, boxes, raised, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shardline.udf import BoundUDF, UDFResult

BOTH = ["width", "height"]
PROCESS = Feature("process", "int64")
NOTE = Feature("note", "bytes", (None,), required=False, meaning=Text())
SECONDS = 300
"""Only a test that hangs takes as long."""
AGAIN_SECONDS = 10


class Odd(Exception):  # noqa: N818 - it is odd
    """One that cannot be pickled: it cannot be made again of what it says."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def versatile(record: dict[str, Any]) -> dict[str, Any]:
    """A function that goes wrong in many ways, as the record says."""
    width = record["width"]
    if width == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    if width == 98:
        os._exit(3)
    if width == 94:
        sys.exit(3)
    if width == 97:
        raise Odd(1, 2)
    print("on the way")  # noqa: T201 - must not get between the messages
    made = {"area": record["height"] // width, "process": os.getpid()}
    if width == 96:
        made["area"] = "text"
    if width == 95:
        made["volume"] = 1
    return {**made, "note": ["größe"] * (width - 1)} if width > 1 else made


FIELDS = record_udf(AREA, PROCESS, NOTE, reads=BOTH, processes=True)(versatile)


@pytest.fixture(scope="module")
def away() -> Iterator[BoundUDF]:
    """The function in processes of its own."""
    with closing(FIELDS.bind(BOXES)) as bound:
        yield bound


@pytest.fixture(scope="module")
def here() -> BoundUDF:
    """The same in this process."""
    return record_udf(AREA, PROCESS, NOTE, reads=BOTH, processes=False)(versatile).bind(BOXES)


def told(made: UDFResult) -> dict[str, Any]:
    """All that was made, without where."""
    return {
        "reasons": made.reasons,
        "error": repr(made.error),
        "area": (values(made), bad(made)),
        "note": (values(made, "note"), bad(made, "note")),
    }


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("widths", [[1, 2, 3], [], [1, 0, 2, 0, 3], [0], [2, 96, 1, 96]], ids=str)
def test_results_are_the_same_as_in_this_process(
    away: BoundUDF, here: BoundUDF, widths: list[int], *, every: bool
) -> None:
    batch = boxes([5, *widths, 5], [12] * (len(widths) + 2)).slice(1, len(widths))
    there, mine = away.compute(batch, every=every), here.compute(batch, every=every)
    assert told(there) == told(mine)
    assert [f for f, _ in there.columns] == [f for f, _ in mine.columns]
    assert [a.array.type for _, a in there.columns] == [a.array.type for _, a in mine.columns]
    assert os.getpid() not in values(there, "process")


def test_an_error_tells_where_it_was_raised_there(away: BoundUDF) -> None:
    error = away.compute(boxes([0]), every=True).error
    assert isinstance(error, ZeroDivisionError)
    assert "in versatile" in error.__notes__[0]


def test_an_error_that_cannot_be_sent_is_told_in_words(away: BoundUDF) -> None:
    made = away.compute(boxes([97]), every=True)
    odd = "Odd: 1 and 2"
    assert made.reasons == {0: (None, raised("versatile", odd))}
    assert isinstance(made.error, UDFError)
    assert str(made.error) == odd


def test_undeclared_result_in_process_reports_row(away: BoundUDF) -> None:
    made = away.compute(boxes([1, 95]), every=True)
    assert list(made.reasons) == [1]
    assert "'volume'" in made.reasons[1][1]


def test_system_exit_in_process_reports_row(away: BoundUDF) -> None:
    made = away.compute(boxes([1, 94]), every=True)
    assert made.reasons == {1: (None, raised("versatile", "SystemExit: 3"))}
    assert isinstance(made.error, SystemExit)


def test_streams_run_in_several_processes_and_keep_the_order(away: BoundUDF) -> None:
    batches = (boxes([1, 1], [number, number]) for number in range(60))
    made = list(away.stream(batches, every=True, workers=2))
    assert [values(one) for one in made] == [[number, number] for number in range(60)]
    processes = {process for one in made for process in values(one, "process")}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= (os.cpu_count() or 1)


def test_a_process_that_is_killed_is_told_and_replaced(away: BoundUDF) -> None:
    with raises(UDFError, "udf-process-died") as caught:
        away.compute(boxes([1, 99, 1]), every=True)
    assert all(part in caught.value.message for part in ("'versatile'", "signal 9", "1 row"))
    assert caught.value.hint is not None
    assert Option("processes", value=False) in caught.value.hint.parts
    assert values(away.compute(boxes([1], [7]), every=True)) == [7]


def test_a_process_that_exits_is_told(away: BoundUDF) -> None:
    with raises(UDFError, "udf-process-died") as caught:
        away.compute(boxes([98]), every=True)
    assert "exit status 3" in caught.value.message


def test_threads_that_ask_at_once_get_their_own_answers(away: BoundUDF) -> None:
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        for _ in range(10):
            found[number] = values(away.compute(boxes([1] * 9, [number] * 9), every=True))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number] * 9 for number in range(6)}


def test_a_function_of_batches_runs_there_as_well() -> None:
    @batch_udf(AREA, PROCESS, reads=["width"], processes=True)
    def doubled(batch: pa.RecordBatch) -> dict[str, Any]:
        column = [2 * 60 // value for value in batch["width"].to_pylist()]
        return {"area": pa.array(column), "process": [os.getpid()] * batch.num_rows}

    with closing(doubled.bind(BOXES)) as bound:
        made = bound.compute(boxes([1, 2, 0, 3]), every=True)
        assert values(made) == [120, 60, None, 40]
        assert list(made.reasons) == [2]
        assert os.getpid() not in values(made, "process")
        bound.close()
        with raises(UDFError, "cancelled"):
            bound.compute(boxes([1]), every=True)


def test_closing_ends_the_work_of_all_threads() -> None:
    bound = FIELDS.bind(BOXES)
    stopped: list[str] = []
    begun = threading.Barrier(4)

    def work() -> None:
        bound.compute(boxes([1], [2]), every=True)
        begun.wait(SECONDS)
        try:
            while True:
                bound.compute(boxes([1] * 50, [2] * 50), every=True)
        except UDFError as error:
            stopped.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(SECONDS)
    bound.close()
    for thread in threads:
        thread.join(SECONDS)
    assert stopped == ["cancelled"] * 3


def burning(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that computes for a while."""

    def burn(_: dict[str, Any]) -> dict[str, Any]:
        end = thread_time() + seconds
        while thread_time() < end:
            pass
        return {"process": os.getpid()}

    return burn


def test_a_function_moves_to_processes_once_it_took_a_second() -> None:
    fields = record_udf(PROCESS, reads=["width"])(burning(0.02))
    with closing(fields.bind(BOXES)) as bound:
        batches = (boxes([number]) for number in range(3000))
        made = bound.stream(batches, every=True, workers=2)
        ran = (values(one, "process")[0] for one in made)
        stayed = sum(1 for _ in takewhile(os.getpid().__eq__, ran))
    assert 40 <= stayed < 2990


@pytest.mark.sweep
def test_slow_function_moves_within_batch() -> None:
    fields = record_udf(PROCESS, reads=["width"])(burning(0.005))
    with closing(fields.bind(BOXES)) as bound:
        made = bound.compute(boxes([1] * 1400), every=True)
    ran = values(made, "process")
    assert len(ran) == 1400
    stayed = ran.count(os.getpid())
    assert 200 <= stayed < 1300
    assert len(set(ran)) > (2 if (os.cpu_count() or 1) > 1 else 1)


@pytest.mark.parametrize("processes", [True, False])
def test_pieces_report_rows_of_whole_batch(processes: bool) -> None:  # noqa: FBT001
    @record_udf(AREA, reads=["width"], processes=processes)
    def divided(record: dict[str, Any]) -> dict[str, Any]:
        return {"area": 60 // record["width"]}

    widths = [1] * 1000
    widths[500] = widths[900] = 0
    with closing(divided.bind(BOXES)) as bound:
        every = bound.compute(boxes(widths), every=True)
        first = bound.compute(boxes(widths), every=False)
    assert list(every.reasons) == [500, 900]
    assert values(every) == [None if at in (500, 900) else 60 for at in range(1000)]
    assert list(first.reasons)[:1] == [500]
    assert values(first)[:500] == [60] * 500
    assert len(values(first)) == 1000
    assert isinstance(first.error, ZeroDivisionError)


def test_a_function_that_is_done_in_no_time_does_not_move() -> None:
    fields = record_udf(PROCESS, reads=["width"])(burning(0.0005))
    with closing(fields.bind(BOXES)) as bound:
        ran = {values(bound.compute(boxes([1]), every=True), "process")[0] for _ in range(2200)}
    assert ran == {os.getpid()}


def locked(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that cannot be sent to another process."""
    lock, burn = threading.Lock(), burning(seconds)

    def function(record: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return burn(record)

    return function


def test_unpicklable_function_stays_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fields = record_udf(PROCESS, reads=["width"])(locked(0.3))
    with caplog.at_level(logging.WARNING), closing(fields.bind(BOXES)) as bound:
        ran = {values(bound.compute(boxes([1]), every=True), "process")[0] for _ in range(6)}
    assert ran == {os.getpid()}
    (record,) = caplog.records
    assert record.args is not None
    shown, why = record.args
    assert shown == fields.label
    assert isinstance(why, NotPortableError)
    assert "pickled" in str(why)


def test_unpicklable_function_raises_with_processes() -> None:
    fields = record_udf(PROCESS, reads=["width"], processes=True)(locked(0))
    with raises(UDFError, "udf-not-portable") as caught:
        fields.bind(BOXES)
    assert "pickled" in caught.value.message
    assert caught.value.hint is not None
    assert Option("processes", value=True) in caught.value.hint.parts


def test_a_function_that_cannot_be_loaded_there_is_refused_or_stays(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_here = ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    burn = burning(0.3)
    burn.__module__, burn.__qualname__, burn.__name__ = "only_here", "burn", "burn"
    only_here.burn = burn  # type: ignore[attr-defined] # a module made by hand
    insisting = record_udf(PROCESS, reads=["width"], processes=True)(burn).bind(BOXES)
    with closing(insisting), raises(UDFError, "udf-not-portable") as caught:
        insisting.compute(boxes([1]), every=True)
    assert "only_here" in caught.value.message
    with caplog.at_level(logging.WARNING):
        staying = record_udf(PROCESS, reads=["width"])(burn).bind(BOXES)
        with closing(staying):
            ran = {values(staying.compute(boxes([1]), every=True), "process")[0] for _ in range(9)}
    assert ran == {os.getpid()}
    (record,) = caplog.records
    assert record.args is not None
    shown, why = record.args
    assert shown == "function 'burn'"
    assert isinstance(why, NotPortableError)
    assert "only_here" in str(why)


SCRIPT = """
import os, sys
import shardline
from tests.udf.batches import AREA, BOXES, boxes
from tests.signals import default_signals

# There is no guard around the rest: a worker must not run it again.
print("begins", flush=True)

@shardline.record_udf(AREA, reads=["width"], processes=True)
def endless(record):
    pipe = open(sys.argv[1], "w")
    print(os.getpid(), file=pipe, flush=True)
    while True:
        pass

bound = endless.bind(BOXES)
try:
    list(bound.stream((boxes([1]) for _ in range(9)), every=True, workers=2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    bound.close()
"""


def _output(process: subprocess.Popen[str], how: str) -> tuple[str, str]:
    """Kill a script, or interrupt it until it ends: Python may drop an interrupt."""
    for _ in range(SECONDS // AGAIN_SECONDS):
        if how == "interrupted":
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        else:
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=AGAIN_SECONDS)
    return pytest.fail("the script did not end")


def _ended(process: subprocess.Popen[str], fifo: Path, how: str) -> tuple[str, str]:
    """End a script while its worker is busy, and wait until nobody has its pipe open."""
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)) as pipe:
        assert select.select([pipe], [], [], SECONDS)[0], "a worker begins"
        assert int(pipe.readline()) != process.pid
        output, errors = _output(process, how)
        # The pipe ends when the last process is gone that has it open.
        while select.select([pipe], [], [], SECONDS)[0]:
            if not os.read(pipe.fileno(), 100):
                break
        else:
            pytest.fail("a worker is still there")
    return output, errors


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_no_process_is_left_over_however_the_one_that_started_it_ends(
    tmp_path: Path, how: str
) -> None:
    script, fifo = tmp_path / "endless.py", tmp_path / "fifo"
    script.write_text(textwrap.dedent(SCRIPT))
    os.mkfifo(fifo)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with default_signals():
        process = subprocess.Popen(
            [sys.executable, str(script), str(fifo)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        output, errors = _ended(process, fifo, how)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert output == ("begins\ninterrupted\n" if how == "interrupted" else "begins\n"), errors
