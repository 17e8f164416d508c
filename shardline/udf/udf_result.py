"""Results and failures of UDFs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.errors import UDFError
from shardline.schema.arrow_types import get_column_type
from shardline.schema.conversion import ConvertedColumn
from shardline.udf.tensorflow_errors import extract_tensorflow_cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.hints import Hint
    from shardline.schema.encoding import Reasons
    from shardline.schema.schema import Feature


_LONGEST = 300
"""Maximum characters of an exception message."""
CAUGHT_ERRORS = (Exception, SystemExit)
"""Exceptions attributed to a function. SystemExit must not end the program; Ctrl-C may."""


@dataclass(frozen=True, slots=True)
class UDFResult:
    """One column per declared feature, with one row per record.

    Attributes:
        columns: Features with their columns, which report values that do not fit.
        reasons: Feature and detail of rows without a result, by position.
        error: First exception that a function raised.
    """

    columns: list[tuple[Feature, ConvertedColumn]]
    reasons: Reasons = field(default_factory=dict)
    error: BaseException | None = None


def make_null_column(feature: Feature, rows: int = 0) -> ConvertedColumn:
    """Return a column of nulls."""
    return ConvertedColumn(pa.nulls(rows, get_column_type(feature)))


def join_columns(
    features: Sequence[Feature], parts: Sequence[Sequence[ConvertedColumn]]
) -> list[ConvertedColumn]:
    """Concatenate the columns of several parts."""
    if len(parts) == 1:
        return list(parts[0])
    whole = []
    for index, feature in enumerate(features):
        arrays, bad, first = [pa.nulls(0, get_column_type(feature))], dict[int, str](), 0
        for part in parts:
            arrays.append(part[index].array)
            bad |= {first + row: reason for row, reason in part[index].bad.items()}
            first += len(part[index].array)
        whole.append(ConvertedColumn(pa.concat_arrays(arrays), bad))
    return whole


def make_result(
    label: str,
    features: Sequence[Feature],
    columns: Sequence[ConvertedColumn],
    reasons: Reasons,
    *,
    tried: int,
    error: BaseException | None = None,
) -> UDFResult:
    """Return the columns, adding a reason for each missing required value.

    Only the first `tried` rows were computed; later rows are missing without a reason.
    """
    for feature, fitted in zip(features, columns, strict=True):
        if not feature.required or not fitted.array.null_count:
            continue
        missing = np.flatnonzero(np.asarray(fitted.array.is_null())[:tried])
        for row in missing.tolist():
            if row not in fitted.bad:
                reasons.setdefault(
                    row, (feature.name, f"{label} gives no value, and it is required")
                )
    return UDFResult(list(zip(features, columns, strict=True)), reasons, error)


def join_results(features: Sequence[Feature], parts: Sequence[UDFResult], rows: int) -> UDFResult:
    """Concatenate the results of several parts, padded with nulls to `rows`."""
    if len(parts) == 1 and len(parts[0].columns[0][1].array) == rows:
        return parts[0]
    reasons: Reasons = {}
    first = 0
    for part in parts:
        reasons |= {first + row: reason for row, reason in part.reasons.items()}
        first += len(part.columns[0][1].array)
    columns = [[fitted for _, fitted in part.columns] for part in parts]
    columns.append([make_null_column(feature, rows - first) for feature in features])
    whole = zip(features, join_columns(features, columns), strict=True)
    error = next((part.error for part in parts if part.error is not None), None)
    return UDFResult(list(whole), reasons, error)


def format_failures(
    label: str, failed: Mapping[int, BaseException]
) -> tuple[Reasons, BaseException | None]:
    """Return the reasons of failed rows, and the first exception."""
    reasons: Reasons = {
        row: (None, f"{label} raised {format_exception(e)}") for row, e in failed.items()
    }
    return reasons, failed[min(failed)] if failed else None


def format_exception(error: BaseException) -> str:
    """Format an exception in one line: class name and message."""
    name = type(error).__name__
    try:
        text = str(error)
    except CAUGHT_ERRORS:  # Its class is user code too.
        return f"{name}, whose message cannot be told"
    message = " ".join(extract_tensorflow_cause(text).split())
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    if not message or message.startswith(f"{name}: "):
        return message or name
    return f"{name}: {message}"


class BatchMismatchError(UDFError):
    """Reason why some records have no computed features; records count from the batch start."""

    def __init__(
        self,
        first: int,
        last: int,
        detail: str,
        *,
        code: str | None = None,
        hint: Hint | None = None,
        feature: str | None = None,
    ) -> None:
        which = f"record {first}" if first == last else f"records {first} to {last}"
        super().__init__(f"{which}: {detail}", code=code, hint=hint, record=first, feature=feature)
        self.first = first
        self.last = last
        self.detail = detail

    def shift(self, by: int) -> BatchMismatchError:
        """Return a copy for a batch with `by` more records before them."""
        return BatchMismatchError(
            self.first + by,
            self.last + by,
            self.detail,
            code=self.code,
            hint=self.hint,
            feature=self.feature,
        )


@contextmanager
def offset_mismatch(first: int) -> Iterator[None]:
    """Shift record numbers of a BatchMismatchError by `first`, the start of a piece."""
    try:
        yield
    except BatchMismatchError as error:
        raise error.shift(first) from error.__cause__
