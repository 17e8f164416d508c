"""`shardline export`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.executor import open_progress_executor
from shardline.cli.options import (
    compression_option,
    json_option,
    limit_options,
    limits,
    root_option,
)
from shardline.cli.references import find_snapshot, open_root, open_version, parse_reference
from shardline.text import escape_text, format_bytes, format_count, format_rate

if TYPE_CHECKING:
    from shardline.operations.export import ExportReport


@click.command(
    epilog="""\b
Examples:
  shardline export digits/v1 digits.tfrecord
  shardline export digits/v1@7 seventh.tfrecord --compression gzip

SNAPSHOT is a number, a tag, 'published' (the default), 'latest' or a time (UTC).

Beside OUT lies OUT.export, which says what is in it. Run again, the command does nothing if nothing
is new, and else replaces the file: whoever reads it sees the old one or the new one, whole.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@compression_option(None, "  [default: as the shards]")
@click.option("--overwrite", is_flag=True, help="Replace OUT even if it is no earlier export.")
@limit_options
@root_option
@json_option
def export(
    reference: str,
    out: Path,
    *,
    compression: str | None,
    overwrite: bool,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Write the records of a snapshot to one TFRecord file, byte for byte and in order.

    They are checked while they are copied. An OUT that is there is replaced if it is an earlier
    export of the same version, and else left alone unless --overwrite is given. Exits with 1 at a
    damaged record: OUT is then as it was.
    """
    from shardline.operations.export import export as run

    wanted = parse_reference(reference)
    if out.is_dir():
        raise UsageError(
            f"{out} is a folder", code="output-is-folder", hint="name a file", path=out
        )
    version = open_version(open_root(root), wanted)
    snapshot = find_snapshot(version, wanted, wanted.readable)
    began = time.perf_counter()
    with open_progress_executor() as executor:
        report = run(
            version,
            out,
            snapshot=snapshot.number,
            compression=compression,
            overwrite=overwrite,
            limits=limits(max_record, max_decompressed),
            executor=executor,
        )
    seconds = time.perf_counter() - began
    if as_json:
        told = {
            "ok": True,
            "file": str(out),
            "written": report.written,
            "seconds": round(seconds, 6),
        }
        click.echo(json.dumps({**told, **report.exported.to_dict()}))
    else:
        _print_report(report, seconds)


def _print_report(report: ExportReport, seconds: float) -> None:
    told = report.exported
    what = f"{told.version}@{told.snapshot}"
    path = escape_text(str(report.path))
    if not report.written:
        click.echo(f"{path} holds {what} already: nothing to do")
        return
    packed = "" if told.compression == "none" else f", {told.compression}"
    click.echo(
        f"{path}: {what}, {format_count(told.records, 'record')}, "
        f"{format_bytes(told.bytes)}{packed}"
    )
    click.echo(f"  {format_rate(told.records, told.bytes, seconds)}")
