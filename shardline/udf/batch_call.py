"""Calls of a function on several records at once, and the search for the records that fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shardline.errors import FieldsError
from shardline.hints import Hint
from shardline.text import counted
from shardline.udf.results import RAISED, BatchMisfit, in_words, joined, made_of, nothing, raised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.schema.conversion import Fitted
    from shardline.schema.schema import Feature
    from shardline.udf.results import Made


class Batchwise(ABC):
    """A function of several records at once, and how it is called."""

    shown: str
    features: tuple[Feature, ...]

    @abstractmethod
    def prepare(self, batch: pa.RecordBatch) -> Any:  # noqa: ANN401 - whatever `call` takes
        """What the function is given of a batch."""

    @abstractmethod
    def call(self, prepared: Any) -> Any:  # noqa: ANN401 - the function's own
        """What the function makes of it. What this raises is the function's fault."""

    @abstractmethod
    def fitted(self, result: Any, rows: int) -> list[Fitted]:  # noqa: ANN401 - as above
        """The columns that it made; FieldsError if they are not what is declared."""

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> Made:
        """The new fields of these records."""
        halves = _Halves(self, batch, every=every)
        if batch.num_rows:
            halves.work(0, batch.num_rows)
        if halves.tried < batch.num_rows or not halves.parts:
            left = batch.num_rows - halves.tried
            halves.parts.append([nothing(feature, left) for feature in self.features])
        reasons, error = raised(self.shown, halves.failed)
        columns = joined(self.features, halves.parts)
        return made_of(self.shown, self.features, columns, reasons, tried=halves.tried, error=error)

    def checked(self, result: Any, first: int, last: int) -> list[Fitted]:  # noqa: ANN401 - as above
        """The columns that it made of the rows from `first` to before `last`; or BatchMisfit."""
        try:
            return self.fitted(result, last - first)
        except FieldsError as error:
            raise BatchMisfit(
                first,
                last - 1,
                error.message,
                code=error.code,
                hint=error.hint,
                feature=error.feature,
            ) from error.__cause__

    def refuse_names(self, names: Iterable[object]) -> None:
        """Refuse results in which a field is missing, or is one too many."""
        declared = [feature.name for feature in self.features]
        given = list(names)
        for name in declared:
            if name not in given:
                returned = ", ".join(sorted(str(other) for other in given)) or "none"
                raise FieldsError(
                    f"{self.shown}: missing declared feature {name!r} (returned: {returned})",
                    code="missing-feature",
                    feature=name,
                )
        for other in given:
            if other not in declared:
                wanted = ", ".join(map(repr, declared))
                raise FieldsError(
                    f"{self.shown}: undeclared feature {str(other)!r} (declared: {wanted})",
                    code="unknown-feature",
                    feature=str(other),
                )

    def refuse_rows(self, name: str, found: int | None, rows: int) -> None:
        """Refuse a column that is not as long as the batch."""
        if found != rows:
            returned = "a single value" if found is None else counted(found, "row")
            raise FieldsError(
                f"{self.shown}: expected {counted(rows, 'row')} for feature {name!r}, "
                f"got {returned}",
                code="length-mismatch",
                feature=name,
            )


def copied(part: pa.RecordBatch) -> pa.RecordBatch:
    """Some rows in memory of their own.

    Functions may pick from what they are given, and Arrow picks garbage from slices of lists of a
    fixed size in each other.
    """
    return pa.ipc.read_record_batch(part.serialize(), part.schema)


class _Halves:
    """How far the rows of a batch are done, and on which the function failed."""

    def __init__(self, work: Batchwise, batch: pa.RecordBatch, *, every: bool) -> None:
        self.parts: list[list[Fitted]] = []
        self.failed: dict[int, BaseException] = {}
        self.tried = 0
        self._work = work
        self._batch = batch
        self._every = every

    def work(self, first: int, last: int) -> None:
        """Do some of the rows, and if that fails each half of them."""
        rows = last - first
        whole = rows == self._batch.num_rows
        part = self._batch if whole else copied(self._batch.slice(first, rows))
        prepared = self._work.prepare(part)
        try:
            result = self._work.call(prepared)
        except RAISED as error:
            if rows > 1:
                self._halve(first, last, error)
            else:
                self.failed[first] = error
                self.parts.append([nothing(feature, 1) for feature in self._work.features])
                self.tried = last
            return
        self.parts.append(self._work.checked(result, first, last))
        self.tried = last

    def _halve(self, first: int, last: int, error: BaseException) -> None:
        middle = (first + last) // 2
        before = len(self.failed)
        self.work(first, middle)
        if len(self.failed) == before or self._every:
            self.work(middle, last)
        if len(self.failed) == before:
            why = (
                f"{self._work.shown} raised {in_words(error)} on {last - first} rows together, "
                "but on no single row"
            )
            hint = Hint.of("compute each row independently of the other rows in the batch")
            raise BatchMisfit(
                first, last - 1, why, code="udf-depends-on-batch", hint=hint
            ) from error
