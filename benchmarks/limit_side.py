"""Limits: the minimum that any program must do for the same work."""

from __future__ import annotations

import gzip
import os
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import google_crc32c
from isal import igzip_lib

from benchmarks.timing import Side
from shardline import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.data import RecordSet

_BUFFER_BYTES = 4 * 1024 * 1024
_MEMBER_BYTES = 1024 * 1024


def read_with_crc(source: RecordSet) -> tuple[Side, ...]:
    """Read a file through a buffer of 4 MB and compute its CRC-32C with the CPU instruction."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))

    def with_ours() -> int:
        value = 0
        with source.path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                value = kernel.crc32c(buffer[:count], value)
        return source.records

    def with_google() -> int:
        value = 0
        with source.path.open("rb", buffering=0) as file:
            # It takes no writable buffer; the allocator hands out the same 4 MB again and again.
            while data := file.read(_BUFFER_BYTES):
                value = google_crc32c.extend(value, data)
        return source.records

    return (
        Side("read + our crc32c", with_ours),
        Side("read + google-crc32c", with_google),
    )


def pass_over(blocks: Sequence[bytes], records: int) -> Side:
    """Read every byte in memory once."""

    def run() -> int:
        for block in blocks:
            kernel.crc32c(block)
        return records

    return Side("crc32c in memory", run)


def copy_memory(blocks: Sequence[bytes], records: int) -> Side:
    """Copy every byte in memory once."""
    copy = memoryview(bytearray(max(map(len, blocks))))

    def run() -> int:
        for block in blocks:
            copy[: len(block)] = block
        return records

    return Side("copy in memory", run)


def write(path: Path, frames: bytes, times: int, records: int) -> Side:
    """Write the same bytes, with the same syncs as the writer."""
    view = memoryview(frames)
    pieces = _pieces(view, _BUFFER_BYTES)

    def run() -> int:
        with path.open("xb", buffering=0) as file:
            for _ in range(times):
                for piece in pieces:
                    file.write(piece)
            os.fsync(file.fileno())
        return records

    return Side("write the bytes", run, path)


def copy_file(source: RecordSet, path: Path) -> tuple[Side, ...]:
    """Copy a file, inside the kernel or through one buffer of 4 MB."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))

    def inside() -> int:
        shutil.copyfile(source.path, path)
        return source.records

    def through_buffer() -> int:
        with source.path.open("rb", buffering=0) as file, path.open("xb", buffering=0) as copy:
            while count := file.readinto(buffer):
                copy.write(buffer[:count])
        return source.records

    return (
        Side("cp (sendfile)", inside, path),
        Side("cp (4 MB buffer)", through_buffer, path),
    )


def unpack_with_stdlib(source: RecordSet) -> Side:
    """Decompress a GZIP file with the standard library and drop the bytes."""

    def run() -> int:
        with gzip.open(source.path) as file:
            while file.read(_MEMBER_BYTES):
                pass
        return source.records

    return Side("stdlib gzip", run)


def unpack_with_isal(source: RecordSet) -> Side:
    """Decompress a GZIP file of one member with ISA-L and compute its CRC-32C."""

    def run() -> int:
        inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        with source.path.open("rb", buffering=0) as file:
            while not inflate.eof:
                data = file.read(_MEMBER_BYTES) if inflate.needs_input else b""
                kernel.crc32c(inflate.decompress(data, _MEMBER_BYTES))
        return source.records

    return Side("ISA-L + crc32c", run)


def pack_with_stdlib(path: Path, frames: bytes, records: int) -> Side:
    """Compress the frames with the standard library, at TensorFlow's level."""
    pieces = _pieces(memoryview(frames), _MEMBER_BYTES)

    def run() -> int:
        with gzip.open(path, "xb", compresslevel=6) as file:
            for piece in pieces:
                file.write(piece)
        return records

    return Side("stdlib gzip level 6", run, path)


def pack_with_isal(path: Path, frames: bytes, records: int) -> Side:
    """Compress the frames with ISA-L, one member per MB."""
    pieces = _pieces(memoryview(frames), _MEMBER_BYTES)

    def run() -> int:
        with path.open("xb", buffering=0) as file:
            for piece in pieces:
                file.write(igzip_lib.compress(piece, 2, igzip_lib.COMP_GZIP))
        return records

    return Side("ISA-L level 2", run, path)


def _pieces(view: memoryview, size: int) -> list[memoryview]:
    cuts = [*range(0, len(view), size), len(view)]
    return [view[first:last] for first, last in pairwise(cuts)]
