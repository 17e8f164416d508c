"""Samples of sweeps: `make sample` runs some cases of each sweep, and other cases every day.

`make torture` sets SHARDLINE_TORTURE=all, which runs every case; with SHARDLINE_TORTURE_MINUTES, as
many cases as fit into that time, in random order. SHARDLINE_SAMPLE_SEED sets the seed, to run the
sample of another day again; the header of a test run shows the seed.
"""

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

SEED_VARIABLE = "SHARDLINE_SAMPLE_SEED"
SWEEP_VARIABLE = "SHARDLINE_TORTURE"
MINUTES_VARIABLE = "SHARDLINE_TORTURE_MINUTES"

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
