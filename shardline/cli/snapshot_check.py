"""A check of a snapshot, as every command tells it that runs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import render_command
from shardline.cli.progress import show_byte_progress
from shardline.cli.references import render_next_command
from shardline.text import escape_text, format_bytes, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.check import CheckReport
    from shardline.operations.derive import DeriveReport
    from shardline.operations.inspect_shard import ShardReport
    from shardline.tfrecord import Limits


_SHOWN_SHARDS = 20


@dataclass(frozen=True, slots=True)
class SnapshotCheck:
    """What a check found, and how the snapshot and its version stand after it."""

    report: CheckReport
    after: StoredSnapshot
    latest: StoredSnapshot

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
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


def get_snapshot_check(version: StoredVersion, report: CheckReport) -> SnapshotCheck:
    """What a check found, with its snapshot and its version as they stand now."""
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


def serialize_check(checked: SnapshotCheck) -> dict[str, Any]:
    """What a check found, for machines."""
    return {
        **checked.report.to_dict(),
        "snapshot": checked.after.to_dict(),
        "latest": checked.latest.number,
    }


def print_check(checked: SnapshotCheck) -> None:
    """What a check found, for people."""
    report, after = checked.report, checked.after
    failed = [shard for shard in report.shards if not shard.ok]
    for shard in failed[:_SHOWN_SHARDS]:
        _print_failure(shard)
    if len(failed) > _SHOWN_SHARDS:
        click.echo(
            f"… and {format_count(len(failed) - _SHOWN_SHARDS, 'more shard')}; --json lists all"
        )
    before = after.totals.shards - len(report.shards)
    if report.shards or not before:
        size = format_bytes(sum(shard.shard.bytes for shard in report.shards))
        passed = f"; {before:,} had passed before" if before else ""
        read = format_count(len(report.shards), "shard")
        click.echo(f"{after}: {read} checked ({size}), {len(failed)} failed{passed}")
    else:
        click.echo(f"{after}: nothing to check, {format_count(before, 'shard')} passed before")
        click.echo(f"To check them again: {render_next_command('check', f'{after}', '--recheck')}")
    if report.failed:
        click.echo(f"{escape_text(format_list(report.failed))} failed when it was last run")
    if report.missing:
        click.echo(
            f"still missing: {escape_text(format_list(report.missing))}, which this command "
            "cannot run; "
            "whoever runs it writes down the result with Version.attest"
        )
    _print_publication(checked)


def _print_failure(report: ShardReport) -> None:
    mark = click.style("FAILED", fg="red")
    click.echo(f"{mark} {report.name}")
    for line in format_failures(report):
        click.echo(f"       {line}")


def format_failures(report: ShardReport) -> Iterator[str]:
    """What is wrong with a shard, line by line."""
    yield from map(escape_text, report.problems)
    for one in report.violations:
        feature = "" if one.feature is None else f", feature {one.feature!r}"
        yield f"record {one.record}{feature}: {escape_text(one.detail)}"
    if report.violations and not report.complete:
        yield f"… at least {format_count(len(report.violations), 'violation')}"


def _recreate_command(checked: SnapshotCheck) -> str:
    """What makes damaged shards of the newest snapshot anew: a repair, or what derived them."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import get_repair_command

    newest = checked.latest
    held = {shard.name for shard in newest.shards}
    bad = [one.shard for one in checked.report.shards if one.problems and one.shard.name in held]
    if not bad:
        return ""
    command = get_repair_command(StoredVersion(newest.store, newest.version), bad)
    return render_command(command) if command else ""


def _print_publication(checked: SnapshotCheck) -> None:
    report, after = checked.report, checked.after
    if report.rejected:
        snapshots = format_list(str(number) for number in report.rejected)
        plural = "s" if len(report.rejected) > 1 else ""
        click.echo(
            f"rejected snapshot{plural} {snapshots}; without what came with it, the newest is "
            f"{checked.latest}"
        )
    elif not all(shard.ok for shard in report.shards):
        click.echo(
            "nothing was rejected: what failed had passed before, or had been rejected already"
        )
        if command := _recreate_command(checked):
            click.echo(f"To make anew what is damaged: {command}")
    if after.published:
        click.echo(f"{after} is published")
    elif not after.totals.shards:
        click.echo(f"{after} holds no shards, and is not published for that")
    else:
        click.echo(f"{after} is {'rejected' if after.rejected else 'not published'}")
        if after.rejected and report.ok:
            click.echo(f"To bring it back: {render_next_command('restore', f'{after}')}")
    if not after.published or report.published != after.number:
        newest_good = f"{after.version}@{report.published}" if report.published else "none"
        click.echo(f"the newest published snapshot: {newest_good}")


def print_next_steps(
    into: StoredVersion, snapshot: int | None, checked: SnapshotCheck | None, *, plain: bool
) -> None:
    """The end of work on a version: which snapshot it made, and whether that is of plain files."""
    if snapshot is None:
        newest = into.latest()
        if not newest.published:
            status = render_next_command("status", into.name)
            click.echo(f"{newest} is not published. To see why: {status}")
        return
    if checked is None:
        check = render_next_command("check", f"{into.name}@{snapshot}")
        click.echo(f"To check it, and so publish it: {check}")
        return
    print_check(checked)
    if not checked.after.published:
        return
    if plain:
        click.echo(f"To read it: {render_next_command('files', into.name)}")
        return
    click.echo(f"To look at it: {render_next_command('head', into.name)}")
    # In a version of their own: the next extension would put the overlays back into this one.
    plain_one = render_next_command("rebuild", into.name, "--into", f"{into.log.version}-plain")
    click.echo(f"To make plain files of it: {plain_one}")
