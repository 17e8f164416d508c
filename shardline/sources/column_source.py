"""Validated column batches from outside, with pyarrow errors translated to Shardline errors."""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from shardline.errors import SchemaMismatchError, ShardlineError, SourceError
from shardline.hints import Hint
from shardline.kernel.types import LARGEST_MAX_RECORD_BYTES
from shardline.schema.arrow_validation import find_fault, format_arrow_error
from shardline.schema.conversion import MISMATCH, column_of, convert_to_feature, convert_values
from shardline.schema.encoding import EncodedRows, QuarantinedRow, Rows, build_frames
from shardline.schema.exact_numbers import has_large_floats, validate_exact
from shardline.schema.schema_finder import SchemaFinder
from shardline.sources.source import CHUNK_BYTES, Source
from shardline.sources.source_mismatch import validate_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.schema.conversion import ConvertedColumn
    from shardline.schema.schema import Feature, Schema
    from shardline.sources.source import Chunk
    from shardline.sources.source_identity import SourceIdentity
    from shardline.tfrecord.reader import Limits


_RAISED = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)
"""Exceptions that pyarrow raises for unreadable data."""
GET_AGAIN_HINT = Hint.of("get the data again from its origin, or write it again")


def iter_valid_batches(label: str, batches: Iterable[SourceBatch]) -> Iterator[SourceBatch]:
    """Yield the batches after validating their columns; SourceError if they are corrupt."""
    with translate_arrow_errors(label):
        for batch in batches:
            validate_batch(label, batch.rows, batch.first)
            yield batch


def validate_batch(label: str, rows: pa.RecordBatch, first: int) -> None:
    """Raise SourceError if a column exceeds its buffers; `first` is the first row number."""
    fault = find_fault(rows.columns)
    if fault is not None:
        column = rows.schema.names[fault.position]
        raise make_corrupt_columns_error(label, column, fault.detail, record=first)


@contextmanager
def translate_arrow_errors(label: str, feature: str | None = None) -> Iterator[None]:
    """Translate pyarrow exceptions to a SourceError without values."""
    try:
        yield
    except ShardlineError:
        raise
    except _RAISED as error:
        named = "" if feature is None else f", column {feature!r}"
        raise SourceError(
            f"{label}{named}: cannot read: {format_arrow_error(error)}",
            hint=GET_AGAIN_HINT,
            feature=feature,
        ) from error


def make_corrupt_columns_error(
    label: str,
    column: str | None,
    detail: str,
    *,
    part: int | None = None,
    record: int | None = None,
) -> SourceError:
    """Return the error for columns that are not valid Arrow data.

    `part` is the number of the row group or record batch, `record` the first row of the batch.
    """
    named = "" if column is None else f", column {column!r}"
    where = "" if part is None else f", part {part}"
    return SourceError(
        f"{label}{where}{named}: corrupt columns: {detail}",
        code="corrupt-columns",
        hint=GET_AGAIN_HINT,
        record=record,
        feature=column,
    )


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows as read; `first` is the number of the first row.

    Columns of Python values have no Arrow type and are kept separately, in `objects`.
    """

    rows: pa.RecordBatch
    first: int
    position: int = 0
    objects: Mapping[str, Sequence[object]] = field(default_factory=dict)

    def slice(self, start: int, count: int | None = None) -> SourceBatch:
        """Return `count` rows from `start`, or all remaining rows."""
        end = None if count is None else start + count
        objects = {name: values[start:end] for name, values in self.objects.items()}
        rows = self.rows.slice(start, count)
        return SourceBatch(rows, self.first + start, self.position, objects)

    def whole(self, label: str, *, allow_rounding: bool = False) -> pa.RecordBatch:
        """Return all columns, with inferred Arrow types for Python values."""
        rows = self.rows
        for name, values in self.objects.items():
            column = infer_column(label, name, values, self.first, allow_rounding=allow_rounding)
            rows = rows.append_column(name, column)
        return rows


class ColumnReader(Protocol):
    """Reader of typed columns, batch by batch."""

    def types(self) -> pa.Schema:
        """Return the type of each column, null if it has none."""
        ...

    def batches(self, start: int, schema: Schema | None = None) -> Iterator[SourceBatch]:
        """Yield the rows from number `start` in order; `schema` is the target schema.

        Without a schema, rows are read for inference, and bytes values may be empty.
        """
        ...


class ColumnSource(Source):
    """Source whose rows are read as columns of known types."""

    def __init__(self, origin: SourceIdentity, columns: ColumnReader, limits: Limits) -> None:
        super().__init__(origin, limits)
        self._columns = columns

    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Infer a schema that all rows fit, from the column types."""
        finder = SchemaFinder(self.label, allow_rounding=allow_rounding)
        for batch in iter_valid_batches(self.label, self._columns.batches(0)):
            with translate_arrow_errors(self.label):
                finder.add(batch.whole(self.label, allow_rounding=allow_rounding))
        return finder.schema()

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        with translate_arrow_errors(self.label):
            types = self._columns.types()
        validate_types(self.label, schema, types)
        for batch in iter_valid_batches(self.label, self._columns.batches(start, schema)):
            for part in split_batch(batch):
                yield ColumnChunk(schema, self._limits, part, self.label)


def split_batch(batch: SourceBatch) -> Iterator[SourceBatch]:
    """Yield the rows in parts of about one chunk each."""
    rows = batch.rows.num_rows
    if not rows:
        return
    step = max(1, rows * CHUNK_BYTES // max(batch.rows.nbytes, 1))
    for start in range(0, rows, step):
        part = batch.slice(start, step)
        if part.rows.num_rows > 1 and part.rows.nbytes > 4 * CHUNK_BYTES:
            half = part.rows.num_rows // 2  # A few rows hold most of the bytes.
            yield from split_batch(part.slice(0, half))
            yield from split_batch(part.slice(half))
        else:
            yield part


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """Chunk of rows in columns."""

    schema: Schema
    limits: Limits
    batch: SourceBatch
    label: str = "rows"

    @property
    def position(self) -> int:
        """Bytes of the source read so far."""
        return self.batch.position

    @property
    def end(self) -> int:
        """Number of the first row after this chunk."""
        rows: int = self.batch.rows.num_rows
        return self.batch.first + rows

    def frames(self) -> EncodedRows:
        """Return the framed records."""
        first, size = self.batch.first, self.batch.rows.nbytes
        if self.end - first == 1 and size > LARGEST_MAX_RECORD_BYTES:
            detail = f"takes {size} bytes, over the format's limit"
            refused = QuarantinedRow(first, f"row {first}", None, detail, is_too_large=True)
            return EncodedRows.quarantine(refused)
        names = set(self.batch.rows.schema.names) | self.batch.objects.keys()
        columns = [(f, self._convert(f)) for f in self.schema.features if f.name in names]
        rows = Rows(
            np.arange(first, self.end), lambda row: f"row {first + row}", self._content, "json"
        )
        return build_frames(self.schema, columns, rows, {}, self.limits.max_record_bytes)

    def _convert(self, feature: Feature) -> ConvertedColumn:
        if feature.name in self.batch.objects:
            return convert_values(feature, self.batch.objects[feature.name])
        with translate_arrow_errors(self.label, feature.name):
            return convert_to_feature(feature, self.batch.rows.column(feature.name))

    def _content(self, row: int) -> bytes:
        part = self.batch.slice(row, 1)
        values = {
            name: _get_python_value(column)
            for name, column in zip(part.rows.schema.names, part.rows.columns, strict=True)
        }
        return format_row_as_json(
            {**values, **{name: objects[0] for name, objects in part.objects.items()}}
        )


def _get_python_value(column: pa.Array) -> object:
    """Return the only value of a column; bytes for text that is not UTF-8."""
    try:
        return column[0].as_py()
    except UnicodeDecodeError:
        with suppress(pa.ArrowException):
            return column.cast(pa.binary())[0].as_py()
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
        pass
    return f"unreadable value of type {column.type}"


def convert_column(label: str, name: str, values: Sequence[object]) -> pa.Array:
    """Convert Python values to a column; SchemaMismatchError if no kind holds all of them."""
    try:
        return column_of(values)
    except MISMATCH:
        raise SchemaMismatchError(
            f"{label}: cannot infer the kind of feature {name!r} (mixed or unsupported values)",
            code="unknown-kind",
            hint=Hint.of("declare the schema, so that rows that do not fit are reported"),
            feature=name,
        ) from None


def infer_column(
    label: str, name: str, values: Sequence[object], first: int, *, allow_rounding: bool
) -> pa.Array:
    """Convert Python values to a column for inference; `first` is the first row number.

    Raises SchemaMismatchError if no kind holds all values, or if an integer would lose digits.
    """
    try:
        column = convert_column(label, name, values)
    except SchemaMismatchError:
        if not allow_rounding:
            validate_exact(label, name, values, first)
        raise
    if not allow_rounding and has_large_floats(column):
        validate_exact(label, name, values, first)
    return column


def make_empty_batch(rows: int) -> pa.RecordBatch:
    """Return a batch of rows without columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["-"]).select([])


def format_row_as_json(row: object) -> bytes:
    """Format a row as JSON for people; bytes that are not text become base64."""
    return json.dumps(row, default=_encode_json_value, ensure_ascii=False, skipkeys=True).encode(
        "utf-8", "backslashreplace"
    )


def _encode_json_value(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return f"{type(value).__name__}: {value}"


class ArrowTable:
    """Columns of an in-memory table, or of record batches from a reader."""

    def __init__(self, table: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        self._table = table
        self._taken = False

    def types(self) -> pa.Schema:
        """Return the type of each column."""
        return self._table.schema

    def batches(self, start: int, _schema: Schema | None = None) -> Iterator[SourceBatch]:
        """Yield the rows from number `start`."""
        first = 0
        for rows in self._whole():
            skipped = min(max(start - first, 0), rows.num_rows)
            if skipped < rows.num_rows:
                yield SourceBatch(rows.slice(skipped), first + skipped)
            first += rows.num_rows

    def _whole(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self._table, pa.RecordBatch):
            yield self._table
        elif isinstance(self._table, pa.Table):
            yield from self._table.to_batches()
        else:
            if self._taken:
                raise SourceError(
                    "RecordBatchReader: read before, and can be read once",
                    code="source-consumed",
                    hint=Hint.of("pass a new reader"),
                )
            self._taken = True
            yield from self._table


class SinglePassSource(ColumnSource):
    """Source whose rows can be read only once and therefore need a declared schema."""

    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Raise SchemaMismatchError: inference would leave no rows to append."""
        del allow_rounding
        raise SchemaMismatchError(
            f"{self.label}: cannot infer a schema from rows that can be read once",
            code="source-consumed",
            hint=Hint.of("declare the schema, or pass a table"),
        )
