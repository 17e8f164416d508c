"""Which files a command that writes one may replace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shardline.storage import Store

_DATA = frozenset({"shards", "quarantine", "log"})
"""The folders of a dataset in which no command but those of the dataset writes."""


def refuse_existing(output: Path, store: Store, *, overwrite: bool) -> None:
    """Refuse to write a file where one is, unless told to; and where data is, even then."""
    refuse_no_file(output)
    if _among_data(output, store):
        raise click.UsageError(f"{output} would lie among the data of the root: name another place")
    if (output.exists() or output.is_symlink()) and not overwrite:
        raise click.UsageError(f"{output} exists already: choose another name, or say --overwrite")


def refuse_no_file(output: Path) -> None:
    """Refuse what is there and is no file, as a folder or /dev/null: it would be replaced."""
    if output.is_dir():
        raise click.UsageError(f"{output} is a folder: name a file")
    if output.exists() and not output.is_file():
        raise click.UsageError(f"{output} is no plain file: name another")


def refuse_in_root(output: Path, root: str | None) -> None:
    """Refuse to write between the datasets: what lies there is theirs."""
    if root is None or "://" in root:
        return
    if output.resolve().is_relative_to(Path(root).resolve()):
        raise click.UsageError(
            f"{output} lies in the root, which holds datasets and nothing else: name a file "
            "elsewhere"
        )


def _among_data(output: Path, store: Store) -> bool:
    inside = store.local_path("x")
    if inside is None:
        return False
    root, folder = inside.parent.resolve(), output.parent.resolve()
    return folder.is_relative_to(root) and not _DATA.isdisjoint(folder.relative_to(root).parts[1:])
