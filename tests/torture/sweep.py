"""Kill a command at each of its system calls, make each of them fail, and judge the result.

A clean run under strace lists the calls that change something in a folder. Then, once per call and
fault, the command runs on a fresh copy of the folder with that one fault, and a judge looks at what
is left. A sweep of one command is a `Case`, and a test of it is one line:

    def judge(folder: Path, outcome: Outcome) -> None:
        assert (folder / "a").read_bytes() in {OLD, NEW}       # whatever happened
        if outcome.exit_code == 0 or outcome.point.after_the_last_call:
            assert (folder / "a").read_bytes() == NEW          # no false success
        assert_error_names(outcome, folder / "a")              # an error says where
        assert_success_is_synced(outcome)
        assert_failed_sync_is_final(outcome.calls)
        assert outcome.again().returncode == 0                 # the next run is well
        assert (folder / "a").read_bytes() == NEW

    CASE = Case(
        name="replace a file",
        prepare=lambda folder: (folder / "a").write_bytes(OLD),
        command=lambda folder: [sys.executable, "-m", "shardline", "replace", str(folder / "a")],
        judge=judge,
    )

    def test_a_replaced_file_is_old_or_new_after_every_fault(tmp_path: Path) -> None:
        torture(CASE, tmp_path)

By itself such a test runs a sample of the points, another one every day: SHARDLINE_SAMPLE_SEED sets
the seed, which each failure names. SHARDLINE_TORTURE=all runs all points, and
SHARDLINE_TORTURE='<a label>' the point of that label: each failure is reported with its own. With
a time budget, all points are run in random order until the share of this test is used up.

The faults:

- kill: SIGKILL before the call, which is then not done. After a call is before the next one, and
  the exit of the process stands for after the last.
- ENOSPC, EIO, EINTR: the call is not done and gives this error; once, or from then on every time.
- short: a write really writes only its first half (see short_write.c); once, or from then on.

Not seen: changes through a memory map, and what a loss of power does to bytes that were never
synced. Relative paths count from where the command starts: it must not change its folder.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import time
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sampling import (
    SEED_VARIABLE,
    SWEEP_VARIABLE,
    count_cases,
    sample_seed,
    torture_seconds,
)
from tests.torture.calls import (
    EXIT,
    WRITING,
    Call,
    Trace,
    assert_failed_sync_is_final,
    unsynced,
)
from tests.torture.points import CLEAN, ERRNOS, Fault, Point, sample
from tests.torture.strace import PATIENCE, HarnessError, run_traced, shim, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "CLEAN", "Case", "Failure", "HarnessError", "Outcome", "Point", "Sweep", "assert_error_names",
    "assert_failed_sync_is_final", "assert_success_is_synced", "contents", "report",
    "require_strace", "sample", "torture",
]  # fmt: skip

ROOT = Path(__file__).parents[2]

SHORTENED = frozenset({"write", "pwrite64"})
# Aimed at persistently without the shim, these take away stderr and late imports too.
SHARED_CALLS = WRITING | {"open", "openat"}

# Random parts of names: 8 hexadecimal digits or more, unless they look like a number with leading
# zeros, and what Python's tempfile makes.
VOLATILE = r"(?<![0-9a-f])(?!00000)[0-9a-f]{8,}|\btmp[a-z0-9_]{8}\b"

_AIMS = 5
"""Most runs of one point: the order in which a command syncs files may vary."""


class AimError(HarnessError):
    """Fault that hit another call than intended."""


@dataclass(frozen=True)
class Case:
    """Command under torture.

    `prepare` builds the starting state in an empty folder. It is called once: every run gets a copy
    of what it built, so that must not hold its own path. `command` gives the arguments to run on a
    folder; it must make the same calls each time. `judge` asserts what must be true of the folder
    after any outcome, that of a run without a fault included. `volatile` matches the parts of names
    that differ from run to run.
    """

    name: str
    command: Callable[[Path], Sequence[str]]
    judge: Callable[[Path, Outcome], None]
    prepare: Callable[[Path], object] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict)
    volatile: str = VOLATILE

    def run_plainly(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run the command on a folder without a fault."""
        return subprocess.run(
            list(self.command(folder)),
            cwd=ROOT,
            env=self.surroundings(),
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def surroundings(self) -> dict[str, str]:
        """Return an environment in which the same command makes the same calls."""
        fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
        return {**os.environ, **fixed, **self.environment}

    def normal(self, call: Call) -> str:
        """Return the target of a call, without the random parts of names."""
        return " > ".join(re.sub(self.volatile, "*", path) for path in call.paths)


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    `killed` is set if the fault killed the run, or the harness did because it was `hung`. `calls`
    are the calls that can change the folder, in order.
    """

    case: Case
    folder: Path
    point: Point
    exit_code: int
    stdout: str
    stderr: str
    killed: bool
    hung: bool
    calls: tuple[Call, ...]

    @property
    def injected(self) -> bool:
        """Return True if there was a fault. It hit the intended call: other runs are rejected."""
        return self.point.fault != "none"

    @property
    def failed(self) -> bool:
        """Return True if the command ended with an error."""
        return not self.killed and self.exit_code != 0

    def again(self) -> subprocess.CompletedProcess[str]:
        """Run the same command once more on the result, without a fault."""
        return self.case.run_plainly(self.folder)


@dataclass(frozen=True)
class Failure:
    """Point after which something was wrong."""

    point: Point
    what: str
    folder: Path | None = None


def assert_error_names(outcome: Outcome, *paths: Path) -> None:
    """Assert that the error of a failed command names the file, or one of them."""
    if outcome.failed:
        assert any(str(path) in outcome.stderr for path in paths), (
            f"exit code {outcome.exit_code}, but stderr does not name "
            f"{' or '.join(path.name for path in paths)}:\n{outcome.stderr}"
        )


def assert_success_is_synced(outcome: Outcome) -> None:
    """Assert that a successful command left only synced bytes."""
    if outcome.exit_code == 0:
        lost = unsynced(outcome.calls)
        assert not lost, f"success, but a sync failed of {', '.join(sorted(lost))}"


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by relative path, to compare states."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Sweep:
    """Case and its runs, in separate folders below `work`."""

    def __init__(self, case: Case, work: Path) -> None:
        self.case = case
        self.work = work.resolve()
        self.left_out: list[str] = []
        self.judged: list[Point] = []
        self._numbers = itertools.count(1)
        self._clean: list[Outcome] = []
        self._template = self.work / "template"
        self._template.mkdir(parents=True)
        case.prepare(self._template)

    def points(self) -> list[Point]:
        """Profile a clean run: every fault at every call that can change the folder.

        `left_out` lists calls that cannot be targeted.
        """
        outcome, trace = self._traced(CLEAN)
        if outcome.exit_code != 0:
            raise HarnessError(
                f"{self.case.name}: without any fault the command ended with exit code "
                f"{outcome.exit_code}:\n{outcome.stderr}"
            )
        self._clean.append(outcome)
        self.left_out.clear()
        same: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
        for call in trace.calls:
            same[call.name, call.when].append(call)
        numbers: Counter[str] = Counter()
        points: list[Point] = []
        for call in trace.calls:
            if call.mutates or call.name == EXIT:
                numbers[call.name] += 1
                points += self._points_at(call, numbers[call.name], same[call.name, call.when])
        return points

    def _points_at(self, call: Call, ordinal: int, same: Sequence[Call]) -> list[Point]:
        """Return the faults at a call. `same` are calls of that name and number in all threads."""
        path = self.case.normal(call)
        others = frozenset(self.case.normal(one) for one in same if one.mutates) - {path}
        faults: list[tuple[Fault, bool]] = []
        if same[0] is not call:
            self.left_out.append(
                f"{call.name} {ordinal} {path}: strace counts per thread, and another thread "
                f"makes its {call.name} number {call.when} first"
            )
        else:
            faults.append(("kill", False))
            if call.name != EXIT:
                faults += [(errno, lasting) for errno in ERRNOS for lasting in (False, True)]
        if call.name in SHORTENED and call.size > 1:
            faults += [("short", False), ("short", True)]
        if shim() is None and call.name in SHARED_CALLS:
            faults = [
                (fault, lasting) for fault, lasting in faults if fault != "short" and not lasting
            ]
            self.left_out.append(
                f"{call.name} {ordinal} {path}: no C compiler, so no short and no lasting faults"
            )
        return [
            Point(call.name, ordinal, call.when, path, fault, lasting, others, call.size)
            for fault, lasting in faults
        ]

    def run(self, point: Point) -> Outcome:
        """Run the command on a new folder with one fault, which must hit its call."""
        return self._traced(point)[0]

    def _run_aimed(self, point: Point) -> Outcome:
        """Run the command until the fault hits its call: files may be synced in another order."""
        for _ in range(_AIMS - 1):
            with suppress(AimError):
                return self.run(point)
        return self.run(point)

    def failures(self, points: Sequence[Point], seconds: float = math.inf) -> list[Failure]:
        """Run and judge the command without a fault and these points; return what went wrong.

        Points that do not begin within the seconds are left out. `judged` has the others.
        """
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            judged = pool.map(lambda point: self._judged_before(end, point), [CLEAN, *points])
            return [failure for failure in judged if failure]

    def _judged_before(self, end: float, point: Point) -> Failure | None:
        if point != CLEAN and time.monotonic() >= end:
            return None
        self.judged.append(point)
        return self._judged(point)

    def _judged(self, point: Point) -> Failure | None:
        try:
            # The clean run that listed the points is judged too.
            outcome = (
                self._clean.pop() if point == CLEAN and self._clean else self._run_aimed(point)
            )
        except HarnessError as error:
            return Failure(point, f"the harness failed: {error}")
        if outcome.hung and (point.fault, point.persistent) != ("EINTR", True):
            what = f"it never ended; its error output:\n{outcome.stderr[-2000:]}"
            return Failure(point, what, outcome.folder)
        try:
            self.case.judge(outcome.folder, outcome)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - state that cannot be read is a finding too
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            return Failure(point, f"{kind}{error}", outcome.folder)
        self._discard(outcome)
        return None

    def _discard(self, outcome: Outcome) -> None:
        shutil.rmtree(outcome.folder)
        outcome.folder.with_suffix(".strace").unlink()

    def _traced(self, point: Point) -> tuple[Outcome, Trace]:
        folder = self.work / f"run-{next(self._numbers):04}"
        shutil.copytree(self._template, folder, symlinks=True)
        ended = run_traced(
            self.case.command(folder),
            point,
            folder=folder,
            log=folder.with_suffix(".strace"),
            cwd=ROOT,
            environment=self.case.surroundings(),
        )
        self._check_aim(point, ended.trace, ended.stderr)
        killed = ended.hung or point.fault == "kill"
        if not killed and ended.exit_code < 0:
            # Counted as a kill of the sweep, it would need no error message.
            raise HarnessError(
                f"{point.label}: the command died of signal {-ended.exit_code}, which is not ours:"
                f"\n{ended.stderr[-2000:]}"
            )
        outcome = Outcome(
            case=self.case,
            folder=folder,
            point=point,
            exit_code=ended.exit_code,
            stdout=ended.stdout,
            stderr=ended.stderr,
            killed=killed,
            hung=ended.hung,
            calls=ended.trace.mutating,
        )
        return outcome, ended.trace

    def _check_aim(self, point: Point, trace: Trace, stderr: str) -> None:
        if point.fault == "none":
            return
        if point.fault == "short":
            same = [call for call in trace.mutating if call.name == point.call]
            hit = same[point.ordinal - 1] if len(same) >= point.ordinal else None
        else:
            aim = (point.call, point.when)
            hit = next((call for call in trace.calls if (call.name, call.when) == aim), None)
        struck = hit is not None and {
            "short": hit.size == point.size // 2,
            "kill": trace.killed and not hit.finished,
        }.get(point.fault, hit.injected)
        meant = hit is not None and self.case.normal(hit) in {point.path, *point.others}
        if not (struck and meant):
            there = "no such call" if hit is None else f"{hit.name} {self.case.normal(hit)}"
            raise AimError(
                f"{point.label}: where this call should be, there is {there}"
                f"{'' if struck else ', which the fault did not hit'}. Does the command make the "
                f"same calls on every run? Its error output:\n{stderr[-2000:]}"
            )


def torture(case: Case, work: Path, *, sampled: int = 3) -> None:
    """Sweep a case and fail with every point that went wrong."""
    require_strace()
    sweep = Sweep(case, work)
    points = sweep.points()
    wanted = os.environ.get(SWEEP_VARIABLE, "")
    seed = sample_seed()
    if wanted not in {"", "all"}:
        points = [point for point in points if point.label == wanted]
        if not points:
            pytest.skip(f"{case.name} has no point {wanted!r}")
    elif not wanted:
        points = sample(points, sampled, seed)
    seconds = torture_seconds() if wanted == "all" else None
    if seconds is not None:
        random.Random(seed).shuffle(points)
    failures = sweep.failures(points, math.inf if seconds is None else seconds)
    count_cases(len(sweep.judged))
    if left_out := sweep.left_out:
        warnings.warn(f"{case.name}: {len(left_out)} left out; {left_out[0]}", stacklevel=2)
    if failures:
        drawn = "" if wanted else f"\n\n{SEED_VARIABLE}={seed} draws the same sample"
        pytest.fail(report(case, len(sweep.judged), failures) + drawn, pytrace=False)


def report(case: Case, count: int, failures: Sequence[Failure]) -> str:
    """List every failure: the problem, the folder, and the command to run it alone."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/torture").removesuffix(" (call)")
    lines = [f"{case.name}: {len(failures)} of {count} points went wrong"]
    for failure in failures:
        lines += ["", failure.point.label]
        lines += [f"    {line}" for line in failure.what.splitlines()]
        if failure.folder is not None:
            lines.append(f"    look: {failure.folder}, and its calls in the .strace beside it")
        if failure.point != CLEAN:
            lines.append(
                f"    alone: SHARDLINE_TORTURE={shlex.quote(failure.point.label)} "
                f"python -m pytest {shlex.quote(test)}"
            )
    return "\n".join(lines)


def require_strace() -> None:
    """Skip the test if strace is missing or not permitted."""
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
