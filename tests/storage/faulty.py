"""A store between ours and a real one, which goes wrong where a test says so, and counts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from shardline.errors import CommitStateUnknownError, ObjectExistsError, StorageError
from shardline.storage.temporary_files import Spool

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from shardline.storage import ObjectInfo, Store
    from shardline.storage.store import NewObject, OpenedObject

Result = TypeVar("Result")


class Fault(Enum):
    """What goes wrong with a request."""

    REPLY_LOST = "done, but nobody hears of it"
    RESET = "not done, and nobody hears of it"
    CONFLICT = "refused as if the object were there (a 409 or 412), and not done"
    FAILED = "not done, and said so"


Step = Fault | Callable[[], None]
"""A fault, or something to be done just before the request goes through, such as a rival's."""


class FaultyStore:
    """Passes requests on to `inner`, except those in the script.

    The script names them by operation and by number, counted from 1: `{("create", 2): RESET}`.
    `counts` tells how often each operation was asked for, and as `read_many.objects` how many
    objects all `read_many` asked for. Without `paths`, a local store looks like a remote one.
    """

    def __init__(
        self,
        inner: Store,
        script: Mapping[tuple[str, int], Step] | None = None,
        *,
        paths: bool = True,
    ) -> None:
        self.inner = inner
        self.script = dict(script or {})
        self.counts: Counter[str] = Counter()
        self._paths = paths
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def requests_at_once(self) -> int:
        return self.inner.requests_at_once

    def read(self, name: str) -> bytes:
        return self._ask("read", lambda: self.inner.read(name))

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        with self._lock:
            self.counts["read_many.objects"] += len(names)
        return self._ask("read_many", lambda: self.inner.read_many(names))

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return self._ask("read_ranges", lambda: self.inner.read_ranges(name, ranges))

    def info(self, name: str) -> ObjectInfo | None:
        return self._ask("info", lambda: self.inner.info(name))

    def info_many(self, names: Sequence[str]) -> builtins.list[ObjectInfo | None]:
        return [self.info(name) for name in names]

    def create(self, name: str, data: bytes) -> None:
        self._ask("create", lambda: self.inner.create(name, data))

    @property
    def largest_create(self) -> int | None:
        return self.inner.largest_create

    @contextmanager
    def writer(
        self, name: str, *, derived: bool = False, overwrite: bool = False, synced: bool = True
    ) -> Iterator[Spool]:
        del synced  # what goes through here is durable at once
        with Spool() as spool:
            yield spool
            put = self.replace if derived or overwrite else self.create
            put(name, spool.rewound()[0].read())

    def create_many(self, groups: Sequence[Sequence[NewObject]]) -> builtins.list[bool]:
        return [self._create_group(group) for group in groups]

    def _create_group(self, group: Sequence[NewObject]) -> bool:
        try:
            for one in group:
                (self.replace if one.derived else self.create)(one.name, one.data)
        except ObjectExistsError:
            return False
        return True

    def sync(self, names: Sequence[str]) -> None:
        self.inner.sync(names)

    def replace(self, name: str, data: bytes) -> None:
        self._ask("replace", lambda: self.inner.replace(name, data))

    def delete(self, name: str) -> None:
        self._ask("delete", lambda: self.inner.delete(name))

    def list(self, folder: str, *, hidden: bool = False) -> builtins.list[ObjectInfo]:
        return self._ask("list", lambda: self.inner.list(folder, hidden=hidden))

    def folders(self, folder: str) -> builtins.list[str]:
        return self._ask("folders", lambda: self.inner.folders(folder))

    def local_path(self, name: str) -> Path | None:
        return self.inner.local_path(name) if self._paths else None

    def open_local(self, name: str) -> OpenedObject | None:
        return self.inner.open_local(name) if self._paths else None

    def check_conditions(self, folder: str) -> None:
        self._ask("check_conditions", lambda: self.inner.check_conditions(folder))

    def _ask(self, operation: str, request: Callable[[], Result]) -> Result:
        with self._lock:
            self.counts[operation] += 1
            step = self.script.get((operation, self.counts[operation]))
        if step is Fault.RESET:
            raise CommitStateUnknownError(f"{self.uri}: the connection was reset")
        if step is Fault.CONFLICT:
            raise ObjectExistsError(f"{self.uri}: the request was refused as a conflict")
        if step is Fault.FAILED:
            raise StorageError(f"{self.uri}: the store answered with an error (503)")
        if callable(step):
            step()
        result = request()
        if step is Fault.REPLY_LOST:
            raise CommitStateUnknownError(f"{self.uri}: the answer was lost")
        return result
