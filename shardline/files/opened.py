"""A file open for reading: what those who read TFRecord files ask of it, and a local one."""

from __future__ import annotations

import os
import stat
from io import FileIO
from typing import TYPE_CHECKING, Protocol

from shardline.storage.disk_errors import not_a_file

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.storage.store import OpenedObject


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
