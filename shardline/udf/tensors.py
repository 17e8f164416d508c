"""Columns as tensors, in the forms that `readers.tf_parse` lists.

They are put together inside of the graph, from dense parts: where rows are cut, and the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from shardline.errors import ColumnError, PackageMissingError
from shardline.hints import Hint
from shardline.schema import shapes
from shardline.schema.arrow_types import is_list
from shardline.schema.conversion import cut
from shardline.schema.logical_types import Array
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shardline.schema.schema import Feature
    from shardline.schema.shapes import Shape

    Parts: TypeAlias = list[NDArray[Any]]

Tensor: TypeAlias = Any
"""A tf.Tensor or a tf.RaggedTensor: TensorFlow ships no types."""

_DTYPES = {"int64": "int64", "float": "float32", "bytes": "string"}


def tensorflow(shown: str) -> Any:  # noqa: ANN401 - a module without types
    """TensorFlow, which takes seconds to load."""
    try:
        import tensorflow as tf  # noqa: PLC0415
    except ImportError:
        raise PackageMissingError(
            f"{shown} requires TensorFlow, which is not installed",
            hint=Hint.of("run `pip install tensorflow`"),
        ) from None
    return tf


@dataclass(frozen=True)
class Form:
    """How the tensor of a feature is put together."""

    feature: Feature

    @cached_property
    def _array(self) -> Array | None:
        return self.feature.meaning if isinstance(self.feature.meaning, Array) else None

    @cached_property
    def _dense(self) -> bool:
        """Whether each record has as many values, so that nothing is cut."""
        feature = self.feature
        return feature.required and not feature.sequence and shapes.is_fixed(feature.shape)

    @cached_property
    def _inner(self) -> Shape:
        """The shape of what lies in the innermost rows that are cut."""
        shape = self.feature.shape
        steps = self.feature.sequence and shapes.is_fixed(shape)
        return shape if self._dense or steps else shape[1:]

    @cached_property
    def cuts(self) -> Shape:
        """How rows are cut, from the outermost: into so many each, or, for None, into any."""
        feature = self.feature
        both = feature.sequence and not shapes.is_fixed(feature.shape)
        cuts: Shape = () if self._dense else (None, None) if both else (None,)
        if self._array is None or shapes.is_fixed(self._array.shape):
            return cuts
        return *cuts, *self._inner, None

    @cached_property
    def values(self) -> Shape:
        """The shape of one of the values that are cut."""
        if self._array is None:
            return self._inner
        if shapes.is_fixed(self._array.shape):
            return *self._inner, *self._array.shape
        return self._array.shape[1:]

    def specs(self, tf: Any) -> list[Any]:  # noqa: ANN401 - TensorFlow's own
        """What the parts are: where rows are cut, from the outermost, then the values."""
        dtype = _DTYPES[self.feature.kind] if self._array is None else self._array.dtype
        cuts = [tf.TensorSpec((None,), tf.int64) for size in self.cuts if size is None]
        return [*cuts, tf.TensorSpec((None, *self.values), dtype)]

    def put_together(self, tf: Any, parts: Sequence[Tensor]) -> Tensor:  # noqa: ANN401 - as above
        """The tensor that the parts make."""
        *splits, tensor = parts
        for size in reversed(self.cuts):
            if size is None:
                tensor = tf.RaggedTensor.from_row_splits(tensor, splits.pop(), validate=False)
            else:
                tensor = tf.RaggedTensor.from_uniform_row_length(tensor, size, validate=False)
        return tensor

    def parts(self, column: pa.Array) -> Parts:
        """The parts of a column; ColumnError where it does not hold what the feature does."""
        there = np.asarray(column.is_valid())
        rows = _Rows(column, there)
        splits: Parts = []
        if not self._dense:
            lengths = np.zeros(len(column), np.int64)
            lengths[there] = rows.descend() if is_list(column.type) else 1
            splits.append(_splits(lengths))
            if self.feature.sequence and not shapes.is_fixed(self.feature.shape):
                splits.append(_splits(rows.descend()))
        values = rows.leaves()
        if self._array is not None:
            return splits + self._decoded(self._array, column, values)
        if self.feature.kind == "bytes":
            flat = values.cast(pa.binary()).to_numpy(zero_copy_only=False)
        else:
            flat = np.asarray(values)
        return [*splits, flat.reshape(-1, *self.values)]

    def _decoded(self, array: Array, column: pa.Array, values: pa.Array) -> Parts:
        """The numbers of raw arrays, which lie behind each other already."""
        sizes, data = _bytes_of(values)
        fixed = shapes.is_fixed(array.shape)
        unit = array.unit_bytes
        wrong = sizes != unit if fixed else sizes % unit != 0
        if wrong.any():
            raise self._misfit(array, column, int(sizes[wrong.argmax()]))
        # As one array of any number of rows; other bytes than 0 and 1 are true as well.
        dtype = "uint8" if array.dtype == "bool" else array.dtype
        rows = Array(dtype, (None, *(array.shape if fixed else array.shape[1:])))
        numbers = rows.decode(data)
        if array.dtype == "bool":
            numbers = numbers != 0
        cuts = [] if fixed else [_splits(sizes // unit)]
        return [*cuts, numbers.reshape(-1, *self.values)]

    def _misfit(self, array: Array, column: pa.Array, size: int) -> ColumnError:
        for at in range(len(column)):
            row = column.slice(at, 1)
            sizes, _ = _bytes_of(_Rows(row, np.asarray(row.is_valid())).leaves())
            if not all(map(array.holds, sizes.tolist())):
                break
        detail = f"holds {counted(int(size), 'byte')}, and {array} takes {array.size_shown}"
        return ColumnError(at, self.feature.name, detail, code="length-mismatch")


class _Rows:
    """The lists of a column, level by level, without those in rows that are missing.

    What is in them is taken out at the last level: Arrow picks garbage from slices of lists of a
    fixed size in each other.
    """

    def __init__(self, column: pa.Array, there: NDArray[np.bool_]) -> None:
        self._values = column
        self._kept = None if there.all() else there

    def descend(self) -> NDArray[np.int64]:
        """Go to what is inside of these lists; gives how much each of them holds."""
        cuts, self._values = cut(self._values)
        lengths: NDArray[np.int64] = np.diff(cuts)
        if self._kept is None:
            return lengths
        kept = self._kept
        self._kept = np.repeat(kept, lengths)
        return lengths[kept]

    def leaves(self) -> pa.Array:
        """The values in the innermost lists."""
        while is_list(self._values.type):
            self.descend()
        return self._values if self._kept is None else self._values.filter(pa.array(self._kept))


def _bytes_of(values: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """How many bytes each value has, and all of them behind each other."""
    _, offsets, data = values.buffers()
    if not len(values) or offsets is None or data is None:
        return np.zeros(len(values), np.int64), memoryview(b"")
    cuts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.diff(cuts).astype(np.int64), memoryview(data)[cuts[0] : cuts[-1]]


def _splits(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
