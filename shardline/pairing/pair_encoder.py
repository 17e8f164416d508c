"""Make the records of pairs: choose among them, add fields, and lay the bytes together."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.errors import InvalidRecordsError
from shardline.execution.threads import prefetch, run_tasks, share_stream
from shardline.hints import Hint, Option
from shardline.kernel.types import FOOTER_BYTES, Framed, Insides
from shardline.schema.arrow_types import schema_of
from shardline.schema.encoding import Rows, build_frames
from shardline.text import format_count
from shardline.udf.transform import map_unchanged_names
from shardline.udf.udf_result import BatchMismatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import IntArray
    from shardline.pairing.pair_batch import PairBatch, RecordPairs
    from shardline.pairing.pair_side import RecordPart
    from shardline.pairing.spec_binding import BoundCombineSpec
    from shardline.schema.encoding import Reasons
    from shardline.schema.schema import Feature
    from shardline.udf import UDFResult
    from shardline.udf.transform import BoundUDFs

_MAX_REASONS = 10


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Records of pairs; `numbers` are those of the two records of each, if they were asked for."""

    framed: Framed
    numbers: tuple[IntArray, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.framed.starts)

    def first(self, count: int) -> EncodedPairs:
        """The first so many."""
        framed = self.framed
        end = int(framed.starts[count - 1] + framed.lengths[count - 1]) + FOOTER_BYTES
        cut = Framed(framed.data[:end], framed.starts[:count], framed.lengths[:count])
        numbers = self.numbers and (self.numbers[0][:count], self.numbers[1][:count])
        return EncodedPairs(cut, numbers)


@dataclass(frozen=True, slots=True)
class PairEncoder:
    """Makes records of pairs, on threads, some lots ahead of who takes them.

    If `numbered`, the numbers of their records come with them.
    """

    bound: BoundCombineSpec
    max_record_bytes: int
    workers: int
    numbered: bool = False

    def encode_frames(
        self, lots: Iterator[PairBatch], limit: int | None = None
    ) -> Iterator[Framed]:
        """The records of the pairs, in order; with a limit the first so many.

        Raises InvalidRecordsError at a pair that is too large, or for which a function gives
        nothing.
        """
        with closing(self.encode(lots, limit)) as made:
            for one in made:
                yield one.framed

    def encode(
        self, lots: Iterator[PairBatch], limit: int | None = None
    ) -> Generator[EncodedPairs, None, None]:
        """The same, with their numbers."""
        with closing(self._records(lots)) as made:
            for one in made:
                if limit is not None and len(one) >= limit:
                    yield one.first(limit)
                    return
                yield one
                limit = None if limit is None else limit - len(one)

    def _records(self, lots: Iterator[PairBatch]) -> Generator[EncodedPairs, None, None]:
        where, fields = self.bound.where, self.bound.fields
        if where is None and fields is None:
            yield from self._plain(lots)
            return
        pairs = run_tasks(lambda lot: lot.list(), lots, workers=self.workers)
        if where is not None:
            pairs = (one.where(_get_mask(one, made)) for one, (made,) in self._made(where, pairs))
        if fields is None:
            yield from run_tasks(self._laid, pairs, workers=self.workers)
            return
        extended = self._made(fields, pairs)
        yield from run_tasks(lambda one: self._with(fields, *one), extended, workers=self.workers)

    def _plain(self, lots: Iterator[PairBatch]) -> Iterator[EncodedPairs]:
        """The records of pairs as they are. Who takes and writes them needs a worker as well."""
        if self.workers == 2:
            return prefetch(map(self._of_lot, lots))
        return run_tasks(self._of_lot, lots, workers=max(1, self.workers - 1))

    def _made(
        self, makers: BoundUDFs, pairs: Iterator[RecordPairs]
    ) -> Iterator[tuple[RecordPairs, Sequence[UDFResult]]]:
        """Pairs, with what the functions make of them."""
        bound = makers.bound()
        waiting: deque[RecordPairs] = deque()

        def read(one: RecordPairs) -> tuple[RecordPairs, list[pa.RecordBatch]]:
            return one, [self._columns(one, maker.reads) for maker in bound]

        def given() -> Iterator[list[pa.RecordBatch]]:
            some = (one for one in pairs if len(one))
            for one, batches in run_tasks(read, some, workers=self.workers):
                waiting.append(one)
                yield batches

        def of(at: int, lane: Iterator[list[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
            return (batches[at] for batches in lane)

        streams = [
            maker.stream(of(at, lane), every=False, workers=self.workers)
            for at, (maker, lane) in enumerate(
                zip(bound, share_stream(given(), len(bound)), strict=True)
            )
        ]
        try:
            for made in zip(*streams, strict=True):
                yield waiting.popleft(), made
        except BatchMismatchError as error:
            raise _make_invalid_record_error(
                [_make_mismatch_error(waiting[0], error)], len(waiting[0])
            ) from error.__cause__

    def _columns(self, pairs: RecordPairs, reads: Sequence[Feature]) -> pa.RecordBatch:
        """Features of the pairs, each taken from the side that it is of."""
        if not reads:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(pairs), pa.struct([])))
        names = self.bound.names.left
        of_left = {(key[0], name) for key, name in names.items() if name is not None}
        found: dict[tuple[bool, str], pa.Array] = {}
        for part, rows, mine in (
            (pairs.left, pairs.lefts, [one for one in reads if one.key in of_left]),
            (pairs.right, pairs.rights, [one for one in reads if one.key not in of_left]),
        ):
            taken = pa.array(rows, mask=rows < 0)
            for feature, array in zip(mine, part.columns(mine), strict=True):
                found[feature.key] = array.take(taken)
        return pa.RecordBatch.from_arrays(
            [found[feature.key] for feature in reads], schema=schema_of(reads)
        )

    def _of_lot(self, lot: PairBatch) -> EncodedPairs:
        return self._laid(lot.list())

    def _with(
        self, makers: BoundUDFs, pairs: RecordPairs, made: Sequence[UDFResult]
    ) -> EncodedPairs:
        """The records of pairs, the new fields last."""
        new = makers.transform.new
        reasons: Reasons = {at: why for one in reversed(made) for at, why in one.reasons.items()}
        columns = [column for one in made for column in one.columns]
        rows = Rows(np.arange(len(pairs)), pairs.shown, lambda _: b"")
        frames = build_frames(new, columns, rows, reasons, self.max_record_bytes)
        if frames.refused:
            error = next((one.error for one in made if one.error is not None), None)
            raise _make_invalid_record_error(
                [str(one) for one in frames.refused], len(pairs)
            ) from error
        names = map_unchanged_names(new)
        return self._laid(pairs, kernel.insides(frames.data, frames.starts, frames.lengths, names))

    def _laid(self, pairs: RecordPairs, more: Insides | None = None) -> EncodedPairs:
        parts = [_select_rows(pairs.left, pairs.lefts), _select_rows(pairs.right, pairs.rights)]
        if more is not None:
            parts.append((more, np.arange(len(pairs))))
        framed = kernel.join([part for part, _ in parts], [rows for _, rows in parts])
        over = np.flatnonzero(framed.lengths > self.max_record_bytes)
        if len(over):
            at = int(over[0])
            raise InvalidRecordsError(
                f"{pairs.shown(at)}: the pair takes {framed.lengths[at]} bytes (limit: "
                f"{self.max_record_bytes})",
                (pairs.shown(at),),
                len(over),
                len(pairs),
                complete=False,
                code="record-too-large",
                hint=Hint.of("raise ", Option("max_record"), ", or leave features out"),
            )
        return EncodedPairs(framed, pairs.numbers() if self.numbered else None)


def _select_rows(part: RecordPart, rows: IntArray) -> tuple[Insides, IntArray]:
    """Insides with little else than these rows: all of them are looked at when they are joined."""
    if part.records <= 2 * len(rows):
        return part.insides, rows
    there = rows >= 0
    starts = np.ascontiguousarray(part.insides.starts[:, rows[there]])
    lengths = np.ascontiguousarray(part.insides.lengths[:, rows[there]])
    places = np.where(there, np.cumsum(there) - 1, -1)
    return Insides(part.insides.data, starts, lengths), places


def _get_mask(pairs: RecordPairs, made: UDFResult) -> NDArray[np.bool_]:
    """Which of the pairs are wanted; no value is no."""
    ((feature, fitted),) = made.columns
    reasons = dict(made.reasons)
    for at, why in fitted.bad.items():
        reasons.setdefault(at, (feature.name, why))
    answers = np.asarray(fitted.array.fill_null(0))
    for at in np.flatnonzero((answers != 0) & (answers != 1)).tolist():
        reasons.setdefault(at, (feature.name, "holds a number that is neither 0 nor 1"))
    if reasons:
        told = [
            f"{pairs.shown(at)}{'' if name is None else f', feature {name!r}'}: {why}"
            for at, (name, why) in sorted(reasons.items())
        ]
        raise _make_invalid_record_error(told, len(pairs)) from made.error
    wanted: NDArray[np.bool_] = answers == 1
    return wanted


def _make_mismatch_error(pairs: RecordPairs, error: BatchMismatchError) -> str:
    first, last = pairs.shown(error.first), pairs.shown(error.last)
    which = first if first == last else f"from {first} to {last}"
    return f"{which}: {error.detail}"


def _make_invalid_record_error(told: Sequence[str], rows: int) -> InvalidRecordsError:
    lines = "\n  ".join(told[:_MAX_REASONS])
    return InvalidRecordsError(
        f"cannot combine at least {format_count(len(told), 'pair')}, nothing was written:\n "
        f" {lines}",
        tuple(told[:_MAX_REASONS]),
        len(told),
        rows,
        complete=False,
        hint=Hint.of("fix the function given as ", Option("where"), " or ", Option("fields")),
    )
