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
from shardline.files.reader import DEFAULT_LIMITS, Block, Damage, Limits, Lost, RecordFile
from shardline.files.writer import RecordWriter
from shardline.storage.local import DurableFile

if TYPE_CHECKING:
    from collections.abc import Callable

_QUARANTINE_PIECE_BYTES = 48 * 1024


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
    report = SalvageReport()
    with RecordFile(source, limits=limits) as file, ExitStack() as stack:
        report.compression = file.compression
        packing = file.compression if compression is None else Compression(compression)
        kept = stack.enter_context(RecordWriter(out, compression=packing))
        lost = None if quarantine is None else stack.enter_context(DurableFile(quarantine))
        for event in file.events(go_on=True):
            if isinstance(event, Block):
                kept.write_frames(event.data, len(event.starts))
            elif isinstance(event, Damage):
                fault = event.fault
                gap = Gap(fault.offset, 0, fault.kind, fault.detail, event.packed)
                report.gaps.append(gap)
            else:
                _note_lost(report, event)
                if lost is not None:
                    _write_lost(lost, source, report.gaps[-1], event)
            if progress is not None:
                progress(file.stream.position)
        if report.gaps and not kept.records:
            msg = (
                f"{source}: no intact record was found, so {out} was not written; "
                "is this a TFRecord file?"
            )
            raise NothingToSalvageError(msg)
    report.recovered = kept.records
    return report


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


def _write_lost(file: DurableFile, source: Path, gap: Gap, lost: Lost) -> None:
    where = {"file": str(source), "kind": gap.kind, "detail": gap.detail, "packed": gap.packed}
    if lost.data is None:
        line = {**where, "offset": lost.offset, "bytes": lost.size, "data": None}
        file.write(json.dumps(line).encode() + b"\n")
        return
    for start in range(0, lost.size, _QUARANTINE_PIECE_BYTES):
        piece = lost.data[start : start + _QUARANTINE_PIECE_BYTES]
        text = base64.b64encode(piece).decode()
        line = {**where, "offset": lost.offset + start, "bytes": len(piece), "data": text}
        file.write(json.dumps(line).encode() + b"\n")
