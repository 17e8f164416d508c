"""Columns into whole, checked frames, and rows that do not fit into reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline import kernel
from shardline.hints import Hint, Option
from shardline.kernel.columns import from_arrow
from shardline.kernel.types import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from shardline.schema.validation import violations
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.kernel.types import Buffer, ColumnBuffers, IntArray
    from shardline.schema.conversion import ConvertedColumn
    from shardline.schema.schema import Feature, Schema

Reasons: TypeAlias = dict[int, tuple[str | None, str]]
"""Why rows are refused, by their place in the chunk: feature and detail."""
KEPT_BYTES = 48 * 1024
"""How much is kept of what is refused for its size, and of bytes lost to damage."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a chunk: their numbers in the source, and how to tell of one by its place.

    `format` and `columns` say what the content of a row is.
    """

    numbers: IntArray
    where: Callable[[int], str]
    content: Callable[[int], bytes]
    format: RowFormat | None = None
    columns: tuple[str, ...] = ()


def build_frames(
    schema: Schema,
    columns: Sequence[tuple[Feature, ConvertedColumn]],
    rows: Rows,
    reasons: Reasons,
    max_record_bytes: int,
) -> EncodedRows:
    """Write columns as framed records. `reasons` tells of rows that are refused already."""
    for feature, fitted in columns:
        for at, why in fitted.bad.items():
            reasons.setdefault(at, (feature.name, why))
    buffers = [from_arrow(feature.name, fitted.array) for feature, fitted in columns]
    return encode_buffers(schema, buffers, rows, reasons, max_record_bytes)


def encode_buffers(
    schema: Schema,
    buffers: list[ColumnBuffers],
    rows: Rows,
    reasons: Reasons,
    max_record_bytes: int,
) -> EncodedRows:
    """Write the buffers of columns as framed records, as `encoded` does."""
    if reasons:
        # A refused row is written as a record with nothing in it, which is then cut out.
        places = list(reasons)
        for number, column in enumerate(buffers):
            valid = column.valid.copy()
            valid[places] = 0
            buffers[number] = replace(column, valid=valid)
    made = kernel.encode(buffers, len(rows.numbers))
    found = (made.data, made.starts, made.lengths)
    return validate_frames(schema, found, rows, reasons, max_record_bytes)


def validate_frames(
    schema: Schema,
    found: tuple[Buffer, IntArray, IntArray],
    rows: Rows,
    reasons: Reasons,
    max_record_bytes: int,
) -> EncodedRows:
    """Those of the found frames whose records fit the schema; the others are cut out and told.

    `found` is their bytes, and the starts and lengths of their payloads.
    """
    data, starts, lengths = found
    for at in np.flatnonzero(lengths > max_record_bytes).tolist():
        why = f"takes {lengths[at]} bytes as a record, over the limit of {max_record_bytes}"
        reasons.setdefault(at, (None, why))
    places = np.delete(np.arange(len(starts)), list(reasons))
    block = RecordBlock(memoryview(data), 0, 0, starts, lengths)
    if reasons:
        block = replace(block, starts=starts[places], lengths=lengths[places])
    for misfit in violations(schema, block):
        reasons.setdefault(int(places[misfit.record]), (misfit.feature, misfit.detail))
    if not reasons:
        return EncodedRows(
            data if isinstance(data, bytes) else memoryview(data), starts, lengths, rows.numbers
        )
    refused = []
    for at in sorted(reasons):
        content, is_too_large = rows.content(at), bool(lengths[at] > max_record_bytes)
        if is_too_large:
            content = content[:KEPT_BYTES]
        refused.append(
            QuarantinedRow(
                int(rows.numbers[at]),
                rows.where(at),
                *reasons[at],
                content,
                is_too_large=is_too_large,
                format=rows.format,
                columns=rows.columns,
            )
        )
    places = np.delete(np.arange(len(starts)), list(reasons))
    sizes = lengths[places]
    return EncodedRows(
        _joined(memoryview(data), starts, lengths, places),
        np.cumsum(sizes + FRAME_BYTES) - sizes - FOOTER_BYTES,
        sizes,
        rows.numbers[places],
        tuple(refused),
    )


def _joined(data: memoryview, starts: IntArray, lengths: IntArray, places: IntArray) -> bytes:
    """The frames at these places, behind each other: those that are neighbours in one piece."""
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    runs = np.split(places, breaks) if len(places) else []
    ends = starts + lengths + FOOTER_BYTES
    return b"".join(data[starts[run[0]] - HEADER_BYTES : ends[run[-1]]] for run in runs)


RowFormat: TypeAlias = Literal["csv", "jsonl", "tfrecord", "json"]
"""What the content of a refused row is."""


TOO_LARGE_HINT = Hint.of("if the row is valid, raise ", Option("max_record"))


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A row that cannot become a record: where it stands in its source, and why.

    `row` counts from 0, `where` is that in the words of the source ("line 18"). `detail` never
    holds a value; `content` is the row itself, for the quarantine: as it stands in the source
    where that is text or a payload, else as JSON. `damage` says that it is no row that does not
    fit, but a damaged spot of the source. `format` says what the content is: a row of `csv`, whose
    header has these `columns`, a line of `jsonl`, the payload of a `tfrecord`, or a row that we
    wrote as `json`. `offset` is where the row begins, if that is known, and `is_too_large` says
    that the row is over the limit of a record.
    """

    row: int
    where: str
    feature: str | None
    detail: str
    content: bytes = b""
    damage: bool = False
    format: RowFormat | None = None
    columns: tuple[str, ...] = ()
    offset: int | None = None
    is_too_large: bool = False

    def __str__(self) -> str:
        named = "" if self.feature is None else f", feature {self.feature!r}"
        return f"{self.where}{named}: {self.detail}"


def quarantine_long_row(
    row: int,
    where: str,
    offset: int,
    limit: int,
    content: bytes,
    *,
    format: RowFormat,  # noqa: A002 - as the field is called
    columns: tuple[str, ...] = (),
) -> QuarantinedRow:
    """Return the refusal of a row of text that is longer than the limit."""
    detail = f"row too long (offset {offset}, limit {limit} bytes)"
    return QuarantinedRow(
        row,
        where,
        None,
        detail,
        content,
        format=format,
        columns=columns,
        offset=offset,
        is_too_large=True,
    )


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Records ready to be written: whole frames that follow each other in `data`.

    `starts` and `lengths` are those of the payloads, `rows` says from which row of the source each
    record came. `refused` are the rows that gave none, in order.
    """

    data: bytes | memoryview
    starts: IntArray
    lengths: IntArray
    rows: IntArray
    refused: tuple[QuarantinedRow, ...] = ()
