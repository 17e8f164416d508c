"""Source identities: path and content of a file, or the name of a batch."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from shardline import kernel
from shardline.errors import ObjectNotFoundError, SourceError, StorageError
from shardline.hints import Hint, Option
from shardline.log.model import Source as Identity
from shardline.tfrecord.compression import Compression, begins_with_record, detect_compression
from shardline.tfrecord.hashing import BlockChecksums, Checksum, FileContent, VerifiedFile
from shardline.tfrecord.input_file import StoredFile, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.tfrecord.input_file import OpenFile

    Progress: TypeAlias = Callable[[int], None] | None

_HASHED_BYTES = 512 * 1024
_SMALL_FILE_BYTES = 64 * 1024
"""Largest file that is read at once."""


class SourceIdentity(Protocol):
    """Source attributes other than the rows."""

    @property
    def label(self) -> str:
        """Label for users."""
        ...

    @property
    def path(self) -> str | None:
        """Path or URI of the file or folder, None for rows in memory."""
        ...

    @property
    def size(self) -> int | None:
        """Size in bytes, or None if unknown."""
        ...

    def identity(self, progress: Progress = None) -> Identity:
        """Return the identity that distinguishes the source."""
        ...

    def note(self) -> None:
        """Record the current state, unless `identity` did."""
        ...

    def check_unchanged(self) -> None:
        """Raise SourceError if the source has changed."""
        ...


class BatchIdentity:
    """Rows in memory, identified by the name that the caller gave."""

    size = None
    path = None

    def __init__(self, batch: str | None) -> None:
        self._batch = batch

    @property
    def label(self) -> str:
        """Batch label for messages."""
        return "rows without a batch name" if self._batch is None else f"batch {self._batch}"

    def identity(self, _progress: Progress = None) -> Identity:
        """Return the batch name as identity; SourceError if it is missing."""
        if not self._batch:
            raise SourceError(
                "rows in memory: missing batch name",
                code="missing-batch-name",
                hint=Hint.of(
                    "pass ", Option("batch", "NAME"), " so that the same rows are appended once"
                ),
            )
        return Identity(batch=self._batch)

    def note(self) -> None:
        """Do nothing: a batch has no state to record."""

    def check_unchanged(self) -> None:
        """Do nothing: the caller owns data in memory."""


class FileIdentity:
    """File on a disk or in a store."""

    def __init__(self, file: Path | StoredFile) -> None:
        self.file = file
        self._stamp: tuple[object, ...] | None = None
        self._identity: Identity | None = None
        self._sums: BlockChecksums | None = None
        self.content: FileContent | None = None

    def __str__(self) -> str:
        return str(self.file)

    @property
    def label(self) -> str:
        """Path, or name in the store."""
        return str(self.file)

    @property
    def path(self) -> str:
        """Path or URI."""
        return str(self.file)

    @property
    def size(self) -> int:
        """Size in bytes."""
        size = (self._stamp or self._look())[0]
        return size if isinstance(size, int) else 0

    def open(self, *, verify: bool = True) -> OpenFile:
        """Open the file for reading.

        After `identity`, a verified file raises SourceError for bytes that differ from those
        hashed.
        """
        file = self._open()
        if self._sums is None or not verify:
            return file
        return VerifiedFile(file, self._sums, partial(make_source_changed_error, self.path))

    def _open(self) -> OpenFile:
        try:
            return open_regular(self.file) if isinstance(self.file, Path) else self.file.open()
        except ObjectNotFoundError:
            raise make_source_not_found_error(self.path) from None
        except StorageError:
            raise
        except OSError as error:
            raise make_unreadable_source_error(self.path, error) from None

    def open_raw(self) -> io.RawIOBase:
        """Open the file as a Python raw stream."""
        return _RawFile(self.open())

    def identity(self, progress: Progress = None, *, records: bool = False) -> Identity:
        """Return the path, size and SHA-256, reading the file once.

        With `records`, the file is a TFRecord file, and `content` is set if it is uncompressed.
        """
        if self._identity is None:
            sums = BlockChecksums()
            small = self._read_small()
            if small is None:
                self._stamp = self._look()
                digest, size = self._digest(progress, sums, records=records)
                self.check_unchanged()
            else:
                self._stamp, data = small
                sums.update(memoryview(data))
                digest, size = hashlib.sha256(data).hexdigest(), len(data)
                if records and begins_with_record(data):
                    self._note_content(digest, sums)
                if progress is not None:
                    progress(size)
            path = self.file.resolve().as_posix() if isinstance(self.file, Path) else str(self.file)
            self._identity, self._sums = Identity(_encode_path(path), size, digest), sums
        return self._identity

    def read_again(self) -> bytes | None:
        """Return the content that `identity` read; None if the file is large or has changed.

        The caller then opens the file, which reads it in parts or reports the change.
        """
        small = None if self._sums is None else self._read_small()
        if small is None or self._sums is None or small[0] != self._stamp:
            return None
        data = small[1]
        is_same = len(data) == self._sums.size and self._sums.match(0, memoryview(data))
        return data if is_same else None

    def _read_small(self) -> tuple[tuple[object, ...], bytes] | None:
        """Read a small local file with few system calls; None if unsuitable or changing."""
        if not isinstance(self.file, Path):
            return None
        try:
            # Opening a pipe of that name must not wait for a writer.
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _SMALL_FILE_BYTES:
                return None
            data = os.read(descriptor, status.st_size + 1)
            is_same = len(data) == status.st_size and _stamp(os.fstat(descriptor)) == _stamp(status)
            return (_stamp(status), data) if is_same else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def note(self) -> None:
        """Record the current state of the file, unless `identity` did."""
        if self._identity is None:
            self._stamp = self._look()

    def check_unchanged(self) -> None:
        """Raise SourceError if the file was written to or replaced meanwhile."""
        if self._stamp is not None and self._look() != self._stamp:
            raise make_source_changed_error(self.path)

    def _look(self) -> tuple[object, ...]:
        """Return the state that changes with the file: size, times and inode.

        Anyone can reset mtime, but not ctime.
        """
        local = self.file if isinstance(self.file, Path) else None
        if isinstance(self.file, StoredFile):
            local = self.file.store.local_path(self.file.name)
            if local is None:
                info = self.file.store.info(self.file.name)
                if info is None:
                    raise make_source_not_found_error(self.path)
                return info.size, info.modified, info.e_tag
        try:
            return _stamp(Path(local or "").stat())
        except OSError as error:
            raise make_unreadable_source_error(self.path, error) from None

    def _digest(
        self, progress: Progress, sums: BlockChecksums, *, records: bool
    ) -> tuple[str, int]:
        file = self._open()
        try:
            digest, size = compute_digest(file, progress, also=sums.update)
            if records and detect_compression(file) is Compression.NONE:
                self._note_content(digest, sums)
            return digest, size
        finally:
            file.close()

    def _note_content(self, digest: str, sums: BlockChecksums) -> None:
        # Without the compiled kernel, a checksum costs more than the SHA-256 that it saves.
        if kernel.NAME != "reference":
            self.content = FileContent(Checksum(sums.size, sums.joined()), digest)


def _stamp(status: os.stat_result) -> tuple[object, ...]:
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_size, *times, status.st_ino, status.st_dev


def compute_digest(
    file: OpenFile, progress: Progress = None, *, also: Callable[[memoryview], None] | None = None
) -> tuple[str, int]:
    """Return the SHA-256 of an open file in hex, and the number of bytes.

    Each hashed block is also passed to `also`, if given.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_HASHED_BYTES, file.size + 1)))
    done = 0
    while count := file.readinto(buffer):
        digest.update(buffer[:count])
        if also is not None:
            also(buffer[:count])
        done += count
        if progress is not None:
            progress(done)
    return digest.hexdigest(), done


def _encode_path(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise SourceError(
            f"invalid path {path!r}: not UTF-8",
            code="invalid-name",
            hint=Hint.of("rename the file"),
            path=path,
        ) from None
    return path


def make_source_not_found_error(path: str) -> SourceError:
    """Return the error for a missing source file."""
    return SourceError(f"{path}: file not found", code="file-not-found", path=path)


def make_source_changed_error(path: str) -> SourceError:
    """Return the error for a source that changed during the read."""
    return SourceError(
        f"{path}: changed while it was read",
        code="source-changed",
        hint=Hint.of("append it when it is complete"),
        path=path,
    )


def make_unreadable_source_error(path: str, error: OSError) -> SourceError:
    """Return the error for a source that the operating system cannot open or read."""
    if isinstance(error, FileNotFoundError):
        return make_source_not_found_error(path)
    return SourceError(f"{path}: {error.strerror or error}", path=path)


class _RawFile(io.RawIOBase):
    """Adapter from an open file to a Python raw stream."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a memoryview is what Python gives
        view = memoryview(buffer).cast("B")
        data = self._file.pread(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
