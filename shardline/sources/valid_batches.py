"""Batches from elsewhere, each valid, with the errors of pyarrow as errors of ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline.errors import ShardlineError, SourceError
from shardline.hints import Hint
from shardline.schema.arrow_validation import find_fault, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.sources.columnar import Batch

_RAISED = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)
"""What pyarrow raises for data that it cannot read."""
GET_AGAIN = Hint.of("get the data again from its origin, or write it again")


def valid_batches(shown: str, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches after their columns are validated; SourceError if they are corrupt."""
    with arrow_errors(shown):
        for batch in batches:
            validate_batch(shown, batch.rows, batch.first)
            yield batch


def validate_batch(shown: str, rows: pa.RecordBatch, first: int) -> None:
    """Raise SourceError if a column leads out of its memory; `first` is the number of a row."""
    fault = find_fault(rows.columns)
    if fault is not None:
        column = rows.schema.names[fault.position]
        raise corrupt_columns(shown, column, fault.detail, record=first)


@contextmanager
def arrow_errors(shown: str, feature: str | None = None) -> Iterator[None]:
    """Turn what pyarrow raises into a SourceError, without values."""
    try:
        yield
    except ShardlineError:
        raise
    except _RAISED as error:
        named = "" if feature is None else f", column {feature!r}"
        raise SourceError(
            f"{shown}{named}: cannot read: {printable(error)}", hint=GET_AGAIN, feature=feature
        ) from error


def corrupt_columns(
    shown: str,
    column: str | None,
    detail: str,
    *,
    part: int | None = None,
    record: int | None = None,
) -> SourceError:
    """Return the error for columns that are not valid Arrow data.

    `part` is the number of the row group or record batch, `record` the first row of the batch.
    """
    named = "" if column is None else f", column {column!r}"
    where = "" if part is None else f", part {part}"
    return SourceError(
        f"{shown}{where}{named}: corrupt columns: {detail}",
        code="corrupt-columns",
        hint=GET_AGAIN,
        record=record,
        feature=column,
    )
