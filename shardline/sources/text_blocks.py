"""Text files, plain or packed, in blocks of whole rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import SourceError
from shardline.files.compression import Compression, CompressionError
from shardline.files.detect import open_stream
from shardline.files.packed import GZIP_MAGIC
from shardline.hints import Hint
from shardline.sources.base import CHUNK_BYTES
from shardline.sources.frames import KEPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.files.compression import Stream
    from shardline.files.reader import Limits
    from shardline.sources.origin import FileOrigin

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TEXT_PER_RECORD = 8
"""How much longer than its record a row may be: numbers take more room as text."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole rows. If `too_long`, it is the start of a single one, the rest of which was dropped."""

    data: bytes
    position: int
    too_long: bool = False


def longest_row(limits: Limits) -> int:
    """How many bytes a row may take."""
    return _TEXT_PER_RECORD * limits.max_record_bytes


def text_blocks(
    origin: FileOrigin, limits: Limits, rows_end: Callable[[bytes], int]
) -> Iterator[TextBlock]:
    """The text of a file. `rows_end` says where in some of it the last whole row ends."""
    file = origin.open()
    try:
        packed = file.pread(len(GZIP_MAGIC), 0) == GZIP_MAGIC
        kind = Compression.GZIP if packed else Compression.NONE
        _, stream = open_stream(file, kind, max_unpacked_bytes=limits.max_unpacked_bytes)
        yield from _blocks(stream, longest_row(limits), rows_end)
    except CompressionError as error:
        raise SourceError(
            f"{origin.shown}: {error.detail} (offset {error.offset})",
            code="corrupt-file",
            hint=Hint.of("get the file again from its origin"),
            path=origin.path,
            offset=error.offset,
        ) from None
    finally:
        file.close()


def _blocks(stream: Stream, longest: int, rows_end: Callable[[bytes], int]) -> Iterator[TextBlock]:
    left = _read(stream, CHUNK_BYTES).removeprefix(_BYTE_ORDER_MARK)
    while True:
        end = rows_end(left)
        if end:
            yield TextBlock(left[:end], stream.position)
            left = left[end:]
        elif len(left) > longest:
            yield TextBlock(left[:KEPT_BYTES], stream.position, too_long=True)
            left = _behind_line(stream, left)
        more = _read(stream, max(CHUNK_BYTES, len(left)))
        if not more:
            if left:
                yield TextBlock(left, stream.position, too_long=len(left) > longest)
            return
        left += more


def _behind_line(stream: Stream, left: bytes) -> bytes:
    """What follows the line that is being read."""
    while left and b"\n" not in left:
        left = _read(stream, CHUNK_BYTES)
    return left.partition(b"\n")[2]


def _read(stream: Stream, size: int) -> bytes:
    view, done = np.empty(size, np.uint8).data, 0  # not set to zero: most files are small
    while done < size:
        count = stream.readinto(view[done:])
        if not count:
            break
        done += count
    return bytes(view[:done])
