"""Small pictures of a snapshot for the UI: some of its images, label shares, rows, record sizes.

They are Markdown with the pictures inside, which the event log keeps, so their size is bounded; and
so is the cost, whatever the size of the snapshot. All but that of the rows look at the shards that
the snapshot brought. What cannot be drawn is a note in its place, and never an error.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from shardline.errors import ShardlineError
from shardline.text import counted, human_bytes

if TYPE_CHECKING:
    from shardline import Shard, Snapshot, Version
    from shardline.dagster.previews.preview_sample import Look
    from shardline.log.entry import Entry

MOST_CHARACTERS = 150_000
_SHEET_BYTES = 64 * 1024
_OVERHEAD = 1000
_SNAPSHOTS = 60
_SHORT = 40
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~])")

Result = TypeVar("Result")


def picture(version: "Version", snapshot: "Snapshot", entry: "Entry") -> str:
    """What is worth looking at of a snapshot, which `entry` of its log made, as Markdown."""
    page = _Page()
    page.attempt("rows of the snapshots", lambda: _rows(page, version, snapshot))
    brought = page.attempt("shards", lambda: _brought(snapshot, entry))
    if brought is not None:
        page.attempt("record sizes", lambda: _sizes(page, snapshot, brought))
        look = page.attempt("rows", lambda: _look(page, snapshot, brought))
        if look is not None:
            page.attempt("label shares", lambda: _shares(page, look, brought))
            page.attempt("images", lambda: _sheet(page, look, brought))
    return page.text()


@dataclass(frozen=True, slots=True)
class _Brought:
    """The shards that a snapshot brought, or all that it has if it brought none."""

    shards: Sequence["Shard"]
    noun: str

    def shown(self, looked: int) -> str:
        """`600 added rows`, `4,096 of 120,000 added rows`: how many of the rows were looked at."""
        total = sum(shard.records for shard in self.shards)
        rows = counted(total, self.noun)
        return f"{looked:,} of {rows}" if looked < total else rows


def _brought(snapshot: "Snapshot", entry: "Entry") -> _Brought:
    # What a replacement left of other shards brought nothing.
    left = set() if entry.operation != "append" else {None}
    brought = [one.shard for one in entry.added if one.shard.source not in left]
    if brought:
        return _Brought(brought, "added row")
    return _Brought(snapshot.shards, "row")


@dataclass(slots=True)
class _Page:
    """What has been made so far."""

    sheet: str = ""
    charts: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def attempt(self, what: str, make: Callable[[], Result]) -> Result | None:
        """Do a part of the work; if that fails, say so on the page."""
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - a picture is no reason to fail
            self.note(what, error)
        return None

    def note(self, what: str, error: Exception) -> None:
        """Say what could not be drawn. Only of some errors is it known that they hold no data."""
        if isinstance(error, ShardlineError):
            why = error.describe()
        else:
            why = str(error) if isinstance(error, ImportError) else type(error).__name__
        self.remarks.append(f"*Not drawn: {what}.* {_escaped(why)}")

    def room(self) -> int:
        """For how many bytes of a picture there is room on the page, which base64 makes longer."""
        return (MOST_CHARACTERS - len(self.text()) - _OVERHEAD) // 4 * 3

    def text(self) -> str:
        """All of it."""
        parts = (self.sheet, "\n".join(self.charts), *self.remarks)
        return "\n\n".join(filter(None, parts)) or "Nothing to draw."


def _rows(page: _Page, version: "Version", snapshot: "Snapshot") -> None:
    from shardline.dagster.previews.charts import rows_chart  # noqa: PLC0415 - it loads NumPy

    timeline = version.state.timeline
    last = min(snapshot.number, len(timeline))
    first = max(last - _SNAPSHOTS, 0)
    rows: list[int] = timeline.column("records")[first:last].tolist()
    rejected: list[bool] = (timeline.column("rejected")[first:last] > 0).tolist()
    if len(rows) < 2:
        return
    bad = [str(first + place) for place, is_bad in enumerate(rejected, 1) if is_bad]
    alt = (
        f"Bar chart: rows of snapshots {first + 1} to {last}, from {rows[0]:,} to {rows[-1]:,}"
        + (f"; rejected: {', '.join(bad)}" if bad else "")
    )
    page.charts.append(_image(rows_chart(rows, rejected, last), "image/png", alt))


def _sizes(page: _Page, snapshot: "Snapshot", brought: _Brought) -> None:
    import numpy as np  # noqa: PLC0415

    from shardline.dagster.previews.charts import sizes_chart  # noqa: PLC0415
    from shardline.dagster.previews.preview_sample import record_sizes, some_shards  # noqa: PLC0415 - it loads Arrow

    shards = some_shards(snapshot, brought.shards)
    if not shards:
        return
    sizes = np.concatenate([record_sizes(records) for records in shards])
    low, high = int(sizes.min()), int(sizes.max())
    if low == high:
        page.remarks.append(f"All {len(sizes):,} records looked at have {counted(low, 'byte')}.")
        return
    middle = human_bytes(float(np.median(sizes)))
    note = f"median {middle}, in {brought.shown(len(sizes))}"
    alt = f"Histogram: record sizes from {human_bytes(low)} to {human_bytes(high)}, {note}"
    page.charts.append(_image(sizes_chart(sizes, note), "image/png", alt))


def _look(page: _Page, snapshot: "Snapshot", brought: _Brought) -> "Look | None":
    from shardline.dagster.previews.preview_sample import look_at  # noqa: PLC0415 - it loads Arrow

    look = look_at(snapshot, brought.shards)
    for error in look.failures if look is not None else ():
        page.note("some rows", error)
    return look


def _shares(page: _Page, look: "Look", brought: _Brought) -> None:
    from shardline.dagster.previews.charts import shares_chart  # noqa: PLC0415

    if look.label is None or not look.values:
        return
    name, shares = _short(look.label.name), look.shares()
    scope = brought.shown(len(look.values))
    if len(shares) == 1:
        ((only, _),) = shares
        page.remarks.append(_escaped(f"In {scope}, {name} is always {_short(only)}."))
        return
    told = ", ".join(f"{_short(value)} {share:.1%}" for value, share in shares)
    alt = f"Bar chart: shares of {name} in {scope}: {told}"
    chart = shares_chart(name, shares, f"in {scope}")
    page.charts.append(_image(chart, "image/png", alt))


def _sheet(page: _Page, look: "Look", brought: _Brought) -> None:
    from shardline.dagster.previews.contact_sheet import contact_sheet  # noqa: PLC0415

    images = look.some_images()
    if look.image is None or not images:
        return
    name = _short(look.image.name)
    made = contact_sheet(images, name, brought.shown, min(_SHEET_BYTES, page.room()))
    alt = f"Contact sheet: {counted(made.images, 'image')} of {name}"
    page.sheet = _image(made.data, made.mime, alt)


def _image(data: bytes, mime: str, alt: str) -> str:
    return f"![{_escaped(alt)}](data:{mime};base64,{base64.b64encode(data).decode()})"


def _short(text: str) -> str:
    """The beginning of a text that comes from the data, and can have any length."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _escaped(text: str) -> str:
    """A text in which Markdown sees nothing but text."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return _SPECIAL.sub(r"\\\1", printable)
