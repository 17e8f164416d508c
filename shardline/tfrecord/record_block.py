"""A block of records in memory: the unit in which records are read, checked and copied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.kernel.types import FOOTER_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import Buffer, IntArray
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Intact records of one file: consecutive frames, or records selected by number.

    Attributes:
        data: The bytes that hold the payloads. They never change. Those of consecutive records
            are whole frames.
        offset: Offset of `data` in the decompressed file. Unused for selected records.
        record: Number of the first record.
        starts: Offset of each payload in `data`.
        lengths: Length of each payload.
        selected: Numbers of the records, ascending, if they are not consecutive.
    """

    data: memoryview
    offset: int
    record: int
    starts: IntArray
    lengths: IntArray
    selected: IntArray | None = None

    @classmethod
    def select(
        cls, data: Buffer, starts: IntArray, lengths: IntArray, numbers: IntArray
    ) -> RecordBlock:
        """Return a block of records that need not be consecutive."""
        return cls(memoryview(data), 0, int(numbers[0]), starts, lengths, numbers)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.starts)

    @property
    def end(self) -> int:
        """The number of the first record after a block of consecutive records."""
        return self.record + len(self.starts)

    @property
    def numbers(self) -> IntArray:
        """The number of each record in its file."""
        if self.selected is None:
            return np.arange(self.record, self.end)
        return self.selected

    def payloads(self) -> Iterator[memoryview]:
        """Yield the payload of each record."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.data[start : start + length]

    def records(self) -> Iterator[RecordBlock]:
        """Yield each of the consecutive records as a block."""
        start = np.array([HEADER_BYTES], np.int64)
        for number, (begin, length) in enumerate(
            zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ):
            first = begin - HEADER_BYTES
            yield RecordBlock(
                self.data[first : begin + length + FOOTER_BYTES],
                self.offset + first,
                self.record + number,
                start,
                self.lengths[number : number + 1],
            )

    def copy(self) -> RecordBlock:
        """Return a copy that outlives the buffer of its reader."""
        return replace(self, data=memoryview(bytes(self.data)))

    def split(self, count: int) -> tuple[RecordBlock, RecordBlock]:
        """Return the first `count` records and the others; both share all of `data`."""
        numbers = self.selected
        head = replace(
            self,
            starts=self.starts[:count],
            lengths=self.lengths[:count],
            selected=None if numbers is None else numbers[:count],
        )
        tail = replace(
            self,
            record=self.record + count,
            starts=self.starts[count:],
            lengths=self.lengths[count:],
            selected=None if numbers is None else numbers[count:],
        )
        return head, tail

    def before(self, end: int) -> RecordBlock:
        """Return the consecutive records whose frames begin before offset `end` of the file."""
        keep = int(np.searchsorted(self.starts, end - self.offset + HEADER_BYTES))
        if keep == len(self.starts):
            return self
        size = int(self.starts[keep]) - HEADER_BYTES
        return replace(
            self, data=self.data[:size], starts=self.starts[:keep], lengths=self.lengths[:keep]
        )

    def skip(self, count: int) -> RecordBlock:
        """Return the consecutive records after the first `count`, with their frames alone."""
        if not count:
            return self
        first = len(self.data)
        if count < len(self.starts):
            first = int(self.starts[count]) - HEADER_BYTES
        return RecordBlock(
            self.data[first:],
            self.offset + first,
            self.record + count,
            self.starts[count:] - first,
            self.lengths[count:],
        )


def scan_block(data: bytes, limits: Limits) -> RecordBlock | None:
    """Return all records of a plain file that consists of `data`; None if any is corrupt."""
    scan = kernel.scan(data, max_record_bytes=limits.max_record_bytes)
    if scan.fault is not None or scan.consumed != len(data) or not data:
        return None
    return RecordBlock(memoryview(data), 0, 0, scan.starts, scan.lengths)
