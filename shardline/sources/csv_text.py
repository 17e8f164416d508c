"""CSV text into rows and cells: where rows end, and what is between the commas of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray

_NO_END = "has a quoted cell without an end"
_NEWLINE, _QUOTE, _COMMA = b'\n",'
_PIECE_BYTES = 4 * 1024 * 1024
_CELL = r'"((?:[^"]++|"")*+)"([^,\r\n]*+)|([^",\r\n][^,\r\n]*+|)'
_ONE_CELL = re.compile(_CELL)
_ONE_CELL_OF_BYTES = re.compile(_CELL.encode())
_ONE_ROW = re.compile(rf"(?:{_CELL})(?:,(?:{_CELL}))*+\r*+\n".encode())


class NotCsv(Exception):  # noqa: N818 - it is raised and caught between two lines
    """Why a text is no row of CSV; `line` is the line of the row with the problem, from 0."""

    def __init__(self, detail: str, line: int = 0) -> None:
        super().__init__(detail)
        self.line = line


def row_ends(data: bytes) -> IntArray:
    """Behind which newlines a row ends: those that are not inside of quotes.

    What follows the last one is no whole row.
    """
    signs = np.frombuffer(data, np.uint8)
    ends: list[IntArray] = []
    inside = 0  # 1 if a quoted cell is open where a piece begins
    for start in range(0, max(len(data), 1), _PIECE_BYTES):  # positions take 8 times their signs
        piece = signs[start : start + _PIECE_BYTES]
        newlines = np.flatnonzero(piece == _NEWLINE)
        quotes = np.flatnonzero(piece == _QUOTE)
        if len(quotes):
            # Outside of quotes, each quote must open a cell, or be the second half of a doubled.
            opening = quotes[inside::2] + start
            before = signs[opening - 1]
            regular = (before == _COMMA) | (before == _NEWLINE) | (before == _QUOTE)
            if not (regular | (opening == 0)).all():
                return _row_ends_by_cells(data)
            newlines = newlines[(np.searchsorted(quotes, newlines) + inside) % 2 == 0]
            inside = (inside + len(quotes)) % 2
        elif inside:
            newlines = newlines[:0]
        ends.append(newlines + start + 1)
    return ends[0] if len(ends) == 1 else np.concatenate(ends)


def split_plain_cells(data: bytes, rows: int, columns: int) -> pa.Array | None:
    """Return the cells of rows without quotes, column by column in one array.

    None if there are quotes, rows with more or fewer cells, or bytes that are not UTF-8.
    """
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if b'"' in data or b"\r" in data or not _is_utf8(data):
        return None
    signs = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    newlines = signs == _NEWLINE
    between = newlines | (signs == _COMMA)
    ends = np.flatnonzero(between)
    count = rows * columns
    is_regular = len(ends) == count and np.count_nonzero(newlines) == rows
    if not is_regular or not newlines[ends[columns - 1 :: columns]].all():
        return None
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends - np.arange(count)
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(signs[~between])]
    by_row = pa.Array.from_buffers(pa.string(), count, parts)
    return by_row.take(pa.array(np.arange(count).reshape(rows, columns).T.ravel()))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _row_ends_by_cells(data: bytes) -> IntArray:
    """The same, for text in which quotes stand inside of cells too."""
    ends: list[int] = []
    end = 0
    while end < len(data):
        row = _ONE_ROW.match(data, end)
        if row is None:
            following = data.find(b"\n", end)
            if following < 0 or _is_cut_off(data, end):
                break
            end = following + 1  # no row at all: it ends where its line does
        else:
            end = row.end()
        ends.append(end)
    return np.array(ends, np.int64)


def _is_cut_off(data: bytes, start: int) -> bool:
    """Whether the row that begins here, or a quoted cell of it, has no end in these bytes."""
    at = start
    while cell := _ONE_CELL_OF_BYTES.match(data, at):
        at = cell.end() + 1
        if data[at - 1 : at] != b",":
            return data[at - 1 : at] in {b'"', b""}
    return False


def decode_error(data: bytes, error: UnicodeDecodeError, offset: int) -> str:
    """Return why bytes are not UTF-8 text: the offset and the probable encoding."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and not offset:
        encoding = "UTF-16"
    else:
        windows = any(0x80 <= byte <= 0x9F for byte in data)
        encoding = "Windows-1252" if windows else "Latin-1"
    return f"is not UTF-8 text (offset {offset + error.start}, probably {encoding})"


def cells(row: str) -> list[str]:
    """The cells of one row; NotCsv says why it is none."""
    row = row.removesuffix("\n").removesuffix("\r")
    found: list[str] = []
    at = 0
    while cell := _ONE_CELL.match(row, at):
        quoted, behind, plain = cell.groups()
        found.append(plain if quoted is None else quoted.replace('""', '"') + behind)
        at = cell.end()
        if at == len(row):
            break
        if row[at] != ",":
            what = _NO_END if row[at] == '"' else "has a line break outside of quotes"
            raise NotCsv(what, row.count("\n", 0, at))
        at += 1
    return found
