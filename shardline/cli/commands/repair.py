"""`shardline repair`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, render_command
from shardline.cli.options import (
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.output import format_source, locate_object
from shardline.cli.progress import open_progress_executor
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_version,
    render_next_command,
)
from shardline.cli.snapshot_check import check_snapshot, print_check, serialize_check
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_count, format_list

if TYPE_CHECKING:
    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.log.model import Source
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.repair import RepairReport, ShardRepair
    from shardline.provenance.dependents import Dependent


@click.command(
    epilog="""\b
Examples:
  shardline verify digits/v1                      find corrupt shards
  shardline repair digits/v1 --dry-run            show the plan
  shardline repair digits/v1
  shardline repair digits/v1 --shard v1.0f3c….tfrecord
  shardline repair digits/v1 --allow-data-loss    drop corrupt records

Sources must be at the paths from which they were appended. A repair is an entry in the log. The
corrupt file remains until 'shardline vacuum' deletes it.""",
)
@click.argument("version", metavar="NAME/VERSION")
@click.option(
    "shards",
    "--shard",
    multiple=True,
    metavar="NAME",
    help="Read only this shard. Repeatable.",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Keep the intact records of a shard that cannot be recreated, and quarantine the rest.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan without writing.")
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def repair(
    version: str,
    *,
    shards: tuple[str, ...],
    allow_data_loss: bool,
    dry_run: bool,
    no_check: bool,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Recreate the corrupt and missing shards of the latest snapshot.

    A shard is recreated from its inputs, its source or a rebuilt copy, if these are unchanged. For
    shards of extend, combine and migrate, the command to run is shown. A shard without such an
    origin is kept as it is, unless --allow-data-loss is given. The new snapshot is checked and
    published. Overlays and plans that depend on a replaced shard are listed, each with the command
    that updates it.

    Exits with 0 if all shards are intact. Exits with 1 if records are lost, a shard remains corrupt
    or the check fails.
    """
    from shardline.operations.repair import repair as run

    wanted = parse_version(version)
    within = limits(max_record, max_decompressed)
    opened = open_version(open_root(root), wanted)
    newest = find_snapshot(opened, wanted, "latest")
    names = [_resolve_shard(newest, name) for name in shards] or None
    with open_progress_executor(workers) as executor:
        report = run(
            opened,
            shards=names,
            allow_data_loss=allow_data_loss,
            dry_run=dry_run,
            limits=within,
            executor=executor,
        )
    copies = _list_copies(opened, report)
    if not as_json:
        _print_report(report, newest, opened, copies)
    done = [one for one in report.repaired if one.entry is not None]
    checked = None
    if done and not no_check:
        last = opened.latest().number
        checked = check_snapshot(opened, last, limits=within, workers=workers)
    followers = _list_dependents(opened, done)
    lost = any(one.lost_records for one in report.repaired)
    ok = dry_run or (not lost and not report.unrepaired and (checked is None or checked.ok))
    if as_json:
        told = _serialize_report(report, opened, checked, ok=ok)
        told["followers"] = [
            {**asdict(one), "command": render_command(one.command)} for one in followers
        ]
        click.echo(json.dumps({**told, "copies": [one.snapshot for one in copies]}))
    elif checked is not None:
        print_check(checked)
    elif done:
        check = render_next_command("check", str(opened.latest()))
        click.echo(f"To check it, and so publish it: {check}")
    if not as_json:
        _print_dependents([one for one in followers if one not in copies])
    raise SystemExit(0 if ok else 1)


def _list_dependents(version: StoredVersion, done: list[ShardRepair]) -> list[Dependent]:
    """What stands on the shards that were replaced, or holds copies of what is no longer so."""
    from shardline.provenance.dependents import list_dependents

    replaced = [one.shard.name for one in done]
    changed = [one.shard.name for one in done if one.changes]
    return list_dependents(version, replaced, changed) if replaced else []


def _list_copies(version: StoredVersion, report: RepairReport) -> list[Dependent]:
    """What holds copies of records that are lost, or would be."""
    from shardline.operations.shard_origin import list_containing_shards
    from shardline.provenance.dependents import list_dependents

    lost = [
        name
        for one in report.repaired
        if one.lost_records
        for name in list_containing_shards(version, one.shard.name)
    ]
    return list_dependents(version, (), lost) if lost else []


def _print_dependents(followers: list[Dependent]) -> None:
    for reads, what in (
        (True, "cannot be read until it follows, which makes only what is new"),
        (False, "holds copies of the old records; to follow"),
    ):
        for one in followers:
            if one.reads is reads:
                click.echo(f"{one.snapshot} {what}:\n  {render_command(one.command)}")


def _print_copies(copies: list[Dependent], version: StoredVersion) -> None:
    """Tell how to keep what holds copies of lost records, before it is made anew without them."""
    if not copies:
        return
    click.echo(
        "These hold copies of such records, and may be the only ones to do so. To keep them,"
    )
    click.echo("before they are made anew without these records:")
    tag = f"{version.name.replace('/', '-')}-{version.state.number}"
    for one in copies:
        click.echo(f"  {render_next_command('tag', one.snapshot, tag)}")


def _resolve_shard(newest: StoredSnapshot, told: str) -> str:
    """The shard that is meant, by its name or as other commands show it."""
    name = told.rpartition("/")[2]
    if name not in {shard.name for shard in newest.shards}:
        raise UsageError(
            f"{newest}: unknown shard {told!r}",
            code="shard-not-found",
            hint=Hint.of("run ", Command.of("verify", newest.version), " to list corrupt shards"),
            version=newest.version,
            snapshot=newest.number,
        )
    return name


def _find_source(version: StoredVersion, repaired: ShardRepair) -> Source | None:
    """The source of a shard, as the log knows it."""
    from shardline.provenance.log_index import find_added_shard

    entry, first = find_added_shard(version, repaired.shard)
    return next((source for source in entry.sources if source.key == first.source), None)


def _serialize_report(
    report: RepairReport, version: StoredVersion, checked: SnapshotCheck | None, *, ok: bool
) -> dict[str, Any]:
    """Return the report with the source of each shard, paths and commands, and the check."""
    return {
        "ok": ok,
        **report.to_dict(),
        "repaired": [_serialize_repair(repair, version) for repair in report.repaired],
        "check": None if checked is None else serialize_check(checked),
        "published": version.state.published,
    }


def _serialize_repair(repair: ShardRepair, version: StoredVersion) -> dict[str, Any]:
    source, file = _find_source(version, repair), repair.quarantine_file
    return {
        **repair.to_dict(),
        "source": source and source.to_dict(),
        "command": repair.command and render_command(repair.command),
        "quarantine_file": file and locate_object(version, file),
    }


def _print_report(
    report: RepairReport, newest: StoredSnapshot, version: StoredVersion, copies: list[Dependent]
) -> None:
    read = format_count(report.read_shards, "shard")
    for name in report.indexes:
        done = "is wrong" if report.dry_run else "was written again"
        click.echo(f"{version.shard_name(name)}.index {done}")
    if not report.repaired:
        click.echo(f"{newest}: {read} read, none is damaged")
        if not newest.published:
            again = render_next_command("check", str(newest), "--recheck")
            click.echo(f"{newest} is not published all the same. To check it: {again}")
        return
    for one in report.repaired:
        _print_shard(one, version)
    click.echo(f"{newest}: {read} read, {len(report.repaired):,} damaged or gone")
    left = report.unrepaired
    doable = len(left) < len(report.repaired)
    if report.dry_run or not doable:
        to_do = f". To do it: {render_next_command('repair', version.name)}" if doable else ""
        click.echo(f"Nothing was changed{to_do}")
    _print_unrepaired(left, version)
    _print_copies(copies, version)


def _print_unrepaired(left: tuple[ShardRepair, ...], version: StoredVersion) -> None:
    """Tell what makes anew what a repair does not, and what it costs to do without."""
    lost = sum(one.lost_records for one in left)
    for command in dict.fromkeys(one.command for one in left if one.command):
        click.echo("To make anew what was derived, of its inputs as they are published now:")
        click.echo(f"  {render_next_command('check', version.name, '--recheck')}")
        click.echo(f"  {render_command(command)}")
    if lost:
        until = "If that is gone, to" if any(one.command for one in left) else "To"
        click.echo(
            f"{until} keep what is intact, and give up {format_count(lost, 'record')} for good:"
        )
        click.echo(f"  {render_next_command('repair', version.name, '--allow-data-loss')}")


def _print_shard(one: ShardRepair, version: StoredVersion) -> None:
    done = one.entry is not None
    mark = "DAMAGED" if not done else "LOST   " if one.new_shard is None else "MENDED "
    colour = "green" if done and not one.lost_records else "red"
    name = version.shard_name(one.shard)
    click.echo(
        f"{click.style(mark, fg=colour)} {name}: {format_count(one.shard.records, 'record')}"
    )
    found = _find_source(version, one)
    source = "its source" if found is None else f"its source {format_source(found)}"
    of = {
        "inputs": "the shards that it was rebuilt from",
        "source": source,
        "copies": "what was rebuilt from it",
    }.get(one.method)
    where = "" if one.entry is None else f" in {version.name}@{one.entry.snapshot}"
    if of is not None:
        click.echo(f"        {'was' if done else 'can be'} made anew of {of}{where}")
        return
    made_by = _format_origin(version, one)
    if made_by:
        anew = "" if done else ", and makes it anew"
        click.echo(f"        {made_by}{anew}")
    elif one.lost_records:
        what = source if found else "what it was made of"
        click.echo(f"        {what} is gone or has changed since")
    if not done:
        _print_intact(one)
        return
    kept = f"its intact records were kept{where}"
    if one.new_shard is None:
        kept = "nothing of it was left" + (f", and{where} it is no more" if where else "")
    click.echo(f"        {kept}; {format_count(one.lost_records, 'record')} lost")
    if one.quarantine_file is not None:
        click.echo(
            "        the damaged bytes are in "
            f"{escape_text(locate_object(version, one.quarantine_file))}"
        )


def _format_origin(version: StoredVersion, one: ShardRepair) -> str:
    """Which operation made a shard of which inputs, if it was derived."""
    from shardline.provenance.commands import is_derived
    from shardline.provenance.log_index import find_added_shard

    if not is_derived(version, one.shard):
        return ""
    entry, _ = find_added_shard(version, one.shard)
    return (
        f"{entry.operation} made it of "
        f"{format_list(f'{i.label}@{i.snapshot}' for i in entry.inputs)}"
    )


def _print_intact(one: ShardRepair) -> None:
    """Tell what is intact of a shard that was left as it is."""
    if one.lost_records == one.shard.records:
        click.echo("        nothing of it is left")
    elif one.shard.base is None and not one.shard.virtual:
        intact = format_count(one.shard.records - one.lost_records, "record")
        click.echo(f"        {intact} of it can be kept; {one.lost_records:,} would be lost")
