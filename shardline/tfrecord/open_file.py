"""A file open for reading: what those who read TFRecord files ask of it, and a local one."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shardline.arguments import parse_local_path
from shardline.errors import InvalidTypeError, ObjectNotFoundError
from shardline.storage.disk_errors import not_a_file
from shardline.storage.store import object_uri

if TYPE_CHECKING:
    from shardline.storage.store import OpenedObject, Store


class OpenFile(Protocol):
    """Bytes of a known number, with a position that `readinto` and `seek` move.

    As a text it is the name of the file, for messages.
    """

    size: int

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer with the next bytes and say how many; 0 only at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Go on at another place."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on, without moving the position."""
        ...

    def again(self) -> OpenFile:
        """The same file, opened once more at its start; also after this one is closed."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class LocalFile(FileIO):
    """A file on a local disk."""

    def __init__(self, path: Path | str, opened: OpenedObject | None = None) -> None:
        super().__init__(str(path) if opened is None else opened.descriptor)
        self._path = path
        self.size = os.fstat(self.fileno()).st_size if opened is None else opened.size

    def __str__(self) -> str:
        return str(self._path)

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on, without moving the position."""
        return os.pread(self.fileno(), size, offset)

    def again(self) -> LocalFile:
        """The same file, opened once more."""
        return LocalFile(self._path)


def open_regular(path: Path) -> LocalFile:
    """Open a file for reading; what is no file on a disk, such as a pipe, is refused."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - opens many small files
        raise not_a_file(path, is_folder=path.is_dir())
    return LocalFile(path)


_FIRST_WINDOW_BYTES = 256 * 1024
_MAX_WINDOW_BYTES = 4 * 1024 * 1024
_GLANCE_BYTES = 16
"""A glance at a header farther on does not move the window."""
_BEHIND_BYTES = 256 * 1024
"""Kept of what was read: behind a packed member, reading goes back to where its data ended."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store, by its name there."""

    store: Store
    name: str

    def __str__(self) -> str:
        return object_uri(self.store, self.name)

    def open(self) -> OpenFile:
        """Open it for reading; ObjectNotFoundError if it is not there."""
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
"""Where a TFRecord file is."""


def open_file(source: Source | OpenFile) -> OpenFile:
    """Open a file wherever it is; one that is open already is taken as it is."""
    if isinstance(source, StoredFile):
        return source.open()
    if isinstance(source, str | Path):
        return open_regular(parse_local_path(source))
    if not hasattr(source, "readinto"):
        raise InvalidTypeError(f"path: expected a path, got {type(source).__name__}")
    return source


class RemoteFile:
    """An object, read by windows that grow while reading goes straight on.

    So a look at its start costs little, and all of it few requests. One window is kept.
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
        """Copy what the window has of the next bytes; 0 at the end."""
        part = self._look(self._position, 1)[: len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)

    def seek(self, offset: int, /) -> int:
        """Go on at another place."""
        self._position = offset
        return offset

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on, without moving the position."""
        if size <= _GLANCE_BYTES and self._start + len(self._window) < offset <= self.size - size:
            return self._file.store.read_ranges(self._file.name, [(offset, size)])[0]
        return bytes(self._look(offset, size)[:size])

    def again(self) -> RemoteFile:
        """The same object, without asking for its size again."""
        return RemoteFile(self._file, self.size)

    def close(self) -> None:
        """Let go of the window."""
        self._window = memoryview(b"")

    def _look(self, offset: int, size: int) -> memoryview:
        """What the window has from `offset` on: `size` bytes at least, if the object does."""
        end = self._start + len(self._window)
        wanted = min(offset + size, self.size)
        if offset >= wanted:
            return memoryview(b"")
        if not self._start <= offset <= end:
            self._ahead = _FIRST_WINDOW_BYTES
            self._window, self._start, end = memoryview(b""), offset, offset
        elif wanted > end:
            self._ahead = min(2 * self._ahead, _MAX_WINDOW_BYTES)
        if wanted > end:
            count = min(max(self._ahead, wanted - end), self.size - end)
            (data,) = self._file.store.read_ranges(self._file.name, [(end, count)])
            kept = max(self._start, offset - _BEHIND_BYTES)
            self._window = memoryview(b"".join((self._window[kept - self._start :], data)))
            self._start = kept
        return self._window[offset - self._start :]
