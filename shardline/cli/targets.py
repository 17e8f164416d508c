"""What arguments mean that may name files or versions of datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardline.cli.options import expand
from shardline.cli.references import looks_like_reference, parse_reference

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shardline.cli.references import Reference


def files_or_versions(
    arguments: Iterable[str], root: str | None
) -> tuple[list[Path], list[Reference]]:
    """The files and the versions that the arguments name: what is there as a file is one."""
    patterns, references = [], []
    for argument in arguments:
        try:
            expand([argument])
        except click.UsageError as error:
            if not looks_like_reference(argument):
                raise click.UsageError(
                    f"{error.message}; a version of a dataset is written NAME/VERSION"
                    if root
                    else error.message
                ) from None
            if not root:
                raise click.UsageError(
                    f"{error.message}; or if {argument} is a version of a dataset, say where it "
                    "lives: --root FOLDER, or set SHARDLINE_ROOT"
                ) from None
            references.append(parse_reference(argument))
        else:
            patterns.append(argument)
    return expand(patterns), references
