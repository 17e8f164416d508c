"""Which files a command that writes one may replace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.storage import Store

_DATA = frozenset({"shards", "quarantine", "log"})
"""The folders of a dataset in which no command but those of the dataset writes."""


def validate_output_file(output: Path, store: Store, *, overwrite: bool) -> None:
    """Refuse to write a file where one is, unless told to; and where data is, even then."""
    validate_regular_file(output)
    if _is_dataset_file(output, store):
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


def validate_regular_file(output: Path) -> None:
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


def validate_outside_root(output: Path, root: str | None) -> None:
    """Refuse to write between the datasets: what lies there is theirs."""
    if root is None or "://" in root:
        return
    if resolve_path(output).is_relative_to(resolve_path(root)):
        raise UsageError(
            f"{output} is inside the root",
            code="output-in-root",
            hint="choose a path outside the root",
            path=output,
        )


def _is_dataset_file(output: Path, store: Store) -> bool:
    inside = store.local_path("x")
    if inside is None:
        return False
    root, folder = resolve_path(inside.parent), resolve_path(output.parent)
    return folder.is_relative_to(root) and not _DATA.isdisjoint(folder.relative_to(root).parts[1:])


_REPORT_TITLE = b"<title>Shardline report</title>"


_HEAD_BYTES = 4096


def validate_report_file(output: Path) -> None:
    """Refuse to replace what is no page of ours."""
    validate_regular_file(output)
    if output.exists():
        with output.open("rb") as file:
            if _REPORT_TITLE not in file.read(_HEAD_BYTES):
                raise UsageError(
                    f"{output} exists already and is not a report",
                    code="file-exists",
                    hint="choose another name or delete the file",
                    path=output,
                )
