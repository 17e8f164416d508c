"""The `shardline` command: its subcommands, and what its exit codes mean."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TextIO

import click

from shardline.cli.commands.append import append, reland
from shardline.cli.commands.audit import audit
from shardline.cli.commands.check import check
from shardline.cli.commands.combine import combine
from shardline.cli.commands.consumers import consumers
from shardline.cli.commands.count import count
from shardline.cli.commands.describe import describe
from shardline.cli.commands.diff import diff
from shardline.cli.commands.dismiss import dismiss
from shardline.cli.commands.erase import erase
from shardline.cli.commands.export import export
from shardline.cli.commands.extend import extend
from shardline.cli.commands.files import files
from shardline.cli.commands.head import head
from shardline.cli.commands.index import index
from shardline.cli.commands.lineage import lineage
from shardline.cli.commands.log import log
from shardline.cli.commands.migrate import migrate
from shardline.cli.commands.openlineage import openlineage
from shardline.cli.commands.rebuild import rebuild
from shardline.cli.commands.repair import repair
from shardline.cli.commands.report import report
from shardline.cli.commands.restore import restore
from shardline.cli.commands.salvage import salvage
from shardline.cli.commands.schema import schema
from shardline.cli.commands.status import status
from shardline.cli.commands.tag import tag
from shardline.cli.commands.trace import trace
from shardline.cli.commands.vacuum import vacuum
from shardline.cli.commands.verify import verify
from shardline.cli.errors import UsageError, convert_click_error, keep_arguments, print_error
from shardline.errors import (
    BudgetError,
    ConflictError,
    DagsterRecordMissingError,
    FieldsError,
    InvalidArgumentError,
    InvalidNameError,
    KernelUnavailableError,
    PackageMissingError,
    ShardlineError,
    SnapshotNotFoundError,
    SourceError,
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
    "Files": (verify, salvage, schema, head, count, index),
    "New files of old ones, or new versions of old ones": (rebuild, extend, migrate, combine),
    "Datasets, which live in a root (--root or SHARDLINE_ROOT)": (
        append,
        status,
        log,
        diff,
        files,
        export,
        check,
        restore,
        reland,
        dismiss,
        repair,
        tag,
        consumers,
        vacuum,
        erase,
    ),
    "Where data comes from, and whether that is true": (lineage, trace, audit, report),
    "What others want to know of datasets": (describe, openlineage),
}
_USAGE_ERRORS = (
    OSError,
    InvalidNameError,
    BudgetError,
    ConflictError,
    DagsterRecordMissingError,
    FieldsError,
    InvalidArgumentError,
    KernelUnavailableError,
    PackageMissingError,
    SnapshotNotFoundError,
    SourceError,
    UnknownFormatError,
    UnreadableSnapshotError,
    VersionNotFoundError,
)
"""What keeps a command from its work without anything being wrong with the data."""


class _CommandGroup(click.Group):
    """Turns a problem into an error line, a hint line and an exit code."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own signature
    ) -> click.Context:
        """Parse what precedes the command."""
        given = list(args)
        open_missing_streams()
        with exit_on_broken_pipe():
            try:
                return super().make_context(info_name, args, parent, **extra)
            except click.UsageError as error:
                if not given:
                    raise  # click shows the help
                with click.Context(self, info_name=info_name) as context:
                    keep_arguments(context, given)
                    print_error(convert_click_error(error).set_hint(Hint.run("--help")), context)
                raise SystemExit(_USAGE) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        with exit_on_broken_pipe():
            return self._run(ctx)

    def _run(self, ctx: click.Context) -> Any:  # noqa: ANN401 - what a command returns
        """Run the command, and turn what it raises into an exit code."""
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
        """Find the command, and keep its arguments for errors in them."""
        keep_arguments(ctx, args)
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            matches = get_close_matches(name, self.list_commands(ctx))
            hint = Hint.of(f"did you mean {' or '.join(matches)}?") if matches else None
            raise UsageError(
                f"unknown command {name!r}",
                code="unknown-command",
                hint=hint or Hint.run("--help"),
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they work on."""
        width = max(len(name) for name in self.list_commands(ctx))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                limit = formatter.width - width - 6
                rows = [(f"{one.name:{width}}", one.get_short_help_str(limit)) for one in commands]
                formatter.write_dl(rows)


@click.group(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  shardline verify data/                    check every byte in a folder
  shardline verify 'train-*' --examples     and each record as an Example
  shardline salvage broken.tfrecord ok.tfrecord
  shardline schema train.tfrecord --spec    a feature spec to paste
  shardline head train.tfrecord -n 3
  shardline rebuild 'train-*' --output train.tfrecord
  shardline combine a.tfrecord b.tfrecord --output pairs.tfrecord
\b
  export SHARDLINE_ROOT=s3://bucket/data    where the datasets live
  shardline append digits/v1 monday.jsonl   new records, checked and published
  shardline files digits/v1                 what to hand to TensorFlow
  shardline status                          how each dataset stands
  shardline log digits/v1                   what happened to a version
  shardline diff digits/v1@3 @7             what differs between two snapshots
  shardline report -o report.html           all of it on a page, to look at and to print
  shardline audit                           prove the whole history anew
  shardline rebuild digits/v1               one file of all shards
  shardline extend digits/v1 --into v2 --join names.csv --key label
  shardline migrate digits/v1 --into v2 --rename label=digit
  shardline describe digits/v1 -o README.md a card for people
  shardline erase digits --key user_id --value 7

Exit codes: 0 fine, 1 a problem in the data, 2 wrong usage, something missing, a conflict with
someone else's commit, or anything else that kept the command from its work. 141 if the reader
of the output ends first, as in 'shardline head x | head -1'.

Every command takes --json. 'shardline COMMAND --help' tells more.""",
)
@click.version_option(__version__, prog_name="shardline")
def main() -> None:
    """Keep versioned TFRecord datasets; look into TFRecord files, check them, and mend them.

    Files may be plain, GZIP or ZLIB: that is told from their content. Records may hold anything;
    only schema, 'verify --examples', extend, migrate and combine want Examples. Datasets live in a
    root: a folder or an object store.
    """
    # Asked to end, as a scheduler asks, leave nothing half-written behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    # Where the terminal has no letter for something, show its code rather than fail.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


for _commands in _SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)


BROKEN_PIPE_EXIT_CODE = 141
"""The exit code after a closed pipe: what a shell reports for a process that SIGPIPE ended."""


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that was closed when the process started.

    Else the next file that is opened gets its number, and messages are written into that file.
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
    """End quietly, with an exit code of its own, when nobody reads the output any more."""
    try:
        try:
            yield
        finally:
            with suppress(ValueError):  # closed by a function of the user
                sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(BROKEN_PIPE_EXIT_CODE) from None


def is_output_closed() -> bool:
    """Return True if a standard stream is a pipe or a socket that nobody reads any more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            poll = select.poll()
            poll.register(stream.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                return True
    return False


def _discard_output() -> None:
    """Send what is still buffered to /dev/null: the interpreter flushes once more at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
    os.close(null)
