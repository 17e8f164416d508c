"""The points of a sweep: one fault at one system call."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from tests.torture.calls import EXIT

if TYPE_CHECKING:
    from collections.abc import Sequence

Errno = Literal["ENOSPC", "EIO", "EINTR"]
Fault = Literal["none", "kill", "ENOSPC", "EIO", "EINTR", "short"]
ERRNOS: tuple[Errno, ...] = ("ENOSPC", "EIO", "EINTR")


@dataclass(frozen=True)
class Point:
    """One fault at one call.

    `ordinal` numbers the calls of that name in the folder and is for people; `when` numbers those
    of its thread, wherever they go, as strace counts. `path` is relative to the folder, with `*`
    for random parts. `others` are the paths of the calls with the same `when` in other threads,
    of which strace hits the first to come. `size` is how much a write was asked to write.
    """

    call: str
    ordinal: int
    when: int
    path: str
    fault: Fault
    persistent: bool = False
    others: frozenset[str] = frozenset()
    size: int = 0

    @property
    def label(self) -> str:
        """Return the point in one line, the same in every run."""
        if self.fault == "none":
            return "no fault"
        where = f"{self.call} {self.ordinal} {self.path}".strip()
        often = "" if self.fault == "kill" else " from then on" if self.persistent else " once"
        return f"{where}: {self.fault}{often}"

    @property
    def after_the_last_call(self) -> bool:
        """Return True if the process is killed as it exits, after all work."""
        return self.call == EXIT


CLEAN = Point("", 0, 0, "", "none")


def sample(points: Sequence[Point], count: int, seed: str = "") -> list[Point]:
    """Choose points, well spread: every call and every fault first, then every pair.

    The same points and seed give the same choice, in the order of the points.
    """
    rest = sorted(points, key=lambda point: sha256(f"{seed} {point.label}".encode()).digest())
    calls: Counter[str] = Counter()
    faults: Counter[tuple[Fault, bool]] = Counter()
    pairs: Counter[tuple[str, Fault]] = Counter()
    paths: Counter[str] = Counter()
    chosen: set[Point] = set()

    def wear(point: Point) -> tuple[bool, int, int]:
        """Return how much of this point is covered by others. The least covered is next."""
        call, fault = calls[point.call], faults[point.fault, point.persistent]
        pair = pairs[point.call, point.fault]
        return (call > 0 and fault > 0, pair, call + fault + paths[point.path])

    while rest and len(chosen) < count:
        best = min(rest, key=wear)
        rest.remove(best)
        chosen.add(best)
        calls[best.call] += 1
        faults[best.fault, best.persistent] += 1
        pairs[best.call, best.fault] += 1
        paths[best.path] += 1
    return [point for point in points if point in chosen]
