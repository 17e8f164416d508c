"""Sources on the command line: files, globs, folders and URIs, and which of them are meant."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import list_visible_files, wanted
from shardline.cli.output import record_skipped_files
from shardline.file_names import infer_format
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shardline.cli.options import CommandFunction

FORMATS = ("tfrecord", "jsonl", "csv", "parquet", "arrow", "folder")
_NOT_DATA = re.compile(r"_.*|(readme|license).*|.*\.(md|crc|md5|sha1|sha256|log)", re.IGNORECASE)
_SHOWN = 3


def format_option(what: str) -> Callable[[CommandFunction], CommandFunction]:
    """--format."""
    return click.option(
        "format_",
        "--format",
        type=click.Choice(FORMATS),
        help=f"What {what}, where the names do not tell. 'folder': each file is a record.",
    )


def find_sources(arguments: Iterable[str], format_: str | None) -> list[Path | str]:
    """The sources that the arguments name, in order; a usage error for one that names none.

    A source may be there twice: append skips the second, and reports it.
    """
    found = [source for argument in arguments for source in _find_sources(argument, format_)]
    unreadable = [
        str(one) for one in found if isinstance(one, Path) and not os.access(one, os.R_OK)
    ]
    if unreadable:
        raise UsageError(
            f"permission denied: {', '.join(unreadable)}",
            code="permission-denied",
            path=unreadable[0],
        )
    return found


def infer_source_format(file: Path) -> str | None:
    """The format that a file's name tells, None if it tells none."""
    return infer_format(file.name)


def _find_sources(argument: str, format_: str | None) -> list[Path | str]:
    if not argument:
        raise UsageError(
            "empty source name",
            code="invalid-argument",
            hint="check that the shell variable is set",
        )
    if "://" in argument:
        if glob.has_magic(argument):
            raise UsageError(
                f"{argument}: globs match local files only",
                code="invalid-argument",
                hint="name each object",
                path=argument,
            )
        return [argument]
    path = Path(argument)
    if path.is_dir():
        return list(_list_folder_sources(path, format_))
    if format_ == "folder":
        raise UsageError(
            f"--format folder: {argument} is not a folder",
            code="source-not-a-folder",
            path=argument,
        )
    if path.exists():
        return [path]
    if not glob.has_magic(argument):
        raise UsageError(f"file not found: {argument}", code="file-not-found", path=argument)
    matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207 - as a shell reads it
    files: list[Path | str] = [
        file for match in matches if (file := Path(match)).is_file() and wanted(file)
    ]
    if not files:
        raise UsageError(
            f"no file matches {argument}",
            code="no-files-found",
            hint="leave out the quotes to name the folders that match" if matches else None,
            path=argument,
        )
    return files


def _list_folder_sources(folder: Path, format_: str | None) -> Iterator[Path]:
    """The files of a folder that hold records, or the folder itself if its files are records."""
    if format_ == "folder":
        yield folder
        return
    files = sorted(list_visible_files(folder))
    if not files:
        raise UsageError(f"{folder}: no files in the folder", code="no-files-found", path=folder)
    told = {file: infer_source_format(file) for file in files}
    known = [file for file in files if told[file]]
    if format_ is not None:
        known = [file for file in known if told[file] == format_]
        if not known:
            raise UsageError(
                f"{folder}: no {format_} files in the folder",
                code="no-files-found",
                hint=f"name the files, or `{folder}/*`",
                path=folder,
            )
        record_skipped_files(file for file in files if told[file] != format_ and wanted(file))
        yield from known
        return
    others = [file for file in files if not told[file] and _is_possible_data(file)]
    if known and others:
        raise UsageError(
            f"{folder}: mixed files ({_format_names(known)}; {_format_names(others)})",
            code="mixed-files",
            hint=Hint.of(
                f"add `--format {told[known[0]]}` to append only the former,",
                " or `--format folder` to make a record of each file",
            ),
            path=folder,
        )
    if not known:
        yield folder
        return
    record_skipped_files(file for file in files if not told[file] and wanted(file))
    yield from known


def _is_possible_data(file: Path) -> bool:
    return wanted(file) and _NOT_DATA.fullmatch(file.name) is None


def _format_names(files: list[Path]) -> str:
    names = ", ".join(file.name for file in files[:_SHOWN])
    return names if len(files) <= _SHOWN else f"{names} and {len(files) - _SHOWN:,} more"
