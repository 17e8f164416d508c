"""Text forms of numbers, times and foreign text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta


def format_count(number: int, noun: str, plural: str = "") -> str:
    """`1 record`, `12,345 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_count_of(part: int, whole: int, noun: str, *, complete: bool = True) -> str:
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


def format_bytes(size: float) -> str:
    """`512 bytes`, `1.5 MB`, in powers of 1024."""
    if size < 1024:
        return f"{size:.0f} bytes"
    for unit in ("KB", "MB", "GB", "TB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PB"


def escape_text(text: str) -> str:
    """Escape control characters of a foreign text."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def escape_lines(text: str) -> str:
    """Escape control characters of a foreign text, line by line."""
    return "\n".join(map(escape_text, text.split("\n")))


def format_rate(records: int, size: int, seconds: float, noun: str = "records") -> str:
    """`1.25 s, 12,345 records/s, 1.5 MB/s`."""
    per = max(seconds, 1e-9)
    return f"{seconds:.2f} s, {records / per:,.0f} {noun}/s, {format_bytes(size / per)}/s"


def format_signed_bytes(size: int) -> str:
    """`+1.5 MB`, `-512 bytes`: a difference."""
    return f"{'-' if size < 0 else '+'}{format_bytes(abs(size))}"


def format_list(items: Iterable[str], last: str = "and") -> str:
    """`one`, `one and two`, `one, two and three`."""
    *first, end = items
    return f"{', '.join(first)} {last} {end}" if first else end


def format_time(time: datetime) -> str:
    """`2026-11-16 04:00`, in UTC."""
    return f"{time:%Y-%m-%d %H:%M}"


def format_age(span: timedelta) -> str:
    """`12 seconds`, `3 hours`, `8 days`."""
    seconds = max(int(span.total_seconds()), 0)
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return format_count(seconds // size, unit)
    return format_count(seconds, "second")


def format_reused_shards(recovered: int, reused: int) -> str:
    """`, 2 recovered from an earlier run, 5 reused`: the suffix of a count of computed shards."""
    suffix = f", {recovered:,} recovered from an earlier run" if recovered else ""
    return suffix + (f", {reused:,} reused" if reused else "")
