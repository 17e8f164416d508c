"""Blocks of whole rows from plain or compressed text files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import SourceError
from shardline.hints import Hint
from shardline.kernel.types import DEFAULT_MAX_RECORD_BYTES
from shardline.schema.encoding import KEPT_BYTES
from shardline.sources.source import CHUNK_BYTES
from shardline.tfrecord.compression import (
    GZIP_MAGIC,
    Compression,
    CompressionError,
    PlainStream,
    open_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.sources.source_identity import FileIdentity
    from shardline.tfrecord.compression import Stream
    from shardline.tfrecord.reader import Limits

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STEPS = 16
_TEXT_PER_RECORD = 8
"""Maximum ratio of row text to record size: numbers take more space as text."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole rows; with `too_long`, the start of a single row whose rest was dropped."""

    data: bytes
    position: int
    too_long: bool = False
    offset: int = 0
    """Where the data begins in the text of the file."""


def get_max_text_row_bytes(limits: Limits) -> int:
    """Return the row limit in bytes; small records may exceed the record limit as text."""
    most = max(limits.max_record_bytes, DEFAULT_MAX_RECORD_BYTES)
    return min(_TEXT_PER_RECORD * limits.max_record_bytes, most)


def iter_text_blocks(
    origin: FileIdentity, limits: Limits, rows_end: Callable[[bytes], int]
) -> Iterator[TextBlock]:
    """Yield the text of a file in blocks; `rows_end` returns the end of the last whole row."""
    file = origin.open()
    try:
        packed = file.pread(len(GZIP_MAGIC), 0) == GZIP_MAGIC
        kind = Compression.GZIP if packed else Compression.NONE
        _, stream = open_stream(file, kind, max_decompressed_bytes=limits.max_decompressed_bytes)
        yield from _iter_blocks(stream, get_max_text_row_bytes(limits), rows_end)
    except CompressionError as error:
        raise SourceError(
            f"{origin.label}: {error.detail} (offset {error.offset})",
            code="corrupt-file",
            hint=Hint.of("get the file again from its origin"),
            path=origin.path,
            offset=error.offset,
        ) from None
    finally:
        file.close()


def _iter_blocks(
    stream: Stream, longest: int, rows_end: Callable[[bytes], int]
) -> Iterator[TextBlock]:
    first, is_end = _read_bytes(stream, CHUNK_BYTES)
    left = first.removeprefix(BYTE_ORDER_MARK)
    offset = len(first) - len(left)
    while True:
        end = rows_end(left)
        if is_end and len(left) - end <= longest:
            # An unterminated last row joins the rows before it: a separate block would cost as much
            # as a full block.
            end = len(left)
        if end:
            yield TextBlock(left[:end], stream.position, offset=offset)
            left, offset = left[end:], offset + end
        elif len(left) > longest:
            yield TextBlock(left[:KEPT_BYTES], stream.position, too_long=True, offset=offset)
            left, offset = _skip_line(stream, left, offset)
        # An already large row is read in larger steps, but never far beyond the limit.
        more, is_end = _read_bytes(stream, max(CHUNK_BYTES, len(left) // _STEPS))
        if not more:
            if left:
                is_long = len(left) > longest
                data = left[:KEPT_BYTES] if is_long else left
                yield TextBlock(data, stream.position, too_long=is_long, offset=offset)
            return
        left += more


def _skip_line(stream: Stream, left: bytes, offset: int) -> tuple[bytes, int]:
    """Return what follows the current line, and the offset of that text."""
    while left and b"\n" not in left:
        offset += len(left)
        left, _ = _read_bytes(stream, CHUNK_BYTES)
    rest = left.partition(b"\n")[2]
    return rest, offset + len(left) - len(rest)


def _read_bytes(stream: Stream, size: int) -> tuple[bytes, bool]:
    """Read up to `size` bytes and return them with a flag for the end of the stream."""
    if isinstance(stream, PlainStream):
        size = min(size, max(stream.size - stream.position, 0) + 1)  # Most files are small.
    view, done = np.empty(size, np.uint8).data, 0  # Not zeroed.
    while done < size:
        count = stream.readinto(view[done:])
        if not count:
            return bytes(view[:done]), True
        done += count
    return bytes(view), False
