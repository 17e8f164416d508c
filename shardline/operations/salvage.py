"""Salvage: the intact records of a corrupt TFRecord file, in order.

Only records with two matching checksums are copied, byte for byte. The input is never changed.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from shardline.arguments import parse_local_path, resolve_path
from shardline.errors import (
    InvalidArgumentError,
    NothingToSalvageError,
    NotTFRecordError,
    ShardlineError,
)
from shardline.hints import Hint
from shardline.report import Report
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
class SalvageReport(Report):
    """Result of a salvage: recovered records and lost gaps."""

    JSON_PROPERTIES: ClassVar = ("lost_bytes",)

    recovered: int = 0
    compression: Compression = Compression.NONE
    gaps: list[Gap] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """Total size of the gaps."""
        return sum(gap.bytes for gap in self.gaps)


def salvage(
    source: Path | str,
    output: Path | str,
    *,
    compression: Compression | str | None = None,
    quarantine: Path | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> SalvageReport:
    """Copy every intact record of `source` to the new file `output`.

    Args:
        source: Corrupt TFRecord file.
        output: New file.
        compression: Compression of `output`; by default that of `source`.
        quarantine: New file for the corrupt bytes, as JSON lines with their offsets.
        limits: Limits of records and decompression.
        progress: Called with the position in `source`.

    Raises:
        NothingToSalvageError: No record is intact.

    Example:
        >>> salvage("torn.tfrecord", "good.tfrecord").recovered
    """
    source, output = parse_local_path(source), parse_local_path(output, "output")
    if quarantine is not None and resolve_path(quarantine) == resolve_path(output):
        raise InvalidArgumentError(
            f"{output}: output and quarantine must be two files",
            code="conflicting-arguments",
            path=output,
        )
    report = SalvageReport()
    with RecordFile(source, limits=limits) as file, ExitStack() as stack:
        report.compression = file.compression
        out_compression = (
            file.compression if compression is None else parse_compression(compression)
        )
        writer = stack.enter_context(RecordWriter(output, compression=out_compression))
        lost = None if quarantine is None else stack.enter_context(DurableFile(quarantine))
        detector = DuplicateDetector(file.stream)
        for event in file.events(go_on=True):
            if isinstance(event, RecordBlock):
                for block in detector.cut(event):
                    if detector.is_repeat(block):
                        report.gaps.append(repeat_gap(block))
                        _write_lost(lost, source, report.gaps[-1], block.offset, block.data)
                    else:
                        writer.write_frames(block.data, len(block.starts))
            elif isinstance(event, Corruption):
                fault = event.fault
                gap = Gap(fault.offset, 0, fault.kind, fault.detail, event.packed)
                report.gaps.append(gap)
                detector.note(event)
            else:
                record_lost_bytes(report.gaps, event)
                for offset, data in file.bytes_of(event) if lost else ():
                    _write_lost(lost, source, report.gaps[-1], offset, data)
            if progress is not None:
                progress(file.stream.position)
        if report.gaps and not writer.records:
            raise _make_empty_error(source, output, report.gaps[0])
    report.recovered = writer.records
    return report


def _make_empty_error(source: Path, output: Path | str, first: Gap) -> ShardlineError:
    """Return the error of a file without an intact record."""
    if first.kind == "not-tfrecord":
        return NotTFRecordError(str(source), first.detail)
    return NothingToSalvageError(
        f"{source}: no intact record found, {output} was not written",
        hint=Hint.of("check that this is a TFRecord file"),
        path=source,
    )


def _write_lost(
    quarantine: DurableFile | None, source: Path, gap: Gap, offset: int, data: memoryview
) -> None:
    """Write lost bytes to the quarantine file, if there is one, in lines of a bounded size."""
    if quarantine is None:
        return
    attributes = {"file": str(source), "kind": gap.kind, "detail": gap.detail, "packed": gap.packed}
    for start in range(0, len(data), _QUARANTINE_PIECE_BYTES):
        piece = data[start : start + _QUARANTINE_PIECE_BYTES]
        text = base64.b64encode(piece).decode()
        line = {**attributes, "offset": offset + start, "bytes": len(piece), "data": text}
        quarantine.write(json.dumps(line).encode() + b"\n")
