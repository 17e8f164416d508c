"""What arguments mean that may name files or versions of datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.cli.errors import UsageError
from shardline.cli.options import expand
from shardline.cli.references import looks_like_reference, parse_reference
from shardline.hints import Hint

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
        except UsageError as error:
            if not looks_like_reference(argument):
                if root and error.problem.hint is None:
                    error.problem.set_hint(Hint.of("write a version as `NAME/VERSION`"))
                raise
            if not root:
                error.problem.set_hint(
                    Hint.of("for a version, pass `--root FOLDER` or set `SHARDLINE_ROOT`")
                )
                raise
            references.append(parse_reference(argument))
        else:
            patterns.append(argument)
    return expand(patterns), references
