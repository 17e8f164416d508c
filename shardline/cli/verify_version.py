"""`shardline verify` of a dataset's snapshot."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.json_forms import shard_report_json, snapshot_json
from shardline.cli.progress import byte_progress
from shardline.cli.references import find_snapshot, next_command, open_root, refuse_missing
from shardline.cli.wording import counted, escaped, human_bytes

if TYPE_CHECKING:
    from shardline.cli.references import Reference
    from shardline.files import Limits
    from shardline.operations.verify_log import LogReport
    from shardline.operations.verify_version import VersionReport

_SHOWN_PROBLEMS = 20


def verify_one(
    root: str | None, reference: Reference, *, quick: bool, limits: Limits, workers: int | None
) -> tuple[VersionReport, float]:
    """Verify what a reference means; gives also how many seconds that took."""
    from shardline.errors import DamagedLogError, VersionMissingError
    from shardline.log.version import Version
    from shardline.operations.verify_version import verify_version

    store = open_root(root)
    version = Version(store, reference.version)
    began = time.perf_counter()
    try:
        total = find_snapshot(version, reference).bytes if version.exists else 0
    except DamagedLogError:
        total = 0  # the report tells what is wrong
    with byte_progress("verifying", 0 if quick else total) as progress:
        try:
            report = verify_version(
                version,
                reference.which,
                quick=quick,
                limits=limits,
                workers=workers,
                progress=lambda shard, position: progress(shard.name, position),
            )
        except VersionMissingError:
            refuse_missing(store, reference.version)
    return report, time.perf_counter() - began


def version_json(reference: Reference, report: VersionReport) -> dict[str, Any]:
    """What was found, for machines."""
    log = report.log
    return {
        "version": reference.version,
        "ok": report.ok,
        "snapshot": report.snapshot and snapshot_json(report.snapshot),
        "log": log
        and {
            "entries": log.entries,
            "checkpoints": log.checkpoints,
            "problems": [asdict(problem) for problem in log.problems],
        },
        "shards": [shard_report_json(shard) for shard in report.shards],
        "vacuumed": list(report.vacuumed),
    }


def print_version(reference: Reference, report: VersionReport, seconds: float) -> None:
    """What was found, for people."""
    if report.log is not None:
        _print_log(reference.version, report.log)
    _print_shards(report)
    snapshot = report.snapshot
    if snapshot is None:
        click.echo(
            f"{reference}: the log is too damaged to tell which shards there are; get the damaged\n"
            "entries back from a copy of the root"
        )
        return
    looked = f"in {seconds:.2f} s"
    if report.log is not None:
        looked += f" ({human_bytes(snapshot.bytes / max(seconds, 1e-9))}/s)"
    gone = len(report.vacuumed)
    damaged = sum(not shard.ok for shard in report.shards) - gone
    click.echo(
        f"{snapshot}: {counted(len(report.shards), 'shard')}, {damaged} damaged"
        f"{f', {gone} gone' if gone else ''}; {counted(snapshot.records, 'record')}, "
        f"{human_bytes(snapshot.bytes)} {looked}"
    )
    if gone:
        click.echo(f"What is gone went to vacuum: nothing kept {snapshot} any longer")
    if damaged:
        command = next_command("check", str(snapshot), "--again")
        click.echo(f"Nothing was changed. To write it to the log, and unpublish it:\n  {command}")
        click.echo(f"To make anew what is damaged:\n  {next_command('repair', snapshot.version)}")


def _print_shards(report: VersionReport) -> None:
    bad = [shard for shard in report.shards if not shard.ok]
    for shard in bad[:_SHOWN_PROBLEMS]:
        gone = shard.shard.name in report.vacuumed
        click.echo(
            f"{click.style('GONE   ', fg='yellow') if gone else _mark(ok=False)} {shard.name}"
        )
        for problem in shard.problems:
            click.echo(f"        {escaped(problem)}")
    if len(bad) > _SHOWN_PROBLEMS:
        more = counted(len(bad) - _SHOWN_PROBLEMS, "more such shard")
        click.echo(f"        … and {more}; --json lists all")


def _print_log(version: str, log: LogReport) -> None:
    checkpoints = f", {counted(log.checkpoints, 'checkpoint')}" if log.checkpoints else ""
    entries = counted(log.entries, "entry", "entries")
    problems = f": {counted(len(log.problems), 'problem')}" if log.problems else ""
    click.echo(f"{_mark(ok=not log.problems)} log of {version}: {entries}{checkpoints}{problems}")
    for problem in log.problems[:_SHOWN_PROBLEMS]:
        click.echo(f"        entry {problem.entry}: {escaped(problem.detail)}")
    if len(log.problems) > _SHOWN_PROBLEMS:
        more = counted(len(log.problems) - _SHOWN_PROBLEMS, "more problem")
        click.echo(f"        … and {more}; --json lists all")


def _mark(*, ok: bool) -> str:
    return click.style("ok     ", fg="green") if ok else click.style("DAMAGED", fg="red")
