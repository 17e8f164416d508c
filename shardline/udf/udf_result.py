"""The cause in the text of a TensorFlow error, without long lists of call sites."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.errors import FieldsError
from shardline.schema.arrow_types import column_type
from shardline.schema.conversion import ConvertedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.hints import Hint
    from shardline.schema.encoding import Reasons
    from shardline.schema.schema import Feature


_GRAPH = "Graph execution error:"


_TRACED = "in user code:"


_PLACE = re.compile(r'\s*(Detected at node |File "|<stack traces unavailable>|$)')


_END = re.compile(r"\s*(\[\[\{\{|Traceback \(most recent call last\))")


_NODES = re.compile(r"^\{\{function_node \S+\}\}\s*|\s*\[Op:[^\]]*\](\s*name:.*)?\s*$")


_VALUES = re.compile(r"\s*(\[\S* \(\S+\) = \]|, value: |(?<=convert string): ).*", re.DOTALL)
"""Where TensorFlow goes on to tell what records hold, which is nothing for messages."""


def extract_tensorflow_cause(said: str) -> str:
    """The part that tells, without values of records; other texts stay as they are."""
    if said.startswith(_GRAPH):
        return _VALUES.sub("", _extract_graph_cause(said.splitlines()[1:]))
    if said.startswith(_TRACED):
        return _extract_traced_cause(said.splitlines())
    if _NODES.search(said):
        return _VALUES.sub("", _NODES.sub("", said))
    return said


def _extract_graph_cause(lines: list[str]) -> str:
    """What stands between the places in the graph and the names of its nodes."""
    first = next((at for at, line in enumerate(lines) if not _PLACE.match(line)), len(lines))
    behind = range(first, len(lines))
    last = next((at for at in behind if _END.match(lines[at])), len(lines))
    return "\n".join(lines[first:last])


def _extract_traced_cause(lines: list[str]) -> str:
    """What stands behind the last place in the function: that is told in two lines."""
    places = [at for at, line in enumerate(lines) if line.lstrip().startswith('File "')]
    return "\n".join(lines[places[-1] + 2 :] if places else lines[1:])


_LONGEST = 300
"""How much is told of what a function raised."""
CAUGHT_ERRORS = (Exception, SystemExit)
"""What counts as raised by a function: it is not for it to end the program. Ctrl-C is not its."""


@dataclass(frozen=True, slots=True)
class UDFResult:
    """One column for each declared feature, of as many rows as there were records.

    `reasons` tells of rows for which nothing was made, by their place: feature and detail. Values
    that do not fit their feature are told by the columns themselves. `error` is the first that a
    function raised.
    """

    columns: list[tuple[Feature, ConvertedColumn]]
    reasons: Reasons = field(default_factory=dict)
    error: BaseException | None = None


def make_null_column(feature: Feature, rows: int = 0) -> ConvertedColumn:
    """A column without any value."""
    return ConvertedColumn(pa.nulls(rows, column_type(feature)))


def join_columns(
    features: Sequence[Feature], parts: Sequence[Sequence[ConvertedColumn]]
) -> list[ConvertedColumn]:
    """The columns of several parts, one behind the other."""
    if len(parts) == 1:
        return list(parts[0])
    whole = []
    for place, feature in enumerate(features):
        arrays, bad, first = [pa.nulls(0, column_type(feature))], dict[int, str](), 0
        for part in parts:
            arrays.append(part[place].array)
            bad |= {first + at: why for at, why in part[place].bad.items()}
            first += len(part[place].array)
        whole.append(ConvertedColumn(pa.concat_arrays(arrays), bad))
    return whole


def make_result(
    shown: str,
    features: Sequence[Feature],
    columns: Sequence[ConvertedColumn],
    reasons: Reasons,
    *,
    tried: int,
    error: BaseException | None = None,
) -> UDFResult:
    """The columns, and as one more reason what is required and is not there.

    Only the first rows were tried, so many; those behind them are not there for no reason.
    """
    for feature, fitted in zip(features, columns, strict=True):
        if not feature.required or not fitted.array.null_count:
            continue
        missing = np.flatnonzero(np.asarray(fitted.array.is_null())[:tried])
        for at in missing.tolist():
            if at not in fitted.bad:
                reasons.setdefault(
                    at, (feature.name, f"{shown} gives no value, and it is required")
                )
    return UDFResult(list(zip(features, columns, strict=True)), reasons, error)


def put_together(features: Sequence[Feature], parts: Sequence[UDFResult], rows: int) -> UDFResult:
    """What became of several parts, one behind the other; of the rows behind them nothing did."""
    if len(parts) == 1 and len(parts[0].columns[0][1].array) == rows:
        return parts[0]
    reasons: Reasons = {}
    first = 0
    for part in parts:
        reasons |= {first + at: why for at, why in part.reasons.items()}
        first += len(part.columns[0][1].array)
    columns = [[fitted for _, fitted in part.columns] for part in parts]
    columns.append([make_null_column(feature, rows - first) for feature in features])
    whole = zip(features, join_columns(features, columns), strict=True)
    error = next((part.error for part in parts if part.error is not None), None)
    return UDFResult(list(whole), reasons, error)


def format_failures(
    shown: str, failed: Mapping[int, BaseException]
) -> tuple[Reasons, BaseException | None]:
    """The reasons of rows on which a function raised, and what it raised first."""
    reasons: Reasons = {
        at: (None, f"{shown} raised {format_exception(e)}") for at, e in failed.items()
    }
    return reasons, failed[min(failed)] if failed else None


def format_exception(error: BaseException) -> str:
    """An error in one line: what it is, and what it says."""
    name = type(error).__name__
    try:
        text = str(error)
    except CAUGHT_ERRORS:  # its class is the user's as well
        return f"{name}, whose message cannot be told"
    said = " ".join(extract_tensorflow_cause(text).split())
    if len(said) > _LONGEST:
        said = f"{said[:_LONGEST]}..."
    if not said or said.startswith(f"{name}: "):
        return said or name
    return f"{name}: {said}"


class BatchMismatchError(FieldsError):
    """Why no fields can be made of some records. They are counted from the start of the batch."""

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

    def moved(self, by: int) -> BatchMismatchError:
        """The same in a batch that has so many records before them."""
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
    """While a piece of a batch is done that begins with the record `first` of it."""
    try:
        yield
    except BatchMismatchError as error:
        raise error.moved(first) from error.__cause__
