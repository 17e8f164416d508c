"""What `shardline extend` and `shardline migrate` share: where from, where to, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import (
    Share,
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.references import refuse_version_as_file

if TYPE_CHECKING:
    from shardline.cli.options import Command
    from shardline.tfrecord import Limits


def place_options(command: Command) -> Command:
    """What to read, and where to write."""
    for option in (
        click.option("--overwrite", is_flag=True, help="Of a file: replace OUT if it is there."),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            metavar="OUT",
            help="Of a file: write this file.",
        ),
        click.option(
            "--into",
            metavar="VERSION",
            help="Of a version: make it the content of this one, which may be new: v2, or "
            "digits/v2.",
        ),
        click.argument("argument", metavar="NAME/VERSION[@SNAPSHOT]|FILE"),
    ):
        command = option(command)
    return command


def work_options(command: Command) -> Command:
    """How to do it."""
    for option in (
        json_option,
        root_option,
        limit_options,
        workers_option,
        no_check_option,
        click.option(
            "--dry-run", is_flag=True, help="Only tell what would be done, and how much that is."
        ),
        click.option(
            "--quarantine-share",
            type=Share(),
            metavar="SHARE",
            help="Of a version: let up to this share of the records go to quarantine, as 1% or "
            "0.01, if what is asked for cannot be made of them.  [default: 0]",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """What was asked for."""

    argument: str
    into: str | None
    output: Path | None
    overwrite: bool
    compression: str | None
    quarantine_share: float | None
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_unpacked: int
    root: str | None
    as_json: bool

    @property
    def limits(self) -> Limits:
        """The limits that were asked for."""
        return limits(self.max_record, self.max_unpacked)

    def writes(self, reads: int) -> int | None:
        """About how many bytes a rewrite of so many writes, besides new fields; None if unknown."""
        return reads if self.compression is None else None

    def refuse_mixed(self, **of_versions: object) -> None:
        """Refuse what is for files where versions are meant, and the other way round.

        `of_versions` are more options that a file has no use for, and what was given to them.
        """
        if self.into is None and self.output is None:
            raise UsageError(
                "no output given",
                code="missing-option",
                hint="pass `--into VERSION` for a version, `--output OUT` for a file",
            )
        if self.into is not None and self.output is not None:
            raise UsageError(
                "--into and --output exclude each other",
                code="conflicting-options",
                hint="pass `--into` for versions, `--output` for files",
            )
        if self.into is not None and self.overwrite:
            raise UsageError(
                "--overwrite applies to files only",
                code="option-not-applicable",
                hint="leave it out: a version is never overwritten",
            )
        given = {
            **of_versions,
            "quarantine_share": self.quarantine_share,
            "no_check": self.no_check,
        }
        for name, value in given.items():
            if self.output is not None and value:
                option = name.replace("_", "-")
                raise UsageError(
                    f"--{option} applies to versions only",
                    code="option-not-applicable",
                    hint="leave it out, or pass `--into` instead of `--output`",
                )
        if self.output is not None:
            refuse_version_as_file(self.argument)
