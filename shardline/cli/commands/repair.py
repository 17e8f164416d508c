"""`shardline repair`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, print_hint, render_command
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
)
from shardline.cli.snapshot_check import (
    check_snapshot,
    print_check,
    print_check_command,
    serialize_check,
)
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    reference = parse_version(version)
    read_limits = limits(max_record, max_decompressed)
    opened = open_version(open_root(root), reference)
    latest = find_snapshot(opened, reference, "latest")
    names = [_resolve_shard(latest, name) for name in shards] or None
    with open_progress_executor(workers) as executor:
        report = run(
            opened,
            shards=names,
            allow_data_loss=allow_data_loss,
            dry_run=dry_run,
            limits=read_limits,
            executor=executor,
        )
    copies = _list_copies(opened, report)
    if not as_json:
        _print_report(report, latest, opened, copies)
    replaced = [repair for repair in report.repaired if repair.entry is not None]
    check = None
    if replaced and not no_check:
        number = opened.latest().number
        check = check_snapshot(opened, number, limits=read_limits, workers=workers)
    dependents = _list_dependents(opened, replaced)
    has_losses = any(repair.lost_records for repair in report.repaired)
    ok = dry_run or (not has_losses and not report.unrepaired and (check is None or check.ok))
    if as_json:
        payload = {
            "ok": ok,
            **report.to_dict(),
            "repaired": [_serialize_repair(repair, opened) for repair in report.repaired],
            "check": None if check is None else serialize_check(check),
            "published": opened.state.published,
            "followers": [
                {**asdict(dependent), "command": render_command(dependent.command)}
                for dependent in dependents
            ],
            "copies": [copy.snapshot for copy in copies],
        }
        click.echo(json.dumps(payload))
    elif check is not None:
        print_check(check)
    elif replaced:
        print_check_command(str(opened.latest()))
    if not as_json:
        _print_dependents([dependent for dependent in dependents if dependent not in copies])
    raise SystemExit(0 if ok else 1)


def _list_dependents(version: StoredVersion, replaced: list[ShardRepair]) -> list[Dependent]:
    """Return what depends on replaced shards, or contains copies of changed ones."""
    from shardline.provenance.dependents import list_dependents

    names = [repair.shard.name for repair in replaced]
    changed = [repair.shard.name for repair in replaced if repair.changes]
    return list_dependents(version, names, changed) if names else []


def _list_copies(version: StoredVersion, report: RepairReport) -> list[Dependent]:
    """Return the snapshots with copies of records that the repair loses."""
    from shardline.operations.shard_origin import list_containing_shards
    from shardline.provenance.dependents import list_dependents

    names = [
        name
        for repair in report.repaired
        if repair.lost_records
        for name in list_containing_shards(version, repair.shard.name)
    ]
    return list_dependents(version, (), names) if names else []


def _print_dependents(dependents: list[Dependent]) -> None:
    for reads, state in (
        (True, "unreadable until updated"),
        (False, "contains copies of the old records"),
    ):
        for dependent in dependents:
            if dependent.reads is reads:
                click.echo(f"{dependent.snapshot}: {state}")
                print_hint("to update it, run ", dependent.command)


def _print_copies(copies: list[Dependent], version: StoredVersion) -> None:
    """Print the copies of lost records, and how to keep them before an update drops them."""
    tag = f"{version.name.replace('/', '-')}-{version.state.number}"
    for copy in copies:
        click.echo(f"{copy.snapshot}: contains copies of lost records, maybe the last ones")
        print_hint("to keep them, run ", Command.of("tag", copy.snapshot, tag))


def _resolve_shard(latest: StoredSnapshot, argument: str) -> str:
    """Return the name of a shard, from its name or path."""
    name = argument.rpartition("/")[2]
    if name not in {shard.name for shard in latest.shards}:
        raise UsageError(
            f"{latest}: unknown shard {argument!r}",
            code="shard-not-found",
            hint=Hint.of("run ", Command.of("verify", latest.version), " to list corrupt shards"),
            version=latest.version,
            snapshot=latest.number,
        )
    return name


def _find_source(version: StoredVersion, repair: ShardRepair) -> Source | None:
    from shardline.provenance.log_index import find_added_shard

    entry, first = find_added_shard(version, repair.shard)
    return next((source for source in entry.sources if source.key == first.source), None)


def _serialize_repair(repair: ShardRepair, version: StoredVersion) -> dict[str, Any]:
    source, file = _find_source(version, repair), repair.quarantine_file
    return {
        **repair.to_dict(),
        "source": source and source.to_dict(),
        "command": repair.command and render_command(repair.command),
        "quarantine_file": file and locate_object(version, file),
    }


def _print_report(
    report: RepairReport, latest: StoredSnapshot, version: StoredVersion, copies: list[Dependent]
) -> None:
    shards = format_count(report.read_shards, "shard")
    for name in report.indexes:
        state = "is invalid" if report.dry_run else "rewritten"
        click.echo(f"{version.shard_name(name)}.index {state}")
    if not report.repaired:
        click.echo(f"{latest}: {shards} read, all intact")
        if not latest.published:
            click.echo(f"{latest} is not published")
            print_hint("to publish it, run ", Command.of("check", str(latest), "--recheck"))
        return
    for repair in report.repaired:
        _print_repair(repair, version)
    click.echo(f"{latest}: {shards} read, {len(report.repaired):,} corrupt or missing")
    unrepaired = report.unrepaired
    is_repairable = len(unrepaired) < len(report.repaired)
    if report.dry_run or not is_repairable:
        click.echo("nothing was changed")
    if report.dry_run and is_repairable:
        print_hint("to repair, run ", Command.of("repair", version.name))
    _print_unrepaired(unrepaired, version)
    _print_copies(copies, version)


def _print_unrepaired(unrepaired: tuple[ShardRepair, ...], version: StoredVersion) -> None:
    """Print how to recreate the shards that repair cannot, or to drop their corrupt records."""
    commands = dict.fromkeys(repair.command for repair in unrepaired if repair.command)
    for command in commands:
        print_hint(
            "to recreate derived shards from the published inputs, run ",
            Command.of("check", version.name, "--recheck"),
            " and then ",
            command,
        )
    lost = sum(repair.lost_records for repair in unrepaired)
    if lost:
        condition = "if the inputs are missing, " if commands else ""
        print_hint(
            f"{condition}to keep intact records and lose {format_count(lost, 'record')}, run ",
            Command.of("repair", version.name, "--allow-data-loss"),
        )


def _print_repair(repair: ShardRepair, version: StoredVersion) -> None:
    is_done = repair.entry is not None
    mark = "CORRUPT" if not is_done else "LOST" if repair.new_shard is None else "REPAIRED"
    color = "green" if is_done and not repair.lost_records else "red"
    records = format_count(repair.shard.records, "record")
    click.echo(
        f"{click.style(f'{mark:8}', fg=color)} {version.shard_name(repair.shard)}: {records}"
    )
    for line in _describe_repair(repair, version):
        click.echo(f"         {line}")


def _describe_repair(repair: ShardRepair, version: StoredVersion) -> Iterator[str]:
    """Yield how a shard was or can be recreated, or what remains of it."""
    source = _find_source(version, repair)
    source_label = "source" if source is None else f"source {format_source(source)}"
    snapshot = "" if repair.entry is None else f" in {version.name}@{repair.entry.snapshot}"
    origin = {
        "inputs": "the shards it was rebuilt from",
        "source": source_label,
        "copies": "shards rebuilt from it",
    }.get(repair.method)
    if origin is not None:
        yield f"{'recreated' if snapshot else 'can be recreated'} from {origin}{snapshot}"
        return
    if derivation := _format_derivation(version, repair):
        yield derivation
    elif repair.lost_records:
        yield f"{source_label if source else 'inputs'} missing or changed"
    lost = format_count(repair.lost_records, "record")
    if not snapshot:
        if repair.lost_records == repair.shard.records:
            yield "no intact records"
        elif repair.shard.base is None and not repair.shard.virtual:
            intact = format_count(repair.shard.records - repair.lost_records, "record")
            yield f"{intact} intact, {repair.lost_records:,} would be lost"
        return
    if repair.new_shard is None:
        yield f"removed{snapshot}: no intact records; {lost} lost"
    else:
        yield f"intact records kept{snapshot}; {lost} lost"
    if repair.quarantine_file is not None:
        yield f"corrupt bytes: {escape_text(locate_object(version, repair.quarantine_file))}"


def _format_derivation(version: StoredVersion, repair: ShardRepair) -> str:
    """Return the operation and inputs of a derived shard, or an empty text."""
    from shardline.provenance.commands import is_derived
    from shardline.provenance.log_index import find_added_shard

    if not is_derived(version, repair.shard):
        return ""
    entry, _ = find_added_shard(version, repair.shard)
    inputs = format_list(f"{input_.label}@{input_.snapshot}" for input_ in entry.inputs)
    return f"derived by {entry.operation} from {inputs}"
