"""tf.data datasets whose elements are dicts of tensors, read in batches.

Strings come out of TensorFlow joined, with their lengths: never one Python object per value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shardline.errors import SchemaMismatchError, SourceError
from shardline.hints import Hint
from shardline.kernel.types import check_offsets
from shardline.schema.python_values import UNFIT, array_column
from shardline.sources.base import CHUNK_BYTES
from shardline.sources.columnar import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shardline.schema.schema import Schema

_MOST_ROWS = 8192
_ROWS_OF_UNKNOWN_SIZE = 256


class TensorColumns:
    """The elements of a tf.data.Dataset."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - TensorFlow is not loaded for its types
        import tensorflow as tf  # noqa: PLC0415

        self._dataset = dataset
        spec = dataset.element_spec
        if not isinstance(spec, dict):
            raise SourceError(
                "tf.data.Dataset: expected elements that are dicts of tensors, "
                f"got {type(spec).__name__}",
                code="unsupported-source",
                hint=Hint.of("map it, e.g. `dataset.map(lambda x: {'x': x})`"),
            )
        for name, part in spec.items():
            if not isinstance(part, tf.TensorSpec | tf.RaggedTensorSpec):
                raise SchemaMismatchError(
                    f"tf.data.Dataset: unsupported type of feature {name!r} "
                    f"({type(part).__name__})",
                    code="unsupported-type",
                    feature=name,
                    hint=Hint.of("convert it to a dense or ragged tensor"),
                )
        self._spec: Mapping[str, Any] = spec

    def types(self) -> pa.Schema:
        """The type of each column, as the dataset declares its elements."""
        return pa.schema([(name, type_of(name, part)) for name, part in self._spec.items()])

    def batches(self, start: int, _schema: Schema | None = None) -> Iterator[Batch]:
        """The rows from number `start` on."""
        dataset = self._dataset.skip(start) if start else self._dataset
        first = start
        for elements in dataset.ragged_batch(self._rows_per_batch()):
            columns = [column_of(elements[name]) for name in self._spec]
            rows = pa.RecordBatch.from_arrays(columns, list(self._spec))
            yield Batch(rows, first)
            first += rows.num_rows

    def _rows_per_batch(self) -> int:
        wide = 0
        for part in self._spec.values():
            if part.dtype.name == "string" or not part.shape.is_fully_defined():
                return _ROWS_OF_UNKNOWN_SIZE
            wide += part.shape.num_elements() * part.dtype.size
        return min(max(CHUNK_BYTES // max(wide, 1), 1), _MOST_ROWS)


def type_of(name: str, part: Any) -> pa.DataType:  # noqa: ANN401 - a TypeSpec
    """The type that a column of these tensors will have."""
    if part.shape.rank is None:
        raise SchemaMismatchError(
            f"tf.data.Dataset: unknown rank of feature {name!r}",
            code="unknown-shape",
            feature=name,
            hint=Hint.of("set its shape with `tf.ensure_shape`"),
        )
    if part.dtype.name == "string":
        kind = pa.binary()
    elif part.dtype.name == "bfloat16":
        kind = pa.float32()
    else:
        try:
            kind = pa.from_numpy_dtype(part.dtype.as_numpy_dtype)
        except UNFIT:
            raise SchemaMismatchError(
                f"tf.data.Dataset: unsupported type of feature {name!r} ({part.dtype.name})",
                code="unsupported-type",
                feature=name,
            ) from None
    for size in reversed(part.shape.as_list()):
        kind = pa.list_(kind) if size is None else pa.list_(kind, size)
    return kind


def column_of(tensor: Any) -> pa.Array:  # noqa: ANN401 - a Tensor or RaggedTensor
    """A batch of tensors as a column, lists in lists as they are nested."""
    import tensorflow as tf  # noqa: PLC0415

    if not isinstance(tensor, tf.RaggedTensor):
        return _dense_column(tensor)
    inner = column_of(tensor.values)
    cuts = tensor.row_splits.numpy()
    check_offsets(int(cuts[-1]))
    return pa.ListArray.from_arrays(pa.array(cuts.astype(np.int32)), inner)


def _dense_column(tensor: Any) -> pa.Array:  # noqa: ANN401 - a Tensor
    import tensorflow as tf  # noqa: PLC0415

    if tensor.dtype != tf.string:
        return array_column(tensor.numpy())
    flat = tf.reshape(tensor, [-1])
    sizes = tf.strings.length(flat).numpy()
    cuts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
    check_offsets(int(cuts[-1]))
    data = tf.strings.reduce_join(flat).numpy()
    parts = [None, pa.py_buffer(cuts.astype(np.int32)), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.binary(), len(sizes), parts)
    for size in reversed(tensor.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column
