"""Errors of local disks: the problem, the state of the file, and a hint."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from shardline.errors import NotAFileError, StorageError, UnavailableError
from shardline.hints import Hint

if TYPE_CHECKING:
    from pathlib import Path

_RUN_AGAIN = "run again, and check the disk if the error returns"
_ADVICE = {
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some space or raise the quota, and run again",
    errno.EACCES: "check who may read and write there",
    errno.EPERM: "check who may read and write there",
    errno.EROFS: "mount the file system for writing, or choose another path",
    errno.EIO: "check the disk before you trust its data",
    errno.EMFILE: "close some files, or raise the limit (ulimit -n)",
    errno.ENFILE: "close some files, or raise the limit of the system",
    errno.ENAMETOOLONG: "choose a root with a shorter path",
    errno.ENOTDIR: "a file has the name of a folder: move it away, or choose another name",
    errno.EISDIR: "choose another name",
}
_CODES = {
    errno.ENOSPC: "storage-full",
    errno.EDQUOT: "storage-full",
    errno.EACCES: "access-denied",
    errno.EPERM: "access-denied",
    errno.EROFS: "access-denied",
    errno.ENOTDIR: "not-a-folder",
    errno.EISDIR: "not-a-file",
}
_TRANSIENT = {errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT}


def get_storage_error(error: OSError, path: Path | str, *, unwritten: bool = False) -> StorageError:
    """Build the StorageError for an error of the operating system.

    `unwritten` adds that the file was not written. The operation itself reports its other effects.
    """
    problem = os.strerror(error.errno) if error.errno else "unknown error"
    kind = UnavailableError if error.errno in _TRANSIENT else StorageError
    converted = kind(
        f"{path}: {problem}{' (file not written)' if unwritten else ''}",
        code=_CODES.get(error.errno or 0),
        hint=Hint.of(_ADVICE.get(error.errno or 0, _RUN_AGAIN)),
        path=path,
    )
    converted.errno = error.errno
    return converted


def make_not_a_file_error(path: Path | str, *, is_folder: bool) -> NotAFileError:
    """Build the error for a path that is not a regular file, such as a pipe."""
    return NotAFileError(
        errno.EINVAL,
        "is a folder, not a file" if is_folder else "not a regular file",
        str(path),
        hint=None if is_folder else Hint.of("save the content to a file first"),
        path=path,
    )


def get_link_error(path: Path | str) -> StorageError:
    """Build the error for a symbolic link below a root."""
    return StorageError(
        f"{path}: symbolic link below a root, not followed",
        code="symbolic-link",
        hint=Hint.of("put the files themselves there, or use the target of the link as the root"),
        path=path,
    )
