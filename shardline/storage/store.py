"""Interface of storage: names, bytes, and create-if-absent."""

from __future__ import annotations

import contextlib
import re
import secrets
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from shardline.errors import (
    ConditionsIgnoredError,
    InvalidTypeError,
    ObjectExistsError,
    StorageError,
)
from shardline.hints import Hint
from shardline.storage.location import parse_location

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from shardline.kernel.types import Buffer


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Properties of an object, known without reading it. `modified` is in UTC.

    `e_tag` changes with the content, if the store has one.
    """

    name: str
    size: int
    modified: datetime
    e_tag: str | None = None


class OpenedObject(NamedTuple):
    """Regular file that is open for reading. The caller closes its descriptor."""

    path: str
    descriptor: int
    size: int


class NewObject(NamedTuple):
    """Small object to write. A `derived` object can be recreated and may be overwritten."""

    name: str
    data: bytes
    derived: bool = False


class ObjectWriter(Protocol):
    """Object being written."""

    def write(self, data: Buffer) -> None:
        """Add bytes at the end."""
        ...

    def rewrite(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at `offset`: a header that is known only at the end."""
        ...


class Store(Protocol):
    """Objects under names below one root.

    A name is relative to the root, with `/` between its parts. Every method raises StorageError if
    the storage fails, and InvalidNameError for a name that could leave the root.
    """

    @property
    def uri(self) -> str:
        """Root as shown to users. It never holds credentials."""
        ...

    @property
    def requests_at_once(self) -> int:
        """Useful number of parallel requests: 1 if requests have no latency."""
        ...

    def read(self, name: str) -> bytes:
        """Return all bytes of an object. Raises ObjectNotFoundError if it is missing."""
        ...

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        """Read several small objects, in the order of their names. None for missing objects."""
        ...

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Read ranges of an object, each given as offset and size.

        Raises StorageError for a range past the end of the object: nothing is cut silently.
        """
        ...

    def info(self, name: str) -> ObjectInfo | None:
        """Return the size and time of an object, or None if it is missing."""
        ...

    def info_many(self, names: Sequence[str]) -> builtins.list[ObjectInfo | None]:
        """Return the size and time of several objects in order, as `info` does."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create an object durably, unless its name exists.

        Raises ObjectExistsError if the name exists. The object may be our own: a request whose
        answer was lost is sent again, so read the object back and compare. Raises
        CommitStateUnknownError if the object may or may not exist. After any other error it was not
        created.
        """
        ...

    @property
    def largest_create(self) -> int | None:
        """Largest object that create-if-absent supports. None if any size is supported.

        A larger object overwrites, so no other writer may use its name.
        """
        ...

    def writer(
        self, name: str, *, derived: bool = False, overwrite: bool = False, synced: bool = True
    ) -> AbstractContextManager[ObjectWriter]:
        """Write an object in pieces, as `create` does, or as `replace` does if `derived`.

        The object exists when the block succeeds. Its content does not stay in memory. With
        `overwrite`, an existing object is replaced durably: after a crash the old or the new object
        exists, complete. ObjectExistsError may come at the start already. Without `synced`, a power
        cut may tear the object until `sync` has returned.
        """
        ...

    def create_many(self, groups: Sequence[Sequence[NewObject]]) -> builtins.list[bool]:
        """Create small objects unsynced. A group stops at the first existing name.

        Returns for each group True if all of it was created. Raises StorageError if the storage
        fails: then any of the objects may exist.
        """
        ...

    def sync(self, names: Sequence[str]) -> None:
        """Make objects durable that were written without `synced`, many at a time.

        Raises StorageError if an object is missing or the disk does not confirm it.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace an object. Readers see the old or the new object, complete.

        Only for objects that can be recreated and that show if they are incomplete: on a local disk
        a power cut may tear them. For other objects use `writer` with `overwrite`. Raises
        CommitStateUnknownError as `create` does.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete an object. A missing object is not an error."""
        ...

    def list(self, folder: str, *, hidden: bool = False) -> builtins.list[ObjectInfo]:
        """List all objects below a folder, sorted by name. An empty folder name is the root.

        Names are relative to the root. Hidden objects (a part of the name below `folder` begins
        with a dot: temporary files and probes) are omitted unless `hidden` is set. A missing folder
        is empty.
        """
        ...

    def folders(self, folder: str) -> builtins.list[str]:
        """List the names of direct subfolders, sorted, without hidden folders.

        A folder on a disk remains when its last object is deleted. In an object store it usually
        disappears, but need not.
        """
        ...

    def local_path(self, name: str) -> Path | None:
        """Return the path of an existing or future object on a local disk, or None.

        The path is for bulk reads.
        """
        ...

    def open_local(self, name: str) -> OpenedObject | None:
        """Open an object on a local disk for bulk reads. None if the store is elsewhere.

        Raises FileNotFoundError if the object is missing, and NotAFileError for a folder or a pipe.
        Links are not followed: they raise StorageError.
        """
        ...

    def check_conditions(self, folder: str) -> None:
        """Check that the store honors create-if-absent, once per process.

        Raises ConditionsIgnoredError if it overwrites: nothing must be committed there.
        """
        ...


def object_uri(store: Store, name: str) -> str:
    """Return the URI of an object, for messages."""
    return f"{store.uri.rstrip('/')}/{name}"


class HasStore(Protocol):
    """Object with a store, such as a root."""

    @property
    def store(self) -> Store:
        """Store of the root."""
        ...


RootLocation: TypeAlias = "Store | HasStore | Path | str"


def open_store(root: RootLocation) -> Store:
    """Return the store at a local path or URI. Nothing is read or written yet.

    A store is returned unchanged, and of a root its store.
    """
    if not isinstance(root, (str, PurePath)):
        if hasattr(root, "store"):
            return root.store
        if not hasattr(root, "read_many"):
            raise InvalidTypeError(f"root: expected a path or URI, got {type(root).__name__}")
        return root
    location = parse_location(root)
    if location.scheme == "file":
        from shardline.storage.local_store import LocalStore  # noqa: PLC0415 - it imports us

        return LocalStore(location.path)
    from shardline.storage.object_store import ObjectStore  # noqa: PLC0415 - loads obstore

    return ObjectStore(location)


PROBE_NAME = re.compile(r"\.probe-[0-9a-f]{16}", re.ASCII)
"""Last part of a probe's name. A probe of a dead process may be deleted."""


def probe_conditions(store: Store, folder: str) -> None:
    """Create an object twice. Raises ConditionsIgnoredError unless the second create fails."""
    probe = f".probe-{secrets.token_hex(8)}"
    name = f"{folder}/{probe}" if folder else probe
    first, second = secrets.token_bytes(16), secrets.token_bytes(16)
    store.create(name, first)
    try:
        if _overwrites(store, name, first, second):
            raise ConditionsIgnoredError(
                f"{store.uri}: store ignores create-if-absent (If-None-Match), nothing was written",
                hint=Hint.of(
                    "use a store that honors it: Amazon S3, Google Cloud Storage, Azure Blob, "
                    "SeaweedFS or MinIO"
                ),
                path=store.uri,
            )
    finally:
        with contextlib.suppress(StorageError):
            store.delete(name)


def probe_time(store: Store, folder: str) -> datetime:
    """Return the time by the store's clock, as the time of a probe written now."""
    probe = f".probe-{secrets.token_hex(8)}"
    name = f"{folder}/{probe}" if folder else probe
    store.create(name, secrets.token_bytes(16))
    try:
        info = store.info(name)
    finally:
        with contextlib.suppress(StorageError):
            store.delete(name)
    if info is None:
        raise StorageError(
            f"{object_uri(store, name)}: file not found right after it was written",
            code="object-not-found",
            hint=Hint.of("check the storage: it must show at once what was written"),
            path=object_uri(store, name),
        )
    return info.modified


def _overwrites(store: Store, name: str, first: bytes, second: bytes) -> bool:
    try:
        store.create(name, second)
    except ObjectExistsError:
        return store.read(name) != first
    return True
