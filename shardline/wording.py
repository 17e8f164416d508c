"""Numbers as people and JSON read them."""

from __future__ import annotations

import math


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 record`, `12,345 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def counted_of(part: int, whole: int, noun: str, *, complete: bool = True) -> str:
    """`3 of 20 rows`, or if the count stopped early, `at least 3 of the first 20 rows`."""
    if complete:
        return f"{part:,} of {whole:,} {noun}s"
    return f"at least {part:,} of the first {whole:,} {noun}s"


def float32_json(value: float) -> float | str:
    """Return a float32 for JSON: the shortest number that reads back as the same float32.

    JSON has no other floats: those are "NaN", "Infinity" and "-Infinity", as protobuf writes them.
    """
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(str(np.float32(value)))
