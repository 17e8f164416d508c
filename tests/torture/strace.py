"""Run a command under strace with one fault, and observe its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.calls import EXIT, MUTATING, Trace, read_trace
from tests.torture.points import ERRNOS, Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHIM_SOURCE = Path(__file__).with_name("short_write.c")

# Python (PEP 475) and others begin an interrupted call again and again. So many interruptions in
# one run mean that it will never end: it is killed, and judged as a run that was killed.
ENDLESS = 300
PATIENCE = 300.0
PATIENCE_WITH_INTERRUPTIONS = 20.0


class HarnessError(Exception):
    """Failure of the sweep itself, which says nothing about the command."""


@dataclass(frozen=True)
class Ended:
    """Result of a run under strace. `hung` is set if it had to be killed."""

    exit_code: int
    stdout: str
    stderr: str
    hung: bool
    trace: Trace


def run_traced(
    command: Sequence[str],
    point: Point,
    *,
    folder: Path,
    log: Path,
    cwd: Path,
    environment: Mapping[str, str],
) -> Ended:
    """Run a command with the fault of a point. Only calls on `folder` count."""
    process = subprocess.Popen(
        [*_strace(point, folder, log), "--", *command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    stdout, stderr, hung = _ended(process, log, point)
    if not log.exists():
        raise HarnessError(f"{point.label}: strace wrote no log:\n{stderr}")
    with log.open(encoding="latin-1") as lines:
        trace = read_trace(lines, folder, cwd)
    return Ended(process.returncode, stdout, stderr, hung, trace)


def _strace(point: Point, folder: Path, log: Path) -> list[str]:
    command = [_find_strace(), "-f", "-y", "-s", "0", "-o", str(log)]
    # A question mark: not every machine has every call.
    command += ["-e", "trace=" + ",".join(f"?{name}" for name in sorted({*MUTATING, EXIT}))]
    often = "+" if point.persistent else ""
    if point.fault == "kill":
        command += ["-e", f"inject={point.call}:signal=KILL:when={point.when}"]
    else:
        # Many times faster, but from a stop of this kind no signal can be sent.
        command.append("--seccomp-bpf")
    if point.fault in ERRNOS:
        command += ["-e", f"inject={point.call}:error={point.fault}:when={point.when}{often}"]
    if (library := shim()) is not None:
        command += ["-E", f"LD_PRELOAD={library}", "-E", f"SHARDLINE_SWEEP_FOLDER={folder}"]
    if point.fault == "short":
        command += ["-E", f"SHARDLINE_SWEEP_SHORT={point.call} {point.ordinal}{often}"]
    return command


def _ended(process: subprocess.Popen[str], log: Path, point: Point) -> tuple[str, str, bool]:
    """Wait for the end of a run, or kill it. Returns stdout, stderr and whether it hung."""
    endless = point.fault == "EINTR" and point.persistent
    patience = PATIENCE_WITH_INTERRUPTIONS if endless else PATIENCE
    deadline = time.monotonic() + patience
    hung = False
    try:
        while True:
            try:
                return *process.communicate(timeout=0.1), hung
            except subprocess.TimeoutExpired:
                late = time.monotonic() - deadline
                if late > 0 or (point.persistent and _injections(log) > ENDLESS):
                    hung = True
                    _kill_traced(process, log)
                if late > PATIENCE:
                    raise HarnessError(f"{point.label}: strace does not end") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _injections(log: Path) -> int:
    return log.read_bytes().count(b"(INJECTED)") if log.exists() else 0


def _kill_traced(strace: subprocess.Popen[str], log: Path) -> None:
    """Kill all traced processes, but not strace, which waits until they have exited.

    A judge must see a folder at rest.
    """
    for thread in {int(line.split()[0]) for line in log.read_bytes().splitlines()}:
        # A process of another group only inherited the number.
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(thread) == strace.pid:
                os.kill(thread, signal.SIGKILL)


def _find_strace() -> str:
    return shutil.which("strace") or "strace"


@cache
def unavailable() -> str | None:
    """Return why sweeps cannot run here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        aim = ["-e", f"trace={EXIT}", "-e", f"inject={EXIT}:signal=KILL"]
        result = subprocess.run(
            [_find_strace(), "-f", "-o", str(log), *aim, "--", "/bin/sh", "-c", "exit 0"],
            check=False,
            capture_output=True,
            text=True,
        )
    if result.returncode == -signal.SIGKILL:
        return None
    return f"strace may not trace here: {result.stderr.strip() or 'its kill had no effect'}"


@cache
def shim() -> Path | None:
    """Return the library built from short_write.c, or None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = tempfile.TemporaryDirectory(prefix="shardline-torture-")
    atexit.register(folder.cleanup)
    library = Path(folder.name, "short_write.so")
    # Some compilers fortify by themselves, which makes macros of the functions defined here.
    options = ["-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE"]
    result = subprocess.run(
        [compiler, *options, "-o", str(library), str(SHIM_SOURCE)],
        check=False,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise HarnessError(f"short_write.c does not compile:\n{result.stderr}")
    return library
