"""Records of a side of a combination, split into their features.

A record is split once, however many pairs it is in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.errors import ColumnError, ExampleError
from shardline.kernel.columns import to_arrow
from shardline.kernel.types import Insides
from shardline.schema.arrow_types import column_of, to_column
from shardline.tfrecord.examples import add_location
from shardline.tfrecord.reader import DEFAULT_LIMITS, RecordFile
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from shardline.kernel.types import Column, IntArray
    from shardline.schema.schema import Feature, Key
    from shardline.tfrecord.reader import Limits

BLOCK_BYTES = 1024 * 1024
PAIR_OVERHEAD_BYTES = 28
"""Upper bound for the frame and the headers of a pair."""


class RecordUnit(Protocol):
    """Records that are stored together: a shard, or a standalone file."""

    @property
    def path(self) -> str:
        """Path for messages."""
        ...

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Yield all records in blocks. Raises CorruptFileError."""
        ...

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """Yield the records with these numbers, which are ascending."""
        ...


@dataclass(frozen=True, slots=True)
class StandaloneFile:
    """A TFRecord file outside a root."""

    path: str

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Yield all records in blocks. Raises CorruptFileError."""
        with RecordFile(Path(self.path), limits=limits, block_bytes=block_bytes) as file:
            yield from file.blocks()

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """Yield the records with these numbers. Reads all up to the last: there is no index."""
        done = 0
        for block in self.blocks(limits=limits, block_bytes=BLOCK_BYTES):
            if done == len(numbers):
                return
            last = int(np.searchsorted(numbers, block.record + len(block.starts)))
            rows = numbers[done:last] - block.record
            if len(rows):
                yield RecordBlock.select(
                    block.data, block.starts[rows], block.lengths[rows], numbers[done:last]
                )
            done = last


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Columns of the key features of consecutive records. `first` is the number of the first."""

    columns: tuple[pa.Array, ...]
    first: int

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True)
class RecordPart:
    """Consecutive records of a side, split. `first` is the number of the first."""

    insides: Insides
    first: int
    keys: KeyValues | None = field(default=None, repr=False)
    _decoded: dict[Key, pa.Array] = field(default_factory=dict, repr=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return self.insides.records

    @cached_property
    def sizes(self) -> IntArray:
        """Bytes of features of each record."""
        return np.asarray(self.insides.lengths.sum(axis=0))

    @cached_property
    def ends(self) -> IntArray:
        """Cumulative bytes that the records add to pairs, from 0 records on."""
        return np.concatenate(([0], np.cumsum(self.sizes + PAIR_OVERHEAD_BYTES)))

    @property
    def bytes(self) -> int:
        """Bytes of features."""
        return int(self.sizes.sum())

    def load(self) -> RecordPart:
        """Return itself: it is in memory."""
        return self

    def slice(self, first: int, last: int) -> RecordPart:
        """Return some of the records. Joining them reads no other."""
        if (first, last) == (0, self.records):
            return self
        starts = np.ascontiguousarray(self.insides.starts[:, first:last])
        lengths = np.ascontiguousarray(self.insides.lengths[:, first:last])
        insides = Insides(self.insides.data, starts, lengths)
        decoded = {
            key: _copy_array(array.slice(first, last - first))
            for key, array in self._decoded.items()
        }
        return RecordPart(insides, self.first + first, _decoded=decoded)

    def sizes_of(self, rows: IntArray) -> IntArray:
        """Return the bytes of features of each row, 0 for the row -1."""
        sizes = np.zeros(len(rows), np.int64)
        present = rows >= 0
        sizes[present] = self.sizes[rows[present]]
        return sizes

    def gather(self, rows: IntArray) -> tuple[RecordPart, IntArray]:
        """Return a part that has these rows, and their positions in it: itself."""
        return self, rows

    def columns(self, features: Sequence[Feature]) -> list[pa.Array]:
        """Return features by their names in a pair, decoded once. Raises ColumnError."""
        missing = [feature for feature in features if feature.key not in self._decoded]
        if missing:
            whole = kernel.join([self.insides], [np.arange(self.records)])
            columns = [column_of(feature) for feature in missing]
            try:
                decoded = kernel.decode(whole.data, whole.starts, whole.lengths, columns)
                for feature, buffers in zip(missing, decoded, strict=True):
                    self._decoded[feature.key] = to_column(feature, buffers)
            except ColumnError as error:
                number = self.first + error.record
                raise ColumnError(number, error.feature, error.detail, code=error.code) from None
        return [self._decoded[feature.key] for feature in features]


def _copy_array(array: pa.Array) -> pa.Array:
    """Copy a slice: Arrow's `take` is wrong on slices of nested lists."""
    return pa.concat_arrays([array, array.slice(0, 0)])


@dataclass(frozen=True, slots=True)
class NumberedUnit:
    """A unit of a side with its number of records. `first` is the number of the first."""

    unit: RecordUnit
    first: int
    records: int

    def blocks(self, limits: Limits, span: tuple[int, int] | None = None) -> Iterator[RecordBlock]:
        """Yield its records, or those of a span, in order."""
        low, high = span or (0, self.records)
        for block in self.unit.blocks(limits=limits, block_bytes=BLOCK_BYTES):
            if span is not None and block.record >= high:
                return
            begin, end = (
                min(max(record - block.record, 0), len(block.starts)) for record in (low, high)
            )
            if span is None or (begin, end) == (0, len(block.starts)):
                yield block
            elif begin < end:
                yield replace(
                    block,
                    record=block.record + begin,
                    starts=block.starts[begin:end],
                    lengths=block.lengths[begin:end],
                )

    def parts(
        self,
        names: Mapping[Key, str | None],
        limits: Limits,
        *,
        span: tuple[int, int] | None = None,
        keys: Sequence[Column] = (),
    ) -> Iterator[RecordPart]:
        """Yield its records as parts, with the columns of `keys`.

        Raises ColumnError at unknown features, and the errors of reading.
        """
        for block in self.blocks(limits, span):
            part = self._split(block, names, self.first + block.record)
            yield replace(part, keys=self._keys(block, keys)) if keys else part

    def pick(
        self, numbers: IntArray, names: Mapping[Key, str | None], limits: Limits
    ) -> Iterator[RecordPart]:
        """Yield the records with these numbers in the unit, which are ascending."""
        for block in self.unit.pick(numbers, limits=limits):
            part = self._split(block, names, 0)
            # The next block may overwrite these bytes.
            yield replace(part, insides=replace(part.insides, data=bytes(part.insides.data)))

    def keys(self, columns: Sequence[Column], limits: Limits) -> Iterator[KeyValues]:
        """Yield the key features of its records."""
        for block in self.blocks(limits):
            yield self._keys(block, columns)

    def _split(self, block: RecordBlock, names: Mapping[Key, str | None], first: int) -> RecordPart:
        try:
            insides = kernel.insides(block.data, block.starts, block.lengths, names)
        except (ExampleError, ColumnError) as error:
            raise add_location(self.unit.path, block, error) from None
        return RecordPart(insides, first)

    def _keys(self, block: RecordBlock, columns: Sequence[Column]) -> KeyValues:
        try:
            decoded = kernel.decode(block.data, block.starts, block.lengths, columns)
        except (ExampleError, ColumnError) as error:
            raise add_location(self.unit.path, block, error) from None
        return KeyValues(tuple(map(to_arrow, decoded)), self.first + block.record)


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """Units that count as a single one, in order."""

    units: tuple[NumberedUnit, ...]

    @property
    def first(self) -> int:
        """Number of the first record."""
        return self.units[0].first

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(unit.records for unit in self.units)

    def parts(
        self, names: Mapping[Key, str | None], limits: Limits, *, keys: Sequence[Column] = ()
    ) -> Iterator[RecordPart]:
        """Yield the records as parts; see `NumberedUnit.parts`."""
        for unit in self.units:
            yield from unit.parts(names, limits, keys=keys)

    def pick(
        self, numbers: IntArray, names: Mapping[Key, str | None], limits: Limits
    ) -> Iterator[RecordPart]:
        """Yield the records with these numbers from `first` on, which are ascending."""
        for unit in self.units:
            first = unit.first - self.first
            low, high = np.searchsorted(numbers, (first, first + unit.records))
            yield from unit.pick(numbers[low:high] - first, names, limits)

    def keys(self, columns: Sequence[Column], limits: Limits) -> Iterator[KeyValues]:
        """Yield the key features of the records."""
        for unit in self.units:
            yield from unit.keys(columns, limits)


def number_units(units: Iterable[tuple[RecordUnit, int]]) -> tuple[NumberedUnit, ...]:
    """Number the records of units with these numbers of records, in order."""
    numbered, first = [], 0
    for unit, records in units:
        numbered.append(NumberedUnit(unit, first, records))
        first += records
    return tuple(numbered)


def join_parts(parts: Sequence[RecordPart], first: int) -> RecordPart:
    """Join parts to a single one."""
    if len(parts) == 1 and parts[0].first == first:
        return parts[0]
    empty = np.zeros((2, 0), np.int64)
    starts, offset = [empty], 0
    for part in parts:
        starts.append(part.insides.starts + offset)
        offset += len(memoryview(part.insides.data))
    data = b"".join(part.insides.data for part in parts)
    lengths = [empty, *(part.insides.lengths for part in parts)]
    insides = Insides(
        data,
        np.ascontiguousarray(np.concatenate(starts, axis=1)),
        np.ascontiguousarray(np.concatenate(lengths, axis=1)),
    )
    return RecordPart(insides, first)
