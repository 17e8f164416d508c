"""Write a TFRecord file that is whole under its name, or not there at all.

GZIP files are written as members that hold whole records each, so that a reader can start at any
member; TensorFlow reads them as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from isal import igzip_lib, isal_zlib

from shardline import kernel
from shardline.files.compression import Compression
from shardline.kernel.types import FRAME_BYTES
from shardline.storage.local import DurableFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from shardline.kernel.types import Buffer

_BLOCK_BYTES = 1024 * 1024
_LEVEL = 2  # of 0 to 3: the best ratio that still writes faster than most disks


class RecordWriter:
    """A TFRecord file being written; it appears under its name when the `with` block ends well."""

    def __init__(
        self,
        path: Path | str,
        *,
        compression: Compression | str = Compression.NONE,
        overwrite: bool = False,
    ) -> None:
        self.records = 0
        self._compression = Compression(compression)
        self._payloads: list[Buffer] = []
        self._payload_bytes = 0
        self._packed = bytearray()
        self._zlib = isal_zlib.compressobj(_LEVEL)
        self._file = DurableFile(path, overwrite=overwrite)

    def write(self, payload: Buffer) -> None:
        """Add one record. The payload must not change until the file is closed."""
        self._payloads.append(payload)
        self._payload_bytes += len(payload) + FRAME_BYTES
        if self._payload_bytes >= _BLOCK_BYTES:
            self._flush_payloads()

    def write_frames(self, frames: Buffer, records: int) -> None:
        """Add whole frames as they are; it is for the caller to know that they are intact."""
        self._flush_payloads()
        self._put(frames)
        self.records += records

    def _flush_payloads(self) -> None:
        if self._payloads:
            self._put(kernel.frame(self._payloads))
            self.records += len(self._payloads)
            self._payloads = []
            self._payload_bytes = 0

    def _put(self, frames: Buffer) -> None:
        if self._compression is Compression.NONE:
            self._file.write(frames)
        elif self._compression is Compression.ZLIB:
            self._file.write(self._zlib.compress(frames))
        else:
            self._packed += frames
            if len(self._packed) >= _BLOCK_BYTES:
                self._put_member()

    def _put_member(self) -> None:
        if self._packed:
            member = igzip_lib.compress(self._packed, _LEVEL, igzip_lib.COMP_GZIP)
            self._file.write(member)
            self._packed.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                self._finish()
            except BaseException as problem:
                self._file.__exit__(type(problem), problem, problem.__traceback__)
                raise
        self._file.__exit__(kind, error, trace)

    def _finish(self) -> None:
        self._flush_payloads()
        if self._compression is Compression.ZLIB:
            self._file.write(self._zlib.flush())
        elif self._compression is Compression.GZIP:
            if not self.records:
                self._packed = bytearray()
                self._file.write(igzip_lib.compress(b"", _LEVEL, igzip_lib.COMP_GZIP))
            self._put_member()


def write_records(
    path: Path | str,
    payloads: Iterable[Buffer],
    *,
    compression: Compression | str = Compression.NONE,
    overwrite: bool = False,
) -> int:
    """Write a TFRecord file of these payloads, whatever they hold; gives their number."""
    with RecordWriter(path, compression=compression, overwrite=overwrite) as writer:
        for payload in payloads:
            writer.write(payload)
    return writer.records
