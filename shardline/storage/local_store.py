"""Object store on a local disk, whose folders are entered without following links.

Each part of a path is opened from its parent. The folder that was checked is therefore the folder
that is used, despite concurrent renames. Folders are created durably.
"""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import (
    FileExistsAlreadyError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsyncedWriteError,
)
from shardline.hints import Hint
from shardline.storage.disk_errors import get_link_error, get_storage_error, make_not_a_file_error
from shardline.storage.durable_file import NO_LINKS, DurableFile, create_small, open_folder
from shardline.storage.names import is_object_name, validate_folder_name, validate_object_name
from shardline.storage.store import ObjectInfo, OpenedObject

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from shardline.kernel.types import Buffer
    from shardline.storage.store import NewObject


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER_BELOW = _FOLDER | os.O_NOFOLLOW


class LocalFolders:
    """Folders below a root. The root itself may be a link, which is resolved once, here."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(os.path.realpath(root))
        self._text = str(self.root)
        self._synced: set[str] = set()

    @contextmanager
    def entered(self, name: str) -> Iterator[int | None]:
        """Yield a descriptor of a folder, valid in the `with` block. None if it is missing."""
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
        """Yield a descriptor of a folder, which is created durably if it is missing."""
        descriptor = self._enter_made(name)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def enter(self, name: str) -> int:
        """Return a descriptor of an existing folder. The caller closes it."""
        descriptor = os.open(self._text, _FOLDER)
        parts = name.split("/") if name else ()
        for number, part in enumerate(parts, 1):
            above = descriptor
            try:
                descriptor = os.open(part, _FOLDER_BELOW, dir_fd=above)
            except OSError:
                if is_link(part, above):
                    raise get_link_error(self.root.joinpath(*parts[:number])) from None
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
                self._make(above, part, name)  # removed concurrently
                return open_folder(part, within=above)
        except OSError:
            if is_link(part, above):
                raise get_link_error(self.root / name) from None
            raise

    def _make(self, above: int, part: str, name: str) -> None:
        """Create a folder if it is missing, and make its name durable.

        An existing folder is synced too: another process may have created it without a sync yet.
        """
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=above)
        os.fsync(above)
        self._synced.add(name)


def is_link(name: str, folder: int) -> bool:
    """Return True if a name in an open folder is a symbolic link."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _make_folder(path: Path) -> None:
    """Create a folder and its parents, each durable before the next."""
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


# O_NONBLOCK: if a pipe has an object's name, opening it must not wait for its writer.
_SYNCED_AT_ONCE = 16
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LocalStore:
    """Objects in files below a folder, which is created by the first write."""

    def __init__(self, root: Path | str) -> None:
        self._folders = LocalFolders(root)
        self.uri = str(self._folders.root)
        self._prefix = f"{self.uri.rstrip('/')}/"
        self.requests_at_once = 1
        self.largest_create = None

    def __repr__(self) -> str:
        return f"LocalStore({self.uri!r})"

    def __reduce__(self) -> tuple[type[LocalStore], tuple[str]]:
        return LocalStore, (self.uri,)

    def read(self, name: str) -> bytes:
        """Return all bytes of an object."""
        (data,) = self.read_many([name])
        if data is None:
            raise self._missing(name)
        return data

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        """Read several objects. A folder shared by neighboring names is entered once."""
        contents: list[bytes | None] = []
        for folder, group in groupby(map(validate_object_name, names), key=_folder_of):
            with self._translate_errors(folder), self._folders.entered(folder) as descriptor:
                for name in group:
                    with self._opened(name, descriptor) as file:
                        contents.append(None if file is None else _read(file, _size(file), 0))
        return contents

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Read ranges of an object, each given as offset and size."""
        with self._translate_errors(name), self._object(name) as file:
            if file is None:
                raise self._missing(name)
            end = _size(file)
            for offset, size in ranges:
                if min(offset, size) < 0 or offset + size > end:
                    raise StorageError(
                        f"{self._path(name)}: expected {size} bytes at offset {offset}, file has "
                        f"{end}",
                        code="object-mismatch",
                        path=self._path(name),
                        offset=offset,
                    )
            return [_read(file, size, offset) for offset, size in ranges]

    def info(self, name: str) -> ObjectInfo | None:
        """Return the size and time of an object, or None if it is missing."""
        with self._translate_errors(name), self._object(name) as file:
            return None if file is None else _info(name, os.fstat(file))

    def info_many(self, names: Sequence[str]) -> builtins.list[ObjectInfo | None]:
        """Return the size and time of several objects. A shared folder is entered once."""
        infos: list[ObjectInfo | None] = []
        for folder, group in groupby(map(validate_object_name, names), key=_folder_of):
            with self._translate_errors(folder), self._folders.entered(folder) as descriptor:
                infos += [self._info_in(name, descriptor) for name in group]
        return infos

    def _info_in(self, name: str, folder: int | None) -> ObjectInfo | None:
        if folder is None:
            return None
        try:
            status = os.stat(_leaf_of(name), dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISREG(status.st_mode):
            return _info(name, status)
        with self._translate_errors(name), self._opened(name, folder):
            return None

    def create(self, name: str, data: bytes) -> None:
        """Create an object durably. Raises ObjectExistsError if the name exists."""
        with self.writer(name) as file:
            file.write(data)

    @contextmanager
    def writer(
        self, name: str, *, derived: bool = False, overwrite: bool = False, synced: bool = True
    ) -> Iterator[_LocalWriter]:
        """Write an object in pieces, durably unless it is `derived` or not `synced`."""
        overwrite = overwrite or derived
        with ExitStack() as opened:
            with self._creating(name):
                folder = opened.enter_context(self._folders.made(_folder_of(name)))
                if overwrite:
                    self._validate_is_file(name, folder)
                path = self._path(name)
                is_synced = synced and not derived
                file = DurableFile(path, overwrite=overwrite, synced=is_synced, folder=folder)
                writer = _LocalWriter(file, lambda: self._translate_errors(name, unwritten=True))
            try:
                yield writer
            except BaseException as error:
                # An error of the caller is not a storage error, and passes unchanged.
                file.__exit__(type(error), error, error.__traceback__)
                raise
            with self._creating(name):
                file.__exit__(None, None, None)

    def create_many(self, groups: Sequence[Sequence[NewObject]]) -> builtins.list[bool]:
        """Create small objects. The folder of each is entered once."""
        with ExitStack() as entered:
            folders: dict[str, int] = {}
            return [
                all(self._create_small(item, folders, entered) for item in group)
                for group in groups
            ]

    def _create_small(self, item: NewObject, folders: dict[str, int], entered: ExitStack) -> bool:
        with self._translate_errors(validate_object_name(item.name), unwritten=True):
            folder = _folder_of(item.name)
            if folder not in folders:
                folders[folder] = entered.enter_context(self._folders.made(folder))
            try:
                if create_small(folders[folder], _leaf_of(item.name), item.data):
                    return True
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
            self._validate_is_file(item.name, folders[folder])
        if item.derived:
            self.replace(item.name, item.data)
        return item.derived

    def sync(self, names: Sequence[str]) -> None:
        """Make objects durable: sync the files, some in parallel, then each folder once."""
        for folder, group in groupby(sorted(map(validate_object_name, names)), key=_folder_of):
            leaves = list(group)
            with self._translate_errors(folder), self._folders.entered(folder) as descriptor:
                if descriptor is None:
                    raise self._missing(leaves[0])
                count = min(_SYNCED_AT_ONCE, len(leaves))
                with ThreadPoolExecutor(count, thread_name_prefix="shardline-sync") as pool:
                    # A future per file would cost more than most files do.
                    shares = [leaves[number::count] for number in range(count)]
                    for _ in pool.map(partial(self._sync_files, descriptor), shares):
                        pass
                os.fsync(descriptor)

    def _sync_files(self, folder: int, names: Sequence[str]) -> None:
        for name in names:
            with self._translate_errors(name), self._opened(name, folder) as file:
                if file is None:
                    raise self._missing(name)
                os.fsync(file)

    @contextmanager
    def _creating(self, name: str) -> Iterator[None]:
        validate_object_name(name)
        with self._translate_errors(name, unwritten=True):
            try:
                yield
            except FileExistsAlreadyError:
                with self._folders.entered(_folder_of(name)) as folder:
                    if folder is not None:
                        self._validate_is_file(name, folder)
                path = self._path(name)
                raise ObjectExistsError(f"{path}: file exists already", path=path) from None

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace an object, without waiting until it is on disk."""
        with self.writer(name, derived=True) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        """Delete an object durably. A missing object is not an error."""
        validate_object_name(name)
        with self._translate_errors(name), self._folders.entered(_folder_of(name)) as folder:
            if folder is None:
                return
            self._validate_is_file(name, folder)
            try:
                os.unlink(_leaf_of(name), dir_fd=folder)
            except FileNotFoundError:
                return
            try:
                os.fsync(folder)
            except OSError as error:
                raise UnsyncedWriteError(
                    f"{self._path(name)}: deleted, but the disk did not confirm it "
                    f"({error.strerror})",
                    hint=Hint.of("check the disk: the file may be back after a crash"),
                    path=self._path(name),
                ) from None

    def list(self, folder: str, *, hidden: bool = False) -> builtins.list[ObjectInfo]:
        """List all objects below a folder, sorted by name."""
        validate_folder_name(folder)
        with self._translate_errors(folder), self._folders.entered(folder) as descriptor:
            if descriptor is None:
                return []
            infos = self._walk(descriptor, folder, hidden=hidden)
            return sorted(infos, key=lambda info: info.name)

    def _walk(self, descriptor: int, folder: str, *, hidden: bool) -> Iterator[ObjectInfo]:
        for entry, name in self._entries(descriptor, folder, hidden=hidden):
            try:
                if entry.is_dir(follow_symlinks=False):
                    below = open_folder(entry.name, within=descriptor)
                    try:
                        yield from self._walk(below, name, hidden=hidden)
                    finally:
                        os.close(below)
                elif entry.is_file(follow_symlinks=False):
                    yield _info(name, entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue  # deleted concurrently

    def _entries(
        self, descriptor: int, folder: str, *, hidden: bool
    ) -> Iterator[tuple[os.DirEntry[str], str]]:
        """Yield the entries of a folder. Skips names that no object can have."""
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if is_object_name(name) and (hidden or not entry.name.startswith(".")):
                    if entry.is_symlink():
                        raise get_link_error(self._path(name))
                    yield entry, name

    def folders(self, folder: str) -> builtins.list[str]:
        """List the names of direct subfolders, sorted, without hidden folders."""
        validate_folder_name(folder)
        with self._translate_errors(folder), self._folders.entered(folder) as descriptor:
            if descriptor is None:
                return []
            entries = self._entries(descriptor, folder, hidden=False)
            return sorted(entry.name for entry, _ in entries if entry.is_dir())

    def open_local(self, name: str) -> OpenedObject:
        """Open an object for reading. Links are not followed, and only regular files opened."""
        validate_object_name(name)
        path = f"{self._prefix}{name}"
        try:
            folder = self._folders.enter(_folder_of(name))
        except (FileNotFoundError, NotADirectoryError) as error:
            error.filename = path
            raise
        except StorageError:
            raise
        except OSError as error:
            raise get_storage_error(error, path) from None
        try:
            return _open_regular(_leaf_of(name), folder, path)
        finally:
            os.close(folder)

    def local_path(self, name: str) -> Path:
        """Return the path of an object, even if the object does not exist."""
        validate_object_name(name)
        with self._translate_errors(name), self._folders.entered(_folder_of(name)) as folder:
            if folder is not None and is_link(_leaf_of(name), folder):
                raise get_link_error(self._path(name))
        return self._path(name)

    def check_conditions(self, folder: str) -> None:
        """Return without a probe: a hard link never overwrites."""
        validate_folder_name(folder)

    def _path(self, name: str) -> Path:
        return self._folders.root / name

    def _missing(self, name: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{self._path(name)}: file not found", path=self._path(name))

    @contextmanager
    def _translate_errors(self, name: str, *, unwritten: bool = False) -> Iterator[None]:
        """Translate operating-system errors about a name into StorageError."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise get_storage_error(error, self._path(name), unwritten=unwritten) from None

    @contextmanager
    def _object(self, name: str) -> Iterator[int | None]:
        validate_object_name(name)
        with (
            self._folders.entered(_folder_of(name)) as folder,
            self._opened(name, folder) as file,
        ):
            yield file

    @contextmanager
    def _opened(self, name: str, folder: int | None) -> Iterator[int | None]:
        """Yield a descriptor of an object, valid in the `with` block. None if it is missing."""
        if folder is None or (file := self._open(name, folder)) is None:
            yield None
            return
        try:
            mode = os.fstat(file).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise self._not_a_file(name, "not a regular file")
            yield file if stat.S_ISREG(mode) else None
        finally:
            os.close(file)

    def _open(self, name: str, folder: int) -> int | None:
        try:
            return os.open(_leaf_of(name), _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            if is_link(_leaf_of(name), folder):
                raise get_link_error(self._path(name)) from None
            raise get_storage_error(error, self._path(name)) from None

    def _validate_is_file(self, name: str, folder: int) -> None:
        try:
            mode = os.stat(_leaf_of(name), dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(mode):
            raise get_link_error(self._path(name))
        if not stat.S_ISREG(mode):
            problem = "folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise self._not_a_file(name, problem)

    def _not_a_file(self, name: str, problem: str) -> StorageError:
        return StorageError(
            f"{self._path(name)}: {problem}",
            code="not-a-file",
            hint=Hint.of("move it away, or choose another name"),
            path=self._path(name),
        )


class _LocalWriter:
    """File being written, whose errors become StorageError."""

    def __init__(
        self, file: DurableFile, translate_errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._translate_errors = translate_errors

    def write(self, data: Buffer) -> None:
        with self._translate_errors():
            self._file.write(data)

    def rewrite(self, offset: int, data: bytes) -> None:
        with self._translate_errors():
            self._file.rewrite(offset, data)


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _leaf_of(name: str) -> str:
    return name.rpartition("/")[2]


def _open_regular(leaf: str, folder: int, path: str) -> OpenedObject:
    """Open a regular file in an open folder. `path` names it in messages."""
    try:
        file = os.open(leaf, _READ, dir_fd=folder)
    except OSError as error:
        if is_link(leaf, folder):
            raise get_link_error(path) from None
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise make_not_a_file_error(path, is_folder=False) from None
        error.filename = path
        raise
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise make_not_a_file_error(path, is_folder=stat.S_ISDIR(status.st_mode))
    except BaseException:
        os.close(file)
        raise
    return OpenedObject(path, file, status.st_size)


def _size(file: int) -> int:
    return os.fstat(file).st_size


def _read(file: int, size: int, offset: int) -> bytes:
    """Return exactly `size` bytes, since a single read may return fewer."""
    data = os.pread(file, size, offset)
    while len(data) < size:
        more = os.pread(file, size - len(data), offset + len(data))
        if not more:
            raise OSError(errno.ESTALE, "it has become shorter")
        data += more
    return data


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
