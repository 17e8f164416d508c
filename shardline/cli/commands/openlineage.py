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
  shardline openlineage -o events.jsonl                 the whole root, as JSON lines
  shardline openlineage digits -o -                     one dataset, to the terminal
  shardline openlineage digits/v1 --url http://localhost:5000
  shardline openlineage --url https://marquez.example.org --namespace research

The ID of a run is derived from the digest of its entry: run this after every commit, servers ignore
known events. OPENLINEAGE_API_KEY sets the key for the server. Needs openlineage-python: pip install
'shardline[lineage]'.""",
)
@click.argument("name", metavar="[NAME[/VERSION]]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write the events to this file, one per line; - for the terminal.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option("--url", help="Post the events to this server.")
@click.option("--namespace", default="", help="Name of the root in events.  [default: its URI]")
@root_option
@json_option
def openlineage(
    name: str | None,
    *,
    output: Path | None,
    overwrite: bool,
    url: str | None,
    namespace: str,
    root: str | None,
    as_json: bool,
) -> None:
    """Export the history of a root, a dataset or a version as OpenLineage events.

    Each entry that changed data, recorded checks or registered a consumer becomes a run, with its
    inputs and outputs: schema, version, column lineage, check results, rows and bytes. Events
    contain no values of records. Exits with 1 if a log cannot be read.
    """
    from shardline.lineage.exports.openlineage import (
        format_event_line,
        iter_events,
        send_events,
        write_events,
    )
    from shardline.provenance.log_index import LogIndex

    to_terminal = output is not None and str(output) == "-"
    _validate_destination(
        output, url, to_terminal=to_terminal, overwrite=overwrite, as_json=as_json
    )
    catalog = LogIndex(open_root(root))
    if output is not None and not to_terminal:
        validate_output_file(output, catalog.store, overwrite=overwrite)
    names = catalog.list_versions()
    if name is not None:
        names = select_versions(catalog.store, names, name)
    entry_events = iter_events(catalog, names, namespace=namespace)
    if to_terminal:
        for pair in entry_events:
            click.echo("".join(map(format_event_line, pair.events)), nl=False)
        return
    if url is not None:
        # Its retries are reported once, at the end.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        sent = send_events(entry_events, url, api_key=os.environ.get("OPENLINEAGE_API_KEY", ""))
    else:
        sent = write_events(entry_events, output or Path(), overwrite=overwrite)
    if as_json:
        click.echo(json.dumps({"ok": True, "entries": sent.entries, "events": sent.events}))
    else:
        where = escape_text(url or str(output))
        of = format_count(sent.entries, "entry", "entries")
        click.echo(f"{where}: {format_count(sent.events, 'event')} of {of}")


def _validate_destination(
    output: Path | None, url: str | None, *, to_terminal: bool, overwrite: bool, as_json: bool
) -> None:
    if output is None and url is None:
        raise UsageError(
            "no destination given",
            code="missing-option",
            hint="pass `--output FILE` or `--url URL`",
        )
    if output is not None and url is not None:
        raise UsageError("--output and --url exclude each other", code="conflicting-options")
    if to_terminal and as_json:
        raise UsageError(
            "--output - writes JSON lines already",
            code="conflicting-options",
            hint="leave out `--json`",
        )
    if overwrite and (output is None or to_terminal):
        raise UsageError(
            "--overwrite requires --output FILE",
            code="missing-option",
            hint="name a file, or leave it out",
        )
