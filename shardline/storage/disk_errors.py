"""Errors of the system in words: what happened, whether anything was changed, what to do."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from shardline.errors import StorageError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

_RUN_AGAIN = "run again, and check the disk if it happens once more"
_ADVICE = {
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some space, or have the quota raised, and run again",
    errno.EACCES: "check who may read and write there",
    errno.EPERM: "check who may read and write there",
    errno.EROFS: "it is mounted read-only: mount it for writing, or choose another place",
    errno.EIO: "check the disk before you trust what is on it",
    errno.EMFILE: "close some files, or raise the limit (ulimit -n)",
    errno.ENFILE: "close some files, or raise the system's limit",
    errno.ENAMETOOLONG: "choose a root with a shorter path",
    errno.ENOTDIR: "a file is where a folder should be: move it away, or choose another name",
    errno.EISDIR: "a folder has that name: choose another",
}
_TRANSIENT = {errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT}


def storage_error(error: OSError, path: Path | str, *, unchanged: bool = False) -> StorageError:
    """The error to raise for one of the system. `unchanged` adds that nothing was changed."""
    what = os.strerror(error.errno) if error.errno else "an unknown error"
    advice = _ADVICE.get(error.errno or 0, _RUN_AGAIN)
    kind = UnavailableError if error.errno in _TRANSIENT else StorageError
    told = kind(f"{path}: {what}. {'Nothing was changed; ' if unchanged else ''}{advice}")
    told.errno = error.errno
    return told


def link_error(path: Path | str) -> StorageError:
    """The error to raise for a symbolic link below a root."""
    return StorageError(
        f"{path} is a symbolic link: below a root they are not followed, since they may lead out "
        "of it. Put the files themselves there, or make the place it leads to the root"
    )
