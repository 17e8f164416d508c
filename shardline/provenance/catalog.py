"""Datasets of a root, and their versions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shardline.errors import InvalidNameError
from shardline.storage import validate_name

if TYPE_CHECKING:
    from shardline.storage import Store


def find_datasets(store: Store) -> list[str]:
    """Return the datasets of a root: folders that contain a version."""
    return [name for name in _list_names(store, "", "dataset") if find_versions(store, name)]


def find_versions(store: Store, dataset: str) -> list[str]:
    """Return the versions of a dataset: folders that contain a log."""
    validate_name(dataset, "dataset")
    return [
        name
        for name in _list_names(store, dataset, "version")
        if "log" in store.folders(f"{dataset}/{name}")
    ]


def find_all_versions(store: Store) -> list[str]:
    """Return the full names of all versions of a root, such as "digits/v1"."""
    return [
        f"{dataset}/{name}"
        for dataset in find_datasets(store)
        for name in find_versions(store, dataset)
    ]


def _list_names(store: Store, folder: str, kind: str) -> list[str]:
    """Return the folders in a folder that have valid names; others are foreign."""
    names = []
    for name in store.folders(folder):
        with contextlib.suppress(InvalidNameError):
            names.append(validate_name(name, kind))
    return names
