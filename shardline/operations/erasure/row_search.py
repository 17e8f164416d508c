"""Search of rows outside the committed shards, as far as they can be parsed.

A quarantined row is parsed as its source was when it was appended. Its features become the payload
of a record, which is decoded and matched like any record. So the spelling of a value makes no
difference: escapes, quotes, number formats and blanks are resolved before values are compared.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.errors import ShardlineError
from shardline.kernel.columns import from_arrow
from shardline.operations.erasure.condition import KeyCondition, UdfCondition
from shardline.operations.erasure.record_search import SearchView
from shardline.schema.arrow_types import column_of, schema_of, to_column
from shardline.schema.conversion import convert_values
from shardline.schema.encoding import KEPT_BYTES, RowFormat
from shardline.schema.logical_types import Category, Text
from shardline.sources.csv_cells import fit_cells
from shardline.sources.csv_source import CsvSyntaxError, parse_cells
from shardline.sources.json_source import JsonSyntaxError, parse_json_object
from shardline.sources.source_format import infer_format_from_name
from shardline.udf.udf_result import BatchMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.kernel.types import Buffer, IntArray
    from shardline.operations.erasure.condition import Condition, RecordMatcher
    from shardline.schema.conversion import ConvertedColumn
    from shardline.schema.schema import Feature, Schema

RowVerdict: TypeAlias = "bool | None"
"""True if a row matches, False if not, None if that is unknown."""

_DAMAGE = re.compile(r"offset \d+", re.ASCII)
_TYPED = re.compile(r"[A-Za-z_]\w*: (.*)", re.DOTALL)
"""A value without a JSON form, as `as_json` writes it."""
_MOST_SPELLINGS = 64


@dataclass(frozen=True, slots=True)
class QuarantineLine:
    """A line of a quarantine file. Lines of older releases have no `format` and `columns`."""

    source: str
    row: int
    where: str
    feature: str | None
    content: bytes
    format: RowFormat | None = None
    columns: tuple[str, ...] = ()

    @property
    def is_damage(self) -> bool:
        """Return True for bytes of a damaged file, which need not be a row."""
        return _DAMAGE.fullmatch(self.where) is not None

    @property
    def is_file(self) -> bool:
        """Return True for a file of a folder source, whose name is in `where`."""
        return self.where.startswith("file ")

    @property
    def is_cut(self) -> bool:
        """Return True if the quarantine may have kept only the beginning of the row."""
        return len(self.content) >= KEPT_BYTES


def parse_line(line: bytes) -> QuarantineLine | None:
    """Parse a line of a quarantine file; None if it is damaged."""
    try:
        payload = json.loads(line)
        if "content" in payload:
            content = str(payload["content"]).encode()
        else:
            content = base64.b64decode(payload["content_base64"], validate=True)
        row_format = payload.get("format")
        return QuarantineLine(
            str(payload["source"]),
            int(payload["row"]),
            str(payload["where"]),
            payload.get("feature"),
            content,
            row_format if row_format in get_args(RowFormat) else None,
            tuple(map(str, payload.get("columns", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def guess_format(row: QuarantineLine, named: str | None, schema: Schema) -> RowFormat | None:
    """Return the format of a row's content; `named` is the format option of the append."""
    if row.format is not None:
        return row.format
    source_format = named or infer_format_from_name(row.source)
    # A batch in memory may have any name, and its rows were written as JSON.
    row_of_json = _parse_object(row.content)
    known = {feature.name for feature in schema.features}
    if row_of_json is not None and (source_format != "csv" or row_of_json.keys() <= known):
        return "jsonl" if source_format == "jsonl" else "json"
    if source_format in {"csv", "jsonl", "tfrecord"}:
        return source_format  # type: ignore[return-value]
    return None


def _parse_object(content: bytes) -> dict[str, object] | None:
    try:
        return parse_json_object(content)
    except JsonSyntaxError:
        return None


class RowSearch:
    """Search of rows that have the features of one view of a version.

    Close it after use, because a UDF may run in another process. If the condition does not fit the
    features, the verdict on every row is unknown.
    """

    def __init__(self, schema: Schema, view: SearchView, condition: Condition) -> None:
        self._schema = schema
        self._by_key = isinstance(condition, KeyCondition)
        # Bytes are compared unchanged: invalid UTF-8 may be why a row was quarantined.
        typed = isinstance(condition, UdfCondition)
        own = tuple(feature if typed else _remove_text_type(feature) for feature in view.features)
        self._matcher: RecordMatcher | None = None
        self._features: list[Feature] = []
        try:
            self._matcher = condition.bind(SearchView(own, view.names).schema(schema.payload))
        except ShardlineError:
            return
        named = dict(zip(view.names, own, strict=True))
        # A quarantined row may lack a required feature.
        reads = [replace(feature, required=False) for feature in self._matcher.reads]
        self._types = schema_of(reads)
        self._features = [replace(named[feature.name], required=False) for feature in reads]
        self._columns = [column_of(feature) for feature in self._features]
        self._known = {feature.key for feature in schema.features}

    def close(self) -> None:
        """Stop background work of the condition."""
        if self._matcher is not None:
            self._matcher.close()

    def match_records(
        self, data: Buffer, starts: IntArray, lengths: IntArray
    ) -> tuple[list[RowVerdict], list[bool]]:
        """Return the verdict on each payload, and whether it lacks a feature of the condition."""
        if self._matcher is None or not len(starts):
            return [None] * len(starts), [True] * len(starts)
        try:
            decoded = kernel.decode(data, starts, lengths, self._columns)
            arrays = list(map(to_column, self._features, decoded))
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._types)
            matches = self._matcher.get_mask(batch).tolist()
        except (ShardlineError, BatchMismatchError):
            if len(starts) == 1:
                return [None], [True]
            middle = len(starts) // 2
            first = self.match_records(data, starts[:middle], lengths[:middle])
            second = self.match_records(data, starts[middle:], lengths[middle:])
            return first[0] + second[0], first[1] + second[1]
        lacking = np.zeros(len(starts), np.bool_)
        for array in arrays:
            lacking |= np.asarray(array.is_null())
        return matches, lacking.tolist()

    def match_rows(
        self, rows: Sequence[tuple[QuarantineLine, RowFormat | None]]
    ) -> list[RowVerdict]:
        """Return the verdict on each quarantined row."""
        verdicts: list[RowVerdict] = [None] * len(rows)
        matchers = {
            "jsonl": self._match_json,
            "json": self._match_json,
            "csv": self._match_csv,
            "tfrecord": self._match_payloads,
            None: self._match_unknown,
        }
        for row_format, match in matchers.items() if self._matcher is not None else ():
            indices = [index for index, (_, known) in enumerate(rows) if known == row_format]
            lines = [rows[index][0] for index in indices]
            for index, row, verdict in zip(
                indices, lines, match(lines) if lines else (), strict=True
            ):
                verdicts[index] = None if verdict is False and row.is_cut else verdict
        return verdicts

    def _match_json(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        objects = [_parse_object(row.content) for row in rows]
        verdicts = self._match_values(
            [
                {} if row is None else {name: _decode_base64(row[name]) for name in row}
                for row in objects
            ]
        )
        known = {name for _, name in self._known}
        for index, row in enumerate(objects):
            if row is None or (verdicts[index] is False and self._may_be_misnamed(row, known)):
                verdicts[index] = None
        return verdicts

    def _may_be_misnamed(self, row: Mapping[str, object], known: set[str]) -> bool:
        """Return True if the row lacks a feature and has an unknown one."""
        lacks = any(row.get(feature.name) is None for feature in self._features)
        return lacks and not row.keys() <= known

    def _match_values(self, rows: Sequence[Mapping[str, object]]) -> list[RowVerdict]:
        fitted = [
            convert_values(feature, [row.get(feature.name) for row in rows], base64=True)
            for feature in self._features
        ]
        verdicts = self._match_columns(fitted, len(rows))
        unfit = {index for column in fitted for index in column.bad}
        for index, row in enumerate(rows):
            if index in unfit or any(_is_typed(row.get(f.name)) for f in self._features):
                verdict = None if index in unfit else verdicts[index]
                verdicts[index] = self._matches_converted(row) or verdict
        return verdicts

    def _matches_converted(self, row: Mapping[str, object]) -> bool:
        """Return True if the row matches with values converted to the kinds of their features."""
        spelled = [list(_iter_spellings(f, row.get(f.name))) or [None] for f in self._features]
        for values in islice(product(*spelled), _MOST_SPELLINGS):
            fitted = [
                convert_values(feature, [value], base64=True)
                for feature, value in zip(self._features, values, strict=True)
            ]
            if not any(column.bad for column in fitted) and self._match_columns(fitted, 1)[0]:
                return True
        return False

    def _match_csv(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        verdicts: list[RowVerdict] = [None] * len(rows)
        by_header: dict[tuple[str, ...], dict[int, list[str]]] = {}
        for index, row in enumerate(rows):
            cells = _parse_cells(row.content)
            if cells is None:
                continue
            if not row.columns:
                verdicts[index] = self._match_cells(row, cells)
            elif len(row.columns) == len(cells):
                by_header.setdefault(row.columns, {})[index] = cells
        for columns, lines in by_header.items():
            arrays = map(pa.array, zip(*lines.values(), strict=True))
            texts = dict(zip(columns, arrays, strict=True))
            absent = pa.nulls(len(lines), pa.string())
            fitted = [fit_cells(f, texts.get(f.name, absent)) for f in self._features]
            matches = self._match_columns(fitted, len(lines))
            unfit = {position for column in fitted for position in column.bad}
            for position, index in enumerate(lines):
                verdicts[index] = None if position in unfit else matches[position]
        return verdicts

    def _match_cells(self, row: QuarantineLine, cells: Sequence[str]) -> RowVerdict:
        """Return False if no cell of a row without its header can hold a value of the key."""
        names = [feature.name for feature in self._schema.features]
        if not self._by_key or len(cells) != len(names):
            return None
        (key,) = self._features
        fitted = fit_cells(key, pa.array(cells, pa.string()))
        if any(self._match_columns([fitted], len(cells))):
            return None
        # The first feature that does not fit quarantines a row: earlier ones fit.
        fits = row.feature in names and names.index(str(row.feature)) > names.index(key.name)
        return False if fits or not fitted.bad else None

    def _match_payloads(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        data = b"".join(row.content for row in rows)
        lengths = np.array([len(row.content) for row in rows], np.int64)
        starts = np.cumsum(lengths) - lengths
        verdicts, lacking = self.match_records(data, starts, lengths)
        for index, row in enumerate(rows):
            if verdicts[index] is False and lacking[index] and self._has_unknown(row.content):
                verdicts[index] = None
        return verdicts

    def _has_unknown(self, payload: bytes) -> bool:
        keys: set[tuple[bool, str]] = set()
        span = (np.zeros(1, np.int64), np.array([len(payload)], np.int64))
        try:
            kernel.decode(payload, *span, self._columns, keys)
        except ShardlineError:
            return True
        return not keys <= self._known

    def _match_unknown(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        """Return True for rows that match as payloads; the others are unknown."""
        return [verdict or None for verdict in self._match_payloads(rows)]

    def _match_columns(self, fitted: Sequence[ConvertedColumn], count: int) -> list[RowVerdict]:
        columns = zip(self._features, fitted, strict=True)
        arrays = [from_arrow(feature.name, column.array) for feature, column in columns]
        payloads = kernel.encode(arrays, count)
        return self.match_records(payloads.data, payloads.starts, payloads.lengths)[0]


def _remove_text_type(feature: Feature) -> Feature:
    text = feature.kind == "bytes" and isinstance(feature.meaning, Text | Category)
    return replace(feature, meaning=None) if text else feature


def _parse_cells(content: bytes) -> list[str] | None:
    try:
        return parse_cells(content.decode())
    except (CsvSyntaxError, UnicodeDecodeError):
        return None


def _decode_base64(value: object) -> object:
    """Return the bytes that `as_json` wrote in base64."""
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(str(value["base64"]), validate=True)
        except ValueError:
            return value
    return value


def _is_typed(value: object) -> bool:
    return isinstance(value, str) and _TYPED.fullmatch(value) is not None


def _iter_spellings(feature: Feature, value: Any) -> Iterator[object]:  # noqa: ANN401 - as JSON has it
    """Yield the possible values of a value in another form."""
    if value is None:
        return
    if feature.shape or feature.sequence or isinstance(value, list | dict):
        yield value
        return
    if isinstance(value, str):
        typed = _TYPED.fullmatch(value)
        texts = [value] if typed is None else [value, typed[1]]
        if feature.kind == "bytes":
            yield from texts
        for text in texts if feature.kind != "bytes" else ():
            yield from _iter_numbers(text, whole=feature.kind == "int64")
    elif feature.kind == "bytes" and not isinstance(value, bytes):
        yield from (json.dumps(value), str(value))
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))
    elif isinstance(value, bool):
        yield int(value)
    else:
        yield value


def _iter_numbers(text: str, *, whole: bool) -> Iterator[int | float]:
    try:
        number = float(text)
        yield int(text) if text.strip().lstrip("+-").isdigit() else number
    except (ValueError, OverflowError):
        return
    if whole and number.is_integer():
        yield int(number)
