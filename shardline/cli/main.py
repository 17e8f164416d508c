"""The `shardline` command: its subcommands, and what its exit codes mean."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import click

from shardline import __version__
from shardline.cli.count import count
from shardline.cli.head import head
from shardline.cli.index import index
from shardline.cli.salvage import salvage
from shardline.cli.schema import schema
from shardline.cli.verify import verify
from shardline.cli.wording import escaped
from shardline.errors import DamagedFileError, ShardlineError

_PROBLEM = 1
_USAGE = 2
_INTERRUPTED = 130
_TERMINATED = 143


class _Shardline(click.Group):
    """Turns what went wrong into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever reads our output has seen enough: click ends quietly
        except OSError as error:
            _tell(error)
            ctx.exit(_USAGE)
        except click.UsageError as error:
            if "--json" in sys.argv:
                click.echo(json.dumps({"ok": False, "error": error.format_message()}))
            raise
        except ShardlineError as error:
            _tell(error)
            ctx.exit(_PROBLEM)
        except (KeyboardInterrupt, click.Abort):
            click.echo("shardline: interrupted; nothing was left half-written", err=True)
            ctx.exit(_INTERRUPTED)


def _tell(error: Exception) -> None:
    """Say an error on stderr, and for `--json` as an object on stdout."""
    text = str(error)
    if isinstance(error, OSError):
        text = error.strerror or text
        if error.filename is not None:
            text = f"{error.filename}: {text}"
    if "--json" in sys.argv:
        told: dict[str, Any] = {"ok": False, "error": text}
        if isinstance(error, DamagedFileError):
            fault = {key: getattr(error, key) for key in ("kind", "record", "offset", "detail")}
            told |= {"file": error.file, "fault": fault}
        click.echo(json.dumps(told))
    click.echo(f"shardline: {escaped(text)}", err=True)


@click.group(
    cls=_Shardline,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  shardline verify data/                    check every byte of every file in a folder
  shardline verify 'train-*' --examples     check that each record is a sound Example too
  shardline salvage broken.tfrecord ok.tfrecord
  shardline schema train.tfrecord --spec    a feature spec to paste into your input pipeline
  shardline head train.tfrecord -n 3
\b
Exit codes: 0 fine, 1 a problem in the data, 2 wrong usage or a missing file.
Every command takes --json. 'shardline COMMAND --help' tells more.""",
)
@click.version_option(__version__, prog_name="shardline")
def main() -> None:
    """Look into TFRecord files, check them, and save what can be saved.

    Files may be plain, GZIP or ZLIB: that is told from their content. Records may hold anything;
    only schema and 'verify --examples' want Examples.
    """
    # Asked to end, as a scheduler asks, leave nothing half-written behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))


for _command in (verify, salvage, schema, head, count, index):
    main.add_command(_command)
