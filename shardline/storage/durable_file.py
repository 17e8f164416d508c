"""Durable local commit: a file is complete under its final name, or absent.

The bytes go to a temporary name in the same folder and are synced. The file is then linked to its
final name, which fails if that name exists, and the folder is synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Self

from shardline.errors import (
    FileExistsAlreadyError,
    FolderNotFoundError,
    NotAFolderError,
    ShardlineError,
    StorageError,
    UnsyncedWriteError,
)
from shardline.hints import Hint
from shardline.storage.temporary_files import claim_file, remove_stale_files

if TYPE_CHECKING:
    from types import TracebackType

_CREATE_ATTEMPTS = 100
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class DurableFile:
    """File being written, which appears under `path` when the `with` block succeeds.

    After an exception, no file remains. An existing file is replaced only if `overwrite` is set.
    UnsyncedWriteError means that the file has its name, but may lose it if the machine crashes now.
    Without `synced`, a power cut may tear or remove the file. Such files must show their corruption
    and be derivable. `folder` is a descriptor of the folder of `path`, for callers that must be
    sure of its identity.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        overwrite: bool = False,
        synced: bool = True,
        folder: int | None = None,
    ) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._synced = synced
        self._folder = self._open_folder() if folder is None else os.dup(folder)
        try:
            if not overwrite and self._mode() is not None:
                self._raise_file_exists()
            if folder is None:
                remove_stale_files(
                    self._folder, self.path.name
                )  # below a root, vacuum deletes them
            self._file = self._create()
        except BaseException:
            os.close(self._folder)
            raise

    def _open_folder(self) -> int:
        try:
            return open_folder(self.path.parent)
        except FileNotFoundError as error:
            folder = str(self.path.parent)
            hint = Hint.of("create the folder first")
            raise FolderNotFoundError(
                error.errno, "folder not found", folder, hint=hint, path=folder
            ) from None
        except NotADirectoryError as error:
            folder = str(self.path.parent)
            hint = Hint.of("choose another path")
            raise NotAFolderError(
                error.errno, "not a folder", folder, hint=hint, path=folder
            ) from None

    def _mode(self) -> int | None:
        """Return the mode of the file with the final name, or None. Links are not followed."""
        try:
            return os.stat(self.path.name, dir_fd=self._folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            error.filename = str(self.path)
            raise

    def _create(self) -> FileIO:
        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=self._folder)

        for _ in range(_CREATE_ATTEMPTS):
            self._temporary = _temporary_name(self.path.name)
            try:
                file = FileIO(self._temporary, "x", opener=opener)
            except OSError as error:
                error.filename = str(self.path)
                raise
            if claim_file(file.fileno(), self._temporary, self._folder):
                return file
            file.close()
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self.path))

    def _raise_file_exists(self) -> None:
        is_folder = stat.S_ISDIR(self._mode() or 0)
        problem = "a folder has this name" if is_folder else "file exists already"
        raise FileExistsAlreadyError(
            errno.EEXIST,
            problem,
            str(self.path),
            hint=Hint.of("choose another name"),
            path=self.path,
        )

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`."""
        view = memoryview(data).cast("B")
        while view:
            try:
                written = self._file.write(view)
            except OSError as error:
                error.filename = str(self.path)
                raise
            view = view[written:]

    def rewrite(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at `offset`: a header that is known only at the end."""
        try:
            self._file.seek(offset)
            self.write(data)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            error.filename = str(self.path)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._commit()
        finally:
            # A failure here must hide neither an error nor a success. A leftover temp file is
            # harmless.
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
            os.close(self._folder)

    def _commit(self) -> None:
        try:
            if self._synced:
                os.fsync(self._file.fileno())
            if self._overwrite:
                os.replace(
                    self._temporary,
                    self.path.name,
                    src_dir_fd=self._folder,
                    dst_dir_fd=self._folder,
                )
            else:
                self._link()
        except OSError as error:
            if isinstance(error, ShardlineError):
                raise
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        try:
            if self._synced:
                os.fsync(self._folder)
        except OSError as error:
            raise UnsyncedWriteError(
                f"{self.path}: written, but the disk did not confirm it ({error.strerror})",
                hint=Hint.of("check the disk: the file may be missing after a crash"),
                path=self.path,
            ) from error

    def _link(self) -> None:
        try:
            os.link(
                self._temporary,
                self.path.name,
                src_dir_fd=self._folder,
                dst_dir_fd=self._folder,
                follow_symlinks=False,
            )
        except FileExistsError:
            self._raise_file_exists()
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            raise StorageError(
                f"{self.path.parent}: the file system does not support hard links",
                code="hard-links-unsupported",
                hint=Hint.of("write to another file system and copy the result"),
                path=self.path.parent,
            ) from error


def create_small(folder: int, name: str, data: bytes) -> bool:
    """Create a file of a few KB in an open folder, unsynced. Returns False if it exists.

    The file appears complete. The temporary file is not locked. A concurrent cleanup may delete it
    right after its creation. It is then written again.
    """
    for _ in range(_CREATE_ATTEMPTS):
        temporary = _temporary_name(name)
        file = os.open(temporary, _CREATE, 0o666, dir_fd=folder)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(file, left) :]
            finally:
                os.close(file)
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        return True
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)


def _temporary_name(name: str) -> str:
    return f".{name[:48]}.{secrets.token_hex(6)}.tmp"


def open_folder(path: Path | str, *, within: int | None = None) -> int:
    """Return a descriptor of a folder. With `within`, of a direct child that is not a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if within is not None:
        flags |= os.O_NOFOLLOW
    return os.open(path, flags, dir_fd=within)
