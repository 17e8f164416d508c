"""What an extension or migration would do, and what it did, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import checked_json
from shardline.cli.derived_words import used_again
from shardline.cli.differences import print_change_lines, print_changes
from shardline.cli.errors import reported_as_usage
from shardline.cli.json_forms import fields_json, snapshot_json
from shardline.cli.places import place
from shardline.text import counted, escaped, human_bytes, listed, rate

if TYPE_CHECKING:
    from shardline.cli.checked import Checked
    from shardline.operations.change_shards import ChangePlan, ChangeReport, ShardChange
    from shardline.schema.comparison import SchemaDiff

_SHOWN = 10
_WAYS = {
    "overlay": ", as an overlay: only the new fields are written",
    "rewrite": ", rewritten: all fields of every record are written",
}


def refuse_unfit_target(work: ShardChange) -> None:
    """Refuse a version that cannot become what is planned, before anything is done."""
    from shardline.operations.derive import refuse_appended, refuse_other_schema

    with reported_as_usage():
        refuse_other_schema(work.into, work.transform.after)
    refuse_appended(work.into, work.operation)


def plan_json(plan: ChangePlan, work: ShardChange) -> dict[str, Any]:
    """A plan for machines."""
    return {
        "ok": True,
        "dry_run": True,
        "version": plan.into,
        "new": not work.into.exists,
        "source": snapshot_json(plan.source),
        "mode": plan.mode,
        "fields": fields_json(_changes(work)),
        "schema": plan.schema.to_json(),
        "compute_shards": plan.compute,
        "reuse_shards": plan.reuse,
        "records": plan.records,
        "read_bytes": plan.reads,
    }


def print_plan(plan: ChangePlan, work: ShardChange, steps: list[str] | None = None) -> None:
    """A plan for people; a migration is told by its steps first."""
    new = "" if work.into.exists else ", which is new"
    click.echo(f"{plan.source} → {plan.into}{new}{_WAYS[plan.mode] if steps is None else ''}")
    if steps is not None:
        print_steps(steps)
    print_changes(_changes(work))
    shards = f"{counted(plan.compute, 'shard')} to compute, {plan.reuse:,} to use again"
    size = f"{counted(plan.records, 'record')}, {human_bytes(plan.reads)} to read"
    click.echo(f"work: {shards}" + (f"; {size}" if plan.compute else ""))
    _print_unversioned(work)


def print_steps(steps: list[str]) -> None:
    """What a migration does, step by step."""
    click.echo("steps:")
    for step in steps:
        click.echo(f"  {escaped(step)}")


def changed_json(
    report: ChangeReport, work: ShardChange, checked: Checked | None, seconds: float
) -> dict[str, Any]:
    """What was done, for machines."""
    into = work.into
    after = None if report.snapshot is None else into.snapshot(report.snapshot)
    return {
        "ok": checked is None or checked.ok,
        "dry_run": False,
        "version": report.version,
        "source": snapshot_json(report.source),
        "mode": work.mode,
        "fields": fields_json(_changes(work)),
        "created": report.created,
        "entry": report.entry and report.entry.number,
        "snapshot": after and snapshot_json(after),
        "records": report.records,
        "bytes": report.bytes,
        "shards": [shard.to_json() for shard in report.made],
        "reused_shards": len(report.reused),
        "quarantine": {
            "rows": report.refused,
            "files": [place(into, name) for name in report.quarantine],
        },
        "seconds": round(seconds, 6),
        "check": None if checked is None else checked_json(checked),
        "published": after is not None and after.published,
    }


def print_changed(report: ChangeReport, work: ShardChange, seconds: float) -> None:
    """What was done, before any check."""
    source = report.source
    if report.entry is None:
        click.echo(f"{report.version} follows {source} already: nothing to do")
        return
    if report.created and work.operation == "migrate":
        click.echo(f"created {report.version}")  # the plan has told its schema
    elif report.created:
        click.echo(f"created {report.version}, with the schema of {source.version} but for:")
        print_change_lines(_changes(work))
    made = f"{report.version}@{report.snapshot}"
    reused = used_again(report.found, len(report.reused))
    if not report.made:
        again = counted(len(report.reused), "shard")
        click.echo(f"{made}: follows {source}, and nothing had to be computed: {again} used again")
    else:
        click.echo(
            f"{made}: {counted(len(report.made), 'shard')} computed from {source}{reused}; "
            f"{counted(report.records, 'record')}, {human_bytes(report.bytes)} written"
        )
        click.echo(f"  {rate(report.records, report.bytes, seconds)}")
        _print_unversioned(work)
    if report.refused:
        _print_quarantine(report, work)


def _changes(work: ShardChange) -> SchemaDiff:
    from shardline.schema.comparison import compare

    return compare(work.snapshot.schema, work.transform.after)


def _print_unversioned(work: ShardChange) -> None:
    """Say it where nothing can be used again because a function does not say which it is."""
    makers = [one.shown for one in work.transform.fields if one.identity() is None]
    if makers:
        click.echo(
            f"  {escaped(listed(makers))} {'has' if len(makers) == 1 else 'have'} no code version, "
            'so all is computed anew each time: declare one, as in code="1"'
        )


def _print_quarantine(report: ChangeReport, work: ShardChange) -> None:
    of = report.records + (report.refused if work.mode == "rewrite" else 0)
    be = "is" if report.refused == 1 else "are"
    fate = f"{be} {'left out' if work.mode == 'rewrite' else 'without the new fields'}"
    click.echo(
        f"{report.refused:,} of {counted(of, 'record')} {fate}, and went to quarantine with the "
        f"reasons ({report.refused / max(of, 1):.2%}):"
    )
    for name in report.quarantine[:_SHOWN]:
        click.echo(f"  {escaped(place(work.into, name))}")
    if len(report.quarantine) > _SHOWN:
        click.echo(f"  … and {len(report.quarantine) - _SHOWN:,} more; --json lists all")
