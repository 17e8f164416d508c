"""Python values into columns: all at once where they are alike, else part by part.

A value is judged by the column it makes by itself, so that it makes no difference beside which
others it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.schema.arrow_types import column_type, is_list, is_number, misfit
from shardline.schema.conversion import NULL_IN_LIST, TOO_LARGE, Fitted, cut, fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from shardline.schema.schema import Feature


UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for values that no column can hold together."""


_BOOLS: set[type] = {bool, np.bool_}
_NUMBERS = (int, float, np.number)


class TooLarge:
    """Stands for a number that was too large to be read."""


def column_of(values: Sequence[object]) -> pa.Array:
    """The values as a column of the type that Arrow finds for them; raises one of UNFIT.

    Arrays of several dimensions, all of one shape, keep it.
    """
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, np.ndarray) for value in present):
        return _column_of_arrays(values, present)
    kinds: set[type] = set()
    _gather_types(present, kinds)
    if kinds & _BOOLS and any(issubclass(kind, _NUMBERS) for kind in kinds - _BOOLS):
        # Arrow takes true for 1 or refuses it, depending on what stands before it.
        raise TypeError("true and false beside numbers")
    return pa.array([_plain(value) for value in values])


def _gather_types(values: Iterable[object], kinds: set[type]) -> None:
    found = set(map(type, values))
    kinds |= found
    if found & {list, tuple}:
        for value in values:
            if isinstance(value, list | tuple):
                _gather_types(value, kinds)


def array_column(array: np.ndarray[Any, Any]) -> pa.Array:
    """An array whose first axis is the record, as a column with the shape of the others."""
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    column = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def fit_values(feature: Feature, values: Sequence[object], *, base64: bool = False) -> Fitted:
    """The values as a column of the feature, and why some of them cannot be."""
    try:
        column = column_of(values)
        # Values of a wrong type may give it to others: an empty list has none of its own.
        if len(values) == 1 or misfit(feature, column.type) is None:
            return fit(feature, column, base64=base64)
    except UNFIT:
        if len(values) == 1:
            return Fitted(pa.nulls(1, column_type(feature)), {0: _why(feature, values[0])})
    middle = len(values) // 2
    first = fit_values(feature, values[:middle], base64=base64)
    second = fit_values(feature, values[middle:], base64=base64)
    later = {middle + at: why for at, why in second.bad.items()}
    return Fitted(pa.concat_arrays([first.array, second.array]), first.bad | later)


def size_of(value: object) -> int:
    """About how many bytes a value takes."""
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, np.ndarray | memoryview):
        return value.nbytes
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if isinstance(value, list | tuple) and value:
        return len(value) * size_of(value[0])
    return 8


def _column_of_arrays(values: Sequence[object], present: list[Any]) -> pa.Array:
    shapes = {(value.shape, value.dtype) for value in present}
    if len(shapes) > 1 or len(present) < len(values) or present[0].dtype == object:
        return pa.array([_plain(value) for value in values])
    if 0 in present[0].shape:
        return pa.array([value.tolist() for value in present])
    return array_column(np.stack(present))


def _plain(value: object) -> object:
    """The value as Arrow takes it: it knows arrays of one dimension only."""
    if isinstance(value, np.ndarray) and (value.ndim != 1 or value.dtype == object):
        return value.tolist()
    return value


def _why(feature: Feature, value: object) -> str:
    """Why a value is none of the feature's, where no column can be made of it."""
    kinds, depths, nulls = set[str](), set[int](), False
    left: list[tuple[object, int]] = [(_plain(value), 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, list | tuple | np.ndarray):
            left += [(inner, depth + 1) for inner in item]
        elif isinstance(item, TooLarge) or (isinstance(item, int) and item.bit_length() > 63):
            return TOO_LARGE
        elif item is None:
            nulls = nulls or depth > 0
        else:
            kinds.add(_kind(item))
            depths.add(depth)
    if len(depths) > 1:
        return "holds values and lists beside each other"
    if len(kinds) == 1 and "text" in kinds:
        return "holds text that is not Unicode"
    if nulls:
        return NULL_IN_LIST
    return f"holds {' and '.join(sorted(kinds)) or 'other'} values, not {feature.kind}"


def _kind(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, int | np.integer):
        return "int64"
    if isinstance(value, float | np.floating):
        return "float"
    if isinstance(value, str):
        return "text"
    return "bytes" if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__


def values_of(column: pa.Array) -> Sequence[object]:
    """Each row: a Python value, an array in the shape of its feature, or None if it is missing.

    Steps of different lengths are a list of arrays.
    """
    if not is_list(column.type):
        values: list[object] = column.to_pylist()
        return values
    rows = list(_rows(column))
    if column.null_count:
        for at in np.flatnonzero(np.asarray(column.is_null())).tolist():
            rows[at] = None
    return rows


def _rows(column: pa.Array) -> NDArray[Any] | list[Any]:
    """The rows of a column: one array where all have the same shape, else a list."""
    if pa.types.is_fixed_size_list(column.type):
        inside = _rows(cut(column)[1])
        return np.reshape(inside, (-1, column.type.list_size, *np.shape(inside)[1:]))
    if is_list(column.type):
        cuts, values = cut(column)
        inside = _rows(values)
        return [inside[first:last] for first, last in pairwise(cuts.tolist())]
    if column.null_count:  # below a row that is missing: whole numbers would become floats
        zero = 0 if is_number(column.type) else ""
        column = pc.fill_null(column, pa.scalar(zero, column.type))
    # Copied, because what Arrow holds cannot be written to, and may be read by others meanwhile.
    return np.array(column.to_numpy(zero_copy_only=False))
