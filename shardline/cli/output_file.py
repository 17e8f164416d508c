"""Validation of output files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

    from shardline.storage import Store

_REPORT_TITLE = b"<title>Shardline report</title>"
_HEAD_BYTES = 4096
_DATA_FOLDERS = frozenset({"shards", "quarantine", "log"})
"""Folders of a dataset that output files must not be in."""


def validate_output_file(output: Path, store: Store, *, overwrite: bool) -> None:
    """Refuse an existing output file without `overwrite`, and any file among the data."""
    validate_regular_file(output)
    if _is_dataset_file(output, store):
        raise UsageError(
            f"{output} is among the data of the root",
            code="output-in-root",
            hint="choose another path",
            path=output,
        )
    if (output.exists() or output.is_symlink()) and not overwrite:
        _raise_exists(output)


def validate_transform_output(output: Path, *, is_input: bool, overwrite: bool) -> None:
    """Refuse a folder, an input file, and an existing file without `overwrite`."""
    validate_not_folder(output)
    if is_input:
        raise UsageError(
            f"{output} is an input file",
            code="output-is-input",
            hint="write to another file",
            path=output,
        )
    if output.exists() and not overwrite:
        _raise_exists(output)


def _raise_exists(output: Path) -> NoReturn:
    raise UsageError(
        f"{output} exists already",
        code="file-exists",
        hint="choose another name or add `--overwrite`",
        path=output,
    )


def validate_not_folder(output: Path) -> None:
    """Refuse a folder as an output file."""
    if output.is_dir():
        raise UsageError(
            f"{output} is a folder", code="output-is-folder", hint="name a file", path=output
        )


def validate_destination(
    into: str | None,
    output: Path | None,
    *,
    overwrite: bool,
    version: str,
    **version_options: object,
) -> None:
    """Refuse options of files for versions, and options of versions for files.

    Args:
        into: Value of --into.
        output: Value of --output.
        overwrite: Value of --overwrite, which applies to files only.
        version: Metavar of --into.
        version_options: Values of the options that apply to versions only.
    """
    if into is None and output is None:
        raise UsageError(
            "no output given",
            code="missing-option",
            hint=f"pass `--into {version}` for versions, `--output OUT` for files",
        )
    if into is not None and output is not None:
        raise UsageError(
            "--into and --output exclude each other",
            code="conflicting-options",
            hint="pass `--into` for versions, `--output` for files",
        )
    if into is not None and overwrite:
        raise UsageError(
            "--overwrite applies to files only",
            code="option-not-applicable",
            hint="leave it out: a version is never overwritten",
        )
    for name, value in version_options.items():
        if output is not None and value:
            raise UsageError(
                f"--{name.replace('_', '-')} applies to versions only",
                code="option-not-applicable",
                hint="leave it out, or pass `--into` instead of `--output`",
            )


def validate_regular_file(output: Path) -> None:
    """Refuse an existing path that is not a regular file, such as a folder or /dev/null."""
    validate_not_folder(output)
    if output.exists() and not output.is_file():
        raise UsageError(
            f"{output} is not a regular file",
            code="output-not-regular",
            hint="choose another path",
            path=output,
        )


def validate_outside_root(output: Path, root: str | None) -> None:
    """Refuse an output file inside the root."""
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
    return folder.is_relative_to(root) and not _DATA_FOLDERS.isdisjoint(
        folder.relative_to(root).parts[1:]
    )


def validate_report_file(output: Path) -> None:
    """Refuse to replace a file that is not a report page."""
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
