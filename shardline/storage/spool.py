"""A file on a local disk for bytes that are needed for a while, and then sent elsewhere or gone."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Self

from shardline.storage.disk_errors import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.kernel.types import Buffer
    from shardline.storage import Store


class Spool:
    """Bytes gathered in a folder, else in the one for temporary files, gone when the block ends.

    The file has no name, so that nothing of it is left whatever becomes of the process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = str(folder or tempfile.gettempdir())
        with self._told():
            self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0, dir=folder)  # noqa: SIM115 - see __exit__

    def write(self, data: Buffer) -> None:
        """Add bytes at the end."""
        view = memoryview(data).cast("B")
        with self._told():
            while view:
                view = view[self._file.write(view) :]

    def rewrite(self, offset: int, data: bytes) -> None:
        """Write over what stands at `offset`."""
        self._file.seek(offset)
        self.write(data)
        self._file.seek(0, os.SEEK_END)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on; any number of threads may ask at once."""
        with self._told():
            data = os.pread(self._file.fileno(), size, offset)
            while len(data) < size:
                more = os.pread(self._file.fileno(), size - len(data), offset + len(data))
                if not more:
                    raise OSError(errno.EIO, "the file ends before what was written to it")
                data += more
            return data

    def rewound(self) -> tuple[IO[bytes], int]:
        """The file at its start, and its size."""
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        return self._file, size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Put what the system says into our words: there is no name to tell, but a folder."""
        try:
            yield
        except OSError as error:
            raise storage_error(error, self._folder) from None


def spool_folder(store: Store) -> Path | None:
    """Where what is needed for a while goes: to the disk that the store is on."""
    path = store.local_path("spool")
    return None if path is None else path.parent
