"""Functions of one record: a dict of its features in, a dict of its new fields out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from shardline.schema.conversion import convert_values, list_values
from shardline.udf.function_call import BoundFunctionUDF
from shardline.udf.udf_declaration import FunctionUDF
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
    from shardline.schema.schema import Feature, Schema
    from shardline.udf.udf_declaration import BoundUDF

    RecordFunction = Callable[[dict[str, Any]], Mapping[str, Any]]


def record_udf(
    *features: Feature,
    reads: Sequence[str] | None = None,
    code: str | None = None,
    processes: bool | None = None,
    deterministic: bool = True,
    check_source: bool = True,
) -> Callable[[RecordFunction], RecordUDF]:
    """Declare that a function of one record makes these fields.

    It is given a dict: int, float, bytes or str; a NumPy array in the feature's shape where it has
    one; None where the feature is missing. It returns a dict of such values, or of lists; a field
    that is None or left out is missing, which only one that is not required may be.

    `reads` names the features that it needs, and only those are decoded; without it, it is given
    all of the context. `code` is the version of all that its results depend on: change it when
    they would change. Without it nothing is used again that the function made before.

    The function must not depend on the order of records: it may be called on several threads at
    once, and in other processes. It begins in this process, and goes on in processes of its own
    once it took a second of computing; with `processes=True` it begins there, with False it stays
    here. There it is a copy, with copies of the globals that it uses.

    A function that may make something else of the same records another time says so with
    `deterministic=False`: then an audit does not call it again to compare.

    A function whose source has changed while its `code` has not is refused, since one version would
    mix results of both. If the results are the same, set `check_source=False` for the next run.
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
class RecordUDF(FunctionUDF):
    """A function of one record."""

    processes: bool | None = None

    maker: ClassVar[str] = "record function"

    def bind(self, schema: Schema) -> BoundUDF:
        """The function for records of this schema."""
        reads = self._found(schema)
        work = RecordFunctionCall(self.shown, self.function, self.features, reads)
        return BoundFunctionUDF(self.shown, work, reads, self.features, self.processes)


@dataclass(frozen=True, slots=True)
class RecordFunctionCall:
    """The function, called for each row of a batch."""

    shown: str
    function: RecordFunction
    features: tuple[Feature, ...]
    reads: list[Feature]

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of these records."""
        names = [feature.name for feature in self.reads]
        declared = {feature.name for feature in self.features}
        rows: list[Mapping[str, Any]] = []
        failed: dict[int, BaseException] = {}
        unfit: Reasons = {}
        function = self.function
        for values in zip(*map(list_values, batch.columns), strict=True):
            try:
                row: Any = function(dict(zip(names, values)))  # noqa: B905 - as many, and told often
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
        made = [
            convert_values(feature, [row.get(feature.name) for row in rows])
            if rows
            else make_null_column(feature)
            for feature in self.features
        ]
        reasons, first = format_failures(self.shown, failed)
        reasons |= unfit
        return make_result(self.shown, self.features, made, reasons, tried=tried, error=first)

    def _misfit(self, row: object, declared: set[str]) -> str:
        """Why what it gave for a record is not a dict of its fields."""
        if not isinstance(row, Mapping):
            gave = "None" if row is None else f"a value of type {type(row).__name__}"
            return f"{self.shown} gave {gave}: it must return a dict of its fields"
        other = next(name for name in row if name not in declared)
        which = repr(other) if isinstance(other, str) else f"of type {type(other).__name__}"
        wanted = ", ".join(map(repr, sorted(declared)))
        return f"{self.shown} gave a field {which}, which it does not declare: it declares {wanted}"
