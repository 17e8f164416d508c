"""Calls of a function on several records at once, and the search for the records that fail."""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from threading import Lock
from time import thread_time
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from shardline.errors import FieldsError
from shardline.execution.threads import run_tasks
from shardline.hints import Hint
from shardline.text import format_count
from shardline.udf.udf_declaration import BoundUDF
from shardline.udf.udf_result import (
    CAUGHT_ERRORS,
    BatchMismatchError,
    UDFResult,
    format_exception,
    format_failures,
    join_columns,
    make_null_column,
    make_result,
    offset_mismatch,
    put_together,
)
from shardline.udf.worker_process import NotPortableError, WorkerPool, pickle_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.schema.conversion import ConvertedColumn
    from shardline.schema.schema import Feature
    from shardline.udf.udf_result import UDFResult


class BatchCall(ABC):
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
    def fitted(self, result: Any, rows: int) -> list[ConvertedColumn]:  # noqa: ANN401 - as above
        """The columns that it made; FieldsError if they are not what is declared."""

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of these records."""
        halves = _BatchBisection(self, batch, every=every)
        if batch.num_rows:
            halves.work(0, batch.num_rows)
        if halves.tried < batch.num_rows or not halves.parts:
            left = batch.num_rows - halves.tried
            halves.parts.append([make_null_column(feature, left) for feature in self.features])
        reasons, error = format_failures(self.shown, halves.failed)
        columns = join_columns(self.features, halves.parts)
        return make_result(
            self.shown, self.features, columns, reasons, tried=halves.tried, error=error
        )

    def checked(self, result: Any, first: int, last: int) -> list[ConvertedColumn]:  # noqa: ANN401 - as above
        """Return the columns of the rows from `first` to before `last`, or a BatchMismatchError."""
        try:
            return self.fitted(result, last - first)
        except FieldsError as error:
            raise BatchMismatchError(
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
            returned = "a single value" if found is None else format_count(found, "row")
            raise FieldsError(
                f"{self.shown}: expected {format_count(rows, 'row')} for feature {name!r}, "
                f"got {returned}",
                code="length-mismatch",
                feature=name,
            )


def copy_batch(part: pa.RecordBatch) -> pa.RecordBatch:
    """Some rows in memory of their own.

    Functions may pick from what they are given, and Arrow picks garbage from slices of lists of a
    fixed size in each other.
    """
    return pa.ipc.read_record_batch(part.serialize(), part.schema)


class _BatchBisection:
    """How far the rows of a batch are done, and on which the function failed."""

    def __init__(self, work: BatchCall, batch: pa.RecordBatch, *, every: bool) -> None:
        self.parts: list[list[ConvertedColumn]] = []
        self.failed: dict[int, BaseException] = {}
        self.tried = 0
        self._work = work
        self._batch = batch
        self._every = every

    def work(self, first: int, last: int) -> None:
        """Do some of the rows, and if that fails each half of them."""
        rows = last - first
        whole = rows == self._batch.num_rows
        part = self._batch if whole else copy_batch(self._batch.slice(first, rows))
        prepared = self._work.prepare(part)
        try:
            result = self._work.call(prepared)
        except CAUGHT_ERRORS as error:
            if rows > 1:
                self._halve(first, last, error)
            else:
                self.failed[first] = error
                self.parts.append([make_null_column(feature, 1) for feature in self._work.features])
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
                f"{self._work.shown} raised {format_exception(error)} on {last - first} "
                "rows together, "
                "but on no single row"
            )
            hint = Hint.of("compute each row independently of the other rows in the batch")
            raise BatchMismatchError(
                first, last - 1, why, code="udf-depends-on-batch", hint=hint
            ) from error


_logger = logging.getLogger(__name__)

_ENOUGH_SECONDS = 1.0
_WORTH_SECONDS = 0.002
"""A batch that is done in less than this is not worth being sent elsewhere."""
_FIRST_ROWS = 64
_PIECE_SECONDS = (0.05, 0.2)
"""How long a piece should take in this process."""
_PIECES_EACH = 4
"""Pieces of a batch for each process: one that is late is not waited for by the others."""


class FunctionCall(Protocol):
    """What is done with each batch. It can be sent to another process if its function can."""

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of these records."""
        ...


class BoundFunctionUDF(BoundUDF):
    """A function for records of one schema.

    `processes` says whether it runs in processes of its own: from the start, never, or, if it is
    None, once a second of computing was spent on it.
    """

    def __init__(
        self,
        shown: str,
        work: FunctionCall,
        reads: list[Feature],
        features: tuple[Feature, ...],
        processes: bool | None,  # noqa: FBT001 - as the decorators take it
    ) -> None:
        super().__init__(reads, features)
        self._shown = shown
        self._work = work
        self._insists = processes is True
        self._may_move = processes is None
        self._lock = Lock()
        self._spent = 0.0
        self._calls = 0
        self._rows = _FIRST_ROWS
        self._processes: WorkerPool | None = None
        if self._insists:
            try:
                self._move()
            except NotPortableError as error:
                raise error.refusal(shown) from error

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of some records."""
        given = self._given(batch)
        parts: list[UDFResult] = []
        for made in self._in_pieces(given, every=every):
            parts.append(made)
            if made.reasons and not every:
                break
        return put_together(self.features, parts, given.num_rows)

    def _in_pieces(self, batch: pa.RecordBatch, *, every: bool) -> Iterator[UDFResult]:
        """What becomes of a batch, piece by piece: here, until it moves, and then elsewhere."""
        done = 0
        while self._processes is None:
            piece = batch.slice(done, self._rows)
            whole = piece.num_rows == batch.num_rows
            with offset_mismatch(done):
                made = self._here(piece if whole else copy_batch(piece), every=every)
            yield made
            done += piece.num_rows
            if done >= batch.num_rows:
                return
        left = batch.num_rows - done
        rows = max(1, -(-left // (_PIECES_EACH * (os.cpu_count() or 1))))

        def work(first: int) -> UDFResult:
            with offset_mismatch(first):
                return self._elsewhere(batch.slice(first, rows), every=every)

        firsts = range(done, batch.num_rows, rows) or [0]
        yield from run_tasks(work, firsts, stop=self._hurry)

    def _elsewhere(self, piece: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Do it in another process, if there is one."""
        made = None
        processes = self._processes
        if processes is not None:
            with processes.caller():
                try:
                    made = processes.run(piece, every=every, wait=self._insists)
                except NotPortableError as error:
                    if self._insists:
                        raise error.refusal(self._shown) from error
                    self._stay(error)
        # While processes are about to start, it is done here.
        return self._work(copy_batch(piece), every=every) if made is None else made

    def close(self) -> None:
        """End its processes."""
        if self._processes is not None:
            self._processes.close()

    def _hurry(self) -> None:
        # Whoever pressed Ctrl-C does not wait until a function is through with its batch.
        if isinstance(sys.exception(), KeyboardInterrupt):
            self.close()

    def _here(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Do it in this process, and move once that has taken long enough."""
        began = thread_time()
        made = self._work(batch, every=every)
        took = thread_time() - began
        with self._lock:
            self._spent += took
            self._calls += 1
            self._adapt(batch.num_rows, took)
            enough = max(_ENOUGH_SECONDS, _WORTH_SECONDS * self._calls)
            if self._may_move and self._spent >= enough:
                self._may_move = False
                try:
                    self._move()
                except NotPortableError as error:
                    self._tell(error)
        return made

    def _adapt(self, rows: int, took: float) -> None:
        """Give more rows at a time, or fewer, so that a piece takes a moment."""
        least, most = _PIECE_SECONDS
        if took < least and rows >= self._rows:
            self._rows = 2 * rows
        elif took > most and rows > 1:
            self._rows = rows // 2

    def _move(self) -> None:
        self._processes = WorkerPool(self._shown, self.features, pickle_work(self._work))

    def _stay(self, error: NotPortableError) -> None:
        """Go on in this process after all."""
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            self._tell(error)
            processes.close()

    def _tell(self, error: NotPortableError) -> None:
        _logger.warning("%s goes on in this process: %s", self._shown, error)
