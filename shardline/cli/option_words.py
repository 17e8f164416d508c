"""What the engine says, in the words of the command line: its keywords are our options.

So one message serves both: `mode='rewrite'` is told as `--mode rewrite` to who ran a command.
"""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUE = r"""(?:True|'([^']*)'|\['([^']*)'\])?"""


def in_options(text: str, command: click.Command) -> str:
    """A message in which keywords are written as the options of a command, where it has them."""
    options = {
        str(parameter.name): parameter.opts[0]
        for parameter in command.params
        if parameter.param_type_name == "option"
    }
    names = "|".join(map(re.escape, options))

    def worded(match: re.Match[str]) -> str:
        value = match[2] if match[2] is not None else match[3]
        return options[match[1]] + ("" if value is None else f" {shlex.quote(value)}")

    return re.sub(rf"(?<![\w-])({names})={_VALUE}(?![\w.\[])", worded, text)


@contextmanager
def told_as_usage() -> Iterator[None]:
    """While something is planned: what does not fit the schema was asked for wrongly."""
    from shardline.errors import SchemaMismatchError, ShardlineError

    command = click.get_current_context().command
    try:
        yield
    except SchemaMismatchError as error:
        raise UsageError.of(error) from None
    except ValueError as error:
        if isinstance(error, ShardlineError):
            raise
        raise click.UsageError(in_options(str(error), command)) from None
