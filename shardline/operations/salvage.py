"""Salvage a damaged TFRecord file: every intact record around the damage, in order.

Only records whose two checksums both match are kept, as the bytes they are. The input is never
changed.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.arguments import parse_local_path, resolve_path
from shardline.errors import (
    InvalidArgumentError,
    NothingToSalvageError,
    NotTFRecordError,
    ShardlineError,
)
from shardline.hints import Hint
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression, parse_compression
from shardline.tfrecord.reader import DEFAULT_LIMITS, Corruption, Limits, RecordFile
from shardline.tfrecord.record_block import RecordBlock
from shardline.tfrecord.recovery import DuplicateDetector, Gap, record_lost_bytes, repeat_gap
from shardline.tfrecord.writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_QUARANTINE_PIECE_BYTES = 48 * 1024


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
    source, out = parse_local_path(source), parse_local_path(out, "out")
    if quarantine is not None and resolve_path(quarantine) == resolve_path(out):
        raise InvalidArgumentError(
            f"{out}: output and quarantine must be two files",
            code="conflicting-arguments",
            path=out,
        )
    report = SalvageReport()
    with RecordFile(source, limits=limits) as file, ExitStack() as stack:
        report.compression = file.compression
        packing = file.compression if compression is None else parse_compression(compression)
        kept = stack.enter_context(RecordWriter(out, compression=packing))
        lost = None if quarantine is None else stack.enter_context(DurableFile(quarantine))
        doubt = DuplicateDetector(file.stream)
        for event in file.events(go_on=True):
            if isinstance(event, RecordBlock):
                for block in doubt.cut(event):
                    if doubt.is_repeat(block):
                        report.gaps.append(repeat_gap(block))
                        _write_lost(lost, source, report.gaps[-1], block.offset, block.data)
                    else:
                        kept.write_frames(block.data, len(block.starts))
            elif isinstance(event, Corruption):
                fault = event.fault
                gap = Gap(fault.offset, 0, fault.kind, fault.detail, event.packed)
                report.gaps.append(gap)
                doubt.note(event)
            else:
                record_lost_bytes(report.gaps, event)
                for offset, data in file.bytes_of(event) if lost else ():
                    _write_lost(lost, source, report.gaps[-1], offset, data)
            if progress is not None:
                progress(file.stream.position)
        if report.gaps and not kept.records:
            raise _make_empty_error(source, out, report.gaps[0])
    report.recovered = kept.records
    return report


def _make_empty_error(source: Path, out: Path | str, first: Gap) -> ShardlineError:
    """Return the error for a file without an intact record."""
    if first.kind == "not-tfrecord":
        return NotTFRecordError(str(source), first.detail)
    return NothingToSalvageError(
        f"{source}: no intact record found, {out} was not written",
        hint=Hint.of("check that this is a TFRecord file"),
        path=source,
    )


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
