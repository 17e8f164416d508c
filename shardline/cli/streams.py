"""Standard streams: closed from the start, or closed by their reader while a command writes."""

from __future__ import annotations

import os
import select
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

READER_GONE = 141
"""The exit code after a closed pipe: what a shell reports for a process that SIGPIPE ended."""


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that was closed when the process started.

    Else the next file that is opened gets its number, and messages are written into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = _opened(1)
    if sys.stderr is None:
        sys.stderr = _opened(2)


def _opened(number: int) -> TextIO:
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """End quietly, with an exit code of its own, when nobody reads the output any more."""
    try:
        try:
            yield
        finally:
            with suppress(ValueError):  # closed by a function of the user
                sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(READER_GONE) from None


def reader_is_gone() -> bool:
    """Return True if a standard stream is a pipe or a socket that nobody reads any more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            poll = select.poll()
            poll.register(stream.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                return True
    return False


def _discard_output() -> None:
    """Send what is still buffered to /dev/null: the interpreter flushes once more at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
    os.close(null)
