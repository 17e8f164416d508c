"""Tell how a file is packed by what is in it, not by its name."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.files.compression import (
    DEFAULT_MAX_UNPACKED_BYTES,
    Compression,
    PlainStream,
    Stream,
)
from shardline.files.packed import GZIP_MAGIC, PackedStream, is_zlib_header
from shardline.kernel.types import FRAME_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from shardline.files.opened import OpenFile

_GLANCE_BYTES = 4 * 1024
_HEAD_BYTES = 128 * 1024


def detect(file: OpenFile) -> Compression:
    """Tell how a file is packed by its first bytes."""
    if begins_with_record(file.pread(_GLANCE_BYTES, 0)):  # most do, and need no more
        return Compression.NONE
    head = file.pread(_HEAD_BYTES, 0)
    size = file.size
    if head.startswith(GZIP_MAGIC) or (head and GZIP_MAGIC.startswith(head)):
        return Compression.NONE if _leads_to_record(file, head, size) else Compression.GZIP
    if is_zlib_header(head) and (_unpacks_to_header(head) or not _plausible_length(head, size)):
        return Compression.ZLIB
    return Compression.NONE


def begins_with_record(data: bytes) -> bool:
    """Return True if these are the first bytes of a plain TFRecord file."""
    search = kernel.scan(data[:HEADER_BYTES], max_record_bytes=2**64 - 1, final=False)
    return len(data) >= HEADER_BYTES and search.fault is None


def _unpacks_to_header(head: bytes) -> bool:
    try:
        return begins_with_record(zlib.decompressobj().decompress(head, HEADER_BYTES))
    except zlib.error:
        return False


def _plausible_length(head: bytes, size: int) -> bool:
    """Whether the first bytes could be the length of a record in a damaged plain file."""
    return len(head) >= 8 and int.from_bytes(head[:8], "little") <= size


def _leads_to_record(file: OpenFile, head: bytes, size: int) -> bool:
    """Whether the first bytes, read as a length, lead to another record or to the end."""
    end = int.from_bytes(head[:8], "little") + FRAME_BYTES
    return end == size or (end < size and begins_with_record(file.pread(HEADER_BYTES, end)))


def open_stream(
    file: OpenFile,
    compression: Compression | None = None,
    *,
    max_unpacked_bytes: int = DEFAULT_MAX_UNPACKED_BYTES,
) -> tuple[Compression, Stream]:
    """The unpacked bytes of an open file, and how it is packed, which may be known."""
    compression = compression or detect(file)
    if compression is Compression.NONE:
        return compression, PlainStream(file)
    return compression, PackedStream(file, compression, max_unpacked_bytes=max_unpacked_bytes)
