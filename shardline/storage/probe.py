"""Find out whether a store honours create-if-absent, on which every commit rests."""

from __future__ import annotations

import contextlib
import re
import secrets
from typing import TYPE_CHECKING

from shardline.errors import ConditionsIgnoredError, ObjectExistsError, StorageError
from shardline.hints import Hint
from shardline.storage.store import object_uri

if TYPE_CHECKING:
    from datetime import datetime

    from shardline.storage.store import Store

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
