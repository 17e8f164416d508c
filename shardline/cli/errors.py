"""Errors on the command line: `error:` and `hint:` lines, or an object with --json."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from shardline.errors import SchemaMismatchError, ShardlineError
from shardline.hints import Command, Hint, Option
from shardline.redaction import has_credentials, redact
from shardline.text import escape_lines, escape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from shardline.hints import HintPart

GIVEN_ROOT = "shardline.root"
"""Where a context keeps the root that was given as an option, for the commands in hints."""

AS_JSON = "shardline.json"
"""Where a context keeps whether --json was given, known before any other option is parsed."""

_ARGUMENTS = "shardline.arguments"
"""Where a context keeps the name of the command and its arguments."""


class UsageError(click.UsageError):
    """A command line that a command does not accept, with the code and hint of our errors."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid-usage",
        hint: Hint | str | None = None,
        path: Path | str | None = None,
        record: int | None = None,
        feature: str | None = None,
        version: str | None = None,
        snapshot: int | None = None,
    ) -> None:
        super().__init__(message)
        self.problem = ShardlineError(
            message,
            code=code,
            hint=Hint.of(hint) if isinstance(hint, str) else hint,
            path=path,
            record=record,
            feature=feature,
            version=version,
            snapshot=snapshot,
        )

    @classmethod
    def of(cls, error: ShardlineError) -> UsageError:
        """Make a usage error of a problem that the given options cause."""
        usage = cls(error.message)
        usage.problem = error
        return usage


@contextmanager
def raise_as_usage_error() -> Iterator[None]:
    """Report what does not fit the schema as wrong usage: the options ask for it."""
    try:
        yield
    except SchemaMismatchError as error:
        raise UsageError.of(error) from None
    except ValueError as error:
        if isinstance(error, ShardlineError):
            raise
        raise UsageError(str(error), code="invalid-argument") from None


def convert_click_error(error: click.UsageError) -> ShardlineError:
    """Turn a usage error into an error of ours; for click's own errors it points to --help."""
    if isinstance(error, UsageError):
        return error.problem
    message, code = _describe_usage(error)
    problem = ShardlineError(message, code=code)
    matches = getattr(error, "possibilities", None)
    if matches:
        return problem.set_hint(Hint.of("did you mean " + " or ".join(map(repr, matches)) + "?"))
    command = _find_running_command(click.get_current_context(silent=True))
    names = () if command is None or command.name is None else (command.name,)
    return problem.set_hint(Hint.run(*names, "--help"))


def _describe_usage(error: click.UsageError) -> tuple[str, str]:
    """Return message and code of an error that click found."""
    given = getattr(error, "param", None)
    name = "" if given is None else _get_parameter_name(given)
    is_option = isinstance(given, click.Option)
    if isinstance(error, click.MissingParameter):
        if is_option:
            return f"missing option {name}", "missing-option"
        return f"missing argument {name}", "missing-argument"
    if isinstance(error, click.NoSuchOption):
        return f"unknown option {error.option_name}", "unknown-option"
    if isinstance(error, click.BadParameter):
        where = f"{name}: " if name else ""
        return where + _format_click_message(error.message), (
            "invalid-option-value" if is_option else "invalid-argument"
        )
    if isinstance(error, click.BadOptionUsage):
        return _format_click_message(error.message), "invalid-option-value"
    return _format_click_message(error.format_message()), "invalid-usage"


def _get_parameter_name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.metavar or str(parameter.name).upper()


def _format_click_message(text: str) -> str:
    """Write a message of click like ours: without the capital letter and the period."""
    return f"{text[:1].lower()}{text[1:]}".removesuffix(".")


def keep_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Keep the name of a command and its arguments: where they cannot be parsed, for --json."""
    context.meta[_ARGUMENTS] = tuple(arguments)


def print_error(error: Exception, context: click.Context) -> None:
    """Print an error and its hint on stderr, and with --json as an object on stdout."""
    problem = error if isinstance(error, ShardlineError) else _convert_system_error(error)
    if _wants_json(context):
        try:
            click.echo(json.dumps({"ok": False, "error": serialize_error(problem)}))
        except BrokenPipeError:
            raise
        except OSError:
            pass  # a full stdout may be the error itself: stderr reports it
        if sys.stdout.isatty() and sys.stderr.isatty():
            return  # the terminal shows both: print the error once
    print_problem(problem)


def print_problem(error: ShardlineError) -> None:
    """Print an error among others on stderr, and its hint."""
    _print_lines("error", error.message, error.hint)


def print_warning(message: str, hint: Hint | None = None) -> None:
    """Print a warning on stderr, and what to do about it."""
    _print_lines("warning", message, hint)


def print_hint(*parts: HintPart | Hint) -> None:
    """Print what to do next on stdout: text and commands, as in `Hint.of`."""
    click.echo(f"hint: {render_hint(Hint.of(*parts))}")


def _print_lines(label: str, message: str, hint: Hint | None) -> None:
    click.echo(f"{label}: {escape_lines(redact(message))}", err=True)
    if hint:
        click.echo(f"hint: {render_hint(hint)}", err=True)


def serialize_error(error: ShardlineError) -> dict[str, Any]:
    """Return an error as JSON, with the root in its commands."""
    return {**error.to_dict(), "hint": None if error.hint is None else serialize_hint(error.hint)}


def serialize_hint(hint: Hint) -> dict[str, Any]:
    """Return a hint as JSON, in the words of the command line, with the root in its commands."""
    commands = [list(command.to_argv(_get_root(command))) for command in hint.commands]
    return {"text": render_hint(hint), "commands": commands}


def render_hint(hint: Hint) -> str:
    """Return a hint for the terminal: options as flags, and the root in its commands."""
    return escape_lines(redact(hint.render(render_command, _render_option)))


def render_command(command: Command) -> str:
    """Return a command to paste, with the root if it was given as an option."""
    return escape_text(shlex.join(command.to_argv(_get_root(command))))


def _render_option(option: Option) -> str:
    """Write an option as a flag of the running command, or as a keyword if it has none."""
    command = _find_running_command(click.get_current_context(silent=True))
    spelled = f"--{option.keyword.replace('_', '-')}"
    for parameter in () if command is None else command.params:
        named = parameter.name == option.keyword or spelled in parameter.opts
        if named and isinstance(parameter, click.Option):
            flag = max(parameter.opts, key=len)
            plain = option.value is None or option.value is True
            return flag if plain else f"{flag} {shlex.quote(str(option.value))}"
    return str(option)


def _find_running_command(context: click.Context | None) -> click.Command | None:
    """Return the command that runs, or ran: an error leaves its context."""
    if context is None:
        return None
    if not isinstance(context.command, click.Group):
        return context.command
    arguments = _get_arguments(context)
    return context.command.get_command(context, arguments[0]) if arguments else None


def _get_arguments(context: click.Context) -> tuple[str, ...]:
    arguments: tuple[str, ...] = context.meta.get(_ARGUMENTS, ())
    return arguments


def _get_root(command: Command) -> str | None:
    """Return the root to add to a command: given as an option, without credentials in it."""
    context = click.get_current_context(silent=True)
    root = None if context is None else context.meta.get(GIVEN_ROOT)
    if (
        context is None
        or not isinstance(root, str)
        or {"--root", "--help"} & set(command.arguments)
    ):
        return None
    group = context.find_root().command
    name = command.arguments[0]
    target = group.get_command(context, name) if isinstance(group, click.Group) else None
    takes_root = target is not None and any(one.name == "root" for one in target.params)
    return root if takes_root and not has_credentials(root) else None


def _wants_json(context: click.Context) -> bool:
    """Return True if --json was given; where parsing failed, read the arguments for it."""
    given = context.meta.get(AS_JSON)
    if given is not None:
        return bool(given)
    command = _find_running_command(context.find_root())
    parameters = [] if command is None else command.params
    return _has_json_flag(_get_arguments(context), parameters)


def _has_json_flag(arguments: Sequence[str], parameters: Sequence[click.Parameter]) -> bool:
    """Return True if --json is among the arguments, and not the value of another option."""
    take_value = {
        name
        for parameter in parameters
        if isinstance(parameter, click.Option) and not parameter.is_flag
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    words = iter(arguments)
    for word in words:
        if word == "--json":
            return True
        if word == "--":
            return False
        if word in take_value:
            next(words, None)
    return False


def _convert_system_error(error: Exception) -> ShardlineError:
    """Turn an error of the operating system into an error of ours."""
    message, path = str(error), None
    if isinstance(error, OSError):
        message = error.strerror or message
        if error.filename is not None:
            path = str(error.filename)
            message = f"{path}: {message}"
    return ShardlineError(message, code=_get_system_code(error), path=path)


def _get_system_code(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "file-not-found"
    if isinstance(error, FileExistsError):
        return "file-exists"
    return "system-error"
