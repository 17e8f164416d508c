"""Snapshots as a sequence of pandas DataFrames, in constant memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shardline.errors import PackageMissingError
from shardline.hints import Hint
from shardline.readers.arrow import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from shardline.log.snapshot import StoredSnapshot
    from shardline.tfrecord.reader import Limits


def to_pandas(
    snapshot: StoredSnapshot,
    columns: Sequence[str] | None = None,
    *,
    workers: int | None = None,
    batch_bytes: int | None = None,
    limits: Limits | None = None,
) -> Iterator[pd.DataFrame]:
    """Read a snapshot as DataFrames. See `Snapshot.to_pandas`."""
    pandas = _pandas()
    reader = to_arrow(snapshot, columns, workers=workers, batch_bytes=batch_bytes, limits=limits)

    def frames() -> Iterator[pd.DataFrame]:
        first = 0
        for batch in reader:
            index = pandas.RangeIndex(first, first + batch.num_rows)
            first += batch.num_rows
            yield _frame(pandas, batch, index)

    return frames()


def _pandas() -> Any:  # noqa: ANN401 - a module without types
    try:
        import pandas  # noqa: ICN001, PLC0415 - takes a second to load
    except ImportError:
        raise PackageMissingError(
            "to_pandas requires pandas, which is not installed",
            hint=Hint.of("run `pip install pandas`, or use `to_arrow()`"),
        ) from None
    return pandas


def _frame(pandas: Any, batch: pa.RecordBatch, index: pd.RangeIndex) -> pd.DataFrame:  # noqa: ANN401
    series = [
        _series(pandas, field, array)
        for field, array in zip(batch.schema, batch.columns, strict=True)
    ]
    # Numbered first: a name may occur twice, in the context and in the feature_lists.
    frame = pandas.DataFrame(dict(enumerate(series)))
    frame.columns = pandas.Index(batch.schema.names)
    frame.index = index
    return frame


def _series(pandas: Any, field: pa.Field, array: pa.Array) -> pd.Series:  # noqa: ANN401
    """Convert a column to a series whose dtype does not depend on missing values."""
    if isinstance(field.type, pa.ListType | pa.FixedSizeListType):
        return pandas.Series(_cells(array), dtype=object)
    whole = pandas.Int64Dtype() if field.nullable else None  # float would round the values
    text = pandas.StringDtype(na_value=float("nan"))
    return array.to_pandas(types_mapper={pa.int64(): whole, pa.string(): text}.get)


def _cells(array: pa.Array) -> NDArray[np.object_]:
    """Return each row as an array in the shape of its feature, or None if missing."""
    cells = np.empty(len(array), object)
    for index, (row, there) in enumerate(
        zip(_rows(array), np.asarray(array.is_valid()), strict=True)
    ):
        cells[index] = row if there else None
    return cells


def _rows(array: pa.Array) -> NDArray[Any] | list[Any]:
    """Return the rows of a whole column, as an array if their shapes are equal, else a list."""
    if isinstance(array.type, pa.FixedSizeListType):
        inside = _rows(array.values)
        return np.reshape(inside, (-1, array.type.list_size, *np.shape(inside)[1:]))
    if isinstance(array.type, pa.ListType):
        inside = _rows(array.values)
        ends = array.offsets.to_pylist()
        return [inside[first:last] for first, last in pairwise(ends)]
    return np.array(array.to_numpy(zero_copy_only=False))
