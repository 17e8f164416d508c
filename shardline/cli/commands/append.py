"""What an append did, for people and for machines."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import render_hint
from shardline.cli.options import (
    Share,
    Size,
    compression_option,
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.output import add_skipped_files, format_source, locate_object
from shardline.cli.progress import open_progress_executor
from shardline.cli.references import open_root, parse_version, render_next_command
from shardline.cli.schema_file import read_schema
from shardline.cli.snapshot_check import check_snapshot, print_check, serialize_check
from shardline.cli.source_arguments import find_sources, format_option
from shardline.errors import ChangedSourceError
from shardline.text import escape_text, format_bytes, format_count, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.cli.options import CommandFunction
    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.log.version import StoredVersion
    from shardline.operations.append import AppendReport


_SHOWN = 10


def serialize_report(
    report: AppendReport, version: StoredVersion, checked: SnapshotCheck | None, seconds: float
) -> dict[str, Any]:
    """Return the report with the new snapshot, its check, and paths of quarantine files."""
    payload = report.to_dict()
    files = [locate_object(version, name) for name in report.quarantine_files]
    return {
        "ok": not report.rejected and (checked is None or checked.ok),
        **payload,
        "snapshot": version.snapshot(report.snapshot).to_dict() if report.snapshot else None,
        "seconds": round(seconds, 6),
        "quarantine": {**payload["quarantine"], "files": files},
        "check": None if checked is None else serialize_check(checked),
        "published": version.state.published == version.state.snapshot,
    }


def print_report(
    report: AppendReport, version: StoredVersion, seconds: float, *, dry_run: bool
) -> None:
    """What an append did, before any check."""
    if report.created:
        _print_created(version)
    if dry_run:
        _print_plan(report, version)
    else:
        _print_committed(report, seconds)
    if report.quarantined_rows:
        _print_quarantine(report, version)
    if report.rejected:
        _print_rejected_sources(report)
    if report.replaced:
        click.echo(f"replaced what {format_count(len(report.replaced), 'source')} had brought in:")
        _print_lines(f"{format_source(s)}, entry {entry}" for s, entry in report.replaced)
    if report.duplicates:
        _print_duplicates(report)
    if len(report.skipped) > len(report.duplicates):
        _print_skipped(report)


def _print_committed(report: AppendReport, seconds: float) -> None:
    """Print what an append committed."""
    if report.snapshot is not None:
        sources = format_count(len(report.appended), "source")
        shards = format_count(sum(len(landing.shards) for landing in report.appended), "shard")
        click.echo(
            f"{report.version}@{report.snapshot}: +{format_count(report.records, 'record')} "
            f"of {sources}"
            f", {format_bytes(report.bytes)} in {shards}"
        )
        click.echo(f"  {format_rate(report.records, report.bytes, seconds)}")
    elif report.appended:
        click.echo(
            f"{report.version}: {format_count(len(report.appended), 'source')} gave no "
            "record, so there "
            "is no new snapshot"
        )
    elif report.rejected:
        click.echo(f"{report.version}: no source was appended")
    else:
        click.echo(f"{report.version}: nothing is new, and nothing was changed")


def print_next_commands(
    report: AppendReport, version: StoredVersion, checked: SnapshotCheck | None
) -> None:
    """What to run next."""
    if report.snapshot is None:
        state = version.state
        if not report.new and state.snapshot and state.published != state.snapshot:
            newest = f"{version.name}@{state.snapshot}"
            click.echo(
                f"{newest} is not published. To see why: "
                f"{render_next_command('status', version.name)}"
            )
        return
    made = version.snapshot(report.snapshot)
    if made.published:
        click.echo(f"To read it: {render_next_command('files', version.name)}")
    elif checked is None:
        click.echo(f"To check it, and so publish it: {render_next_command('check', str(made))}")


def _print_created(version: StoredVersion) -> None:
    schema = version.schema
    what = format_count(len(schema.features), "feature") if schema.features else "opaque records"
    click.echo(f"created {version.name}, whose schema has {what}:")
    _print_lines(f"{escape_text(feature.name)}: {feature}" for feature in schema.features)


def _print_plan(report: AppendReport, version: StoredVersion) -> None:
    if report.new:
        creates = "" if version.exists else f", and {version.name} be created"
        click.echo(
            f"{report.version}: {format_count(len(report.new), 'source')} would land{creates}:"
        )
        _print_lines(format_source(source) for source in report.new)
        click.echo("Nothing was changed, and no row was looked at. To do it, leave out --dry-run")
    else:
        click.echo(f"{report.version}: nothing is new")


def _print_quarantine(report: AppendReport, version: StoredVersion) -> None:
    rows = sum(landing.rows for landing in report.appended)
    click.echo(
        f"{format_count(report.quarantined_rows, 'row')} of {rows:,} did not fit and went to "
        f"quarantine ({report.quarantined_rows / max(rows, 1):.2%}):"
    )
    reasons = [escape_text(why) for landing in report.appended for why in landing.reasons]
    _print_lines(reasons, report.quarantined_rows)
    click.echo("They are, each with its reason, in:")
    _print_lines(escape_text(locate_object(version, name)) for name in report.quarantine_files)


def _print_rejected_sources(report: AppendReport) -> None:
    count = format_count(len(report.rejected), "source")
    click.echo(f"set aside {count}, which cannot be appended:")
    for one in report.rejected[:_SHOWN]:
        for number, line in enumerate(one.reason.splitlines()):
            click.echo(f"  {'' if number == 0 else '  '}{escape_text(line)}")
    if len(report.rejected) > _SHOWN:
        click.echo(f"  … and {len(report.rejected) - _SHOWN:,} more; --json lists all")
    changed = [one for one in report.rejected if one.code == ChangedSourceError.code]
    if changed and changed[0].hint is not None:
        click.echo(f"hint: {render_hint(changed[0].hint)}")
    if len(changed) < len(report.rejected):
        click.echo("They come in when their content changed, or with --retry-rejected")


def _print_duplicates(report: AppendReport) -> None:
    click.echo(f"warning: skipped {format_count(len(report.duplicates), 'duplicate')}:")
    _print_lines(
        f"{format_source(one.source)}: {escape_text(one.reason)}" for one in report.duplicates
    )


def _print_skipped(report: AppendReport) -> None:
    skipped = [one for one in report.skipped if one.code != "duplicate"]
    click.echo(f"skipped {format_count(len(skipped), 'source')}:")
    _print_lines(f"{format_source(one.source)}: {escape_text(one.reason)}" for one in skipped)
    out = [one.source for one in report.skipped if one.can_retry]
    if out:
        again = render_next_command(
            "append", report.version, format_source(out[0]), "--retry-rejected"
        )
        click.echo(f"To append what was taken out all the same: {again}")


def _print_lines(lines: Iterable[str], of: int | None = None) -> None:
    """The first lines, and how many more there are."""
    listed = list(lines)
    for line in listed[:_SHOWN]:
        click.echo(f"  {line}")
    if len(listed) > _SHOWN:
        click.echo(f"  … and {len(listed) - _SHOWN:,} more; --json lists all")
    elif of is not None and of > len(listed):
        click.echo(f"  … and {of - len(listed):,} more")


@dataclass(frozen=True, slots=True)
class _AppendOptions:
    """The arguments and options."""

    version: str
    sources: tuple[str, ...]
    schema: Path | None
    format_: str | None
    target_size: int
    compression: str | None
    max_quarantined: float
    salvage: bool
    skip_invalid: bool
    retry_rejected: bool
    on_duplicate: str
    on_changed: str
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_decompressed: int
    root: str | None
    as_json: bool


def _append_options(command: CommandFunction) -> CommandFunction:
    for decorate in (
        json_option,
        root_option,
        limit_options,
        workers_option,
        no_check_option,
        click.option("--dry-run", is_flag=True, help="List the new sources without writing."),
        click.option(
            "--on-changed",
            type=click.Choice(["reject", "append", "replace"]),
            default="reject",
            show_default=True,
            help="For a known path with other content: reject it, append it, or replace the "
            "records of the old content.",
        ),
        click.option(
            "--on-duplicate",
            type=click.Choice(["skip", "append"]),
            default="skip",
            show_default=True,
            help="For known content under another path: skip it or append it.",
        ),
        click.option(
            "--retry-rejected",
            is_flag=True,
            help="Retry sources that were rejected, or rolled back by a restore.",
        ),
        click.option(
            "--skip-invalid",
            is_flag=True,
            help="Skip invalid sources and record them as rejected.",
        ),
        click.option(
            "--salvage",
            is_flag=True,
            help="Take the intact records of corrupt TFRecord files. The losses are quarantined.",
        ),
        click.option(
            "--max-quarantined",
            type=Share(),
            default="0",
            show_default=True,
            metavar="SHARE",
            help="Quarantine up to this share of rows that do not fit the schema, such as "
            "1% or 0.01.",
        ),
        compression_option(None, "  [default: as the version is, a new one not]"),
        click.option(
            "--target-size",
            type=Size(least=1),
            default="128MB",
            show_default=True,
            help="Start a new shard at this size.",
        ),
        format_option("the sources are"),
        click.option(
            "--schema",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Schema of a new version, as written by 'shardline schema --declare'.  "
            "[default: inferred]",
        ),
        click.argument("sources", nargs=-1, required=True, metavar="SOURCE..."),
        click.argument("version", metavar="NAME/VERSION"),
    ):
        command = decorate(command)
    return command


@click.command(
    epilog="""\b
Examples:
  shardline append digits/v1 monday.jsonl
  shardline append digits/v1 'landing/*.parquet' --max-quarantined 1%
  shardline append photos/v1 images/ --format folder
  shardline append digits/v1 s3://bucket/in/day-1.tfrecord
\b
Start from an inferred schema, and edit it:
  shardline schema monday.jsonl --declare > digits.json
  shardline append digits/v1 monday.jsonl --schema digits.json
\b
Or write a schema by hand:
  {"payload": "example", "features": [
    {"name": "label", "kind": "int64"},
    {"name": "image", "kind": "bytes", "required": false},
    {"name": "vector", "kind": "float", "shape": [128]}]}

SOURCE is a file, a glob in quotes, a folder or the URI of an object, in TFRecord, JSON lines, CSV,
Parquet or Arrow. A folder means its files in these formats. In a folder without such files,
each file becomes a record with its path, label (name of the parent folder) and content.""",
)
@_append_options
def append(**asked: Any) -> None:  # noqa: ANN401 - they are told in _AppendOptions
    """Append the records of new sources to a version, each source exactly once.

    The first append creates the version. A source that was appended before is skipped, and so is
    a duplicate: known content under another path. A known path with other content is rejected,
    unless --on-changed says otherwise. A row that does not fit the schema fails the append, unless
    --max-quarantined allows it. The new snapshot is checked and published.

    Exits with 0 if nothing is new. Exits with 1 if rows do not fit, a source is corrupt, changed or
    has another schema, or the check fails. Exits with 2 if a source cannot be read.
    """
    _run(_AppendOptions(**asked))


def _run(asked: _AppendOptions) -> None:
    from shardline.log.version import StoredVersion
    from shardline.operations.append import append as run

    wanted = parse_version(asked.version)
    within = limits(asked.max_record, asked.max_decompressed)
    sources = find_sources(asked.sources, asked.format_)
    declared = None if asked.schema is None else read_schema(asked.schema)
    version = StoredVersion(open_root(asked.root, may_be_new=True), wanted.version)
    unknown = declared is None and not version.exists
    began = time.perf_counter()
    then = {"identifying": "finding the schema"} if unknown and not asked.dry_run else {}
    with open_progress_executor(asked.workers, then=then) as executor:
        report = run(
            version,
            sources,
            schema=declared,
            format=asked.format_,  # type: ignore[arg-type] # one of its choices
            target_bytes=asked.target_size,
            compression=asked.compression,
            max_quarantined=asked.max_quarantined,
            salvage=asked.salvage,
            skip_invalid=asked.skip_invalid,
            retry_rejected=asked.retry_rejected,
            on_duplicate=asked.on_duplicate,  # type: ignore[arg-type] # one of its choices
            on_changed=asked.on_changed,  # type: ignore[arg-type] # one of its choices
            dry_run=asked.dry_run,
            limits=within,
            executor=executor,
        )
    seconds = time.perf_counter() - began
    if not asked.as_json:
        print_report(report, version, seconds, dry_run=asked.dry_run)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(version, report.snapshot, limits=within, workers=asked.workers)
    if asked.as_json:
        told = serialize_report(report, version, checked, seconds)
        click.echo(json.dumps(add_skipped_files(told)))
    else:
        if checked is not None:
            print_check(checked)
        print_next_commands(report, version, checked)
    fine = not report.rejected and (checked is None or checked.ok)
    raise SystemExit(0 if fine else 1)
