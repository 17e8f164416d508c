"""CSV text to rows and cells: row boundaries and the cells of each row."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv

from shardline.errors import SourceError
from shardline.hints import Hint
from shardline.kernel.types import LARGEST_OFFSET
from shardline.schema.encoding import (
    TOO_LARGE_HINT,
    EncodedRows,
    Reasons,
    Rows,
    build_frames,
    encode_buffers,
    quarantine_long_row,
)
from shardline.sources.csv_cells import (
    SHORT_COLUMN,
    CellColumns,
    CellTally,
    fit_cells,
    fit_columns,
    infer_plain_kind,
)
from shardline.sources.source import JoinableSource, JoinedChunk, SmallFile, check_first_chunk
from shardline.sources.source_mismatch import list_duplicate_names, validate_names
from shardline.sources.text_blocks import BYTE_ORDER_MARK, get_max_text_row_bytes, iter_text_blocks

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from shardline.kernel.types import IntArray
    from shardline.schema.schema import Schema
    from shardline.sources.source import Chunk, SelfDescribingChunk
    from shardline.sources.source_identity import FileIdentity
    from shardline.tfrecord.reader import Limits


_NO_END = "has a quoted cell without an end"
_NEWLINE, _QUOTE, _COMMA = b'\n",'
_PIECE_BYTES = 4 * 1024 * 1024
_CELL = r'"((?:[^"]++|"")*+)"([^,\r\n]*+)|([^",\r\n][^,\r\n]*+|)'
_ONE_CELL = re.compile(_CELL)
_ONE_CELL_OF_BYTES = re.compile(_CELL.encode())
_ONE_ROW = re.compile(rf"(?:{_CELL})(?:,(?:{_CELL}))*+\r*+\n".encode())


class CsvSyntaxError(Exception):
    """Reason why text is not a CSV row; `line` counts from 0 within the row."""

    def __init__(self, detail: str, line: int = 0) -> None:
        super().__init__(detail)
        self.line = line


def find_row_ends(data: bytes) -> IntArray:
    """Return the offsets after newlines that end a row, i.e. newlines outside quotes.

    Text after the last offset is an incomplete row.
    """
    signs = np.frombuffer(data, np.uint8)
    ends: list[IntArray] = []
    inside = 0  # 1 if a quoted cell is open where a piece begins.
    for start in range(
        0, max(len(data), 1), _PIECE_BYTES
    ):  # Positions take 8 times the memory of their characters.
        piece = signs[start : start + _PIECE_BYTES]
        newlines = np.flatnonzero(piece == _NEWLINE)
        quotes = np.flatnonzero(piece == _QUOTE)
        if len(quotes):
            # Outside quotes, each quote must open a cell or be the second half of a doubled quote.
            opening = quotes[inside::2] + start
            before = signs[opening - 1]
            regular = (before == _COMMA) | (before == _NEWLINE) | (before == _QUOTE)
            if not (regular | (opening == 0)).all():
                return _find_row_ends_by_cells(data)
            newlines = newlines[(np.searchsorted(quotes, newlines) + inside) % 2 == 0]
            inside = (inside + len(quotes)) % 2
        elif inside:
            newlines = newlines[:0]
        ends.append(newlines + start + 1)
    return ends[0] if len(ends) == 1 else np.concatenate(ends)


def split_plain_cells(data: bytes, rows: int, columns: int) -> pa.Array | None:
    """Return the cells of rows without quotes, column by column in one array.

    Returns None if the text has quotes, rows with a different number of cells, or invalid
    UTF-8.
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


def _find_row_ends_by_cells(data: bytes) -> IntArray:
    """Find row ends in text that has quotes within cells."""
    ends: list[int] = []
    end = 0
    while end < len(data):
        row = _ONE_ROW.match(data, end)
        if row is None:
            following = data.find(b"\n", end)
            if following < 0 or _is_cut_off(data, end):
                break
            end = following + 1  # Not a valid row: it ends with its line.
        else:
            end = row.end()
        ends.append(end)
    return np.array(ends, np.int64)


def _is_cut_off(data: bytes, start: int) -> bool:
    """Return True if the row at `start`, or a quoted cell of it, does not end in these bytes."""
    offset = start
    while cell := _ONE_CELL_OF_BYTES.match(data, offset):
        offset = cell.end() + 1
        if data[offset - 1 : offset] != b",":
            return data[offset - 1 : offset] in {b'"', b""}
    return False


def describe_decode_error(data: bytes, error: UnicodeDecodeError, offset: int) -> str:
    """Return why bytes are not UTF-8 text: the offset and the probable encoding."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and not offset:
        encoding = "UTF-16"
    else:
        windows = any(0x80 <= byte <= 0x9F for byte in data)
        encoding = "Windows-1252" if windows else "Latin-1"
    return f"is not UTF-8 text (offset {offset + error.start}, probably {encoding})"


def parse_cells(row: str) -> list[str]:
    """Return the cells of one row; CsvSyntaxError if it is invalid."""
    row = row.removesuffix("\n").removesuffix("\r")
    cells: list[str] = []
    offset = 0
    while cell := _ONE_CELL.match(row, offset):
        quoted, after_quote, plain = cell.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"') + after_quote)
        offset = cell.end()
        if offset == len(row):
            break
        if row[offset] != ",":
            problem = _NO_END if row[offset] == '"' else "has a line break outside of quotes"
            raise CsvSyntaxError(problem, row.count("\n", 0, offset))
        offset += 1
    return cells


class CsvSource(JoinableSource):
    """CSV file, plain or gzip-compressed; rows count from 0 after the header."""

    def __init__(self, origin: FileIdentity, limits: Limits) -> None:
        super().__init__(origin, limits)
        self._file = origin

    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Infer a schema that all rows fit, skipping rows that are not valid CSV."""
        tally: CellTally | None = None
        refused: str | None = None
        for rows in self.blocks():
            tally = tally or CellTally(rows.names, allow_rounding=allow_rounding)
            if rows.too_long:
                refused = refused or f"{rows.where(0)} is too long"
                continue
            reasons: Reasons = {}
            rows.tally(reasons, tally)
            if reasons and refused is None:
                row = min(reasons)
                refused = f"{rows.where(row)} {reasons[row][1]}"
        return (tally or CellTally([])).schema(self.label, refused)

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        chunks = self._chunks(schema, start)
        yield from chunks if start else check_first_chunk(self.label, schema, chunks)

    def _chunks(self, schema: Schema, start: int) -> Iterator[SelfDescribingChunk]:
        first = True
        for rows in self.blocks():
            if first:
                validate_names(self.label, schema, rows.names)
                first = False
            if rows.first + len(rows.ends) > start:
                yield CsvChunk(schema, self._limits, rows.from_row(start))

    def _small(self, data: bytes) -> SmallFile | None:
        data = data.removeprefix(BYTE_ORDER_MARK)
        is_plain = b'"' not in data and data.count(b"\r") == data.count(b"\r\n")
        head, _, rows = data.partition(b"\n")
        if not is_plain or not rows or len(data) > get_max_text_row_bytes(self._limits):
            return None
        return SmallFile((self._limits, head), rows if rows.endswith(b"\n") else rows + b"\n")

    def join(self, schema: Schema, files: Sequence[SmallFile]) -> JoinedChunk:
        """Return the rows of several files with the same header."""
        names = self._names(files[0])
        validate_names(self.label, schema, names)
        rows = CsvRows(tuple(names), b"".join([file.data for file in files]), 0, 1, 0)
        ends = np.cumsum([file.data.count(b"\n") for file in files])
        return JoinedChunk(CsvChunk(schema, self._limits, rows), ends)

    def _names(self, file: SmallFile) -> list[str]:
        _, head = cast("tuple[Limits, bytes]", file.family)
        return self._header(head)

    def schema_mark(self, file: SmallFile) -> Hashable | None:
        """Return the column names and kinds of the cells, if these alone decide the schema."""
        try:
            names = self._names(file)
            rows = [line.decode().split(",") for line in file.data.splitlines()]
        except (SourceError, UnicodeDecodeError):
            return None
        if any(len(row) != len(names) for row in rows):
            return None
        kinds = tuple(map(infer_plain_kind, zip(*rows, strict=True)))
        return None if None in kinds else (tuple(names), kinds)

    def blocks(self) -> Iterator[CsvRows]:
        """Yield the rows as text, block by block."""
        names: list[str] | None = None
        first = line = 0
        for block in iter_text_blocks(self._file, self._limits, _find_rows_end):
            data = block.data
            if names is None:
                if block.too_long:
                    raise SourceError(
                        f"{self.label}: header longer than "
                        f"{get_max_text_row_bytes(self._limits)} bytes",
                        code="record-too-large",
                        hint=TOO_LARGE_HINT,
                        path=self._file.path,
                        offset=block.offset,
                    )
                head = data[: next(iter(find_row_ends(data)), len(data))]
                names, data, line = self._header(head), data[len(head) :], head.count(b"\n")
            offset = block.offset + len(block.data) - len(data)
            rows = CsvRows(tuple(names), data, first, line, block.position, block.too_long, offset)
            yield rows
            first += len(rows.ends)
            line += data.count(b"\n") + block.too_long

    def _header(self, head: bytes) -> list[str]:
        try:
            names = parse_cells(head.decode())
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self.label}: invalid header: line 1 {describe_decode_error(head, error, 0)}",
                code="invalid-header",
                hint=Hint.of("convert the file to UTF-8, e.g. with `iconv`"),
                path=self._file.path,
                offset=error.start,
            ) from None
        except CsvSyntaxError as error:
            raise SourceError(
                f"{self.label}: invalid header: line {error.line + 1} {error}",
                code="invalid-header",
                hint=Hint.of("close the quoted cell") if "quoted" in str(error) else None,
                path=self._file.path,
            ) from None
        twice = list_duplicate_names(names)
        if twice:
            raise SourceError(
                f"{self.label}: duplicate column {twice[0]!r}",
                code="duplicate-column",
                hint=Hint.of("rename a column"),
                path=self._file.path,
                feature=twice[0],
            )
        return names


def _find_rows_end(data: bytes) -> int:
    ends = find_row_ends(data)
    return int(ends[-1]) if len(ends) else 0


@dataclass(frozen=True)
class CsvRows:
    """CSV rows as text; `first` is the first row number, `line` its line, from 0.

    `offset` is where the text begins in the decompressed file, after any byte order mark.
    """

    names: tuple[str, ...]
    data: bytes
    first: int
    line: int
    position: int
    too_long: bool = False
    offset: int = 0

    @cached_property
    def ends(self) -> IntArray:
        """Offset where each row ends."""
        if self.too_long:
            return np.array([len(self.data)])
        ends = find_row_ends(self.data)
        whole = int(ends[-1]) if len(ends) else 0
        return ends if whole == len(self.data) else np.append(ends, len(self.data))

    @cached_property
    def starts(self) -> IntArray:
        """Offset where each row begins."""
        return np.concatenate(([0], self.ends[:-1]))[: len(self.ends)]

    def from_row(self, start: int) -> CsvRows:
        """Return the rows from number `start`."""
        if start <= self.first:
            return self
        begin = int(self.starts[start - self.first])
        line = self.line + self.data[:begin].count(b"\n")
        return replace(
            self, data=self.data[begin:], first=start, line=line, offset=self.offset + begin
        )

    @cached_property
    def filled(self) -> IntArray:
        """Positions of the rows that are not blank lines."""
        short = np.flatnonzero(self.ends - self.starts <= 2)
        blank = [index for index in short.tolist() if not self._text(index).strip(b"\r\n")]
        return np.delete(np.arange(len(self.ends)), blank)

    def _text(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def row(self, index: int) -> bytes:
        """Return the text of one non-blank row, without its line end."""
        return self._text(self.filled[index]).removesuffix(b"\n").removesuffix(b"\r")

    def where(self, index: int) -> str:
        """Return the line in which a non-blank row begins, e.g. "line 18"."""
        return f"line {self._lines[self.filled[index]] + 1}"

    @cached_property
    def _lines(self) -> IntArray:
        """Line in which each row begins."""
        newlines = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return self.line + np.searchsorted(newlines, self.starts)

    def columns(self, reasons: Reasons) -> Sequence[pa.Array]:
        """Return the cells by column; invalid rows are empty and added to `reasons`."""
        if not len(self.filled):
            return [pa.array([], pa.string()) for _ in self.names]
        return self._parse_by_arrow() or self._parse_rows(reasons)

    def cells(self, reasons: Reasons) -> CellColumns | None:
        """Return the cells of a few rows; None for many rows or no rows."""
        if not 0 < len(self.filled) <= SHORT_COLUMN:
            return None
        if len(self.filled) == len(self.ends) and len(self.data) < LARGEST_OFFSET:
            plain = split_plain_cells(self.data, len(self.ends), len(self.names))
            if plain is not None:
                return CellColumns(plain, len(self.names))
        return CellColumns.join(self.columns(reasons))

    def tally(self, reasons: Reasons, tally: CellTally) -> None:
        """Add the rows to the schema inference."""
        cells = self.cells(reasons)
        if cells is None:
            tally.add(self.columns(reasons))
        else:
            tally.add_cells(cells)

    def _parse_by_arrow(self) -> Sequence[pa.Array] | None:
        if len(self.data) >= LARGEST_OFFSET or not self._is_ended():
            return None
        kinds = dict.fromkeys(self.names, pa.string())
        # Arrow skips a byte order mark, which is text anywhere but at the start of a file.
        is_mark = self.data.startswith(BYTE_ORDER_MARK)
        data = BYTE_ORDER_MARK + self.data if is_mark else self.data
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data),
                pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=self.names, block_size=len(data) + 1
                ),
                pyarrow.csv.ParseOptions(newlines_in_values=True),
                pyarrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(self.filled):
            return None
        few = table.num_rows <= SHORT_COLUMN
        return [
            column.chunk(0) if few and column.num_chunks == 1 else column.combine_chunks()
            for column in table.columns
        ]

    def _is_ended(self) -> bool:
        """Return True if the last row is complete; Arrow closes an open quoted cell silently."""
        try:
            parse_cells(self._text(len(self.ends) - 1).decode("latin-1"))
        except CsvSyntaxError:
            return False
        return True

    def _parse_rows(self, reasons: Reasons) -> Sequence[pa.Array]:
        empty = [""] * len(self.names)
        rows = []
        for index in range(len(self.filled)):
            try:
                row = parse_cells(self.row(index).decode())
                if len(row) != len(empty):
                    raise CsvSyntaxError(f"has {len(row)} cells, and the header has {len(empty)}")
            except CsvSyntaxError as error:
                opened = self._lines[self.filled[index]] + error.line + 1
                more = f" (opened in line {opened})" if "quoted" in str(error) else ""
                reasons[index] = None, f"{error}{more}"
                row = empty
            except UnicodeDecodeError as error:
                start = self.offset + int(self.starts[self.filled[index]])
                reasons[index] = None, describe_decode_error(self.row(index), error, start)
                row = empty
            rows.append(row)
        return [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]


@dataclass(frozen=True)
class CsvChunk:
    """Chunk of CSV rows."""

    schema: Schema
    limits: Limits
    rows: CsvRows

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self.rows.position

    @property
    def end(self) -> int:
        """Number of the first row after this chunk."""
        return self.rows.first + len(self.rows.ends)

    def frames(self) -> EncodedRows:
        """Return the framed records."""
        if self.rows.too_long:
            rows, limit = self.rows, get_max_text_row_bytes(self.limits)
            refused = quarantine_long_row(
                rows.first,
                rows.where(0),
                rows.offset,
                limit,
                rows.data,
                format="csv",
                columns=rows.names,
            )
            return EncodedRows.quarantine(refused)
        reasons: Reasons = {}
        rows, limit = self.rows, self.limits.max_record_bytes
        row_labels = Rows(rows.first + rows.filled, rows.where, rows.row, "csv", rows.names)
        indices = {name: row for row, name in enumerate(rows.names)}
        features = [feature for feature in self.schema.features if feature.name in indices]
        cells = rows.cells(reasons)
        if cells is None:
            texts = rows.columns(reasons)
            columns = [(f, fit_cells(f, texts[indices[f.name]])) for f in features]
            return build_frames(self.schema, columns, row_labels, reasons, limit)
        fitted = fit_columns(features, [indices[feature.name] for feature in features], cells)
        for feature, bad in fitted.bad:
            for row, reason in bad.items():
                reasons.setdefault(row, (feature.name, reason))
        return encode_buffers(self.schema, fitted.buffers, row_labels, reasons, limit)

    def infer(self) -> Schema:
        """Infer the schema of the rows."""
        tally = CellTally(self.rows.names, allow_rounding=True)
        self.rows.tally({}, tally)
        return tally.schema("")
