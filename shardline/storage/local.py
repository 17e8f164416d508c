"""The durable local commit: a file is whole under its final name, or not there at all.

The bytes go to a temporary name in the same folder and are synced; then the file is linked to its
final name, which fails if that exists, and the folder is synced.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Self

from shardline.errors import FileExistsAlreadyError, ShardlineError

if TYPE_CHECKING:
    from io import FileIO
    from types import TracebackType


class DurableFile:
    """A file being written, which appears under `path` when the `with` block ends well.

    When it ends by an exception, nothing is left behind. A file that exists already is replaced
    only if `overwrite` is set.
    """

    def __init__(self, path: Path | str, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        if not overwrite and os.path.lexists(self.path):
            self._refuse()
        name = f".{self.path.name[:48]}.{secrets.token_hex(6)}.tmp"
        self._temporary = self.path.parent / name
        self._file = self._create()

    def _create(self) -> FileIO:
        try:
            return self._temporary.open("xb", buffering=0)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, f"{self.path.parent}: no such folder; make it first"
            ) from None
        except OSError as error:
            error.filename = str(self.path)
            raise

    def _refuse(self) -> None:
        what = "is a folder" if self.path.is_dir() else "exists already and is not overwritten"
        raise FileExistsAlreadyError(errno.EEXIST, f"{self.path} {what}: choose another name")

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
        """Write over what stands at `offset`: a header that is known only at the end."""
        self._file.seek(offset)
        self.write(data)

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
            self._file.close()
            self._temporary.unlink(missing_ok=True)

    def _commit(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            error.filename = str(self.path)
            raise
        if self._overwrite:
            self._temporary.replace(self.path)
        else:
            self._link()
        sync_folder(self.path.parent)

    def _link(self) -> None:
        try:
            self.path.hardlink_to(self._temporary)
        except FileExistsError:
            self._refuse()
        except OSError as error:
            if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
            raise ShardlineError(
                f"{self.path.parent}: this file system has no hard links, without which a file "
                "cannot be put in place safely; write to another one and copy the result"
            ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
