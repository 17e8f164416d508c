"""Samples of sweeps: `make sample` runs some cases of each sweep, and other cases every day.

`make torture` sets SHARDLINE_TORTURE=all, which runs every case; with SHARDLINE_TORTURE_MINUTES, as
many cases as fit into that time, in random order. A test with many cases then gets shares of the
time, so that every sweep has its turn. SHARDLINE_SAMPLE_SEED sets the seed, to run the
sample of another day again; the header of a test run shows the seed.
"""

import os
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

SEED_VARIABLE = "SHARDLINE_SAMPLE_SEED"
SWEEP_VARIABLE = "SHARDLINE_TORTURE"
MINUTES_VARIABLE = "SHARDLINE_TORTURE_MINUTES"
START_VARIABLE = "SHARDLINE_TORTURE_START"
WORKERS_VARIABLE = "PYTEST_XDIST_WORKER_COUNT"
SHARES = 60
"""Shares of the time budget: one for each sweep of system calls, ten for the stress test."""

Case = TypeVar("Case")


def sample_seed() -> str:
    """Return the seed that is set, or else today's date in UTC."""
    return os.environ.get(SEED_VARIABLE) or datetime.now(UTC).date().isoformat()


def runs_whole_sweeps() -> bool:
    """Return True in `make torture`."""
    return os.environ.get(SWEEP_VARIABLE) == "all"


def torture_minutes() -> float | None:
    """Return the time budget of `make torture`, None if there is none."""
    text = os.environ.get(MINUTES_VARIABLE)
    return float(text) if text else None


def torture_end() -> float | None:
    """Return when the time budget is used up, in seconds since the epoch, None without a budget.

    The first call sets the start, and the workers of pytest inherit it.
    """
    minutes = torture_minutes()
    if minutes is None:
        return None
    return float(os.environ.setdefault(START_VARIABLE, str(time.time()))) + 60 * minutes


def torture_seconds(shares: int = 1) -> float | None:
    """Return how long a test with many cases may run them, None if it may run all."""
    minutes, end = torture_minutes(), torture_end()
    if minutes is None or end is None:
        return None
    workers = int(os.environ.get(WORKERS_VARIABLE, "1"))
    return max(0.0, min(end - time.time(), 60 * minutes * workers * shares / SHARES))


_cases = 0


def count_cases(count: int) -> None:
    """Note how many cases the running test ran; the summary of `make torture` shows the sum."""
    global _cases  # noqa: PLW0603 - one test runs at a time
    _cases += count


def take_cases() -> int:
    """Return the cases noted since the last call."""
    global _cases
    count, _cases = _cases, 0
    return count


def drawn(count: int) -> int:
    """Return how many examples a property test draws: a quarter, or all in `make torture`."""
    return count if runs_whole_sweeps() else count // 4


def sweep_variable_problem() -> str | None:
    """Return what is wrong with SHARDLINE_TORTURE: with a value like `1`, no sweep would run."""
    wanted = os.environ.get(SWEEP_VARIABLE, "")
    if wanted in {"", "all", "no fault"} or ": " in wanted:
        return None
    return f"{SWEEP_VARIABLE}={wanted}: expected `all` or the label of a point, `CALL PATH: FAULT`"


def sampled(cases: Sequence[Case], count: int, name: str) -> list[Case]:
    """Return a sample of a sweep's cases in their order, or all cases in `make torture`.

    `name` keeps sweeps of equal length from drawing the same positions.
    """
    if len(cases) <= count or runs_whole_sweeps():
        return list(cases)
    draw = random.Random(f"{sample_seed()} {name}")
    return [cases[position] for position in sorted(draw.sample(range(len(cases)), count))]
