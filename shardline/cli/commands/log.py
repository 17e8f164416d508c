"""`shardline log`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.entry_text import entry_words, maker_words
from shardline.cli.options import json_option, root_option
from shardline.cli.output import entry_json, plain_console, plain_table
from shardline.cli.references import next_command, open_root, parse_version, refuse_missing
from shardline.text import counted, escaped, when

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.operations.verify_log import LogProblem

_ROOMY = 100


@click.command(
    short_help="Tell what happened to a version.",
    epilog="""\b
Examples:
  shardline log digits/v1
  shardline log digits/v1 -n 3
  shardline log digits/v1 --all --json | jq '.entries[].operation'

Only the entries that are shown are read, however long the log is. 'shardline verify NAME/VERSION'
proves all of it.""",
)
@click.argument("version", metavar="NAME/VERSION")
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many."
)
@click.option("every", "--all", is_flag=True, help="Show every entry.")
@root_option
@json_option
def log(version: str, *, count: int, every: bool, root: str | None, as_json: bool) -> None:
    """Tell what happened to a version, the newest first.

    An entry is one commit: data that came or went, what a check found, a tag, a vacuum. 'snapshot'
    and 'published' are the version's newest and newest published snapshot after it. Exits with 1
    if an entry is damaged.
    """
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_log import LogProblem, history

    store, reference = open_root(root), parse_version(version)
    entries = list(history(StoredVersion(store, reference.version).log, None if every else count))
    if not entries:
        refuse_missing(store, reference.version)
    damaged = any(isinstance(entry, LogProblem) for entry in entries)
    if as_json:
        told = [entry_json(entry) for entry in entries]
        click.echo(json.dumps({"ok": not damaged, "version": reference.version, "entries": told}))
    else:
        _print(reference.version, entries)
    raise SystemExit(1 if damaged else 0)


def _print(version: str, entries: list[Entry | LogProblem]) -> None:
    from shardline.operations.verify_log import LogProblem

    console = plain_console()
    sound = [entry for entry in entries if not isinstance(entry, LogProblem)]
    makers = {maker_words(entry.maker) for entry in sound}
    roomy = console.width >= _ROOMY
    headings = ["entry", "time (UTC)", *["operation"] * roomy, "snapshot", "published"]
    headings += ["what happened", *["by"] * (len(makers) > 1)]
    table = plain_table(*headings, right=("entry", "snapshot", "published"), wide="what happened")
    for entry in entries:
        if isinstance(entry, LogProblem):
            row = {"entry": f"{entry.entry}", "what happened": f"DAMAGED: {escaped(entry.detail)}"}
        else:
            row = {
                "entry": f"{entry.number}",
                "time (UTC)": when(entry.time),
                "operation": escaped(entry.operation),
                "snapshot": f"{entry.snapshot or '-'}",
                "published": f"{entry.published or '-'}",
                "what happened": entry_words(entry, with_operation=not roomy),
                "by": maker_words(entry.maker),
            }
        table.add_row(*(row.get(heading, "") for heading in headings))
    console.print(table)
    last = entries[-1].entry if isinstance(entries[-1], LogProblem) else entries[-1].number
    by = f"all by {makers.pop()}" if len(makers) == 1 else ""
    older = (
        f"{counted(last - 1, 'older entry', 'older entries')}: --all shows them" if last > 1 else ""
    )
    damaged = len(entries) - len(sound)
    advice = f"see {next_command('verify', version)}" if damaged else ""
    closing = "; ".join(filter(None, (by, older, advice)))
    if closing:
        console.print(f"\n{version}: {closing}")
