"""Recognition of other file formats, so that they are not called corrupt.

Only files without a valid first record are examined. Recognition requires positive evidence: the
magic bytes of a format, or text without control characters: the header of a TFRecord always has
zero bytes.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.tfrecord.compression import Compression, CompressionError, open_stream

if TYPE_CHECKING:
    from shardline.tfrecord.input_file import OpenFile

_HEAD_BYTES = 64 * 1024
_SEARCHED_BYTES = 1024 * 1024
_LEAST_TEXT = 8
_TAIL_BYTES = 64 * 1024 + 22
_LONG_MAGIC: dict[bytes, str] = {
    b"ARROW1\x00\x00": "arrow",
    b"SQLite format 3\x00": "sqlite",
    b"\x89PNG\r\n\x1a\n": "png",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"\x93NUMPY": "numpy",
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
}
_SHORT_MAGIC: dict[bytes, str] = {
    b"PAR1": "parquet",
    b"FEA1": "feather v1",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bzip2",
    b"\xff\xd8\xff": "jpeg",
    b"II*\x00": "tiff",
    b"MM\x00*": "tiff",
    b"%PDF-": "pdf",
    b"Obj\x01": "avro",
    b"ORC": "orc",
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"\x1f\x8b\x08": "gzip",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f")) + b"\x7f"
_UTF8_MARK = b"\xef\xbb\xbf"


def detect_foreign_format(file: OpenFile, compression: Compression) -> str | None:
    """Return the format of a file without a valid first record. None if it may be TFRecord.

    The format of the content of a GZIP file is followed by `(gzip)`.
    """
    head = file.pread(_SEARCHED_BYTES, 0)
    format_name = _format_of(head, _tail(file, head))
    if format_name != "gzip":
        return format_name
    if compression is not Compression.GZIP:
        return None
    head = _decompress_head(file, compression)
    inside = _format_of(head, head)
    return None if inside is None else f"{inside} (gzip)"


def _format_of(head: bytes, tail: bytes) -> str | None:
    for magic, name in _LONG_MAGIC.items():
        if head.startswith(magic):
            return name
    format_name = _text_format(head[:_HEAD_BYTES], whole=len(head) <= _HEAD_BYTES)
    format_name = format_name or _by_short_magic(head)
    if format_name is None or format_name == "gzip" or _ends_as(format_name, tail):
        return format_name
    return None if _has_record(head) else format_name


def _by_short_magic(head: bytes) -> str | None:
    for magic, name in _SHORT_MAGIC.items():
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:12] in {b"WEBP", b"WAVE", b"AVI "}:
        return head[8:12].decode().strip().lower()
    if head[:4] == b"\xff\xff\xff\xff" and _is_arrow_message(head):
        return "arrow"
    if head[257:262] == b"ustar":
        return "tar"
    if len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2:3] in b"\x95}](cXK":
        return "pickle"
    return None


def _is_arrow_message(head: bytes) -> bool:
    """Return True if the length and the root of an Arrow message follow its marker."""
    length, root = (int.from_bytes(head[offset : offset + 4], "little") for offset in (4, 8))
    return length % 8 == 0 and 0 < root < length < len(head)


def _ends_as(name: str, tail: bytes) -> bool:
    """Return True if the end of the file proves its format."""
    ends = {"parquet": tail.endswith(b"PAR1"), "zip": b"PK\x05\x06" in tail}
    return ends.get(name, False)


def _text_format(head: bytes, *, whole: bool) -> str | None:
    if head.startswith(_UTF16):
        return "UTF-16 text"
    if len(head) < _LEAST_TEXT or len(head.translate(None, _CONTROL)) < len(head):
        return None
    if is_utf8(head, whole=whole):
        return _kind_of_text(head.removeprefix(_UTF8_MARK).decode(errors="ignore"))
    mostly_ascii = sum(byte > 0x7F for byte in head) * 3 <= len(head)
    return f"{_kind_of_text(head.decode('latin-1'))} (not UTF-8)" if mostly_ascii else None


def _kind_of_text(text: str) -> str:
    text = text.lstrip()
    if text.startswith("{"):
        return "jsonl" if _is_object(text.partition("\n")[0]) else "json"
    if text.startswith("["):
        return "json"
    if text.startswith("<"):
        return "XML or HTML"
    return "csv" if _is_csv(text) else "text"


def is_utf8(data: bytes, *, whole: bool = True) -> bool:
    """Return True for valid UTF-8. Unless `whole`, the last character may be cut off."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return not whole and error.reason == "unexpected end of data"
    return True


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_csv(text: str) -> bool:
    """Return True if the first lines have the same number of cells, at least two."""
    lines = text.splitlines()[:3]
    try:
        widths = [len(row) for row in csv.reader(lines) if row]
    except csv.Error:
        return False
    return len(widths) > 1 and widths[0] > 1 and widths[1] == widths[0]


def _has_record(data: bytes) -> bool:
    """Return True if the data contains a TFRecord frame with valid checksums."""
    return bool(kernel.find_next(data, 0, max_record_bytes=len(data)).found)


def _tail(file: OpenFile, head: bytes) -> bytes:
    start = max(file.size - _TAIL_BYTES, 0)
    return head[start:] if len(head) == file.size else file.pread(_TAIL_BYTES, start)


def _decompress_head(file: OpenFile, compression: Compression) -> bytes:
    """Return the first decompressed bytes of a file, up to any corruption."""
    reopened = file.reopen()
    data = bytearray()
    try:
        _, stream = open_stream(reopened, compression)
        buffer = memoryview(bytearray(_SEARCHED_BYTES))
        while len(data) < _SEARCHED_BYTES and (count := stream.readinto(buffer)):
            data += buffer[:count]
    except CompressionError:
        pass
    finally:
        reopened.close()
    return bytes(data)
