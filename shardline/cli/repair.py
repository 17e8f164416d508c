"""`shardline repair`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import check_snapshot, checked_json, print_checked
from shardline.cli.options import (
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.places import place, shown_source
from shardline.cli.references import (
    find_snapshot,
    next_command,
    open_root,
    open_version,
    parse_version,
)
from shardline.cli.steps import drawing_engine
from shardline.cli.wording import counted, escaped

if TYPE_CHECKING:
    from shardline.cli.checked import Checked
    from shardline.log.facts import Source
    from shardline.log.snapshot import Snapshot
    from shardline.log.version import Version
    from shardline.operations.repair import Repaired, RepairReport


@click.command(
    short_help="Make the damaged shards of a version anew.",
    epilog="""\b
Examples:
  shardline verify digits/v1               is anything damaged?
  shardline repair digits/v1 --dry-run     what could be done about it?
  shardline repair digits/v1
  shardline repair digits/v1 --shard v1.0f3c….tfrecord

The sources must lie where they were when they were appended. Every repair is an entry in the log,
and the damaged file stays until 'shardline vacuum' takes it.""",
)
@click.argument("version", metavar="NAME/VERSION")
@click.option(
    "shards",
    "--shard",
    multiple=True,
    metavar="NAME",
    help="Read only this shard; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what is damaged, and what could be done.")
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def repair(
    version: str,
    *,
    shards: tuple[str, ...],
    dry_run: bool,
    no_check: bool,
    workers: int | None,
    max_record: int,
    max_unpacked: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Read every shard of the newest snapshot, and make those anew that are damaged or gone.

    A shard is made anew of the shards that it was rebuilt from, or of its source, if these are
    still there and the same. If not, its intact records are kept, and what was damaged goes to
    quarantine. Then the new snapshot is checked, and so published.

    Exits with 0 if nothing was lost, with 1 if records were, or if the check failed.
    """
    from shardline.operations.repair import repair as run

    wanted = parse_version(version)
    within = limits(max_record, max_unpacked)
    opened = open_version(open_root(root), wanted)
    newest = find_snapshot(opened, wanted)
    names = [_shard_name(newest, name) for name in shards] or None
    with drawing_engine(workers) as engine:
        report = run(opened, shards=names, dry_run=dry_run, limits=within, engine=engine)
    if not as_json:
        _print(report, newest, opened)
    checked = None
    if report.repaired and not dry_run and not no_check:
        last = opened.newest().number
        checked = check_snapshot(opened, last, limits=within, workers=workers)
    lost = 0 if dry_run else sum(one.lost for one in report.repaired)
    ok = not lost and (checked is None or checked.ok)
    if as_json:
        click.echo(json.dumps(_as_dict(report, opened, checked, ok=ok)))
    elif checked is not None:
        print_checked(checked)
    elif report.repaired and not dry_run:
        check = next_command("check", str(opened.newest()))
        click.echo(f"To check it, and so publish it: {check}")
    raise SystemExit(0 if ok else 1)


def _shard_name(newest: Snapshot, told: str) -> str:
    """The shard that is meant, by its name or as other commands show it."""
    name = told.rpartition("/")[2]
    if name not in {shard.name for shard in newest.shards}:
        raise click.UsageError(
            f"{newest} has no shard {told!r}; 'shardline verify {newest.version}' names those that "
            "are damaged"
        )
    return name


def _source(version: Version, repaired: Repaired) -> Source | None:
    """The source of a shard, as the log knows it."""
    from shardline.operations.origin import landing_of

    entry, first = landing_of(version, repaired.old)
    return next((source for source in entry.sources if source.key == first.source), None)


def _as_dict(
    report: RepairReport, version: Version, checked: Checked | None, *, ok: bool
) -> dict[str, Any]:
    return {
        "ok": ok,
        "version": report.version,
        "dry_run": report.dry_run,
        "read_shards": report.read,
        "repaired": [
            {
                "shard": one.old.name,
                "records": one.old.records,
                "how": one.how,
                "source": (source := _source(version, one)) and source.to_json(),
                "made": one.made and one.made.to_json(),
                "lost_records": None if report.dry_run else one.lost,
                "quarantine": one.quarantine and place(version, one.quarantine),
                "entry": one.entry and one.entry.number,
                "snapshot": one.entry and one.entry.snapshot,
            }
            for one in report.repaired
        ],
        "check": None if checked is None else checked_json(checked),
        "published": version.state.published,
    }


def _print(report: RepairReport, newest: Snapshot, version: Version) -> None:
    read = counted(report.read, "shard")
    if not report.repaired:
        click.echo(f"{newest}: {read} read, none is damaged")
        if not newest.published:
            again = next_command("check", str(newest), "--again")
            click.echo(f"{newest} is not published all the same. To check it: {again}")
        return
    for one in report.repaired:
        _print_one(one, version, dry_run=report.dry_run)
    click.echo(f"{newest}: {read} read, {len(report.repaired):,} damaged or gone")
    if report.dry_run:
        click.echo(f"Nothing was changed. To do it: {next_command('repair', version.name)}")


def _print_one(one: Repaired, version: Version, *, dry_run: bool) -> None:
    mark = "DAMAGED" if dry_run else "LOST   " if one.made is None else "MENDED "
    colour = "red" if dry_run or one.lost else "green"
    name = version.shard_name(one.old)
    click.echo(f"{click.style(mark, fg=colour)} {name}: {counted(one.old.records, 'record')}")
    found = _source(version, one)
    source = "its source" if found is None else f"its source {shown_source(found)}"
    of = {"inputs": "the shards that it was rebuilt from", "source": source}.get(one.how)
    where = "" if one.entry is None else f" in {version.name}@{one.entry.snapshot}"
    if of is not None:
        click.echo(f"        {'can be' if dry_run else 'was'} made anew of {of}{where}")
        return
    click.echo(f"        {source if found else 'what it was made of'} is gone or has changed since")
    if dry_run:
        there = version.store.info(name) is not None
        left = "its intact records can be kept" if there else "nothing of it is left"
        click.echo(f"        {left}")
        return
    kept = f"its intact records were kept{where}"
    if one.made is None:
        kept = "nothing of it was left" + (f", and{where} it is no more" if where else "")
    click.echo(f"        {kept}; {counted(one.lost, 'record')} lost")
    if one.quarantine is not None:
        click.echo(f"        the damaged bytes are in {escaped(place(version, one.quarantine))}")
