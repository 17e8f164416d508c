"""Files open for reading: their interface, local files and remote objects."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shardline.arguments import parse_local_path
from shardline.errors import InvalidTypeError, ObjectNotFoundError
from shardline.storage.disk_errors import make_not_a_file_error
from shardline.storage.store import object_uri

if TYPE_CHECKING:
    from shardline.storage.store import OpenedObject, Store


class OpenFile(Protocol):
    """Open file of known size, with a position that `readinto` and `seek` move.

    The text form is the name of the file, for messages.
    """

    size: int

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes and return their number, 0 only at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Continue at another offset."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on, without moving the position."""
        ...

    def reopen(self) -> OpenFile:
        """Open the same file once more, at its start. Works even after `close`."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class LocalFile(FileIO):
    """File on a local disk."""

    def __init__(self, path: Path | str, opened: OpenedObject | None = None) -> None:
        super().__init__(str(path) if opened is None else opened.descriptor)
        self._path = path
        self.size = os.fstat(self.fileno()).st_size if opened is None else opened.size

    def __str__(self) -> str:
        return str(self._path)

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on, without moving the position."""
        return os.pread(self.fileno(), size, offset)

    def reopen(self) -> LocalFile:
        """Open the same file once more."""
        return LocalFile(self._path)


def open_regular(path: Path) -> LocalFile:
    """Open a file for reading. Raises NotAFileError unless it is a regular file."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - opens many small files
        raise make_not_a_file_error(path, is_folder=path.is_dir())
    return LocalFile(path)


_FIRST_WINDOW_BYTES = 256 * 1024
_MAX_WINDOW_BYTES = 4 * 1024 * 1024
_GLANCE_BYTES = 16
"""Largest read farther on, such as of a header, that does not move the window."""
_BEHIND_BYTES = 256 * 1024
"""Bytes kept before the read position: reading steps back to where a member's data ended."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """File of a store, identified by its name there."""

    store: Store
    name: str

    def __str__(self) -> str:
        return object_uri(self.store, self.name)

    def open(self) -> OpenFile:
        """Open the file for reading. Raises ObjectNotFoundError if it is missing."""
        try:
            opened = self.store.open_local(self.name)
        except FileNotFoundError:
            raise ObjectNotFoundError(f"{self}: file not found", path=str(self)) from None
        if opened is not None:
            return LocalFile(opened.path, opened)
        info = self.store.info(self.name)
        if info is None:
            raise ObjectNotFoundError(f"{self}: object not found", path=str(self))
        return RemoteFile(self, info.size)


Source = Path | str | StoredFile
"""Location of a TFRecord file."""


def open_file(source: Source | OpenFile) -> OpenFile:
    """Open a file from any location. An open file is returned unchanged."""
    if isinstance(source, StoredFile):
        return source.open()
    if isinstance(source, str | Path):
        return open_regular(parse_local_path(source))
    if not hasattr(source, "readinto"):
        raise InvalidTypeError(f"path: expected a path, got {type(source).__name__}")
    return source


class RemoteFile:
    """Object that is read in windows, which grow while reads are sequential.

    Reading the start is cheap, and reading everything takes few requests. One window is kept.
    """

    def __init__(self, file: StoredFile, size: int) -> None:
        self._file = file
        self.size = size
        self._position = 0
        self._window = memoryview(b"")
        self._start = 0
        self._ahead = _FIRST_WINDOW_BYTES // 2

    def __str__(self) -> str:
        return str(self._file)

    def readinto(self, buffer: memoryview, /) -> int:
        """Copy the next bytes of the window and return their number, 0 at the end."""
        part = self._look(self._position, 1)[: len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)

    def seek(self, offset: int, /) -> int:
        """Continue at another offset."""
        self._position = offset
        return offset

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on, without moving the position."""
        if size <= _GLANCE_BYTES and self._start + len(self._window) < offset <= self.size - size:
            return self._file.store.read_ranges(self._file.name, [(offset, size)])[0]
        return bytes(self._look(offset, size)[:size])

    def reopen(self) -> RemoteFile:
        """Open the same object once more, without another request for its size."""
        return RemoteFile(self._file, self.size)

    def close(self) -> None:
        """Release the window."""
        self._window = memoryview(b"")

    def _look(self, offset: int, size: int) -> memoryview:
        """Return the window from `offset` on: at least `size` bytes, if the object has them."""
        end = self._start + len(self._window)
        end_offset = min(offset + size, self.size)
        if offset >= end_offset:
            return memoryview(b"")
        if not self._start <= offset <= end:
            self._ahead = _FIRST_WINDOW_BYTES
            self._window, self._start, end = memoryview(b""), offset, offset
        elif end_offset > end:
            self._ahead = min(2 * self._ahead, _MAX_WINDOW_BYTES)
        if end_offset > end:
            count = min(max(self._ahead, end_offset - end), self.size - end)
            (data,) = self._file.store.read_ranges(self._file.name, [(end, count)])
            window_start = max(self._start, offset - _BEHIND_BYTES)
            self._window = memoryview(b"".join((self._window[window_start - self._start :], data)))
            self._start = window_start
        return self._window[offset - self._start :]
