"""Pair encoder: select pairs, compute their new features, and encode them as records."""

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
    from shardline.schema.schema import Feature, Key
    from shardline.udf import UDFResult
    from shardline.udf.transform import BoundUDFs

_MAX_REASONS = 10


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Encoded pairs, with the numbers of the two records of each if requested."""

    framed: Framed
    numbers: tuple[IntArray, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.framed.starts)

    def first(self, count: int) -> EncodedPairs:
        """Return the first `count` pairs."""
        framed = self.framed
        end = int(framed.starts[count - 1] + framed.lengths[count - 1]) + FOOTER_BYTES
        first = Framed(framed.data[:end], framed.starts[:count], framed.lengths[:count])
        numbers = self.numbers and (self.numbers[0][:count], self.numbers[1][:count])
        return EncodedPairs(first, numbers)


@dataclass(frozen=True, slots=True)
class PairEncoder:
    """Encoder of pairs, on threads that work some batches ahead.

    If `is_numbered`, the encoded pairs have the numbers of their records.
    """

    bound: BoundCombineSpec
    max_record_bytes: int
    workers: int
    is_numbered: bool = False

    def encode_frames(
        self, batches: Iterator[PairBatch], limit: int | None = None
    ) -> Iterator[Framed]:
        """Yield the encoded pairs in order, up to a limit, without their numbers."""
        with closing(self.encode(batches, limit)) as blocks:
            for block in blocks:
                yield block.framed

    def encode(
        self, batches: Iterator[PairBatch], limit: int | None = None
    ) -> Generator[EncodedPairs, None, None]:
        """Yield the encoded pairs in order, up to a limit.

        Raises InvalidRecordsError at a pair that is too large, or for which a function fails.
        """
        with closing(self._encode(batches)) as blocks:
            for block in blocks:
                if limit is not None and len(block) >= limit:
                    yield block.first(limit)
                    return
                yield block
                limit = None if limit is None else limit - len(block)

    def _encode(self, batches: Iterator[PairBatch]) -> Generator[EncodedPairs, None, None]:
        where, udfs = self.bound.where, self.bound.udfs
        if where is None and udfs is None:
            yield from self._encode_plain(batches)
            return
        pairs = run_tasks(lambda batch: batch.list(), batches, workers=self.workers)
        if where is not None:
            pairs = (
                listed.filter(_get_mask(listed, result))
                for listed, (result,) in self._compute(where, pairs)
            )
        if udfs is None:
            yield from run_tasks(self._join, pairs, workers=self.workers)
            return
        extended = self._compute(udfs, pairs)
        yield from run_tasks(lambda item: self._extend(udfs, *item), extended, workers=self.workers)

    def _encode_plain(self, batches: Iterator[PairBatch]) -> Iterator[EncodedPairs]:
        """Encode pairs without new features. The thread that writes them needs a core too."""
        if self.workers == 2:
            return prefetch(map(self._encode_batch, batches))
        return run_tasks(self._encode_batch, batches, workers=max(1, self.workers - 1))

    def _compute(
        self, udfs: BoundUDFs, pairs: Iterator[RecordPairs]
    ) -> Iterator[tuple[RecordPairs, Sequence[UDFResult]]]:
        """Yield pairs with the results of the functions."""
        bound = udfs.bound()
        waiting: deque[RecordPairs] = deque()

        def read(listed: RecordPairs) -> tuple[RecordPairs, list[pa.RecordBatch]]:
            return listed, [self._read_columns(listed, udf.reads) for udf in bound]

        def read_all() -> Iterator[list[pa.RecordBatch]]:
            nonempty = (listed for listed in pairs if len(listed))
            for listed, columns in run_tasks(read, nonempty, workers=self.workers):
                waiting.append(listed)
                yield columns

        def select(index: int, stream: Iterator[list[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
            return (columns[index] for columns in stream)

        streams = [
            udf.stream(select(index, stream), every=False, workers=self.workers)
            for index, (udf, stream) in enumerate(
                zip(bound, share_stream(read_all(), len(bound)), strict=True)
            )
        ]
        try:
            for results in zip(*streams, strict=True):
                yield waiting.popleft(), results
        except BatchMismatchError as error:
            raise _make_invalid_record_error(
                [_make_mismatch_error(waiting[0], error)], len(waiting[0])
            ) from error.__cause__

    def _read_columns(self, pairs: RecordPairs, reads: Sequence[Feature]) -> pa.RecordBatch:
        """Return features of pairs, each from its side."""
        if not reads:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(pairs), pa.struct([])))
        names = self.bound.names.left
        left_keys = {(key[0], name) for key, name in names.items() if name is not None}
        arrays: dict[Key, pa.Array] = {}
        for part, rows, features in (
            (pairs.left, pairs.lefts, [item for item in reads if item.key in left_keys]),
            (pairs.right, pairs.rights, [item for item in reads if item.key not in left_keys]),
        ):
            indices = pa.array(rows, mask=rows < 0)
            for feature, array in zip(features, part.columns(features), strict=True):
                arrays[feature.key] = array.take(indices)
        return pa.RecordBatch.from_arrays(
            [arrays[feature.key] for feature in reads], schema=schema_of(reads)
        )

    def _encode_batch(self, batch: PairBatch) -> EncodedPairs:
        return self._join(batch.list())

    def _extend(
        self, udfs: BoundUDFs, pairs: RecordPairs, results: Sequence[UDFResult]
    ) -> EncodedPairs:
        """Encode pairs with their new features last."""
        new = udfs.transform.new
        reasons: Reasons = {
            row: reason for result in reversed(results) for row, reason in result.reasons.items()
        }
        columns = [column for result in results for column in result.columns]
        rows = Rows(np.arange(len(pairs)), pairs.label, lambda _: b"")
        frames = build_frames(new, columns, rows, reasons, self.max_record_bytes)
        if frames.refused:
            error = next((result.error for result in results if result.error is not None), None)
            refused = [str(row) for row in frames.refused]
            raise _make_invalid_record_error(refused, len(pairs)) from error
        names = map_unchanged_names(new)
        return self._join(pairs, kernel.insides(frames.data, frames.starts, frames.lengths, names))

    def _join(self, pairs: RecordPairs, more: Insides | None = None) -> EncodedPairs:
        parts = [_select_rows(pairs.left, pairs.lefts), _select_rows(pairs.right, pairs.rights)]
        if more is not None:
            parts.append((more, np.arange(len(pairs))))
        framed = kernel.join([part for part, _ in parts], [rows for _, rows in parts])
        large = np.flatnonzero(framed.lengths > self.max_record_bytes)
        if len(large):
            index = int(large[0])
            raise InvalidRecordsError(
                f"{pairs.label(index)}: the pair takes {framed.lengths[index]} bytes (limit: "
                f"{self.max_record_bytes})",
                (pairs.label(index),),
                len(large),
                len(pairs),
                complete=False,
                code="record-too-large",
                hint=Hint.of("raise ", Option("max_record"), ", or leave features out"),
            )
        return EncodedPairs(framed, pairs.numbers() if self.is_numbered else None)


def _select_rows(part: RecordPart, rows: IntArray) -> tuple[Insides, IntArray]:
    """Return insides without most other rows: joining reads all of them."""
    if part.records <= 2 * len(rows):
        return part.insides, rows
    present = rows >= 0
    starts = np.ascontiguousarray(part.insides.starts[:, rows[present]])
    lengths = np.ascontiguousarray(part.insides.lengths[:, rows[present]])
    positions = np.where(present, np.cumsum(present) - 1, -1)
    return Insides(part.insides.data, starts, lengths), positions


def _get_mask(pairs: RecordPairs, result: UDFResult) -> NDArray[np.bool_]:
    """Return True for each pair to keep. A missing value drops the pair."""
    ((feature, column),) = result.columns
    reasons = dict(result.reasons)
    for row, reason in column.bad.items():
        reasons.setdefault(row, (feature.name, reason))
    values = np.asarray(column.array.fill_null(0))
    for row in np.flatnonzero((values != 0) & (values != 1)).tolist():
        reasons.setdefault(row, (feature.name, "holds a number that is neither 0 nor 1"))
    if reasons:
        lines = [
            f"{pairs.label(row)}{'' if name is None else f', feature {name!r}'}: {reason}"
            for row, (name, reason) in sorted(reasons.items())
        ]
        raise _make_invalid_record_error(lines, len(pairs)) from result.error
    mask: NDArray[np.bool_] = values == 1
    return mask


def _make_mismatch_error(pairs: RecordPairs, error: BatchMismatchError) -> str:
    first, last = pairs.label(error.first), pairs.label(error.last)
    subject = first if first == last else f"from {first} to {last}"
    return f"{subject}: {error.detail}"


def _make_invalid_record_error(reasons: Sequence[str], rows: int) -> InvalidRecordsError:
    lines = "\n  ".join(reasons[:_MAX_REASONS])
    return InvalidRecordsError(
        f"cannot combine at least {format_count(len(reasons), 'pair')}, nothing was written:\n "
        f" {lines}",
        tuple(reasons[:_MAX_REASONS]),
        len(reasons),
        rows,
        complete=False,
        hint=Hint.of("fix the function given as ", Option("where"), " or ", Option("udfs")),
    )
