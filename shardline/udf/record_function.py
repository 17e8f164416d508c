"""UDFs on one record: a dict of features in, a dict of new features out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from shardline.schema.conversion import convert_values, list_values
from shardline.udf.function_call import PythonUDF
from shardline.udf.udf_result import (
    CAUGHT_ERRORS,
    UDFResult,
    format_failures,
    make_null_column,
    make_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from shardline.schema.encoding import Reasons
    from shardline.schema.schema import Feature

    RecordFunction = Callable[[dict[str, Any]], Mapping[str, Any]]


def record_udf(
    *features: Feature,
    reads: Sequence[str] | None = None,
    code: str | None = None,
    processes: bool | None = None,
    deterministic: bool = True,
    check_source: bool = True,
) -> Callable[[RecordFunction], RecordUDF]:
    """Declare a function of one record as a UDF that computes these features.

    The function gets a dict: int, float, bytes or str; a NumPy array for a feature with a
    shape; None for a missing feature. It returns a dict of such values, or of lists. A feature
    that is None or omitted is missing, which only an optional feature allows.

    The function must not depend on the order of records: it may be called on several threads at
    once, and in other processes. By default, it starts in this process and moves to worker
    processes after a second of computing. A worker process has a copy of the function and of
    the globals that it uses.

    A changed function source with unchanged `code` raises an error, because one version would
    mix results of both. If the results are equal, set `check_source=False` for the next run.

    Args:
        features: Features that the function computes.
        reads: Names of the features that the function needs; only these are decoded. Without
            it, the function gets the whole context.
        code: Version of everything the results depend on; change it when results would change.
            Without it, earlier results are never reused.
        processes: True starts in worker processes, False stays in this process.
        deterministic: False if the same records may give different results; an audit then does
            not call the function again to compare.
        check_source: False accepts a changed source for this run.
    """
    return partial(
        RecordUDF,
        features=features,
        reads=reads,  # type: ignore[arg-type] # checked there
        code=code,
        deterministic=deterministic,
        check_source=check_source,
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class RecordUDF(PythonUDF):
    """UDF on one record."""

    maker: ClassVar[str] = "record function"

    def _get_call(self, reads: list[Feature]) -> RecordFunctionCall:
        return RecordFunctionCall(self.label, self.function, self.features, reads)


@dataclass(frozen=True, slots=True)
class RecordFunctionCall:
    """Call of a UDF for each row of a batch."""

    label: str
    function: RecordFunction
    features: tuple[Feature, ...]
    reads: list[Feature]

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute the new features of these records."""
        names = [feature.name for feature in self.reads]
        declared = {feature.name for feature in self.features}
        rows: list[Mapping[str, Any]] = []
        failed: dict[int, BaseException] = {}
        unfit: Reasons = {}
        function = self.function
        for values in zip(*map(list_values, batch.columns), strict=True):
            try:
                row: Any = function(dict(zip(names, values)))  # noqa: B905 - equal lengths, in a hot loop
                if not isinstance(row, (dict, Mapping)) or not row.keys() <= declared:
                    unfit[len(rows)] = (None, self._misfit(row, declared))
                    row = {}
            except CAUGHT_ERRORS as error:
                failed[len(rows)] = error
                row = {}
            rows.append(row)
            if (failed or unfit) and not every:
                break
        tried = len(rows)
        rows += [{}] * (batch.num_rows - tried)
        columns = [
            convert_values(feature, [row.get(feature.name) for row in rows])
            if rows
            else make_null_column(feature)
            for feature in self.features
        ]
        reasons, first = format_failures(self.label, failed)
        reasons |= unfit
        return make_result(self.label, self.features, columns, reasons, tried=tried, error=first)

    def _misfit(self, row: object, declared: set[str]) -> str:
        """Return why the result for a record is not a dict of the declared features."""
        if not isinstance(row, Mapping):
            gave = "None" if row is None else f"a value of type {type(row).__name__}"
            return f"{self.label} gave {gave}: it must return a dict of its fields"
        other = next(name for name in row if name not in declared)
        which = repr(other) if isinstance(other, str) else f"of type {type(other).__name__}"
        expected = ", ".join(map(repr, sorted(declared)))
        return (
            f"{self.label} gave a field {which}, which it does not declare: it declares {expected}"
        )
