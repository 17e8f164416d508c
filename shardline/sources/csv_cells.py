"""Cells of text into features: numbers by whole columns, one by one where some are none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.log.schema import Feature, Schema, Text
from shardline.sources.arrow_types import depth_of
from shardline.sources.exact import rounds_texts
from shardline.sources.fit import Fitted, fit
from shardline.sources.json_values import NotJson, parsed_list
from shardline.sources.values import TooLarge, fit_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.log.schema import Kind

NO_NUMBER = "holds text that is no number"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_CODE = r"^[+-]?0[0-9]|^\+[0-9]+$"
"""Leading zeros and the plus of a whole number: a number does not keep them."""
_MOST_DIGITS = 400
_INT64 = range(-(2**63), 2**63)


def fit_cells(feature: Feature, texts: pa.Array) -> Fitted:
    """A column of cells as the feature. Lists are written as JSON, images in base64."""
    if depth_of(feature):
        return _fit_each(feature, texts, _list_of)
    if feature.kind == "bytes":
        return fit(feature, texts, base64=True)
    numbers = _numbers(feature.kind, _trimmed(texts))
    return _fit_each(feature, texts, _number_of) if numbers is None else fit(feature, numbers)


def _trimmed(texts: pa.Array) -> pa.Array:
    """The cells without spaces around them, null where nothing else is there."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _numbers(kind: Kind, texts: pa.Array) -> pa.Array | None:
    """The cells as numbers; None if some of them are none, or must be looked at."""
    try:
        if kind == "int64":
            hexadecimal = pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py()
            return None if hexadecimal else texts.cast(pa.int64())
        numbers = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.is_inf(numbers)).as_py() else numbers


def _number_of(text: str) -> object:
    text = text.strip()
    if not text:
        return None
    if _WHOLE.fullmatch(text):
        return int(text) if len(text) < _MOST_DIGITS else TooLarge()
    if not _NUMBER.fullmatch(text):
        raise NotJson(NO_NUMBER)
    number = float(text)
    written_out = any(sign.isdigit() for sign in text)
    return TooLarge() if written_out and np.isinf(number) else number


def row_over_int64(parts: Iterable[pa.Array]) -> int | None:
    """The first row with a number over 64 bits, in cells that are all of whole numbers."""
    found, first = None, 0
    for texts in map(_trimmed, parts):
        if _numbers("int64", texts) is None:
            for at, text in enumerate(texts.to_pylist()):
                if text is not None and not _WHOLE.fullmatch(text):
                    return None
                if found is None and text is not None and _is_over(text):
                    found = first + at
        first += len(texts)
    return found


def _is_over(whole: str) -> bool:
    return len(whole) >= _MOST_DIGITS or int(whole) not in _INT64


def _list_of(text: str) -> object:
    return parsed_list(text) if text.strip() else None


def _fit_each(feature: Feature, texts: pa.Array, read: Callable[[str], object]) -> Fitted:
    values: list[object] = []
    bad: dict[int, str] = {}
    for at, text in enumerate(texts.to_pylist()):
        try:
            values.append(read(text))
        except NotJson as error:
            values.append(None)
            bad[at] = str(error)
    fitted = fit_values(feature, values, base64=True) if values else fit(feature, pa.nulls(0))
    return Fitted(fitted.array, {**fitted.bad, **bad})


@dataclass(slots=True)
class _Seen:
    """What the cells of a column have been so far; float32 rounds some of them if `rounded`."""

    kind: Kind = "int64"
    filled: int = 0
    nan: bool = False
    rounded: bool = False


@dataclass(slots=True)
class CellTally:
    """Tells the schema of columns of cells: whole numbers if all are, else numbers, else text.

    Without `allow_rounding`, cells are text where numbers would lose a digit or a sign: `00123`,
    `+49`, integers over 64 bits, and integers next to fractions that float32 rounds.
    """

    names: Sequence[str]
    rows: int = 0
    allow_rounding: bool = False
    seen: list[_Seen] = field(default_factory=list)

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Take in some rows."""
        self.seen = self.seen or [_Seen() for _ in columns]
        self.rows += len(columns[0]) if columns else 0
        for seen, texts in zip(self.seen, columns, strict=True):
            filled = pc.drop_null(_trimmed(texts))
            seen.filled += len(filled)
            if seen.kind == "int64":
                seen.kind = self._look_at_integers(seen, filled)
            if seen.kind == "float":
                seen.kind = self._look_at_floats(seen, filled)

    def _look_at_integers(self, seen: _Seen, filled: pa.Array) -> Kind:
        numbers = _numbers("int64", filled)
        if numbers is None:
            # Whole numbers over 64 bits would lose digits as floats.
            whole = pc.all(pc.match_substring_regex(filled, r"^[+-]?[0-9]+$")).as_py()
            return "bytes" if whole else "float"
        if self.allow_rounding:
            return "int64"
        if not pc.all(pc.equal(numbers.cast(pa.string()), filled)).as_py():
            return "float"  # minus zero, or text, which is looked at next
        seen.rounded = seen.rounded or rounds_texts(numbers, filled)
        return "int64"

    def _look_at_floats(self, seen: _Seen, filled: pa.Array) -> Kind:
        numbers = _numbers("float", filled)
        if numbers is None:
            return "bytes"
        if not self.allow_rounding:
            if pc.any(pc.match_substring_regex(filled, _CODE)).as_py():
                return "bytes"
            seen.rounded = seen.rounded or rounds_texts(numbers, filled)
        seen.nan = seen.nan or bool(pc.any(pc.is_nan(numbers)).as_py())
        return "float"

    def schema(self, shown: str) -> Schema:
        """The schema that all these rows fit; SchemaMismatchError where none can be told."""
        if not self.rows:
            return Schema()
        features = []
        for name, seen in zip(self.names, self.seen, strict=True):
            if not seen.filled:
                raise SchemaMismatchError(
                    f"{shown}: cannot infer the kind of column {name!r} (no values)",
                    code="unknown-kind",
                    hint=Hint.of("declare the schema, or remove the column"),
                    feature=name,
                )
            kind: Kind = "bytes" if seen.kind == "float" and seen.rounded else seen.kind
            text = kind == "bytes"
            required = text or seen.filled == self.rows
            meaning = Text() if text else None
            nan = seen.nan and not text
            features.append(Feature(name, kind, required=required, meaning=meaning, nan=nan))
        return Schema(tuple(features))
