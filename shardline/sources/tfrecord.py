"""Existing TFRecord files: every record's bytes as they are, if they fit; also around damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shardline.files.gaps import Doubt, Gap, note_lost, repeat_gap
from shardline.files.reader import Block, Damage, RecordFile
from shardline.kernel.types import HEADER_BYTES
from shardline.sources.base import Source, after_a_look
from shardline.sources.frames import KEPT_BYTES, Rows, checked
from shardline.sources.inference import Finder
from shardline.sources.source import Frames, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.files.compression import Compression
    from shardline.files.hashed import Content
    from shardline.files.reader import Limits, Lost
    from shardline.log.facts import Source as Identity
    from shardline.log.schema import Schema
    from shardline.sources.base import OwnSchema
    from shardline.sources.origin import FileOrigin, Progress
    from shardline.sources.source import Chunk

_BLOCK_BYTES = 4 * 1024 * 1024


class TFRecordSource(Source):
    """A TFRecord file. With `salvage`, what is damaged in it is refused and the rest kept.

    It tells by its first bytes how it is packed, unless `compression` is given.
    """

    def __init__(
        self,
        origin: FileOrigin,
        limits: Limits,
        *,
        salvage: bool = False,
        compression: Compression | None = None,
    ) -> None:
        super().__init__(origin, limits)
        self._file = origin
        self._salvage = salvage
        self._compression = compression

    @property
    def content(self) -> Content | None:
        """The bytes of the file when `identity` read it, if it is plain and nothing is passed over.

        A shard that takes in all its records, and no other, is a copy of it.
        """
        return None if self._salvage else self._file.content

    def identity(self, progress: Progress = None) -> Identity:
        """What tells it from other sources; it is read for that, once."""
        return self._file.identity(progress, records=True)

    def _infer(self, *, allow_rounding: bool) -> Schema:  # noqa: ARG002 - no numbers in text
        """Return the schema that all records fit; logical types are not inferred."""
        finder = Finder(self.shown, exact=True)
        with self._open() as file:
            for block, _ in self._parts(file):
                if block is not None:
                    finder.add_records(block.data, block.starts, block.lengths)
        return finder.schema()

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        chunks = self._chunks(schema, start)
        if start or schema.payload == "opaque":
            yield from chunks
        else:
            yield from after_a_look(self.shown, schema, chunks, exact=True)

    def _open(self) -> RecordFile:
        return RecordFile(
            self._file.open(),
            limits=self._limits,
            block_bytes=_BLOCK_BYTES,
            compression=self._compression,
        )

    def _chunks(self, schema: Schema, start: int) -> Iterator[OwnSchema]:
        with self._open() as file:
            gaps: list[Refused] = []
            end = start
            for block, gap in self._parts(file):
                if gap is not None:
                    gaps += [gap] if gap.row >= start else []
                    end = max(end, gap.row + 1)
                if block is not None:
                    end = block.record + len(block.starts)
                    if end > start:
                        chunk = _chunk(block, start, file.stream.position)
                        yield RecordChunk(schema, self._limits, chunk, tuple(gaps))
                        gaps = []
            if gaps:
                nothing = Block(memoryview(b""), 0, end, *[np.zeros(0, np.int64)] * 2)
                chunk = _chunk(nothing, 0, file.stream.position)
                yield RecordChunk(schema, self._limits, chunk, tuple(gaps))

    def _parts(self, file: RecordFile) -> Iterator[tuple[Block | None, Refused | None]]:
        """The blocks of the file, and behind each gap what was lost there."""
        if not self._salvage:
            for block in file.blocks():
                yield block, None
            return
        doubt = Doubt(file.stream)
        lost = _Losses()
        for event in file.events(go_on=True):
            if isinstance(event, Damage):
                doubt.note(event)
                yield from ((None, gap) for gap in lost.begin(event))
            elif isinstance(event, Block):
                yield from ((None, gap) for gap in lost.finish())
                for block in doubt.cut(event):
                    if doubt.is_repeat(block):
                        content = bytes(block.data[:KEPT_BYTES])
                        yield None, _refused(block.record, repeat_gap(block), content)
                    else:
                        yield block, None
            else:
                lost.add(file, event)
        yield from ((None, gap) for gap in lost.finish())


@dataclass(slots=True)
class _Losses:
    """The gaps behind one damage, until what comes next shows that they are whole."""

    record: int = 0
    gaps: list[Gap] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)

    def begin(self, damage: Damage) -> list[Refused]:
        """Another damage: what belongs to the one before is whole."""
        finished = self.finish()
        fault = damage.fault
        self.record = fault.record
        self.gaps = [Gap(fault.offset, 0, fault.kind, fault.detail, damage.packed)]
        return finished

    def add(self, file: RecordFile, lost: Lost) -> None:
        """Bytes that belong to the last damage."""
        note_lost(self.gaps, lost)
        number = len(self.gaps)
        for _, data in file.bytes_of(lost):
            kept = self.contents.get(number, b"")
            if len(kept) >= KEPT_BYTES:
                break
            self.contents[number] = kept + bytes(data[: KEPT_BYTES - len(kept)])

    def finish(self) -> list[Refused]:
        """What was lost, gap by gap."""
        told = [
            _refused(self.record, gap, self.contents.get(number, b""))
            for number, gap in enumerate(self.gaps, 1)
        ]
        self.gaps, self.contents = [], {}
        return told


def _refused(record: int, gap: Gap, content: bytes) -> Refused:
    of_what = " of the packed file" if gap.packed else ""
    detail = f"{gap.kind}: {gap.detail}; {gap.bytes} bytes{of_what} are lost"
    return Refused(record, f"offset {gap.offset}", None, detail, content, damage=True)


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a block, or those of them that are asked for."""

    data: memoryview
    offset: int
    first: int
    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]]
    position: int


def _chunk(block: Block, start: int, position: int) -> _Records:
    skipped = max(start - block.record, 0)
    begin = int(block.starts[skipped]) - HEADER_BYTES if skipped else 0
    return _Records(
        block.data[begin:],
        block.offset + begin,
        block.record + skipped,
        block.starts[skipped:] - begin,
        block.lengths[skipped:].copy(),
        position,
    )


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Some records of a file, and the gaps before them."""

    schema: Schema
    limits: Limits
    records: _Records
    gaps: tuple[Refused, ...] = ()

    @property
    def position(self) -> int:
        """How much of the file has been read."""
        return self.records.position

    @property
    def end(self) -> int:
        """The number of the first record behind this chunk."""
        return self.records.first + len(self.records.starts)

    def frames(self) -> Frames:
        """Its records."""
        mine = self.records
        numbers = np.arange(mine.first, self.end)
        found = (mine.data, mine.starts, mine.lengths)
        rows = Rows(numbers, self._where, self._content, "tfrecord")
        made = checked(self.schema, found, rows, {}, self.limits.max_record_bytes)
        refused = (*self.gaps, *made.refused)
        return Frames(made.data, made.starts, made.lengths, made.rows, refused)

    def infer(self) -> Schema:
        """The schema that its records suggest."""
        finder = Finder("", exact=True)
        finder.add_records(self.records.data, self.records.starts, self.records.lengths)
        return finder.schema()

    def _where(self, at: int) -> str:
        offset = self.records.offset + int(self.records.starts[at]) - HEADER_BYTES
        return f"record {self.records.first + at}, offset {offset}"

    def _content(self, at: int) -> bytes:
        start = int(self.records.starts[at])
        return bytes(self.records.data[start : start + int(self.records.lengths[at])])
