"""Batched function calls, bisection of failing records and the move to worker processes."""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from threading import Lock
from time import thread_time
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from shardline.errors import UDFError
from shardline.execution.threads import run_tasks
from shardline.hints import Hint
from shardline.text import format_count
from shardline.udf.udf_declaration import BoundUDF, FunctionUDF
from shardline.udf.udf_result import (
    CAUGHT_ERRORS,
    BatchMismatchError,
    UDFResult,
    format_exception,
    format_failures,
    join_columns,
    join_results,
    make_null_column,
    make_result,
    offset_mismatch,
)
from shardline.udf.worker_process import NotPortableError, WorkerPool, pickle_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.schema.conversion import ConvertedColumn
    from shardline.schema.schema import Feature, Schema

_logger = logging.getLogger(__name__)

_ENOUGH_SECONDS = 1.0
_WORTH_SECONDS = 0.002
"""Mean seconds per batch below which sending it to another process does not pay off."""
_FIRST_ROWS = 64
_PIECE_SECONDS = (0.05, 0.2)
"""Target duration range of a piece in this process, in seconds."""
_PIECES_EACH = 4
"""Pieces of a batch per process, so that others do not wait for a late piece."""


class BatchCall(ABC):
    """Call of a function on several records at once."""

    label: str
    features: tuple[Feature, ...]

    @abstractmethod
    def prepare(self, batch: pa.RecordBatch) -> Any:  # noqa: ANN401 - whatever `call` takes
        """Convert a batch to the argument of `call`."""

    @abstractmethod
    def call(self, prepared: Any) -> Any:  # noqa: ANN401 - the function's own
        """Call the function; exceptions are attributed to the function."""

    @abstractmethod
    def convert_result(self, result: Any, rows: int) -> list[ConvertedColumn]:  # noqa: ANN401 - as above
        """Convert the result to columns; UDFError if it differs from the declaration."""

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute the new features of these records."""
        halves = _BatchBisection(self, batch, every=every)
        if batch.num_rows:
            halves.work(0, batch.num_rows)
        if halves.tried < batch.num_rows or not halves.parts:
            left = batch.num_rows - halves.tried
            halves.parts.append([make_null_column(feature, left) for feature in self.features])
        reasons, error = format_failures(self.label, halves.failed)
        columns = join_columns(self.features, halves.parts)
        return make_result(
            self.label, self.features, columns, reasons, tried=halves.tried, error=error
        )

    def convert_part(self, result: Any, first: int, last: int) -> list[ConvertedColumn]:  # noqa: ANN401 - as above
        """Return the columns of rows `first` to `last` (exclusive), or BatchMismatchError."""
        try:
            return self.convert_result(result, last - first)
        except UDFError as error:
            raise BatchMismatchError(
                first,
                last - 1,
                error.message,
                code=error.code,
                hint=error.hint,
                feature=error.feature,
            ) from error.__cause__

    def validate_names(self, names: Iterable[object]) -> None:
        """Raise UDFError for a missing or undeclared feature in the result."""
        declared = [feature.name for feature in self.features]
        returned_names = list(names)
        for name in declared:
            if name not in returned_names:
                returned = ", ".join(sorted(str(other) for other in returned_names)) or "none"
                raise UDFError(
                    f"{self.label}: missing declared feature {name!r} (returned: {returned})",
                    code="missing-feature",
                    feature=name,
                )
        for other in returned_names:
            if other not in declared:
                expected = ", ".join(map(repr, declared))
                raise UDFError(
                    f"{self.label}: undeclared feature {str(other)!r} (declared: {expected})",
                    code="unknown-feature",
                    feature=str(other),
                )

    def validate_row_count(self, name: str, count: int | None, rows: int) -> None:
        """Raise UDFError for a column whose length differs from the batch."""
        if count != rows:
            returned = "a single value" if count is None else format_count(count, "row")
            raise UDFError(
                f"{self.label}: expected {format_count(rows, 'row')} for feature {name!r}, "
                f"got {returned}",
                code="length-mismatch",
                feature=name,
            )


def copy_batch(part: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a slice of a batch to its own memory.

    Functions may call `take` on their input, and Arrow returns garbage for slices of nested
    lists of a fixed size.
    """
    return pa.ipc.read_record_batch(part.serialize(), part.schema)


class _BatchBisection:
    """Progress through the rows of a batch, and the rows on which the function failed."""

    def __init__(self, work: BatchCall, batch: pa.RecordBatch, *, every: bool) -> None:
        self.parts: list[list[ConvertedColumn]] = []
        self.failed: dict[int, BaseException] = {}
        self.tried = 0
        self._work = work
        self._batch = batch
        self._every = every

    def work(self, first: int, last: int) -> None:
        """Compute some rows; on failure, compute each half of them."""
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
        self.parts.append(self._work.convert_part(result, first, last))
        self.tried = last

    def _halve(self, first: int, last: int, error: BaseException) -> None:
        middle = (first + last) // 2
        before = len(self.failed)
        self.work(first, middle)
        if len(self.failed) == before or self._every:
            self.work(middle, last)
        if len(self.failed) == before:
            detail = (
                f"{self._work.label} raised {format_exception(error)} on {last - first} "
                "rows together, "
                "but on no single row"
            )
            hint = Hint.of("compute each row independently of the other rows in the batch")
            raise BatchMismatchError(
                first, last - 1, detail, code="udf-depends-on-batch", hint=hint
            ) from error


class FunctionCall(Protocol):
    """Work on each batch; picklable if its function is."""

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute the new features of these records."""
        ...


@dataclass(frozen=True, slots=True)
class PythonUDF(FunctionUDF):
    """Function that runs in this process or in worker processes; see `BoundFunctionUDF`."""

    processes: bool | None = None

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind the function to records of this schema."""
        reads = self._select_features(schema)
        call = self._get_call(reads)
        return BoundFunctionUDF(self.label, call, reads, self.features, self.processes)

    @abstractmethod
    def _get_call(self, reads: list[Feature]) -> FunctionCall:
        """Return the work on each batch of these features."""


class BoundFunctionUDF(BoundUDF):
    """Function bound to records of one schema.

    `processes` selects worker processes: from the start (True), never (False), or after a
    second of computing (None).
    """

    def __init__(
        self,
        label: str,
        work: FunctionCall,
        reads: list[Feature],
        features: tuple[Feature, ...],
        processes: bool | None,  # noqa: FBT001 - as the decorators take it
    ) -> None:
        super().__init__(reads, features)
        self._label = label
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
                raise error.make_error(label) from error

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute the new features of some records."""
        columns = self._select_columns(batch)
        parts: list[UDFResult] = []
        for result in self._compute_pieces(columns, every=every):
            parts.append(result)
            if result.reasons and not every:
                break
        return join_results(self.features, parts, columns.num_rows)

    def _compute_pieces(self, batch: pa.RecordBatch, *, every: bool) -> Iterator[UDFResult]:
        """Compute a batch piece by piece, in this process until the work moves to workers."""
        done = 0
        while self._processes is None:
            piece = batch.slice(done, self._rows)
            whole = piece.num_rows == batch.num_rows
            with offset_mismatch(done):
                result = self._compute_here(piece if whole else copy_batch(piece), every=every)
            yield result
            done += piece.num_rows
            if done >= batch.num_rows:
                return
        left = batch.num_rows - done
        rows = max(1, -(-left // (_PIECES_EACH * (os.cpu_count() or 1))))

        def work(first: int) -> UDFResult:
            with offset_mismatch(first):
                return self._compute_in_worker(batch.slice(first, rows), every=every)

        firsts = range(done, batch.num_rows, rows) or [0]
        yield from run_tasks(work, firsts, stop=self._abort)

    def _compute_in_worker(self, piece: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute a piece in a worker process, if available."""
        result = None
        processes = self._processes
        if processes is not None:
            with processes.caller():
                try:
                    result = processes.run(piece, every=every, wait=self._insists)
                except NotPortableError as error:
                    if self._insists:
                        raise error.make_error(self._label) from error
                    self._move_back(error)
        # While workers start, compute in this process.
        return self._work(copy_batch(piece), every=every) if result is None else result

    def close(self) -> None:
        """Stop the worker processes."""
        if self._processes is not None:
            self._processes.close()

    def _abort(self) -> None:
        # After Ctrl-C, do not wait until a function finishes its batch.
        if isinstance(sys.exception(), KeyboardInterrupt):
            self.close()

    def _compute_here(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute in this process, and move to workers after enough computing time."""
        began = thread_time()
        result = self._work(batch, every=every)
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
                    self._warn(error)
        return result

    def _adapt(self, rows: int, took: float) -> None:
        """Adjust the rows per piece to the target duration."""
        least, most = _PIECE_SECONDS
        if took < least and rows >= self._rows:
            self._rows = 2 * rows
        elif took > most and rows > 1:
            self._rows = rows // 2

    def _move(self) -> None:
        self._processes = WorkerPool(self._label, self.features, pickle_work(self._work))

    def _move_back(self, error: NotPortableError) -> None:
        """Return to this process for good."""
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            self._warn(error)
            processes.close()

    def _warn(self, error: NotPortableError) -> None:
        _logger.warning("%s goes on in this process: %s", self._label, error)
