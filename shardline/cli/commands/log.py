"""`shardline log`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import print_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table, get_output_width, serialize_entry
from shardline.cli.references import open_root, parse_version, raise_not_found
from shardline.hints import Command
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
    ok = not any(isinstance(entry, LogProblem) for entry in entries)
    if as_json:
        rows = [serialize_entry(entry) for entry in entries]
        click.echo(json.dumps({"ok": ok, "version": reference.version, "entries": rows}))
    else:
        _print_entries(reference.version, entries)
    raise SystemExit(0 if ok else 1)


def _print_entries(version: str, entries: list[Entry | LogProblem]) -> None:
    from shardline.operations.verify_log import LogProblem
    from shardline.provenance.entry_text import format_commit_info, format_entry

    valid = [entry for entry in entries if not isinstance(entry, LogProblem)]
    writers = {format_commit_info(entry.commit_info) for entry in valid}
    is_wide = (get_output_width() or _WIDE_COLUMNS) >= _WIDE_COLUMNS
    headings = ["entry", "time (UTC)", *["operation"] * is_wide, "snapshot", "published"]
    headings += ["changes", *["by"] * (len(writers) > 1)]
    table = Table(*headings, right=("entry", "snapshot", "published"), wide="changes")
    for entry in entries:
        if isinstance(entry, LogProblem):
            row = {
                "entry": f"{entry.entry}",
                "changes": f"CORRUPT: {escape_text(entry.detail)}",
            }
        else:
            row = {
                "entry": f"{entry.number}",
                "time (UTC)": format_time(entry.time),
                "operation": escape_text(entry.operation),
                "snapshot": f"{entry.snapshot or '-'}",
                "published": f"{entry.published or '-'}",
                "changes": format_entry(entry, with_operation=not is_wide),
                "by": format_commit_info(entry.commit_info),
            }
        table.add_row(*(row.get(heading, "") for heading in headings))
    table.print()
    last = entries[-1].entry if isinstance(entries[-1], LogProblem) else entries[-1].number
    remarks = [f"all by {writers.pop()}"] if len(writers) == 1 else []
    if last > 1:
        older = format_count(last - 1, "older entry", "older entries")
        remarks.append(f"{older} (--all lists all)")
    if remarks:
        click.echo(f"\n{version}: {', '.join(remarks)}")
    if len(valid) < len(entries):
        print_hint("to list all problems of the log, run ", Command.of("verify", version))
