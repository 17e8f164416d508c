"""`shardline count`."""

from __future__ import annotations

import click

from shardline.cli.errors import render_hint
from shardline.cli.options import (
    expand_patterns,
    files_argument,
    json_option,
    limit_options,
    limits,
    workers_option,
)
from shardline.cli.output import add_skipped_files, print_json
from shardline.cli.progress import show_file_progress
from shardline.errors import NotTFRecordError
from shardline.text import escape_text


@click.command(
    epilog="""\b
Examples:
  shardline count train.tfrecord
  shardline count 'train-*' --json""",
)
@files_argument
@workers_option
@limit_options
@json_option
def count(
    files: tuple[str, ...],
    *,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    as_json: bool,
) -> None:
    """Count the records of TFRecord files.

    Every record is checked. Counting stops at the first fault of a file, which is reported. Exits
    with 1 if a file has a fault.
    """
    from shardline.operations.verify_files import verify_files

    paths = expand_patterns(files)
    with show_file_progress("counting", paths) as progress:
        reports = verify_files(
            paths, limits=limits(max_record, max_decompressed), workers=workers, progress=progress
        )
    ok = all(report.ok for report in reports)
    total = sum(report.records for report in reports)
    if as_json:
        keys = ("file", "records", "ok", "complete", "faults")
        files_payload = [
            {key: value for key, value in report.to_dict().items() if key in keys}
            for report in reports
        ]
        payload = {"ok": ok, "records": total, "complete": ok, "files": files_payload}
        print_json(add_skipped_files(payload))
    else:
        for report in reports:
            click.echo(
                f"{_format_count(report.records, complete=report.ok)}  {escape_text(report.file)}"
            )
        if len(reports) > 1:
            click.echo(f"{_format_count(total, complete=ok)}  total")
    for report in reports:
        if report.foreign:
            error = NotTFRecordError(report.file, report.foreign)
            click.echo(f"error: {escape_text(error.message)}", err=True)
            if error.hint:
                click.echo(f"hint: {render_hint(error.hint)}", err=True)
            continue
        for fault in report.faults:
            position = f"record {fault.record}, offset {fault.offset}"
            click.echo(
                f"error: {escape_text(report.file)}: {fault.kind} at {position}: {fault.detail} "
                "(counting stopped)",
                err=True,
            )
    raise SystemExit(0 if ok else 1)


def _format_count(records: int, *, complete: bool) -> str:
    """Format a count, or a lower bound if a fault ended the counting."""
    return f"{records:>14,}" if complete else f"at least {records:>5,}"
