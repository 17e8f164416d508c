"""`shardline status`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import print_hint, render_hint, serialize_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table, format_source, get_source_argument
from shardline.cli.references import open_root, parse_version, raise_not_found
from shardline.errors import ChangedSourceError, CorruptLogError, UnknownFormatError
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_bytes, format_count, format_list, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.operations.rejected_sources import RejectedSource
    from shardline.operations.status import BlockedSnapshot, Blocker, VersionStatus
    from shardline.storage import Store

_ENGINE_CHECKS = frozenset({"integrity", "schema"})
_SHOWN_SOURCES = 5


@dataclass(frozen=True, slots=True)
class _UnreadableVersion:
    """A version whose log cannot be read."""

    version: str
    error: CorruptLogError | UnknownFormatError


@click.command(
    epilog="""\b
Examples:
  shardline status                         every dataset in the root
  shardline status digits                  every version of a dataset
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
    statuses = [_read_status(store, version) for version in _list_versions(store, name)]
    ok = not any(isinstance(status, _UnreadableVersion) for status in statuses)
    if as_json:
        versions = [_serialize_status(status) for status in statuses]
        click.echo(json.dumps({"ok": ok, "root": store.uri, "versions": versions}))
    elif statuses:
        _print_statuses(statuses)
    else:
        click.echo(f"no datasets in {escape_text(store.uri)}")
        if {"shards", "log"} & set(store.folders("")):
            print_hint("this is a dataset; its root is the parent folder")
    raise SystemExit(0 if ok else 1)


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


def _serialize_status(status: VersionStatus | _UnreadableVersion) -> dict[str, Any]:
    if isinstance(status, _UnreadableVersion):
        hint = None if status.error.hint is None else serialize_hint(status.error.hint)
        return {"version": status.version, "error": status.error.message, "hint": hint}
    return status.to_dict()


def _print_statuses(statuses: list[VersionStatus | _UnreadableVersion]) -> None:
    numbers = ("latest", "published", "records", "bytes", "shards")
    table = Table("version", *numbers, "tags", right=numbers, wide="tags")
    for status in statuses:
        if isinstance(status, _UnreadableVersion):
            table.add_row(status.version, "?", "?")
            continue
        latest = status.latest
        table.add_row(
            status.version,
            f"{latest.number}" if latest else "-",
            f"{status.published.number}" if status.published else "-",
            f"{latest.records:,}" if latest else "",
            format_bytes(latest.bytes) if latest else "",
            f"{latest.totals.shards:,}" if latest else "",
            ", ".join(f"{escape_text(tag)} → {number}" for tag, number in status.tags.items()),
        )
    table.print()
    for status in statuses:
        lines = list(_format_remarks(status))
        if lines:
            click.echo("\n" + "\n".join(lines))


def _format_remarks(status: VersionStatus | _UnreadableVersion) -> Iterator[str]:
    """Yield what blocks the snapshots of a version, and what to do about it."""
    if isinstance(status, _UnreadableVersion):
        yield escape_text(status.error.message)
        if status.error.hint:
            yield f"hint: {render_hint(status.error.hint)}"
        return
    yield from _format_rejected_sources(status)
    yield from _format_duplicates(status)
    if status.latest is None:
        yield f"{status.version} has no snapshot yet: nothing was appended"
        return
    for blocked in status.blocked:
        if blocked.snapshot.rejected:
            yield f"{blocked.snapshot} was rejected: {_format_rejection(blocked)}"
    pending = [blocked for blocked in status.blocked if not blocked.snapshot.rejected]
    if not pending:
        return
    last = pending[-1]
    yield f"{last.snapshot} is not published:"
    for blocker in last.blockers:
        yield f"  {_format_blocker(blocker)}"
    if len(pending) > 1:
        yield f"  ({format_count(len(pending) - 1, 'older snapshot')} not published either)"
    for hint in _list_hints(status, last):
        yield f"hint: {render_hint(hint)}"


def _format_rejected_sources(status: VersionStatus) -> Iterator[str]:
    """Yield the open rejected sources, and how to retry or dismiss them."""
    rejected = status.sources.rejected
    if not rejected:
        return
    yield f"{status.version} rejected {format_count(len(rejected), 'source')}:"
    for source in rejected[:_SHOWN_SOURCES]:
        since = f"entry {source.entry}, {format_time(source.time)} UTC"
        since += "" if source.snapshot is None else f", with snapshot {source.snapshot}"
        name = format_source(source.source)
        reason = escape_text(" ".join(map(str.strip, source.reason.splitlines())))
        for prefix in (name, source.source.label):
            reason = reason.removeprefix(f"{prefix}: ")
        yield f"  {name} ({since})" + (f": {reason}" if reason else "")
    if len(rejected) > _SHOWN_SOURCES:
        yield f"  … and {len(rejected) - _SHOWN_SOURCES:,} more; --json lists all"
    yield f"hint: {render_hint(Hint.join(', or ', _list_remedies(status.version, rejected[0])))}"


def _list_remedies(version: str, rejected: RejectedSource) -> Iterator[Hint]:
    """Yield the hints to append a rejected source after all, and to dismiss it."""
    name = get_source_argument(rejected.source)
    if rejected.code == ChangedSourceError.code:
        replace = Command.of("append", version, name, "--on-changed", "replace")
        yield Hint.of("to replace its records, run ", replace)
    elif rejected.source.path is not None:
        yield Hint.of("to retry, run ", Command.of("append", version, name, "--retry-rejected"))
    yield Hint.of("to dismiss it, run ", Command.of("dismiss", version, name))


def _format_duplicates(status: VersionStatus) -> Iterator[str]:
    """Yield a warning of files that were skipped for their known content."""
    duplicates = status.sources.duplicates
    if not duplicates:
        return
    yield f"warning: {status.version} skipped {format_count(len(duplicates), 'duplicate')}:"
    for duplicate in duplicates[:_SHOWN_SOURCES]:
        entry = "" if duplicate.first_entry is None else f" (entry {duplicate.first_entry})"
        first = f"{escape_text(duplicate.first)}{entry}"
        yield f"  {format_source(duplicate.source)}: same content as {first}"
    if len(duplicates) > _SHOWN_SOURCES:
        yield f"  … and {len(duplicates) - _SHOWN_SOURCES:,} more; --json lists all"
    source = get_source_argument(duplicates[0].source)
    append = Command.of("append", status.version, source, "--on-duplicate", "append")
    dismiss = Command.of("dismiss", status.version, "--duplicates")
    hint = Hint.of("to append it anyway, run ", append, ", or to dismiss all, run ", dismiss)
    yield f"hint: {render_hint(hint)}"


def _format_rejection(blocked: BlockedSnapshot) -> str:
    reasons = (blocker.detail for blocker in blocked.blockers if blocker.kind == "rejected")
    return escape_text(next(filter(None, reasons), "no reason recorded"))


def _format_blocker(blocker: Blocker) -> str:
    check = escape_text(blocker.check)
    shards = f" on {format_count(blocker.shards, 'shard')}" if blocker.shards else ""
    if blocker.kind == "missing":
        return f"{check} has not been run{shards}"
    detail = f": {escape_text(blocker.detail)}" if blocker.detail else ""
    if blocker.kind == "failed":
        return f"{check} failed{shards}{detail}"
    return escape_text(blocker.detail)


def _list_hints(status: VersionStatus, blocked: BlockedSnapshot) -> Iterator[Hint]:
    """Yield how to publish a blocked snapshot, or to go back."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import get_repair_command, list_corrupt_shards

    missing = {blocker.check for blocker in blocked.blockers if blocker.kind == "missing"}
    failed = {blocker.check for blocker in blocked.blockers if blocker.kind == "failed"}
    if (missing | failed) & _ENGINE_CHECKS:
        again = " again" if failed & _ENGINE_CHECKS else ""
        yield Hint.of(f"to check it{again}, run ", Command.of("check", str(blocked.snapshot)))
    if missing - _ENGINE_CHECKS:
        others = format_list(sorted(missing - _ENGINE_CHECKS))
        yield Hint.of(f"to run {others}, execute the checks of its asset in Dagster")
    if "integrity" in failed:
        version = StoredVersion(blocked.snapshot.store, status.version)
        command = get_repair_command(version, list_corrupt_shards(version))
        if command is not None:
            yield Hint.of("to recreate the corrupt shards, run ", command)
    if failed and status.published is not None:
        restore = Command.of("restore", str(status.published))
        yield Hint.of("to go back to the published snapshot, run ", restore)
