"""Numbers into the raw bytes of arrays, for features that hold such: all rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.kernel.types import check_offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shardline.log.meanings import Array


def raw_bytes(
    meaning: Array, values: pa.Array, cuts: NDArray[np.int64]
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Each row's numbers as raw bytes, and which numbers the array's dtype cannot hold.

    `cuts` says which values are whose.
    """
    dtype = _dtype(meaning.dtype)
    if pa.types.is_null(values.type):  # of lists with nothing in them
        values = values.cast(pa.int64())
    zero = pa.scalar(False if pa.types.is_boolean(values.type) else 0, values.type)
    numbers = np.asarray(pc.fill_null(values, zero) if values.null_count else values)
    with np.errstate(invalid="ignore", over="ignore"):
        made = numbers.astype(dtype)
        wrong = _lost(numbers, made)
    offsets = cuts * dtype.itemsize
    check_offsets(int(offsets[-1]))
    data = pa.py_buffer(np.ascontiguousarray(made).view(np.uint8))
    parts = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(cuts) - 1, parts), wrong


def _dtype(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any]
    if name == "bfloat16":
        # NumPy does not know it by itself. Whoever has such arrays has this package with them.
        import ml_dtypes  # noqa: PLC0415

        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        dtype = np.dtype(name).newbyteorder("<")
    return dtype


def _lost(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers are no longer what they were, other than by rounding of fractions."""
    if after.dtype.kind in "fV":  # V is what NumPy takes bfloat16 for
        finite = np.isfinite(before) if before.dtype.kind == "f" else np.True_
        over: NDArray[np.bool_] = ~np.isfinite(after.astype(np.float64)) & finite
        return over
    if before.dtype == after.dtype:
        return np.zeros(len(before), np.bool_)
    same: NDArray[np.bool_] = after.astype(before.dtype) == before
    if before.dtype.kind in "iu" and after.dtype.kind in "iu":
        same &= (before < 0) == (
            after < 0
        )  # a sign that is lost on the way is found on the way back
    return ~same
