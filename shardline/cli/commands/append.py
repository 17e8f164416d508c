"""`shardline append`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import print_hint, render_hint
from shardline.cli.options import (
    Share,
    Size,
    WriteOptions,
    compression_option,
    write_options,
)
from shardline.cli.output import (
    add_skipped_files,
    format_source,
    locate_object,
    print_dry_run_notice,
    print_json,
    print_limited,
)
from shardline.cli.progress import open_progress_executor
from shardline.cli.references import open_root, parse_version
from shardline.cli.schema_file import read_schema
from shardline.cli.snapshot_check import (
    check_new_snapshot,
    print_check,
    print_check_command,
    print_files_command,
    print_unpublished,
    serialize_check,
)
from shardline.cli.source_arguments import find_sources, format_option
from shardline.errors import ChangedSourceError
from shardline.hints import Command
from shardline.text import escape_text, format_bytes, format_count, format_rate

if TYPE_CHECKING:
    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.log.version import StoredVersion
    from shardline.operations.append import AppendReport


def _serialize_report(
    report: AppendReport, version: StoredVersion, check: SnapshotCheck | None, seconds: float
) -> dict[str, Any]:
    """Return the report with the new snapshot, its check, and paths of quarantine files."""
    payload = report.to_dict()
    files = [locate_object(version, name) for name in report.quarantine_files]
    return {
        "ok": not report.rejected and (check is None or check.ok),
        **payload,
        "snapshot": version.snapshot(report.snapshot).to_dict() if report.snapshot else None,
        "seconds": round(seconds, 6),
        "quarantine": {**payload["quarantine"], "files": files},
        "check": None if check is None else serialize_check(check),
        "published": version.state.published == version.state.snapshot,
    }


def _print_report(
    report: AppendReport, version: StoredVersion, seconds: float, *, dry_run: bool
) -> None:
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
        click.echo(f"replaced the records of {format_count(len(report.replaced), 'source')}:")
        print_limited(f"{format_source(s)}, entry {entry}" for s, entry in report.replaced)
    if report.duplicates:
        _print_duplicates(report)
    if len(report.skipped) > len(report.duplicates):
        _print_skipped(report)


def _print_committed(report: AppendReport, seconds: float) -> None:
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
            f"{report.version}: no new snapshot, no records in "
            f"{format_count(len(report.appended), 'source')}"
        )
    elif report.rejected:
        click.echo(f"{report.version}: no source appended")
    else:
        click.echo(f"{report.version}: up to date")


def _print_next_command(
    report: AppendReport, version: StoredVersion, check: SnapshotCheck | None
) -> None:
    if report.snapshot is None:
        state = version.state
        if not report.new and state.snapshot and state.published != state.snapshot:
            print_unpublished(version.latest())
        return
    snapshot = version.snapshot(report.snapshot)
    if snapshot.published:
        print_files_command(version.name)
    elif check is None:
        print_check_command(str(snapshot))


def _print_created(version: StoredVersion) -> None:
    schema = version.schema
    content = format_count(len(schema.features), "feature") if schema.features else "opaque records"
    click.echo(f"created {version.name} with {content}:")
    print_limited(f"{escape_text(feature.name)}: {feature}" for feature in schema.features)


def _print_plan(report: AppendReport, version: StoredVersion) -> None:
    if report.new:
        new = "" if version.exists else " (new)"
        click.echo(
            f"{report.version}{new}: would append {format_count(len(report.new), 'source')}:"
        )
        print_limited(format_source(source) for source in report.new)
        click.echo("Rows were not read.")
        print_dry_run_notice()
    else:
        click.echo(f"{report.version}: up to date")


def _print_quarantine(report: AppendReport, version: StoredVersion) -> None:
    rows = sum(landing.rows for landing in report.appended)
    click.echo(
        f"quarantined {report.quarantined_rows:,} of {format_count(rows, 'row')} "
        f"({report.quarantined_rows / max(rows, 1):.2%}):"
    )
    reasons = [escape_text(reason) for landing in report.appended for reason in landing.reasons]
    print_limited(reasons, total=report.quarantined_rows)
    click.echo("quarantine files:")
    print_limited(escape_text(locate_object(version, name)) for name in report.quarantine_files)


def _print_rejected_sources(report: AppendReport) -> None:
    count = format_count(len(report.rejected), "source")
    click.echo(f"rejected {count}:")
    print_limited(
        "\n    ".join(map(escape_text, source.reason.splitlines())) for source in report.rejected
    )
    changed = [source for source in report.rejected if source.code == ChangedSourceError.code]
    if changed and changed[0].hint is not None:
        click.echo(f"hint: {render_hint(changed[0].hint)}")
    if len(changed) < len(report.rejected):
        click.echo("To append them, change their content or add --retry-rejected")


def _print_duplicates(report: AppendReport) -> None:
    click.echo(f"warning: skipped {format_count(len(report.duplicates), 'duplicate')}:")
    print_limited(
        f"{format_source(duplicate.source)}: {escape_text(duplicate.reason)}"
        for duplicate in report.duplicates
    )


def _print_skipped(report: AppendReport) -> None:
    sources = [source for source in report.skipped if source.code != "duplicate"]
    click.echo(f"skipped {format_count(len(sources), 'source')}:")
    print_limited(
        f"{format_source(skipped.source)}: {escape_text(skipped.reason)}" for skipped in sources
    )
    retryable = [skipped.source for skipped in report.skipped if skipped.can_retry]
    if retryable:
        print_hint(
            "to retry, run ",
            Command.of("append", report.version, format_source(retryable[0]), "--retry-rejected"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AppendOptions(WriteOptions):
    """Arguments and options."""

    version: str
    sources: tuple[str, ...]
    schema: Path | None
    format_: str | None
    target_size: int
    max_quarantined: float
    salvage: bool
    skip_invalid: bool
    retry_rejected: bool
    on_duplicate: str
    on_changed: str


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
@click.argument("version", metavar="NAME/VERSION")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schema of a new version, as written by 'shardline schema --declare'.  "
    "[default: inferred]",
)
@format_option("the sources are")
@click.option(
    "--target-size",
    type=Size(least=1),
    default="128MB",
    show_default=True,
    help="Start a new shard at this size.",
)
@compression_option(None, "  [default: as in the version; none if it is new]")
@click.option(
    "--max-quarantined",
    type=Share(),
    default="0",
    show_default=True,
    metavar="SHARE",
    help="Quarantine up to this share of rows that do not fit the schema, such as 1% or 0.01.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Take the intact records of corrupt TFRecord files. The losses are quarantined.",
)
@click.option(
    "--skip-invalid", is_flag=True, help="Skip invalid sources and record them as rejected."
)
@click.option(
    "--retry-rejected",
    is_flag=True,
    help="Retry sources that were rejected, or rolled back by a restore.",
)
@click.option(
    "--on-duplicate",
    type=click.Choice(["skip", "append"]),
    default="skip",
    show_default=True,
    help="For known content under another path: skip it or append it.",
)
@click.option(
    "--on-changed",
    type=click.Choice(["reject", "append", "replace"]),
    default="reject",
    show_default=True,
    help="For a known path with other content: reject it, append it, or replace the records of "
    "the old content.",
)
@write_options
def append(**values: Any) -> None:  # noqa: ANN401 - the fields of _AppendOptions
    """Append the records of new sources to a version, each source exactly once.

    The first append creates the version. A source that was appended before is skipped, and so is
    a duplicate: known content under another path. A known path with other content is rejected,
    unless --on-changed is given. A row that does not fit the schema fails the append, unless
    --max-quarantined allows it. The new snapshot is checked and published.

    Exits with 0 if nothing is new. Exits with 1 if rows do not fit, a source is corrupt, changed or
    has another schema, or the check fails. Exits with 2 if a source cannot be read.
    """
    _run(_AppendOptions(**values))


def _run(options: _AppendOptions) -> None:
    from shardline.log.version import StoredVersion
    from shardline.operations.append import append as run

    name = parse_version(options.version).version
    limits = options.limits
    sources = find_sources(options.sources, options.format_)
    declared = None if options.schema is None else read_schema(options.schema)
    version = StoredVersion(open_root(options.root, may_be_new=True), name)
    began = time.perf_counter()
    infers = declared is None and not version.exists and not options.dry_run
    then = {"identifying": "finding the schema"} if infers else {}
    with open_progress_executor(options.workers, then=then) as executor:
        report = run(
            version,
            sources,
            schema=declared,
            format=options.format_,  # type: ignore[arg-type] # one of its choices
            target_bytes=options.target_size,
            compression=options.compression,
            max_quarantined=options.max_quarantined,
            salvage=options.salvage,
            skip_invalid=options.skip_invalid,
            retry_rejected=options.retry_rejected,
            on_duplicate=options.on_duplicate,  # type: ignore[arg-type] # one of its choices
            on_changed=options.on_changed,  # type: ignore[arg-type] # one of its choices
            dry_run=options.dry_run,
            limits=limits,
            executor=executor,
        )
    seconds = time.perf_counter() - began
    if not options.as_json:
        _print_report(report, version, seconds, dry_run=options.dry_run)
    check = check_new_snapshot(version, report.snapshot, options)
    if options.as_json:
        print_json(add_skipped_files(_serialize_report(report, version, check, seconds)))
    else:
        if check is not None:
            print_check(check)
        _print_next_command(report, version, check)
    ok = not report.rejected and (check is None or check.ok)
    raise SystemExit(0 if ok else 1)
