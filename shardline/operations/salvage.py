"""Salvage a damaged TFRecord file: every intact record around the damage, in order.

Only records whose two checksums both match are kept, as the bytes they are. The input is never
changed.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import NothingToSalvageError
from shardline.files.compression import Compression
from shardline.files.packed import PackedStream
from shardline.files.reader import DEFAULT_LIMITS, Block, Damage, Limits, Lost, RecordFile
from shardline.files.writer import RecordWriter
from shardline.storage.local import DurableFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.files.compression import Stream

_QUARANTINE_PIECE_BYTES = 48 * 1024
_DEFLATE_WINDOW_BYTES = 32 * 1024


@dataclass(slots=True)
class Gap:
    """A damaged span. If `packed`, it is one of the packed file, not of the unpacked bytes."""

    offset: int
    bytes: int
    kind: str
    detail: str
    packed: bool


@dataclass(slots=True)
class SalvageReport:
    """What was recovered, and what was not."""

    recovered: int = 0
    compression: Compression = Compression.NONE
    gaps: list[Gap] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """The size of all gaps together."""
        return sum(gap.bytes for gap in self.gaps)


def salvage(
    source: Path | str,
    out: Path | str,
    *,
    compression: Compression | str | None = None,
    quarantine: Path | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> SalvageReport:
    """Copy every intact record of `source` to the new file `out`.

    `out` is packed as `source` is unless told otherwise. With `quarantine`, the damaged bytes go
    to that new file, as JSON lines that say where they stood.
    """
    source = Path(source)
    if quarantine is not None and Path(quarantine).resolve() == Path(out).resolve():
        raise ValueError(f"{out} cannot hold both the records and the quarantine: name two files")
    report = SalvageReport()
    with RecordFile(source, limits=limits) as file, ExitStack() as stack:
        report.compression = file.compression
        packing = file.compression if compression is None else Compression(compression)
        kept = stack.enter_context(RecordWriter(out, compression=packing))
        lost = None if quarantine is None else stack.enter_context(DurableFile(quarantine))
        doubt = _Doubt(file.stream)
        for event in file.events(go_on=True):
            if isinstance(event, Block):
                for block in doubt.cut(event):
                    if doubt.is_repeat(block):
                        report.gaps.append(_repeat_gap(block))
                        _write_lost(lost, source, report.gaps[-1], block.offset, block.data)
                    else:
                        kept.write_frames(block.data, len(block.starts))
            elif isinstance(event, Damage):
                fault = event.fault
                gap = Gap(fault.offset, 0, fault.kind, fault.detail, event.packed)
                report.gaps.append(gap)
                doubt.note(event)
            else:
                _note_lost(report, event)
                for offset, data in file.bytes_of(event) if lost else ():
                    _write_lost(lost, source, report.gaps[-1], offset, data)
            if progress is not None:
                progress(file.stream.position)
        if report.gaps and not kept.records:
            raise NothingToSalvageError(
                f"{source}: no intact record was found, so {out} was not written; "
                "is this a TFRecord file?"
            )
    report.recovered = kept.records
    return report


class _Doubt:
    """Tells records that a damaged deflate stream may have made up.

    Such a stream is full of instructions to copy earlier bytes. A damaged one can bring an intact
    record a second time, with checksums that match. So behind damage in a packed member that does
    not match its own checksum, a record that stood just before is not kept again.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream if isinstance(stream, PackedStream) else None
        self._member = -1
        self._recent = b""

    def note(self, damage: Damage) -> None:
        """Remember in which member the damage lies, if that one is not to be trusted."""
        if self._stream is not None and not damage.packed:
            member = self._stream.member_at(damage.fault.offset)
            if member != self._member and not self._stream.is_sound(member):
                self._member = member

    def _covers(self, block: Block) -> bool:
        return self._stream is not None and self._stream.member_at(block.offset) == self._member

    def cut(self, block: Block) -> Iterator[Block]:
        """The block as it is, or record by record where each has to be looked at."""
        if self._covers(block):
            yield from block.records()
        else:
            yield block

    def is_repeat(self, block: Block) -> bool:
        """Whether a doubtful record has just been there; remembers it if not."""
        if self._stream is None:
            return False
        frames = bytes(block.data[-_DEFLATE_WINDOW_BYTES:])
        if self._covers(block) and frames in self._recent:
            return True
        self._recent = (self._recent + frames)[-2 * _DEFLATE_WINDOW_BYTES :]
        return False


def _repeat_gap(block: Block) -> Gap:
    detail = "the damaged packed data repeats a record that stood just before"
    return Gap(block.offset, len(block.data), "compression", detail, packed=False)


def _note_lost(report: SalvageReport, lost: Lost) -> None:
    """Add lost bytes to the gap they belong to, or to a new one if they lie elsewhere."""
    gap = report.gaps[-1]
    if gap.packed == (lost.data is None) and gap.offset + gap.bytes == lost.offset:
        gap.bytes += lost.size
    elif gap.packed == (lost.data is None) and not gap.bytes:
        gap.offset, gap.bytes = lost.offset, lost.size
    else:
        new = Gap(lost.offset, lost.size, gap.kind, gap.detail, packed=lost.data is None)
        report.gaps.append(new)


def _write_lost(
    quarantine: DurableFile | None, source: Path, gap: Gap, offset: int, data: memoryview
) -> None:
    """Write lost bytes to the quarantine file, if there is one, in lines of a bounded size."""
    if quarantine is None:
        return
    where = {"file": str(source), "kind": gap.kind, "detail": gap.detail, "packed": gap.packed}
    for start in range(0, len(data), _QUARANTINE_PIECE_BYTES):
        piece = data[start : start + _QUARANTINE_PIECE_BYTES]
        text = base64.b64encode(piece).decode()
        line = {**where, "offset": offset + start, "bytes": len(piece), "data": text}
        quarantine.write(json.dumps(line).encode() + b"\n")
