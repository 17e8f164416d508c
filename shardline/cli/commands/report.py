"""`shardline report`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from shardline.cli.errors import render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output_file import validate_outside_root, validate_report_file
from shardline.cli.references import open_root, select_versions
from shardline.hints import Hint
from shardline.text import escape_text, format_bytes, format_count


@click.command(
    epilog="""\b
Examples:
  shardline report                             every dataset of the root
  shardline report digits -o digits.html
  shardline report digits/v1 -o digits-v1.html

With NAME or NAME/VERSION, the page shows these versions, their inputs and their outputs.

The page is a single file without external resources. Only logs are read, and nothing is verified:
use 'shardline audit' for that.""",
)
@click.argument("name", metavar="[NAME[/VERSION]]", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="Output file. An earlier page is replaced.",
)
@root_option
@json_option
def report(name: str | None, *, output: Path, root: str | None, as_json: bool) -> None:
    """Write the history of datasets as an HTML page.

    The page shows the graph of versions, and of each version its snapshots, commits, check results,
    size over time and the origins of its features. Exits with 1 if a log is corrupt; the page shows
    its readable part.
    """
    from shardline.lineage.page.report_page import build_report_page, write_document
    from shardline.log.version import utc_now
    from shardline.provenance.log_index import LogIndex

    validate_report_file(output)
    validate_outside_root(output, root)
    catalog = LogIndex(open_root(root))
    names = None if name is None else select_versions(catalog.store, catalog.list_versions(), name)
    page = build_report_page(catalog, names=names, now=utc_now())
    write_document(page, output)
    corrupt = [version for version in page.versions if version.problem]
    size = output.stat().st_size
    if as_json:
        payload = {
            "ok": not corrupt,
            "root": page.root,
            "page": str(output),
            "size": size,
            **page.counts,
            "damaged": [{"version": item.name, "error": item.problem} for item in corrupt],
        }
        click.echo(json.dumps(payload))
    else:
        versions = format_count(page.counts["versions"], "version")
        snapshots = format_count(page.counts["snapshots"], "snapshot")
        click.echo(f"{escape_text(str(output))}: {versions}, {snapshots}, {format_bytes(size)}")
        for version in corrupt:
            click.echo(f"  {escape_text(version.problem)}")
            click.echo(f"  hint: {render_hint(Hint.run('verify', version.name))}")
    raise SystemExit(1 if corrupt else 0)
