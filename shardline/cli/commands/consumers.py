"""`shardline consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table, print_json
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    raise_not_found,
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
    """Parse the name of a version. Raises UsageError if it is missing."""
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

    target = _parse_version_option(store, name, "--register", consumer)
    version = open_version(store, target)
    snapshot = find_snapshot(version, target)
    entry = register(version, snapshot.number, consumer, run=run, commit=commit)
    if as_json:
        since = None if entry is None else entry.time
        record = Consumer(version.name, snapshot.number, consumer, run, commit, since)
        print_json({"ok": True, "new": entry is not None, "consumer": record.to_dict()})
    elif entry is None:
        click.echo(f"{snapshot}: {escape_text(consumer)} is registered already")
    else:
        click.echo(f"{snapshot}: registered {escape_text(consumer)}, kept until its release")


def _release(
    store: Store, name: str | None, consumer: str, run: str | None, *, as_json: bool
) -> None:
    from shardline.provenance.consumers import release

    target = _parse_version_option(store, name, "--release", consumer)
    version = open_version(store, target)
    snapshot = None if target.snapshot is None else find_snapshot(version, target).number
    released = release(version, consumer, run=run, snapshot=snapshot)
    if as_json:
        payload = [record.to_dict() for record in released]
        print_json({"ok": True, "version": version.name, "released": payload})
    else:
        numbers = ", ".join(f"@{record.snapshot}" for record in released)
        click.echo(f"{version.name}: released {escape_text(consumer)} ({numbers})")


def _print_consumers(store: Store, name: str | None, *, everyone: bool, as_json: bool) -> None:
    consumers = _list_consumers(store, name, everyone=everyone)
    if as_json:
        print_json({"ok": True, "consumers": [consumer.to_dict() for consumer in consumers]})
        return
    if not consumers:
        click.echo("no consumers")
        example = Command.of("consumers", "NAME/VERSION", "--register", "CONSUMER")
        print_hint("to register a consumer, run ", example)
        return
    headings = ["version", "snapshot", "consumer", "run", "commit"]
    headings += ["since (UTC)", "released (UTC)"] if everyone else []
    table = Table(*headings, right=("snapshot",), wide="consumer")
    for consumer in consumers:
        texts = map(escape_text, (consumer.name, consumer.run, consumer.commit))
        times = [format_time(time) if time else "" for time in (consumer.since, consumer.released)]
        table.add_row(
            consumer.version, f"{consumer.snapshot}", *texts, *(times if everyone else [])
        )
    table.print()
    pins = sum(consumer.released is None for consumer in consumers)
    click.echo(f"\n{format_count(pins, 'snapshot')} pinned by consumers")


def _list_consumers(store: Store, name: str | None, *, everyone: bool) -> list[Consumer]:
    from shardline.provenance.consumers import list_all_consumers, list_consumers
    from shardline.provenance.log_index import LogIndex
    from shardline.storage import validate_name

    catalog = LogIndex(store)
    number = None
    if name is not None and "/" in name:
        target = parse_reference(name)
        version = open_version(store, target)
        versions = [version.name]
        if target.snapshot is not None:
            number = find_snapshot(version, target).number
    else:
        versions = catalog.list_versions(None if name is None else validate_name(name, "dataset"))
        if name is not None and not versions:
            raise_not_found(store, name)
    return [
        consumer
        for version_name in versions
        for consumer in (
            list_all_consumers(version_name, catalog.entries(version_name))
            if everyone
            else list_consumers(catalog.version(version_name))
        )
        if number in (None, consumer.snapshot)
    ]
