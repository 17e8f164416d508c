"""Apply a transform to records, block by block.

Only the features that a function reads are decoded. All other bytes of a record are copied, and the
new features are added after them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.errors import ColumnError, ExampleError, InvalidRecordsError
from shardline.execution.threads import run_tasks, share_stream
from shardline.hints import Hint, Option
from shardline.kernel.columns import get_encoded_insides
from shardline.kernel.types import Column, Framed
from shardline.schema.arrow_types import column_of, schema_of, to_column
from shardline.schema.encoding import KEPT_BYTES, QuarantinedRow, Rows, build_frames
from shardline.text import format_count_of
from shardline.tfrecord.examples import add_location
from shardline.udf.transform import map_unchanged_names
from shardline.udf.udf_result import BatchMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.kernel.types import Insides, IntArray
    from shardline.schema.schema import Feature, Key
    from shardline.sources import EncodedRows
    from shardline.tfrecord.record_block import RecordBlock
    from shardline.udf.transform import BoundUDFs
    from shardline.udf.udf_result import UDFResult


_NO_BYTES = memoryview(b"")
_GATHERED_ROWS = 2048
_GATHERED_BYTES = 4 * 1024 * 1024
"""Minimum size of a batch: some costs occur once for each batch."""


@dataclass(frozen=True, slots=True)
class TransformedBlock:
    """The transformed records of a block, and the records that were refused.

    `end` is the number of the record after the block. `error` is what a function raised.
    """

    framed: Framed
    end: int
    refused: tuple[QuarantinedRow, ...] = ()
    error: BaseException | None = None


def transform_records(
    path: str,
    blocks: Iterator[RecordBlock],
    udfs: BoundUDFs,
    *,
    alone: bool,
    every: bool,
    max_record_bytes: int,
    workers: int = 1,
) -> Iterator[TransformedBlock]:
    """Transform the records of `path`, block by block and in order.

    Args:
        path: The file, for messages.
        blocks: The records.
        udfs: The functions, with their transform.
        alone: Return only the new features of each record, without features if it was refused.
        every: List every refused record of a block, not only the first ones.
        max_record_bytes: Limit of a record.
        workers: Number of threads.
    """
    transformer = _BlockTransformer(
        path, udfs, alone=alone, every=every, max_record_bytes=max_record_bytes
    )
    computed = transformer.compute(blocks, workers=workers)
    yield from run_tasks(lambda item: transformer.finish(*item), computed, workers=workers)


@dataclass(frozen=True, slots=True)
class _SourceBlock:
    """A block of records. `walked` if it was decoded and all features are set and unchanged."""

    block: RecordBlock
    walked: bool = False


class _BlockTransformer:
    """Transformer of the blocks of a file."""

    def __init__(
        self, path: str, udfs: BoundUDFs, *, alone: bool, every: bool, max_record_bytes: int
    ) -> None:
        self._path = path
        self._bound = udfs.bound()
        self._reads = udfs.reads()
        self._types = schema_of(self._reads)
        self._names = udfs.transform.names
        self._unchanged = {key for key, name in self._names.items() if name == key[1]}
        self._new = udfs.transform.new
        self._alone = alone
        self._every = every
        self._max_record_bytes = max_record_bytes

    def compute(
        self, blocks: Iterator[RecordBlock], *, workers: int
    ) -> Iterator[tuple[_SourceBlock, Sequence[UDFResult]]]:
        """Compute the new features of each block."""
        if not self._bound:
            for block in blocks:
                yield _SourceBlock(block), ()
            return
        waiting: deque[_SourceBlock] = deque()

        def columns() -> Iterator[pa.RecordBatch]:
            decoded = run_tasks(self._decode, blocks, workers=workers)
            for source, batch in _gather_blocks(decoded) if self._needs_columns_only else decoded:
                waiting.append(source)
                yield batch

        positions = {feature.key: index for index, feature in enumerate(self._reads)}
        streams = [
            udf.stream(
                _select_columns(
                    batches, udf.reads, [positions[feature.key] for feature in udf.reads]
                ),
                every=self._every,
                workers=workers,
            )
            for udf, batches in zip(
                self._bound, share_stream(columns(), len(self._bound)), strict=True
            )
        ]
        try:
            for results in zip(*streams, strict=True):
                yield waiting.popleft(), results
        except BatchMismatchError as error:
            block = waiting[0].block
            raise make_batch_error(self._path, block.record, error) from error.__cause__

    @property
    def _needs_columns_only(self) -> bool:
        return self._alone and not self._every and bool(self._reads)

    def _decode(self, block: RecordBlock) -> tuple[_SourceBlock, pa.RecordBatch]:
        """Decode the features that are read. A record must not have a new feature already."""
        met: set[Key] = set()
        unset: set[str] = set()
        new = self._new.features if self._alone else ()
        columns = [column_of(feature) for feature in self._reads]
        columns += [Column(feature.name, feature.kind, "variable") for feature in new]
        try:
            decoded = kernel.decode(
                block.data, block.starts, block.lengths, columns, met, unset=unset
            )
            if unset and self._alone:
                self._validate_unset(block, unset)
            for feature, buffers in zip(new, decoded[len(self._reads) :], strict=True):
                if buffers.valid.any():
                    row = int(np.argmax(buffers.valid))
                    detail = "the record has the feature, the schema does not"
                    raise ColumnError(row, feature.name, detail, code="undeclared-feature")
            arrays = [
                to_column(feature, buffers)
                for feature, buffers in zip(self._reads, decoded, strict=False)
            ]
        except (ExampleError, ColumnError) as error:
            raise add_location(self._path, block, error) from None
        source = _SourceBlock(block, walked=met <= self._unchanged and not unset)
        if arrays:
            return source, pa.RecordBatch.from_arrays(arrays, schema=self._types)
        empty_rows = pa.array([{}] * len(block.starts), pa.struct([]))
        return source, pa.RecordBatch.from_struct_array(empty_rows)

    def _validate_unset(self, block: RecordBlock, unset: set[str]) -> None:
        """Raise ColumnError if a record has an unset feature that an overlay may add.

        These are all features that the schema does not declare: an overlay over this overlay may
        add any of them without reading the base.
        """
        undeclared = unset - {name for sequence, name in self._names if not sequence}
        for row in range(len(block.starts)) if undeclared else ():
            unset_here: set[str] = set()
            span = (block.starts[row : row + 1], block.lengths[row : row + 1])
            kernel.decode(block.data, *span, (), unset=unset_here)
            names = unset_here & undeclared
            if names:
                detail = "unset and not in the schema, so an overlay could merge with it"
                hint = Hint.of("set ", Option("mode", "rewrite"))
                raise ColumnError(row, min(names), detail, code="unset-feature", hint=hint)

    def finish(self, source: _SourceBlock, results: Sequence[UDFResult]) -> TransformedBlock:
        """Join old and new features."""
        block = source.block
        end = block.record + len(block.starts)
        if not results:
            rows = np.arange(len(block.starts))
            return TransformedBlock(kernel.join([self._parse_old(source)], [rows]), end)
        frames = self._encode_new(block, results)
        error = next((result.error for result in results if result.error is not None), None)
        accepted = frames.rows - block.record
        if self._alone and not frames.refused:
            framed = Framed(bytes(frames.data), frames.starts, frames.lengths)
        elif self._alone:
            rows = np.full(len(block.starts), -1, np.int64)
            rows[accepted] = np.arange(len(accepted))
            framed = kernel.join([self._parse_new(frames)], [rows])
        else:
            parts = [self._parse_old(source), self._parse_new(frames)]
            framed = kernel.join(parts, [accepted, np.arange(len(accepted))])
            large = np.flatnonzero(framed.lengths > self._max_record_bytes)
            if len(large):
                refused = self._refuse_large(block, accepted[large], framed.lengths[large])
                rest = np.delete(np.arange(len(accepted)), large)
                framed = kernel.join(parts, [accepted[rest], rest])
                refused = sorted((*frames.refused, *refused), key=lambda row: row.row)
                return TransformedBlock(framed, end, tuple(refused), error)
        return TransformedBlock(framed, end, frames.refused, error)

    def _refuse_large(
        self, block: RecordBlock, positions: IntArray, sizes: IntArray
    ) -> list[QuarantinedRow]:
        new = ", ".join(feature.name for feature in self._new.features)
        rows = self._list_rows(block)
        limit = self._max_record_bytes
        return [
            QuarantinedRow(
                int(rows.numbers[index]),
                rows.where(index),
                new,
                f"the record would take {size} bytes with it, over the limit of {limit}",
                rows.content(index)[:KEPT_BYTES],
                format=rows.format,
            )
            for index, size in zip(positions.tolist(), sizes.tolist(), strict=True)
        ]

    def _parse_old(self, source: _SourceBlock) -> Insides:
        block = source.block
        frames = (block.data, block.starts, block.lengths)
        try:
            return kernel.insides(*frames, self._names, walked=source.walked)
        except (ExampleError, ColumnError) as error:
            raise add_location(self._path, block, error) from None

    def _parse_new(self, rows: EncodedRows) -> Insides:
        frames = (rows.data, rows.starts, rows.lengths)
        if any(feature.sequence for feature in self._new.features):
            return kernel.insides(*frames, map_unchanged_names(self._new))
        return get_encoded_insides(*frames)

    def _encode_new(self, block: RecordBlock, results: Sequence[UDFResult]) -> EncodedRows:
        """Encode the new features as records of their own, without those that do not fit."""
        reasons = {
            row: reason for result in reversed(results) for row, reason in result.reasons.items()
        }
        columns = [column for result in results for column in result.columns]
        first_refused = min(reasons, default=len(block.starts))
        frames = build_frames(
            self._new, columns, self._list_rows(block), reasons, self._max_record_bytes
        )
        if self._every or not frames.refused:
            return frames
        # After the first refused record, a function may not have tried the others.
        last = block.record + first_refused
        return replace(frames, refused=tuple(row for row in frames.refused if row.row <= last))

    @staticmethod
    def _list_rows(block: RecordBlock) -> Rows:
        first = block.record
        return Rows(
            np.arange(first, first + len(block.starts)),
            lambda row: f"record {first + row}",
            lambda row: bytes(
                block.data[block.starts[row] : block.starts[row] + block.lengths[row]]
            ),
            "tfrecord",
        )


def _gather_blocks(
    decoded: Iterator[tuple[_SourceBlock, pa.RecordBatch]],
) -> Iterator[tuple[_SourceBlock, pa.RecordBatch]]:
    """Join the columns of several blocks, and the blocks as one without its bytes."""
    blocks: list[RecordBlock] = []
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for source, batch in decoded:
        blocks.append(replace(source.block, data=_NO_BYTES))
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield _join_columns(blocks, batches)
            blocks, batches, rows, size = [], [], 0, 0
    if blocks:
        yield _join_columns(blocks, batches)


def _join_columns(
    blocks: Sequence[RecordBlock], batches: Sequence[pa.RecordBatch]
) -> tuple[_SourceBlock, pa.RecordBatch]:
    if len(blocks) == 1:
        return _SourceBlock(blocks[0]), batches[0]
    starts = np.concatenate([block.starts for block in blocks])
    lengths = np.concatenate([block.lengths for block in blocks])
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return _SourceBlock(replace(blocks[0], starts=starts, lengths=lengths)), batch


def _select_columns(
    batches: Iterator[pa.RecordBatch], reads: Sequence[Feature], positions: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    schema = schema_of(reads)
    for batch in batches:
        if positions:
            columns = [batch.column(index) for index in positions]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        else:
            yield batch.select([])


_MAX_REASONS = 10
FIX_UDF_HINT = Hint.of(
    "fix the function that computes the features, for a key missing from a table set ",
    Option("defaults"),
    " or ",
    Option("on_missing", "absent"),
)
FIX_CAST_HINT = Hint.of("leave the cast out, or compute a new feature with extend")
QUARANTINE_HINT = Hint.of("quarantine such records by raising ", Option("max_quarantined"))


def raise_invalid_records(subject: str, path: str, block: TransformedBlock, hint: Hint) -> None:
    """Raise InvalidRecordsError if records of a block were refused."""
    if not block.refused:
        return
    reasons = tuple(f"{path}, {row}" for row in block.refused[:_MAX_REASONS])
    bad, rows = len(block.refused), block.end
    problem = f"{format_count_of(bad, rows, 'record', complete=False)} refused"
    error = _make_invalid_records_error(
        f"{subject}: {problem}", reasons, bad, rows, hint, complete=False
    )
    error.path = path
    error.record, error.feature = block.refused[0].row, block.refused[0].feature
    raise error from block.error


def make_batch_error(path: str, record: int, error: BatchMismatchError) -> InvalidRecordsError:
    """Return the error for a function whose result does not match its records.

    `record` is the number of the first record of the batch.
    """
    message = f"{path}, {error.shift(record)}"
    return InvalidRecordsError(
        message,
        (message,),
        error.last - error.first + 1,
        record + error.last + 1,
        complete=False,
        code=error.code,
        hint=error.hint,
        path=path,
        record=record + error.first,
        feature=error.feature,
    )


def validate_lost_share(
    subject: str, reasons: Sequence[str], bad: int, rows: int, *, share: float, hint: Hint
) -> None:
    """Raise InvalidRecordsError if more than a share of the records was refused."""
    if bad > share * rows:
        problem = f"{format_count_of(bad, rows, 'record')} refused (limit: {share:.2%})"
        raise _make_invalid_records_error(
            f"{subject}: {problem}", tuple(reasons[:_MAX_REASONS]), bad, rows, hint
        )


def _make_invalid_records_error(
    problem: str,
    reasons: tuple[str, ...],
    bad: int,
    rows: int,
    hint: Hint,
    *,
    complete: bool = True,
) -> InvalidRecordsError:
    more = f"\n  ... and {bad - len(reasons):,} more" if bad > len(reasons) else ""
    lines = "\n  ".join(reasons)
    message = f"{problem}: nothing was written\n  {lines}{more}"
    return InvalidRecordsError(message, reasons, bad, rows, complete=complete, hint=hint)
