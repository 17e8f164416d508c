"""`shardline check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.json_forms import shard_report_json, snapshot_json
from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.progress import byte_progress
from shardline.cli.references import (
    find_snapshot,
    next_command,
    open_root,
    open_version,
    parse_reference,
)
from shardline.cli.wording import counted, escaped, human_bytes, listed

if TYPE_CHECKING:
    from shardline.log.snapshot import Snapshot
    from shardline.operations.check import CheckReport
    from shardline.operations.inspect import ShardReport

_SHOWN_SHARDS = 20


@click.command(
    short_help="Check a snapshot, and so publish or reject it.",
    epilog="""\b
Examples:
  shardline check digits/v1                check what is new; publish it
  shardline check digits/v1@7 --again      read every shard once more
  shardline status digits/v1               what is published, and what is not

SNAPSHOT is a number, a tag, 'published', 'newest' (the default) or a time (UTC).

'shardline verify NAME/VERSION' reads as much and writes nothing.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--again", is_flag=True, help="Check also the shards that have passed before.")
@workers_option
@limit_options
@root_option
@json_option
def check(
    reference: str,
    *,
    again: bool,
    workers: int | None,
    max_record: int,
    max_unpacked: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Check the shards of a snapshot, and write to the log what was found.

    Each shard must be the file that was committed, byte for byte, and each of its records must fit
    the schema. When all have passed, the snapshot is published. A shard that fails its first check
    has the snapshot that brought it in rejected; one that had passed before stays, and what holds
    it is no longer published. Exits with 1 if a check failed.
    """
    from shardline.operations.check import check_version, shards_to_check

    wanted = parse_reference(reference)
    version = open_version(open_root(root), wanted)
    snapshot = find_snapshot(version, wanted)
    total = sum(s.shard.bytes for s in shards_to_check(version, snapshot, again=again))
    with byte_progress("checking", total) as progress:
        report = check_version(
            version,
            str(snapshot.number),
            again=again,
            limits=limits(max_record, max_unpacked),
            workers=workers,
            progress=lambda shard, position: progress(shard.name, position),
        )
    after = version.snapshot(snapshot.number)
    if as_json:
        click.echo(json.dumps(_as_dict(report, after, version.newest())))
    else:
        _print(report, after, version.newest())
    raise SystemExit(0 if report.ok else 1)


def _as_dict(report: CheckReport, after: Snapshot, newest: Snapshot) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "snapshot": snapshot_json(after),
        "shards": [shard_report_json(shard) for shard in report.shards],
        "missing": list(report.missing),
        "failed": list(report.failed),
        "rejected": list(report.rejected),
        "newest": newest.number,
        "published": report.published,
    }


def _print(report: CheckReport, after: Snapshot, newest: Snapshot) -> None:
    failed = [shard for shard in report.shards if not shard.ok]
    for shard in failed[:_SHOWN_SHARDS]:
        _print_failure(shard)
    if len(failed) > _SHOWN_SHARDS:
        click.echo(f"… and {counted(len(failed) - _SHOWN_SHARDS, 'more shard')}; --json lists all")
    before = after.totals.shards - len(report.shards)
    if report.shards or not before:
        size = human_bytes(sum(shard.shard.bytes for shard in report.shards))
        passed = f"; {before:,} had passed before" if before else ""
        checked = counted(len(report.shards), "shard")
        click.echo(f"{after}: {checked} checked ({size}), {len(failed)} failed{passed}")
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
    _print_outcome(report, after, newest)


def _print_failure(report: ShardReport) -> None:
    mark = click.style("FAILED", fg="red")
    click.echo(f"{mark} {report.name}")
    for problem in report.problems:
        click.echo(f"       {escaped(problem)}")
    for one in report.violations:
        feature = "" if one.feature is None else f", feature {one.feature!r}"
        click.echo(f"       record {one.record}{feature}: {escaped(one.detail)}")


def _print_outcome(report: CheckReport, after: Snapshot, newest: Snapshot) -> None:
    if report.rejected:
        snapshots = listed(str(number) for number in report.rejected)
        plural = "s" if len(report.rejected) > 1 else ""
        click.echo(
            f"rejected snapshot{plural} {snapshots}; without what came with it, the newest is "
            f"{newest}"
        )
    elif not all(shard.ok for shard in report.shards):
        click.echo(
            "nothing was rejected: what failed had passed before, or had been rejected already"
        )
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
