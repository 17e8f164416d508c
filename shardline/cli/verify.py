"""`shardline verify`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, render_hint
from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.progress import file_progress
from shardline.cli.skipped import with_skipped
from shardline.cli.targets import files_or_versions
from shardline.errors import foreign_hint, salvage_hint
from shardline.hints import Command, Hint
from shardline.text import counted, escaped, human_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.cli.references import Reference
    from shardline.operations.verify import FileReport

_SHOWN_FAULTS = 20


@click.command(
    short_help="Check every byte of TFRecord files, or of a dataset.",
    epilog="""\b
Examples:
  shardline verify train.tfrecord
  shardline verify data/ 'more/*.gz' --json
  shardline verify broken.tfrecord --all
  shardline verify digits/v1               the log and the newest snapshot
  shardline verify digits/v1@7 --quick     are its shards there, and whole?

SNAPSHOT is a number, a tag, 'published', 'newest' (the default) or a time (UTC).

A loose file cut exactly between two records looks clean: only a count kept elsewhere can tell. A
dataset's log keeps one.""",
)
@click.argument("arguments", nargs=-1, required=True, metavar="FILE|NAME/VERSION[@SNAPSHOT]...")
@click.option("--examples", is_flag=True, help="Also check that each record is a sound Example.")
@click.option(
    "every_fault", "--all", is_flag=True, help="Go on behind each fault and find them all."
)
@click.option("--quick", is_flag=True, help="Of a dataset: only that each shard is there, whole.")
@workers_option
@limit_options
@root_option
@json_option
def verify(
    arguments: tuple[str, ...],
    *,
    examples: bool,
    every_fault: bool,
    quick: bool,
    workers: int | None,
    max_record: int,
    max_unpacked: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Check every byte of TFRecord files, or of a dataset's snapshot.

    Both checksums of every record are compared, and nothing may be left over or cut off. With
    --examples each record must also be an Example or SequenceExample that protobuf and all of
    TensorFlow's parsers read alike.

    Of a snapshot, the log is proved entry by entry, and each shard must be the file that was
    committed: its length, count and sha256. Nothing is changed. What is a file or folder is taken
    for that; else NAME/VERSION is looked for in the root. Exits with 1 if anything has a fault.
    """
    from shardline.cli.verify_version import print_version, verify_one, version_json
    from shardline.operations.verify import verify_files

    paths, references = files_or_versions(arguments, root)
    _refuse_misfits(paths, references, quick=quick, for_files=examples or every_fault)
    asked = limits(max_record, max_unpacked)
    told: dict[str, Any] = {"ok": True}
    if paths:
        began = time.perf_counter()
        with file_progress("verifying", paths) as progress:
            reports = verify_files(
                paths,
                examples=examples,
                every_fault=every_fault,
                limits=asked,
                workers=workers,
                progress=progress,
            )
        told["ok"] = all(report.ok for report in reports)
        told["files"] = [_as_dict(report) for report in reports]
        if not as_json:
            _print(reports, time.perf_counter() - began)
    for reference in references:
        report, seconds = verify_one(root, reference, quick=quick, limits=asked, workers=workers)
        told["ok"] &= report.ok
        told.setdefault("versions", []).append(version_json(reference, report))
        if not as_json:
            print_version(reference, report, seconds)
    if as_json:
        click.echo(json.dumps(with_skipped(told)))
    raise SystemExit(0 if told["ok"] else 1)


def _refuse_misfits(
    paths: list[Path], references: list[Reference], *, quick: bool, for_files: bool
) -> None:
    if quick and paths:
        raise UsageError(
            f"--quick applies to datasets only ({paths[0]} is a file)",
            code="option-not-applicable",
            hint="leave it out",
            path=paths[0],
        )
    if for_files and references:
        raise UsageError(
            "--examples and --all apply to files only",
            code="option-not-applicable",
            hint=Hint.of(
                "to check the records of a version, run ", Command.of("check", str(references[0]))
            ),
            version=references[0].version,
        )


def _as_dict(report: FileReport) -> dict[str, Any]:
    return {
        "file": report.file,
        "records": report.records,
        "bytes": report.bytes,
        "compression": report.compression.value,
        "ok": report.ok,
        "complete": report.ok,
        **({"format": report.foreign} if report.foreign else {}),
        "faults": [asdict(fault) for fault in report.faults],
    }


def _print(reports: list[FileReport], seconds: float) -> None:
    for report in reports:
        mark = click.style("ok     ", fg="green") if report.ok else click.style("DAMAGED", fg="red")
        if report.foreign:
            shown = escaped(report.file)
            click.echo(
                f"{click.style('OTHER  ', fg='yellow')} {shown}: {report.foreign}, not TFRecord"
            )
            continue
        packed = "" if report.compression.value == "none" else f", {report.compression.value}"
        size = human_bytes(report.bytes)
        records = _records(report.records, complete=report.ok)
        click.echo(f"{mark} {escaped(report.file)}: {records}, {size}{packed}")
        for fault in report.faults[:_SHOWN_FAULTS]:
            where = f"record {fault.record}, offset {fault.offset}"
            click.echo(f"        {fault.kind} at {where}: {fault.detail}")
        if len(report.faults) > _SHOWN_FAULTS:
            more = counted(len(report.faults) - _SHOWN_FAULTS, "more fault")
            click.echo(f"        … and {more}; --json lists all")
    foreign = [report for report in reports if report.foreign]
    damaged = [report for report in reports if not report.ok and not report.foreign]
    others = f", {len(foreign)} not TFRecord" if foreign else ""
    total = sum(report.bytes for report in reports)
    records = _records(sum(report.records for report in reports), complete=not damaged)
    speed = f"{human_bytes(total / max(seconds, 1e-9))}/s"
    click.echo(
        f"{counted(len(reports), 'file')}, {len(damaged)} damaged{others}; {records}, "
        f"{human_bytes(total)} in {seconds:.2f} s ({speed})"
    )
    advised = [
        advice
        for report in sorted(damaged, key=lambda report: not report.records)
        if (advice := salvage_hint(report.file, report.faults[0].kind))
    ]
    if advised:
        rest = len(advised) - 1
        click.echo(f"hint: {render_hint(advised[0])}" + (f" (and {rest} more)" if rest else ""))
    if foreign:
        hint = foreign_hint(foreign[0].file, foreign[0].foreign or "")
        click.echo(f"hint: {render_hint(hint)}")


def _records(count: int, *, complete: bool) -> str:
    """Return how many records there are; of a damaged file, there may be more."""
    return f"{'' if complete else 'at least '}{counted(count, 'record')}"
