"""Errors on the command line: `error:` and `hint:` lines, or an object with --json."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.options import AS_JSON, TOLD_ROOT
from shardline.cli.wording import escaped, escaped_lines
from shardline.errors import ShardlineError
from shardline.hints import Command, Hint, Option

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_ARGUMENTS = "shardline.arguments"


class UsageError(click.UsageError):
    """A command line that a command does not accept, with the code and hint of our errors."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid-usage",
        hint: Hint | None = None,
        path: Path | str | None = None,
        feature: str | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(message)
        self.problem = ShardlineError(
            message, code=code, hint=hint, path=path, feature=feature, version=version
        )

    @classmethod
    def of(cls, error: ShardlineError) -> UsageError:
        """Make a usage error of a problem that the given options cause."""
        usage = cls(error.message)
        usage.problem = error
        return usage


def from_click(error: click.UsageError) -> ShardlineError:
    """Turn a usage error into an error of ours; without a hint it points to --help."""
    if isinstance(error, UsageError):
        problem = error.problem
    else:
        problem = ShardlineError(error.format_message(), code=_usage_code(error))
    if problem.hint is None and error.ctx is not None:
        problem.set_hint(Hint.run(*error.ctx.command_path.split()[1:], "--help"))
    return problem


def _usage_code(error: click.UsageError) -> str:
    if isinstance(error, click.MissingParameter):
        return "missing-argument"
    if isinstance(error, click.NoSuchOption):
        return "unknown-option"
    if isinstance(error, click.BadParameter):
        return "invalid-argument"
    return "invalid-usage"


def keep_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Keep the arguments of a command, to know of --json where they cannot be parsed."""
    context.meta[_ARGUMENTS] = tuple(arguments)


def print_error(error: Exception, context: click.Context) -> None:
    """Print an error and its hint on stderr, and with --json as an object on stdout."""
    problem = error if isinstance(error, ShardlineError) else _from_system(error)
    if _wants_json(context):
        click.echo(json.dumps({"ok": False, "error": error_dict(problem)}))
        if sys.stdout.isatty() and sys.stderr.isatty():
            return  # the terminal shows both: print the error once
    click.echo(f"error: {escaped_lines(problem.message)}", err=True)
    if problem.hint:
        click.echo(f"hint: {render_hint(problem.hint)}", err=True)


def error_dict(error: ShardlineError) -> dict[str, Any]:
    """Return an error as JSON, with the root in its commands."""
    return {**error.to_dict(), "hint": None if error.hint is None else hint_dict(error.hint)}


def hint_dict(hint: Hint) -> dict[str, Any]:
    """Return a hint as JSON, in the words of the command line, with the root in its commands."""
    commands = [list(command.words(_root_for(command))) for command in hint.commands]
    return {"text": render_hint(hint), "commands": commands}


def render_hint(hint: Hint) -> str:
    """Return a hint for the terminal: options as flags, and the root in its commands."""
    return escaped(hint.render(render_command, _render_option))


def render_command(command: Command) -> str:
    """Return a command to paste, with the root if it was given as an option."""
    return escaped(shlex.join(command.words(_root_for(command))))


def _render_option(option: Option) -> str:
    """Write an option as a flag of the running command, or as a keyword if it has none."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name == option.keyword and parameter.param_type_name == "option":
            flag = max(parameter.opts, key=len)
            plain = option.value is None or option.value is True
            return flag if plain else f"{flag} {shlex.quote(str(option.value))}"
    return str(option)


def _root_for(command: Command) -> str | None:
    """Return the root to add: given as an option now, and taken by that command."""
    context = click.get_current_context()
    root = context.meta.get(TOLD_ROOT)
    if not isinstance(root, str) or "--root" in command.arguments:
        return None
    group = context.find_root().command
    target = group.commands.get(command.arguments[0]) if isinstance(group, click.Group) else None
    takes_root = target is not None and any(one.name == "root" for one in target.params)
    return root if takes_root and "--help" not in command.arguments else None


def _wants_json(context: click.Context) -> bool:
    """Return True if --json was given; where parsing failed, if the arguments contain it."""
    given = context.meta.get(AS_JSON)
    if given is not None:
        return bool(given)
    arguments: tuple[str, ...] = context.meta.get(_ARGUMENTS, ())
    return "--json" in arguments


def _from_system(error: Exception) -> ShardlineError:
    """Turn an error of the operating system into an error of ours."""
    message, path = str(error), None
    if isinstance(error, OSError):
        message = error.strerror or message
        if error.filename is not None:
            path = str(error.filename)
            message = f"{path}: {message}"
    return ShardlineError(message, code=_system_code(error), path=path)


def _system_code(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "file-not-found"
    if isinstance(error, FileExistsError):
        return "file-exists"
    return "system-error"
