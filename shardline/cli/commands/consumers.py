"""`shardline consumers`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    raise_not_found,
    render_next_command,
)
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_count, format_time

if TYPE_CHECKING:
    from shardline.cli.references import Reference
    from shardline.provenance.consumers import Consumer
    from shardline.storage import Store


@click.command(
    epilog="""\b
Examples:
  shardline consumers                                  list the consumers of the root
  shardline consumers digits/v1 --all                  include released ones
  shardline consumers digits/v1@7 --register digits-cnn --run 42 --commit 1f3c9d2
  shardline consumers digits/v1 --release digits-cnn --run 42
\b
In a training script:
  snapshot = shardline.open(root)["digits/v1"].published()
  snapshot.consumed_by("digits-cnn", run=run_id, commit=commit)

"""
    + SNAPSHOT_HELP,
)
@click.argument("name", metavar="[NAME[/VERSION[@SNAPSHOT]]]", required=False)
@click.option("--register", metavar="CONSUMER", help="Register a consumer of the snapshot.")
@click.option("--release", metavar="CONSUMER", help="Release the snapshots of a consumer.")
@click.option("--run", metavar="ID", help="Run ID of the consumer.")
@click.option("--commit", metavar="SHA", help="Commit of the consumer's code.")
@click.option("everyone", "--all", is_flag=True, help="Include released consumers.")
@root_option
@json_option
def consumers(
    name: str | None,
    *,
    register: str | None,
    release: str | None,
    run: str | None,
    commit: str | None,
    everyone: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """List, register or release consumers of snapshots, such as training jobs.

    Vacuum keeps the snapshot of a consumer until its release. The log keeps the record after that.
    A second registration changes nothing.
    """
    _validate_options(register, release, run, commit, everyone=everyone)
    store = open_root(root)
    if register is not None:
        _register(store, name, register, run or "", commit or "", as_json=as_json)
    elif release is not None:
        _release(store, name, release, run, as_json=as_json)
    else:
        _print_consumers(store, name, everyone=everyone, as_json=as_json)


def _validate_options(
    register: str | None,
    release: str | None,
    run: str | None,
    commit: str | None,
    *,
    everyone: bool,
) -> None:
    if register is not None and release is not None:
        raise UsageError("--register and --release exclude each other", code="conflicting-options")
    if commit is not None and register is None:
        raise UsageError(
            "--commit requires --register", code="missing-option", hint="add `--register CONSUMER`"
        )
    if run is not None and register is None and release is None:
        raise UsageError(
            "--run requires --register or --release",
            code="missing-option",
            hint="add `--register CONSUMER` or `--release CONSUMER`",
        )
    if everyone and (register is not None or release is not None):
        raise UsageError(
            "--all applies to listing only", code="option-not-applicable", hint="leave it out"
        )


def _parse_version_option(store: Store, name: str | None, option: str, consumer: str) -> Reference:
    """The version that was named; a usage error if none was tells how to."""
    from shardline.provenance.log_index import LogIndex

    if name is not None:
        return parse_reference(name)
    known = ", ".join(LogIndex(store).list_versions()) or "none"
    example = Command.of("consumers", "NAME/VERSION", option, consumer)
    raise UsageError(
        f"{option} {consumer}: missing version",
        code="missing-version",
        hint=Hint.of("run ", example, f" (versions: {known})"),
    )


def _register(
    store: Store, name: str | None, consumer: str, run: str, commit: str, *, as_json: bool
) -> None:
    from shardline.provenance.consumers import Consumer, register

    wanted = _parse_version_option(store, name, "--register", consumer)
    version = open_version(store, wanted)
    snapshot = find_snapshot(version, wanted)
    entry = register(version, snapshot.number, consumer, run=run, commit=commit)
    if as_json:
        told = Consumer(version.name, snapshot.number, consumer, run, commit).to_dict()
        told |= {"since": entry and entry.time.isoformat()}
        click.echo(json.dumps({"ok": True, "new": entry is not None, "consumer": told}))
    elif entry is None:
        click.echo(f"{escape_text(consumer)} reads {snapshot} already: nothing to do")
    else:
        click.echo(
            f"{escape_text(consumer)} reads {snapshot}: vacuum keeps it until it is released"
        )


def _release(
    store: Store, name: str | None, consumer: str, run: str | None, *, as_json: bool
) -> None:
    from shardline.provenance.consumers import release

    wanted = _parse_version_option(store, name, "--release", consumer)
    version = open_version(store, wanted)
    snapshot = None if wanted.snapshot is None else find_snapshot(version, wanted).number
    released = release(version, consumer, run=run, snapshot=snapshot)
    if as_json:
        told = [one.to_dict() for one in released]
        click.echo(json.dumps({"ok": True, "version": version.name, "released": told}))
    else:
        numbers = ", ".join(f"@{one.snapshot}" for one in released)
        click.echo(
            f"{escape_text(consumer)} no longer holds {version.name} ({numbers}): the log "
            "remembers it"
        )


def _print_consumers(store: Store, name: str | None, *, everyone: bool, as_json: bool) -> None:
    found = _list_consumers(store, name, everyone=everyone)
    if as_json:
        click.echo(json.dumps({"ok": True, "consumers": [one.to_dict() for one in found]}))
        return
    if not found:
        example = render_next_command("consumers", "NAME/VERSION", "--register", "CONSUMER")
        click.echo(f"no consumers are registered. To register one: {example}")
        return
    headings = ["version", "snapshot", "consumer", "run", "commit"]
    headings += ["since (UTC)", "released (UTC)"] if everyone else []
    table = Table(*headings, right=("snapshot",), wide="consumer")
    for one in found:
        row = [one.version, f"{one.snapshot}", *map(escape_text, (one.name, one.run, one.commit))]
        times = [format_time(time) if time else "" for time in (one.since, one.released)]
        table.add_row(*row, *(times if everyone else []))
    table.print()
    held = format_count(len([one for one in found if one.released is None]), "snapshot")
    click.echo(f"\n{held} held for consumers")


def _list_consumers(store: Store, name: str | None, *, everyone: bool) -> list[Consumer]:
    from shardline.provenance.consumers import list_all_consumers, list_consumers
    from shardline.provenance.log_index import LogIndex
    from shardline.storage import validate_name

    catalog = LogIndex(store)
    only = None
    if name is not None and "/" in name:
        wanted = parse_reference(name)
        version = open_version(store, wanted)
        listed = [version.name]
        if wanted.snapshot is not None:
            only = find_snapshot(version, wanted).number
    else:
        listed = catalog.list_versions(None if name is None else validate_name(name, "dataset"))
        if name is not None and not listed:
            raise_not_found(store, name)
    found = [
        one
        for each in listed
        for one in (
            list_all_consumers(each, catalog.entries(each))
            if everyone
            else list_consumers(catalog.version(each))
        )
    ]
    return [one for one in found if only in (None, one.snapshot)]
