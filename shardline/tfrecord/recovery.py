"""Losses of salvage: gaps between intact records, and records that corruption repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.tfrecord.compression import CompressedStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.tfrecord.compression import Stream
    from shardline.tfrecord.reader import Corruption, LostBytes
    from shardline.tfrecord.record_block import RecordBlock

_DEFLATE_WINDOW_BYTES = 32 * 1024


@dataclass(slots=True)
class Gap:
    """Corrupt span of the decompressed bytes or, if `packed`, of the compressed file."""

    offset: int
    bytes: int
    kind: str
    detail: str
    packed: bool


class DuplicateDetector:
    """Detector of records that a corrupt deflate stream may have repeated.

    Such a stream is full of instructions to copy earlier bytes. A corrupt stream can repeat an
    intact record, with matching checksums. After corruption in a compressed member that does not
    match its own checksum, a record seen just before is therefore not kept again.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream if isinstance(stream, CompressedStream) else None
        self._member = -1
        self._recent = b""

    def note(self, damage: Corruption) -> None:
        """Remember the member with the corruption, unless its own checksum matches."""
        if self._stream is not None and not damage.packed:
            member = self._stream.member_at(damage.fault.offset)
            if member != self._member and not self._stream.is_sound(member):
                self._member = member

    def _covers(self, block: RecordBlock) -> bool:
        return self._stream is not None and self._stream.member_at(block.offset) == self._member

    def cut(self, block: RecordBlock) -> Iterator[RecordBlock]:
        """Yield the block as it is, or each of its records if they have to be checked."""
        if self._covers(block):
            yield from block.records()
        else:
            yield block

    def is_repeat(self, block: RecordBlock) -> bool:
        """Return True if a doubtful record repeats a recent record. Remembers it otherwise."""
        if self._stream is None:
            return False
        frames = bytes(block.data[-_DEFLATE_WINDOW_BYTES:])
        if self._covers(block) and frames in self._recent:
            return True
        self._recent = (self._recent + frames)[-2 * _DEFLATE_WINDOW_BYTES :]
        return False


def repeat_gap(block: RecordBlock) -> Gap:
    """Return the gap left by a record that a corrupt stream repeated."""
    detail = "the damaged packed data repeats a record that stood just before"
    return Gap(block.offset, len(block.data), "compression", detail, packed=False)


def record_lost_bytes(gaps: list[Gap], lost: LostBytes) -> None:
    """Add lost bytes to the last gap, or to a new gap if they are elsewhere."""
    gap = gaps[-1]
    if gap.packed == (lost.data is None) and gap.offset + gap.bytes == lost.offset:
        gap.bytes += lost.size
    elif gap.packed == (lost.data is None) and not gap.bytes:
        gap.offset, gap.bytes = lost.offset, lost.size
    else:
        new = Gap(lost.offset, lost.size, gap.kind, gap.detail, packed=lost.data is None)
        gaps.append(new)
