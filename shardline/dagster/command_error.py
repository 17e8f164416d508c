"""Errors of the commands `python -m ...`: an `error:` and a `hint:` line, as `shardline` prints."""

from typing import IO, Any

import click

from shardline.errors import ShardlineError
from shardline.text import escape_lines


class CommandError(click.ClickException):
    """An error that ends a command."""

    def __init__(self, error: ShardlineError) -> None:
        super().__init__(error.message)
        self.error = error

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error and its hint, on stderr unless a file is given."""
        click.echo(f"error: {escape_lines(self.error.message)}", file=file, err=True)
        if self.error.hint:
            click.echo(f"hint: {escape_lines(str(self.error.hint))}", file=file, err=True)


class CommandUsageError(CommandError):
    """Options or an environment that a command does not accept."""

    exit_code = 2
