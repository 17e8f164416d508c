"""UDFs on Arrow record batches: columns of features in, columns of new features out."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from shardline.errors import UDFError
from shardline.hints import Hint
from shardline.schema.arrow_validation import find_fault, format_arrow_error
from shardline.schema.conversion import (
    MISMATCH,
    ConvertedColumn,
    convert_array,
    convert_to_feature,
    convert_values,
)
from shardline.udf.function_call import BatchCall, PythonUDF

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.schema.schema import Feature

    BatchFunction = Callable[[pa.RecordBatch], Any]

    from shardline.schema.conversion import ConvertedColumn


def batch_udf(
    *features: Feature,
    reads: Sequence[str],
    code: str | None = None,
    processes: bool | None = None,
    deterministic: bool = True,
    check_source: bool = True,
) -> Callable[[BatchFunction], BatchUDF]:
    """Declare a function of a record batch as a UDF that computes these features.

    The function gets a pyarrow.RecordBatch with the features in `reads`, in the types of
    `Snapshot.to_arrow`. It returns a dict of columns by name (Arrow or NumPy arrays, lists,
    pandas Series), a RecordBatch or a Table, with one value per row; null is a missing feature.
    The result for a row must not depend on the other rows in the batch: on failure, the
    function is called on parts of the batch to find the failing rows.

    The function may be called on several threads at once. Arrow and NumPy run concurrently
    there; processes help functions that are slow in Python itself. By default, the function
    starts in this process and moves to worker processes after a second of computing, if batches
    take milliseconds. A worker process has a copy of the function and of the globals that it
    uses.

    A changed function source with unchanged `code` raises an error, because one version would
    mix results of both. If the results are equal, set `check_source=False` for the next run.

    Args:
        features: Features that the function computes.
        reads: Names of the features that the function needs.
        code: Version of everything the results depend on; change it when results would change.
            Without it, earlier results are never reused.
        processes: True starts in worker processes, False stays in this process.
        deterministic: False if the same records may give different results; an audit then does
            not call the function again to compare.
        check_source: False accepts a changed source for this run.
    """
    return partial(
        BatchUDF,
        features=features,
        reads=reads,  # type: ignore[arg-type] # checked there
        code=code,
        deterministic=deterministic,
        check_source=check_source,
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class BatchUDF(PythonUDF):
    """UDF on a record batch."""

    maker: ClassVar[str] = "batch function"

    def _get_call(self, reads: list[Feature]) -> BatchFunctionCall:
        del reads
        return BatchFunctionCall(self.label, self.function, self.features)


@dataclass(frozen=True, slots=True)
class BatchFunctionCall(BatchCall):
    """Call of a UDF on record batches."""

    label: str
    function: BatchFunction
    features: tuple[Feature, ...]

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch unchanged."""
        return batch

    def call(self, prepared: pa.RecordBatch) -> Any:  # noqa: ANN401 - the function's own
        """Call the function on a batch."""
        return self.function(prepared)

    def convert_result(self, result: Any, rows: int) -> list[ConvertedColumn]:  # noqa: ANN401 - as above
        """Convert the returned columns to the declared features."""
        columns = self._get_columns(result)
        self.validate_names(columns)
        converted = []
        for feature in self.features:
            column = columns[feature.name]
            if isinstance(
                column, AbstractSet | Mapping
            ):  # A value without a row cannot be assigned to a record.
                raise self._make_column_error(feature, column)
            self.validate_row_count(feature.name, _get_length(column), rows)
            converted.append(self._convert(feature, column))
        return converted

    def _get_columns(self, result: Any) -> Mapping[Any, Any]:  # noqa: ANN401 - as above
        if isinstance(result, Mapping):
            return result
        if not isinstance(result, pa.RecordBatch | pa.Table) and hasattr(
            result, "__arrow_c_stream__"
        ):
            try:
                result = pa.table(result)
            except (pa.ArrowException, *MISMATCH) as error:
                raise UDFError(
                    f"{self.label}: invalid result: {format_arrow_error(error)}",
                    code="invalid-udf-result",
                ) from error
        if isinstance(result, pa.RecordBatch | pa.Table):
            names = result.schema.names
            if len(set(names)) < len(names):
                name = next(name for name in names if names.count(name) > 1)
                raise UDFError(
                    f"{self.label}: duplicate feature {name!r} in the result",
                    code="duplicate-feature",
                    feature=name,
                )
            return dict(zip(names, result.columns, strict=True))
        raise UDFError(
            f"{self.label}: invalid result of type {type(result).__name__}",
            code="invalid-udf-result",
            hint=Hint.of("return a dict of columns, a RecordBatch or a Table"),
        )

    def _convert(self, feature: Feature, column: Any) -> ConvertedColumn:  # noqa: ANN401 - as above
        column = self._validate_column(feature, column)
        if isinstance(column, list | tuple):
            return convert_values(feature, column)
        if isinstance(column, np.ndarray) and column.dtype == object:
            return convert_values(feature, list(column))
        try:
            if isinstance(column, np.ndarray):
                column = convert_array(column)
            if not isinstance(column, pa.Array):
                # In pandas columns, NaN is missing, unless the feature allows NaN.
                column = pa.array(column, from_pandas=not feature.nan)
        except MISMATCH:
            raise self._make_column_error(feature, column) from None
        try:
            return convert_to_feature(feature, self._validate_column(feature, column))
        except pa.ArrowException as error:
            raise self._make_corrupt_error(feature, format_arrow_error(error)) from error

    def _validate_column(self, feature: Feature, column: Any) -> Any:  # noqa: ANN401 - as above
        """Return the column as one array, after validating its offsets and indices."""
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            return column
        fault = find_fault([column])
        if fault is not None:
            raise self._make_corrupt_error(feature, fault.detail)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def _make_corrupt_error(self, feature: Feature, detail: str) -> UDFError:
        return UDFError(
            f"{self.label}: corrupt column {feature.name!r}: {detail}",
            code="corrupt-columns",
            hint=Hint.of("return arrays whose offsets and indices are valid"),
            feature=feature.name,
        )

    def _make_column_error(self, feature: Feature, column: object) -> UDFError:
        return UDFError(
            f"{self.label}: invalid column {feature.name!r} of type {type(column).__name__}",
            code="invalid-udf-result",
            hint=Hint.of("return an Arrow or NumPy array, or a list"),
            feature=feature.name,
        )


def _get_length(column: Any) -> int | None:  # noqa: ANN401 - whatever a function gives
    """Return the number of rows of a column; None for a single value."""
    single = isinstance(column, str | bytes) or not getattr(column, "ndim", 1)
    return len(column) if hasattr(column, "__len__") and not single else None
