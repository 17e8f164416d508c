"""Rows as Python dicts, one dict per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.errors import SchemaMismatchError, SourceError
from shardline.hints import Hint
from shardline.schema.conversion import convert_values, measure_value
from shardline.schema.encoding import Reasons, Rows, build_frames
from shardline.schema.schema_finder import SchemaFinder
from shardline.sources.column_source import (
    format_row_as_json,
    infer_column,
    make_empty_batch,
)
from shardline.sources.source import CHUNK_BYTES, Source, check_first_chunk
from shardline.sources.source_mismatch import index_features_by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.schema.encoding import EncodedRows
    from shardline.schema.schema import Schema
    from shardline.sources.source import Chunk, SelfDescribingChunk
    from shardline.sources.source_identity import SourceIdentity
    from shardline.tfrecord.reader import Limits

_FEW_ROWS = 64
_MOST_ROWS = 8192


class RowSource(Source):
    """Dicts of features by name; None or an omitted name is an absent feature."""

    def __init__(self, origin: SourceIdentity, rows: Iterable[object], limits: Limits) -> None:
        super().__init__(origin, limits)
        self._rows = rows
        self._taken = False

    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Infer a schema that all rows fit; requires rows that can be read twice."""
        if not isinstance(self._rows, Sequence):
            raise SchemaMismatchError(
                f"{self.label}: cannot infer a schema from rows that can be read once",
                code="source-consumed",
                hint=Hint.of("declare the schema, or pass a list"),
            )
        finder = SchemaFinder(self.label, allow_rounding=allow_rounding)
        for _, rows in _group_rows(iter(self._rows)):
            add_rows(finder, self.label, [row for row in rows if _is_row(row)])
        return finder.schema()

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        index_features_by_name(self.label, schema)
        if self._taken and not isinstance(self._rows, Sequence):
            raise SourceError(
                f"{self.label}: rows were read before, and can be read once",
                code="source-consumed",
                hint=Hint.of("pass a new iterable, or a list"),
            )
        self._taken = True
        chunks = self._chunks(schema, start)
        yield from chunks if start else check_first_chunk(self.label, schema, chunks)

    def _chunks(self, schema: Schema, start: int) -> Iterator[SelfDescribingChunk]:
        for first, rows in _group_rows(islice(iter(self._rows), start, None)):
            numbers = np.arange(start + first, start + first + len(rows))
            yield DictChunk(schema, self._limits, rows, numbers)


def _group_rows(rows: Iterator[object]) -> Iterator[tuple[int, list[object]]]:
    """Yield groups of about one chunk, sized by the rows read so far."""
    first, count = 0, _FEW_ROWS
    while group := list(islice(rows, count)):
        yield first, group
        first += len(group)
        wide = max(
            sum(map(measure_value, islice(group, _FEW_ROWS))) // min(len(group), _FEW_ROWS), 1
        )
        count = min(max(CHUNK_BYTES // wide, 1), _MOST_ROWS)


@dataclass(frozen=True, slots=True)
class DictChunk:
    """Chunk of rows as dicts."""

    schema: Schema
    limits: Limits
    rows: Sequence[object]
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    position: int = 0

    @property
    def end(self) -> int:
        """Number of the first row after this chunk."""
        return int(self.numbers[-1]) + 1

    def frames(self) -> EncodedRows:
        """Return the framed records."""
        reasons: Reasons = {
            index: (None, f"is no dict, but {_format_article(row)}")
            for index, row in enumerate(self.rows)
            if not isinstance(row, Mapping)
        }
        rows = Rows(
            self.numbers,
            lambda index: f"row {self.numbers[index]}",
            lambda index: format_row_as_json(self.rows[index]),
            "json",
        )
        return encode_rows(self.schema, self.rows, rows, reasons, self.limits)

    def infer(self) -> Schema:
        """Infer the schema of the rows."""
        finder = SchemaFinder("", allow_rounding=True)
        add_rows(finder, "", [row for row in self.rows if _is_row(row)])
        return finder.schema()


def _format_article(row: object) -> str:
    return f"a value of type {type(row).__name__}"


def _is_row(row: object) -> bool:
    return isinstance(row, Mapping) and all(isinstance(name, str) for name in row)


def encode_rows(
    schema: Schema,
    rows: Sequence[object],
    row_labels: Rows,
    reasons: Reasons,
    limits: Limits,
    *,
    base64: bool = False,
) -> EncodedRows:
    """Encode dicts as records; rows already in `reasons` need not be dicts."""
    names = {feature.name for feature in schema.features}
    dicts: list[Mapping[object, object]] = []
    for index, row in enumerate(rows):
        fields: Mapping[object, object] = {}
        if index not in reasons and isinstance(row, Mapping):
            fields = row
            if not fields.keys() <= names:
                reasons[index] = _find_unknown_name(fields, names)
                fields = {}
        dicts.append(fields)
    columns = [
        (feature, convert_values(feature, [row.get(feature.name) for row in dicts], base64=base64))
        for feature in schema.features
    ]
    return build_frames(schema, columns, row_labels, reasons, limits.max_record_bytes)


def _find_unknown_name(fields: Mapping[object, object], names: set[str]) -> tuple[str | None, str]:
    unknown = [name for name in fields if name not in names]
    if isinstance(unknown[0], str):
        return unknown[0], "not in the schema"
    return None, f"has a name that is no text, but {_format_article(unknown[0])}"


def add_rows(
    finder: SchemaFinder,
    label: str,
    rows: Sequence[object],
    note: Callable[[pa.Schema], None] | None = None,
) -> None:
    """Add dicts to schema inference and pass their column types to `note`."""
    dicts = [row for row in rows if isinstance(row, Mapping)]
    names = list(dict.fromkeys(name for row in dicts for name in row))
    arrays = [
        infer_column(
            label,
            name,
            [row.get(name) for row in dicts],
            finder.rows,
            allow_rounding=finder.allow_rounding,
        )
        for name in names
    ]
    if dicts:
        batch = make_named_batch(label, arrays, names) if names else make_empty_batch(len(dicts))
        finder.add(batch)
        if note is not None:
            note(batch.schema)


def make_named_batch(
    label: str, arrays: Sequence[pa.Array], names: Sequence[str]
) -> pa.RecordBatch:
    """Return the columns as a batch; SchemaMismatchError if a name is not Unicode."""
    try:
        return pa.RecordBatch.from_arrays(arrays, names)
    except UnicodeEncodeError:
        raise SchemaMismatchError(
            f"{label}: invalid feature name: not Unicode",
            code="invalid-name",
            hint=Hint.of("rename the feature"),
        ) from None
