"""Where things lie, as people know it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardline.hints import file_argument
from shardline.text import escaped

if TYPE_CHECKING:
    from shardline.log.model import Source
    from shardline.log.version import StoredVersion


def place(version: StoredVersion, name: str) -> str:
    """Where an object of a version's store lies: its path on a local disk, or else its URI."""
    from shardline.storage import object_uri

    return str(version.store.local_path(name) or object_uri(version.store, name))


def shown_source(source: Source) -> str:
    """A source by its path, from the folder on in which the command runs, or by its batch."""
    return escaped(source.shown if source.path is None else source_name(source))


def source_name(source: Source) -> str:
    """Return a source as an argument of a command: its path or the name of its batch."""
    if source.path is None:
        return source.batch or ""
    path, here = Path(source.path), Path.cwd()
    return file_argument(path.relative_to(here) if path.is_relative_to(here) else source.path)
