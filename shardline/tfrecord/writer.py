"""Writers of TFRecord files, which compress, hash and index the records."""

from __future__ import annotations

import hashlib
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from shardline import kernel
from shardline.kernel.types import FRAME_BYTES, HEADER_BYTES
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression, Compressor, get_frame_ends
from shardline.tfrecord.hashing import BackgroundHash, ExpectedHash
from shardline.tfrecord.index import Fingerprint, IndexWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from shardline.kernel.types import Buffer, IntArray
    from shardline.storage.store import ObjectWriter, Store
    from shardline.tfrecord.hashing import FileContent


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Totals of a written file. `sha256` is empty if it was not hashed."""

    records: int
    bytes: int
    sha256: str


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...

    def hexdigest(self) -> str: ...


class _NoHash:
    """Placeholder for a hash that is not needed."""

    def update(self, data: Buffer, /) -> None: ...

    def hexdigest(self) -> str:
        return ""


class MemoryWriter:
    """Writer of a file that is small enough for memory."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: Buffer) -> None:
        """Add bytes at the end."""
        self._data += data

    def rewrite(self, offset: int, data: bytes) -> None:
        """Overwrite the bytes at `offset`."""
        self._data[offset : offset + len(data)] = data

    @property
    def content(self) -> bytes:
        """Written bytes."""
        return bytes(self._data)


class RecordSink:
    """Writer of a TFRecord file to `file`, and of its index to `index` if that is given.

    With `aside`, a separate thread computes the hash. With `expected`, the content is compared
    instead of hashed. Without `hashed`, it is neither hashed nor compared.
    """

    def __init__(
        self,
        file: ObjectWriter,
        compression: Compression,
        index: ObjectWriter | None = None,
        *,
        aside: bool = False,
        expected: FileContent | None = None,
        hashed: bool = True,
    ) -> None:
        self.records = 0
        self._file = file
        self._index = None if index is None else IndexWriter(index)
        self._fingerprint = Fingerprint()
        if expected is not None:
            self._hash: _Hash = ExpectedHash(expected)
        elif not hashed:
            self._hash = _NoHash()
        else:
            self._hash = BackgroundHash() if aside else hashlib.sha256()
        self._unpacked = 0
        self._packer = Compressor(self._put, compression)

    @property
    def compression(self) -> Compression:
        """Compression of the file."""
        return self._packer.compression

    def add(self, frames: Buffer, starts: IntArray, lengths: IntArray) -> None:
        """Add whole frames unchanged. The caller ensures that they are intact."""
        self._packer.add(frames, get_frame_ends(starts, lengths))
        self._note(starts, len(frames))

    def begin_packed(self) -> None:
        """Prepare for a whole GZIP file that is copied unchanged."""
        self._packer.begin_packed()

    def add_packed(self, data: Buffer) -> None:
        """Add bytes of the copied GZIP file."""
        self._packer.add_packed(data)

    def note_packed(self, starts: IntArray, size: int) -> None:
        """Record the next frames of the copied file, which have `size` bytes in total."""
        self._note(starts, size)

    def end_packed(self, members: Sequence[tuple[int, int]], unpacked: int) -> None:
        """Record where the members of the copied GZIP file begin, and its decompressed size."""
        self._packer.end_packed(members, unpacked)

    def _note(self, starts: IntArray, size: int) -> None:
        if self._index is not None:
            self._index.add(starts + (self._unpacked - HEADER_BYTES))
        self._unpacked += size
        self.records += len(starts)

    def fitting(self, ends: IntArray, target: int | None) -> int:
        """Return how many of the frames that end at `ends` to add now, or 0 if it is full.

        A plain file is full if the next record would exceed `target` bytes. A compressed file is
        full when it has reached them. One record always fits.
        """
        if target is None:
            return len(ends)
        if self.compression is Compression.NONE:
            count = int(np.searchsorted(ends, target - self._packer.packed, "right"))
            return count or int(not self.records)
        if self._packer.packed >= target:
            return 0
        return min(int(np.searchsorted(ends, self._packer.room)) + 1, len(ends))

    def _put(self, data: Buffer) -> None:
        self._hash.update(data)
        self._fingerprint.add(data)
        self._file.write(data)

    def finish(self) -> WrittenFile:
        """Write the end of the file. Nothing can be added afterwards.

        Raises ContentMismatchError if the content is not the expected content.
        """
        self._packer.finish()
        sha256 = self._hash.hexdigest()
        if self._index is not None:
            self._index.finish(
                end=self._unpacked,
                members=self._packer.members,
                size=self._packer.packed,
                compression=self.compression,
                fingerprint=self._fingerprint.value,
                sha256=sha256,
            )
        return WrittenFile(self.records, self._packer.packed, sha256)

    def close(self) -> None:
        """Stop the thread that hashes, even if the file is unfinished."""
        if isinstance(self._hash, BackgroundHash):
            self._hash.close()


@contextmanager
def write_stored(
    store: Store,
    name: str,
    compression: Compression,
    *,
    aside: bool = False,
    expected: FileContent | None = None,
    synced: bool = True,
) -> Iterator[RecordSink]:
    """Yield a writer of a stored file. File and index exist when the block succeeds.

    Raises ObjectExistsError, at the start or at the end, if the name exists. `aside` and `expected`
    select the hash, as in RecordSink. Without `synced`, a call of `Store.sync` has to follow.
    """
    # The index is entered first and committed last: no index exists without its file.
    with (
        store.writer(f"{name}.index", derived=True) as index,
        store.writer(name, synced=synced) as file,
    ):
        sink = RecordSink(file, compression, index, aside=aside, expected=expected)
        with closing(sink):
            yield sink


_BLOCK_BYTES = 1024 * 1024


class RecordWriter:
    """TFRecord file being written, which appears when the `with` block succeeds."""

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
        self._packer = Compressor(self._file.write, packing)

    def write(self, payload: Buffer) -> None:
        """Add one record. The payload must not change until the file is closed."""
        self._payloads.append(payload)
        self._payload_bytes += len(payload) + FRAME_BYTES
        if self._payload_bytes >= _BLOCK_BYTES:
            self._flush_payloads()

    def write_frames(self, frames: Buffer, records: int) -> None:
        """Add whole frames unchanged. The caller ensures that they are intact."""
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
    """Write a TFRecord file of any payloads. Returns their number."""
    with RecordWriter(path, compression=compression, overwrite=overwrite) as writer:
        for payload in payloads:
            writer.write(payload)
    return writer.records
