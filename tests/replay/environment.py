"""Fixed environment of a replay: clock, host, random tokens, folder, variables and workers.

Everything is replaced in the standard library, below our own code: the same command writes the
same bytes on every machine and in every run.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import io
import os
import re
import secrets
import shutil
import socket
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import shardline
from tests.cli.command import shardline as run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from tests.cli.command import Result

FOLDER = Path("/tmp/shardline-replay")  # noqa: S108 - entries record absolute paths: it must not vary
BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOST = "replay"
WORKERS = 1
FREE_BYTES = 50 * 1024**3
VARIABLES = {
    "COLUMNS": "100",
    "LINES": "50",
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "PATH": os.defpath,
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "TERM": "dumb",
    "TZ": "UTC",
}
_IMPORTS_DATETIME = re.compile(r"^from datetime import .*\bdatetime\b", re.MULTILINE)


class Environment:
    """Clock, tokens and folder of one script, used as `with Environment(name).entered():`.

    The clock stays the same during a command, and moves on by a minute after a command that
    changed files. Tokens depend on the script, the number of such commands so far and their size.
    So a command that only reads can be added anywhere, and the rest stays as it was recorded.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = FOLDER / name
        self.now = BEGIN
        self.variables = dict(VARIABLES, HOME=str(self.folder))
        self._writes = 0
        self._drawn: dict[int, int] = {}
        self._ticks = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Patch the standard library, in an empty folder that no other process uses."""
        with ExitStack() as stack:
            stack.enter_context(_locked(self.name))
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            usage = shutil.disk_usage("/")._replace(free=FREE_BYTES)
            for place, name, value in (
                (os, "cpu_count", lambda: WORKERS),
                (os, "fsync", lambda _: None),  # what a power failure leaves is tested elsewhere
                (shutil, "disk_usage", lambda _: usage),
                (socket, "gethostname", lambda: HOST),
                (secrets, "token_bytes", self._token),
                (secrets, "token_hex", lambda size: self._token(size).hex()),
                (secrets, "randbelow", self._below),
                (time, "perf_counter", self._tick),
                (time, "sleep", lambda _: None),  # before a request is repeated
                (time, "time", self._seconds),
                (sys, "dont_write_bytecode", True),
            ):
                stack.enter_context(patch.object(place, name, value))
            fixed = _datetime_at(self)
            for module in _modules_with_datetime():
                stack.enter_context(patch.object(module, "datetime", fixed))
            yield

    def run(self, arguments: Sequence[str], stdin: bytes = b"") -> Result:
        """Run one command."""
        self._drawn.clear()
        self._ticks = 0
        text = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        with (
            patch.dict(os.environ, self.variables, clear=True),
            patch.object(sys, "stdin", text),
            # How click finds the name of the program.
            patch.object(sys.modules["__main__"], "__package__", None, create=True),
            _modules_kept(self.folder),
        ):
            return run_command(*arguments, cwd=self.folder, **self.variables)

    def move_on(self) -> None:
        """Move the clock and the tokens on, after a command that changed files."""
        self._writes += 1
        self.now += timedelta(minutes=1)

    def date(self, path: Path) -> None:
        """Give a file the time of the clock."""
        stamp = int(self.now.timestamp())
        os.utime(path, (stamp, stamp))

    def _token(self, size: int) -> bytes:
        # Temporary names are drawn too, with a size of their own: they disturb nothing.
        drawn = self._drawn[size] = self._drawn.get(size, 0) + 1
        seed = f"{self.name} {self._writes} {size} {drawn}"
        return hashlib.sha256(seed.encode()).digest()[:size]

    def _below(self, limit: int) -> int:
        return int.from_bytes(self._token(7)) % limit

    def _seconds(self) -> float:
        return self.now.timestamp()

    def _tick(self) -> float:
        """Let a second pass between two looks at the stopwatch."""
        self._ticks += 1
        return float(self._ticks)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold the folder of a script: two runs on one machine take turns."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _modules_kept(folder: Path) -> Iterator[None]:
    """Forget the modules that a command imports from the folder, as a process does at its end."""
    paths = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = paths
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
                del sys.modules[name]
        for path in [path for path in sys.path_importer_cache if path.startswith(str(folder))]:
            del sys.path_importer_cache[path]


class _AnyDatetime(type):
    """Counts every datetime as an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def _datetime_at(environment: Environment) -> type[datetime]:
    class FixedDatetime(datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:  # noqa: ANN401 - of the base class
            return environment.now.astimezone(tz)

    return FixedDatetime


def _modules_with_datetime() -> list[ModuleType]:
    """Modules of the package that import the class: they have a name of their own for it."""
    package = Path(shardline.__file__).parent
    modules = []
    for path in sorted(package.rglob("*.py")):
        if _IMPORTS_DATETIME.search(path.read_text()):
            parts = path.relative_to(package.parent).with_suffix("").parts
            module = importlib.import_module(".".join(parts))
            if getattr(module, "datetime", None) is datetime:
                modules.append(module)
    return modules
