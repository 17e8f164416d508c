"""Strict JSON parsing: ambiguous input is rejected, and no digits are lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from shardline.errors import SourceError
from shardline.hints import Hint
from shardline.kernel.types import LARGEST_OFFSET
from shardline.schema.arrow_types import get_depth
from shardline.schema.conversion import convert_to_feature
from shardline.schema.encoding import EncodedRows, Reasons, Rows, build_frames, quarantine_long_row
from shardline.schema.exact_numbers import (
    INT64,
    LARGEST_EXACT,
    has_large_floats,
    parse_json_fraction,
    parse_json_integer,
)
from shardline.schema.logical_types import Array
from shardline.schema.schema_finder import SchemaFinder
from shardline.sources.row_source import add_rows, encode_rows
from shardline.sources.source import JoinableSource, JoinedChunk, SmallFile, check_first_chunk
from shardline.sources.source_mismatch import index_features_by_name
from shardline.sources.text_blocks import BYTE_ORDER_MARK, get_max_text_row_bytes, iter_text_blocks

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import IntArray
    from shardline.schema.schema import Feature, Schema
    from shardline.sources.source import Chunk, SelfDescribingChunk
    from shardline.sources.source_identity import FileIdentity
    from shardline.tfrecord.reader import Limits


class JsonSyntaxError(Exception):
    """Reason why text is not valid JSON; `feature` is the affected feature, if any."""

    def __init__(self, detail: str, feature: str | None = None) -> None:
        super().__init__(detail)
        self.feature = feature


def parse_json_object(text: bytes) -> dict[str, object]:
    """Parse a JSON object; JsonSyntaxError if the text is invalid."""
    try:
        value = _decode_json(text.decode())
    except UnicodeDecodeError:
        raise JsonSyntaxError("is not UTF-8 text") from None
    if isinstance(value, _DuplicateName):
        raise JsonSyntaxError("is there twice", value.name)
    if not isinstance(value, dict):
        raise JsonSyntaxError("is no JSON object")
    return value


def parse_json_list(text: str) -> list[object]:
    """Parse a JSON list; JsonSyntaxError if the text is invalid."""
    try:
        value = _decode_json(text)
    except JsonSyntaxError:
        value = None
    if not isinstance(value, list):
        raise JsonSyntaxError("holds text that is no JSON list")
    return value


def _decode_json(text: str) -> object:
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        problem = error.msg.partition(":")[0]
        raise JsonSyntaxError(f"is no JSON: {problem}, at character {error.pos + 1}") from None
    except RecursionError:
        raise JsonSyntaxError("is no JSON that can be read: it is nested too deep") from None
    return value


class _DuplicateName:
    """Placeholder for an object with a duplicate name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _make_object(pairs: list[tuple[str, object]]) -> object:
    content = dict(pairs)
    if len(content) == len(pairs):
        return content
    seen: set[str] = set()
    return _DuplicateName(next(name for name, _ in pairs if name in seen or seen.add(name)))  # type: ignore[func-returns-value]


_DECODER = json.JSONDecoder(
    object_pairs_hook=_make_object, parse_float=parse_json_fraction, parse_int=parse_json_integer
)


_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_FEW_BYTES = 4096
"""Below this size, Python parses text faster than Arrow's reader starts."""


class JsonLinesSource(JoinableSource):
    """JSON lines file, plain or gzip-compressed."""

    def __init__(self, origin: FileIdentity, limits: Limits) -> None:
        super().__init__(origin, limits)
        self._file = origin

    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Infer a schema that all rows fit, skipping lines that are not JSON objects."""
        finder = SchemaFinder(self.label, allow_rounding=allow_rounding)
        known: pa.Schema | None = None

        def note(types: pa.Schema) -> None:
            nonlocal known
            known = types

        for lines, too_long in self.lines():
            table = None if too_long or known is None else lines.read(known)
            # Arrow rounds integers next to fractions; Python keeps all digits.
            if table is not None and not any(map(has_large_floats, table.columns)):
                finder.add(table)
            elif not too_long:
                add_rows(finder, self.label, [row for row in lines.rows() if row is not None], note)
        return finder.schema()

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        index_features_by_name(self.label, schema)
        chunks = self._chunks(schema, start)
        yield from chunks if start else check_first_chunk(self.label, schema, chunks)

    def _chunks(self, schema: Schema, start: int) -> Iterator[SelfDescribingChunk]:
        for lines, too_long in self.lines():
            if lines.first + lines.count > start:
                yield JsonLinesChunk(
                    schema, self._limits, lines.from_line(start), too_long=too_long
                )

    def _small(self, data: bytes) -> SmallFile | None:
        data = data.removeprefix(BYTE_ORDER_MARK)
        if len(data) > get_max_text_row_bytes(self._limits) or data.lstrip()[:1] in {b"", b"["}:
            return None
        return SmallFile(self._limits, data if data.endswith(b"\n") else data + b"\n")

    def join(self, schema: Schema, files: Sequence[SmallFile]) -> JoinedChunk:
        """Return the lines of several files."""
        index_features_by_name(self.label, schema)
        lines = JsonLines(b"".join([file.data for file in files]), 0, 0)
        ends = np.cumsum([file.data.count(b"\n") for file in files])
        return JoinedChunk(JsonLinesChunk(schema, self._limits, lines), ends)

    def schema_mark(self, file: SmallFile) -> Hashable | None:
        """Return the names and types of the values, if each is plain text or a plain number."""
        kinds: dict[str, str | None] = {}
        counts: dict[str, int] = {}
        lines = file.data.splitlines()
        for line in lines:
            try:
                row = parse_json_object(line)
            except JsonSyntaxError:
                return None
            for name, value in row.items():
                kind = _infer_plain_kind(value)
                if kind is None or kinds.setdefault(name, kind) != kind:
                    return None
                counts[name] = counts.get(name, 0) + 1
        return frozenset((name, kind, counts[name] == len(lines)) for name, kind in kinds.items())

    def lines(self) -> Iterator[tuple[JsonLines, bool]]:
        """Yield blocks of lines, each with a flag for a single line that exceeds the limit."""
        first = 0
        for block in iter_text_blocks(self._file, self._limits, _find_rows_end):
            if not first and block.data.lstrip()[:1] == b"[":
                raise SourceError(
                    f"{self.label}: expected JSON lines, got a list",
                    code="unsupported-source",
                    hint=Hint.of("write a JSON object per line"),
                    path=self._file.path,
                )
            lines = JsonLines(block.data, first, block.position, block.offset)
            yield lines, block.too_long
            first += lines.count


def _find_rows_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _infer_plain_kind(value: object) -> str | None:
    """Return the kind of a value if no other fact decides it, else None."""
    kind = type(value)
    if kind is str:
        return "text" if _is_unicode(str(value)) else None
    if kind is float:
        return "float" if abs(float(value)) < LARGEST_EXACT else None  # type: ignore[arg-type]
    return {int: "int", bool: "bool"}.get(kind)


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class JsonLines:
    """JSON lines as text; `first` is the number of the first line, from 0."""

    data: bytes
    first: int
    position: int
    offset: int = 0

    @cached_property
    def count(self) -> int:
        """Number of lines."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def from_line(self, start: int) -> JsonLines:
        """Return the lines from number `start`."""
        if start <= self.first:
            return self
        return JsonLines(self.data[self._spans[0][start - self.first] :], start, self.position)

    @cached_property
    def _spans(self) -> tuple[IntArray, IntArray]:
        """Offsets where each line begins and ends."""
        ends = np.flatnonzero(self._signs == _NEWLINE)
        if not self.data.endswith(b"\n"):
            ends = np.append(ends, len(self.data))
        return np.concatenate(([0], ends[:-1] + 1)), ends

    @cached_property
    def _signs(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def filled(self) -> IntArray:
        """Positions of the lines that are not blank."""
        starts, ends = self._spans
        odd = np.flatnonzero(self._signs[np.minimum(starts, len(self.data) - 1)] != _OPEN)
        blank = [
            index for index in odd.tolist() if not self.data[starts[index] : ends[index]].strip()
        ]
        return np.delete(np.arange(len(starts)), blank)

    def line(self, index: int) -> bytes:
        """Return one non-blank line without its line end."""
        line = self.filled[index]
        return self.data[self._spans[0][line] : self._spans[1][line]].removesuffix(b"\r")

    def rows(self) -> Iterator[dict[str, object] | None]:
        """Yield the object of each non-blank line, None if it is invalid."""
        for index in range(len(self.filled)):
            try:
                yield parse_json_object(self.line(index))
            except JsonSyntaxError:
                yield None

    def read(self, types: pa.Schema) -> pa.RecordBatch | None:
        """Read all lines as columns of these types; None if they must be parsed one by one."""
        if not self._are_objects() or len(self.data) >= LARGEST_OFFSET:
            return None
        try:
            table = pj.read_json(
                pa.BufferReader(self.data),
                pj.ReadOptions(use_threads=False, block_size=len(self.data) + 1),
                pj.ParseOptions(explicit_schema=types, unexpected_field_behavior="error"),
            )
            table.validate(full=True)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        if table.num_rows != len(self.filled) or any(map(_has_doubtful_numbers, table.columns)):
            return None
        if b"-NaN" in self.data:  # Arrow accepts it, JSON does not.
            return None
        (batch,) = table.combine_chunks().to_batches()
        return batch

    def _are_objects(self) -> bool:
        starts, ends = (cuts[self.filled] for cuts in self._spans)
        if not len(starts):
            return False
        last = ends - 1
        last = np.where(self._signs[last] == _RETURN, last - 1, last)
        signs = self._signs
        return bool((signs[starts] == _OPEN).all() and (signs[last] == _CLOSE).all())


def _has_doubtful_numbers(column: pa.ChunkedArray) -> bool:
    """Return True if a column has numbers that Arrow and JSON read differently."""
    values = column
    while pa.types.is_list(values.type):
        values = pc.list_flatten(values)
    if not pa.types.is_floating(values.type):
        return False
    odd = pc.or_(pc.is_inf(values), pc.equal(values, float(INT64.start)))
    return bool(pc.any(odd).as_py())


@dataclass(frozen=True)
class JsonLinesChunk:
    """Chunk of JSON lines."""

    schema: Schema
    limits: Limits
    lines: JsonLines
    too_long: bool = False

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self.lines.position

    @property
    def end(self) -> int:
        """Number of the first line after this chunk."""
        return self.lines.first + self.lines.count

    def frames(self) -> EncodedRows:
        """Return the framed records."""
        if self.too_long:
            number, lines = self.lines.first, self.lines
            refused = quarantine_long_row(
                number,
                f"line {number + 1}",
                lines.offset,
                get_max_text_row_bytes(self.limits),
                lines.data,
                format="jsonl",
            )
            return EncodedRows.quarantine(refused)
        few = len(self.lines.data) < _FEW_BYTES
        return (None if few else self._read_by_arrow()) or self.one_by_one()

    def infer(self) -> Schema:
        """Infer the schema of the rows."""
        finder = SchemaFinder("", allow_rounding=True)
        add_rows(finder, "", [row for row in self.lines.rows() if row is not None])
        return finder.schema()

    def _rows(self) -> Rows:
        numbers = self.lines.first + self.lines.filled
        return Rows(numbers, lambda index: f"line {numbers[index] + 1}", self.lines.line, "jsonl")

    def _read_by_arrow(self) -> EncodedRows | None:
        types = self._types()
        batch = None if types is None else self.lines.read(types)
        if batch is None:
            return None
        columns = [
            (feature, convert_to_feature(feature, batch.column(feature.name), base64=True))
            for feature in self.schema.features
        ]
        return build_frames(self.schema, columns, self._rows(), {}, self.limits.max_record_bytes)

    def one_by_one(self) -> EncodedRows:
        """Return the framed records, parsing each line separately."""
        reasons: Reasons = {}
        rows: list[object] = []
        for index in range(len(self.lines.filled)):
            try:
                rows.append(parse_json_object(self.lines.line(index)))
            except JsonSyntaxError as error:
                reasons[index] = error.feature, str(error)
                rows.append(None)
        return encode_rows(self.schema, rows, self._rows(), reasons, self.limits, base64=True)

    def _types(self) -> pa.Schema | None:
        """Return the column types suggested by the first line."""
        if not len(self.lines.filled):
            return None
        try:
            first = parse_json_object(self.lines.line(0))
        except JsonSyntaxError:
            return None
        return pa.schema(
            [
                (feature.name, _get_type(feature, first.get(feature.name)))
                for feature in self.schema.features
            ]
        )


def _get_type(feature: Feature, value: object) -> pa.DataType:
    depth, leaf = 0, value
    while isinstance(leaf, list) and depth <= 8:
        depth, leaf = depth + 1, next((item for item in leaf if item is not None), None)
    if value is None or (depth and leaf is None):
        depth = get_depth(feature)
    kinds = {"int64": pa.int64(), "float": pa.float64(), "bytes": pa.string()}
    kind = kinds[feature.kind]
    if isinstance(leaf, bool):
        kind = pa.bool_()
    elif isinstance(feature.meaning, Array) and isinstance(leaf, int | float):
        kind = pa.int64() if isinstance(leaf, int) else pa.float64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind
