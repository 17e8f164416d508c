"""Lookup tables: tables read from files or memory, whose columns become features."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline import kernel
from shardline.errors import SchemaMismatchError, SourceError, UDFError
from shardline.hints import Hint, Option
from shardline.kernel.columns import from_arrow
from shardline.schema.arrow_types import infer_arrow_feature, unwrap_lists
from shardline.schema.conversion import TOO_LARGE, ConvertedColumn, convert_to_feature
from shardline.schema.exact_numbers import RoundedFloat, iter_leaves
from shardline.schema.schema import Schema
from shardline.schema.schema_finder import SchemaFinder
from shardline.sources.column_source import (
    ArrowTable,
    ColumnSource,
    convert_column,
    iter_valid_batches,
    translate_arrow_errors,
)
from shardline.sources.csv_cells import CellTally, find_row_over_int64, fit_cells
from shardline.sources.csv_source import CsvSource
from shardline.sources.json_source import JsonLinesSource, JsonSyntaxError, parse_json_object
from shardline.sources.memory_source import FrameColumns
from shardline.sources.parquet_source import PARQUET_MAGIC, FileColumnReader
from shardline.sources.row_source import make_named_batch
from shardline.sources.source_format import detect_format, open_source, open_stored_file
from shardline.sources.source_identity import FileIdentity
from shardline.sources.source_mismatch import list_duplicate_names
from shardline.sources.text_blocks import get_max_text_row_bytes
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf.udf_result import join_columns, make_null_column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from shardline.schema.schema import Feature
    from shardline.sources.column_source import ColumnReader
    from shardline.sources.csv_source import CsvRows
    from shardline.sources.json_source import JsonLines
    from shardline.sources.source_format import SourceFormat

    Chosen = Collection[str] | None
    """Requested columns, None for all."""
    Names = dict[str, None]
    """Columns of the table, requested or not, in order."""


class LargeNumberRows:
    """First row, per column, of a number that lost digits as a float."""

    def __init__(self) -> None:
        self.rounded: dict[str, int] = {}

    def look(self, name: str, first: int, values: Sequence[object]) -> None:
        """Inspect some rows of a column of floats."""
        if name in self.rounded:
            return
        for row, value in enumerate(values, first):
            if any(isinstance(leaf, RoundedFloat) for leaf in iter_leaves(value)):
                self.rounded[name] = row
                return


_HASHED_ROWS = 8192


@dataclass(frozen=True)
class LookupTable:
    """Table loaded in memory.

    Attributes:
        where: Formats the location of a row.
        sha256: SHA-256 of the file that the table was read from.
        base64: True if text for images and arrays is base64.
        there: All columns of the table, including those not loaded.
        rounded: First row, per column of whole numbers, of a number over 64 bits, which was
            rounded.
        path: Path of the file.
    """

    label: str
    batches: Sequence[pa.RecordBatch]
    where: Callable[[int], str]
    sha256: str | None = None
    base64: bool = False
    there: tuple[str, ...] = ()
    rounded: Mapping[str, int] = field(default_factory=dict)
    path: str | None = None

    @cached_property
    def names(self) -> list[str]:
        """Names of the loaded columns."""
        return list(dict.fromkeys(name for batch in self.batches for name in batch.schema.names))

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        return sum(batch.num_rows for batch in self.batches)

    def known(self, name: str) -> str:
        """Return the column name; UDFError if the column is unknown."""
        if name not in self.names:
            has = ", ".join(map(repr, self.there or self.names)) or "none"
            raise UDFError(
                f"{self.label}: unknown column {name!r}",
                code="unknown-column",
                hint=Hint.of(f"the table has {has}"),
                feature=name,
            )
        return name

    def inferred(self, names: Sequence[str]) -> dict[str, Feature]:
        """Infer the features of these columns; SchemaMismatchError if that is impossible."""
        self._validate_exact(names)
        finder = SchemaFinder(self.label)
        for columns in self._columns(names):
            finder.add(pa.RecordBatch.from_arrays(columns, names))
        try:
            schema = finder.schema()
        except SchemaMismatchError as error:
            if error.code != "inexact-number" or error.feature is None or error.record is None:
                raise
            raise self._make_inexact_error(
                error.code, error.feature, error.record, "float rounds the number"
            ) from None
        return {feature.name: feature for feature in schema.features}

    def fitted(self, feature: Feature) -> ConvertedColumn:
        """Convert a column to a feature."""
        parts = [[self._fit(feature, *columns)] for columns in self._columns([feature.name])]
        return join_columns([feature], parts or [[make_null_column(feature)]])[0]

    def types(self, name: str) -> list[pa.DataType]:
        """Return the value types of a column, as known without reading the values."""
        leaves = [unwrap_lists(columns[0].type)[1] for columns in self._columns([name])]
        return [leaf for leaf in leaves if not pa.types.is_null(leaf)]

    def large(self, name: str) -> int | None:
        """Return the first row over 64 bits, if all numbers of the column are whole."""
        if name in self.rounded:
            return self.rounded[name]
        first = 0
        for (column,) in self._columns([name]):
            feature = infer_arrow_feature(name, column.type)
            if feature is not None and pa.types.is_uint64(unwrap_lists(column.type)[1]):
                over = [
                    row
                    for row, reason in convert_to_feature(feature, column).bad.items()
                    if reason == TOO_LARGE
                ]
                if over:
                    return first + min(over)
            first += len(column)
        return None

    def digest(self, features: Sequence[Feature]) -> str:
        """Return the SHA-256 of the file; without a file, of these columns as records."""
        if self.sha256 is not None:
            return self.sha256
        digest = hashlib.sha256()
        columns = [self.fitted(feature).array for feature in features]
        for first in range(0, self.rows, _HASHED_ROWS):
            parts = [array.slice(first, _HASHED_ROWS) for array in columns]
            buffers = [from_arrow(f.name, a) for f, a in zip(features, parts, strict=True)]
            digest.update(kernel.encode(buffers, len(parts[0])).data)
        return digest.hexdigest()

    def _validate_exact(self, names: Sequence[str]) -> None:
        for name in names:
            row = self.large(name)
            if row is not None:
                raise self._make_inexact_error(
                    "number-too-large", name, row, "number too large for int64"
                )

    def _make_inexact_error(self, code: str, name: str, row: int, problem: str) -> UDFError:
        """Return the error for a number that no inferred kind stores exactly."""
        return UDFError(
            f"{self.label}, column {name!r}, {self.where(row)}: {problem}",
            code=code,
            hint=Hint.of(
                "convert the column to text, or declare its kind, e.g. "
                f"`features=[Feature({name!r}, 'float')]`"
            ),
            record=row,
            feature=name,
        )

    def _columns(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        for batch in self.batches:
            there = batch.schema.names
            nulls = pa.nulls(batch.num_rows)
            yield [batch.column(name) if name in there else nulls for name in names]

    def _fit(self, feature: Feature, column: pa.Array) -> ConvertedColumn:
        return convert_to_feature(feature, column, base64=self.base64)


class CellLookupTable(LookupTable):
    """Table of text cells."""

    def inferred(self, names: Sequence[str]) -> dict[str, Feature]:
        """Infer the features of these columns; SchemaMismatchError if that is impossible.

        As in an append, whole numbers become text if one exceeds 64 bits.
        """
        tally = CellTally(names)
        for columns in self._columns(names):
            tally.add(columns)
        return {feature.name: feature for feature in tally.schema(self.label).features}

    def types(self, name: str) -> list[pa.DataType]:
        """Return no types: cells are text."""
        del name
        return []

    def large(self, name: str) -> int | None:
        """Return the first row over 64 bits, if all numbers of the column are whole."""
        return find_row_over_int64(column for (column,) in self._columns([name]))

    def _fit(self, feature: Feature, column: pa.Array) -> ConvertedColumn:
        return fit_cells(feature, column)


def get_table_label(table: object) -> str:
    """Return the table label for messages."""
    in_file = isinstance(table, str | Path | StoredFile)
    return f"table {table}" if in_file else "the table in memory"


def read_table(
    location: object,
    format: SourceFormat | None,  # noqa: A002 - the name of the option
    chosen: Chosen,
    features: Sequence[Feature],
) -> LookupTable:
    """Read a table from a path, a URI, a stored file or data in memory.

    Args:
        location: Location or data of the table.
        format: Format of a file whose name does not show it.
        chosen: Columns to load, None for all.
        features: Declared features for some of the columns.
    """
    if isinstance(location, str) and "://" in location:
        location = open_stored_file(location)
    if isinstance(location, str | Path | StoredFile):
        return _read_file_table(
            Path(location) if isinstance(location, str) else location, format, chosen
        )
    if format is not None:
        raise UDFError(
            f"{get_table_label(location)}: only a file has a format",
            code="invalid-argument",
            hint=Hint.of("leave out ", Option("format")),
        )
    return _read_memory_table(location, chosen, features)


def _read_file_table(
    where: Path | StoredFile, declared: SourceFormat | None, chosen: Chosen
) -> LookupTable:
    label, origin = get_table_label(where), FileIdentity(where)
    folder = isinstance(where, Path) and where.is_dir()
    if declared is None and not folder and detect_format(origin) is None:
        raise SourceError(
            f"{label}: unknown file format",
            code="unknown-source-format",
            hint=Hint.of(
                "rename it to end in .csv, .jsonl, .parquet or .arrow, or pass "
                "`format='csv'` to `table_join`"
            ),
            path=origin.path,
        )
    source = open_source(where, format=declared)
    if not isinstance(source, CsvSource | JsonLinesSource | ColumnSource):
        raise UDFError(
            f"{label}: unsupported table format",
            code="unsupported-source",
            hint=Hint.of("use a CSV, JSON lines, Parquet or Arrow file"),
            path=origin.path,
        )
    digest = origin.identity().sha256
    there: Names = {}
    if isinstance(source, CsvSource):
        batches = list(_iter_csv_batches(label, source, chosen, there))
        table: LookupTable = CellLookupTable(
            label, batches, partial(_format_csv_line, where), digest
        )
    elif isinstance(source, JsonLinesSource):
        numbers = LargeNumberRows()
        batches = list(_iter_json_batches(label, source, chosen, there, numbers))
        table = LookupTable(label, batches, partial(_format_json_line, where), digest, base64=True)
        table = replace(table, rounded=numbers.rounded)
    else:
        batches = _read_columns(label, _open_columns(origin), chosen, there)
        table = LookupTable(label, batches, _format_row, digest)
    origin.check_unchanged()
    return replace(table, there=tuple(there), path=origin.path)


def _read_memory_table(data: object, chosen: Chosen, features: Sequence[Feature]) -> LookupTable:
    label = get_table_label(data)
    columns: ColumnReader
    if isinstance(data, pa.Table | pa.RecordBatch):
        columns = ArrowTable(data)
    elif type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        columns = FrameColumns(data)
    elif hasattr(data, "__arrow_c_stream__"):
        with translate_arrow_errors(label):
            columns = ArrowTable(pa.table(data))
    else:
        raise UDFError(
            f"unsupported table of type {type(data).__name__}",
            code="unsupported-source",
            hint=Hint.of("pass a path, an Arrow table or a DataFrame"),
        )
    there: Names = {}
    batches = _read_columns(label, columns, chosen, there, features)
    return LookupTable(label, batches, _format_row, there=tuple(there))


def _open_columns(origin: FileIdentity) -> ColumnReader:
    file = origin.open()
    try:
        parquet = file.pread(len(PARQUET_MAGIC), 0) == PARQUET_MAGIC
    finally:
        file.close()
    return FileColumnReader(origin, "parquet" if parquet else "arrow", DEFAULT_LIMITS)


def _read_columns(
    label: str,
    columns: ColumnReader,
    chosen: Chosen,
    there: Names,
    features: Sequence[Feature] = (),
) -> list[pa.RecordBatch]:
    read = []
    with translate_arrow_errors(label):
        types = columns.types()
        names = _validate_unique_columns(label, types.names)
        there |= dict.fromkeys(names)
        selected = [name for name in names if chosen is None or name in chosen]
        for batch in iter_valid_batches(label, columns.batches(0, Schema(tuple(features)))):
            arrays = [
                convert_column(label, name, batch.objects[name])
                if name in batch.objects
                else batch.rows.column(name)
                for name in selected
            ]
            read.append(pa.RecordBatch.from_arrays(arrays, selected))
        if not read:
            kinds = [(name, types.field(name).type) for name in selected]
            read.append(pa.RecordBatch.from_pylist([], pa.schema(kinds)))
    return read


def _iter_csv_batches(
    label: str, source: CsvSource, chosen: Chosen, there: Names
) -> Iterator[pa.RecordBatch]:
    done = 0
    for rows in _iter_csv_blocks(source):
        there |= dict.fromkeys(rows.names)
        if rows.too_long:
            raise _make_row_too_long_error(label, rows.where(0), done, rows.offset)
        reasons: dict[int, tuple[str | None, str]] = {}
        columns = dict(zip(rows.names, rows.columns(reasons), strict=True))
        for row, (_, reason) in sorted(reasons.items()):
            raise UDFError(
                f"{label}, {rows.where(row)}: {reason}", code="invalid-row", record=done + row
            )
        done += len(rows.filled)
        selected = [name for name in rows.names if chosen is None or name in chosen]
        yield pa.RecordBatch.from_arrays([columns[name] for name in selected], selected)


def _iter_json_batches(
    label: str, source: JsonLinesSource, chosen: Chosen, there: Names, numbers: LargeNumberRows
) -> Iterator[pa.RecordBatch]:
    first = 0
    for lines, too_long in _iter_json_blocks(source):
        if too_long:
            raise _make_row_too_long_error(label, _format_line(lines, 0), first, lines.offset)
        rows = []
        for index in range(len(lines.filled)):
            try:
                rows.append(parse_json_object(lines.line(index)))
            except JsonSyntaxError as error:
                named = "" if error.feature is None else f", column {error.feature!r}"
                raise UDFError(
                    f"{label}, {_format_line(lines, index)}{named}: {error}",
                    code="invalid-row",
                    record=first + index,
                    feature=error.feature,
                ) from None
        names = list(dict.fromkeys(name for row in rows for name in row))
        there |= dict.fromkeys(names)
        selected = [name for name in names if chosen is None or name in chosen]
        arrays = []
        for name in selected:
            values = [row.get(name) for row in rows]
            arrays.append(convert_column(label, name, values))
            if pa.types.is_floating(unwrap_lists(arrays[-1].type)[1]):
                numbers.look(name, first, values)
        first += len(rows)
        if arrays:
            yield make_named_batch(label, arrays, selected)


def _make_row_too_long_error(label: str, where: str, row: int, offset: int) -> UDFError:
    limit = get_max_text_row_bytes(DEFAULT_LIMITS)
    return UDFError(
        f"{label}, {where}: row too long (offset {offset}, limit {limit} bytes)",
        code="record-too-large",
        hint=Hint.of("remove the row, or shorten its cells"),
        record=row,
        offset=offset,
    )


def _validate_unique_columns(label: str, names: list[str]) -> list[str]:
    twice = list_duplicate_names(names)
    if twice:
        raise UDFError(
            f"{label}: duplicate column {twice[0]!r}",
            code="duplicate-column",
            hint=Hint.of("rename a column"),
            feature=twice[0],
        )
    return names


def _iter_csv_blocks(source: CsvSource) -> Iterator[CsvRows]:
    return source.blocks()


def _iter_json_blocks(source: JsonLinesSource) -> Iterator[tuple[JsonLines, bool]]:
    return source.lines()


def _format_row(row: int) -> str:
    return f"row {row}"


def _format_csv_line(where: Path | StoredFile, row: int) -> str:
    """Return the line where a CSV row begins, reading the file again."""
    for rows in _iter_csv_blocks(CsvSource(FileIdentity(where), DEFAULT_LIMITS)):
        if row < len(rows.filled):
            return rows.where(row)
        row -= len(rows.filled)
    return _format_row(row)


def _format_json_line(where: Path | StoredFile, row: int) -> str:
    for lines, _ in _iter_json_blocks(JsonLinesSource(FileIdentity(where), DEFAULT_LIMITS)):
        if row < len(lines.filled):
            return _format_line(lines, row)
        row -= len(lines.filled)
    return _format_row(row)


def _format_line(lines: JsonLines, row: int) -> str:
    return f"line {lines.first + int(lines.filled[row]) + 1}"
