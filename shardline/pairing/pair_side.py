"""The records of one side of a combination, taken apart: in parts, as many as memory should hold.

A record is taken apart once, whatever the number of pairs that it stands in.
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
"""What a pair has at most beside the features of its records: the frame and two headers."""


class RecordUnit(Protocol):
    """Records that lie together: a shard, or a loose file."""

    @property
    def path(self) -> str:
        """Where they lie, for messages."""
        ...

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Every record, checked, block by block."""
        ...

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """The records of these numbers, which ascend."""
        ...


@dataclass(frozen=True, slots=True)
class StandaloneFile:
    """A file that is no shard of anything."""

    path: str

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Every record, checked; raises CorruptFileError at the first damage."""
        with RecordFile(Path(self.path), limits=limits, block_bytes=block_bytes) as file:
            yield from file.blocks()

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """The records of these numbers; there is no index, so all up to the last are read."""
        done = 0
        for block in self.blocks(limits=limits, block_bytes=BLOCK_BYTES):
            if done == len(numbers):
                return
            last = int(np.searchsorted(numbers, block.record + len(block.starts)))
            at = numbers[done:last] - block.record
            if len(at):
                yield RecordBlock.select(
                    block.data, block.starts[at], block.lengths[at], numbers[done:last]
                )
            done = last


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The key features of some records, a column for each; `first` is the number of the first."""

    columns: tuple[pa.Array, ...]
    first: int

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True)
class RecordPart:
    """Records that were taken apart; `first` is the number of the first among those of its side."""

    insides: Insides
    first: int
    keys: KeyValues | None = field(default=None, repr=False)
    _decoded: dict[Key, pa.Array] = field(default_factory=dict, repr=False)

    @property
    def records(self) -> int:
        """How many records there are."""
        return self.insides.records

    @cached_property
    def sizes(self) -> IntArray:
        """How many bytes of features each record has."""
        return np.asarray(self.insides.lengths.sum(axis=0))

    @cached_property
    def ends(self) -> IntArray:
        """What the first records bring to pairs, in bytes: none of them, one, two, and so on."""
        return np.concatenate(([0], np.cumsum(self.sizes + PAIR_OVERHEAD_BYTES)))

    @property
    def bytes(self) -> int:
        """How many bytes of features there are."""
        return int(self.sizes.sum())

    def load(self) -> RecordPart:
        """It is in memory."""
        return self

    def slice(self, first: int, last: int) -> RecordPart:
        """Some of the records; of the others nothing is looked at when these are joined."""
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
        """How many bytes of features each of these records has; the one -1 has none."""
        found = np.zeros(len(rows), np.int64)
        there = rows >= 0
        found[there] = self.sizes[rows[there]]
        return found

    def gather(self, rows: IntArray) -> tuple[RecordPart, IntArray]:
        """It has them all."""
        return self, rows

    def columns(self, features: Sequence[Feature]) -> list[pa.Array]:
        """Features of the records, by the names that they have in a pair; decoded once.

        Raises ColumnError if one does not fit its feature.
        """
        missing = [feature for feature in features if feature.key not in self._decoded]
        if missing:
            whole = kernel.join([self.insides], [np.arange(self.records)])
            asked = [column_of(feature) for feature in missing]
            try:
                decoded = kernel.decode(whole.data, whole.starts, whole.lengths, asked)
                for feature, buffers in zip(missing, decoded, strict=True):
                    self._decoded[feature.key] = to_column(feature, buffers)
            except ColumnError as error:
                number = self.first + error.record
                raise ColumnError(number, error.feature, error.detail, code=error.code) from None
        return [self._decoded[feature.key] for feature in features]


def _copy_array(array: pa.Array) -> pa.Array:
    """A slice as an array of its own: Arrow's `take` goes wrong on slices of lists in lists."""
    return pa.concat_arrays([array, array.slice(0, 0)])


@dataclass(frozen=True, slots=True)
class NumberedUnit:
    """A unit of one side: how many records it has, and the number of the first on that side."""

    unit: RecordUnit
    first: int
    records: int

    def blocks(self, limits: Limits, span: tuple[int, int] | None = None) -> Iterator[RecordBlock]:
        """Its records, or those of a span of it, in order."""
        low, high = span or (0, self.records)
        for block in self.unit.blocks(limits=limits, block_bytes=BLOCK_BYTES):
            if span is not None and block.record >= high:
                return
            begin, end = (min(max(at - block.record, 0), len(block.starts)) for at in (low, high))
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
        """The same, taken apart. Raises what reading raises, and ColumnError at unknown features.

        With `keys`, each part has the columns of these features.
        """
        for block in self.blocks(limits, span):
            part = self._taken_apart(block, names, self.first + block.record)
            yield replace(part, keys=self._keys(block, keys)) if keys else part

    def picked(
        self, numbers: IntArray, names: Mapping[Key, str | None], limits: Limits
    ) -> Iterator[RecordPart]:
        """The records of these numbers in the unit, which ascend, taken apart."""
        for some in self.unit.pick(numbers, limits=limits):
            part = self._taken_apart(some, names, 0)
            # What was picked is good until the next is; what was taken apart may be those bytes.
            yield replace(part, insides=replace(part.insides, data=bytes(part.insides.data)))

    def keys(self, columns: Sequence[Column], limits: Limits) -> Iterator[KeyValues]:
        """The key features of its records; nothing else of them is looked at."""
        for block in self.blocks(limits):
            yield self._keys(block, columns)

    def _taken_apart(
        self, some: RecordBlock, names: Mapping[Key, str | None], first: int
    ) -> RecordPart:
        try:
            return RecordPart(kernel.insides(some.data, some.starts, some.lengths, names), first)
        except (ExampleError, ColumnError) as error:
            raise add_location(self.unit.path, some, error) from None

    def _keys(self, block: RecordBlock, columns: Sequence[Column]) -> KeyValues:
        try:
            decoded = kernel.decode(block.data, block.starts, block.lengths, columns)
        except (ExampleError, ColumnError) as error:
            raise add_location(self.unit.path, block, error) from None
        return KeyValues(tuple(to_arrow(one) for one in decoded), self.first + block.record)


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """Units that count as one: all of their records stand in a row."""

    units: tuple[NumberedUnit, ...]

    @property
    def first(self) -> int:
        """The number of the first record."""
        return self.units[0].first

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(one.records for one in self.units)

    def parts(
        self, names: Mapping[Key, str | None], limits: Limits, *, keys: Sequence[Column] = ()
    ) -> Iterator[RecordPart]:
        """The records, taken apart; see `Numbered.parts`."""
        for one in self.units:
            yield from one.parts(names, limits, keys=keys)

    def picked(
        self, numbers: IntArray, names: Mapping[Key, str | None], limits: Limits
    ) -> Iterator[RecordPart]:
        """The records of these numbers, which ascend and count from the first, taken apart."""
        for one in self.units:
            at = one.first - self.first
            low, high = np.searchsorted(numbers, (at, at + one.records))
            yield from one.picked(numbers[low:high] - at, names, limits)

    def keys(self, columns: Sequence[Column], limits: Limits) -> Iterator[KeyValues]:
        """The key features of the records."""
        for one in self.units:
            yield from one.keys(columns, limits)


def number_units(units: Iterable[tuple[RecordUnit, int]]) -> tuple[NumberedUnit, ...]:
    """Units and the number of their records, as they follow each other on one side."""
    made, first = [], 0
    for unit, records in units:
        made.append(NumberedUnit(unit, first, records))
        first += records
    return tuple(made)


def join_parts(parts: Sequence[RecordPart], first: int) -> RecordPart:
    """The records of several parts as one."""
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
