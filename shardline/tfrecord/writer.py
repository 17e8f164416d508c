"""Write a TFRecord file into a store, with its index, in one pass."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Self

import numpy as np

from shardline import kernel
from shardline.kernel.types import FRAME_BYTES
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression, Packer
from shardline.tfrecord.record_sink import RecordSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from shardline.kernel.types import Buffer
    from shardline.storage.store import Store
    from shardline.tfrecord.hashing import Content


@contextmanager
def write_stored(
    store: Store,
    name: str,
    compression: Compression,
    *,
    aside: bool = False,
    expected: Content | None = None,
    synced: bool = True,
) -> Iterator[RecordSink]:
    """A file of a store to write to: it and its index are there when the block ends well.

    ObjectExistsError at the start or at the end if there is one of that name. `aside` and
    `expected` say how it is hashed: see RecordSink. Without `synced`, `Store.sync` has to follow.
    """
    # The index is entered first, and so put in place last: none is there without its file.
    with (
        store.writer(f"{name}.index", derived=True) as index,
        store.writer(name, synced=synced) as file,
    ):
        sink = RecordSink(file, compression, index, aside=aside, expected=expected)
        with closing(sink):
            yield sink


_BLOCK_BYTES = 1024 * 1024


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
        self._payloads: list[Buffer] = []
        self._payload_bytes = 0
        packing = Compression(compression)
        self._file = DurableFile(path, overwrite=overwrite)
        self._packer = Packer(self._file.write, packing)

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
        self._packer.add(frames, np.array([len(frames)]))

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
        self._packer.finish()


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
