"""Checks of snapshots and their output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import print_hint
from shardline.cli.progress import show_byte_progress
from shardline.hints import Command
from shardline.text import escape_text, format_bytes, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.cli.options import WriteOptions
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.check import CheckReport
    from shardline.operations.derive import DeriveReport
    from shardline.operations.inspect_shard import ShardReport
    from shardline.tfrecord import Limits


_MAX_SHARDS = 20


@dataclass(frozen=True, slots=True)
class SnapshotCheck:
    """Report of a check, with its snapshot and the latest snapshot after the check."""

    report: CheckReport
    snapshot: StoredSnapshot
    latest: StoredSnapshot

    @property
    def ok(self) -> bool:
        """Return True if no check failed."""
        return self.report.ok


def check_snapshot(
    version: StoredVersion,
    number: int,
    *,
    recheck: bool = False,
    limits: Limits,
    workers: int | None = None,
) -> SnapshotCheck:
    """Check a snapshot, with a progress bar."""
    from shardline.operations.check import check_version, list_shards_to_check

    snapshot = version.snapshot(number)
    total = sum(s.shard.bytes for s in list_shards_to_check(version, snapshot, recheck=recheck))
    with show_byte_progress("checking", total) as progress:
        report = check_version(
            version,
            str(number),
            recheck=recheck,
            limits=limits,
            workers=workers,
            progress=lambda shard, position: progress(shard.name, position),
        )
    return get_snapshot_check(version, report)


def check_new_snapshot(
    version: StoredVersion, number: int | None, options: WriteOptions
) -> SnapshotCheck | None:
    """Check the snapshot that a command wrote, unless the options say not to."""
    if number is None or options.no_check:
        return None
    return check_snapshot(version, number, limits=options.limits, workers=options.workers)


def get_snapshot_check(version: StoredVersion, report: CheckReport) -> SnapshotCheck:
    """Return a check report with the current state of its snapshot and version."""
    return SnapshotCheck(report, version.snapshot(report.snapshot.number), version.latest())


def serialize_derived(
    report: DeriveReport, into: StoredVersion, check: SnapshotCheck | None, seconds: float
) -> dict[str, Any]:
    """Return the report of a derived version as JSON, with its new snapshot and the check."""
    snapshot = None if report.snapshot is None else into.snapshot(report.snapshot)
    return {
        "ok": check is None or check.ok,
        "dry_run": False,
        **report.to_dict(),
        "snapshot": snapshot and snapshot.to_dict(),
        "seconds": round(seconds, 6),
        "check": None if check is None else serialize_check(check),
        "published": snapshot is not None and snapshot.published,
    }


def serialize_check(check: SnapshotCheck) -> dict[str, Any]:
    """Return the report of a check as JSON, with the state of the snapshot after it."""
    return {
        **check.report.to_dict(),
        "snapshot": check.snapshot.to_dict(),
        "latest": check.latest.number,
    }


def print_check(check: SnapshotCheck) -> None:
    """Print failed shards, counts and whether the snapshot is published."""
    report, snapshot = check.report, check.snapshot
    failed = [shard for shard in report.shards if not shard.ok]
    for shard in failed[:_MAX_SHARDS]:
        _print_failure(shard)
    if len(failed) > _MAX_SHARDS:
        click.echo(
            f"… and {format_count(len(failed) - _MAX_SHARDS, 'more shard')}; --json lists all"
        )
    passed = snapshot.totals.shards - len(report.shards)
    if report.shards or not passed:
        size = format_bytes(sum(shard.shard.bytes for shard in report.shards))
        suffix = f", {passed:,} passed before" if passed else ""
        count = format_count(len(report.shards), "shard")
        click.echo(f"{snapshot}: {count} checked ({size}), {len(failed)} failed{suffix}")
    else:
        click.echo(f"{snapshot}: nothing to check, {format_count(passed, 'shard')} passed before")
        print_hint("to check all shards, run ", Command.of("check", f"{snapshot}", "--recheck"))
    if report.failed:
        click.echo(f"failed in the last run: {escape_text(format_list(report.failed))}")
    if report.missing:
        click.echo(f"missing results: {escape_text(format_list(report.missing))}")
        print_hint("to record a result, call `Version.attest` where the check runs")
    _print_publication(check)


def _print_failure(report: ShardReport) -> None:
    mark = click.style("FAILED", fg="red")
    click.echo(f"{mark} {report.name}")
    for line in format_failures(report):
        click.echo(f"       {line}")


def format_failures(report: ShardReport) -> Iterator[str]:
    """Yield the problems and violations of a shard, one per line."""
    yield from map(escape_text, report.problems)
    for violation in report.violations:
        feature = "" if violation.feature is None else f", feature {violation.feature!r}"
        yield f"record {violation.record}{feature}: {escape_text(violation.detail)}"
    if report.violations and not report.complete:
        yield f"… at least {format_count(len(report.violations), 'violation')}"


def _get_recreate_command(check: SnapshotCheck) -> Command | None:
    """Return the command that recreates corrupt shards of the latest snapshot, if known."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import get_repair_command

    latest = check.latest
    names = {shard.name for shard in latest.shards}
    corrupt = [
        report.shard
        for report in check.report.shards
        if report.problems and report.shard.name in names
    ]
    if not corrupt:
        return None
    return get_repair_command(StoredVersion(latest.store, latest.version), corrupt)


def _print_publication(check: SnapshotCheck) -> None:
    report, snapshot = check.report, check.snapshot
    if report.rejected:
        snapshots = format_list(str(number) for number in report.rejected)
        plural = "s" if len(report.rejected) > 1 else ""
        click.echo(f"rejected snapshot{plural} {snapshots}, the latest is {check.latest}")
    elif not all(shard.ok for shard in report.shards):
        click.echo("rejected nothing: the failed shards passed before, or were rejected already")
        if command := _get_recreate_command(check):
            print_hint("to recreate the corrupt shards, run ", command)
    if snapshot.published:
        click.echo(f"{snapshot} is published")
    elif not snapshot.totals.shards:
        click.echo(f"{snapshot} is not published: it has no shards")
    else:
        click.echo(f"{snapshot} is {'rejected' if snapshot.rejected else 'not published'}")
        if snapshot.rejected and report.ok:
            print_hint("to restore it, run ", Command.of("restore", f"{snapshot}"))
    if not snapshot.published or report.published != snapshot.number:
        published = f"{snapshot.version}@{report.published}" if report.published else "none"
        click.echo(f"latest published snapshot: {published}")


def print_next_steps(
    into: StoredVersion, snapshot: int | None, check: SnapshotCheck | None, *, plain: bool
) -> None:
    """Print the check of a derived snapshot, and the commands to run next.

    `plain` means that the shards are plain TFRecord files.
    """
    if snapshot is None:
        if not (latest := into.latest()).published:
            print_unpublished(latest)
        return
    if check is None:
        print_check_command(f"{into.name}@{snapshot}")
        return
    print_check(check)
    if not check.snapshot.published:
        return
    if plain:
        print_files_command(into.name)
        return
    print_hint("to show records, run ", Command.of("head", into.name))
    # To another version: the next extension would put the overlays back into this one.
    rebuild = Command.of("rebuild", into.name, "--into", f"{into.log.version}-plain")
    print_hint("to write plain files, run ", rebuild)


def print_unpublished(snapshot: StoredSnapshot) -> None:
    """Print that a snapshot is not published, and the command that shows the reason."""
    click.echo(f"{snapshot} is not published")
    print_hint("to see why, run ", Command.of("status", snapshot.version))


def print_check_command(snapshot: str) -> None:
    """Print the command that checks and publishes a snapshot."""
    print_hint("to check and publish it, run ", Command.of("check", snapshot))


def print_files_command(version: str) -> None:
    """Print the command that lists the files to read."""
    print_hint("to list its files, run ", Command.of("files", version))
