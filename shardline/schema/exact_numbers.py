"""Numbers in text and in columns: which values are read, and which digits a float32 rounds."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint, Option
from shardline.kernel.columns import is_list, split_lists
from shardline.schema.arrow_types import unwrap_lists

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

LARGEST_EXACT = 2**24
"""float32 holds every whole number up to this value."""
INT64 = range(-(2**63), 2**63)
FLOAT64_WHOLE = 2.0**53
"""float64 holds every whole number up to this value."""
NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 400
"""Numbers with more digits exceed a 64-bit float, and are not parsed."""
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class RoundedFloat(float):
    """Float nearest to a number that has more digits before the decimal point."""


class TooLarge:
    """Marker for a number that no kind of feature holds."""


def parse_number(text: str) -> float | TooLarge:
    """Parse a number as people write it. Raises ValueError for other text."""
    if WHOLE_NUMBER.fullmatch(text):
        return int(text) if len(text) < _MAX_DIGITS else TooLarge()
    if not NUMBER.fullmatch(text):
        raise ValueError("not a number")
    number = float(text)
    has_digits = any(sign.isdigit() for sign in text)
    return TooLarge() if has_digits and math.isinf(number) else number


def is_over_int64(whole: str) -> bool:
    """Return True if the whole number in a text exceeds 64 bits."""
    return len(whole) >= _MAX_DIGITS or int(whole) not in INT64


def parse_json_fraction(text: str) -> float | TooLarge:
    """Parse a JSON number with a fraction or an exponent."""
    value = float(text)
    if math.isinf(value):
        return TooLarge()
    if FLOAT64_WHOLE <= abs(value) < INT64.stop and Decimal(text) != Decimal(value):
        return RoundedFloat(value)
    return value


def parse_json_integer(text: str) -> float | TooLarge:
    """Parse a JSON integer; over 64 bits, and minus zero, only float can represent it."""
    if len(text) > _MAX_DIGITS:
        return TooLarge()
    value = int(text)
    if value in INT64:
        return value if value or text == "0" else -0.0
    try:
        rounded = float(value)
    except OverflowError:
        return TooLarge()
    return TooLarge() if rounded == INT64[0] else RoundedFloat(rounded)


def find_rounded(column: pa.Array) -> int | None:
    """Return the first row with a number that float32 rounds before the decimal point.

    Numbers of 2**63 and more have no other kind: an explicit float of that size is not reported.
    """
    _, leaf = unwrap_lists(column.type)
    if not (pa.types.is_integer(leaf) or pa.types.is_float64(leaf)):
        return None
    cuts, values = _flatten(column)
    marked = _mark_rounded(values)
    if marked is None:
        return None
    rows = np.searchsorted(cuts, np.flatnonzero(marked), "right") - 1
    present = rows[np.asarray(column.is_valid())[rows]]
    return int(present[0]) if len(present) else None


def has_rounded_text(numbers: pa.Array, texts: pa.Array) -> bool:
    """Return True if float32 rounds one of the texts before the decimal point.

    `numbers` are the parsed texts.
    """
    marked = _mark_rounded(numbers)
    if marked is not None and marked.any():
        return True
    if not pa.types.is_floating(numbers.type):
        return False
    # A text can have more digits than float64 holds.
    doubtful = pc.and_(
        pc.greater_equal(pc.abs(numbers), FLOAT64_WHOLE), pc.invert(pc.is_inf(numbers))
    )
    if not pc.any(doubtful).as_py():
        return False
    values, written = numbers.filter(doubtful).to_pylist(), texts.filter(doubtful).to_pylist()
    return any(map(_is_rounded_text, values, written))


def _is_rounded_text(number: float, text: str) -> bool:
    whole = text.lstrip("+-").isdigit()
    if not whole and abs(number) >= INT64.stop:
        return False
    return abs(number) > _FLOAT32_MAX or Decimal(text) != Decimal(float(np.float32(number)))


def mark_rounded(numbers: pa.Array) -> Mask:
    """Mark the numbers that float32 rounds before the decimal point."""
    marked = _mark_rounded(numbers)
    return np.zeros(len(numbers), np.bool_) if marked is None else marked


def validate_exact(label: str, name: str, values: Sequence[object], first: int) -> None:
    """Raise SchemaMismatchError for a number over 64 bits or an integer that float32 rounds.

    `first` is the number of the first row.
    """
    for row, value in enumerate(values, first):
        for leaf in iter_leaves(value):
            if isinstance(leaf, RoundedFloat) or (_is_integer(leaf) and int(leaf) not in INT64):
                raise number_too_large(label, name, row)
            if _is_integer(leaf) and int(np.float32(int(leaf))) != int(leaf):
                raise inexact_number(label, name, row)


def has_large_floats(column: pa.Array) -> bool:
    """Return True if a float column has numbers that may be rounded integers."""
    if not pa.types.is_float64(unwrap_lists(column.type)[1]):
        return False
    _, floats = _flatten(column)
    return bool(pc.any(pc.greater_equal(pc.abs(floats), FLOAT64_WHOLE)).as_py())


def iter_leaves(value: object) -> Iterator[Any]:
    """Yield the values inside nested lists, tuples and arrays."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        for inner in value:
            yield from iter_leaves(inner)
    else:
        yield value


def number_too_large(label: str, name: str, row: int) -> SchemaMismatchError:
    """Build the error for a column with an integer that no inferred kind holds exactly."""
    return SchemaMismatchError(
        f"{label}: cannot infer the kind of column {name!r} (row {row}: number over 64 bits)",
        code="number-too-large",
        hint=_DECLARE,
        record=row,
        feature=name,
    )


def inexact_number(label: str, name: str, row: int) -> SchemaMismatchError:
    """Build the error for a column of numbers that neither int64 nor float holds exactly."""
    return SchemaMismatchError(
        f"{label}: cannot infer the kind of column {name!r} (row {row}: float rounds the number)",
        code="inexact-number",
        hint=_DECLARE,
        record=row,
        feature=name,
    )


_DECLARE = Hint.of(
    "declare the feature in ", Option("schema"), " as float to round it, or convert it to text"
)


def _flatten(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the offsets of each row's values, and the values."""
    cuts = np.arange(len(column) + 1)
    values = column
    while True:
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        elif pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        elif is_list(values.type):
            offsets, values = split_lists(values)
            cuts = offsets[cuts]
        else:
            return cuts, values


def _mark_rounded(values: pa.Array) -> Mask | None:
    """Mark numbers that float32 rounds before the point. Returns None if all are small."""
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None or (low >= -LARGEST_EXACT and high <= LARGEST_EXACT):
        return None
    plain: NDArray[Any] = np.asarray(pc.fill_null(values, pa.scalar(0, values.type)))
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = plain.astype(np.float32)
        if plain.dtype.kind == "f":
            size = np.abs(plain)
            large: Mask = (size > LARGEST_EXACT) & (size < INT64.stop)
            return np.asarray(large & (nearest != plain))
        end = np.float32(2.0 ** (8 * plain.dtype.itemsize - (plain.dtype.kind == "i")))
        back = np.where(nearest < end, nearest, 0).astype(plain.dtype)
    rounded: Mask = back != plain
    return rounded


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
