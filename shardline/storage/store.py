"""What Shardline asks of storage, whatever it is made of: names, bytes, and create-if-absent."""

from __future__ import annotations

import contextlib
import re
import secrets
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Protocol

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
    """What a store tells about an object without reading it. `modified` is in UTC.

    `e_tag` changes with the content, where a store has one.
    """

    name: str
    size: int
    modified: datetime
    e_tag: str | None = None


class OpenedObject(NamedTuple):
    """A regular file that is open for reading, by a descriptor for the caller to close."""

    path: str
    descriptor: int
    size: int


class NewObject(NamedTuple):
    """A small object to be written; a `derived` one can be made again and may be overwritten."""

    name: str
    data: bytes
    derived: bool = False


class ObjectWriter(Protocol):
    """An object being written."""

    def write(self, data: Buffer) -> None:
        """Add bytes at the end."""
        ...

    def rewrite(self, offset: int, data: bytes) -> None:
        """Write over what stands at `offset`: a header that is known only at the end."""
        ...


class Store(Protocol):
    """Objects under names below one root.

    A name is relative to the root, with `/` between its parts. Every method raises StorageError
    if the storage fails, and InvalidNameError for a name that could leave the root.
    """

    @property
    def uri(self) -> str:
        """The root as shown to people; it never holds credentials."""
        ...

    @property
    def requests_at_once(self) -> int:
        """How many requests at a time are worth while: 1 where none has to be waited for."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes of an object; ObjectNotFoundError if it is not there."""
        ...

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        """Several small objects, in the order of their names; None for each that is missing."""
        ...

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Parts of an object, each given as its offset and size.

        A part that reaches past the object's end is a StorageError: nothing is cut silently.
        """
        ...

    def info(self, name: str) -> ObjectInfo | None:
        """Size and time of an object, or None if it is not there."""
        ...

    def info_many(self, names: Sequence[str]) -> builtins.list[ObjectInfo | None]:
        """Size and time of several objects, in the order of their names, as `info` gives them."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Put an object, durably, if there is none of that name.

        ObjectExistsError if there is one. It may be our own: an answer that was lost on the way
        is asked for again, so read it back and compare. CommitStateUnknownError if the object may
        be there and may not. After any other error it was not put.
        """
        ...

    @property
    def largest_create(self) -> int | None:
        """The largest object that can be put only if absent; None if any can.

        A larger one overwrites, so its name must be one that nobody else writes.
        """
        ...

    def writer(
        self, name: str, *, derived: bool = False, overwrite: bool = False, synced: bool = True
    ) -> AbstractContextManager[ObjectWriter]:
        """Put an object as `create` does, or a `derived` one as `replace` does, piece by piece.

        With `overwrite`, an object of that name is replaced durably: after a crash there is the
        old or the new one, whole. It is there when the block ends well. What is written does not
        stay in memory. ObjectExistsError may come at the start already. Without `synced`, a power
        cut may tear the object until `sync` has returned.
        """
        ...

    def create_many(self, groups: Sequence[Sequence[NewObject]]) -> builtins.list[bool]:
        """Put small objects without `synced`, each group in order as far as no name is taken.

        Returns for each group whether all of it was put. StorageError if the storage fails: then
        any of the objects may be there.
        """
        ...

    def sync(self, names: Sequence[str]) -> None:
        """Make objects durable that were written without `synced`, many at a time.

        StorageError if one is missing, or if the disk does not confirm it.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Put an object whether or not there is one: readers see the old or the new, whole.

        Only for what can be derived again and tells by itself whether it is whole: on a local
        disk a power cut may tear it. For anything else use `writer` with `overwrite`.
        CommitStateUnknownError as for `create`.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove an object; a missing one is fine."""
        ...

    def list(self, folder: str, *, hidden: bool = False) -> builtins.list[ObjectInfo]:
        """Every object below a folder, sorted by name; "" is the root. Names are from the root.

        What is hidden (a part of the name below `folder` begins with a dot: temporaries and
        probes) is left out unless asked for. A missing folder is an empty one.
        """
        ...

    def folders(self, folder: str) -> builtins.list[str]:
        """The names of the folders right in a folder, sorted, without hidden ones.

        A folder on a disk stays when the last object in it is deleted; in an object store it
        mostly goes, but need not.
        """
        ...

    def local_path(self, name: str) -> Path | None:
        """Where an object lies, or would lie, on a local disk, for bulk reads; else None."""
        ...

    def open_local(self, name: str) -> OpenedObject | None:
        """Open an object on a local disk, for bulk reads; None if the store is elsewhere.

        FileNotFoundError if it is not there, NotAFileError for a folder or a pipe. A link is not
        followed: StorageError.
        """
        ...

    def check_conditions(self, folder: str) -> None:
        """Make sure that the store honours create-if-absent; asks it once per process.

        ConditionsIgnoredError if it overwrites: nothing must be committed there.
        """
        ...


def object_uri(store: Store, name: str) -> str:
    """An object's name as shown to people."""
    return f"{store.uri.rstrip('/')}/{name}"


def open_store(root: Store | Path | str) -> Store:
    """The store at a local path or a URI; nothing is read or written yet. A store is itself."""
    if not isinstance(root, (str, PurePath)):
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
"""The last part of a probe's name; one that a dead process left behind may be deleted."""


def probe_conditions(store: Store, folder: str) -> None:
    """Create one object twice; raises ConditionsIgnoredError unless the second is refused."""
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
    """Return the time by the clock of the store: when it wrote a probe just now."""
    probe = f".probe-{secrets.token_hex(8)}"
    name = f"{folder}/{probe}" if folder else probe
    store.create(name, secrets.token_bytes(16))
    try:
        found = store.info(name)
    finally:
        with contextlib.suppress(StorageError):
            store.delete(name)
    if found is None:
        raise StorageError(
            f"{object_uri(store, name)}: file not found right after it was written",
            code="object-not-found",
            hint=Hint.of("check the storage: it must show at once what was written"),
            path=object_uri(store, name),
        )
    return found.modified


def _overwrites(store: Store, name: str, first: bytes, second: bytes) -> bool:
    try:
        store.create(name, second)
    except ObjectExistsError:
        return store.read(name) != first
    return True
