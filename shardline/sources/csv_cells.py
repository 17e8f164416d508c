"""Conversion of text cells to features, by whole columns where possible."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.columns import from_arrow, split_scalars
from shardline.schema.arrow_types import get_depth
from shardline.schema.conversion import (
    ConvertedColumn,
    convert_to_feature,
    convert_values,
)
from shardline.schema.exact_numbers import (
    FLOAT64_WHOLE,
    NUMBER,
    WHOLE_NUMBER,
    has_rounded_text,
    is_over_int64,
    mark_rounded,
    parse_number,
)
from shardline.schema.schema import Array, Feature, Image, Schema, Text
from shardline.sources.json_source import JsonSyntaxError, parse_json_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import ColumnBuffers
    from shardline.schema.schema import Kind

NOT_A_NUMBER = "holds text that is no number"
_CODE = r"^[+-]?0[0-9]|^\+[0-9]+$"
"""Leading zeros or the plus sign of a whole number, which a number does not preserve."""
_PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"
_NUMBER_TEXT = f"^(?i:{NUMBER.pattern})$"
_WHOLE_TEXT = r"^[+-]?[0-9]+$"
_PLAIN_CELL = re.compile(r"0|-?[1-9][0-9]{0,5}|-?(?:0|[1-9][0-9]{0,5})\.[0-9]{1,9}")
"""Number that float32 never rounds before the decimal point, whatever else the column holds."""
SHORT_COLUMN = 1024


def infer_plain_kind(cells: Sequence[str]) -> str | None:
    """Return the kind of a column of non-empty cells if no other fact decides it."""
    if all(map(_PLAIN_CELL.fullmatch, cells)):
        return "int64" if all("." not in cell for cell in cells) else "float"
    if all(cell and cell[0].isalpha() and not NUMBER.fullmatch(cell.strip()) for cell in cells):
        return "text"
    return None


def fit_cells(feature: Feature, texts: pa.Array) -> ConvertedColumn:
    """Convert a column of cells to a feature; lists are JSON, images base64."""
    if get_depth(feature):
        return _fit_each(feature, texts, _parse_list_cell)
    if feature.kind == "bytes":
        return convert_to_feature(feature, texts, base64=True)
    numbers = _parse_numbers(feature.kind, _trim_cells(texts))
    return (
        _fit_each(feature, texts, _parse_number)
        if numbers is None
        else convert_to_feature(feature, numbers)
    )


@dataclass(frozen=True, slots=True)
class CellColumns:
    """Short columns of cells, concatenated in a single array.

    Each Arrow call, and each array, costs more than a column of a few cells.
    """

    array: pa.Array
    columns: int

    @classmethod
    def join(cls, columns: Sequence[pa.Array]) -> CellColumns:
        """Copy columns of the same length into one array."""
        return cls(pa.concat_arrays(columns), len(columns))

    @property
    def rows(self) -> int:
        """Number of cells per column."""
        return len(self.array) // self.columns

    def column(self, index: int) -> pa.Array:
        """Return the cells of one column."""
        return self.array.slice(index * self.rows, self.rows)

    def select(self, indices: Sequence[int]) -> pa.Array:
        """Return the cells of some columns, concatenated."""
        if len(indices) == self.columns and list(indices) == list(range(self.columns)):
            return self.array
        cells = np.arange(len(self.array)).reshape(self.columns, self.rows)
        return self.array.take(pa.array(cells[indices].ravel()))


class FittedCells(NamedTuple):
    """Columns ready to encode; `bad` gives the reasons of rows that do not fit, by feature."""

    buffers: list[ColumnBuffers]
    bad: list[tuple[Feature, dict[int, str]]]


def fit_columns(
    features: Sequence[Feature], indices: Sequence[int], cells: CellColumns
) -> FittedCells:
    """Convert the columns of cells at these positions to features, batching each kind."""
    by_kind: dict[Kind, list[int]] = {}
    buffers: dict[int, ColumnBuffers] = {}
    bad: dict[int, dict[int, str]] = {}

    def fit_alone(number: int) -> None:
        feature = features[number]
        fitted = fit_cells(feature, cells.column(indices[number]))
        buffers[number] = from_arrow(feature.name, fitted.array)
        if fitted.bad:
            bad[number] = fitted.bad

    def fit_together(numbers: Sequence[int]) -> None:
        """Convert features of one kind, split in halves where a cell needs inspection."""
        if len(numbers) == 1:
            fit_alone(numbers[0])
            return
        chosen = cells.select([indices[number] for number in numbers])
        values = _parse_values(features[numbers[0]].kind, chosen)
        if values is None:
            half = len(numbers) // 2
            fit_together(numbers[:half])
            fit_together(numbers[half:])
        else:
            split = split_scalars([features[number].name for number in numbers], values)
            buffers.update(zip(numbers, split, strict=True))

    for number, feature in enumerate(features):
        if get_depth(feature) or isinstance(feature.meaning, Image | Array):
            fit_alone(number)
        else:
            by_kind.setdefault(feature.kind, []).append(number)
    for numbers in by_kind.values():
        fit_together(numbers)
    return FittedCells(
        [buffers[number] for number in range(len(features))],
        [(features[number], bad[number]) for number in sorted(bad)],
    )


def _parse_values(kind: Kind, texts: pa.Array) -> pa.Array | None:
    """Return the cells as values of the kind; None if some need inspection."""
    if kind == "bytes":
        return texts.cast(pa.binary())
    numbers = _parse_numbers(kind, _trim_cells(texts))
    if numbers is None or kind == "int64":
        return numbers
    floats = numbers.cast(pa.float32(), safe=False)
    return None if pc.any(pc.is_inf(floats)).as_py() else floats


def _trim_cells(texts: pa.Array) -> pa.Array:
    """Strip whitespace from the cells; empty cells become null."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _parse_numbers(kind: Kind, texts: pa.Array) -> pa.Array | None:
    """Return the cells as numbers; None if some are not numbers or need inspection."""
    try:
        if kind == "int64":
            hexadecimal = pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()
            return None if hexadecimal else texts.cast(pa.int64())
        numbers = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    if pc.any(pc.is_inf(numbers)).as_py():
        return None
    # Arrow accepts `nan(123)` as NaN.
    doubtful = pc.any(pc.is_nan(numbers)).as_py() and pc.any(pc.match_substring(texts, "(")).as_py()
    return None if doubtful else numbers


def _parse_number(text: str) -> object:
    try:
        return parse_number(text.strip()) if text.strip() else None
    except ValueError:
        raise JsonSyntaxError(NOT_A_NUMBER) from None


def find_row_over_int64(parts: Iterable[pa.Array]) -> int | None:
    """Return the first row with a number over 64 bits, if all cells are whole numbers."""
    match, first = None, 0
    for texts in map(_trim_cells, parts):
        if _parse_numbers("int64", texts) is None:
            for row, text in enumerate(texts.to_pylist()):
                if text is not None and not WHOLE_NUMBER.fullmatch(text):
                    return None
                if match is None and text is not None and is_over_int64(text):
                    match = first + row
        first += len(texts)
    return match


def _parse_list_cell(text: str) -> object:
    return parse_json_list(text) if text.strip() else None


def _fit_each(feature: Feature, texts: pa.Array, read: Callable[[str], object]) -> ConvertedColumn:
    values: list[object] = []
    bad: dict[int, str] = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(read(text))
        except JsonSyntaxError as error:
            values.append(None)
            bad[row] = str(error)
    fitted = (
        convert_values(feature, values, base64=True)
        if values
        else convert_to_feature(feature, pa.nulls(0))
    )
    return ConvertedColumn(fitted.array, {**fitted.bad, **bad})


def _all_match(
    cells: pa.Array, pattern: str, shape: tuple[int, int], *, none: bool = False
) -> NDArray[np.bool_]:
    """Return, per column, whether all of its filled cells match (or, with `none`, do not)."""
    matches = pc.match_substring_regex(cells, pattern)
    matches = pc.fill_null(pc.invert(matches) if none else matches, True)  # noqa: FBT003 - Arrow's own
    return np.asarray(np.asarray(matches).reshape(shape).all(axis=1))


def _any_marked(marked: NDArray[np.bool_], shape: tuple[int, int]) -> list[bool]:
    """Return, per column, whether any of its cells is marked."""
    by_column: list[bool] = np.asarray(marked.reshape(shape).any(axis=1)).tolist()
    return by_column


@dataclass(slots=True)
class _ColumnTally:
    """Facts about the cells of a column so far; `rounded` if float32 rounds some of them."""

    kind: Kind = "int64"
    filled: int = 0
    nan: bool = False
    rounded: bool = False


def _get_float_facts(
    cells: pa.Array, chosen: NDArray[np.bool_], shape: tuple[int, int]
) -> list[_ColumnTally | None]:
    """Return the selected columns' facts as floats; None for other and ambiguous columns."""
    picked = pc.if_else(pa.array(np.repeat(chosen, shape[1])), cells, None)
    try:
        numbers = picked.cast(pa.float64())
    except pa.ArrowInvalid:
        return [None] * shape[0]
    values = np.asarray(pc.fill_null(numbers, 0.0))
    nan = _any_marked(np.isnan(values), shape)
    rounded = _any_marked(mark_rounded(numbers), shape)
    # Infinity, and numbers whose text can hold more digits than float64.
    doubtful = _any_marked(np.abs(values) >= FLOAT64_WHOLE, shape)
    return [
        _ColumnTally("float", nan=nan[index], rounded=rounded[index])
        if known and not doubtful[index]
        else None
        for index, known in enumerate(chosen.tolist())
    ]


@dataclass(slots=True)
class CellTally:
    """Schema inference for cells: whole numbers if all are, else numbers, else text.

    Without `allow_rounding`, cells stay text where numbers would lose a digit or a sign:
    `00123`, `+49`, integers over 64 bits, and integers next to fractions that float32 rounds.
    """

    names: Sequence[str]
    rows: int = 0
    allow_rounding: bool = False
    seen: list[_ColumnTally] = field(default_factory=list)

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add the facts of some rows."""
        if columns and 0 < len(columns[0]) <= SHORT_COLUMN:
            self.add_cells(CellColumns.join(columns))
            return
        self.seen = self.seen or [_ColumnTally() for _ in columns]
        self.rows += len(columns[0]) if columns else 0
        for seen, texts in zip(self.seen, columns, strict=True):
            self._add_column(seen, texts)

    def add_cells(self, cells: CellColumns) -> None:
        """Add the facts of a few rows."""
        self.seen = self.seen or [_ColumnTally() for _ in range(cells.columns)]
        self.rows += cells.rows
        if cells.columns > 1 and not self.allow_rounding:
            self._add_together(cells)
            return
        for index, seen in enumerate(self.seen):
            self._add_column(seen, cells.column(index))

    def _add_column(self, seen: _ColumnTally, texts: pa.Array) -> None:
        filled = pc.drop_null(_trim_cells(texts))
        seen.filled += len(filled)
        if seen.kind == "int64":
            seen.kind = self._look_at_integers(seen, filled)
        if seen.kind == "float":
            seen.kind = self._look_at_floats(seen, filled)

    def _add_together(self, columns: CellColumns) -> None:
        """Add short columns; those that are plainly integers or text in one pass."""
        cells = _trim_cells(columns.array)
        shape = (columns.columns, columns.rows)
        filled = np.asarray(cells.is_valid()).reshape(shape).sum(axis=1).tolist()
        plain = _all_match(cells, _PLAIN_INTEGER, shape)
        numbers = _all_match(cells, _NUMBER_TEXT, shape)
        codes = ~_all_match(cells, _CODE, shape, none=True)
        whole = _all_match(cells, _WHOLE_TEXT, shape)
        floats = _get_float_facts(cells, numbers & ~codes & (plain | ~whole), shape)
        integers = pc.if_else(pa.array(np.repeat(plain, shape[1])), cells, None).cast(pa.int64())
        rounded = _any_marked(mark_rounded(integers), shape)
        for index, seen in enumerate(self.seen):
            if seen.kind == "bytes" or not numbers[index] or codes[index]:
                seen.kind = "bytes"
            elif plain[index] and seen.kind == "int64":
                seen.rounded = seen.rounded or rounded[index]
            elif (facts := floats[index]) is not None:
                seen.kind = "float"
                seen.nan = seen.nan or facts.nan
                seen.rounded = seen.rounded or facts.rounded
            else:
                self._add_column(seen, columns.column(index))
                continue
            seen.filled += filled[index]

    def _look_at_integers(self, seen: _ColumnTally, filled: pa.Array) -> Kind:
        numbers = _parse_numbers("int64", filled)
        if numbers is None:
            # Whole numbers over 64 bits would lose digits as floats.
            whole = pc.all(pc.match_substring_regex(filled, _WHOLE_TEXT)).as_py()
            return "bytes" if whole else "float"
        if self.allow_rounding:
            return "int64"
        if pc.any(pc.not_equal(numbers.cast(pa.string()), filled)).as_py():
            return "float"  # Minus zero, or text, which `_look_at_floats` inspects next.
        seen.rounded = seen.rounded or has_rounded_text(numbers, filled)
        return "int64"

    def _look_at_floats(self, seen: _ColumnTally, filled: pa.Array) -> Kind:
        numbers = _parse_numbers("float", filled)
        if numbers is None:
            return "bytes"
        if not self.allow_rounding:
            if pc.any(pc.match_substring_regex(filled, _CODE)).as_py():
                return "bytes"
            seen.rounded = seen.rounded or has_rounded_text(numbers, filled)
        seen.nan = seen.nan or bool(pc.any(pc.is_nan(numbers)).as_py())
        return "float"

    def schema(self, label: str, refused: str | None = None) -> Schema:
        """Return a schema that all rows fit; SchemaMismatchError if it cannot be inferred.

        `refused` is the location and reason of the first row that is not valid CSV, if any.
        """
        if not self.rows:
            return Schema()
        features = []
        for name, seen in zip(self.names, self.seen, strict=True):
            if not seen.filled:
                reason, fix = "no values", "declare the schema, or remove the column"
                if refused:
                    reason, fix = f"no values; {refused}", "fix that row, or declare the schema"
                raise SchemaMismatchError(
                    f"{label}: cannot infer the kind of column {name!r} ({reason})",
                    code="unknown-kind",
                    hint=Hint.of(fix),
                    feature=name,
                )
            kind: Kind = "bytes" if seen.kind == "float" and seen.rounded else seen.kind
            text = kind == "bytes"
            required = text or seen.filled == self.rows
            meaning = Text() if text else None
            nan = seen.nan and not text
            features.append(Feature(name, kind, required=required, meaning=meaning, nan=nan))
        return Schema(tuple(features))
