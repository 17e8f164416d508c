"""A file on a local disk for bytes that are sent elsewhere once they are complete."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Self

from shardline.storage.disk_errors import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.kernel.types import Buffer


class Spool:
    """Bytes gathered in the folder for temporary files; they are gone when the block ends."""

    def __init__(self) -> None:
        with _told():
            self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see __exit__

    def write(self, data: Buffer) -> None:
        """Add bytes at the end."""
        view = memoryview(data).cast("B")
        with _told():
            while view:
                view = view[self._file.write(view) :]

    def rewrite(self, offset: int, data: bytes) -> None:
        """Write over what stands at `offset`."""
        self._file.seek(offset)
        self.write(data)
        self._file.seek(0, os.SEEK_END)

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
def _told() -> Iterator[None]:
    """Put what the system says into our words: there is no name to tell, but a folder."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, tempfile.gettempdir(), unchanged=True) from None
