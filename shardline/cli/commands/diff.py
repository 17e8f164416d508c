"""`shardline diff`."""

from __future__ import annotations

import click

from shardline.cli.comparison import print_schema_changes, print_shard_changes, print_totals
from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import print_json
from shardline.cli.references import (
    Reference,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.hints import Command, Hint


@click.command(
    epilog="""\b
Examples:
  shardline diff digits/v1@3                     and the published one
  shardline diff digits/v1@3 @7                  and snapshot 7
  shardline diff digits/v1@published @latest     what is unpublished
  shardline diff digits/v1@2026-11-15T04:00      what is new since then
  shardline diff digits/v1 digits/v2             two versions, with features

A and B are numbers, tags, 'latest', 'published' (the default) or UTC times.""",
)
@click.argument("old", metavar="NAME/VERSION@A")
@click.argument("new", metavar="[[NAME/VERSION]@B]", required=False)
@click.option("every", "--all", is_flag=True, help="List every added or removed shard.")
@root_option
@json_option
def diff(old: str, new: str | None, *, every: bool, root: str | None, as_json: bool) -> None:
    """Compare two snapshots.

    B may be of another version. Without B, A is compared with the published snapshot. Only logs are
    read. Exits with 0 whether or not the snapshots differ.
    """
    from shardline.log.snapshot import diff as compare

    first, second = _parse_references(old, new)
    store = open_root(root)
    version = open_version(store, first)
    other = version if second.version == first.version else open_version(store, second)
    changes = compare(find_snapshot(version, first), find_snapshot(other, second))
    if as_json:
        print_json({"ok": True, **changes.to_dict()})
        return
    click.echo(f"{changes.old} → {changes.new}")
    if changes.old.content == changes.new.content:
        click.echo("  no differences")
        return
    print_totals(changes)
    print_shard_changes(changes, every=every)
    print_schema_changes(changes)


def _parse_references(old: str, new: str | None) -> tuple[Reference, Reference]:
    first = parse_reference(old)
    if new is None and first.snapshot is None:
        raise UsageError(
            f"{first.version}: missing snapshot to compare",
            code="missing-snapshot",
            hint=Hint.of(
                f"write `{first.version}@3`, or list the snapshots: run ",
                Command.of("log", first.version),
            ),
            version=first.version,
        )
    if new is None:
        return first, Reference(first.version)
    return first, parse_reference(first.version + new if new.startswith("@") else new)
