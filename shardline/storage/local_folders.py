"""Folders below a local root, entered part by part without following a link, and made durably.

Each part is opened from the one above it, so what was checked is what is used, whatever others
rename meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.storage.disk_errors import link_error
from shardline.storage.durable_file import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER_BELOW = _FOLDER | os.O_NOFOLLOW


class LocalFolders:
    """The folders below a root, which may itself be a link: it is resolved once, here."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(os.path.realpath(root))
        self._text = str(self.root)
        self._synced: set[str] = set()

    @contextmanager
    def entered(self, name: str) -> Iterator[int | None]:
        """A descriptor of a folder, good inside the `with` block; None if it is not there."""
        try:
            descriptor = self.enter(name)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def made(self, name: str) -> Iterator[int]:
        """A descriptor of a folder, which is made if it is not there, and its name durable."""
        descriptor = self._enter_made(name)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def enter(self, name: str) -> int:
        """Return a descriptor of a folder that is there, for the caller to close."""
        descriptor = os.open(self._text, _FOLDER)
        parts = name.split("/") if name else ()
        for number, part in enumerate(parts, 1):
            above = descriptor
            try:
                descriptor = os.open(part, _FOLDER_BELOW, dir_fd=above)
            except OSError:
                if is_link(part, above):
                    raise link_error(self.root.joinpath(*parts[:number])) from None
                raise
            finally:
                os.close(above)
        return descriptor

    def _enter_made(self, name: str) -> int:
        descriptor = self._enter_root()
        done = ""
        try:
            for part in name.split("/") if name else ():
                done = f"{done}/{part}" if done else part
                below = self._enter_part(descriptor, part, done)
                os.close(descriptor)
                descriptor = below
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _enter_root(self) -> int:
        try:
            return open_folder(self.root)
        except FileNotFoundError:
            _make_folder(self.root)
            return open_folder(self.root)

    def _enter_part(self, above: int, part: str, name: str) -> int:
        try:
            if name not in self._synced:
                self._make(above, part, name)
            try:
                return open_folder(part, within=above)
            except FileNotFoundError:
                self._make(above, part, name)  # someone has removed it since
                return open_folder(part, within=above)
        except OSError:
            if is_link(part, above):
                raise link_error(self.root / name) from None
            raise

    def _make(self, above: int, part: str, name: str) -> None:
        """Make a folder if need be, and its name durable.

        Also one that is there may have been made this moment, by someone who has not synced yet.
        """
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=above)
        os.fsync(above)
        self._synced.add(name)


def is_link(name: str, folder: int) -> bool:
    """Whether a name in an open folder is a symbolic link."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _make_folder(path: Path) -> None:
    """Make a folder and those above it, each durable before the next."""
    if path.is_dir():
        return
    _make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    above = open_folder(path.parent)
    try:
        os.fsync(above)
    finally:
        os.close(above)
