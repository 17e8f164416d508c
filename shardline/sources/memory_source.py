"""In-memory columns: NumPy arrays by name, DataFrames and tf.data datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shardline.errors import SchemaMismatchError, SourceError
from shardline.hints import Hint
from shardline.kernel.types import check_offsets
from shardline.schema.conversion import MISMATCH, convert_array, measure_value
from shardline.sources.column_source import SourceBatch, make_empty_batch
from shardline.sources.source import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shardline.schema.schema import Schema


_SAMPLE = 64
"""Number of Python values sampled to estimate the size of a row."""


class ArrayColumns:
    """Arrays whose first axis is the record; the other axes are the feature shape."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._typed = {name: array for name, array in arrays.items() if array.dtype != object}
        self._objects = {name: array for name, array in arrays.items() if array.dtype == object}
        lengths = {name: len(a) if a.ndim else -1 for name, a in arrays.items()}
        if -1 in lengths.values() or len(set(lengths.values())) > 1:
            row_counts = ", ".join(
                f"{name!r} has {'none' if length < 0 else length}"
                for name, length in lengths.items()
            )
            raise SourceError(
                f"arrays have different numbers of rows: {row_counts}", code="length-mismatch"
            )
        self._rows = next(iter(lengths.values()), 0)

    def types(self) -> pa.Schema:
        """Return the type of each column; Python values have none."""
        known = [(name, _column(name, array[:1]).type) for name, array in self._typed.items()]
        return pa.schema(known + [(name, pa.null()) for name in self._objects])

    def batches(self, start: int, _schema: Schema | None = None) -> Iterator[SourceBatch]:
        """Yield the rows from number `start`."""
        first = start
        typed = sum(array.nbytes for array in self._typed.values()) // max(self._rows, 1)
        while first < self._rows:
            last = first + _get_step(typed, {n: a[first:] for n, a in self._objects.items()})
            columns = [_column(name, array[first:last]) for name, array in self._typed.items()]
            rows = min(last, self._rows) - first
            objects = {name: list(array[first:last]) for name, array in self._objects.items()}
            yield SourceBatch(_make_batch(columns, list(self._typed), rows), first, objects=objects)
            first = last


class FrameColumns:
    """Columns of a pandas DataFrame; values missing in pandas are absent features.

    NaN in a float column is missing too, unless the target feature allows NaN. pandas stores
    integers with missing values as float64, so whole floats next to NaN are read as integers.
    """

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 - pandas is not loaded for its types
        self._frame = frame
        for name in frame.columns:
            if not isinstance(name, str):
                raise SourceError(
                    f"DataFrame: invalid column name of type {type(name).__name__}",
                    code="invalid-name",
                    hint=Hint.of("rename the column to a string"),
                )
        self._names = list(frame.columns)
        self._objects = [
            index
            for index, kind in enumerate(frame.dtypes)
            if kind.kind == "O" and isinstance(kind, np.dtype)
        ]
        self._integers = [
            index
            for index, kind in enumerate(frame.dtypes)
            if kind == np.float64
            and isinstance(kind, np.dtype)
            and _are_integers(frame.iloc[:, index].to_numpy())
        ]

    def types(self) -> pa.Schema:
        """Return the type of each column; Python values have none."""
        part = self._frame.iloc[:1]
        return pa.schema(
            [
                (name, pa.null() if index in self._objects else self._column(part, index).type)
                for index, name in enumerate(self._names)
            ]
        )

    def batches(self, start: int, schema: Schema | None = None) -> Iterator[SourceBatch]:
        """Yield the rows from number `start`."""
        features = () if schema is None else schema.features
        nan = frozenset(feature.name for feature in features if feature.nan)
        rows = len(self._frame)
        typed = [index for index in range(len(self._names)) if index not in self._objects]
        used = self._frame.iloc[:, typed].memory_usage(index=False).sum() if typed and rows else 0
        first = start
        while first < rows:
            tail = self._frame.iloc[first:]
            sample = {
                self._names[index]: tail.iloc[:_SAMPLE, index].to_numpy() for index in self._objects
            }
            part = tail.iloc[: _get_step(int(used) // rows, sample)]
            columns = [self._column(part, index, nan) for index in typed]
            objects = {
                self._names[index]: _list_values(part.iloc[:, index]) for index in self._objects
            }
            batch = _make_batch(columns, [self._names[index] for index in typed], len(part))
            yield SourceBatch(batch, first, objects=objects)
            first += len(part)

    def _column(self, part: Any, index: int, nan: frozenset[str] = frozenset()) -> pa.Array:  # noqa: ANN401
        series, name = part.iloc[:, index], self._names[index]
        keeps_nan = name in nan and isinstance(series.dtype, np.dtype)
        try:
            column = pa.array(series, from_pandas=not keeps_nan)
            if index in self._integers and not keeps_nan:
                column = column.cast(pa.int64())
        except MISMATCH:
            raise _make_unfit_error(name, series.dtype) from None
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _are_integers(values: np.ndarray[Any, Any]) -> bool:
    """Return True for whole numbers with NaN among them, all within int64."""
    missing = np.isnan(values)
    if not missing.any() or missing.all():
        return False
    numbers = values[~missing]
    if not ((numbers >= -(2.0**63)) & (numbers < 2.0**63)).all():
        return False
    minus_zero = (numbers == 0) & np.signbit(numbers)
    return bool((np.floor(numbers) == numbers).all() and not minus_zero.any())


def _list_values(series: Any) -> list[object]:  # noqa: ANN401 - a pandas Series
    missing = series.isna().to_numpy()
    return [
        None if is_missing else v for v, is_missing in zip(series.to_numpy(), missing, strict=True)
    ]


def _make_batch(columns: list[pa.Array], names: list[str], rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names) if columns else make_empty_batch(rows)


def _get_step(typed: int, objects: Mapping[str, np.ndarray[Any, Any]]) -> int:
    """Return the rows per chunk, given `typed` bytes per row and the Python values."""
    wide = typed
    for values in objects.values():
        sample = values[:_SAMPLE]
        wide += sum(map(measure_value, sample)) // max(len(sample), 1)
    return max(CHUNK_BYTES // max(wide, 1), 1)


def _column(name: str, array: np.ndarray[Any, Any]) -> pa.Array:
    try:
        return convert_array(array)
    except MISMATCH:
        raise _make_unfit_error(name, array.dtype) from None


def _make_unfit_error(name: str, dtype: object) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"unsupported type of column {name!r} ({dtype})",
        code="unsupported-type",
        hint=Hint.of("convert the column, or remove it"),
        feature=name,
    )


_MOST_ROWS = 8192
_ROWS_OF_UNKNOWN_SIZE = 256


class TensorColumns:
    """Columns of a tf.data.Dataset."""

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
        """Return the type of each column, as the dataset declares it."""
        return pa.schema(
            [(name, infer_tensor_type(name, part)) for name, part in self._spec.items()]
        )

    def batches(self, start: int, _schema: Schema | None = None) -> Iterator[SourceBatch]:
        """Yield the rows from number `start`."""
        dataset = self._dataset.skip(start) if start else self._dataset
        first = start
        for elements in dataset.ragged_batch(self._rows_per_batch()):
            columns = [convert_tensor(elements[name]) for name in self._spec]
            rows = pa.RecordBatch.from_arrays(columns, list(self._spec))
            yield SourceBatch(rows, first)
            first += rows.num_rows

    def _rows_per_batch(self) -> int:
        wide = 0
        for part in self._spec.values():
            if part.dtype.name == "string" or not part.shape.is_fully_defined():
                return _ROWS_OF_UNKNOWN_SIZE
            wide += part.shape.num_elements() * part.dtype.size
        return min(max(CHUNK_BYTES // max(wide, 1), 1), _MOST_ROWS)


def infer_tensor_type(name: str, part: Any) -> pa.DataType:  # noqa: ANN401 - a TypeSpec
    """Return the column type for these tensors."""
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
        except MISMATCH:
            raise SchemaMismatchError(
                f"tf.data.Dataset: unsupported type of feature {name!r} ({part.dtype.name})",
                code="unsupported-type",
                feature=name,
            ) from None
    for size in reversed(part.shape.as_list()):
        kind = pa.list_(kind) if size is None else pa.list_(kind, size)
    return kind


def convert_tensor(tensor: Any) -> pa.Array:  # noqa: ANN401 - a Tensor or RaggedTensor
    """Convert a batch of tensors to a column with the same nesting."""
    import tensorflow as tf  # noqa: PLC0415

    if not isinstance(tensor, tf.RaggedTensor):
        return _convert_dense_tensor(tensor)
    inner = convert_tensor(tensor.values)
    cuts = tensor.row_splits.numpy()
    check_offsets(int(cuts[-1]))
    return pa.ListArray.from_arrays(pa.array(cuts.astype(np.int32)), inner)


def _convert_dense_tensor(tensor: Any) -> pa.Array:  # noqa: ANN401 - a Tensor
    import tensorflow as tf  # noqa: PLC0415

    if tensor.dtype != tf.string:
        return convert_array(tensor.numpy())
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
