"""Reader of TFRecord files in bounded blocks of verified frames, up to or past corruption."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from shardline import kernel
from shardline.errors import CorruptFileError, Fault
from shardline.kernel.types import DEFAULT_MAX_RECORD_BYTES, FRAME_BYTES, HEADER_BYTES
from shardline.tfrecord.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    CompressionError,
    PlainStream,
    Stream,
    open_stream,
)
from shardline.tfrecord.foreign_formats import detect_foreign_format
from shardline.tfrecord.input_file import Source, open_file
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.errors import FaultKind
    from shardline.tfrecord.input_file import OpenFile

BLOCK_BYTES = 1024 * 1024
_DAMAGE_WINDOW_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the sizes that a file may require."""

    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Corruption:
    """Fault at which reading stopped, or after which it continues.

    `packed` states that offsets are those of the compressed file, not of the decompressed bytes.
    `code` is the error code if that of the fault's kind is not specific enough.
    """

    fault: Fault
    packed: bool = False
    code: str | None = None


@dataclass(frozen=True, slots=True)
class LostBytes:
    """Bytes that belong to the last corruption. `data` is None if not decompressed."""

    offset: int
    size: int
    data: memoryview | None


class RecordFile:
    """TFRecord file open for reading: `for payload in file` yields its verified records.

    The compression is detected from the first bytes, unless `compression` is given.
    """

    def __init__(
        self,
        source: Source | OpenFile,
        *,
        limits: Limits = DEFAULT_LIMITS,
        block_bytes: int = BLOCK_BYTES,
        compression: Compression | None = None,
    ) -> None:
        self.source = Path(source) if isinstance(source, str) else source
        self._limits = limits
        self._block_bytes = block_bytes
        self._file = open_file(source)
        self.compression: Compression
        self.stream: Stream
        try:
            self.compression, self.stream = open_stream(
                self._file, compression, max_decompressed_bytes=limits.max_decompressed_bytes
            )
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def reopen(self) -> RecordFile:
        """Open the same file once more, without detecting its compression again."""
        return RecordFile(
            self._file.reopen(),
            limits=self._limits,
            block_bytes=self._block_bytes,
            compression=self.compression,
        )

    def __iter__(self) -> Iterator[bytes]:
        """Yield the payload of every record. Raises CorruptFileError at the first fault."""
        for block in self.blocks():
            for payload in block.payloads():
                yield bytes(payload)

    def bytes_of(self, lost: LostBytes) -> Iterator[tuple[int, memoryview]]:
        """Yield lost bytes with their offset, in pieces. Compressed bytes stay compressed."""
        if lost.data is not None:
            yield lost.offset, lost.data
            return
        for offset in range(lost.offset, lost.offset + lost.size, BLOCK_BYTES):
            size = min(BLOCK_BYTES, lost.offset + lost.size - offset)
            yield offset, memoryview(self._file.pread(size, offset))

    def blocks(self) -> Iterator[RecordBlock]:
        """Yield every record in blocks. Raises CorruptFileError at the first fault."""
        for event in self.events(go_on=False):
            if isinstance(event, Corruption):
                raise CorruptFileError.of(self.source, event.fault, code=event.code)
            if isinstance(event, RecordBlock):
                yield event

    def blocks_between(
        self, start: int, end: int, *, record: int = 0, search: bool = True
    ) -> Iterator[RecordBlock]:
        """Yield the records of a plain file that begin from `start` on and before `end`.

        With `search`, `start` may be any offset, and the first intact frame is searched for.
        Otherwise record number `record` begins there.
        """
        if not isinstance(self.stream, PlainStream):
            raise TypeError(f"{self.source} is packed: it can be read from its start only")
        self.stream.seek(start)
        scanner = _Scanner(self.stream, self._limits, self._block_bytes, start, record)
        if search and start and not scanner.find_frame(end):
            return
        for event in self._recognized(scanner.events(go_on=False)):
            if isinstance(event, Corruption):
                raise CorruptFileError.of(self.source, event.fault, code=event.code)
            if isinstance(event, RecordBlock):
                block = event.before(end)
                if len(block.starts):
                    yield block
                if len(block.starts) < len(event.starts):
                    return

    def events(self, *, go_on: bool) -> Iterator[RecordBlock | Corruption | LostBytes]:
        """Yield blocks up to the first corruption or, with `go_on`, also those after it.

        In the record numbers, each corruption counts as one record.
        """
        return self._recognized(
            _Scanner(self.stream, self._limits, self._block_bytes).events(go_on=go_on)
        )

    def _recognized(
        self, events: Iterator[RecordBlock | Corruption | LostBytes]
    ) -> Iterator[RecordBlock | Corruption | LostBytes]:
        """Yield the events. If the file clearly has another format, the fault is replaced."""
        for event in events:
            if isinstance(event, Corruption) and _may_be_foreign(event.fault):
                name = detect_foreign_format(self._file, self.compression)
                if name is not None:
                    fault = Fault("not-tfrecord", 0, event.fault.offset, name)
                    yield Corruption(fault, event.packed, "not-tfrecord")
                    continue
            yield event


def _may_be_foreign(fault: Fault) -> bool:
    """Return True if nothing in the file, not even a length, is known to be a TFRecord."""
    return fault.record == 0 and fault.kind in {"length-crc", "trailing-bytes", "compression"}


def _buffer(size: int) -> memoryview:
    """Return an uninitialized buffer."""
    return np.empty(size, np.uint8).data


class _Scanner:
    """Window of the stream in memory: `data[low:high]`, where `low` is at `offset`."""

    def __init__(
        self, stream: Stream, limits: Limits, block_bytes: int, offset: int = 0, record: int = 0
    ) -> None:
        self._stream = stream
        self._max_record = limits.max_record_bytes
        self._data = _buffer(block_bytes)
        self._low = 0
        self._high = 0
        self._offset = offset
        self._record = record
        self._ended = False
        self._broken: CompressionError | None = None
        self._after_damage: Literal["", "frame", "packed"] = ""

    @property
    def _final(self) -> bool:
        """Return True if the window is known to hold all remaining data."""
        return self._ended and self._broken is None

    def _window(self) -> memoryview:
        return self._data[self._low : self._high].toreadonly()

    def _fill(self, needed: int) -> None:
        """Read the stream until the window has `wanted` bytes or the stream ends.

        The buffer grows with the bytes actually read, never at once to the size in a header.
        """
        if self._high - self._low >= needed:
            return
        if self._low:
            self._move_to(len(self._data))
        while not self._ended and self._high < max(needed, len(self._data)):
            if self._high == len(self._data):
                self._move_to(self._high + min(self._high, needed - self._high))
            try:
                count = self._stream.readinto(self._data[self._high :])
            except CompressionError as error:
                self._broken = error
                count = 0
            self._high += count
            self._ended = count == 0
            if count and self._high >= needed:
                break

    def _move_to(self, size: int) -> None:
        """Continue in a new buffer with the remaining bytes: the last block may be in use."""
        left = self._data[self._low : self._high]
        self._data = _buffer(size)
        self._data[: len(left)] = left
        self._low, self._high = 0, len(left)

    def _advance(self, size: int) -> None:
        self._low += size
        self._offset += size

    def events(self, *, go_on: bool) -> Iterator[RecordBlock | Corruption | LostBytes]:
        needed = HEADER_BYTES
        while True:
            self._fill(needed)
            scan = kernel.scan(self._window(), max_record_bytes=self._max_record, final=self._final)
            if scan.consumed:
                self._after_damage = ""
                data = self._window()[: scan.consumed]
                yield RecordBlock(data, self._offset, self._record, scan.starts, scan.lengths)
                self._record += len(scan.starts)
                self._advance(scan.consumed)
            needed = max(scan.needed, HEADER_BYTES)
            if scan.fault is not None:
                if not self._after_damage:
                    fault = scan.fault
                    yield self._damage(Fault(fault.kind, self._record, self._offset, fault.detail))
                if not go_on:
                    return
                yield from self._skip_damage(scan.fault.kind)
            elif self._broken is not None and not scan.consumed:
                if self._after_damage != "packed":
                    broken = self._broken
                    fault = Fault("compression", self._record, broken.offset, broken.detail)
                    yield self._damage(fault, packed=True, code=broken.code)
                if not go_on:
                    return
                yield from self._resume()
            elif self._final:
                return

    def find_frame(self, end: int) -> bool:
        """Move to the first intact frame that begins before `end`. False if none exists."""
        needed = HEADER_BYTES
        while self._offset < end:
            self._fill(needed)
            search = kernel.find_next(
                self._window(), 0, max_record_bytes=self._max_record, final=self._final
            )
            self._advance(search.offset)
            if search.found:
                return self._offset < end
            if self._ended:
                return False
            needed = search.needed
        return False

    def _damage(self, fault: Fault, *, packed: bool = False, code: str | None = None) -> Corruption:
        if not self._after_damage:
            self._record += 1
        self._after_damage = "packed" if packed else "frame"
        return Corruption(fault, packed, code)

    def _lose(self, size: int) -> Iterator[LostBytes]:
        if size:
            yield LostBytes(self._offset, size, self._window()[:size])
            self._advance(size)

    def _skip_damage(self, kind: FaultKind) -> Iterator[LostBytes]:
        """Move to the next intact frame after a corrupt frame. Yields the lost bytes."""
        needed = _DAMAGE_WINDOW_BYTES
        if kind == "data-crc":  # the length is verified: the next header must follow the frame
            stated = int.from_bytes(self._window()[:8], "little")
            needed = stated + FRAME_BYTES + HEADER_BYTES
        self._fill(needed)
        end = kernel.find_end(
            self._window(), 0, max_record_bytes=self._max_record, final=self._final
        )
        if end >= 0:
            yield from self._lose(self._records_up_to(end))
            return
        start = 1
        while True:
            search = kernel.find_next(
                self._window(), start, max_record_bytes=self._max_record, final=self._final
            )
            yield from self._lose(search.offset)
            if search.found or self._ended:
                if not search.found:
                    yield from self._lose(self._high - self._low)
                return
            self._fill(max(search.needed, FRAME_BYTES))
            start = 0

    def _records_up_to(self, end: int) -> int:
        """Return where the records that end exactly at `end` begin, or `end` without any.

        Bytes cut out of a corrupt record move the records after it into the span that it claims. A
        frame inside its data is not a record and cannot end there, because the data's checksum
        does.
        """
        window = self._window()[:end]
        start = 1
        while True:
            search = kernel.find_next(window, start, max_record_bytes=self._max_record)
            if not search.found:
                return end
            run = kernel.scan(window[search.offset :], max_record_bytes=self._max_record)
            start = search.offset + run.consumed
            if start == end:
                return search.offset

    def _resume(self) -> Iterator[LostBytes]:
        """Skip corrupt compressed data. Yields the lost bytes."""
        yield from self._lose(self._high - self._low)
        broken_at = self._stream.size if self._broken is None else self._broken.offset
        position = self._stream.resume()
        self._broken = None
        self._ended = position is None
        lost = (self._stream.size if position is None else position) - broken_at
        if lost > 0:
            yield LostBytes(broken_at, lost, None)
