"""A check of a snapshot, as every command tells it that runs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import render_command
from shardline.cli.output import shard_report_json, snapshot_json
from shardline.cli.progress import byte_progress
from shardline.cli.references import next_command
from shardline.text import counted, escaped, human_bytes, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.check import CheckReport
    from shardline.operations.inspect_shard import ShardReport
    from shardline.tfrecord import Limits


_SHOWN_SHARDS = 20


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found, and how the snapshot and its version stand after it."""

    report: CheckReport
    after: StoredSnapshot
    newest: StoredSnapshot

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return self.report.ok


def check_snapshot(
    version: StoredVersion,
    number: int,
    *,
    again: bool = False,
    limits: Limits,
    workers: int | None = None,
) -> Checked:
    """Check a snapshot, with a progress bar."""
    from shardline.operations.check import check_version, shards_to_check

    snapshot = version.snapshot(number)
    total = sum(s.shard.bytes for s in shards_to_check(version, snapshot, again=again))
    with byte_progress("checking", total) as progress:
        report = check_version(
            version,
            str(number),
            again=again,
            limits=limits,
            workers=workers,
            progress=lambda shard, position: progress(shard.name, position),
        )
    return checked_by(version, report)


def checked_by(version: StoredVersion, report: CheckReport) -> Checked:
    """What a check found, with its snapshot and its version as they stand now."""
    return Checked(report, version.snapshot(report.snapshot.number), version.newest())


def checked_json(checked: Checked) -> dict[str, Any]:
    """What a check found, for machines."""
    report = checked.report
    return {
        "ok": report.ok,
        "snapshot": snapshot_json(checked.after),
        "shards": [shard_report_json(shard) for shard in report.shards],
        "missing": list(report.missing),
        "failed": list(report.failed),
        "rejected": list(report.rejected),
        "newest": checked.newest.number,
        "published": report.published,
    }


def print_checked(checked: Checked) -> None:
    """What a check found, for people."""
    report, after = checked.report, checked.after
    failed = [shard for shard in report.shards if not shard.ok]
    for shard in failed[:_SHOWN_SHARDS]:
        _print_failure(shard)
    if len(failed) > _SHOWN_SHARDS:
        click.echo(f"… and {counted(len(failed) - _SHOWN_SHARDS, 'more shard')}; --json lists all")
    before = after.totals.shards - len(report.shards)
    if report.shards or not before:
        size = human_bytes(sum(shard.shard.bytes for shard in report.shards))
        passed = f"; {before:,} had passed before" if before else ""
        read = counted(len(report.shards), "shard")
        click.echo(f"{after}: {read} checked ({size}), {len(failed)} failed{passed}")
    else:
        click.echo(f"{after}: nothing to check, {counted(before, 'shard')} passed before")
        click.echo(f"To check them again: {next_command('check', f'{after}', '--again')}")
    if report.failed:
        click.echo(f"{escaped(listed(report.failed))} failed when it was last run")
    if report.missing:
        click.echo(
            f"still missing: {escaped(listed(report.missing))}, which this command cannot run; "
            "whoever runs it writes down the result with Version.attest"
        )
    _print_outcome(checked)


def _print_failure(report: ShardReport) -> None:
    mark = click.style("FAILED", fg="red")
    click.echo(f"{mark} {report.name}")
    for line in failure_lines(report):
        click.echo(f"       {line}")


def failure_lines(report: ShardReport) -> Iterator[str]:
    """What is wrong with a shard, line by line."""
    yield from map(escaped, report.problems)
    for one in report.violations:
        feature = "" if one.feature is None else f", feature {one.feature!r}"
        yield f"record {one.record}{feature}: {escaped(one.detail)}"
    if report.violations and not report.complete:
        yield f"… at least {counted(len(report.violations), 'violation')}"


def _making_anew(checked: Checked) -> str:
    """What makes damaged shards of the newest snapshot anew: a repair, or what derived them."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import command_to_mend

    newest = checked.newest
    held = {shard.name for shard in newest.shards}
    bad = [one.shard for one in checked.report.shards if one.problems and one.shard.name in held]
    if not bad:
        return ""
    command = command_to_mend(StoredVersion(newest.store, newest.version), bad)
    return render_command(command) if command else ""


def _print_outcome(checked: Checked) -> None:
    report, after = checked.report, checked.after
    if report.rejected:
        snapshots = listed(str(number) for number in report.rejected)
        plural = "s" if len(report.rejected) > 1 else ""
        click.echo(
            f"rejected snapshot{plural} {snapshots}; without what came with it, the newest is "
            f"{checked.newest}"
        )
    elif not all(shard.ok for shard in report.shards):
        click.echo(
            "nothing was rejected: what failed had passed before, or had been rejected already"
        )
        if command := _making_anew(checked):
            click.echo(f"To make anew what is damaged: {command}")
    if after.published:
        click.echo(f"{after} is published")
    elif not after.totals.shards:
        click.echo(f"{after} holds no shards, and is not published for that")
    else:
        click.echo(f"{after} is {'rejected' if after.rejected else 'not published'}")
        if after.rejected and report.ok:
            click.echo(f"To bring it back: {next_command('restore', f'{after}')}")
    if not after.published or report.published != after.number:
        newest_good = f"{after.version}@{report.published}" if report.published else "none"
        click.echo(f"the newest published snapshot: {newest_good}")


def print_outcome(
    into: StoredVersion, snapshot: int | None, checked: Checked | None, *, plain: bool
) -> None:
    """The end of work on a version: which snapshot it made, and whether that is of plain files."""
    if snapshot is None:
        newest = into.newest()
        if not newest.published:
            status = next_command("status", into.name)
            click.echo(f"{newest} is not published. To see why: {status}")
        return
    if checked is None:
        check = next_command("check", f"{into.name}@{snapshot}")
        click.echo(f"To check it, and so publish it: {check}")
        return
    print_checked(checked)
    if not checked.after.published:
        return
    if plain:
        click.echo(f"To read it: {next_command('files', into.name)}")
        return
    click.echo(f"To look at it: {next_command('head', into.name)}")
    # In a version of their own: the next extension would put the overlays back into this one.
    plain_one = next_command("rebuild", into.name, "--into", f"{into.log.version}-plain")
    click.echo(f"To make plain files of it: {plain_one}")
