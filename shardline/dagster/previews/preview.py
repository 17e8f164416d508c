"""Previews of a snapshot for the UI: images, label shares, rows and record sizes.

A preview is Markdown with embedded pictures. The event log stores it, so its size is bounded, and
so is its cost for any snapshot. Apart from the chart of rows, it shows the shards that the snapshot
added. Whatever cannot be drawn is replaced by a note.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from shardline.api import Snapshot, Version
from shardline.dagster.previews.pictures import (
    draw_contact_sheet,
    draw_rows_chart,
    draw_shares_chart,
    draw_sizes_chart,
)
from shardline.dagster.previews.preview_sample import (
    PreviewSample,
    read_record_sizes,
    select_shards,
    take_preview_sample,
)
from shardline.errors import ShardlineError
from shardline.log.entry import Entry
from shardline.log.model import Shard
from shardline.text import format_bytes, format_count

MAX_CHARACTERS = 150_000
_SHEET_BYTES = 64 * 1024
_OVERHEAD = 1000
_SNAPSHOTS = 60
_SHORT = 40
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~])")

Result = TypeVar("Result")


def render_preview(version: Version, snapshot: Snapshot, entry: Entry) -> str:
    """Return the preview of a snapshot, which `entry` of its log committed, as Markdown."""
    page = _PreviewPage()
    page.attempt("rows by snapshot", lambda: _draw_rows(page, version, snapshot))
    added = page.attempt("shards", lambda: _find_added_shards(snapshot, entry))
    if added is not None:
        page.attempt("record sizes", lambda: _draw_sizes(page, snapshot, added))
        sample = page.attempt("rows", lambda: _take_sample(page, snapshot, added))
        if sample is not None:
            page.attempt("label shares", lambda: _draw_shares(page, sample, added))
            page.attempt("images", lambda: _draw_sheet(page, sample, added))
    return page.text()


@dataclass(frozen=True, slots=True)
class _AddedShards:
    """The shards that a snapshot added, or all shards if it added none."""

    shards: Sequence[Shard]
    noun: str

    def format_extent(self, sampled: int) -> str:
        """Return the extent, such as `600 added rows` or `4,096 of 120,000 added rows`."""
        total = sum(shard.records for shard in self.shards)
        rows = format_count(total, self.noun)
        return f"{sampled:,} of {rows}" if sampled < total else rows


def _find_added_shards(snapshot: Snapshot, entry: Entry) -> _AddedShards:
    # Shards without a source come from earlier appends: a replacement rewrote them.
    ignored_sources = set() if entry.operation != "append" else {None}
    shards = [added.shard for added in entry.added if added.shard.source not in ignored_sources]
    if shards:
        return _AddedShards(shards, "added row")
    return _AddedShards(snapshot.shards, "row")


@dataclass(slots=True)
class _PreviewPage:
    """The parts of a preview, collected one by one."""

    sheet: str = ""
    charts: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def attempt(self, part: str, draw: Callable[[], Result]) -> Result | None:
        """Run a part of the work. A failure becomes a note in the preview."""
        try:
            return draw()
        except Exception as error:  # noqa: BLE001 - a picture is no reason to fail
            self.note(part, error)
        return None

    def note(self, part: str, error: Exception) -> None:
        """Note a part that was not drawn. Other error messages may contain values of the data."""
        if isinstance(error, ShardlineError):
            reason = error.describe()
        else:
            reason = str(error) if isinstance(error, ImportError) else type(error).__name__
        self.remarks.append(f"*Not drawn: {part}.* {_escape_markdown(reason)}")

    def room(self) -> int:
        """Return the remaining size of a picture in bytes, before base64 encoding."""
        return (MAX_CHARACTERS - len(self.text()) - _OVERHEAD) // 4 * 3

    def text(self) -> str:
        """Return the preview."""
        parts = (self.sheet, "\n".join(self.charts), *self.remarks)
        return "\n\n".join(filter(None, parts)) or "Nothing to draw."


def _draw_rows(page: _PreviewPage, version: Version, snapshot: Snapshot) -> None:

    history = version.state.snapshot_history
    last = min(snapshot.number, len(history))
    first = max(last - _SNAPSHOTS, 0)
    rows: list[int] = history.column("records")[first:last].tolist()
    rejected: list[bool] = (history.column("rejected")[first:last] > 0).tolist()
    if len(rows) < 2:
        return
    rejected_numbers = [
        str(first + number) for number, is_rejected in enumerate(rejected, 1) if is_rejected
    ]
    alt = (
        f"Bar chart: rows of snapshots {first + 1} to {last}, from {rows[0]:,} to {rows[-1]:,}"
        + (f"; rejected: {', '.join(rejected_numbers)}" if rejected_numbers else "")
    )
    page.charts.append(_render_image(draw_rows_chart(rows, rejected, last), "image/png", alt))


def _draw_sizes(page: _PreviewPage, snapshot: Snapshot, added: _AddedShards) -> None:

    shards = select_shards(snapshot, added.shards)
    if not shards:
        return
    sizes = np.concatenate([read_record_sizes(records) for records in shards])
    low, high = int(sizes.min()), int(sizes.max())
    if low == high:
        page.remarks.append(f"All {len(sizes):,} sampled records have {format_count(low, 'byte')}.")
        return
    middle = format_bytes(float(np.median(sizes)))
    note = f"median {middle}, in {added.format_extent(len(sizes))}"
    alt = f"Histogram: record sizes from {format_bytes(low)} to {format_bytes(high)}, {note}"
    page.charts.append(_render_image(draw_sizes_chart(sizes, note), "image/png", alt))


def _take_sample(
    page: _PreviewPage, snapshot: Snapshot, added: _AddedShards
) -> PreviewSample | None:

    sample = take_preview_sample(snapshot, added.shards)
    for error in sample.failures if sample is not None else ():
        page.note("some rows", error)
    return sample


def _draw_shares(page: _PreviewPage, sample: PreviewSample, added: _AddedShards) -> None:

    if sample.label is None or not sample.values:
        return
    name, shares = _shorten(sample.label.name), sample.count_shares()
    scope = added.format_extent(len(sample.values))
    if len(shares) == 1:
        ((only, _),) = shares
        page.remarks.append(_escape_markdown(f"In {scope}, {name} is always {_shorten(only)}."))
        return
    parts = ", ".join(f"{_shorten(value)} {share:.1%}" for value, share in shares)
    alt = f"Bar chart: shares of {name} in {scope}: {parts}"
    chart = draw_shares_chart(name, shares, f"in {scope}")
    page.charts.append(_render_image(chart, "image/png", alt))


def _draw_sheet(page: _PreviewPage, sample: PreviewSample, added: _AddedShards) -> None:

    images = sample.select_images()
    if sample.image is None or not images:
        return
    name = _shorten(sample.image.name)
    sheet = draw_contact_sheet(images, name, added.format_extent, min(_SHEET_BYTES, page.room()))
    alt = f"Contact sheet: {format_count(sheet.images, 'image')} of {name}"
    page.sheet = _render_image(sheet.data, sheet.mime, alt)


def _render_image(data: bytes, mime: str, alt: str) -> str:
    return f"![{_escape_markdown(alt)}](data:{mime};base64,{base64.b64encode(data).decode()})"


def _shorten(text: str) -> str:
    """Return the beginning of a text from the data, which can have any length."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _escape_markdown(text: str) -> str:
    """Return a text without Markdown syntax."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return _SPECIAL.sub(r"\\\1", printable)
