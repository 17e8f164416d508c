"""`shardline status`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import hint_dict, render_command, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import (
    plain_console,
    plain_table,
    shown_source,
    snapshot_json,
    source_name,
)
from shardline.cli.references import (
    next_command,
    open_root,
    parse_version,
    refuse_missing,
)
from shardline.errors import ChangedSourceError, DamagedLogError, UnknownFormatError
from shardline.hints import Command, Hint
from shardline.text import counted, escaped, human_bytes, listed, when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.rejected_sources import RejectedSource
    from shardline.operations.status import Held, Obstacle, VersionStatus
    from shardline.storage import Store

_RUN_HERE = frozenset({"integrity", "schema"})
_SHOWN_SOURCES = 5


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A version whose log cannot be read, and why."""

    version: str
    error: DamagedLogError | UnknownFormatError


@click.command(
    short_help="Tell how datasets stand: what is published, what is not, and why.",
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
    """Tell how datasets stand: what is published, what is not, and why.

    Records, bytes and shards are those of the newest snapshot. A snapshot is published when every
    check has passed on it; readers get the newest published one. Exits with 0 also when something
    waits or was rejected, and with 1 if a log cannot be read.
    """
    store = open_root(root)
    told = [_status(store, version) for version in _versions(store, name)]
    unreadable = [one for one in told if isinstance(one, _Unreadable)]
    if as_json:
        versions = [_as_dict(one) for one in told]
        click.echo(json.dumps({"ok": not unreadable, "root": store.uri, "versions": versions}))
    elif told:
        _print(told)
    else:
        inside = {"shards", "log"} & set(store.folders(""))
        hint = ": this is the inside of a dataset, and the root is a folder above" if inside else ""
        click.echo(f"no datasets in {escaped(store.uri)}{hint}")
    raise SystemExit(1 if unreadable else 0)


def _versions(store: Store, name: str | None) -> Iterator[str]:
    from shardline.provenance.catalog import find_datasets, find_versions
    from shardline.storage import check_name

    if name is not None and "/" in name:
        yield parse_version(name).version
        return
    for dataset in find_datasets(store) if name is None else [check_name(name, "dataset")]:
        versions = find_versions(store, dataset)
        if not versions:
            refuse_missing(store, dataset)
        for version in versions:
            yield f"{dataset}/{version}"


def _status(store: Store, name: str) -> VersionStatus | _Unreadable:
    from shardline.log.version import StoredVersion
    from shardline.operations.status import status_of

    version = StoredVersion(store, name)
    try:
        if not version.exists:
            refuse_missing(store, name)
        return status_of(version)
    except (DamagedLogError, UnknownFormatError) as error:
        return _Unreadable(name, error)


def _as_dict(told: VersionStatus | _Unreadable) -> dict[str, Any]:
    if isinstance(told, _Unreadable):
        hint = None if told.error.hint is None else hint_dict(told.error.hint)
        return {"version": told.version, "error": told.error.message, "hint": hint}
    return {
        "version": told.version,
        "entries": told.entries,
        "newest": told.newest and snapshot_json(told.newest),
        "published": told.published and snapshot_json(told.published),
        "tags": told.tags,
        "pins": told.pins,
        "checks": list(told.checks),
        "held": [
            {
                "snapshot": held.snapshot.number,
                "rejected": held.snapshot.rejected,
                "obstacles": [asdict(obstacle) for obstacle in held.obstacles],
            }
            for held in told.held
        ],
        "rejected_sources": [one.to_dict() for one in told.sources.rejected],
        "duplicates": [one.to_dict() for one in told.sources.duplicates],
    }


def _print(told: list[VersionStatus | _Unreadable]) -> None:
    numbers = ("newest", "published", "records", "bytes", "shards")
    table = plain_table("version", *numbers, "tags", right=numbers, wide="tags")
    for one in told:
        if isinstance(one, _Unreadable):
            table.add_row(one.version, "?", "?")
            continue
        newest = one.newest
        table.add_row(
            one.version,
            f"{newest.number}" if newest else "-",
            f"{one.published.number}" if one.published else "-",
            f"{newest.records:,}" if newest else "",
            human_bytes(newest.bytes) if newest else "",
            f"{newest.totals.shards:,}" if newest else "",
            ", ".join(f"{escaped(tag)} → {number}" for tag, number in one.tags.items()),
        )
    plain_console().print(table)
    for one in told:
        lines = list(_remarks(one))
        if lines:
            click.echo("\n" + "\n".join(lines))


def _remarks(told: VersionStatus | _Unreadable) -> Iterator[str]:
    """What keeps a version's snapshots from being published, and what to do about it."""
    if isinstance(told, _Unreadable):
        yield escaped(told.error.message)
        if told.error.hint:
            yield f"hint: {render_hint(told.error.hint)}"
        return
    yield from _rejected_sources(told)
    yield from _duplicates(told)
    if told.newest is None:
        yield f"{told.version} has no snapshot yet: nothing was appended"
        return
    for held in told.held:
        if held.snapshot.rejected:
            yield f"{held.snapshot} was rejected: {_reason(held)}"
    waiting = [held for held in told.held if not held.snapshot.rejected]
    if not waiting:
        return
    last = waiting[-1]
    yield f"{last.snapshot} is not published:"
    for obstacle in last.obstacles:
        yield f"  {_worded(obstacle)}"
    earlier = len(waiting) - 1
    if earlier:
        yield f"  ({counted(earlier, 'older snapshot')} not published either)"
    yield from _advice(told, last)


def _rejected_sources(told: VersionStatus) -> Iterator[str]:
    """List the rejected sources that are open, and how to retry or dismiss them."""
    rejected = told.sources.rejected
    if not rejected:
        return
    yield f"{told.version} rejected {counted(len(rejected), 'source')}:"
    for one in rejected[:_SHOWN_SOURCES]:
        since = f"entry {one.entry}, {when(one.time)} UTC"
        since += "" if one.snapshot is None else f", with snapshot {one.snapshot}"
        name = shown_source(one.source)
        reason = escaped(" ".join(map(str.strip, one.reason.splitlines())))
        for prefix in (name, one.source.shown):
            reason = reason.removeprefix(f"{prefix}: ")
        yield f"  {name} ({since})" + (f": {reason}" if reason else "")
    if len(rejected) > _SHOWN_SOURCES:
        yield f"  … and {len(rejected) - _SHOWN_SOURCES:,} more; --json lists all"
    yield f"hint: {render_hint(Hint.join(', or ', _remedies(told.version, rejected[0])))}"


def _remedies(version: str, rejected: RejectedSource) -> Iterator[Hint]:
    """Return how to append a rejected source after all, and how to dismiss it."""
    name = source_name(rejected.source)
    if rejected.code == ChangedSourceError.code:
        replace = Command.of("append", version, name, "--on-changed", "replace")
        yield Hint.of("to replace its records run ", replace)
    elif rejected.source.path is not None:
        yield Hint.of("to retry run ", Command.of("reland", version, name))
    yield Hint.of("to leave it out run ", Command.of("dismiss", version, name))


def _duplicates(told: VersionStatus) -> Iterator[str]:
    """Warn of files that were skipped, since their content had landed."""
    duplicates = told.sources.duplicates
    if not duplicates:
        return
    yield f"warning: {told.version} skipped {counted(len(duplicates), 'duplicate')}:"
    for one in duplicates[:_SHOWN_SOURCES]:
        where = "" if one.landed is None else f" (entry {one.landed})"
        yield f"  {shown_source(one.source)}: same content as {escaped(one.first)}{where}"
    if len(duplicates) > _SHOWN_SOURCES:
        yield f"  … and {len(duplicates) - _SHOWN_SOURCES:,} more; --json lists all"
    again = ("append", told.version, source_name(duplicates[0].source), "--on-duplicate", "append")
    retry = Hint.of("to append it nevertheless run ", Command.of(*again))
    dismissal = Hint.of(
        "to leave out all run ", Command.of("dismiss", told.version, "--duplicates")
    )
    yield f"hint: {render_hint(Hint.join(', or ', [retry, dismissal]))}"


def _reason(held: Held) -> str:
    told = [escaped(one.detail) for one in held.obstacles if one.what == "rejected" and one.detail]
    return told[0] if told else "no reason was told"


def _worded(obstacle: Obstacle) -> str:
    check = escaped(obstacle.check)
    on = f" on {counted(obstacle.shards, 'shard')}" if obstacle.shards else ""
    if obstacle.what == "missing":
        return f"{check} has not been run{on}"
    detail = f": {escaped(obstacle.detail)}" if obstacle.detail else ""
    if obstacle.what == "failed":
        return f"{check} failed{on}{detail}"
    return escaped(obstacle.detail)


def _making_anew(newest: StoredSnapshot) -> str:
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import command_to_mend, known_damaged

    version = StoredVersion(newest.store, newest.version)
    command = command_to_mend(version, known_damaged(version))
    return render_command(command) if command else ""


def _advice(told: VersionStatus, held: Held) -> Iterator[str]:
    missing = {one.check for one in held.obstacles if one.what == "missing"}
    failed = {one.check for one in held.obstacles if one.what == "failed"}
    if (missing | failed) & _RUN_HERE:
        again = " again" if failed & _RUN_HERE else ""
        yield f"  To check it{again}: {next_command('check', str(held.snapshot))}"
    if missing - _RUN_HERE:
        others = escaped(listed(sorted(missing - _RUN_HERE)))
        yield f"  Not run by this command: {others}; execute the checks of its asset in Dagster"
    if "integrity" in failed and (command := _making_anew(held.snapshot)):
        yield f"  To make anew what is damaged: {command}"
    if failed and told.published is not None:
        yield f"  To go back: {next_command('restore', str(told.published))}"
