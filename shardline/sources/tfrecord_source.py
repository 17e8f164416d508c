"""TFRecord sources: fitting records are copied byte by byte, also around corrupt parts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.errors import ExampleError, ShardlineError
from shardline.kernel.types import FOOTER_BYTES, HEADER_BYTES
from shardline.schema.encoding import KEPT_BYTES, EncodedRows, QuarantinedRow, Rows, validate_frames
from shardline.schema.schema_finder import SchemaFinder
from shardline.sources.source import JoinableSource, JoinedChunk, SmallFile, check_first_chunk
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import Corruption, RecordFile
from shardline.tfrecord.record_block import RecordBlock
from shardline.tfrecord.recovery import DuplicateDetector, Gap, record_lost_bytes, repeat_gap

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from shardline.kernel.types import Scan
    from shardline.log.model import Source as Identity
    from shardline.schema.schema import Schema
    from shardline.sources.source import Chunk, SelfDescribingChunk
    from shardline.sources.source_identity import FileIdentity, Progress
    from shardline.tfrecord.hashing import FileContent
    from shardline.tfrecord.reader import Limits, LostBytes

_BLOCK_BYTES = 4 * 1024 * 1024


class TFRecordSource(JoinableSource):
    """TFRecord file; `salvage` quarantines corrupt parts and keeps the rest.

    The first bytes show the compression, unless `compression` is given.
    """

    def __init__(
        self,
        origin: FileIdentity,
        limits: Limits,
        *,
        salvage: bool = False,
        compression: Compression | None = None,
        verify: bool = True,
    ) -> None:
        super().__init__(origin, limits)
        self._file = origin
        self._salvage = salvage
        self._compression = compression
        self._verify = verify

    @property
    def content(self) -> FileContent | None:
        """Bytes of the file as `identity` read them, if uncompressed and complete.

        A shard with exactly the records of the file is a copy of it.
        """
        return None if self._salvage else self._file.content

    def unverified(self) -> TFRecordSource:
        """Return the source without the comparison of each block with the bytes of `identity`.

        For a caller that compares all of them in another way.
        """
        return TFRecordSource(
            self._file,
            self._limits,
            salvage=self._salvage,
            compression=self._compression,
            verify=False,
        )

    def identity(self, progress: Progress = None) -> Identity:
        """Return the source identity, reading the file once."""
        return self._file.identity(progress, records=True)

    def _infer(self, *, allow_rounding: bool) -> Schema:  # noqa: ARG002 - no numbers in text
        """Infer a schema that all records fit; logical types are not inferred."""
        finder = SchemaFinder(self.label, exact=True)
        # The append that uses the schema verifies every byte again.
        with self._open(verify=False) as file:
            try:
                for block, _ in self._parts(file):
                    if block is not None:
                        finder.add_records(block.data, block.starts, block.lengths)
            except ShardlineError:
                self._file.check_unchanged()
                raise
        return finder.schema()

    def _small(self, data: bytes) -> SmallFile | None:
        is_plain = not self._salvage and self._compression in {None, Compression.NONE}
        return SmallFile(self._limits, data) if is_plain else None

    def join(self, schema: Schema, files: Sequence[SmallFile]) -> JoinedChunk | None:
        """Return the records of several files, if each ends with a whole record."""
        data = b"".join([file.data for file in files])
        scan = self._scan(data)
        if scan is None:
            return None
        sizes = np.cumsum([len(file.data) for file in files])
        frame_ends = scan.starts + scan.lengths + FOOTER_BYTES
        last_records = np.searchsorted(frame_ends, sizes)
        if not np.array_equal(frame_ends[last_records], sizes):
            return None
        block = RecordBlock(memoryview(data), 0, 0, scan.starts, scan.lengths)
        return JoinedChunk(RecordChunk(schema, self._limits, block, 0), last_records + 1)

    def _scan(self, data: bytes) -> Scan | None:
        """Find the frames of whole files; None if one is invalid."""
        scan = kernel.scan(data, max_record_bytes=self._limits.max_record_bytes)
        return scan if scan.fault is None else None

    def schema_mark(self, file: SmallFile) -> Hashable | None:
        """Return the facts of each feature in the records, without values."""
        scan = self._scan(file.data)
        if scan is None:
            return None
        try:
            facts = kernel.facts(file.data, scan.starts, scan.lengths)
        except ExampleError:
            return None
        count = len(scan.starts)
        return tuple(
            (
                fact.sequence,
                fact.name,
                fact.kind,
                fact.lengths,
                fact.present == count,
                fact.nans > 0,
            )
            for fact in facts
        )

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        chunks = self._chunks(schema, start)
        if start or schema.payload == "opaque":
            yield from chunks
        else:
            yield from check_first_chunk(self.label, schema, chunks, exact=True)

    def _open(self, *, verify: bool = True) -> RecordFile:
        return RecordFile(
            self._file.open(verify=verify),
            limits=self._limits,
            block_bytes=_BLOCK_BYTES,
            compression=self._compression,
        )

    def _chunks(self, schema: Schema, start: int) -> Iterator[SelfDescribingChunk]:
        with self._open(verify=self._verify) as file:
            gaps: list[QuarantinedRow] = []
            end = start
            for block, gap in self._parts(file):
                if gap is not None:
                    gaps += [gap] if gap.row >= start else []
                    end = max(end, gap.row + 1)
                if block is not None:
                    end = block.end
                    if end > start:
                        chunk = block.skip(max(start - block.record, 0))
                        yield RecordChunk(
                            schema, self._limits, chunk, file.stream.position, tuple(gaps)
                        )
                        gaps = []
            if gaps:
                nothing = RecordBlock(memoryview(b""), 0, end, *[np.zeros(0, np.int64)] * 2)
                yield RecordChunk(schema, self._limits, nothing, file.stream.position, tuple(gaps))

    def _parts(
        self, file: RecordFile
    ) -> Iterator[tuple[RecordBlock | None, QuarantinedRow | None]]:
        """Yield the blocks of the file, and after each gap the lost bytes."""
        if not self._salvage:
            for block in file.blocks():
                yield block, None
            return
        doubt = DuplicateDetector(file.stream)
        lost = _DamageGaps()
        for event in file.events(go_on=True):
            if isinstance(event, Corruption):
                doubt.note(event)
                yield from ((None, gap) for gap in lost.begin(event))
            elif isinstance(event, RecordBlock):
                yield from ((None, gap) for gap in lost.finish())
                for block in doubt.cut(event):
                    if doubt.is_repeat(block):
                        content = bytes(block.data[:KEPT_BYTES])
                        yield None, _make_rejected_gap(block.record, repeat_gap(block), content)
                    else:
                        yield block, None
            else:
                lost.add(file, event)
        yield from ((None, gap) for gap in lost.finish())


@dataclass(slots=True)
class _DamageGaps:
    """Gaps after one corruption, collected until the next block completes them."""

    record: int = 0
    gaps: list[Gap] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)

    def begin(self, damage: Corruption) -> list[QuarantinedRow]:
        """Start another corruption and return the completed gaps of the previous corruption."""
        finished = self.finish()
        fault = damage.fault
        self.record = fault.record
        self.gaps = [Gap(fault.offset, 0, fault.kind, fault.detail, damage.packed)]
        return finished

    def add(self, file: RecordFile, lost: LostBytes) -> None:
        """Add lost bytes to the current corruption."""
        record_lost_bytes(self.gaps, lost)
        number = len(self.gaps)
        for _, data in file.bytes_of(lost):
            content = self.contents.get(number, b"")
            if len(content) >= KEPT_BYTES:
                break
            self.contents[number] = content + bytes(data[: KEPT_BYTES - len(content)])

    def finish(self) -> list[QuarantinedRow]:
        """Return the lost bytes, gap by gap."""
        rows = [
            _make_rejected_gap(self.record, gap, self.contents.get(number, b""))
            for number, gap in enumerate(self.gaps, 1)
        ]
        self.gaps, self.contents = [], {}
        return rows


def _make_rejected_gap(record: int, gap: Gap, content: bytes) -> QuarantinedRow:
    of_what = " of the packed file" if gap.packed else ""
    detail = f"{gap.kind}: {gap.detail}; {gap.bytes} bytes{of_what} are lost"
    return QuarantinedRow(record, f"offset {gap.offset}", None, detail, content, damage=True)


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Consecutive records of a file, and the gaps before them.

    `position` is how many bytes of the file have been read.
    """

    schema: Schema
    limits: Limits
    block: RecordBlock
    position: int
    gaps: tuple[QuarantinedRow, ...] = ()

    @property
    def end(self) -> int:
        """The number of the first record after this chunk."""
        return self.block.end

    def frames(self) -> EncodedRows:
        """Return the records that fit the schema, and the rejected ones."""
        block = self.block
        rows = Rows(block.numbers, self._where, self._content, "tfrecord")
        records = (block.data, block.starts, block.lengths)
        frames = validate_frames(self.schema, records, rows, {}, self.limits.max_record_bytes)
        return replace(frames, refused=(*self.gaps, *frames.refused))

    def infer(self) -> Schema:
        """Return the schema that the records suggest."""
        finder = SchemaFinder("", exact=True)
        finder.add_records(self.block.data, self.block.starts, self.block.lengths)
        return finder.schema()

    def _where(self, index: int) -> str:
        offset = self.block.offset + int(self.block.starts[index]) - HEADER_BYTES
        return f"record {self.block.record + index}, offset {offset}"

    def _content(self, index: int) -> bytes:
        start = int(self.block.starts[index])
        return bytes(self.block.data[start : start + int(self.block.lengths[index])])
