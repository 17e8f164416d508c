"""`shardline vacuum`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import Duration, format_duration, json_option, root_option
from shardline.cli.output import Table
from shardline.cli.progress import show_count_progress
from shardline.cli.references import is_reference, open_root, raise_not_found, render_next_command
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
    asked = partial(run, store, dataset, retention=retention, without_log=without_log)
    if delete and sys.stderr.isatty():
        total, done = len(asked().files), count(1)
        with show_count_progress("deleting", total) as progress:
            report = asked(dry_run=False, progress=lambda _: progress(next(done), total))
    else:
        report = asked(dry_run=not delete)
    if as_json:
        retainers = [retainer.to_dict(render_next_command) for retainer in report.retainers]
        click.echo(json.dumps({"ok": True, **report.to_dict(), "retainers": retainers}))
        return
    command = _list_arguments(report, retention, without_log)
    _print_report(report, command, every=every)
    _print_retainers(report, retention, every=every)
    _print_released_pins(report, retention, command)


def _print_released_pins(report: VacuumReport, retention: timedelta, command: list[str]) -> None:
    """The pins that nothing needs any more, and when what they held can go."""
    if not report.released_pins:
        return
    told = f"{format_count(len(report.released_pins), 'pin')} that no version needs any more"
    said = f"would let go of {told}" if report.dry_run else f"let go of {told}"
    if not retention:
        click.echo(said)
        return
    again = render_next_command(*command)
    when = "from then on" if report.dry_run else "from now on"
    click.echo(
        f"{said}. What only they held is kept for {format_duration(retention)} {when}, since it "
        f"may still be read; after that: {again}"
    )


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


def _validate_name(name: str, what: str = "dataset") -> str:
    from shardline.storage import validate_name

    return validate_name(name, what)


def _print_report(report: VacuumReport, command: list[str], *, every: bool) -> None:
    kept = f"{format_count(report.kept_files, 'file')} in {report.dataset}/shards"
    if not report.files:
        click.echo(f"{report.dataset}: nothing to delete; {kept} kept")
        return
    left = len(report.files) if every else _SHOWN_FILES
    groups: dict[str, list[VacuumCandidate]] = {}
    for file in report.files:
        groups.setdefault(file.reason, []).append(file)
    for why, files in groups.items():
        _print_group(why, files, left)
        left = max(left - len(files), 0)
    amount = f"{format_count(len(report.files), 'file')}, {format_bytes(report.bytes)}"
    if not report.dry_run:
        click.echo(f"deleted {amount}; {kept} kept")
        return
    click.echo(f"{amount}, could go; {kept} would be kept")
    click.echo(f"Nothing was deleted. To do it: {render_next_command(*command)}")


def _list_arguments(
    report: VacuumReport, retention: timedelta, without_log: Sequence[str]
) -> list[str]:
    """The command that deletes just this."""
    from shardline.operations.vacuum import DEFAULT_RETENTION

    given = [] if retention == DEFAULT_RETENTION else ["--retention", format_duration(retention)]
    named = [word for version in without_log for word in ("--without-log", version)]
    return ["vacuum", report.dataset, "--delete", *given, *named]


def _print_retainers(report: VacuumReport, retention: timedelta, *, every: bool) -> None:
    """Who keeps what the newest snapshots do without, and what to do."""
    if not report.retainers:
        return
    click.echo("What the newest snapshots do without, and is kept all the same:")
    shown = report.retainers if every else report.retainers[:_SHOWN_RETAINERS]
    groups: dict[tuple[str, object], list[Retainer]] = {}
    for one in shown:
        groups.setdefault((one.hint, one.commands), []).append(one)
    for group in groups.values():
        for one in group:
            erased = f", {one.erased:,} with erased records" if one.erased else ""
            late = (
                f" (--retention {format_duration(retention)})"
                if one.kind in {"time", "writer"}
                else ""
            )
            size = f"{format_count(one.files, 'shard')} ({format_bytes(one.bytes)}{erased})"
            click.echo(f"  {escape_text(one.location)}: {size}: {escape_text(one.reason)}{late}")
        click.echo(f"      {escape_text(group[0].hint)}")
        for command in group[0].commands:
            click.echo(f"        {escape_text(render_next_command(*command))}")
    if len(shown) < len(report.retainers):
        click.echo(f"  … and {len(report.retainers) - len(shown):,} more; --all shows them")


def _print_group(why: str, files: list[VacuumCandidate], shown: int) -> None:
    size = format_bytes(sum(file.bytes for file in files))
    click.echo(f"{why}: {format_count(len(files), 'file')}, {size}")
    if shown:
        now = datetime.now(UTC)
        table = Table("file", "size", "age", right=("size", "age"), wide="file")
        for file in files[:shown]:
            row = (
                escape_text(file.name),
                format_bytes(file.bytes),
                format_age(now - file.modified),
            )
            table.add_row(*row)
        table.print()
    if len(files) > shown:
        click.echo(f"  … and {len(files) - shown:,} more; --all shows them")
    click.echo()
