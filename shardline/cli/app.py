"""The `shardline` command: its subcommands, loaded on demand, and its exit codes."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, TextIO

import click

from shardline.cli.errors import UsageError, convert_click_error, keep_arguments, print_error
from shardline.errors import (
    BudgetError,
    ConflictError,
    DagsterRecordMissingError,
    InvalidArgumentError,
    InvalidNameError,
    KernelUnavailableError,
    PackageMissingError,
    ShardlineError,
    SnapshotNotFoundError,
    SourceError,
    UDFError,
    UnknownFormatError,
    UnreadableSnapshotError,
    VersionNotFoundError,
)
from shardline.hints import Hint
from shardline.release import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROBLEM = 1
_USAGE = 2
_INTERRUPTED = 130
_TERMINATED = 143

_SECTIONS = {
    "Files": {
        "verify": "Check every byte of TFRecord files or of a snapshot.",
        "salvage": "Copy the intact records of a corrupt file.",
        "schema": "Show the features of records.",
        "head": "Show the first records of a file or version.",
        "count": "Count the records of TFRecord files.",
        "index": "Write an offset index next to each file.",
    },
    "Derived files and versions": {
        "rebuild": "Merge or resize the shards of a version, or files.",
        "extend": "Add features from functions or a table.",
        "migrate": "Rename, drop, cast or fill features.",
        "combine": "Pair the records of two files or versions.",
    },
    "Datasets (in the root: --root or SHARDLINE_ROOT)": {
        "append": "Append new sources to a version and publish them.",
        "status": "Show published and blocked snapshots.",
        "log": "Show the history of a version.",
        "diff": "Compare two snapshots.",
        "files": "List the files of a snapshot.",
        "export": "Write a snapshot to a single file.",
        "check": "Check a snapshot, then publish or reject it.",
        "restore": "Make an old snapshot the latest again.",
        "dismiss": "Dismiss rejected sources and skipped duplicates.",
        "repair": "Recreate the corrupt shards of a version.",
        "tag": "List, set or delete tags.",
        "consumers": "List, register or release consumers.",
        "vacuum": "Delete files that a dataset no longer needs.",
        "erase": "Erase records from every version of a dataset.",
    },
    "Lineage and audit": {
        "lineage": "Show the inputs and outputs of a version.",
        "trace": "Trace a record to its source or to its copies.",
        "audit": "Verify the whole history of datasets.",
        "report": "Write the history of datasets as an HTML page.",
    },
    "Metadata for other tools": {
        "describe": "Write a dataset card, checksums or Croissant.",
        "openlineage": "Export the history as OpenLineage events.",
        "draft": "Draft an expectation suite from a snapshot.",
    },
}
"""Commands and their summaries, in the order of the help.

The summaries are here, so that the help loads no command.
"""

_COMMANDS = {name: text for section in _SECTIONS.values() for name, text in section.items()}

_LOG_COMMANDS = frozenset(
    [
        "consumers",
        "diff",
        "dismiss",
        "files",
        "lineage",
        "log",
        "restore",
        "status",
        "tag",
        "vacuum",
    ]
)
"""Commands that read logs and run no code of the user."""

_USAGE_ERRORS = (
    OSError,
    InvalidNameError,
    BudgetError,
    ConflictError,
    DagsterRecordMissingError,
    UDFError,
    InvalidArgumentError,
    KernelUnavailableError,
    PackageMissingError,
    SnapshotNotFoundError,
    SourceError,
    UnknownFormatError,
    UnreadableSnapshotError,
    VersionNotFoundError,
)
"""Errors that prevent a command from running, and say nothing about the data."""


class _CommandGroup(click.Group):
    """A group that loads commands on demand and turns errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command. Returns None for an unknown name."""
        if cmd_name not in self.commands and cmd_name in _COMMANDS:
            module = import_module(f"shardline.cli.commands.{cmd_name}")
            self.commands[cmd_name] = getattr(module, cmd_name)
        return self.commands.get(cmd_name)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        """Parse the arguments before the command."""
        given = list(args)
        open_missing_streams()
        with exit_on_broken_pipe():
            try:
                return super().make_context(info_name, args, parent, **extra)
            except click.UsageError as error:
                if not given:
                    raise  # click prints the help
                with click.Context(self, info_name=info_name) as context:
                    keep_arguments(context, given)
                    print_error(convert_click_error(error).set_hint(Hint.run("--help")), context)
                raise SystemExit(_USAGE) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command. A closed pipe ends it quietly."""
        with exit_on_broken_pipe():
            return self._run(ctx)

    def _run(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the result of any command
        """Run the command and turn its exception into an exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if is_output_closed():
                raise
            print_error(error, ctx)
            ctx.exit(_USAGE)
        except (KeyboardInterrupt, click.Abort):
            problem = ShardlineError("interrupted (no partial files remain)", code="cancelled")
            print_error(problem, ctx)
            ctx.exit(_INTERRUPTED)
        except click.UsageError as error:
            print_error(convert_click_error(error), ctx)
            ctx.exit(_USAGE)
        except click.ClickException as error:
            print_error(ShardlineError(error.format_message(), code="system-error"), ctx)
            ctx.exit(_USAGE)
        except _USAGE_ERRORS as error:
            print_error(error, ctx)
            ctx.exit(_USAGE)
        except ShardlineError as error:
            print_error(error, ctx)
            ctx.exit(_PROBLEM)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and keep its arguments for errors."""
        keep_arguments(ctx, args)
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            matches = get_close_matches(name, _COMMANDS)
            hint = Hint.of(f"did you mean {' or '.join(matches)}?") if matches else None
            raise UsageError(
                f"unknown command {name!r}",
                code="unknown-command",
                hint=hint or Hint.run("--help"),
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands by section."""
        width = max(map(len, _COMMANDS))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in commands.items()])


@click.group(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  shardline verify data/                    check every byte in a folder
  shardline schema train.tfrecord --spec    print a feature spec to paste
  shardline head train.tfrecord -n 3
  shardline rebuild 'train-*' -o train.tfrecord
\b
  export SHARDLINE_ROOT=s3://bucket/data    set the root of the datasets
  shardline append digits/v1 monday.jsonl   append records, check and publish them
  shardline status                          show what is published and what is blocked
  shardline files digits/v1                 list the files to train on
  shardline diff digits/v1@3 @7             compare two snapshots
  shardline extend digits/v1 --into v2 --join names.csv --key label
  shardline erase digits --key user_id --value 7
  shardline audit                           verify the whole history

Exit codes: 0 success; 1 a problem in the data; 2 wrong usage, something missing, a conflict with a
concurrent commit, or another problem that prevented the work; 130 interrupted; 141 the reader of
the output ended first, as in 'shardline head x | head -1'.

Every command takes --json. Run 'shardline COMMAND --help' for its options.""",
)
@click.version_option(__version__, prog_name="shardline")
def main() -> None:
    """Manage versioned TFRecord datasets, and inspect, check and repair TFRecord files.

    Files may be plain, GZIP or ZLIB, which is detected from their content. Records may hold any
    bytes: only schema, 'verify --examples', extend, migrate and combine need Examples. Datasets
    are in a root, which is a folder or the prefix of an object store.
    """
    # A scheduler sends SIGTERM: exit normally, so that temporary files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    # Escape what the encoding of the terminal cannot print, instead of failing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class _PandasBlocker(MetaPathFinder):
    """Import hook that hides pandas.

    At its first conversion pyarrow imports pandas, which takes longer than a command on logs.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        """Raise ModuleNotFoundError for pandas; leave other modules to the other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def run() -> None:
    """Run the command as a process of its own: the entry point."""
    if sys.argv[1:2] and sys.argv[1] in _LOG_COMMANDS:
        sys.meta_path.insert(0, _PandasBlocker())
    main(prog_name="shardline")


BROKEN_PIPE_EXIT_CODE = 141
"""Exit code after a closed pipe: the one a shell reports for a process that SIGPIPE ended."""


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed at the start of the process.

    Otherwise the next opened file gets the number of the stream, and messages are written to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = _open_stream(1)
    if sys.stderr is None:
        sys.stderr = _open_stream(2)


def _open_stream(number: int) -> TextIO:
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


@contextmanager
def exit_on_broken_pipe() -> Iterator[None]:
    """Exit quietly with BROKEN_PIPE_EXIT_CODE if the reader of the output is gone."""
    try:
        try:
            yield
        finally:
            with suppress(ValueError):  # closed by a user's function
                sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(BROKEN_PIPE_EXIT_CODE) from None


def is_output_closed() -> bool:
    """Return True if a standard stream is a pipe or socket whose reader is gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            poll = select.poll()
            poll.register(stream.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                return True
    return False


def _discard_output() -> None:
    """Redirect the streams to /dev/null: the interpreter flushes their buffers at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
    os.close(null)
