"""`shardline vacuum`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import Duration, json_option, root_option, short_duration
from shardline.cli.output import plain_console, plain_table
from shardline.cli.progress import count_progress
from shardline.cli.references import looks_like_reference, next_command, open_root, refuse_missing
from shardline.text import age, counted, escaped, human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from shardline.operations.vacuum import Doomed, VacuumReport
    from shardline.provenance.retainers import Keeper
    from shardline.storage import Store

_SHOWN_FILES = 20
_SHOWN_KEEPERS = 10


@click.command(
    short_help="Delete the files that a dataset no longer needs.",
    epilog="""\b
Examples:
  shardline vacuum digits                  tell what could go
  shardline vacuum digits --keep 30d       ... that nobody used for 30 days
  shardline vacuum digits --delete         delete it
  shardline vacuum digits --delete --keep 0    ... at once, as after an erase

Kept are the newest and the newest published snapshot of each version, what has a tag or is pinned,
and what was one of these until less than --keep ago. With a short --keep a slow reader may find
its files gone, and a slow writer has to do its work again.""",
)
@click.argument("dataset", metavar="NAME")
@click.option(
    "--keep",
    type=Duration(),
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Keep what was in use within this time: 7d, 12h, 30m, 0.",
)
@click.option("--delete", is_flag=True, help="Delete the files. Without this, they are only told.")
@click.option(
    "--without-log",
    multiple=True,
    metavar="VERSION",
    help="Include the files of a version that never had a log, such as v2. May be repeated.",
)
@click.option("every", "--all", is_flag=True, help="Show every file.")
@root_option
@json_option
def vacuum(
    dataset: str,
    *,
    keep: timedelta,
    delete: bool,
    without_log: tuple[str, ...],
    every: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Delete the files that a dataset no longer needs, or tell which.

    Snapshots that nobody keeps become unreadable when their shards go; the log still tells of
    them. Nothing is deleted without --delete, nor while a log is missing or shorter than others
    imply.
    """
    from shardline.operations.vacuum import vacuum as run

    store = open_root(root)
    _refuse_no_dataset(store, dataset)
    for version in without_log:
        _checked(version, "version")
    asked = partial(run, store, dataset, keep=keep, without_log=without_log)
    if delete and sys.stderr.isatty():
        with count_progress("deleting", len(asked().files)) as progress:
            report = asked(delete=True, progress=lambda _: progress())
    else:
        report = asked(delete=delete)
    if as_json:
        click.echo(json.dumps(_as_dict(report)))
        return
    command = _arguments(report, keep, without_log)
    _print(report, command, every=every)
    _print_keepers(report, keep, every=every)
    _print_let_go(report, keep, command)


def _print_let_go(report: VacuumReport, keep: timedelta, command: list[str]) -> None:
    """The pins that nothing needs any more, and when what they held can go."""
    if not report.let_go:
        return
    told = f"{counted(len(report.let_go), 'pin')} that no version needs any more"
    said = f"would let go of {told}" if report.dry_run else f"let go of {told}"
    if not keep:
        click.echo(said)
        return
    again = next_command(*command)
    when = "from then on" if report.dry_run else "from now on"
    click.echo(
        f"{said}. What only they held is kept for {short_duration(keep)} {when}, since it may "
        f"still be read; after that: {again}"
    )


def _refuse_no_dataset(store: Store, dataset: str) -> None:
    if looks_like_reference(dataset):
        raise UsageError(
            f"{dataset}: vacuum works on a whole dataset",
            code="dataset-required",
            hint=f"write `{dataset.partition('/')[0]}`: its versions share their files",
            version=dataset,
        )
    if not store.folders(_checked(dataset)):
        refuse_missing(store, dataset)


def _checked(name: str, what: str = "dataset") -> str:
    from shardline.storage import check_name

    return check_name(name, what)


def _as_dict(report: VacuumReport) -> dict[str, Any]:
    return {
        "ok": True,
        "dataset": report.dataset,
        "dry_run": report.dry_run,
        "bytes": report.bytes,
        "kept": report.kept,
        "keepers": [one.to_json(next_command) for one in report.keepers],
        "let_go": report.let_go,
        "files": [
            {
                "file": file.name,
                "bytes": file.bytes,
                "modified": file.modified.isoformat(),
                "why": file.why,
            }
            for file in report.files
        ],
    }


def _print(report: VacuumReport, command: list[str], *, every: bool) -> None:
    kept = f"{counted(report.kept, 'file')} in {report.dataset}/shards"
    if not report.files:
        click.echo(f"{report.dataset}: nothing to delete; {kept} kept")
        return
    left = len(report.files) if every else _SHOWN_FILES
    groups: dict[str, list[Doomed]] = {}
    for file in report.files:
        groups.setdefault(file.why, []).append(file)
    for why, files in groups.items():
        _print_group(why, files, left)
        left = max(left - len(files), 0)
    amount = f"{counted(len(report.files), 'file')}, {human_bytes(report.bytes)}"
    if not report.dry_run:
        click.echo(f"deleted {amount}; {kept} kept")
        return
    click.echo(f"{amount}, could go; {kept} would be kept")
    click.echo(f"Nothing was deleted. To do it: {next_command(*command)}")


def _arguments(report: VacuumReport, keep: timedelta, without_log: Sequence[str]) -> list[str]:
    """The command that deletes just this."""
    from shardline.operations.vacuum import DEFAULT_KEEP

    given = [] if keep == DEFAULT_KEEP else ["--keep", short_duration(keep)]
    named = [word for version in without_log for word in ("--without-log", version)]
    return ["vacuum", report.dataset, "--delete", *given, *named]


def _print_keepers(report: VacuumReport, keep: timedelta, *, every: bool) -> None:
    """Who keeps what the newest snapshots do without, and what to do."""
    if not report.keepers:
        return
    click.echo("What the newest snapshots do without, and is kept all the same:")
    shown = report.keepers if every else report.keepers[:_SHOWN_KEEPERS]
    groups: dict[tuple[str, object], list[Keeper]] = {}
    for one in shown:
        groups.setdefault((one.advice, one.commands), []).append(one)
    for group in groups.values():
        for one in group:
            erased = f", {one.erased:,} with erased records" if one.erased else ""
            late = f" (--keep {short_duration(keep)})" if one.kind in {"time", "writer"} else ""
            size = f"{counted(one.files, 'shard')} ({human_bytes(one.bytes)}{erased})"
            click.echo(f"  {escaped(one.where)}: {size}: {escaped(one.why)}{late}")
        click.echo(f"      {escaped(group[0].advice)}")
        for command in group[0].commands:
            click.echo(f"        {escaped(next_command(*command))}")
    if len(shown) < len(report.keepers):
        click.echo(f"  … and {len(report.keepers) - len(shown):,} more; --all shows them")


def _print_group(why: str, files: list[Doomed], shown: int) -> None:
    size = human_bytes(sum(file.bytes for file in files))
    click.echo(f"{why}: {counted(len(files), 'file')}, {size}")
    if shown:
        now = datetime.now(UTC)
        table = plain_table("file", "size", "age", right=("size", "age"), wide="file")
        for file in files[:shown]:
            row = (escaped(file.name), human_bytes(file.bytes), age(now - file.modified))
            table.add_row(*row)
        plain_console().print(table)
    if len(files) > shown:
        click.echo(f"  … and {len(files) - shown:,} more; --all shows them")
    click.echo()
