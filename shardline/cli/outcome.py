"""How the commands end that derive versions: what the check said, and what to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardline.cli.checked import print_checked
from shardline.cli.references import next_command

if TYPE_CHECKING:
    from shardline.cli.checked import Checked
    from shardline.log.version import StoredVersion


def print_not_done() -> None:
    """The end of a dry run."""
    click.echo("Nothing was changed. To do it, leave out --dry-run")


def print_outcome(
    into: StoredVersion, snapshot: int | None, checked: Checked | None, *, plain: bool
) -> None:
    """The end of work on a version: which snapshot it made, and whether that is of plain files."""
    if snapshot is None:
        newest = into.newest()
        if not newest.published:
            status = next_command("status", into.name)
            click.echo(f"{newest} is not published. To see why: {status}")
        return
    if checked is None:
        check = next_command("check", f"{into.name}@{snapshot}")
        click.echo(f"To check it, and so publish it: {check}")
        return
    print_checked(checked)
    if not checked.after.published:
        return
    if plain:
        click.echo(f"To read it: {next_command('files', into.name)}")
        return
    click.echo(f"To look at it: {next_command('head', into.name)}")
    # In a version of their own: the next extension would put the overlays back into this one.
    plain_one = next_command("rebuild", into.name, "--into", f"{into.log.version}-plain")
    click.echo(f"To make plain files of it: {plain_one}")
