"""Ways in which tests ask a store for something."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shardline.storage.store import NewObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.storage import Store


def write(
    store: Store,
    name: str,
    data: bytes = b"1",
    *,
    derived: bool = False,
    then: Callable[[], object] | None = None,
) -> None:
    """Write an object piece by piece; `then` is done before the block ends, and may raise."""
    with store.writer(name, derived=derived) as file:
        file.write(data[:1])
        file.write(data[1:])
        if then is not None:
            then()


def open_local(store: Store, name: str) -> None:
    opened = store.open_local(name)
    if opened is not None:
        os.close(opened.descriptor)


ASK: dict[str, Callable[[Store, str], object]] = {
    "read": lambda store, name: store.read(name),
    "read_many": lambda store, name: store.read_many(["fine", name]),
    "read_ranges": lambda store, name: store.read_ranges(name, [(0, 1)]),
    "info": lambda store, name: store.info(name),
    "info_many": lambda store, name: store.info_many(["fine", name]),
    "create_many": lambda store, name: store.create_many([[NewObject(name, b"1")]]),
    "create": lambda store, name: store.create(name, b"1"),
    "replace": lambda store, name: store.replace(name, b"1"),
    "writer": write,
    "derived writer": lambda store, name: write(store, name, derived=True),
    "delete": lambda store, name: store.delete(name),
    "list": lambda store, name: store.list(name),
    "folders": lambda store, name: store.folders(name),
    "local_path": lambda store, name: store.local_path(name),
    "open_local": open_local,
    "check_conditions": lambda store, name: store.check_conditions(name),
}
"""Every operation, asked for one name."""


def names(store: Store, folder: str = "", *, hidden: bool = False) -> list[str]:
    return [info.name for info in store.list(folder, hidden=hidden)]
