"""Find numbers in JSON rows that have more digits than the floats they are read as."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline import kernel
from shardline.errors import FieldsError, SchemaMismatchError, SourceError
from shardline.hints import Hint, Option
from shardline.kernel.columns import from_arrow
from shardline.schema.arrow_types import declared_by, taken_apart
from shardline.schema.conversion import TOO_LARGE, Fitted, fit
from shardline.schema.exact_numbers import Rounded, python_leaves
from shardline.schema.schema import Schema
from shardline.sources.column_source import (
    ColumnarSource,
    Table,
    arrow_errors,
    told_column,
    valid_batches,
)
from shardline.sources.csv_cells import CellTally, fit_cells, row_over_int64
from shardline.sources.csv_source import CsvSource
from shardline.sources.json_source import JsonLinesSource, NotJson, parsed
from shardline.sources.memory_source import FrameColumns
from shardline.sources.parquet_source import PARQUET_MAGIC, FileColumns
from shardline.sources.row_source import named_batch
from shardline.sources.schema_inference import Finder
from shardline.sources.source_format import as_source, stored_file, told_format
from shardline.sources.source_identity import FileOrigin
from shardline.sources.source_mismatch import duplicate_names
from shardline.sources.text_blocks import longest_row
from shardline.tfrecord.open_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf.udf_result import joined, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from shardline.schema.schema import Feature
    from shardline.sources.column_source import Columns
    from shardline.sources.csv_source import CellRows
    from shardline.sources.json_source import Lines
    from shardline.sources.source_format import Format

    Chosen = Collection[str] | None
    """The columns that are wanted, None for all."""
    Names = dict[str, None]
    """The columns that were found, wanted or not, in order."""


class LargeNumbers:
    """The first row of each column with a number that lost digits."""

    def __init__(self) -> None:
        self.rounded: dict[str, int] = {}

    def look(self, name: str, first: int, values: Sequence[object]) -> None:
        """Look at some rows of a column that holds floats."""
        if name in self.rounded:
            return
        for row, value in enumerate(values, first):
            if any(isinstance(leaf, Rounded) for leaf in python_leaves(value)):
                self.rounded[name] = row
                return


_HASHED_ROWS = 8192


@dataclass(frozen=True)
class HeldTable:
    """A table that has been read.

    `where` tells of a row where it stands, `sha256` is that of the file it was read from. With
    `base64`, text for images and arrays is such. `there` are all columns of the table, also those
    that were not kept. `rounded` has the first row of each column of whole numbers in which one is
    rounded, as it is over 64 bits. `path` is that of the file.
    """

    shown: str
    batches: Sequence[pa.RecordBatch]
    where: Callable[[int], str]
    sha256: str | None = None
    base64: bool = False
    there: tuple[str, ...] = ()
    rounded: Mapping[str, int] = field(default_factory=dict)
    path: str | None = None

    @cached_property
    def names(self) -> list[str]:
        """The names of its columns."""
        return list(dict.fromkeys(name for batch in self.batches for name in batch.schema.names))

    @cached_property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(batch.num_rows for batch in self.batches)

    def known(self, name: str) -> str:
        """The name of a column; FieldsError if there is no such."""
        if name not in self.names:
            has = ", ".join(map(repr, self.there or self.names)) or "none"
            raise FieldsError(
                f"{self.shown}: unknown column {name!r}",
                code="unknown-column",
                hint=Hint.of(f"the table has {has}"),
                feature=name,
            )
        return name

    def inferred(self, names: Sequence[str]) -> dict[str, Feature]:
        """The features that these columns suggest; SchemaMismatchError where none can be told."""
        self._refuse_large(names)
        finder = Finder(self.shown)
        for columns in self._columns(names):
            finder.add(pa.RecordBatch.from_arrays(columns, names))
        try:
            schema = finder.schema()
        except SchemaMismatchError as error:
            if error.code != "inexact-number" or error.feature is None or error.record is None:
                raise
            raise self._unkept(
                error.code, error.feature, error.record, "float rounds the number"
            ) from None
        return {feature.name: feature for feature in schema.features}

    def fitted(self, feature: Feature) -> Fitted:
        """One of the columns as a feature."""
        parts = [[self._fit(feature, *columns)] for columns in self._columns([feature.name])]
        return joined([feature], parts or [[nothing(feature)]])[0]

    def types(self, name: str) -> list[pa.DataType]:
        """What the values of a column are, where that is known before they are read."""
        leaves = [taken_apart(columns[0].type)[1] for columns in self._columns([name])]
        return [leaf for leaf in leaves if not pa.types.is_null(leaf)]

    def large(self, name: str) -> int | None:
        """The first row with a number over 64 bits, if all of the column are whole numbers."""
        if name in self.rounded:
            return self.rounded[name]
        first = 0
        for (column,) in self._columns([name]):
            feature = declared_by(name, column.type)
            if feature is not None and pa.types.is_uint64(taken_apart(column.type)[1]):
                over = [at for at, why in fit(feature, column).bad.items() if why == TOO_LARGE]
                if over:
                    return first + min(over)
            first += len(column)
        return None

    def digest(self, features: Sequence[Feature]) -> str:
        """The sha256 of the file; of a table without one, that of these columns as records."""
        if self.sha256 is not None:
            return self.sha256
        digest = hashlib.sha256()
        columns = [self.fitted(feature).array for feature in features]
        for first in range(0, self.rows, _HASHED_ROWS):
            parts = [array.slice(first, _HASHED_ROWS) for array in columns]
            buffers = [from_arrow(f.name, a) for f, a in zip(features, parts, strict=True)]
            digest.update(kernel.encode(buffers, len(parts[0])).data)
        return digest.hexdigest()

    def _refuse_large(self, names: Sequence[str]) -> None:
        for name in names:
            at = self.large(name)
            if at is not None:
                raise self._unkept("number-too-large", name, at, "number too large for int64")

    def _unkept(self, code: str, name: str, row: int, problem: str) -> FieldsError:
        """Return the error for a number that no inferred kind stores exactly."""
        return FieldsError(
            f"{self.shown}, column {name!r}, {self.where(row)}: {problem}",
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
            gone = pa.nulls(batch.num_rows)
            yield [batch.column(name) if name in there else gone for name in names]

    def _fit(self, feature: Feature, column: pa.Array) -> Fitted:
        return fit(feature, column, base64=self.base64)


class TableOfCells(HeldTable):
    """A table whose cells are text, whatever is written in them."""

    def inferred(self, names: Sequence[str]) -> dict[str, Feature]:
        """The features that these columns suggest; SchemaMismatchError where none can be told.

        Whole numbers of which one is over 64 bits are text, as when they are appended.
        """
        tally = CellTally(names)
        for columns in self._columns(names):
            tally.add(columns)
        return {feature.name: feature for feature in tally.schema(self.shown).features}

    def types(self, name: str) -> list[pa.DataType]:
        """Nothing is known of cells."""
        del name
        return []

    def large(self, name: str) -> int | None:
        """The first row with a number over 64 bits, if all of the column are whole numbers."""
        return row_over_int64(column for (column,) in self._columns([name]))

    def _fit(self, feature: Feature, column: pa.Array) -> Fitted:
        return fit_cells(feature, column)


def shown_as(what: object) -> str:
    """A table as messages call it."""
    in_file = isinstance(what, str | Path | StoredFile)
    return f"table {what}" if in_file else "the table in memory"


def read_table(
    what: object,
    asked: Format | None,
    chosen: Chosen,
    features: Sequence[Feature],
) -> HeldTable:
    """The table that a path, a URI, a stored file, or data in memory is.

    `asked` is the format of a file, where its name does not tell. Only the `chosen` columns are
    kept. `features` are those that are declared for some of them.
    """
    if isinstance(what, str) and "://" in what:
        what = stored_file(what)
    if isinstance(what, str | Path | StoredFile):
        return _from_file(Path(what) if isinstance(what, str) else what, asked, chosen)
    if asked is not None:
        raise FieldsError(
            f"{shown_as(what)}: only a file has a format",
            code="invalid-argument",
            hint=Hint.of("leave out ", Option("format")),
        )
    return _in_memory(what, chosen, features)


def _from_file(where: Path | StoredFile, asked: Format | None, chosen: Chosen) -> HeldTable:
    shown, origin = shown_as(where), FileOrigin(where)
    folder = isinstance(where, Path) and where.is_dir()
    if asked is None and not folder and told_format(origin) is None:
        raise SourceError(
            f"{shown}: unknown file format",
            code="unknown-source-format",
            hint=Hint.of(
                "rename it to end in .csv, .jsonl, .parquet or .arrow, or pass "
                "`format='csv'` to `joined_fields`"
            ),
            path=origin.path,
        )
    source = as_source(where, format=asked)
    if not isinstance(source, CsvSource | JsonLinesSource | ColumnarSource):
        raise FieldsError(
            f"{shown}: unsupported table format",
            code="unsupported-source",
            hint=Hint.of("use a CSV, JSON lines, Parquet or Arrow file"),
            path=origin.path,
        )
    digest = origin.identity().sha256
    there: Names = {}
    if isinstance(source, CsvSource):
        batches = list(_cells(shown, source, chosen, there))
        held: HeldTable = TableOfCells(shown, batches, partial(_csv_line, where), digest)
    elif isinstance(source, JsonLinesSource):
        numbers = LargeNumbers()
        batches = list(_objects(shown, source, chosen, there, numbers))
        held = HeldTable(shown, batches, partial(_json_line, where), digest, base64=True)
        held = replace(held, rounded=numbers.rounded)
    else:
        batches = _of_columns(shown, _columns_in(origin), chosen, there)
        held = HeldTable(shown, batches, _row, digest)
    origin.check_unchanged()
    return replace(held, there=tuple(there), path=origin.path)


def _in_memory(what: object, chosen: Chosen, features: Sequence[Feature]) -> HeldTable:
    shown = shown_as(what)
    columns: Columns
    if isinstance(what, pa.Table | pa.RecordBatch):
        columns = Table(what)
    elif type(what).__module__.partition(".")[0] == "pandas" and hasattr(what, "columns"):
        columns = FrameColumns(what)
    elif hasattr(what, "__arrow_c_stream__"):
        with arrow_errors(shown):
            columns = Table(pa.table(what))
    else:
        raise FieldsError(
            f"unsupported table of type {type(what).__name__}",
            code="unsupported-source",
            hint=Hint.of("pass a path, an Arrow table or a DataFrame"),
        )
    there: Names = {}
    batches = _of_columns(shown, columns, chosen, there, features)
    return HeldTable(shown, batches, _row, there=tuple(there))


def _columns_in(origin: FileOrigin) -> Columns:
    file = origin.open()
    try:
        parquet = file.pread(len(PARQUET_MAGIC), 0) == PARQUET_MAGIC
    finally:
        file.close()
    return FileColumns(origin, "parquet" if parquet else "arrow", DEFAULT_LIMITS)


def _of_columns(
    shown: str, columns: Columns, chosen: Chosen, there: Names, features: Sequence[Feature] = ()
) -> list[pa.RecordBatch]:
    read = []
    with arrow_errors(shown):
        types = columns.types()
        names = _refuse_twice(shown, types.names)
        there |= dict.fromkeys(names)
        wanted = [name for name in names if chosen is None or name in chosen]
        for batch in valid_batches(shown, columns.batches(0, Schema(tuple(features)))):
            arrays = [
                told_column(shown, name, batch.objects[name])
                if name in batch.objects
                else batch.rows.column(name)
                for name in wanted
            ]
            read.append(pa.RecordBatch.from_arrays(arrays, wanted))
        if not read:
            kinds = [(name, types.field(name).type) for name in wanted]
            read.append(pa.RecordBatch.from_pylist([], pa.schema(kinds)))
    return read


def _cells(shown: str, source: CsvSource, chosen: Chosen, there: Names) -> Iterator[pa.RecordBatch]:
    done = 0
    for rows in _csv_blocks(source):
        there |= dict.fromkeys(rows.names)
        if rows.too_long:
            raise _too_long(shown, rows.where(0), done, rows.offset)
        reasons: dict[int, tuple[str | None, str]] = {}
        columns = dict(zip(rows.names, rows.columns(reasons), strict=True))
        for at, (_, why) in sorted(reasons.items()):
            raise FieldsError(
                f"{shown}, {rows.where(at)}: {why}", code="invalid-row", record=done + at
            )
        done += len(rows.filled)
        kept = [name for name in rows.names if chosen is None or name in chosen]
        yield pa.RecordBatch.from_arrays([columns[name] for name in kept], kept)


def _objects(
    shown: str, source: JsonLinesSource, chosen: Chosen, there: Names, numbers: LargeNumbers
) -> Iterator[pa.RecordBatch]:
    first = 0
    for lines, too_long in _json_blocks(source):
        if too_long:
            raise _too_long(shown, _told(lines, 0), first, lines.offset)
        rows = []
        for at in range(len(lines.filled)):
            try:
                rows.append(parsed(lines.line(at)))
            except NotJson as error:
                named = "" if error.feature is None else f", column {error.feature!r}"
                raise FieldsError(
                    f"{shown}, {_told(lines, at)}{named}: {error}",
                    code="invalid-row",
                    record=first + at,
                    feature=error.feature,
                ) from None
        names = list(dict.fromkeys(name for row in rows for name in row))
        there |= dict.fromkeys(names)
        kept = [name for name in names if chosen is None or name in chosen]
        arrays = []
        for name in kept:
            values = [row.get(name) for row in rows]
            arrays.append(told_column(shown, name, values))
            if pa.types.is_floating(taken_apart(arrays[-1].type)[1]):
                numbers.look(name, first, values)
        first += len(rows)
        if arrays:
            yield named_batch(shown, arrays, kept)


def _too_long(shown: str, where: str, row: int, offset: int) -> FieldsError:
    limit = longest_row(DEFAULT_LIMITS)
    return FieldsError(
        f"{shown}, {where}: row too long (offset {offset}, limit {limit} bytes)",
        code="record-too-large",
        hint=Hint.of("remove the row, or shorten its cells"),
        record=row,
        offset=offset,
    )


def _refuse_twice(shown: str, names: list[str]) -> list[str]:
    twice = duplicate_names(names)
    if twice:
        raise FieldsError(
            f"{shown}: duplicate column {twice[0]!r}",
            code="duplicate-column",
            hint=Hint.of("rename a column"),
            feature=twice[0],
        )
    return names


def _csv_blocks(source: CsvSource) -> Iterator[CellRows]:
    return source.blocks()


def _json_blocks(source: JsonLinesSource) -> Iterator[tuple[Lines, bool]]:
    return source.lines()


def _row(at: int) -> str:
    return f"row {at}"


def _csv_line(where: Path | StoredFile, at: int) -> str:
    """In which line a row of a CSV file begins; the file is read again for that."""
    for rows in _csv_blocks(CsvSource(FileOrigin(where), DEFAULT_LIMITS)):
        if at < len(rows.filled):
            return rows.where(at)
        at -= len(rows.filled)
    return _row(at)


def _json_line(where: Path | StoredFile, at: int) -> str:
    for lines, _ in _json_blocks(JsonLinesSource(FileOrigin(where), DEFAULT_LIMITS)):
        if at < len(lines.filled):
            return _told(lines, at)
        at -= len(lines.filled)
    return _row(at)


def _told(lines: Lines, at: int) -> str:
    return f"line {lines.first + int(lines.filled[at]) + 1}"
