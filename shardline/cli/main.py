"""The `shardline` command: its subcommands, and what its exit codes mean."""

from __future__ import annotations

import io
import signal
import sys
from difflib import get_close_matches
from typing import Any

import click

from shardline.cli.append import append, reland
from shardline.cli.audit import audit
from shardline.cli.check import check
from shardline.cli.combine import combine
from shardline.cli.consumers import consumers
from shardline.cli.count import count
from shardline.cli.describe import describe
from shardline.cli.diff import diff
from shardline.cli.dismiss import dismiss
from shardline.cli.erase import erase
from shardline.cli.errors import UsageError, from_click, keep_arguments, print_error
from shardline.cli.export import export
from shardline.cli.extend import extend
from shardline.cli.files import files
from shardline.cli.head import head
from shardline.cli.index import index
from shardline.cli.lineage import lineage
from shardline.cli.log import log
from shardline.cli.migrate import migrate
from shardline.cli.openlineage import openlineage
from shardline.cli.rebuild import rebuild
from shardline.cli.repair import repair
from shardline.cli.report import report
from shardline.cli.restore import restore
from shardline.cli.salvage import salvage
from shardline.cli.schema import schema
from shardline.cli.status import status
from shardline.cli.streams import ends_with_its_reader, open_missing_streams, reader_is_gone
from shardline.cli.tag import tag
from shardline.cli.trace import trace
from shardline.cli.vacuum import vacuum
from shardline.cli.verify import verify
from shardline.errors import (
    BadNameError,
    BudgetError,
    ConflictError,
    DagsterRecordMissingError,
    FieldsError,
    InvalidArgumentError,
    KernelUnavailableError,
    PackageMissingError,
    ShardlineError,
    SnapshotMissingError,
    SourceError,
    UnknownFormatError,
    UnreadableSnapshotError,
    VersionMissingError,
)
from shardline.hints import Hint
from shardline.release import __version__

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
_NOT_THE_DATA = (
    OSError,
    BadNameError,
    BudgetError,
    ConflictError,
    DagsterRecordMissingError,
    FieldsError,
    InvalidArgumentError,
    KernelUnavailableError,
    PackageMissingError,
    SnapshotMissingError,
    SourceError,
    UnknownFormatError,
    UnreadableSnapshotError,
    VersionMissingError,
)
"""What keeps a command from its work without anything being wrong with the data."""


class _Shardline(click.Group):
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
        with ends_with_its_reader():
            try:
                return super().make_context(info_name, args, parent, **extra)
            except click.UsageError as error:
                if not given:
                    raise  # click shows the help
                with click.Context(self, info_name=info_name) as context:
                    keep_arguments(context, given)
                    print_error(from_click(error).set_hint(Hint.run("--help")), context)
                raise SystemExit(_USAGE) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        with ends_with_its_reader():
            return self._run(ctx)

    def _run(self, ctx: click.Context) -> Any:  # noqa: ANN401 - what a command returns
        """Run the command, and turn what it raises into an exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if reader_is_gone():
                raise
            print_error(error, ctx)
            ctx.exit(_USAGE)
        except (KeyboardInterrupt, click.Abort):
            problem = ShardlineError("interrupted (no partial files remain)", code="cancelled")
            print_error(problem, ctx)
            ctx.exit(_INTERRUPTED)
        except click.UsageError as error:
            print_error(from_click(error), ctx)
            ctx.exit(_USAGE)
        except click.ClickException as error:
            print_error(ShardlineError(error.format_message(), code="system-error"), ctx)
            ctx.exit(_USAGE)
        except _NOT_THE_DATA as error:
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
    cls=_Shardline,
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
