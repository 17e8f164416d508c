"""Discover what a root holds: its datasets, and their versions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shardline.errors import InvalidNameError
from shardline.storage import validate_name

if TYPE_CHECKING:
    from shardline.storage import Store


def find_datasets(store: Store) -> list[str]:
    """The datasets of a root: the folders in which there is a version."""
    return [name for name in _list_names(store, "", "dataset") if find_versions(store, name)]


def find_versions(store: Store, dataset: str) -> list[str]:
    """The versions of a dataset: the folders in which there is a log."""
    validate_name(dataset, "dataset")
    return [
        name
        for name in _list_names(store, dataset, "version")
        if "log" in store.folders(f"{dataset}/{name}")
    ]


def find_all_versions(store: Store) -> list[str]:
    """The versions of all datasets of a root: `digits/v1`."""
    return [
        f"{dataset}/{name}"
        for dataset in find_datasets(store)
        for name in find_versions(store, dataset)
    ]


def _list_names(store: Store, folder: str, what: str) -> list[str]:
    """The folders in a folder; what has a name that we never give is not ours."""
    found = []
    for name in store.folders(folder):
        with contextlib.suppress(InvalidNameError):
            found.append(validate_name(name, what))
    return found
