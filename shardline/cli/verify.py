"""`shardline verify`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.options import (
    expand,
    files_argument,
    json_option,
    limit_options,
    limits,
    workers_option,
)
from shardline.cli.progress import file_progress
from shardline.cli.wording import counted, escaped, human_bytes
from shardline.errors import salvage_advice

if TYPE_CHECKING:
    from shardline.operations.verify import FileReport

_SHOWN_FAULTS = 20


@click.command(
    epilog="""\b
Examples:
  shardline verify train.tfrecord
  shardline verify data/ 'more/*.gz' --json
  shardline verify broken.tfrecord --all

A file cut exactly between two records looks clean: only a count kept elsewhere can tell.""",
)
@files_argument
@click.option("--examples", is_flag=True, help="Also check that each record is a sound Example.")
@click.option(
    "every_fault", "--all", is_flag=True, help="Go on behind each fault and find them all."
)
@workers_option
@limit_options
@json_option
def verify(
    files: tuple[str, ...],
    *,
    examples: bool,
    every_fault: bool,
    workers: int | None,
    max_record: int,
    max_unpacked: int,
    as_json: bool,
) -> None:
    """Check every byte of TFRecord files.

    Both checksums of every record are compared, and nothing may be left over or cut off. With
    --examples each record must also be an Example or SequenceExample that protobuf and all of
    TensorFlow's parsers read alike. Exits with 1 if any file has a fault.
    """
    from shardline.operations.verify import verify_files

    paths = expand(files)
    began = time.perf_counter()
    with file_progress("verifying", paths) as progress:
        reports = verify_files(
            paths,
            examples=examples,
            every_fault=every_fault,
            limits=limits(max_record, max_unpacked),
            workers=workers,
            progress=progress,
        )
    ok = all(report.ok for report in reports)
    if as_json:
        click.echo(json.dumps({"ok": ok, "files": [_as_dict(report) for report in reports]}))
    else:
        _print(reports, time.perf_counter() - began)
    raise SystemExit(0 if ok else 1)


def _as_dict(report: FileReport) -> dict[str, Any]:
    return {
        "file": report.file,
        "records": report.records,
        "bytes": report.bytes,
        "compression": report.compression.value,
        "ok": report.ok,
        "faults": [asdict(fault) for fault in report.faults],
    }


def _print(reports: list[FileReport], seconds: float) -> None:
    for report in reports:
        mark = click.style("ok     ", fg="green") if report.ok else click.style("DAMAGED", fg="red")
        packed = "" if report.compression.value == "none" else f", {report.compression.value}"
        size = human_bytes(report.bytes)
        click.echo(
            f"{mark} {escaped(report.file)}: {counted(report.records, 'record')}, {size}{packed}"
        )
        for fault in report.faults[:_SHOWN_FAULTS]:
            where = f"record {fault.record}, offset {fault.offset}"
            click.echo(f"        {fault.kind} at {where}: {fault.detail}")
        if len(report.faults) > _SHOWN_FAULTS:
            more = counted(len(report.faults) - _SHOWN_FAULTS, "more fault")
            click.echo(f"        … and {more}; --json lists all")
    damaged = [report for report in reports if not report.ok]
    total = sum(report.bytes for report in reports)
    records = counted(sum(report.records for report in reports), "record")
    speed = f"{human_bytes(total / max(seconds, 1e-9))}/s"
    click.echo(
        f"{counted(len(reports), 'file')}, {len(damaged)} damaged; {records}, "
        f"{human_bytes(total)} in {seconds:.2f} s ({speed})"
    )
    advised = [
        advice
        for report in sorted(damaged, key=lambda report: not report.records)
        if (advice := salvage_advice(escaped(report.file), report.faults[0].kind))
    ]
    if advised:
        others = len(advised) - 1
        click.echo(advised[0] + (f"  (and {others} more)" if others else ""))
