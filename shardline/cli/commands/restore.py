"""`shardline restore`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.comparison import print_totals
from shardline.cli.errors import UsageError, print_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
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

    source = parse_reference(reference)
    if source.snapshot is None:
        raise UsageError(
            f"{source.version}: missing snapshot to restore",
            code="missing-snapshot",
            hint=Hint.of(
                f"write `{source.version}@3`; to list the snapshots, run ",
                Command.of("log", source.version),
            ),
            version=source.version,
        )
    version = open_version(open_root(root), source)
    number = find_snapshot(version, source).number
    report = restore_version(version, str(number), dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({"ok": True, **report.to_dict()}))
    else:
        _print_report(report)


def _print_report(report: RestoreReport) -> None:
    restored, entry = report.restored, report.entry
    if entry is None:
        click.echo(f"{restored}: nothing to restore, same content as the latest snapshot")
        return
    snapshot = f"{restored.version}@{entry.snapshot}"
    verb = "would restore" if report.dry_run else "restored"
    click.echo(f"{snapshot}: {verb} snapshot {restored.number}")
    if restored.rejected:
        click.echo(f"  snapshot {restored.number} is no longer rejected")
    print_totals(report.diff)
    verb = "would be" if report.dry_run else "is"
    if report.published:
        click.echo(f"{snapshot} {verb} published, its checks have passed")
    else:
        click.echo(f"{snapshot} {verb} unpublished, a check has not passed")
    if report.dry_run:
        command = Command.of("restore", f"{restored.version}@{restored.number}")
        print_hint("nothing was changed; to restore, run ", command)
    elif not report.published:
        print_hint("to publish it, run ", Command.of("check", snapshot))
