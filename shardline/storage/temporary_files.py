"""Temporary files and folders whose locks distinguish abandoned from live files.

A writer locks its temporary file, and the lock ends with the process, however that ends. A
temporary file with a free lock is therefore abandoned, and the process that acquires the lock may
delete it. A concurrent cleanup may delete a file between its creation and its lock: the writer then
creates another. On a file system without locks nothing is known, and nothing is deleted here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from shardline.storage.disk_errors import get_storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import Buffer
    from shardline.storage import Store


TEMPORARY_NAME = re.compile(r"\..{1,48}\.[0-9a-f]{12}\.tmp", re.DOTALL)
"""Names of files being written. A file of a dead process may be deleted."""

_SUFFIX_LENGTH = len(".0123456789ab.tmp")
_REST = 20
"""Pause before a folder is listed again, as a multiple of the time a listing took."""
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_scans: dict[tuple[int, int], tuple[float, dict[str, list[str]]]] = {}
"""Earliest time of the next listing of each folder, and its temporary files."""


def claim_file(descriptor: int, name: str, folder: int | None = None) -> bool:
    """Lock an own temporary file or folder until it is closed.

    Returns False if a concurrent cleanup was faster: the file is, or soon will be, deleted.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks here: nothing can take the file for abandoned
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (status.st_dev, status.st_ino) == (mine.st_dev, mine.st_ino)


def is_abandoned(path: Path) -> bool | None:
    """Return True if no live writer has a temporary file, or None if that is unknown."""
    with _locked(str(path), None) as abandoned:
        return abandoned


def remove_abandoned(name: str, folder: int | None = None) -> bool | None:
    """Delete a temporary file, or a folder of such files, unless a live writer has it.

    Returns None if it is unknown whether a live writer has it, or if it cannot be deleted. Most
    callers ignore that, since a leftover is harmless.
    """
    with _locked(name, folder) as abandoned:
        return None if abandoned and not _remove(name, folder) else abandoned


@contextmanager
def _locked(name: str, folder: int | None) -> Iterator[bool | None]:
    """Lock a temporary file if it is free. Yields None without locks or without the file."""
    try:
        descriptor = _open(name, folder)
    except OSError:
        yield None
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _open(name: str, folder: int | None) -> int:
    try:
        return os.open(name, os.O_RDWR | _OPEN, dir_fd=folder)
    except IsADirectoryError:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=folder)


def _lock(descriptor: int) -> bool | None:
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove(name: str, folder: int | None) -> bool:
    """Delete a file or folder, if possible."""
    try:
        try:
            os.unlink(name, dir_fd=folder)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=folder)
    except OSError:
        return False
    return True


def remove_stale_files(folder: int, target: str) -> None:
    """Delete temporary files of `target` that dead writers left in `folder`.

    A large folder is not listed for each file, so that writing many files there stays cheap.
    """
    status = os.fstat(folder)
    key = status.st_dev, status.st_ino
    start = time.monotonic()
    due, names_by_target = _scans.get(key, (0.0, {}))
    if start >= due:
        names_by_target = _temporaries(folder)
        end = time.monotonic()
        _scans.clear()  # a process writes to few folders at a time
        _scans[key] = end + _REST * (end - start), names_by_target
    for name in names_by_target.pop(target[:48], ()):
        remove_abandoned(name, folder)


def _temporaries(folder: int) -> dict[str, list[str]]:
    """Return the temporary files in a folder, by the names of their targets."""
    names_by_target: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if TEMPORARY_NAME.fullmatch(name):
                names_by_target.setdefault(name[1:-_SUFFIX_LENGTH], []).append(name)
    return names_by_target


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Yield a folder for temporary files, deleted at the end of the block.

    `purpose` begins its name. Folders of the same purpose that dead processes of this user left are
    deleted first.
    """
    above = Path(tempfile.gettempdir())
    ours = re.compile(rf"{re.escape(purpose)}-[a-z0-9_]{{8}}", re.ASCII)
    with contextlib.suppress(OSError):
        for entry in os.scandir(above):
            if ours.fullmatch(entry.name) and _is_own_folder(entry):
                remove_abandoned(entry.path)
    while True:
        path = tempfile.mkdtemp(prefix=f"{purpose}-", dir=above)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
        except FileNotFoundError:
            continue  # Another process took the new folder for a leftover.
        if claim_file(descriptor, path):
            break
        os.close(descriptor)
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


class Spool:
    """Bytes in an unnamed file, in `folder` or the system's folder for temporary files.

    The file disappears at the end of the block. It has no name, so nothing of it remains if the
    process dies.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = str(folder or tempfile.gettempdir())
        with self._translate_errors():
            self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0, dir=folder)  # noqa: SIM115 - see __exit__

    def write(self, data: Buffer) -> None:
        """Add bytes at the end."""
        view = memoryview(data).cast("B")
        with self._translate_errors():
            while view:
                view = view[self._file.write(view) :]

    def rewrite(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at `offset`."""
        self._file.seek(offset)
        self.write(data)
        self._file.seek(0, os.SEEK_END)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`. Threads may call this concurrently."""
        with self._translate_errors():
            data = os.pread(self._file.fileno(), size, offset)
            while len(data) < size:
                more = os.pread(self._file.fileno(), size - len(data), offset + len(data))
                if not more:
                    raise OSError(errno.EIO, "the file ends before what was written to it")
                data += more
            return data

    def rewound(self) -> tuple[IO[bytes], int]:
        """Return the file, positioned at its start, and its size."""
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        return self._file, size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate operating-system errors. They name the folder, as the file has no name."""
        try:
            yield
        except OSError as error:
            raise get_storage_error(error, self._folder) from None


def spool_folder(store: Store) -> Path | None:
    """Return the folder for spooled data, on the disk of the store. None for remote stores."""
    path = store.local_path("spool")
    return None if path is None else path.parent
