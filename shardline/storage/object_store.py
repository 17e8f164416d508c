"""Objects in object stores, with errors chosen by their kind and HTTP status.

The library's own error text is inspected but never shown: it can hold signed URLs and access keys.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from shardline.errors import (
    CommitStateUnknownError,
    ConditionsIgnoredError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShardlineError,
    StorageError,
    UnavailableError,
)
from shardline.hints import Hint
from shardline.storage.names import is_object_name, validate_folder_name, validate_object_name
from shardline.storage.store import ObjectInfo, open_store, probe_conditions
from shardline.storage.temporary_files import Spool

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence

    from obstore import ObjectMeta
    from obstore.store import RetryConfig

    from shardline.storage.location import Location
    from shardline.storage.store import NewObject, Store


_STATUS = re.compile(r"status code: ([0-9]{3})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_NO_CREDENTIALS = re.compile(r"169\.254\.|[Tt]oken request|[Cc]redential")
_NOT_SENT = re.compile(r"builder error")
_CHECK_CREDENTIALS = Hint.of("check the credentials in the environment, and their permissions")


@contextmanager
def translate_errors(where: str, doing: Literal["read", "list", "write"]) -> Iterator[None]:
    """Translate library errors about the object or folder `where`."""
    try:
        yield
    except ShardlineError:
        raise
    except (BaseError, OSError, NotImplementedError, ValueError) as error:
        raise _translate_error(error, where, doing) from None


def _translate_error(error: Exception, where: str, doing: str) -> StorageError:
    text = str(error)
    match = _STATUS.search(text)
    status = int(match[1]) if match else None
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in {401, 403}:
        return StorageError(
            f"{where}: access denied ({status or 'no status'})",
            code="access-denied",
            hint=_CHECK_CREDENTIALS,
            path=where,
        )
    if isinstance(error, FileNotFoundError) or status == 404:
        if doing == "read" and not _NO_BUCKET.search(text):
            return ObjectNotFoundError(f"{where}: object not found", path=where)
        return StorageError(
            f"{where}: bucket or container not found",
            code="bucket-not-found",
            hint=Hint.of("create it first, or check its name"),
            path=where,
        )
    if _NOT_SENT.search(text):
        return StorageError(
            f"{where}: invalid endpoint in the environment",
            code="invalid-storage-settings",
            hint=Hint.of(
                "check the endpoint: one that begins with http:// also needs `AWS_ALLOW_HTTP=true`"
            ),
            path=where,
        )
    return (
        _translate_write_error(error, where, status)
        if doing == "write"
        else _translate_read_error(text, where, status)
    )


def _translate_read_error(text: str, where: str, status: int | None) -> StorageError:
    if status == 416:
        return StorageError(
            f"{where}: object shorter than expected", code="object-mismatch", path=where
        )
    if status is None and _NO_CREDENTIALS.search(text):
        return StorageError(
            f"{where}: no credentials found",
            code="credentials-not-found",
            hint=_CHECK_CREDENTIALS,
            path=where,
        )
    kind = UnavailableError if _may_work_later(status) else StorageError
    return kind(
        f"{where}: {_answer(status)}",
        hint=Hint.of("run again, and check the endpoint if the error returns"),
        path=where,
    )


def _translate_write_error(error: Exception, where: str, status: int | None) -> StorageError:
    if isinstance(error, AlreadyExistsError):
        return ObjectExistsError(f"{where}: object exists already", path=where)
    if isinstance(error, NotSupportedError | NotImplementedError):
        return ConditionsIgnoredError(
            f"{where}: create-if-absent is disabled in the environment",
            hint=Hint.of("enable it: see the variable `AWS_CONDITIONAL_PUT`"),
            path=where,
        )
    if not _may_work_later(status):
        return StorageError(
            f"{where}: {_answer(status)}, object not written",
            hint=Hint.of("check the endpoint and region in the environment"),
            path=where,
        )
    # Without a clear answer to the last attempt, an earlier attempt may have succeeded.
    return CommitStateUnknownError(
        f"{where}: {_answer(status)}, so the object may or may not be written",
        hint=Hint.of("check whether the object exists before you run again"),
        path=where,
    )


def _may_work_later(status: int | None) -> bool:
    return status is None or status >= 500 or status in {408, 425, 429}


def _answer(status: int | None) -> str:
    if status is None:
        return "the store did not answer"
    return f"the store answered with an error ({status})"


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_REQUESTS_AT_ONCE = 16
_RETRIES: RetryConfig = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
_TIMEOUT = "120s"
"""Limit of one request. Most shards take a single request, as create-if-absent requires."""
_LARGEST_CREATE = 256 * 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024
_MOST_PARTS = 9_000
_ENVIRONMENTS = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}

_Client = S3Store | GCSStore | AzureStore | MemoryStore
_memories: dict[str, MemoryStore] = {}
_proven: set[tuple[str, ...]] = set()


class ObjectStore:
    """Objects in a bucket or container, below a prefix."""

    def __init__(self, location: Location) -> None:
        self.uri = str(location)
        self._location = location
        self._client = _connect(location)
        self.largest_create = _LARGEST_CREATE
        self.requests_at_once = 1 if location.scheme == "memory" else _REQUESTS_AT_ONCE

    def __repr__(self) -> str:
        return f"ObjectStore({self.uri!r})"

    def __reduce__(self) -> tuple[Callable[[str], Store], tuple[str]]:
        """Reopen the store in the receiving process, with the settings of its environment."""
        return open_store, (self.uri,)

    def read(self, name: str) -> bytes:
        """Return all bytes of an object."""
        with translate_errors(self._uri(name), "read"):
            return bytes(self._client.get(self._key(name)).bytes())

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        """Read several objects in parallel."""
        return self._ask_many(self._read_if_there, names)

    def _ask_many(
        self, request: Callable[[Asked], Answer], items: Sequence[Asked]
    ) -> builtins.list[Answer]:
        """Send requests in parallel."""
        workers = min(len(items), self.requests_at_once)
        if workers < 2:
            return [request(item) for item in items]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(request, items))

    def _read_if_there(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except ObjectNotFoundError:
            return None

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Read ranges of an object, each given as offset and size. Nearby ranges are merged."""
        nonempty = [(offset, size) for offset, size in ranges if size]
        if len(nonempty) != 1:
            self._validate_ranges(name, ranges)
        if min((min(span) for span in nonempty), default=0) < 0:
            raise self._make_outside_error(name)
        with translate_errors(self._uri(name), "read"):
            parts = self._client.get_ranges(
                self._key(name),
                starts=[offset for offset, _ in nonempty],
                lengths=[size for _, size in nonempty],
            )
        data_by_range = dict(zip(nonempty, map(bytes, parts), strict=True))
        if any(len(data) != size for (_, size), data in data_by_range.items()):
            raise self._make_outside_error(name)
        return [data_by_range.get(span, b"") for span in ranges]

    def _validate_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Check the size before several ranges are read: obstore panics past the end."""
        info = self.info(name)
        if info is None:
            raise ObjectNotFoundError(f"{self._uri(name)}: object not found", path=self._uri(name))
        if any(offset + size > info.size for offset, size in ranges):
            raise self._make_outside_error(name)

    def _make_outside_error(self, name: str) -> StorageError:
        return StorageError(
            f"{self._uri(name)}: object shorter than expected",
            code="object-mismatch",
            path=self._uri(name),
        )

    def info(self, name: str) -> ObjectInfo | None:
        """Return the size and time of an object, or None if it is missing."""
        try:
            with translate_errors(self._uri(name), "read"):
                return self._info(self._client.head(self._key(name)))
        except ObjectNotFoundError:
            return None

    def info_many(self, names: Sequence[str]) -> builtins.list[ObjectInfo | None]:
        """Return the size and time of several objects, with many requests in parallel."""
        return self._ask_many(self.info, names)

    def create(self, name: str, data: bytes) -> None:
        """Create an object in one request. Raises ObjectExistsError if the name exists."""
        with translate_errors(self._uri(name), "write"):
            self._client.put(self._key(name), data, mode="create", use_multipart=False)

    @contextmanager
    def writer(
        self, name: str, *, derived: bool = False, overwrite: bool = False, synced: bool = True
    ) -> Iterator[Spool]:
        """Write an object in pieces: spool it on a local disk, then send it."""
        del synced  # a store confirms an object when it is durable
        key = self._key(name)
        with Spool() as spool:
            yield spool
            file, size = spool.rewound()
            if size <= _LARGEST_CREATE and not (derived or overwrite):
                self.create(name, file.read())
                return
            part = max(_PART_BYTES, size // _MOST_PARTS)
            with translate_errors(self._uri(name), "write"):
                self._client.put(key, file, chunk_size=part)

    def create_many(self, groups: Sequence[Sequence[NewObject]]) -> builtins.list[bool]:
        """Create small objects, many groups in parallel."""
        return self._ask_many(self._create_group, groups)

    def _create_group(self, group: Sequence[NewObject]) -> bool:
        try:
            for item in group:
                put = self.replace if item.derived else self.create
                put(item.name, item.data)
        except ObjectExistsError:
            return False
        return True

    def sync(self, names: Sequence[str]) -> None:
        """Do nothing: each object was durable when it was confirmed."""

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace an object."""
        with translate_errors(self._uri(name), "write"):
            self._client.put(self._key(name), data, use_multipart=False)

    def delete(self, name: str) -> None:
        """Delete an object. A missing object is not an error."""
        with suppress(ObjectNotFoundError), translate_errors(self._uri(name), "read"):
            self._client.delete(self._key(name))

    def list(self, folder: str, *, hidden: bool = False) -> builtins.list[ObjectInfo]:
        """List all objects below a folder, sorted by name."""
        prefix = self._folder_key(folder)
        with translate_errors(self._uri(folder), "list"):
            infos = [self._info(meta) for chunk in self._client.list(prefix) for meta in chunk]
        below = len(folder) + 1 if folder else 0
        listed = [
            info
            for info in infos
            if is_object_name(info.name) and (hidden or not _is_hidden(info.name[below:]))
        ]
        return sorted(listed, key=lambda info: info.name)

    def folders(self, folder: str) -> builtins.list[str]:
        """List the names of direct subfolders, sorted, without hidden folders."""
        prefix = self._folder_key(folder)
        with translate_errors(self._uri(folder), "list"):
            result = self._client.list_with_delimiter(prefix)
        names = (path.rpartition("/")[2] for path in result["common_prefixes"])
        return sorted(name for name in names if is_object_name(name) and not _is_hidden(name))

    def local_path(self, name: str) -> None:
        """Return None: no object is on a local disk."""
        validate_object_name(name)

    def open_local(self, name: str) -> None:
        """Return None: no object is on a local disk."""
        validate_object_name(name)

    def check_conditions(self, folder: str) -> None:
        """Probe the store once per process and endpoint."""
        validate_folder_name(folder)
        endpoints = sorted(
            f"{key}={value}" for key, value in os.environ.items() if "ENDPOINT" in key
        )
        store = (self._location.scheme, self._location.bucket, *endpoints)
        if store not in _proven:
            probe_conditions(self, folder)
            _proven.add(store)

    def _key(self, name: str) -> str:
        return self._below_prefix(validate_object_name(name))

    def _folder_key(self, folder: str) -> str:
        return self._below_prefix(validate_folder_name(folder))

    def _below_prefix(self, name: str) -> str:
        prefix = self._location.path
        return f"{prefix}/{name}" if prefix and name else prefix or name

    def _uri(self, name: str) -> str:
        return f"{self.uri}/{name}" if name else self.uri

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        prefix = self._location.path
        name = meta["path"].removeprefix(f"{prefix}/") if prefix else meta["path"]
        return ObjectInfo(name, meta["size"], meta["last_modified"], meta["e_tag"])


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name


def _connect(location: Location) -> _Client:
    if location.scheme == "memory":
        return _memories.setdefault(location.bucket, MemoryStore())
    prefix = _ENVIRONMENTS[location.scheme]
    settings: dict[str, Any] = {"retry_config": _RETRIES}
    if f"{prefix}TIMEOUT" not in os.environ:
        settings["timeout"] = _TIMEOUT
    kinds: dict[str, type[S3Store | GCSStore | AzureStore]]
    kinds = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        return kinds[location.scheme](location.bucket, **settings)
    except (BaseError, ValueError):
        raise StorageError(
            f"{location}: missing or invalid settings in the environment",
            code="invalid-storage-settings",
            hint=Hint.of(f"check the variables that begin with {prefix}"),
            path=str(location),
        ) from None
