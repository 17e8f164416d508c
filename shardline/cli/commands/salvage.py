"""`shardline salvage`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError
from shardline.cli.options import (
    expand_pattern,
    json_option,
    limit_options,
    limits,
    output_option,
)
from shardline.cli.progress import make_cancellable, run_in_thread, show_file_progress
from shardline.text import escape_text, format_bytes, format_count

_SHOWN_GAPS = 20


@click.command(
    epilog="""\b
Examples:
  shardline salvage broken.tfrecord -o saved.tfrecord
  shardline salvage broken.tfrecord -o saved.tfrecord --quarantine bad.jsonl
  shardline salvage broken.gz -o saved.tfrecord --compression none""",
)
@click.argument("source", metavar="FILE")
@output_option
@click.option(
    "--quarantine",
    type=click.Path(path_type=Path),
    help="Write the corrupt bytes to this new file, as JSON lines with base64.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "zlib"]),
    help="Compression of the output.  [default: as FILE]",
)
@limit_options
@json_option
def salvage(
    source: str,
    output: Path,
    *,
    quarantine: Path | None,
    compression: str | None,
    max_record: int,
    max_decompressed: int,
    as_json: bool,
) -> None:
    """Copy the intact records of a corrupt file to a new file.

    Records are copied byte for byte, in order, if both checksums match. The input is never changed.
    From a GZIP or ZLIB file, records before the fault are copied, and from GZIP also every intact
    later member.

    Exits with 0 and a list of losses if the output is written. Exits with 1 if no record is intact.
    """
    from shardline.execution.executor import CancellationToken
    from shardline.operations.salvage import salvage as run

    path = expand_pattern(source)
    if quarantine is not None and resolve_path(quarantine) == resolve_path(output):
        raise UsageError(
            "--output and --quarantine name the same file", code="conflicting-options", path=output
        )
    cancellation = CancellationToken()
    with show_file_progress("salvaging", [path]) as progress:
        work = partial(
            run,
            path,
            output,
            compression=compression,
            quarantine=quarantine,
            limits=limits(max_record, max_decompressed),
            progress=partial(make_cancellable(progress, cancellation), path),
        )
        report = run_in_thread(work, cancellation)
    if as_json:
        payload = {"ok": True, "file": str(path), "output": str(output), **report.to_dict()}
        click.echo(json.dumps(payload))
        return
    click.echo(f"{escape_text(str(output))}: recovered {format_count(report.recovered, 'record')}")
    if not report.gaps:
        click.echo(f"{escape_text(str(path))} is intact, nothing was lost")
        return
    spans = format_count(len(report.gaps), "corrupt span")
    click.echo(f"lost {format_bytes(report.lost_bytes)} in {spans}:")
    for gap in report.gaps[:_SHOWN_GAPS]:
        prefix = "compressed " if gap.packed else ""
        click.echo(f"  {prefix}offset {gap.offset}, {gap.bytes} bytes: {gap.kind}: {gap.detail}")
    if len(report.gaps) > _SHOWN_GAPS:
        click.echo(f"  … and {len(report.gaps) - _SHOWN_GAPS} more; --json lists all")
    if quarantine is not None:
        click.echo(f"corrupt bytes: {escape_text(str(quarantine))}")
