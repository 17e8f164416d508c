"""Columns as the Python values that a function of one record is given."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.sources.arrow_types import is_list, is_number
from shardline.sources.fit import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


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
