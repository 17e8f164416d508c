"""`shardline export`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from shardline.cli.options import (
    compression_option,
    json_option,
    limit_options,
    limits,
    output_option,
    root_option,
)
from shardline.cli.output import print_json
from shardline.cli.output_file import validate_not_folder
from shardline.cli.progress import open_progress_executor
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.text import escape_text, format_bytes, format_count, format_rate

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.operations.export import ExportReport


@click.command(
    epilog="""\b
Examples:
  shardline export digits/v1 -o digits.tfrecord
  shardline export digits/v1@7 -o seventh.tfrecord --compression gzip

"""
    + SNAPSHOT_HELP,
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@output_option
@compression_option(None, "  [default: as the shards]")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing file that is not an export of the version.",
)
@limit_options
@root_option
@json_option
def export(
    reference: str,
    output: Path,
    *,
    compression: str | None,
    overwrite: bool,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Write the records of a snapshot to a single TFRecord file, in order.

    Records are checked and copied byte for byte. OUT.export describes the file. A second run
    replaces an earlier export of the same version if the snapshot has changed, at once and as a
    whole. Other existing files are kept unless --overwrite is given. Exits with 1 if a record is
    corrupt; OUT is unchanged then.
    """
    from shardline.operations.export import export as run

    target = parse_reference(reference)
    validate_not_folder(output)
    version = open_version(open_root(root), target)
    snapshot = find_snapshot(version, target)
    began = time.perf_counter()
    with open_progress_executor() as executor:
        report = run(
            version,
            output,
            snapshot=snapshot.number,
            compression=compression,
            overwrite=overwrite,
            limits=limits(max_record, max_decompressed),
            executor=executor,
        )
    seconds = time.perf_counter() - began
    if as_json:
        print_json({"ok": True, **report.to_dict(), "seconds": round(seconds, 6)})
    else:
        _print_report(report, seconds)


def _print_report(report: ExportReport, seconds: float) -> None:
    exported = report.exported
    snapshot = f"{exported.version}@{exported.snapshot}"
    path = escape_text(str(report.path))
    if not report.written:
        click.echo(f"{path}: up to date with {snapshot}")
        return
    suffix = "" if exported.compression == "none" else f", {exported.compression}"
    click.echo(
        f"{path}: {snapshot}, {format_count(exported.records, 'record')}, "
        f"{format_bytes(exported.bytes)}{suffix}"
    )
    click.echo(f"  {format_rate(exported.records, exported.bytes, seconds)}")
