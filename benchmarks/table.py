"""Measured lines as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lines import Row
    from benchmarks.timing import Figure

_MARKS = {True: "[green]met[/]", False: "[red]missed[/]", None: "-"}


def as_table(rows: Sequence[Row], title: str) -> Table:
    """Return the table, with the work of each side below its figures."""
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("work")
    for side in ("TensorFlow", "limit", "us"):
        table.add_column(side)
    for ratio in ("us / TF", "us / limit"):
        table.add_column(ratio, justify="right", no_wrap=True)
    table.add_column("target")
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.name}\n[dim]{row.remark}[/]" if row.remark else row.name,
            _figure(row.tensorflow, row),
            _figure(row.limit, row),
            _figure(row.ours, row),
            _ratio(row.over_tensorflow),
            _ratio(row.of_limit),
            _target(row),
            _MARKS[row.met],
        )
    return table


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the lines as JSON values."""
    return [
        {
            **asdict(row),
            "over_tensorflow": row.over_tensorflow,
            "of_limit": row.of_limit,
            "met": row.met,
        }
        for row in rows
    ]


def _figure(figure: Figure | None, row: Row) -> str:
    if figure is None:
        return "-"
    records = figure.records_per_second
    told = [f"{_short(records)} {row.unit}/s", f"[dim]{figure.what}[/]"]
    if row.record_bytes:
        size = records * row.record_bytes / 1e6
        told.insert(1, f"{size / 1000:.2f} GB/s" if size >= 1000 else f"{size:.1f} MB/s")
    return "\n".join(told)


def _short(number: float) -> str:
    for scale, letter in ((1e6, " M"), (1e3, " k")):
        if number >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def _target(row: Row) -> str:
    target = row.target
    parts = [
        f"{wanted:.2g} {what}"
        for wanted, what in ((target.over_tensorflow, "times TF"), (target.of_limit, "of limit"))
        if wanted is not None
    ]
    return "\n".join(parts) or "-"
