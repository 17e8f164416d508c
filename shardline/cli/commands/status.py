"""`shardline status`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import render_command, render_hint, serialize_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import (
    Table,
    format_source,
    get_source_argument,
)
from shardline.cli.references import (
    open_root,
    parse_version,
    raise_not_found,
    render_next_command,
)
from shardline.errors import ChangedSourceError, CorruptLogError, UnknownFormatError
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_bytes, format_count, format_list, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.rejected_sources import RejectedSource
    from shardline.operations.status import BlockedSnapshot, Blocker, VersionStatus
    from shardline.storage import Store

_ENGINE_CHECKS = frozenset({"integrity", "schema"})
_SHOWN_SOURCES = 5


@dataclass(frozen=True, slots=True)
class _UnreadableVersion:
    """A version whose log cannot be read, and why."""

    version: str
    error: CorruptLogError | UnknownFormatError


@click.command(
    epilog="""\b
Examples:
  shardline status                         every dataset in the root
  shardline status digits                  every version of one dataset
  shardline status digits/v1 --json | jq '.versions[0].published.snapshot'""",
)
@click.argument("name", metavar="[NAME[/VERSION]]", required=False)
@root_option
@json_option
def status(name: str | None, *, root: str | None, as_json: bool) -> None:
    """Show published and blocked snapshots.

    Records, bytes and shards are those of the latest snapshot. A snapshot is published when every
    check has passed, and readers get the latest published one. Exits with 1 only if a log cannot
    be read.
    """
    store = open_root(root)
    told = [_read_status(store, version) for version in _list_versions(store, name)]
    unreadable = [one for one in told if isinstance(one, _UnreadableVersion)]
    if as_json:
        versions = [_serialize_status(one) for one in told]
        click.echo(json.dumps({"ok": not unreadable, "root": store.uri, "versions": versions}))
    elif told:
        _print_status(told)
    else:
        inside = {"shards", "log"} & set(store.folders(""))
        hint = ": this is the inside of a dataset, and the root is a folder above" if inside else ""
        click.echo(f"no datasets in {escape_text(store.uri)}{hint}")
    raise SystemExit(1 if unreadable else 0)


def _list_versions(store: Store, name: str | None) -> Iterator[str]:
    from shardline.provenance.catalog import find_datasets, find_versions
    from shardline.storage import validate_name

    if name is not None and "/" in name:
        yield parse_version(name).version
        return
    for dataset in find_datasets(store) if name is None else [validate_name(name, "dataset")]:
        versions = find_versions(store, dataset)
        if not versions:
            raise_not_found(store, dataset)
        for version in versions:
            yield f"{dataset}/{version}"


def _read_status(store: Store, name: str) -> VersionStatus | _UnreadableVersion:
    from shardline.log.version import StoredVersion
    from shardline.operations.status import get_status

    version = StoredVersion(store, name)
    try:
        if not version.exists:
            raise_not_found(store, name)
        return get_status(version)
    except (CorruptLogError, UnknownFormatError) as error:
        return _UnreadableVersion(name, error)


def _serialize_status(told: VersionStatus | _UnreadableVersion) -> dict[str, Any]:
    if isinstance(told, _UnreadableVersion):
        hint = None if told.error.hint is None else serialize_hint(told.error.hint)
        return {"version": told.version, "error": told.error.message, "hint": hint}
    return told.to_dict()


def _print_status(told: list[VersionStatus | _UnreadableVersion]) -> None:
    numbers = ("latest", "published", "records", "bytes", "shards")
    table = Table("version", *numbers, "tags", right=numbers, wide="tags")
    for one in told:
        if isinstance(one, _UnreadableVersion):
            table.add_row(one.version, "?", "?")
            continue
        newest = one.latest
        table.add_row(
            one.version,
            f"{newest.number}" if newest else "-",
            f"{one.published.number}" if one.published else "-",
            f"{newest.records:,}" if newest else "",
            format_bytes(newest.bytes) if newest else "",
            f"{newest.totals.shards:,}" if newest else "",
            ", ".join(f"{escape_text(tag)} → {number}" for tag, number in one.tags.items()),
        )
    table.print()
    for one in told:
        lines = list(_format_remarks(one))
        if lines:
            click.echo("\n" + "\n".join(lines))


def _format_remarks(told: VersionStatus | _UnreadableVersion) -> Iterator[str]:
    """What keeps a version's snapshots from being published, and what to do about it."""
    if isinstance(told, _UnreadableVersion):
        yield escape_text(told.error.message)
        if told.error.hint:
            yield f"hint: {render_hint(told.error.hint)}"
        return
    yield from _format_rejected_sources(told)
    yield from _format_duplicates(told)
    if told.latest is None:
        yield f"{told.version} has no snapshot yet: nothing was appended"
        return
    for held in told.blocked:
        if held.snapshot.rejected:
            yield f"{held.snapshot} was rejected: {_format_reason(held)}"
    waiting = [held for held in told.blocked if not held.snapshot.rejected]
    if not waiting:
        return
    last = waiting[-1]
    yield f"{last.snapshot} is not published:"
    for obstacle in last.blockers:
        yield f"  {_format_blocker(obstacle)}"
    earlier = len(waiting) - 1
    if earlier:
        yield f"  ({format_count(earlier, 'older snapshot')} not published either)"
    yield from _format_hints(told, last)


def _format_rejected_sources(told: VersionStatus) -> Iterator[str]:
    """List the rejected sources that are open, and how to retry or dismiss them."""
    rejected = told.sources.rejected
    if not rejected:
        return
    yield f"{told.version} rejected {format_count(len(rejected), 'source')}:"
    for one in rejected[:_SHOWN_SOURCES]:
        since = f"entry {one.entry}, {format_time(one.time)} UTC"
        since += "" if one.snapshot is None else f", with snapshot {one.snapshot}"
        name = format_source(one.source)
        reason = escape_text(" ".join(map(str.strip, one.reason.splitlines())))
        for prefix in (name, one.source.label):
            reason = reason.removeprefix(f"{prefix}: ")
        yield f"  {name} ({since})" + (f": {reason}" if reason else "")
    if len(rejected) > _SHOWN_SOURCES:
        yield f"  … and {len(rejected) - _SHOWN_SOURCES:,} more; --json lists all"
    yield f"hint: {render_hint(Hint.join(', or ', _list_remedies(told.version, rejected[0])))}"


def _list_remedies(version: str, rejected: RejectedSource) -> Iterator[Hint]:
    """Return how to append a rejected source after all, and how to dismiss it."""
    name = get_source_argument(rejected.source)
    if rejected.code == ChangedSourceError.code:
        replace = Command.of("append", version, name, "--on-changed", "replace")
        yield Hint.of("to replace its records run ", replace)
    elif rejected.source.path is not None:
        yield Hint.of("to retry run ", Command.of("append", version, name, "--retry-rejected"))
    yield Hint.of("to leave it out run ", Command.of("dismiss", version, name))


def _format_duplicates(told: VersionStatus) -> Iterator[str]:
    """Warn of files that were skipped, since their content had landed."""
    duplicates = told.sources.duplicates
    if not duplicates:
        return
    yield f"warning: {told.version} skipped {format_count(len(duplicates), 'duplicate')}:"
    for one in duplicates[:_SHOWN_SOURCES]:
        where = "" if one.first_entry is None else f" (entry {one.first_entry})"
        yield f"  {format_source(one.source)}: same content as {escape_text(one.first)}{where}"
    if len(duplicates) > _SHOWN_SOURCES:
        yield f"  … and {len(duplicates) - _SHOWN_SOURCES:,} more; --json lists all"
    again = (
        "append",
        told.version,
        get_source_argument(duplicates[0].source),
        "--on-duplicate",
        "append",
    )
    retry = Hint.of("to append it nevertheless run ", Command.of(*again))
    dismissal = Hint.of(
        "to leave out all run ", Command.of("dismiss", told.version, "--duplicates")
    )
    yield f"hint: {render_hint(Hint.join(', or ', [retry, dismissal]))}"


def _format_reason(held: BlockedSnapshot) -> str:
    told = [
        escape_text(one.detail) for one in held.blockers if one.kind == "rejected" and one.detail
    ]
    return told[0] if told else "no reason was told"


def _format_blocker(obstacle: Blocker) -> str:
    check = escape_text(obstacle.check)
    on = f" on {format_count(obstacle.shards, 'shard')}" if obstacle.shards else ""
    if obstacle.kind == "missing":
        return f"{check} has not been run{on}"
    detail = f": {escape_text(obstacle.detail)}" if obstacle.detail else ""
    if obstacle.kind == "failed":
        return f"{check} failed{on}{detail}"
    return escape_text(obstacle.detail)


def _recreate_command(newest: StoredSnapshot) -> str:
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import get_repair_command, list_corrupt_shards

    version = StoredVersion(newest.store, newest.version)
    command = get_repair_command(version, list_corrupt_shards(version))
    return render_command(command) if command else ""


def _format_hints(told: VersionStatus, held: BlockedSnapshot) -> Iterator[str]:
    missing = {one.check for one in held.blockers if one.kind == "missing"}
    failed = {one.check for one in held.blockers if one.kind == "failed"}
    if (missing | failed) & _ENGINE_CHECKS:
        again = " again" if failed & _ENGINE_CHECKS else ""
        yield f"  To check it{again}: {render_next_command('check', str(held.snapshot))}"
    if missing - _ENGINE_CHECKS:
        others = escape_text(format_list(sorted(missing - _ENGINE_CHECKS)))
        yield f"  Not run by this command: {others}; execute the checks of its asset in Dagster"
    if "integrity" in failed and (command := _recreate_command(held.snapshot)):
        yield f"  To make anew what is damaged: {command}"
    if failed and told.published is not None:
        yield f"  To go back: {render_next_command('restore', str(told.published))}"
