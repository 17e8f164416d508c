"""`shardline vacuum`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_hint
from shardline.cli.options import Duration, format_duration, json_option, root_option
from shardline.cli.output import Table
from shardline.cli.progress import show_count_progress
from shardline.cli.references import is_reference, open_root, raise_not_found, render_next_command
from shardline.hints import Command
from shardline.text import escape_text, format_age, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from shardline.operations.vacuum import VacuumCandidate, VacuumReport
    from shardline.provenance.retainers import Retainer
    from shardline.storage import Store

_SHOWN_FILES = 20
_SHOWN_RETAINERS = 10


@click.command(
    epilog="""\b
Examples:
  shardline vacuum digits                            list the files to delete
  shardline vacuum digits --retention 30d            ... unused for 30 days
  shardline vacuum digits --delete                   delete them
  shardline vacuum digits --delete --retention 0     ... at once (after erase)

With a short --retention, slow readers may lose their files, and slow writers must start again.""",
)
@click.argument("dataset", metavar="NAME")
@click.option(
    "--retention",
    type=Duration(),
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Keep what was in use within this time: 7d, 12h, 30m, 0.",
)
@click.option("--delete", is_flag=True, help="Delete the files.")
@click.option(
    "--without-log",
    multiple=True,
    metavar="VERSION",
    help="Include the files of a version that never had a log, such as v2. Repeatable.",
)
@click.option("every", "--all", is_flag=True, help="List every file.")
@root_option
@json_option
def vacuum(
    dataset: str,
    *,
    retention: timedelta,
    delete: bool,
    without_log: tuple[str, ...],
    every: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Delete files that a dataset no longer needs. Lists them without --delete.

    Vacuum keeps the latest and the published snapshot of each version, tagged and pinned snapshots,
    and what was one of these within the retention time. Other snapshots become unreadable, and the
    log still lists them. Nothing is deleted while a log is missing or shorter than others imply.
    """
    from shardline.operations.vacuum import vacuum as run

    store = open_root(root)
    _validate_dataset(store, dataset)
    for version in without_log:
        _validate_name(version, "version")
    run_vacuum = partial(run, store, dataset, retention=retention, without_log=without_log)
    if delete and sys.stderr.isatty():
        total, done = len(run_vacuum().files), count(1)
        with show_count_progress("deleting", total) as progress:
            report = run_vacuum(dry_run=False, progress=lambda _: progress(next(done), total))
    else:
        report = run_vacuum(dry_run=not delete)
    if as_json:
        retainers = [retainer.to_dict(render_next_command) for retainer in report.retainers]
        click.echo(json.dumps({"ok": True, **report.to_dict(), "retainers": retainers}))
        return
    command = _get_delete_command(report, retention, without_log)
    _print_report(report, command, every=every)
    _print_retainers(report, retention, every=every)
    _print_released_pins(report, retention, command)


def _print_released_pins(report: VacuumReport, retention: timedelta, command: Command) -> None:
    """Print the number of released pins, and when their files can be deleted."""
    if not report.released_pins:
        return
    verb = "would release" if report.dry_run else "released"
    click.echo(f"{verb} {format_count(len(report.released_pins), 'unused pin')}")
    if retention:
        duration = format_duration(retention)
        print_hint(f"their files are kept for {duration}; to delete them after that, run ", command)


def _validate_dataset(store: Store, dataset: str) -> None:
    if is_reference(dataset):
        raise UsageError(
            f"{dataset}: vacuum works on a whole dataset",
            code="dataset-required",
            hint=f"write `{dataset.partition('/')[0]}`: its versions share their files",
            version=dataset,
        )
    if not store.folders(_validate_name(dataset)):
        raise_not_found(store, dataset)


def _validate_name(name: str, kind: str = "dataset") -> str:
    from shardline.storage import validate_name

    return validate_name(name, kind)


def _print_report(report: VacuumReport, command: Command, *, every: bool) -> None:
    if not report.files:
        kept = format_count(report.kept_files, "file")
        click.echo(f"{report.dataset}: nothing to delete ({kept} kept)")
        return
    rest = len(report.files) if every else _SHOWN_FILES
    groups: dict[str, list[VacuumCandidate]] = {}
    for file in report.files:
        groups.setdefault(file.reason, []).append(file)
    for reason, files in groups.items():
        _print_group(reason, files, rest)
        rest = max(rest - len(files), 0)
    verb = "would delete" if report.dry_run else "deleted"
    deleted = format_count(len(report.files), "file")
    keep = f"{'keep' if report.dry_run else 'kept'} {report.kept_files:,}"
    click.echo(f"{report.dataset}: {verb} {deleted} ({format_bytes(report.bytes)}), {keep}")
    if report.dry_run:
        print_hint("to delete them, run ", command)


def _get_delete_command(
    report: VacuumReport, retention: timedelta, without_log: Sequence[str]
) -> Command:
    from shardline.operations.vacuum import DEFAULT_RETENTION

    options = [] if retention == DEFAULT_RETENTION else ["--retention", format_duration(retention)]
    for version in without_log:
        options += ["--without-log", version]
    return Command.of("vacuum", report.dataset, "--delete", *options)


def _print_retainers(report: VacuumReport, retention: timedelta, *, every: bool) -> None:
    """Print what retains shards outside the latest snapshots, and how to release them."""
    if not report.retainers:
        return
    click.echo("Retained outside the latest snapshots:")
    retainers = report.retainers if every else report.retainers[:_SHOWN_RETAINERS]
    groups: dict[tuple[str, object], list[Retainer]] = {}
    for retainer in retainers:
        groups.setdefault((retainer.hint, retainer.commands), []).append(retainer)
    for group in groups.values():
        for retainer in group:
            erased = f", {retainer.erased:,} with erased records" if retainer.erased else ""
            size = (
                f"{format_count(retainer.files, 'shard')} ({format_bytes(retainer.bytes)}{erased})"
            )
            reason = escape_text(retainer.reason)
            if retainer.kind in {"time", "writer"}:
                reason += f" (--retention {format_duration(retention)})"
            click.echo(f"  {escape_text(retainer.location)}: {size}: {reason}")
        click.echo(f"      {escape_text(group[0].hint)}")
        for command in group[0].commands:
            click.echo(f"        {escape_text(render_next_command(*command))}")
    if len(retainers) < len(report.retainers):
        click.echo(f"  … and {len(report.retainers) - len(retainers):,} more; --all lists all")


def _print_group(reason: str, files: list[VacuumCandidate], limit: int) -> None:
    size = format_bytes(sum(file.bytes for file in files))
    click.echo(f"{reason}: {format_count(len(files), 'file')}, {size}")
    if limit:
        now = datetime.now(UTC)
        table = Table("file", "size", "age", right=("size", "age"), wide="file")
        for file in files[:limit]:
            row = (
                escape_text(file.name),
                format_bytes(file.bytes),
                format_age(now - file.modified),
            )
            table.add_row(*row)
        table.print()
    if len(files) > limit:
        click.echo(f"  … and {len(files) - limit:,} more; --all lists all")
    click.echo()
