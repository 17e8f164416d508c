"""`shardline log`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table, get_output_width, serialize_entry
from shardline.cli.references import open_root, parse_version, raise_not_found, render_next_command
from shardline.text import escape_text, format_count, format_time

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.operations.verify_log import LogProblem

_WIDE_COLUMNS = 100


@click.command(
    epilog="""\b
Examples:
  shardline log digits/v1
  shardline log digits/v1 -n 3
  shardline log digits/v1 --all --json | jq '.entries[].operation'

Only the listed entries are read. 'shardline verify NAME/VERSION' verifies the whole log.""",
)
@click.argument("version", metavar="NAME/VERSION")
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of entries.",
)
@click.option("every", "--all", is_flag=True, help="Show every entry.")
@root_option
@json_option
def log(version: str, *, count: int, every: bool, root: str | None, as_json: bool) -> None:
    """Show the history of a version, latest entry first.

    An entry is one commit, such as an append, a check result, a tag or a vacuum. The columns
    'snapshot' and 'published' show the latest and the published snapshot after it. Exits with 1 if
    an entry is corrupt.
    """
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_log import LogProblem, read_log_history

    store, reference = open_root(root), parse_version(version)
    entries = list(
        read_log_history(StoredVersion(store, reference.version).log, None if every else count)
    )
    if not entries:
        raise_not_found(store, reference.version)
    damaged = any(isinstance(entry, LogProblem) for entry in entries)
    if as_json:
        told = [serialize_entry(entry) for entry in entries]
        click.echo(json.dumps({"ok": not damaged, "version": reference.version, "entries": told}))
    else:
        _print_entries(reference.version, entries)
    raise SystemExit(1 if damaged else 0)


def _print_entries(version: str, entries: list[Entry | LogProblem]) -> None:
    from shardline.operations.verify_log import LogProblem
    from shardline.provenance.entry_text import format_commit_info, format_entry

    sound = [entry for entry in entries if not isinstance(entry, LogProblem)]
    makers = {format_commit_info(entry.commit_info) for entry in sound}
    roomy = (get_output_width() or _WIDE_COLUMNS) >= _WIDE_COLUMNS
    headings = ["entry", "time (UTC)", *["operation"] * roomy, "snapshot", "published"]
    headings += ["what happened", *["by"] * (len(makers) > 1)]
    table = Table(*headings, right=("entry", "snapshot", "published"), wide="what happened")
    for entry in entries:
        if isinstance(entry, LogProblem):
            row = {
                "entry": f"{entry.entry}",
                "what happened": f"DAMAGED: {escape_text(entry.detail)}",
            }
        else:
            row = {
                "entry": f"{entry.number}",
                "time (UTC)": format_time(entry.time),
                "operation": escape_text(entry.operation),
                "snapshot": f"{entry.snapshot or '-'}",
                "published": f"{entry.published or '-'}",
                "what happened": format_entry(entry, with_operation=not roomy),
                "by": format_commit_info(entry.commit_info),
            }
        table.add_row(*(row.get(heading, "") for heading in headings))
    table.print()
    last = entries[-1].entry if isinstance(entries[-1], LogProblem) else entries[-1].number
    by = f"all by {makers.pop()}" if len(makers) == 1 else ""
    older = (
        f"{format_count(last - 1, 'older entry', 'older entries')}: --all shows them"
        if last > 1
        else ""
    )
    damaged = len(entries) - len(sound)
    advice = f"see {render_next_command('verify', version)}" if damaged else ""
    closing = "; ".join(filter(None, (by, older, advice)))
    if closing:
        click.echo(f"\n{version}: {closing}")
