"""What an append did, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import checked_json
from shardline.cli.errors import render_hint
from shardline.cli.json_forms import snapshot_json
from shardline.cli.places import place, shown_source
from shardline.cli.references import next_command
from shardline.errors import ChangedSourceError
from shardline.text import counted, escaped, human_bytes, rate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.cli.checked import Checked
    from shardline.log.version import StoredVersion
    from shardline.operations.append import AppendReport

_SHOWN = 10


def appended_json(
    report: AppendReport,
    version: StoredVersion,
    checked: Checked | None,
    seconds: float,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """What an append did, for machines."""
    after = version.snapshot(report.snapshot) if report.snapshot else None
    return {
        "ok": not report.set_aside and (checked is None or checked.ok),
        "version": report.version,
        "dry_run": dry_run,
        "created": report.created,
        "entry": report.entry and report.entry.number,
        "snapshot": after and snapshot_json(after),
        "records": report.records,
        "bytes": report.bytes,
        "shards": [shard.to_json() for one in report.landed for shard in one.shards],
        "seconds": round(seconds, 6),
        "landed": [
            {
                **landing.source.to_json(),
                "rows": landing.rows,
                "records": landing.records,
                "quarantined": landing.refused,
            }
            for landing in report.landed
        ],
        "new": [source.to_json() for source in report.new],
        "skipped": [
            {**one.source.to_json(), "why": one.why, "code": one.code} for one in report.skipped
        ],
        "duplicates": [
            {**one.source.to_json(), "first": one.first and one.first.path, "entry": one.entry}
            for one in report.duplicates
        ],
        "replaced": [{**one.source.to_json(), "entry": one.entry} for one in report.replaced],
        "set_aside": [{**one.source.to_json(), **one.to_json()} for one in report.set_aside],
        "quarantine": {
            "rows": report.refused,
            "files": [place(version, name) for name in report.quarantine],
            "reasons": [why for landing in report.landed for why in landing.told],
        },
        "check": None if checked is None else checked_json(checked),
        "published": version.state.published == version.state.snapshot,
    }


def print_appended(
    report: AppendReport, version: StoredVersion, seconds: float, *, dry_run: bool
) -> None:
    """What an append did, before any check."""
    if report.created:
        _print_created(version)
    if dry_run:
        _print_plan(report, version)
    else:
        _print_landed(report, seconds)
    if report.refused:
        _print_quarantine(report, version)
    if report.set_aside:
        _print_set_aside(report)
    if report.replaced:
        click.echo(f"replaced what {counted(len(report.replaced), 'source')} had brought in:")
        _print_some(f"{shown_source(s)}, entry {entry}" for s, entry in report.replaced)
    if report.duplicates:
        _print_duplicates(report)
    if len(report.skipped) > len(report.duplicates):
        _print_skipped(report)


def _print_landed(report: AppendReport, seconds: float) -> None:
    """Print what an append committed."""
    if report.snapshot is not None:
        sources = counted(len(report.landed), "source")
        shards = counted(sum(len(landing.shards) for landing in report.landed), "shard")
        click.echo(
            f"{report.version}@{report.snapshot}: +{counted(report.records, 'record')} of {sources}"
            f", {human_bytes(report.bytes)} in {shards}"
        )
        click.echo(f"  {rate(report.records, report.bytes, seconds)}")
    elif report.landed:
        click.echo(
            f"{report.version}: {counted(len(report.landed), 'source')} gave no record, so there "
            "is no new snapshot"
        )
    elif report.set_aside:
        click.echo(f"{report.version}: no source was appended")
    else:
        click.echo(f"{report.version}: nothing is new, and nothing was changed")


def print_next(report: AppendReport, version: StoredVersion, checked: Checked | None) -> None:
    """What to run next."""
    if report.snapshot is None:
        state = version.state
        if not report.new and state.snapshot and state.published != state.snapshot:
            newest = f"{version.name}@{state.snapshot}"
            click.echo(
                f"{newest} is not published. To see why: {next_command('status', version.name)}"
            )
        return
    made = version.snapshot(report.snapshot)
    if made.published:
        click.echo(f"To read it: {next_command('files', version.name)}")
    elif checked is None:
        click.echo(f"To check it, and so publish it: {next_command('check', str(made))}")


def _print_created(version: StoredVersion) -> None:
    schema = version.schema
    what = counted(len(schema.features), "feature") if schema.features else "opaque records"
    click.echo(f"created {version.name}, whose schema has {what}:")
    _print_some(f"{escaped(feature.name)}: {feature}" for feature in schema.features)


def _print_plan(report: AppendReport, version: StoredVersion) -> None:
    if report.new:
        creates = "" if version.exists else f", and {version.name} be created"
        click.echo(f"{report.version}: {counted(len(report.new), 'source')} would land{creates}:")
        _print_some(shown_source(source) for source in report.new)
        click.echo("Nothing was changed, and no row was looked at. To do it, leave out --dry-run")
    else:
        click.echo(f"{report.version}: nothing is new")


def _print_quarantine(report: AppendReport, version: StoredVersion) -> None:
    rows = sum(landing.rows for landing in report.landed)
    click.echo(
        f"{counted(report.refused, 'row')} of {rows:,} did not fit and went to quarantine "
        f"({report.refused / max(rows, 1):.2%}):"
    )
    reasons = [escaped(why) for landing in report.landed for why in landing.told]
    _print_some(reasons, report.refused)
    click.echo("They are, each with its reason, in:")
    _print_some(escaped(place(version, name)) for name in report.quarantine)


def _print_set_aside(report: AppendReport) -> None:
    count = counted(len(report.set_aside), "source")
    click.echo(f"set aside {count}, which cannot be appended:")
    for one in report.set_aside[:_SHOWN]:
        for number, line in enumerate(one.why.splitlines()):
            click.echo(f"  {'' if number == 0 else '  '}{escaped(line)}")
    if len(report.set_aside) > _SHOWN:
        click.echo(f"  … and {len(report.set_aside) - _SHOWN:,} more; --json lists all")
    changed = [one for one in report.set_aside if one.code == ChangedSourceError.code]
    if changed and changed[0].hint is not None:
        click.echo(f"hint: {render_hint(changed[0].hint)}")
    if len(changed) < len(report.set_aside):
        click.echo("They come in when their content changed, or by 'shardline reland'")


def _print_duplicates(report: AppendReport) -> None:
    click.echo(f"warning: skipped {counted(len(report.duplicates), 'duplicate')}:")
    _print_some(f"{shown_source(one.source)}: {escaped(one.why)}" for one in report.duplicates)


def _print_skipped(report: AppendReport) -> None:
    skipped = [one for one in report.skipped if one.code != "duplicate"]
    click.echo(f"skipped {counted(len(skipped), 'source')}:")
    _print_some(f"{shown_source(one.source)}: {escaped(one.why)}" for one in skipped)
    out = [one.source for one in report.skipped if one.out]
    if out:
        again = next_command("reland", report.version, shown_source(out[0]))
        click.echo(f"To append what was taken out all the same: {again}")


def _print_some(lines: Iterable[str], of: int | None = None) -> None:
    """The first lines, and how many more there are."""
    listed = list(lines)
    for line in listed[:_SHOWN]:
        click.echo(f"  {line}")
    if len(listed) > _SHOWN:
        click.echo(f"  … and {len(listed) - _SHOWN:,} more; --json lists all")
    elif of is not None and of > len(listed):
        click.echo(f"  … and {of - len(listed):,} more")
