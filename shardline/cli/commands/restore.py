"""`shardline restore`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.comparison import print_totals
from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    render_next_command,
)
from shardline.hints import Command, Hint

if TYPE_CHECKING:
    from shardline.operations.restore import RestoreReport


@click.command(
    epilog="""\b
Examples:
  shardline restore digits/v1@3 --dry-run
  shardline restore digits/v1@3
  shardline restore digits/v1@published

SNAPSHOT is a number, a tag, 'published' or a UTC time.

Snapshots that were rolled back remain readable by number. Their sources are not appended again
without --retry-rejected.""",
)
@click.argument("reference", metavar="NAME/VERSION@SNAPSHOT")
@click.option("--dry-run", is_flag=True, help="Show the changes without writing.")
@root_option
@json_option
def restore(reference: str, *, dry_run: bool, root: str | None, as_json: bool) -> None:
    """Make an old snapshot the latest again, as a new snapshot.

    A restore writes one entry to the log, and copies and deletes nothing. Check results of the old
    snapshot apply to the new one. Exits with 2 if a concurrent commit conflicts, or if vacuum
    deleted a shard; nothing is changed then.
    """
    from shardline.operations.restore import restore_version

    wanted = parse_reference(reference)
    if wanted.snapshot is None:
        raise UsageError(
            f"{wanted.version}: missing snapshot to restore",
            code="missing-snapshot",
            hint=Hint.of(
                f"write `{wanted.version}@3`, or list the snapshots: run ",
                Command.of("log", wanted.version),
            ),
            version=wanted.version,
        )
    version = open_version(open_root(root), wanted)
    number = find_snapshot(version, wanted).number
    report = restore_version(version, str(number), dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({"ok": True, **report.to_dict()}))
    else:
        _print_report(report)


def _print_report(report: RestoreReport) -> None:
    restored, entry = report.restored, report.entry
    if entry is None:
        click.echo(f"{restored} holds what the newest snapshot holds: nothing to do")
        return
    made = f"{restored.version}@{entry.snapshot}"
    click.echo(f"{restored} {'would be' if report.dry_run else 'is'} the newest again, as {made}")
    if restored.rejected:
        click.echo(f"  snapshot {restored.number} had been rejected: this lifts the rejection")
    print_totals(report.diff)
    click.echo(_format_outcome(report, made))
    if report.dry_run:
        command = render_next_command("restore", f"{restored.version}@{restored.number}")
        click.echo(f"Nothing was changed. To do it: {command}")
    elif not report.published:
        click.echo(f"To check it: {render_next_command('check', made)}")


def _format_outcome(report: RestoreReport, made: str) -> str:
    if report.published:
        will = "would be" if report.dry_run else "is"
        return f"{made} {will} published at once: its checks passed before"
    will = "would not be" if report.dry_run else "is not"
    return f"{made} {will} published: a check has not passed on it"
