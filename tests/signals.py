"""What processes that tests start inherit: effects of signals, whatever the tests inherited.

A test run in the background of a script ignores SIGINT, and so would all that it starts.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


@contextmanager
def default_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM have their default effects, here and in processes started here."""
    with _handled({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}):
        yield


@contextmanager
def ignored_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Ignore these of SIGINT and SIGTERM, and no other, here and in processes started here."""
    with default_signals(), _handled(dict.fromkeys(numbers, signal.SIG_IGN)):
        yield


@contextmanager
def _handled(handlers: dict[signal.Signals, Handler]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
