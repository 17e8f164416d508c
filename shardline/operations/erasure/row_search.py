"""Ask a condition of rows outside the committed shards, as far as they can be parsed.

A refused row is parsed as its source was when it was appended. Its features become the payload of
a record, which is then decoded and asked as any record is. So the spelling of a value makes no
difference: escapes, quotes, number formats and blanks are gone before values are compared.
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
        told = json.loads(line)
        if "content" in told:
            content = str(told["content"]).encode()
        else:
            content = base64.b64decode(told["content_base64"], validate=True)
        named = told.get("format")
        return QuarantineLine(
            str(told["source"]),
            int(told["row"]),
            str(told["where"]),
            told.get("feature"),
            content,
            named if named in get_args(RowFormat) else None,
            tuple(map(str, told.get("columns", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def guess_format(row: QuarantineLine, named: str | None, schema: Schema) -> RowFormat | None:
    """Return the format of a row's content; `named` is the one that the append was given."""
    if row.format is not None:
        return row.format
    told = named or infer_format_from_name(row.source)
    # A batch in memory may have any name, and its rows were written as JSON.
    row_of_json = _json_object(row.content)
    known = {feature.name for feature in schema.features}
    if row_of_json is not None and (told != "csv" or row_of_json.keys() <= known):
        return "jsonl" if told == "jsonl" else "json"
    return told if told in {"csv", "jsonl", "tfrecord"} else None  # type: ignore[return-value]


def _json_object(content: bytes) -> dict[str, object] | None:
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
        own = tuple(feature if typed else _plain(feature) for feature in view.features)
        self._chooser: RecordMatcher | None = None
        self._features: list[Feature] = []
        try:
            self._chooser = condition.bind(SearchView(own, view.asked).schema(schema.payload))
        except ShardlineError:
            return
        named = dict(zip(view.asked, own, strict=True))
        # A quarantined row may lack a required feature.
        asked = [replace(feature, required=False) for feature in self._chooser.reads]
        self._types = schema_of(asked)
        self._features = [replace(named[one.name], required=False) for one in asked]
        self._columns = [column_of(feature) for feature in self._features]
        self._known = {feature.key for feature in schema.features}

    def close(self) -> None:
        """Stop background work of the condition."""
        if self._chooser is not None:
            self._chooser.close()

    def of_records(
        self, data: Buffer, starts: IntArray, lengths: IntArray
    ) -> tuple[list[RowVerdict], list[bool]]:
        """Return the verdict on each payload, and whether it lacks a feature of the condition."""
        if self._chooser is None or not len(starts):
            return [None] * len(starts), [True] * len(starts)
        try:
            decoded = kernel.decode(data, starts, lengths, self._columns)
            arrays = [to_column(*one) for one in zip(self._features, decoded, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._types)
            meant = self._chooser.get_mask(batch).tolist()
        except (ShardlineError, BatchMismatchError):
            if len(starts) == 1:
                return [None], [True]
            middle = len(starts) // 2
            first = self.of_records(data, starts[:middle], lengths[:middle])
            second = self.of_records(data, starts[middle:], lengths[middle:])
            return first[0] + second[0], first[1] + second[1]
        lacking = np.zeros(len(starts), np.bool_)
        for array in arrays:
            lacking |= np.asarray(array.is_null())
        return meant, lacking.tolist()

    def of_rows(self, rows: Sequence[tuple[QuarantineLine, RowFormat | None]]) -> list[RowVerdict]:
        """Return the verdict on each quarantined row."""
        found: list[RowVerdict] = [None] * len(rows)
        readers = {
            "jsonl": self._of_json,
            "json": self._of_json,
            "csv": self._of_csv,
            "tfrecord": self._of_payloads,
            None: self._of_unknown,
        }
        for kind, reader in readers.items():
            places = [at for at, (row, named) in enumerate(rows) if named == kind]
            some = [rows[at][0] for at in places]
            verdicts = reader(some) if self._chooser is not None and some else [None] * len(some)
            for at, row, verdict in zip(places, some, verdicts, strict=True):
                found[at] = None if verdict is False and row.is_cut else verdict
        return found

    def _of_json(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        objects = [_json_object(row.content) for row in rows]
        verdicts = self._of_values(
            [
                {} if one is None else {k: _decode_base64(v) for k, v in one.items()}
                for one in objects
            ]
        )
        known = {name for _, name in self._known}
        for at, one in enumerate(objects):
            if one is None or (verdicts[at] is False and self._may_be_misnamed(one, known)):
                verdicts[at] = None
        return verdicts

    def _may_be_misnamed(self, row: Mapping[str, object], known: set[str]) -> bool:
        """Return True if the row lacks a feature and has an unknown one."""
        lacks = any(row.get(feature.name) is None for feature in self._features)
        return lacks and not row.keys() <= known

    def _of_values(self, rows: Sequence[Mapping[str, object]]) -> list[RowVerdict]:
        fitted = [
            convert_values(feature, [row.get(feature.name) for row in rows], base64=True)
            for feature in self._features
        ]
        verdicts = self._of_fitted(fitted, len(rows))
        unfit = {at for one in fitted for at in one.bad}
        for at, row in enumerate(rows):
            if at in unfit or any(_is_typed(row.get(f.name)) for f in self._features):
                verdict = None if at in unfit else verdicts[at]
                verdicts[at] = self._is_meant_otherwise_spelled(row) or verdict
        return verdicts

    def _is_meant_otherwise_spelled(self, row: Mapping[str, object]) -> bool:
        """Return True if the row matches with values converted to the kinds of their features."""
        spelled = [list(_spellings(f, row.get(f.name))) or [None] for f in self._features]
        for values in islice(product(*spelled), _MOST_SPELLINGS):
            fitted = [
                convert_values(feature, [value], base64=True)
                for feature, value in zip(self._features, values, strict=True)
            ]
            if not any(one.bad for one in fitted) and self._of_fitted(fitted, 1)[0]:
                return True
        return False

    def _of_csv(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        verdicts: list[RowVerdict] = [None] * len(rows)
        by_header: dict[tuple[str, ...], dict[int, list[str]]] = {}
        for at, row in enumerate(rows):
            found = _cells(row.content)
            if found is None:
                continue
            if not row.columns:
                verdicts[at] = self._of_cells(row, found)
            elif len(row.columns) == len(found):
                by_header.setdefault(row.columns, {})[at] = found
        for columns, some in by_header.items():
            texts = dict(zip(columns, map(pa.array, zip(*some.values(), strict=True)), strict=True))
            absent = pa.nulls(len(some), pa.string())
            fitted = [fit_cells(f, texts.get(f.name, absent)) for f in self._features]
            asked = self._of_fitted(fitted, len(some))
            unfit = {place for one in fitted for place in one.bad}
            for place, at in enumerate(some):
                verdicts[at] = None if place in unfit else asked[place]
        return verdicts

    def _of_cells(self, row: QuarantineLine, found: Sequence[str]) -> RowVerdict:
        """Return False if no cell of a row without its header can hold a value of the key."""
        names = [feature.name for feature in self._schema.features]
        if not self._by_key or len(found) != len(names):
            return None
        (key,) = self._features
        fitted = fit_cells(key, pa.array(found, pa.string()))
        if any(self._of_fitted([fitted], len(found))):
            return None
        # The first feature that does not fit quarantines a row: earlier ones fit.
        fits = row.feature in names and names.index(str(row.feature)) > names.index(key.name)
        return False if fits or not fitted.bad else None

    def _of_payloads(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        data = b"".join(row.content for row in rows)
        lengths = np.array([len(row.content) for row in rows], np.int64)
        starts = np.cumsum(lengths) - lengths
        verdicts, lacking = self.of_records(data, starts, lengths)
        for at, row in enumerate(rows):
            if verdicts[at] is False and lacking[at] and self._has_unknown(row.content):
                verdicts[at] = None
        return verdicts

    def _has_unknown(self, payload: bytes) -> bool:
        met: set[tuple[bool, str]] = set()
        span = (np.zeros(1, np.int64), np.array([len(payload)], np.int64))
        try:
            kernel.decode(payload, *span, self._columns, met)
        except ShardlineError:
            return True
        return not met <= self._known

    def _of_unknown(self, rows: Sequence[QuarantineLine]) -> list[RowVerdict]:
        """Return True for rows that match as payloads; the others are unknown."""
        return [verdict or None for verdict in self._of_payloads(rows)]

    def _of_fitted(self, fitted: Sequence[ConvertedColumn], count: int) -> list[RowVerdict]:
        columns = zip(self._features, fitted, strict=True)
        made = kernel.encode([from_arrow(f.name, one.array) for f, one in columns], count)
        return self.of_records(made.data, made.starts, made.lengths)[0]


def _plain(feature: Feature) -> Feature:
    text = feature.kind == "bytes" and isinstance(feature.meaning, Text | Category)
    return replace(feature, meaning=None) if text else feature


def _cells(content: bytes) -> list[str] | None:
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


def _spellings(feature: Feature, value: Any) -> Iterator[object]:  # noqa: ANN401 - as JSON has it
    """Yield the values that a value of another form may stand for."""
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
            yield from _numbers(text, whole=feature.kind == "int64")
    elif feature.kind == "bytes" and not isinstance(value, bytes):
        yield from (json.dumps(value), str(value))
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))
    elif isinstance(value, bool):
        yield int(value)
    else:
        yield value


def _numbers(text: str, *, whole: bool) -> Iterator[int | float]:
    try:
        number = float(text)
        yield int(text) if text.strip().lstrip("+-").isdigit() else number
    except (ValueError, OverflowError):
        return
    if whole and number.is_integer():
        yield int(number)
