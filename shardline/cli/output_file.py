"""Which files a command that writes one may replace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardline.arguments import real_path
from shardline.cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.storage import Store

_DATA = frozenset({"shards", "quarantine", "log"})
"""The folders of a dataset in which no command but those of the dataset writes."""


def refuse_existing(output: Path, store: Store, *, overwrite: bool) -> None:
    """Refuse to write a file where one is, unless told to; and where data is, even then."""
    refuse_no_file(output)
    if _among_data(output, store):
        raise UsageError(
            f"{output} is among the data of the root",
            code="output-in-root",
            hint="choose another path",
            path=output,
        )
    if (output.exists() or output.is_symlink()) and not overwrite:
        raise UsageError(
            f"{output} exists already",
            code="file-exists",
            hint="choose another name or add `--overwrite`",
            path=output,
        )


def refuse_no_file(output: Path) -> None:
    """Refuse what is there and is no file, as a folder or /dev/null: it would be replaced."""
    if output.is_dir():
        raise UsageError(
            f"{output} is a folder", code="output-is-folder", hint="name a file", path=output
        )
    if output.exists() and not output.is_file():
        raise UsageError(
            f"{output} is not a regular file",
            code="output-not-regular",
            hint="choose another path",
            path=output,
        )


def refuse_in_root(output: Path, root: str | None) -> None:
    """Refuse to write between the datasets: what lies there is theirs."""
    if root is None or "://" in root:
        return
    if real_path(output).is_relative_to(real_path(root)):
        raise UsageError(
            f"{output} is inside the root",
            code="output-in-root",
            hint="choose a path outside the root",
            path=output,
        )


def _among_data(output: Path, store: Store) -> bool:
    inside = store.local_path("x")
    if inside is None:
        return False
    root, folder = real_path(inside.parent), real_path(output.parent)
    return folder.is_relative_to(root) and not _DATA.isdisjoint(folder.relative_to(root).parts[1:])


_OURS = b"<title>Shardline report</title>"


_HEAD = 4096


def refuse_other_file(output: Path) -> None:
    """Refuse to replace what is no page of ours."""
    refuse_no_file(output)
    if output.exists():
        with output.open("rb") as file:
            if _OURS not in file.read(_HEAD):
                raise UsageError(
                    f"{output} exists already and is not a report",
                    code="file-exists",
                    hint="choose another name or delete the file",
                    path=output,
                )
