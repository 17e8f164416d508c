"""`shardline tag`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table, serialize_snapshot
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    parse_version,
    render_next_command,
)
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_bytes, format_time

if TYPE_CHECKING:
    from shardline.cli.references import Reference
    from shardline.log.version import StoredVersion


@click.command(
    epilog="""\b
Examples:
  shardline tag digits/v1                list the tags
  shardline tag digits/v1@7 train-1      tag snapshot 7
  shardline tag digits/v1 train-1        tag the published snapshot
  shardline diff digits/v1@train-1       use the tag
  shardline tag digits/v1 --delete train-1

"""
    + SNAPSHOT_HELP,
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.argument("name", metavar="[TAG]", required=False)
@click.option("--delete", metavar="TAG", help="Delete this tag.")
@root_option
@json_option
def tag(
    reference: str, name: str | None, *, delete: str | None, root: str | None, as_json: bool
) -> None:
    """List, set or delete tags of a version.

    A tag names one snapshot, and vacuum keeps that snapshot. Setting an existing tag moves it; the
    log keeps both.
    """
    if name is not None and delete is not None:
        raise UsageError("TAG and --delete exclude each other", code="conflicting-options")
    wanted = parse_version(reference) if delete is not None else parse_reference(reference)
    if name is None and delete is None and wanted.snapshot is not None:
        raise UsageError(
            f"{wanted}: missing tag name",
            code="missing-argument",
            hint=Hint.of(
                "run ",
                Command.of("tag", str(wanted), "TAG"),
                f", or leave out `@{wanted.snapshot}` to list tags",
            ),
            version=wanted.version,
        )
    version = open_version(open_root(root), wanted)
    if delete is not None:
        _delete_tag(version, delete, as_json=as_json)
    elif name is not None:
        _set_tag(version, wanted, name, as_json=as_json)
    else:
        _print_tags(version, as_json=as_json)


def _print_tags(version: StoredVersion, *, as_json: bool) -> None:
    tags = {name: version.tagged(name) for name in sorted(version.state.tags)}
    if as_json:
        told = [{"tag": name, **serialize_snapshot(snapshot)} for name, snapshot in tags.items()]
        click.echo(json.dumps({"ok": True, "version": version.name, "tags": told}))
        return
    if not tags:
        example = render_next_command("tag", f"{version.name}@published", "TAG")
        click.echo(f"{version.name} has no tags. To set one: {example}")
        return
    table = Table(
        *("tag", "snapshot", "made (UTC)", "records", "bytes", "published"),
        right=("snapshot", "records", "bytes"),
        wide="tag",
    )
    for name, snapshot in tags.items():
        table.add_row(
            escape_text(name),
            f"{snapshot.number}",
            format_time(snapshot.time),
            f"{snapshot.records:,}",
            format_bytes(snapshot.bytes),
            "yes" if snapshot.published else "rejected" if snapshot.rejected else "no",
        )
    table.print()


def _set_tag(version: StoredVersion, wanted: Reference, name: str, *, as_json: bool) -> None:
    snapshot = find_snapshot(version, wanted)
    before = version.state.tags.get(name)
    entry = version.tag(name, snapshot.number)
    old = before and before.snapshot
    if as_json:
        told = {"tag": name, "snapshot": snapshot.number, "before": old}
        click.echo(json.dumps({"ok": True, "version": version.name, **told}))
    elif entry is None:
        click.echo(f"{escape_text(name)} names {snapshot} already: nothing to do")
    else:
        moved = f"; it named snapshot {old} before" if old else ""
        click.echo(f"{escape_text(name)} now names {snapshot}{moved}")


def _delete_tag(version: StoredVersion, name: str, *, as_json: bool) -> None:
    before = version.state.tags.get(name)
    version.tag(name, None)
    old = before and before.snapshot
    if as_json:
        told = {"tag": name, "snapshot": None, "before": old}
        click.echo(json.dumps({"ok": True, "version": version.name, **told}))
    else:
        click.echo(
            f"deleted the tag {escape_text(name)} of {version.name}; it named snapshot "
            f"{old}, which "
            "vacuum keeps no longer on its account"
        )
