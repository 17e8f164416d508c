"""`shardline tag`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    parse_version,
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
    target = parse_version(reference) if delete is not None else parse_reference(reference)
    if name is None and delete is None and target.snapshot is not None:
        raise UsageError(
            f"{target}: missing tag name",
            code="missing-argument",
            hint=Hint.of(
                "run ",
                Command.of("tag", str(target), "TAG"),
                f", or leave out `@{target.snapshot}` to list tags",
            ),
            version=target.version,
        )
    version = open_version(open_root(root), target)
    if delete is not None:
        _delete_tag(version, delete, as_json=as_json)
    elif name is not None:
        _set_tag(version, target, name, as_json=as_json)
    else:
        _print_tags(version, as_json=as_json)


def _print_tags(version: StoredVersion, *, as_json: bool) -> None:
    tags = {name: version.tagged(name) for name in sorted(version.state.tags)}
    if as_json:
        rows = [{"tag": name, **snapshot.to_dict()} for name, snapshot in tags.items()]
        click.echo(json.dumps({"ok": True, "version": version.name, "tags": rows}))
        return
    if not tags:
        click.echo(f"{version.name}: no tags")
        print_hint("to set a tag, run ", Command.of("tag", f"{version.name}@published", "TAG"))
        return
    table = Table(
        *("tag", "snapshot", "created (UTC)", "records", "bytes", "published"),
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


def _set_tag(version: StoredVersion, reference: Reference, name: str, *, as_json: bool) -> None:
    snapshot = find_snapshot(version, reference)
    before = version.state.tags.get(name)
    entry = version.tag(name, snapshot.number)
    old = None if before is None else before.snapshot
    if as_json:
        _print_change(version, name, snapshot.number, old)
    elif entry is None:
        click.echo(f"{escape_text(name)} is already set to {snapshot}")
    else:
        click.echo(f"{escape_text(name)} → {snapshot}" + (f" (before: {old})" if old else ""))


def _delete_tag(version: StoredVersion, name: str, *, as_json: bool) -> None:
    before = version.state.tags.get(name)
    version.tag(name, None)
    old = None if before is None else before.snapshot
    if as_json:
        _print_change(version, name, None, old)
    else:
        click.echo(f"deleted tag {escape_text(name)} of {version.name}@{old}")


def _print_change(version: StoredVersion, name: str, new: int | None, old: int | None) -> None:
    payload = {"ok": True, "version": version.name, "tag": name, "snapshot": new, "before": old}
    click.echo(json.dumps(payload))
