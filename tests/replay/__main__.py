"""Compare scripts with their recordings, or record them: `python -m tests.replay [--record]`."""

from __future__ import annotations

import sys

import click

from tests.replay.compare import compare, record
from tests.replay.script import script_names


@click.command()
@click.option("--record", "recording", is_flag=True, help="Record scripts as they run now.")
@click.argument("names", nargs=-1, type=click.Choice(script_names()))
def main(names: tuple[str, ...], *, recording: bool) -> None:
    """Run all scripts, or those with these names."""
    chosen = names or tuple(script_names())
    if recording:
        record(chosen)
        click.echo(f"recorded {len(chosen)} scripts; review them with: git diff tests/replay")
        return
    differences = "".join(map(compare, chosen))
    click.echo(differences, nl=False)
    if differences:
        click.echo("To record what happens now: make replay ARGS=--record", err=True)
        sys.exit(1)
    click.echo(f"{len(chosen)} scripts do as recorded")


main(prog_name="make replay ARGS=")
