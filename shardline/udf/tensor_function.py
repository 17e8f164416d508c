"""UDFs on TensorFlow tensors, in the forms that `readers.tf_parse` lists.

Tensors are assembled within the graph, from dense parts: row splits and values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from shardline.errors import ColumnError, PackageMissingError, SchemaMismatchError, UDFError
from shardline.hints import Hint
from shardline.kernel.columns import is_list, split_lists
from shardline.schema import shapes
from shardline.schema.arrow_types import find_mismatch
from shardline.schema.conversion import ConvertedColumn, convert_to_feature
from shardline.schema.logical_types import Array
from shardline.sources.memory_source import convert_tensor, infer_tensor_type
from shardline.text import format_count
from shardline.udf.function_call import BatchCall, copy_batch
from shardline.udf.udf_declaration import BoundUDF, FunctionUDF
from shardline.udf.udf_result import (
    CAUGHT_ERRORS,
    BatchMismatchError,
    format_exception,
    join_results,
    make_result,
    offset_mismatch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shardline.schema.schema import Feature
    from shardline.schema.shapes import Shape

    Parts: TypeAlias = list[NDArray[Any]]
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from shardline.schema.schema import Schema
    from shardline.udf.udf_result import UDFResult


Tensor: TypeAlias = Any
"""Tensor of type tf.Tensor or tf.RaggedTensor, untyped because TensorFlow ships no types."""

if TYPE_CHECKING:
    TensorFunction: TypeAlias = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]

_DTYPES = {"int64": "int64", "float": "float32", "bytes": "string"}


def import_tensorflow(label: str) -> Any:  # noqa: ANN401 - a module without types
    """Import TensorFlow on demand, because it takes seconds to load."""
    try:
        import tensorflow as tf  # noqa: PLC0415
    except ImportError:
        raise PackageMissingError(
            f"{label} requires TensorFlow, which is not installed",
            hint=Hint.of("run `pip install tensorflow`"),
        ) from None
    return tf


@dataclass(frozen=True)
class TensorForm:
    """Assembly of the tensor of a feature from dense parts."""

    feature: Feature

    @cached_property
    def _array(self) -> Array | None:
        return self.feature.meaning if isinstance(self.feature.meaning, Array) else None

    @cached_property
    def _dense(self) -> bool:
        """True if all records have the same number of values, so that no splits are needed."""
        feature = self.feature
        return feature.required and not feature.sequence and shapes.is_fixed(feature.shape)

    @cached_property
    def _inner(self) -> Shape:
        """Shape of the values in the innermost split rows."""
        shape = self.feature.shape
        steps = self.feature.sequence and shapes.is_fixed(shape)
        return shape if self._dense or steps else shape[1:]

    @cached_property
    def cuts(self) -> Shape:
        """Row lengths from the outermost split inward, None for variable lengths."""
        feature = self.feature
        both = feature.sequence and not shapes.is_fixed(feature.shape)
        cuts: Shape = () if self._dense else (None, None) if both else (None,)
        if self._array is None or shapes.is_fixed(self._array.shape):
            return cuts
        return *cuts, *self._inner, None

    @cached_property
    def values(self) -> Shape:
        """Shape of one innermost value."""
        if self._array is None:
            return self._inner
        if shapes.is_fixed(self._array.shape):
            return *self._inner, *self._array.shape
        return self._array.shape[1:]

    def specs(self, tf: Any) -> list[Any]:  # noqa: ANN401 - TensorFlow's own
        """Return the tensor specs of the parts: splits from the outermost, then the values."""
        dtype = _DTYPES[self.feature.kind] if self._array is None else self._array.dtype
        cuts = [tf.TensorSpec((None,), tf.int64) for size in self.cuts if size is None]
        return [*cuts, tf.TensorSpec((None, *self.values), dtype)]

    def assemble(self, tf: Any, parts: Sequence[Tensor]) -> Tensor:  # noqa: ANN401 - as above
        """Assemble the tensor from its parts."""
        *splits, tensor = parts
        for size in reversed(self.cuts):
            if size is None:
                tensor = tf.RaggedTensor.from_row_splits(tensor, splits.pop(), validate=False)
            else:
                tensor = tf.RaggedTensor.from_uniform_row_length(tensor, size, validate=False)
        return tensor

    def parts(self, column: pa.Array) -> Parts:
        """Split a column into its parts; ColumnError if it does not match the feature."""
        there = np.asarray(column.is_valid())
        rows = _ListRows(column, there)
        splits: Parts = []
        if not self._dense:
            lengths = np.zeros(len(column), np.int64)
            lengths[there] = rows.descend() if is_list(column.type) else 1
            splits.append(_make_row_splits(lengths))
            if self.feature.sequence and not shapes.is_fixed(self.feature.shape):
                splits.append(_make_row_splits(rows.descend()))
        values = rows.leaves()
        if self._array is not None:
            return splits + self._decode_arrays(self._array, column, values)
        if self.feature.kind == "bytes":
            flat = values.cast(pa.binary()).to_numpy(zero_copy_only=False)
        else:
            flat = np.asarray(values)
        return [*splits, flat.reshape(-1, *self.values)]

    def _decode_arrays(self, array: Array, column: pa.Array, values: pa.Array) -> Parts:
        """Return the numbers of raw arrays, which are already contiguous."""
        sizes, data = _get_value_bytes(values)
        fixed = shapes.is_fixed(array.shape)
        unit = array.unit_bytes
        wrong = sizes != unit if fixed else sizes % unit != 0
        if wrong.any():
            raise self._misfit(array, column, int(sizes[wrong.argmax()]))
        # Decoded as one array of any number of rows; bytes other than 0 and 1 are also true.
        dtype = "uint8" if array.dtype == "bool" else array.dtype
        rows = Array(dtype, (None, *(array.shape if fixed else array.shape[1:])))
        numbers = rows.decode(data)
        if array.dtype == "bool":
            numbers = numbers != 0
        cuts = [] if fixed else [_make_row_splits(sizes // unit)]
        return [*cuts, numbers.reshape(-1, *self.values)]

    def _misfit(self, array: Array, column: pa.Array, size: int) -> ColumnError:
        for row_number in range(len(column)):
            row = column.slice(row_number, 1)
            sizes, _ = _get_value_bytes(_ListRows(row, np.asarray(row.is_valid())).leaves())
            if not all(map(array.holds, sizes.tolist())):
                break
        detail = f"holds {format_count(int(size), 'byte')}, and {array} takes {array.size_shown}"
        return ColumnError(row_number, self.feature.name, detail, code="length-mismatch")


class _ListRows:
    """Lists of a column, level by level, without missing rows.

    Values are filtered only at the last level: Arrow returns garbage for slices of nested lists
    of a fixed size.
    """

    def __init__(self, column: pa.Array, there: NDArray[np.bool_]) -> None:
        self._values = column
        self._is_present = None if there.all() else there

    def descend(self) -> NDArray[np.int64]:
        """Descend into the lists and return their lengths."""
        cuts, self._values = split_lists(self._values)
        lengths: NDArray[np.int64] = np.diff(cuts)
        if self._is_present is None:
            return lengths
        is_present = self._is_present
        self._is_present = np.repeat(is_present, lengths)
        return lengths[is_present]

    def leaves(self) -> pa.Array:
        """Return the values of the innermost lists."""
        while is_list(self._values.type):
            self.descend()
        return (
            self._values
            if self._is_present is None
            else self._values.filter(pa.array(self._is_present))
        )


def _get_value_bytes(values: pa.Array) -> tuple[NDArray[np.int64], memoryview]:
    """Return the size of each value, and the concatenated bytes."""
    _, offsets, data = values.buffers()
    if not len(values) or offsets is None or data is None:
        return np.zeros(len(values), np.int64), memoryview(b"")
    cuts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.diff(cuts).astype(np.int64), memoryview(data)[cuts[0] : cuts[-1]]


def _make_row_splits(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


_PREFETCHED = 1


def stream_tensors(
    work: TensorFunctionCall, batches: Iterator[pa.RecordBatch], *, every: bool, workers: int | None
) -> Iterator[UDFResult]:
    """Yield the new features of all batches in order; an error is raised at its position."""
    with closing(_PipelineFeed(work, batches)) as feed:
        results = iter(_make_pipeline(work, feed, workers))
        try:
            while True:
                result = None
                try:
                    result = next(results)
                except StopIteration:
                    break
                except work.tf.errors.OpError:
                    if not feed.begun:
                        raise
                yield from feed.empty()
                batch = feed.begun.popleft()
                if result is None:
                    yield work(batch, every=every)
                    continue
                rows = batch.num_rows
                columns = work.convert_part(result, 0, rows)
                yield make_result(work.label, work.features, columns, {}, tried=rows)
        finally:
            # A kept traceback would hold the iterator until exit; TensorFlow then cannot release
            # the pipeline and complains.
            del results
        yield from feed.empty()
        if feed.error is not None:
            raise feed.error


def _make_pipeline(work: TensorFunctionCall, feed: _PipelineFeed, workers: int | None) -> Any:  # noqa: ANN401 - a Dataset
    tf = work.tf
    options = tf.data.Options()
    options.deterministic = True
    if workers is not None:
        options.threading.private_threadpool_size = workers
    return (
        tf.data.Dataset.from_generator(feed.parts, output_signature=work.specs)
        .map(work.traced, tf.data.AUTOTUNE, deterministic=True)
        .prefetch(_PREFETCHED)
        .with_options(options)
    )


class _PipelineFeed:
    """Batches fed to the pipeline, and those whose results are pending.

    Batches without rows need no call and wait in `begun` for their turn.
    """

    def __init__(self, work: TensorFunctionCall, batches: Iterator[pa.RecordBatch]) -> None:
        self.error: Exception | None = None
        self._work = work
        self._batches = batches
        self.begun: deque[pa.RecordBatch] = deque()
        self._lock = Lock()
        self._closed = False

    def parts(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield pipeline inputs; called on a TensorFlow thread."""
        while (parts := self._next()) is not None:
            yield tuple(parts)

    def _next(self) -> Parts | None:
        with self._lock:
            while not self._closed:
                try:
                    batch = next(self._batches, None)
                    if batch is None:
                        return None
                    parts = self._work.prepare(batch)
                except Exception as error:  # noqa: BLE001 - raised again in its place
                    self.error = error
                    return None
                self.begun.append(batch)
                if batch.num_rows:
                    return parts
            return None

    def empty(self) -> Iterator[UDFResult]:
        """Yield the results of batches without rows at the head of the queue."""
        while self.begun and not self.begun[0].num_rows:
            yield self._work(self.begun.popleft(), every=False)

    def close(self) -> None:
        """Stop the feed and wait until no thread reads the batches."""
        with self._lock:
            self._closed = True


_BATCH = 4096
SEVERAL_VALUES = "holds a list of {} values, and one value belongs there"


def tensor_udf(
    *features: Feature,
    reads: Sequence[str],
    code: str | None = None,
    batch: int = _BATCH,
    deterministic: bool = True,
    check_source: bool = True,
) -> Callable[[TensorFunction], TensorUDF]:
    """Declare a TensorFlow function of a batch as a UDF that computes these features.

    The function gets a dict of tensors, whose first dimension is the record, in the forms of
    `Snapshot.to_tf`. It returns a dict of dense or ragged tensors with as many records. An
    empty row of an optional feature is a missing feature.

    The function is traced once, with an unknown batch dimension, and runs in a tf.data
    pipeline, so it must use TensorFlow operations only. The result for a record must not depend
    on the other records in the batch: on failure, the function is called on parts of the batch
    to find the failing records.

    A changed function source with unchanged `code` raises an error, because one version would
    mix results of both. If the results are equal, set `check_source=False` for the next run.

    Args:
        features: Features that the function computes.
        reads: Names of the features that the function needs.
        code: Version of everything the results depend on, models included; change it when
            results would change. Without it, earlier results are never reused.
        batch: Maximum records per call, limited by the memory that the function needs.
        deterministic: False if the same records may give different results; an audit then does
            not call the function again to compare.
        check_source: False accepts a changed source for this run.
    """
    return partial(
        TensorUDF,
        features=features,
        reads=reads,  # type: ignore[arg-type] # checked there
        code=code,
        deterministic=deterministic,
        check_source=check_source,
        batch=batch,
    )


@dataclass(frozen=True, slots=True)
class TensorUDF(FunctionUDF):
    """UDF on batched TensorFlow tensors."""

    batch: int = _BATCH

    maker: ClassVar[str] = "tensor function"

    def __post_init__(self) -> None:
        """Raise UDFError for invalid options."""
        FunctionUDF.__post_init__(self)
        if type(self.batch) is not int or self.batch < 1:
            raise UDFError(
                f"{self.label}: invalid batch: expected an integer of at least 1",
                code="invalid-argument",
            )

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind the function to records of this schema, tracing it."""
        reads = self._select_features(schema)
        work = TensorFunctionCall(self.label, self.function, self.features, reads)
        return BoundTensorUDF(work, reads, self.batch)


class TensorFunctionCall(BatchCall):
    """Traced function, called with the dense parts of tensors."""

    def __init__(
        self,
        label: str,
        function: TensorFunction,
        features: tuple[Feature, ...],
        reads: list[Feature],
    ) -> None:
        self.label = label
        self.features = features
        self.tf = import_tensorflow(label)
        self._forms = [TensorForm(feature) for feature in reads]
        self._specs = [form.specs(self.tf) for form in self._forms]
        self._function = function
        self.traced = self._trace()

    @property
    def specs(self) -> tuple[Any, ...]:
        """Tensor specs of the parts of a batch, all features concatenated."""
        return tuple(spec for specs in self._specs for spec in specs)

    def prepare(self, batch: pa.RecordBatch) -> Parts:
        """Split a batch into parts; ColumnError if it does not match the declaration."""
        pairs = zip(self._forms, batch.columns, strict=True)
        return [part for form, column in pairs for part in form.parts(column)]

    def call(self, prepared: Parts) -> dict[str, Tensor]:
        """Call the function outside a pipeline."""
        parts = zip(prepared, self.specs, strict=True)
        tensors: dict[str, Tensor] = self.traced(
            *(self.tf.convert_to_tensor(part, spec.dtype) for part, spec in parts)
        )
        return tensors

    def convert_result(self, result: dict[str, Tensor], rows: int) -> list[ConvertedColumn]:
        """Convert the returned tensors to columns."""
        columns = []
        for feature in self.features:
            tensor = result[feature.name]
            self.validate_row_count(
                feature.name, tensor.shape[0] if tensor.shape.rank else None, rows
            )
            ragged = isinstance(tensor, self.tf.RaggedTensor)
            column = convert_tensor(tensor)
            fits = (
                _fit_missing_rows(feature, column)
                if ragged
                else convert_to_feature(feature, column)
            )
            columns.append(fits)
        return columns

    def _trace(self) -> Any:  # noqa: ANN401 - TensorFlow's own
        # A separate inner tf.function with autograph, so that user code may branch on tensors.
        inner = self.tf.function(self._function)

        def call(*parts: Tensor) -> dict[str, Tensor]:
            return self._checked(inner(self._assemble(parts)))

        traced = self.tf.function(call, input_signature=self.specs, autograph=False)
        try:
            return traced.get_concrete_function()
        except UDFError:
            raise
        except CAUGHT_ERRORS as error:
            reason = format_exception(error).rstrip(".")
            raise UDFError(
                f"{self.label}: TensorFlow cannot trace it: {reason}",
                code="udf-trace-failed",
                hint=Hint.of("use TensorFlow operations only, or declare it with `batch_udf`"),
            ) from error

    def _assemble(self, parts: Sequence[Tensor]) -> dict[str, Tensor]:
        left = list(parts)
        tensors = {}
        for form, specs in zip(self._forms, self._specs, strict=True):
            tensors[form.feature.name] = form.assemble(self.tf, left[: len(specs)])
            del left[: len(specs)]
        return tensors

    def _checked(self, result: object) -> dict[str, Tensor]:
        """Return the result tensors; UDFError if they cannot match the declaration."""
        tf = self.tf
        if not isinstance(result, Mapping):
            raise UDFError(
                f"{self.label}: invalid result of type {type(result).__name__}",
                code="invalid-udf-result",
                hint=Hint.of("return a dict of tensors"),
            )
        self.validate_names(result)
        tensors = {}
        for feature in self.features:
            tensor = result[feature.name]
            if not isinstance(tensor, tf.Tensor | tf.RaggedTensor):
                raise UDFError(
                    f"{self.label}: invalid column {feature.name!r} of type "
                    f"{type(tensor).__name__}",
                    code="invalid-udf-result",
                    hint=Hint.of("return a dense or a ragged tensor"),
                    feature=feature.name,
                )
            reason = self._misfit(feature, tensor)
            if reason is not None:
                raise UDFError(
                    f"{self.label}, feature {feature.name!r}: {reason}",
                    code="value-mismatch",
                    feature=feature.name,
                )
            tensors[feature.name] = tensor
        return tensors

    def _misfit(self, feature: Feature, tensor: Tensor) -> str | None:
        """Return why no tensor of this type can be the feature; None if it can."""
        if tensor.shape.rank is None:
            return None
        if tensor.shape.rank == 0:
            return "holds one value, and one for each record is wanted"
        try:
            kind = infer_tensor_type(feature.name, tensor).value_type
        except SchemaMismatchError:
            return f"is of {tensor.dtype.name}, which no kind of feature can hold"
        optional = not feature.required and not feature.shape and is_list(kind)
        return find_mismatch(feature, kind.value_type if optional else kind)


def _fit_missing_rows(feature: Feature, column: pa.Array) -> ConvertedColumn:
    """Convert a ragged column; an empty row of an optional feature is missing."""
    if feature.required:
        return convert_to_feature(feature, column)
    cuts, values = split_lists(column)
    lengths = np.diff(cuts)
    if feature.shape:
        empty = pa.array(lengths == 0)
        return convert_to_feature(
            feature, pa.ListArray.from_arrays(column.offsets, column.values, mask=empty)
        )
    several = {
        row: SEVERAL_VALUES.format(lengths[row]) for row in np.flatnonzero(lengths > 1).tolist()
    }
    alone = convert_to_feature(feature, values.take(pa.array(cuts[:-1], mask=lengths != 1)))
    return ConvertedColumn(alone.array, alone.bad | several)


class BoundTensorUDF(BoundUDF):
    """TensorFlow function bound to records of one schema."""

    def __init__(self, work: TensorFunctionCall, reads: list[Feature], batch: int) -> None:
        super().__init__(reads, work.features)
        self._work = work
        self._batch = batch

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of some records."""
        cut = _split_batch(self._select_columns(batch), self._batch)
        parts = []
        for index, piece in enumerate(cut):
            with offset_mismatch(index * self._batch):
                parts.append(self._work(piece, every=every))
        return join_results(self.features, parts, batch.num_rows)

    def stream(
        self, batches: Iterable[pa.RecordBatch], *, every: bool, workers: int | None = None
    ) -> Iterator[UDFResult]:
        """Yield the new features of all batches in order, using one tf.data pipeline."""
        begun: deque[tuple[int, int]] = deque()

        def pieces() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                cut = _split_batch(self._select_columns(batch), self._batch)
                begun.append((len(cut), batch.num_rows))
                yield from cut

        parts: list[UDFResult] = []
        try:
            for result in stream_tensors(self._work, pieces(), every=every, workers=workers):
                parts.append(result)
                count, rows = begun[0]
                if len(parts) == count:
                    begun.popleft()
                    yield join_results(self.features, parts, rows)
                    parts = []
        except BatchMismatchError as error:
            raise error.shift(len(parts) * self._batch) from error.__cause__


def _split_batch(batch: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    """Split a batch into pieces of at most `rows` rows."""
    if batch.num_rows <= rows:
        return [batch]
    return [copy_batch(batch.slice(first, rows)) for first in range(0, batch.num_rows, rows)]
