"""Records of one schema become those of another: features are renamed, left out, computed.

Only what a function reads is decoded. All else goes on as the bytes that it is, behind which the
new features are put: on the wire that is all there is to a record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.errors import BadRecordsError, ColumnError, ExampleError
from shardline.execution.threads import run_tasks
from shardline.files.reader import Block
from shardline.kernel.columns import encoded_insides
from shardline.kernel.types import Column, Framed
from shardline.log.schema import Schema
from shardline.readers.arrow_columns import column_of, schema_of, to_column
from shardline.readers.placed import placed
from shardline.sources import Refused
from shardline.sources.frames import KEPT_BYTES, Rows, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.fields.bound import Bound, Fields
    from shardline.fields.made import Made
    from shardline.kernel.types import Insides, IntArray
    from shardline.log.facts import Json
    from shardline.log.schema import Feature
    from shardline.sources import Frames

Key: TypeAlias = tuple[bool, str]
_TOLD = 10
_NO_BYTES = memoryview(b"")
_GATHERED_ROWS = 2048
_GATHERED_BYTES = 4 * 1024 * 1024
"""So many records, or bytes of columns, that what is done once for each batch does not show."""
MEND = (
    "Mend what makes the fields; for a key that is not in a table, give values to stand in for it "
    "(defaults=) or leave its fields out (missing='absent')"
)
"""What to do where a record cannot become what it should."""
MEND_CAST = "Leave that cast out, or mend such values first: extend can give a field in its place"
"""The same of a migration, where nothing but a cast depends on values."""
QUARANTINE = "or let such records go to quarantine: quarantine_share=0.01, or --quarantine-share 1%"
"""What else to do where some may be missing."""


@dataclass(frozen=True, slots=True)
class Transform:
    """What becomes of records: what each feature is called from now on, and what is new.

    `names` has every feature of `before`, None for one that is left out.
    """

    before: Schema
    after: Schema
    names: Mapping[Key, str | None]
    fields: tuple[Fields, ...] = ()

    @property
    def new(self) -> Schema:
        """The new features alone."""
        return Schema(tuple(f for one in self.fields for f in one.features), self.before.payload)

    def identity(self) -> Json | None:
        """All that the result depends on besides the records; None if that cannot be told."""
        told = [one.identity() for one in self.fields]
        if None in told:
            return None
        schemas = (self.before.fingerprint, self.after.fingerprint)
        return transform_identity(schemas, self.names, told)


def transform_identity(
    schemas: tuple[str, str], names: Mapping[Key, str | None], fields: Sequence[Json | None]
) -> Json:
    """The identity of a transform from one fingerprint to another, with these makers' own."""
    changed = [[*key, new] for key, new in sorted(names.items()) if new != key[1]]
    return {"schemas": list(schemas), "names": changed, "fields": list(fields)}


def unchanged(schema: Schema) -> dict[Key, str | None]:
    """Names under which every feature stays what it is."""
    return {feature.key: feature.name for feature in schema.features}


class Makers:
    """The functions and tables of a transform, made ready when the first record is there.

    All tasks of an operation share them. Sent to another process, they are made ready there.
    """

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        self._lock = Lock()
        self._bound: list[Bound] | None = None

    def bound(self) -> list[Bound]:
        """Made ready for the records."""
        with self._lock:
            if self._bound is None:
                self._bound = [one.bind(self.transform.before) for one in self.transform.fields]
            return self._bound

    def reads(self) -> list[Feature]:
        """The features that any of them reads, each once."""
        return list(
            {feature.key: feature for one in self.bound() for feature in one.reads}.values()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for one in self._bound or ():
                one.close()
            self._bound = None

    def __getstate__(self) -> Transform:
        return self.transform

    def __setstate__(self, transform: Transform) -> None:
        self.__init__(transform)  # type: ignore[misc] # as if it were made there


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a block of records: frames to write, and the records that gave none.

    `end` is the number of the record behind the block.
    """

    framed: Framed
    end: int
    refused: tuple[Refused, ...] = ()
    error: BaseException | None = None


def transformed(
    path: str,
    blocks: Iterator[Block],
    makers: Makers,
    *,
    alone: bool,
    every: bool,
    max_record_bytes: int,
    workers: int = 1,
) -> Iterator[Changed]:
    """The records of `path` as they become, block by block and in order.

    With `alone`, only the new features of each record are given, and none where they were refused.
    With `every`, all records of a block that are refused are told, else maybe the first only.
    """
    work = _Work(path, makers, alone=alone, every=every, max_record_bytes=max_record_bytes)
    ready = work.with_fields(blocks, workers=workers)
    yield from run_tasks(lambda one: work.finish(*one), ready, workers=workers)


class _Walked(Block):
    """A block that was decoded, in which every feature keeps its name."""

    __slots__ = ()


class _Work:
    """What is the same for all blocks of a file, worked out once."""

    def __init__(
        self, path: str, makers: Makers, *, alone: bool, every: bool, max_record_bytes: int
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
        self, blocks: Iterator[Block], *, workers: int
    ) -> Iterator[tuple[Block, Sequence[Made]]]:
        """Each block with what the functions made of it."""
        if not self._bound:
            for block in blocks:
                yield block, ()
            return
        waiting: deque[Block] = deque()

        def columns() -> Iterator[pa.RecordBatch]:
            decoded = run_tasks(self._decoded, blocks, workers=workers)
            for block, batch in _gathered(decoded) if self._forgets else decoded:
                waiting.append(block)
                yield batch

        places = {feature.key: at for at, feature in enumerate(self._reads)}
        streams = [
            one.stream(
                _only(batches, one.reads, [places[feature.key] for feature in one.reads]),
                every=self._every,
                workers=workers,
            )
            for one, batches in zip(self._bound, shared(columns(), len(self._bound)), strict=True)
        ]
        for made in zip(*streams, strict=True):
            yield waiting.popleft(), made

    @property
    def _forgets(self) -> bool:
        """Whether nothing but the columns is needed of a block, once they are decoded."""
        return self._alone and not self._every and bool(self._reads)

    def _decoded(self, block: Block) -> tuple[Block, pa.RecordBatch]:
        """A block with the features of it that are read. A new one must not be there already."""
        met: set[Key] = set()
        new = self._new.features if self._alone else ()
        asked = [column_of(feature) for feature in self._reads]
        asked += [Column(feature.name, feature.kind, "variable") for feature in new]
        try:
            decoded = kernel.decode(block.data, block.starts, block.lengths, asked, met)
            for feature, buffers in zip(new, decoded[len(self._reads) :], strict=True):
                if buffers.valid.any():
                    at = int(np.argmax(buffers.valid))
                    raise ColumnError(at, feature.name, "is there already, though in no schema")
            arrays = [to_column(*one) for one in zip(self._reads, decoded, strict=False)]
        except (ExampleError, ColumnError) as error:
            raise placed(self._path, block, error) from None
        if met <= self._staying:
            block = _Walked(block.data, block.offset, block.record, block.starts, block.lengths)
        if arrays:
            return block, pa.RecordBatch.from_arrays(arrays, schema=self._types)
        nothing = pa.array([{}] * len(block.starts), pa.struct([]))
        return block, pa.RecordBatch.from_struct_array(nothing)

    def finish(self, block: Block, made: Sequence[Made]) -> Changed:
        """Lay old and new together."""
        end = block.record + len(block.starts)
        if not made:
            rows = np.arange(len(block.starts))
            return Changed(kernel.join([self._old(block)], [rows]), end)
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
            parts = [self._old(block), self._laid(frames)]
            framed = kernel.join(parts, [kept, np.arange(len(kept))])
            large = np.flatnonzero(framed.lengths > self._max_record_bytes)
            if len(large):
                refused = self._too_large(block, kept[large], framed.lengths[large])
                left = np.delete(np.arange(len(kept)), large)
                framed = kernel.join(parts, [kept[left], left])
                told = sorted((*frames.refused, *refused), key=lambda one: one.row)
                return Changed(framed, end, tuple(told), error)
        return Changed(framed, end, frames.refused, error)

    def _too_large(self, block: Block, places: IntArray, sizes: IntArray) -> list[Refused]:
        """Why records are refused that get too large by what is new."""
        new = ", ".join(feature.name for feature in self._new.features)
        rows = self._rows(block)
        most = self._max_record_bytes
        return [
            Refused(
                int(rows.numbers[at]),
                rows.where(at),
                new,
                f"the record would take {size} bytes with it, over the limit of {most}",
                rows.content(at)[:KEPT_BYTES],
            )
            for at, size in zip(places.tolist(), sizes.tolist(), strict=True)
        ]

    def _old(self, block: Block) -> Insides:
        try:
            return kernel.insides(
                block.data,
                block.starts,
                block.lengths,
                self._names,
                walked=isinstance(block, _Walked),
            )
        except (ExampleError, ColumnError) as error:
            raise placed(self._path, block, error) from None

    def _laid(self, frames: Frames) -> Insides:
        found = (frames.data, frames.starts, frames.lengths)
        if any(feature.sequence for feature in self._new.features):
            return kernel.insides(*found, unchanged(self._new))
        return encoded_insides(*found)

    def _made(self, block: Block, made: Sequence[Made]) -> Frames:
        """The new features as records of their own; those that do not fit are left out."""
        reasons = {at: why for one in reversed(made) for at, why in one.reasons.items()}
        columns = [column for one in made for column in one.columns]
        tried = min(reasons, default=len(block.starts))
        frames = encoded(self._new, columns, self._rows(block), reasons, self._max_record_bytes)
        if self._every or not frames.refused:
            return frames
        # Behind the first that gave nothing, others may not have been tried at all.
        told = tuple(one for one in frames.refused if one.row <= block.record + tried)
        return replace(frames, refused=told)

    @staticmethod
    def _rows(block: Block) -> Rows:
        first = block.record
        return Rows(
            np.arange(first, first + len(block.starts)),
            lambda at: f"record {first + at}",
            lambda at: bytes(block.data[block.starts[at] : block.starts[at] + block.lengths[at]]),
        )


def _gathered(
    decoded: Iterator[tuple[Block, pa.RecordBatch]],
) -> Iterator[tuple[Block, pa.RecordBatch]]:
    """The columns of several blocks together, and those blocks as one that has lost its bytes."""
    held: list[tuple[Block, pa.RecordBatch]] = []
    rows = size = 0
    for block, batch in decoded:
        held.append((replace(block, data=_NO_BYTES), batch))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield _put_together(held)
            held, rows, size = [], 0, 0
    if held:
        yield _put_together(held)


def _put_together(
    held: Sequence[tuple[Block, pa.RecordBatch]],
) -> tuple[Block, pa.RecordBatch]:
    if len(held) == 1:
        return held[0]
    blocks, batches = zip(*held, strict=True)
    starts = np.concatenate([block.starts for block in blocks])
    lengths = np.concatenate([block.lengths for block in blocks])
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return replace(blocks[0], starts=starts, lengths=lengths), batch


def _only(
    batches: Iterator[pa.RecordBatch], reads: Sequence[Feature], places: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """The columns at these places."""
    schema = schema_of(reads)
    for batch in batches:
        if not places:
            yield batch.select([])
        else:
            yield pa.RecordBatch.from_arrays([batch.column(at) for at in places], schema=schema)


def shared(batches: Iterator[pa.RecordBatch], count: int) -> list[Iterator[pa.RecordBatch]]:
    """The same batches for several who take them on threads of their own, read once."""
    if count == 1:
        return [batches]
    lock = Lock()
    lanes: list[deque[pa.RecordBatch]] = [deque() for _ in range(count)]

    def lane(own: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            with lock:
                if not own:
                    batch = next(batches, None)
                    if batch is None:
                        return
                    for each in lanes:
                        each.append(batch)
                batch = own.popleft()
            yield batch

    return [lane(own) for own in lanes]


def refuse_records(what: str, path: str, changed: Changed, advice: str) -> None:
    """Refuse to go on where a record cannot become what it should; `advice` is what to do."""
    if not changed.refused:
        return
    told = tuple(f"{path}, {one}" for one in changed.refused[:_TOLD])
    found = f"{counted(len(changed.refused))} refused"
    raise _bad_records(f"{what}: {found}", told, len(changed.refused), changed.end, advice) from (
        changed.error
    )


def refuse_share(
    what: str, told: Sequence[str], bad: int, rows: int, *, share: float, advice: str
) -> None:
    """Refuse what was made if more than a share of the records is missing in it."""
    if bad > share * rows:
        found = f"{bad:,} of {rows:,} records are refused, and at most {share:.2%} may be"
        raise _bad_records(f"{what}: {found}", tuple(told[:_TOLD]), bad, rows, advice)


def counted(records: int) -> str:
    """So many records, and the verb for them."""
    return "1 record is" if records == 1 else f"{records:,} records are"


def _bad_records(
    found: str, told: tuple[str, ...], bad: int, rows: int, advice: str
) -> BadRecordsError:
    more = f"\n  ... and {bad - len(told):,} more" if bad > len(told) else ""
    lines = "\n  ".join(told)
    message = f"{found}: nothing was written\n  {lines}{more}\n{advice}"
    return BadRecordsError(message, told, bad, rows)
