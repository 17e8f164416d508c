"""Encoding of columns into validated frames, with a reason for each row that does not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline import kernel
from shardline.hints import Hint, Option
from shardline.kernel.columns import from_arrow
from shardline.kernel.types import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from shardline.schema.validation import find_violations
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.kernel.types import Buffer, ColumnBuffers, IntArray
    from shardline.schema.conversion import ConvertedColumn
    from shardline.schema.schema import Feature, Schema

Reasons: TypeAlias = dict[int, tuple[str | None, str]]
"""Feature and detail of each bad row, by position in the chunk."""
KEPT_BYTES = 48 * 1024
"""Bytes kept of an oversized row, and of data lost to corruption."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a chunk: their numbers in the source, with labels and content by position.

    `format` and `columns` describe the content of a row.
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
    """Encode columns as framed records. `reasons` has the rows that are already bad."""
    for feature, fitted in columns:
        for row, reason in fitted.bad.items():
            reasons.setdefault(row, (feature.name, reason))
    buffers = [from_arrow(feature.name, fitted.array) for feature, fitted in columns]
    return encode_buffers(schema, buffers, rows, reasons, max_record_bytes)


def encode_buffers(
    schema: Schema,
    buffers: list[ColumnBuffers],
    rows: Rows,
    reasons: Reasons,
    max_record_bytes: int,
) -> EncodedRows:
    """Encode the buffers of columns as framed records, as `build_frames` does."""
    if reasons:
        # A bad row is encoded as an empty record, which is then cut out.
        bad_rows = list(reasons)
        for number, column in enumerate(buffers):
            valid = column.valid.copy()
            valid[bad_rows] = 0
            buffers[number] = replace(column, valid=valid)
    encoded = kernel.encode(buffers, len(rows.numbers))
    frames = (encoded.data, encoded.starts, encoded.lengths)
    return validate_frames(schema, frames, rows, reasons, max_record_bytes)


def validate_frames(
    schema: Schema,
    frames: tuple[Buffer, IntArray, IntArray],
    rows: Rows,
    reasons: Reasons,
    max_record_bytes: int,
) -> EncodedRows:
    """Return the frames whose records fit the schema. The others are quarantined.

    `found` has the bytes of the frames, and the starts and lengths of their payloads.
    """
    data, starts, lengths = frames
    for row in np.flatnonzero(lengths > max_record_bytes).tolist():
        reason = f"takes {lengths[row]} bytes as a record, over the limit of {max_record_bytes}"
        reasons.setdefault(row, (None, reason))
    good_rows = np.delete(np.arange(len(starts)), list(reasons))
    block = RecordBlock(memoryview(data), 0, 0, starts, lengths)
    if reasons:
        block = replace(block, starts=starts[good_rows], lengths=lengths[good_rows])
    for misfit in find_violations(schema, block):
        reasons.setdefault(int(good_rows[misfit.record]), (misfit.feature, misfit.detail))
    if not reasons:
        return EncodedRows(
            data if isinstance(data, bytes) else memoryview(data), starts, lengths, rows.numbers
        )
    refused = []
    for row in sorted(reasons):
        content, is_too_large = rows.content(row), bool(lengths[row] > max_record_bytes)
        if is_too_large:
            content = content[:KEPT_BYTES]
        refused.append(
            QuarantinedRow(
                int(rows.numbers[row]),
                rows.where(row),
                *reasons[row],
                content,
                is_too_large=is_too_large,
                format=rows.format,
                columns=rows.columns,
            )
        )
    good_rows = np.delete(np.arange(len(starts)), list(reasons))
    sizes = lengths[good_rows]
    return EncodedRows(
        _join_frames(memoryview(data), starts, lengths, good_rows),
        np.cumsum(sizes + FRAME_BYTES) - sizes - FOOTER_BYTES,
        sizes,
        rows.numbers[good_rows],
        tuple(refused),
    )


def _join_frames(data: memoryview, starts: IntArray, lengths: IntArray, indices: IntArray) -> bytes:
    """Return the frames at these positions concatenated, with neighbors in one piece."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    runs = np.split(indices, breaks) if len(indices) else []
    ends = starts + lengths + FOOTER_BYTES
    return b"".join(data[starts[run[0]] - HEADER_BYTES : ends[run[-1]]] for run in runs)


RowFormat: TypeAlias = Literal["csv", "jsonl", "tfrecord", "json"]
"""Format of the content of a quarantined row."""


TOO_LARGE_HINT = Hint.of("if the row is valid, raise ", Option("max_record"))


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """Row that cannot become a record: its position in the source, and the reason.

    `row` counts from 0, and `where` is its label in the source ("line 18"). `detail` never holds a
    value. `content` is the row itself, for the quarantine: verbatim if it is text or a payload,
    otherwise as JSON. `damage` marks a corrupt span of the source instead of a row that does not
    fit. `format` describes the content: a row of `csv`, a line of `jsonl`, the payload of a
    `tfrecord`, or a row that Shardline wrote as `json`. `columns` is the header of the `csv`.
    `offset` is where the row begins, if known. `is_too_large` marks a row over the record limit.
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
    """Build the quarantined row for a row of text that is longer than the limit."""
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
    """Encoded records: whole frames that follow each other in `data`.

    `starts` and `lengths` are those of the payloads. `rows` has the source row of each record.
    `refused` has the quarantined rows, in order.
    """

    data: bytes | memoryview
    starts: IntArray
    lengths: IntArray
    rows: IntArray
    refused: tuple[QuarantinedRow, ...] = ()

    @classmethod
    def quarantine(cls, row: QuarantinedRow) -> EncodedRows:
        """Return no records, because the only row is quarantined."""
        none = np.zeros(0, np.int64)
        return cls(b"", none, none, none, (row,))
