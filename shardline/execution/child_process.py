"""Child processes that answer messages on pipes, for work that may crash or block this process.

A child is a fresh interpreter, because a fork would lack the threads of this process. It exits when
its request pipe closes, so it never outlives this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from shardline.execution.pipe_messages import receive, send

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from io import BufferedReader, BufferedWriter

    from shardline.execution.pipe_messages import Message, Part

_GRACE_SECONDS = 2.0
_PIPE_BYTES = 1024 * 1024


class ChildProcess:
    """Interpreter that serves requests on a pair of pipes."""

    def __init__(
        self,
        arguments: Callable[[list[str]], Sequence[str]],
        *,
        stdout: int | None = subprocess.DEVNULL,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
        allocate: Callable[[int], Part] = bytearray,
    ) -> None:
        """Start an interpreter.

        Args:
            arguments: Returns the arguments, given the descriptors of requests and replies.
            stdout: Descriptor for the output of the child; None inherits it.
            stderr: Descriptor for the errors of the child; None inherits it.
            environment: Variables to add to the environment.
            allocate: Returns memory for a part of a reply.
        """
        self.ending = ""
        self._allocate = allocate
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for end in (0, 1):
                pipe = os.pipe()
                theirs.append(pipe[end])
                ours.append(pipe[1 - end])
            _enlarge_pipe(ours[1])
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and our own program
                [sys.executable, *arguments([str(descriptor) for descriptor in theirs])],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=None if environment is None else {**os.environ, **environment},
                pass_fds=theirs,
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._requests: BufferedWriter = os.fdopen(ours[0], "wb")
        self._replies: BufferedReader = os.fdopen(ours[1], "rb")

    @property
    def has_ended(self) -> bool:
        """Return True if the process has exited."""
        return self._process.poll() is not None

    def ask(self, *parts: Part) -> Message:
        """Send a request and wait for the reply; EOFError or OSError if the process exited."""
        send(self._requests, *parts)
        return self.receive()

    def receive(self) -> Message:
        """Wait for the next reply; EOFError or OSError if the process exited."""
        return receive(self._replies, self._allocate)

    def kill(self) -> None:
        """Kill the process, from any thread, even during a request."""
        self._process.kill()

    def hang_up(self) -> None:
        """Close the request pipe, so that the process exits by itself."""
        with suppress(OSError):
            self._requests.close()

    def close_pipes(self) -> None:
        """Close both pipes without waiting for the process."""
        self.hang_up()
        with suppress(OSError):
            self._replies.close()

    def end(self) -> int:
        """Wait for the process to exit, describe it in `ending` and return the exit status."""
        self.hang_up()
        try:
            status = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self.close_pipes()
        self.ending = f"exit status {status}"
        if status < 0:
            self.ending = f"signal {-status} ({signal.strsignal(-status)})"
        return status


def _enlarge_pipe(pipe: int) -> None:
    """Enlarge a pipe, so that the two sides block each other less often."""
    try:
        import fcntl  # noqa: PLC0415 - not on every system

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        return
