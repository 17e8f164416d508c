"""`shardline openlineage`."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output_file import validate_output_file
from shardline.cli.references import open_root, select_versions
from shardline.text import escape_text, format_count


@click.command(
    epilog="""\b
Examples:
  shardline openlineage --file events.jsonl             all of the root, as lines of JSON
  shardline openlineage digits --file -                 one dataset, to the terminal
  shardline openlineage digits/v1 --url http://localhost:5000
  shardline openlineage --url https://marquez.example.org --namespace research

The id of each run is made from the digest of its entry: sending a history again tells nothing new,
so this can be run after every commit. A key for the server is taken from OPENLINEAGE_API_KEY.
Needs openlineage-python: pip install 'shardline[lineage]'.""",
)
@click.argument("name", metavar="[NAME[/VERSION]]", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write the events here, one a line; - is the terminal.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@click.option("--url", help="Post the events to this server.")
@click.option(
    "--namespace", default="", help="What stands for the root in names.  [default: its URI]"
)
@root_option
@json_option
def openlineage(
    name: str | None,
    *,
    path: Path | None,
    overwrite: bool,
    url: str | None,
    namespace: str,
    root: str | None,
    as_json: bool,
) -> None:
    """Tell the whole history of a root, a dataset or a version as OpenLineage events.

    A run for each entry that changed data, told what checks found or registered a consumer, with
    what it read and wrote: schema, version, column lineage, results of checks, rows and bytes. No
    value of any record is in them. A file that is there is left alone unless --overwrite is given.
    Exits with 1 if a log cannot be read.
    """
    from shardline.lineage.exports.openlineage import (
        events,
        format_event_line,
        send_events,
        write_events,
    )
    from shardline.provenance.log_index import LogIndex

    to_terminal = path is not None and str(path) == "-"
    _validate_destination(path, url, to_terminal=to_terminal, overwrite=overwrite, as_json=as_json)
    catalog = LogIndex(open_root(root))
    if path is not None and not to_terminal:
        validate_output_file(path, catalog.store, overwrite=overwrite)
    names = catalog.names()
    if name is not None:
        names = select_versions(catalog.store, names, name)
    told = events(catalog, names, namespace=namespace)
    if to_terminal:
        for one in told:
            click.echo("".join(map(format_event_line, one.events)), nl=False)
        return
    if url is not None:
        # What it tries again is told once, when it gives up.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        sent = send_events(told, url, api_key=os.environ.get("OPENLINEAGE_API_KEY", ""))
    else:
        sent = write_events(told, path or Path(), overwrite=overwrite)
    if as_json:
        click.echo(json.dumps({"ok": True, "entries": sent.entries, "events": sent.events}))
    else:
        where = escape_text(url or str(path))
        of = format_count(sent.entries, "entry", "entries")
        click.echo(f"{where}: {format_count(sent.events, 'event')} of {of}")


def _validate_destination(
    path: Path | None, url: str | None, *, to_terminal: bool, overwrite: bool, as_json: bool
) -> None:
    if path is None and url is None:
        raise UsageError(
            "no destination given",
            code="missing-option",
            hint="pass `--file FILE` or `--url URL`",
        )
    if path is not None and url is not None:
        raise UsageError("--file and --url exclude each other", code="conflicting-options")
    if to_terminal and as_json:
        raise UsageError(
            "--file - writes JSON lines already",
            code="conflicting-options",
            hint="leave out `--json`",
        )
    if overwrite and (path is None or to_terminal):
        raise UsageError(
            "--overwrite requires --file FILE",
            code="missing-option",
            hint="name a file, or leave it out",
        )
