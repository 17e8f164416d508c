"""Worker processes for functions: messages with batches and results, and the process pool."""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Condition, Thread
from typing import TYPE_CHECKING

import cloudpickle
import pyarrow as pa

from shardline.errors import UDFError
from shardline.execution.child_process import ChildProcess
from shardline.execution.pipe_messages import receive, send
from shardline.hints import Hint, Option
from shardline.schema.arrow_validation import find_fault
from shardline.schema.conversion import ConvertedColumn
from shardline.text import format_count
from shardline.udf.udf_result import UDFResult, format_exception

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

    from shardline.execution.pipe_messages import Message, Part
    from shardline.schema.schema import Feature
    from shardline.udf.function_call import FunctionCall


def encode_request(batch: pa.RecordBatch, *, every: bool) -> tuple[Part, ...]:
    """Encode the request for the new features of a batch."""
    return bytes([every]), _encode_batch(batch)


def decode_request(message: Message) -> tuple[pa.RecordBatch, bool]:
    """Decode a request."""
    return _decode_batch(message[1]), bool(message[0][0])


def encode_reply(result: UDFResult) -> tuple[Part, ...]:
    """Encode the result of a batch."""
    arrays = [fitted.array for _, fitted in result.columns]
    columns = pa.RecordBatch.from_arrays(arrays, [str(index) for index in range(len(arrays))])
    bad = [fitted.bad for _, fitted in result.columns]
    error = b"" if result.error is None else _pickle_error(result.error)
    return b"made", pickle.dumps((bad, result.reasons)), _encode_batch(columns), error


def encode_error_reply(error: Exception) -> tuple[Part, ...]:
    """Encode an exception as the reply."""
    return b"error", _pickle_error(error)


def decode_reply(features: tuple[Feature, ...], message: Message) -> UDFResult:
    """Decode a reply, raising the exception of the worker process, if any."""
    if bytes(message[0]) == b"error":
        error: Exception = pickle.loads(message[1])  # noqa: S301 - from a process of ours
        raise error
    bad, reasons = pickle.loads(message[1])  # noqa: S301 - from a process of ours
    arrays = _decode_batch(message[2]).columns
    fault = find_fault(arrays)  # User code may have corrupted the memory of its process.
    if fault is not None:
        name = features[fault.position].name
        raise UDFError(
            f"corrupt column {name!r} from another process: {fault.detail}",
            code="corrupt-columns",
            feature=name,
        )
    columns = [
        (feature, ConvertedColumn(array, wrong))
        for feature, array, wrong in zip(features, arrays, bad, strict=True)
    ]
    first = pickle.loads(message[3]) if message[3] else None  # noqa: S301 - from a process of ours
    return UDFResult(columns, reasons, first)


def _encode_batch(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decode_batch(part: memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(part)) as reader:
        return reader.read_next_batch()


def _pickle_error(error: BaseException) -> bytes:
    """Pickle an exception with its formatted traceback, which is not picklable itself."""
    formatted = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(f"In the process that raised it:\n{formatted}")
    try:
        data: bytes = cloudpickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - just made, to see whether it can be
    except Exception:  # noqa: BLE001 - whatever its class does
        plain = UDFError(format_exception(error))
        plain.add_note(error.__notes__[-1])
        data = cloudpickle.dumps(plain)
    return data


def main(requests: int, replies: int) -> None:
    """Serve requests from the process at the other ends of these pipes."""
    for number in (requests, replies):
        os.set_inheritable(number, False)  # noqa: FBT003 - the system's own
    # Never closed: closing would wait for the thread that reads it.
    inbox = _Inbox(os.fdopen(requests, "rb", closefd=False))
    with os.fdopen(replies, "wb") as outgoing:
        message = inbox.take()
        if message is None:
            return
        try:
            work: FunctionCall = pickle.loads(message[0])  # noqa: S301 - from the process that started us
        except Exception as error:  # noqa: BLE001 - whatever loading it does
            send(outgoing, b"failed", format_exception(error).encode())
            return
        send(outgoing, b"ready")
        while (message := inbox.take()) is not None:
            send(outgoing, *_handle_request(work, message))


def _handle_request(work: FunctionCall, message: Message) -> tuple[Part, ...]:
    batch, every = decode_request(message)
    try:
        return encode_reply(work(batch, every=every))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        return encode_error_reply(error)


class _Inbox:
    """Incoming messages; a reader thread notices the end of the pipe during work."""

    def __init__(self, pipe: BufferedReader) -> None:
        self._pipe = pipe
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._idle = True
        Thread(target=self._listen, daemon=True).start()

    def take(self) -> Message | None:
        """Return the next message, None after the last."""
        self._idle = True
        message = self._messages.get()
        self._idle = False
        return message

    def _listen(self) -> None:
        while True:
            try:
                self._messages.put(receive(self._pipe))
            except (EOFError, OSError):
                self._messages.put(None)
                if not self._idle:
                    os._exit(1)  # The parent has exited.
                return


_PROGRAM = """\
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us
pipes = map(int, sys.argv[2:])
sys.path[:], sys.argv[:] = json.loads(sys.argv[1])
from shardline.udf.worker_process import main
main(*pipes)
"""


class NotPortableError(Exception):
    """Reason why a function cannot be sent to another process."""

    def make_error(self, label: str) -> UDFError:
        """Return the error for a caller that requires processes."""
        return UDFError(
            f"{label}: cannot run in other processes: {self}",
            code="udf-not-portable",
            hint=Hint.of(
                "create what it needs inside the function, or leave out ",
                Option("processes", value=True),
            ),
        )


def pickle_work(work: object) -> bytes:
    """Pickle work for other processes; NotPortableError if that fails."""
    try:
        data: bytes = cloudpickle.dumps(work)
    except Exception as error:
        reason = f"it, or what it refers to, cannot be pickled ({format_exception(error)})"
        raise NotPortableError(reason) from error
    return data


class WorkerPool:
    """Pool of processes for the same work, each serving one thread of this process at a time."""

    def __init__(self, label: str, features: tuple[Feature, ...], work: bytes) -> None:
        self._label = label
        self._features = features
        self._work = work
        self._limit = os.cpu_count() or 1
        self._changed = Condition()
        self._callers = 0
        self._known = 0
        self._starting = 0
        self._alive: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._failed: str | None = None
        self._closed = False

    @contextmanager
    def caller(self) -> Iterator[None]:
        """Count the caller among the threads that need a process each."""
        with self._changed:
            self._callers += 1
        try:
            yield
        finally:
            with self._changed:
                self._callers -= 1

    def run(self, batch: pa.RecordBatch, *, every: bool, wait: bool) -> UDFResult | None:
        """Compute a batch in a worker process.

        Returns None if all processes are busy or starting and `wait` is false. Raises
        NotPortableError if the work cannot run in another process at all.
        """
        process = self._take(wait=wait)
        if process is None:
            return None
        try:
            message = process.ask(*encode_request(batch, every=every))
        except (EOFError, OSError):
            process.end()
            self._forget(process)
            if self._closed:
                raise self._make_stopped_error() from None
            rows = format_count(batch.num_rows, "row")
            raise UDFError(
                f"{self._label}: process ended with {process.ending} on {rows}",
                code="udf-process-died",
                hint=Hint.of(
                    "to see why, run it in this process: pass ", Option("processes", value=False)
                ),
            ) from None
        except BaseException:
            # A late reply would be taken for the reply to the next request.
            process.kill()
            process.end()
            self._forget(process)
            raise
        self._give_back(process)
        return decode_reply(self._features, message)

    def close(self) -> None:
        """End all processes, even during work."""
        with self._changed:
            self._closed = True
            idle, busy = list(self._idle), self._alive.difference(self._idle)
            self._idle.clear()
            self._changed.notify_all()
        for process in busy:
            process.kill()  # The thread that waits for the reply gets the error and cleans up.
        for process in idle:
            process.hang_up()
        for process in idle:
            process.end()
            self._forget(process)
        with self._changed:
            self._changed.wait_for(lambda: not self._known)

    def _take(self, *, wait: bool) -> ChildProcess | None:
        with self._changed:
            while True:
                if self._failed is not None:
                    raise NotPortableError(self._failed)
                if self._closed:
                    raise self._make_stopped_error()
                if self._idle:
                    return self._idle.pop()
                if self._known < min(self._callers, self._limit):
                    self._known += 1
                    self._starting += 1
                    Thread(target=self._start, daemon=True).start()
                if self._starting and not wait:
                    return None
                self._changed.wait()

    def _give_back(self, process: ChildProcess) -> None:
        with self._changed:
            if not self._closed:
                self._idle.append(process)
                self._changed.notify()
                return
        process.end()
        self._forget(process)

    def _start(self) -> None:
        process, reason = None, None
        try:
            process = _start_process()
            with self._changed:
                self._alive.add(process)
                if self._closed:
                    process.kill()
            answer = process.ask(self._work)
            if bytes(answer[0]) != b"ready":
                reason = f"it cannot be loaded there ({bytes(answer[1]).decode()})"
        except (EOFError, OSError) as error:
            if process is not None:
                process.end()
            ending = format_exception(error) if process is None else process.ending
            reason = f"a process for it could not be started ({ending})"
        with self._changed:
            self._starting -= 1
            if reason is None and process is not None and not self._closed:
                self._idle.append(process)
                self._changed.notify_all()
                return
            self._failed = self._failed or (None if self._closed else reason)
        if process is not None:
            process.end()
        self._forget(process)

    def _forget(self, process: ChildProcess | None) -> None:
        with self._changed:
            self._known -= 1
            if process is not None:
                self._alive.discard(process)
            self._changed.notify_all()

    def _make_stopped_error(self) -> UDFError:
        return UDFError(f"{self._label}: stopped", code="cancelled")


def _start_process() -> ChildProcess:
    paths = json.dumps([sys.path, sys.argv])
    return ChildProcess(lambda pipes: ["-c", _PROGRAM, paths, *pipes], stdout=_get_print_target())


def _get_print_target() -> int | None:
    """Return the descriptor for worker output: that of `sys.stdout` if it is an OS file."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # Missing, or a pure Python stream.
        return None
