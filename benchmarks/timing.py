"""Timing of the sides of a line in turns. Each figure is the best of its runs."""

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
    """Implementation of some work. `run` does it once and returns the number of records.

    `scratch` is its output file, deleted after each run, outside the timing. `prepare` is called
    before each run, also outside the timing.
    """

    what: str
    run: Callable[[], int]
    scratch: Path | None = None
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Best result of a side."""

    what: str
    records_per_second: float


def best_rates(
    sides: Sequence[Side], rounds: int, turn_seconds: float = TURN_SECONDS
) -> dict[Side, float]:
    """Return the best records per second of each side. Turns make noise affect all alike.

    A fast side runs repeatedly in its turn, until `turn_seconds` have passed. The first turn warms
    up and does not count.
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
    """Return the fastest of the sides that do the same work, None without sides."""
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
