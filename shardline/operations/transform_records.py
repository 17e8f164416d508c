"""Records become what a transform says, block by block.

Only what a function reads is decoded. All else goes on as the bytes that it is, behind which the
new features are put: on the wire that is all there is to a record.
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
from shardline.kernel.columns import encoded_insides
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
"""So many records, or bytes of columns, that what is done once for each batch does not show."""


@dataclass(frozen=True, slots=True)
class TransformedBlock:
    """What became of a block of records: frames to write, and the records that gave none.

    `end` is the number of the record behind the block.
    """

    framed: Framed
    end: int
    refused: tuple[QuarantinedRow, ...] = ()
    error: BaseException | None = None


def transform_records(
    path: str,
    blocks: Iterator[RecordBlock],
    makers: BoundUDFs,
    *,
    alone: bool,
    every: bool,
    max_record_bytes: int,
    workers: int = 1,
) -> Iterator[TransformedBlock]:
    """The records of `path` as they become, block by block and in order.

    With `alone`, only the new features of each record are given, and none where they were refused.
    With `every`, all records of a block that are refused are told, else maybe the first only.
    """
    work = _BlockTransformer(
        path, makers, alone=alone, every=every, max_record_bytes=max_record_bytes
    )
    ready = work.with_fields(blocks, workers=workers)
    yield from run_tasks(lambda one: work.finish(*one), ready, workers=workers)


@dataclass(frozen=True, slots=True)
class _SourceBlock:
    """A block of records. `walked` if it was decoded, and all features are set and stay."""

    block: RecordBlock
    walked: bool = False


class _BlockTransformer:
    """What is the same for all blocks of a file, worked out once."""

    def __init__(
        self, path: str, makers: BoundUDFs, *, alone: bool, every: bool, max_record_bytes: int
    ) -> None:
        self._path = path
        self._bound = makers.bound()
        self._reads = makers.reads()
        self._types = schema_of(self._reads)
        self._names = makers.transform.names
        self._staying = {key for key, name in self._names.items() if name == key[1]}
        self._new = makers.transform.new
        self._alone = alone
        self._every = every
        self._max_record_bytes = max_record_bytes

    def with_fields(
        self, blocks: Iterator[RecordBlock], *, workers: int
    ) -> Iterator[tuple[_SourceBlock, Sequence[UDFResult]]]:
        """Each block with what the functions made of it."""
        if not self._bound:
            for block in blocks:
                yield _SourceBlock(block), ()
            return
        waiting: deque[_SourceBlock] = deque()

        def columns() -> Iterator[pa.RecordBatch]:
            decoded = run_tasks(self._decoded, blocks, workers=workers)
            for held, batch in _gather_blocks(decoded) if self._forgets else decoded:
                waiting.append(held)
                yield batch

        places = {feature.key: at for at, feature in enumerate(self._reads)}
        streams = [
            one.stream(
                _select_positions(
                    batches, one.reads, [places[feature.key] for feature in one.reads]
                ),
                every=self._every,
                workers=workers,
            )
            for one, batches in zip(
                self._bound, share_stream(columns(), len(self._bound)), strict=True
            )
        ]
        try:
            for made in zip(*streams, strict=True):
                yield waiting.popleft(), made
        except BatchMismatchError as error:
            block = waiting[0].block
            raise make_batch_error(self._path, block.record, error) from error.__cause__

    @property
    def _forgets(self) -> bool:
        """Whether nothing but the columns is needed of a block, once they are decoded."""
        return self._alone and not self._every and bool(self._reads)

    def _decoded(self, block: RecordBlock) -> tuple[_SourceBlock, pa.RecordBatch]:
        """A block with the features of it that are read. A new one must not be there already."""
        met: set[Key] = set()
        unset: set[str] = set()
        new = self._new.features if self._alone else ()
        asked = [column_of(feature) for feature in self._reads]
        asked += [Column(feature.name, feature.kind, "variable") for feature in new]
        try:
            decoded = kernel.decode(
                block.data, block.starts, block.lengths, asked, met, unset=unset
            )
            if unset and self._alone:
                self._refuse_merging(block, unset)
            for feature, buffers in zip(new, decoded[len(self._reads) :], strict=True):
                if buffers.valid.any():
                    at = int(np.argmax(buffers.valid))
                    detail = "the record has the feature, the schema does not"
                    raise ColumnError(at, feature.name, detail, code="undeclared-feature")
            arrays = [to_column(*one) for one in zip(self._reads, decoded, strict=False)]
        except (ExampleError, ColumnError) as error:
            raise add_location(self._path, block, error) from None
        held = _SourceBlock(block, walked=met <= self._staying and not unset)
        if arrays:
            return held, pa.RecordBatch.from_arrays(arrays, schema=self._types)
        nothing = pa.array([{}] * len(block.starts), pa.struct([]))
        return held, pa.RecordBatch.from_struct_array(nothing)

    def _refuse_merging(self, block: RecordBlock, unset: set[str]) -> None:
        """Refuse an overlay over unset features that an overlay may add to.

        These are all that the schema does not declare: an overlay over this one may add any of
        them, and need not read the base for that.
        """
        merging = unset - {name for sequence, name in self._names if not sequence}
        for at in range(len(block.starts)) if merging else ():
            here: set[str] = set()
            span = (block.starts[at : at + 1], block.lengths[at : at + 1])
            kernel.decode(block.data, *span, (), unset=here)
            if here & merging:
                detail = "unset and not in the schema, so an overlay could merge with it"
                hint = Hint.of("set ", Option("mode", "rewrite"))
                raise ColumnError(at, min(here & merging), detail, code="unset-feature", hint=hint)

    def finish(self, held: _SourceBlock, made: Sequence[UDFResult]) -> TransformedBlock:
        """Lay old and new together."""
        block = held.block
        end = block.record + len(block.starts)
        if not made:
            rows = np.arange(len(block.starts))
            return TransformedBlock(kernel.join([self._old(held)], [rows]), end)
        frames = self._made(block, made)
        error = next((one.error for one in made if one.error is not None), None)
        kept = frames.rows - block.record
        if self._alone and not frames.refused:
            framed = Framed(bytes(frames.data), frames.starts, frames.lengths)
        elif self._alone:
            rows = np.full(len(block.starts), -1, np.int64)
            rows[kept] = np.arange(len(kept))
            framed = kernel.join([self._laid(frames)], [rows])
        else:
            parts = [self._old(held), self._laid(frames)]
            framed = kernel.join(parts, [kept, np.arange(len(kept))])
            large = np.flatnonzero(framed.lengths > self._max_record_bytes)
            if len(large):
                refused = self._too_large(block, kept[large], framed.lengths[large])
                left = np.delete(np.arange(len(kept)), large)
                framed = kernel.join(parts, [kept[left], left])
                told = sorted((*frames.refused, *refused), key=lambda one: one.row)
                return TransformedBlock(framed, end, tuple(told), error)
        return TransformedBlock(framed, end, frames.refused, error)

    def _too_large(
        self, block: RecordBlock, places: IntArray, sizes: IntArray
    ) -> list[QuarantinedRow]:
        """Why records are refused that get too large by what is new."""
        new = ", ".join(feature.name for feature in self._new.features)
        rows = self._rows(block)
        most = self._max_record_bytes
        return [
            QuarantinedRow(
                int(rows.numbers[at]),
                rows.where(at),
                new,
                f"the record would take {size} bytes with it, over the limit of {most}",
                rows.content(at)[:KEPT_BYTES],
                format=rows.format,
            )
            for at, size in zip(places.tolist(), sizes.tolist(), strict=True)
        ]

    def _old(self, held: _SourceBlock) -> Insides:
        block = held.block
        found = (block.data, block.starts, block.lengths)
        try:
            return kernel.insides(*found, self._names, walked=held.walked)
        except (ExampleError, ColumnError) as error:
            raise add_location(self._path, block, error) from None

    def _laid(self, frames: EncodedRows) -> Insides:
        found = (frames.data, frames.starts, frames.lengths)
        if any(feature.sequence for feature in self._new.features):
            return kernel.insides(*found, map_unchanged_names(self._new))
        return encoded_insides(*found)

    def _made(self, block: RecordBlock, made: Sequence[UDFResult]) -> EncodedRows:
        """The new features as records of their own; those that do not fit are left out."""
        reasons = {at: why for one in reversed(made) for at, why in one.reasons.items()}
        columns = [column for one in made for column in one.columns]
        tried = min(reasons, default=len(block.starts))
        frames = build_frames(
            self._new, columns, self._rows(block), reasons, self._max_record_bytes
        )
        if self._every or not frames.refused:
            return frames
        # Behind the first that gave nothing, others may not have been tried at all.
        told = tuple(one for one in frames.refused if one.row <= block.record + tried)
        return replace(frames, refused=told)

    @staticmethod
    def _rows(block: RecordBlock) -> Rows:
        first = block.record
        return Rows(
            np.arange(first, first + len(block.starts)),
            lambda at: f"record {first + at}",
            lambda at: bytes(block.data[block.starts[at] : block.starts[at] + block.lengths[at]]),
            "tfrecord",
        )


def _gather_blocks(
    decoded: Iterator[tuple[_SourceBlock, pa.RecordBatch]],
) -> Iterator[tuple[_SourceBlock, pa.RecordBatch]]:
    """The columns of several blocks together, and those blocks as one that has lost its bytes."""
    blocks: list[RecordBlock] = []
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for held, batch in decoded:
        blocks.append(replace(held.block, data=_NO_BYTES))
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


def _select_positions(
    batches: Iterator[pa.RecordBatch], reads: Sequence[Feature], places: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The columns at these places."""
    schema = schema_of(reads)
    for batch in batches:
        if not places:
            yield batch.select([])
        else:
            yield pa.RecordBatch.from_arrays([batch.column(at) for at in places], schema=schema)


_MAX_REASONS = 10
FIX_UDF_HINT = Hint.of(
    "fix the function that computes the features, for a key missing from a table set ",
    Option("defaults"),
    " or ",
    Option("on_missing", "absent"),
)
"""What to do where a record cannot become what it should."""
FIX_CAST_HINT = Hint.of("leave the cast out, or compute a new feature with extend")
"""The same of a migration, where nothing but a cast depends on values."""
QUARANTINE_HINT = Hint.of("quarantine such records by raising ", Option("max_quarantined"))
"""What else to do where some may be missing."""


def raise_invalid_records(what: str, path: str, changed: TransformedBlock, advice: Hint) -> None:
    """Refuse to go on where a record cannot become what it should; `advice` is what to do."""
    if not changed.refused:
        return
    told = tuple(f"{path}, {one}" for one in changed.refused[:_MAX_REASONS])
    bad, rows = len(changed.refused), changed.end
    found = f"{format_count_of(bad, rows, 'record', complete=False)} refused"
    error = _make_invalid_records_error(f"{what}: {found}", told, bad, rows, advice, complete=False)
    error.path = path
    error.record, error.feature = changed.refused[0].row, changed.refused[0].feature
    raise error from changed.error


def make_batch_error(path: str, record: int, error: BatchMismatchError) -> InvalidRecordsError:
    """The error to raise where a function gave for records of a file what cannot be theirs.

    `record` is the number of the first record of the batch.
    """
    told = f"{path}, {error.moved(record)}"
    return InvalidRecordsError(
        told,
        (told,),
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
    what: str, told: Sequence[str], bad: int, rows: int, *, share: float, advice: Hint
) -> None:
    """Refuse what was made if more than a share of the records is missing in it."""
    if bad > share * rows:
        found = f"{format_count_of(bad, rows, 'record')} refused (limit: {share:.2%})"
        raise _make_invalid_records_error(
            f"{what}: {found}", tuple(told[:_MAX_REASONS]), bad, rows, advice
        )


def _make_invalid_records_error(
    found: str, told: tuple[str, ...], bad: int, rows: int, advice: Hint, *, complete: bool = True
) -> InvalidRecordsError:
    more = f"\n  ... and {bad - len(told):,} more" if bad > len(told) else ""
    lines = "\n  ".join(told)
    message = f"{found}: nothing was written\n  {lines}{more}"
    return InvalidRecordsError(message, told, bad, rows, complete=complete, hint=advice)
