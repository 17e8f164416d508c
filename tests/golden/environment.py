"""Fixed environment in which the same release writes the same bytes.

Clock, host name and random tokens are replaced, and paths of sources are recorded relative to the
folder of the story, so that nothing about the machine is in the files.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BEGIN = datetime(2025, 3, 1, 12, tzinfo=UTC)
STEP = timedelta(minutes=1, microseconds=1)
HOST = "golden"
_resolve = Path.resolve


@contextmanager
def fixed_environment(folder: Path) -> Iterator[None]:
    """Fix clock, host and tokens, and record sources relative to `folder`."""
    tokens = _tokens()
    with ExitStack() as stack:
        stack.enter_context(patch("shardline.log.version.datetime", _clock()))
        stack.enter_context(patch.object(socket, "gethostname", lambda: HOST))
        stack.enter_context(patch.object(secrets, "token_hex", tokens))
        stack.enter_context(relative_sources(folder))
        yield


@contextmanager
def relative_sources(folder: Path) -> Iterator[None]:
    """Let sources in `folder/landing` be known by their path relative to `folder`."""
    landing = _resolve(folder) / "landing"

    def resolve(path: Path, strict: bool = False) -> Path:  # noqa: FBT001, FBT002 - as pathlib has it
        found = _resolve(path, strict)
        inside = found != landing and found.is_relative_to(landing)
        return found.relative_to(landing.parent) if inside else found

    with patch.object(Path, "resolve", resolve):
        yield


def _clock() -> type[datetime]:
    """Return a datetime class whose `now` moves on by `STEP` at each call."""
    now = BEGIN

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override] # plain is enough
            nonlocal now
            now += STEP
            return now.astimezone(tz)

    return Clock


def _tokens() -> Callable[[int], str]:
    """Return a `token_hex` that repeats itself from run to run.

    Each size has a stream of its own: names of temporary files are drawn by threads, in any order.
    """
    streams: dict[int, random.Random] = {}
    temporary = 6

    def token_hex(size: int) -> str:
        if size == temporary:
            return os.urandom(size).hex()
        return streams.setdefault(size, random.Random(size)).randbytes(size).hex()

    return token_hex
