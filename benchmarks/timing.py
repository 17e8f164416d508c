"""Time the sides of a line against each other: taking turns, each figure the best of its runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

TURN_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Side:
    """One way to do a piece of work. `run` does it once and gives how many records that were.

    `scratch` is the file it makes, if any; it is removed after each run, outside the timing.
    `prepare` is called before each run, outside the timing too.
    """

    what: str
    run: Callable[[], int]
    scratch: Path | None = None
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """The best that one side reached."""

    what: str
    records_per_second: float


def best_rates(
    sides: Sequence[Side], rounds: int, turn_seconds: float = TURN_SECONDS
) -> dict[Side, float]:
    """The best records per second of each side, which take turns so that noise hits them alike.

    A side that is quick runs more than once in its turn, until `turn_seconds` have passed. What
    comes first warms up and is not counted.
    """
    best = dict.fromkeys(sides, 0.0)
    for side in sides:
        _timed(side)
    for _ in range(rounds):
        for side in sides:
            spent = 0.0
            while spent == 0 or spent < turn_seconds:
                records, seconds = _timed(side)
                best[side] = max(best[side], records / seconds)
                spent += seconds
    return best


def fastest(sides: Iterable[Side], rates: dict[Side, float]) -> Figure | None:
    """The fastest of the sides that do the same work; None if there are none."""
    figures = [Figure(side.what, rates[side]) for side in sides]
    return max(figures, key=lambda figure: figure.records_per_second, default=None)


def _timed(side: Side) -> tuple[int, float]:
    if side.prepare is not None:
        side.prepare()
    begin = time.perf_counter()
    records = side.run()
    seconds = time.perf_counter() - begin
    if side.scratch is not None:
        side.scratch.unlink()
    return records, seconds
