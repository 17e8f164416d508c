"""Where a function runs: in this process, or in processes of its own once that pays.

Threads of this process share one interpreter, so that Python functions on several of them take
turns. Processes do not, but each takes half a second to start, and batches must be sent to it.

A batch may hold many thousands of records. So it is done in pieces: here in such that take a
moment each, so that a slow function can move in the middle of a batch; there in as many as keep
every process busy.
"""

from __future__ import annotations

import logging
import os
import sys
from threading import Lock
from time import thread_time
from typing import TYPE_CHECKING, Protocol

from shardline.execution.threads import run_tasks
from shardline.udf.base import Bound
from shardline.udf.batch_call import copied
from shardline.udf.processes import CannotShip, Processes, shipped
from shardline.udf.results import Made, of_piece, put_together

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from shardline.schema.schema import Feature

_logger = logging.getLogger(__name__)

_ENOUGH_SECONDS = 1.0
_WORTH_SECONDS = 0.002
"""A batch that is done in less than this is not worth being sent elsewhere."""
_FIRST_ROWS = 64
_PIECE_SECONDS = (0.05, 0.2)
"""How long a piece should take in this process."""
_PIECES_EACH = 4
"""Pieces of a batch for each process: one that is late is not waited for by the others."""


class Work(Protocol):
    """What is done with each batch. It can be sent to another process if its function can."""

    def __call__(self, batch: pa.RecordBatch, *, every: bool) -> Made:
        """The new fields of these records."""
        ...


class BoundWork(Bound):
    """A function for records of one schema.

    `processes` says whether it runs in processes of its own: from the start, never, or, if it is
    None, once a second of computing was spent on it.
    """

    def __init__(
        self,
        shown: str,
        work: Work,
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
        self._processes: Processes | None = None
        if self._insists:
            try:
                self._move()
            except CannotShip as error:
                raise error.refusal(shown) from error

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> Made:
        """The new fields of some records."""
        given = self._given(batch)
        parts: list[Made] = []
        for made in self._in_pieces(given, every=every):
            parts.append(made)
            if made.reasons and not every:
                break
        return put_together(self.features, parts, given.num_rows)

    def _in_pieces(self, batch: pa.RecordBatch, *, every: bool) -> Iterator[Made]:
        """What becomes of a batch, piece by piece: here, until it moves, and then elsewhere."""
        done = 0
        while self._processes is None:
            piece = batch.slice(done, self._rows)
            whole = piece.num_rows == batch.num_rows
            with of_piece(done):
                made = self._here(piece if whole else copied(piece), every=every)
            yield made
            done += piece.num_rows
            if done >= batch.num_rows:
                return
        left = batch.num_rows - done
        rows = max(1, -(-left // (_PIECES_EACH * (os.cpu_count() or 1))))

        def work(first: int) -> Made:
            with of_piece(first):
                return self._elsewhere(batch.slice(first, rows), every=every)

        firsts = range(done, batch.num_rows, rows) or [0]
        yield from run_tasks(work, firsts, stop=self._hurry)

    def _elsewhere(self, piece: pa.RecordBatch, *, every: bool) -> Made:
        """Do it in another process, if there is one."""
        made = None
        processes = self._processes
        if processes is not None:
            with processes.caller():
                try:
                    made = processes.run(piece, every=every, wait=self._insists)
                except CannotShip as error:
                    if self._insists:
                        raise error.refusal(self._shown) from error
                    self._stay(error)
        # While processes are about to start, it is done here.
        return self._work(copied(piece), every=every) if made is None else made

    def close(self) -> None:
        """End its processes."""
        if self._processes is not None:
            self._processes.close()

    def _hurry(self) -> None:
        # Whoever pressed Ctrl-C does not wait until a function is through with its batch.
        if isinstance(sys.exception(), KeyboardInterrupt):
            self.close()

    def _here(self, batch: pa.RecordBatch, *, every: bool) -> Made:
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
                except CannotShip as error:
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
        self._processes = Processes(self._shown, self.features, shipped(self._work))

    def _stay(self, error: CannotShip) -> None:
        """Go on in this process after all."""
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            self._tell(error)
            processes.close()

    def _tell(self, error: CannotShip) -> None:
        _logger.warning("%s goes on in this process: %s", self._shown, error)
