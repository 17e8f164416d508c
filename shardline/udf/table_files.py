"""Read a table, wherever it is: a file on a disk or in a store, or data in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline.errors import FieldsError, SourceError
from shardline.hints import Hint, Option
from shardline.schema.arrow_types import taken_apart
from shardline.schema.schema import Schema
from shardline.sources.choose import as_source, stored_file, told_format
from shardline.sources.columnar import ColumnarSource, Table, told_column
from shardline.sources.csv_rows import CsvSource
from shardline.sources.json_lines import JsonLinesSource
from shardline.sources.json_values import NotJson, parsed
from shardline.sources.memory import FrameColumns
from shardline.sources.mismatch import duplicate_names
from shardline.sources.origin import FileOrigin
from shardline.sources.parquet import PARQUET_MAGIC, FileColumns
from shardline.sources.rows import named_batch
from shardline.sources.text_blocks import longest_row
from shardline.sources.valid_batches import arrow_errors, valid_batches
from shardline.tfrecord.open_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf.tables import HeldTable, LargeNumbers, TableOfCells

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from shardline.schema.schema import Feature
    from shardline.sources.choose import Format
    from shardline.sources.columnar import Columns
    from shardline.sources.csv_rows import CellRows
    from shardline.sources.json_lines import Lines

    Chosen = Collection[str] | None
    """The columns that are wanted, None for all."""
    Names = dict[str, None]
    """The columns that were found, wanted or not, in order."""


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
