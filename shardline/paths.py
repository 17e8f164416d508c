"""Local paths that users give."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import BadNameError, InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable


def real_path(path: Path | str) -> Path:
    """Return a path without symbolic links. Unlike `Path.resolve`, never fails at a loop."""
    return Path(os.path.realpath(path))


def local_path(value: object, name: str = "path") -> Path:
    """Return a path that was given as the argument `name`. Raises InvalidTypeError for others."""
    if not isinstance(value, str | Path):
        raise InvalidTypeError(f"{name}: expected a path, got {type(value).__name__}")
    if "\0" in str(value):
        raise BadNameError(f"{name}: invalid path: contains a null byte")
    return Path(value)


def local_paths(values: object, name: str = "paths") -> list[Path]:
    """Return one or several paths that were given as the argument `name`."""
    if isinstance(values, str | Path):
        return [local_path(values, name)]
    return [local_path(value, name) for value in each_of(values, name)]


def each_of(values: object, name: str) -> Iterable[object]:
    """Return values to iterate over. Raises InvalidTypeError for a single value or for text."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise InvalidTypeError(f"{name}: expected a list, got {type(values).__name__}")
    found: Iterable[object] = values
    return found
