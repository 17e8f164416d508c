"""Processes that do work on batches: as many as are asked at once, up to the number of cores.

They are started as fresh interpreters: a fork of this process would lack its threads, and those of
TensorFlow with them. Unlike those of the multiprocessing module they do not run the main program
again, so that a script that calls us needs no guard.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import TYPE_CHECKING

import cloudpickle

from shardline.errors import FieldsError
from shardline.execution.pipe_messages import receive, send
from shardline.hints import Hint, Option
from shardline.text import counted
from shardline.udf.pipes import answered, request
from shardline.udf.results import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from shardline.execution.pipe_messages import Message, Part
    from shardline.schema.schema import Feature
    from shardline.udf.results import Made

_PROGRAM = """\
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us
pipes = map(int, sys.argv[2:])
sys.path[:], sys.argv[:] = json.loads(sys.argv[1])
from shardline.udf.worker import main
main(*pipes)
"""
_GRACE_SECONDS = 2.0


class CannotShip(Exception):  # noqa: N818 - it is raised and caught within this package
    """Why a function cannot be sent to another process."""

    def refusal(self, shown: str) -> FieldsError:
        """The error for whoever insists."""
        return FieldsError(
            f"{shown}: cannot run in other processes: {self}",
            code="udf-not-portable",
            hint=Hint.of(
                "create what it needs inside the function, or leave out ",
                Option("processes", value=True),
            ),
        )


def shipped(work: object) -> bytes:
    """Work as it is sent to processes; CannotShip if it cannot be."""
    try:
        data: bytes = cloudpickle.dumps(work)
    except Exception as error:
        why = f"it, or what it refers to, cannot be pickled ({in_words(error)})"
        raise CannotShip(why) from error
    return data


class Processes:
    """Processes that all do the same work, each for one thread of this process at a time."""

    def __init__(self, shown: str, features: tuple[Feature, ...], work: bytes) -> None:
        self._shown = shown
        self._features = features
        self._work = work
        self._limit = os.cpu_count() or 1
        self._changed = Condition()
        self._callers = 0
        self._known = 0
        self._starting = 0
        self._alive: set[_Process] = set()
        self._idle: list[_Process] = []
        self._failed: str | None = None
        self._closed = False

    @contextmanager
    def caller(self) -> Iterator[None]:
        """Be counted among those for whom there should be a process each."""
        with self._changed:
            self._callers += 1
        try:
            yield
        finally:
            with self._changed:
                self._callers -= 1

    def run(self, batch: pa.RecordBatch, *, every: bool, wait: bool) -> Made | None:
        """What a process makes of a batch.

        None if none is free, some are about to start, and these are not to be waited for. Raises
        CannotShip if the work cannot be done there at all.
        """
        process = self._take(wait=wait)
        if process is None:
            return None
        try:
            message = process.ask(*request(batch, every=every))
        except (EOFError, OSError):
            how = process.end()
            self._forget(process)
            if self._closed:
                raise self._stopped() from None
            rows = counted(batch.num_rows, "row")
            raise FieldsError(
                f"{self._shown}: process ended with {how} on {rows}",
                code="udf-process-died",
                hint=Hint.of(
                    "to see why, run it in this process: pass ", Option("processes", value=False)
                ),
            ) from None
        except BaseException:
            # Its answer would be taken for that to the next question.
            process.kill()
            process.end()
            self._forget(process)
            raise
        self._give_back(process)
        return answered(self._features, message)

    def close(self) -> None:
        """End all processes, whatever they are at."""
        with self._changed:
            self._closed = True
            idle, busy = list(self._idle), self._alive.difference(self._idle)
            self._idle.clear()
            self._changed.notify_all()
        for process in busy:
            process.kill()  # whoever waits for its answer is told, and clears it away
        for process in idle:
            process.hang_up()
        for process in idle:
            process.end()
            self._forget(process)
        with self._changed:
            self._changed.wait_for(lambda: not self._known)

    def _take(self, *, wait: bool) -> _Process | None:
        with self._changed:
            while True:
                if self._failed is not None:
                    raise CannotShip(self._failed)
                if self._closed:
                    raise self._stopped()
                if self._idle:
                    return self._idle.pop()
                if self._known < min(self._callers, self._limit):
                    self._known += 1
                    self._starting += 1
                    Thread(target=self._start, daemon=True).start()
                if self._starting and not wait:
                    return None
                self._changed.wait()

    def _give_back(self, process: _Process) -> None:
        with self._changed:
            if not self._closed:
                self._idle.append(process)
                self._changed.notify()
                return
        process.end()
        self._forget(process)

    def _start(self) -> None:
        process, why = None, None
        try:
            process = _Process()
            with self._changed:
                self._alive.add(process)
                if self._closed:
                    process.kill()
            answer = process.ask(self._work)
            if bytes(answer[0]) != b"ready":
                why = f"it cannot be loaded there ({bytes(answer[1]).decode()})"
        except (EOFError, OSError) as error:
            how = in_words(error) if process is None else process.end()
            why = f"a process for it could not be started ({how})"
        with self._changed:
            self._starting -= 1
            if why is None and process is not None and not self._closed:
                self._idle.append(process)
                self._changed.notify_all()
                return
            self._failed = self._failed or (None if self._closed else why)
        if process is not None:
            process.end()
        self._forget(process)

    def _forget(self, process: _Process | None) -> None:
        with self._changed:
            self._known -= 1
            if process is not None:
                self._alive.discard(process)
            self._changed.notify_all()

    def _stopped(self) -> FieldsError:
        return FieldsError(f"{self._shown}: stopped", code="cancelled")


class _Process:
    """One process and the pipes to and from it."""

    def __init__(self) -> None:
        ours, theirs = [], []
        try:
            for place in (0, 1):
                pipe = os.pipe()
                theirs.append(pipe[place])
                ours.append(pipe[1 - place])
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and our own program
                [
                    sys.executable,
                    "-c",
                    _PROGRAM,
                    json.dumps([sys.path, sys.argv]),
                    *map(str, theirs),
                ],
                stdin=subprocess.DEVNULL,
                stdout=_printed_to(),
                pass_fds=theirs,
            )
        except BaseException:
            for number in ours:
                os.close(number)
            raise
        finally:
            for number in theirs:
                os.close(number)
        self._requests, self._replies = os.fdopen(ours[0], "wb"), os.fdopen(ours[1], "rb")

    def ask(self, *parts: Part) -> Message:
        """Send a message and wait for the answer; EOFError or OSError if the process is gone."""
        send(self._requests, *parts)
        return receive(self._replies)

    def kill(self) -> None:
        """End it from any thread, also while another waits for its answer."""
        self._process.kill()

    def hang_up(self) -> None:
        """Let it end by itself."""
        with suppress(OSError):
            self._requests.close()

    def end(self) -> str:
        """Wait until it has ended, and say how."""
        self.hang_up()
        try:
            status = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._replies.close()
        if status >= 0:
            return f"exit status {status}"
        return f"signal {-status} ({signal.strsignal(-status)})"


def _printed_to() -> int | None:
    """Where a process prints: where this one does, if that is a file of the system."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # it is none, or only one of Python's
        return None
