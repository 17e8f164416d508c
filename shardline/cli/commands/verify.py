"""`shardline verify` of a dataset's snapshot."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, render_command, render_hint
from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.output import add_skipped_files
from shardline.cli.progress import show_byte_progress, show_file_progress
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    raise_not_found,
    render_next_command,
    split_files_and_versions,
)
from shardline.cli.snapshot_check import format_failures
from shardline.errors import foreign_hint, salvage_hint
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_bytes, format_count

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.cli.references import Reference
    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.inspect_shard import ShardReport
    from shardline.operations.verify_files import FileReport
    from shardline.operations.verify_log import LogReport
    from shardline.operations.verify_version import VersionReport
    from shardline.tfrecord import Limits


_SHOWN_PROBLEMS = 20


def verify_reference(
    root: str | None, reference: Reference, *, quick: bool, limits: Limits, workers: int | None
) -> tuple[VersionReport, float]:
    """Verify what a reference means; gives also how many seconds that took."""
    from shardline.errors import CorruptLogError, VersionNotFoundError
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_version import count_bytes_to_verify, verify_version

    store = open_root(root)
    version = StoredVersion(store, reference.version)
    began = time.perf_counter()
    try:
        total = count_bytes_to_verify(find_snapshot(version, reference)) if version.exists else 0
    except CorruptLogError:
        total = 0  # the report tells what is wrong
    with show_byte_progress("verifying", 0 if quick else total) as progress:
        try:
            report = verify_version(
                version,
                reference.snapshot or "published",
                quick=quick,
                limits=limits,
                workers=workers,
                progress=lambda shard, position: progress(shard.name, position),
            )
        except VersionNotFoundError:
            raise_not_found(store, reference.version)
    return report, time.perf_counter() - began


def print_version(reference: Reference, report: VersionReport, seconds: float) -> None:
    """What was found, for people."""
    if report.log is not None:
        _print_log(reference.version, report.log)
    _print_shards(report)
    snapshot = report.snapshot
    if snapshot is None:
        click.echo(
            f"{reference}: the log is too damaged to tell which shards there are; get the damaged\n"
            "entries back from a copy of the root"
        )
        return
    total = snapshot.bytes + sum(base.shard.bytes for base in report.bases)
    looked = f"in {seconds:.2f} s"
    if report.log is not None:
        looked += f" ({format_bytes(total / max(seconds, 1e-9))}/s)"
    bases = f"{_format_shard_counts(report, report.bases, 'base shard')}; " if report.bases else ""
    click.echo(
        f"{snapshot}: {_format_shard_counts(report, report.shards, 'shard')}; {bases}"
        f"{format_count(snapshot.records, 'record')}, {format_bytes(total)} {looked}"
    )
    _print_indexes(snapshot, report)
    _print_remedies(snapshot, report)


def _print_indexes(snapshot: StoredSnapshot, report: VersionReport) -> None:
    """Show the indexes that do not fit their shards, and what writes them again."""
    wrong = [one for one in (*report.shards, *report.bases) if one.index_problem]
    for one in wrong[:_SHOWN_PROBLEMS]:
        click.echo(f"{click.style('INDEX  ', fg='red')} {escape_text(one.index_problem)}")
    if len(wrong) > _SHOWN_PROBLEMS:
        click.echo(f"        … and {format_count(len(wrong) - _SHOWN_PROBLEMS, 'more such index')}")
    for version in dict.fromkeys(_get_version_name(one) for one in wrong):
        command = render_next_command("repair", version)
        click.echo(
            f"The records of {snapshot} are intact. To write the indexes again:\n  {command}"
        )


def _format_shard_counts(report: VersionReport, shards: list[ShardReport], noun: str) -> str:
    """How many shards there are, how many are damaged, and if any are gone or wrong, so many."""
    states = Counter(_format_state(report, one) for one in shards)
    more = "".join(f", {states[state]} {state}" for state in ("wrong", "gone") if states[state])
    return f"{format_count(len(shards), noun)}, {states['damaged']} damaged{more}"


def _format_state(report: VersionReport, shard: ShardReport) -> str:
    """A shard is `wrong` that is the file which was committed, with records that do not fit."""
    if shard.shard.name in report.vacuumed:
        return "gone"
    if shard.problems:
        return "damaged"
    return "wrong" if shard.violations else "ok"


def _print_remedies(snapshot: StoredSnapshot, report: VersionReport) -> None:
    from shardline.readers.read_errors import get_dependency_hint

    if report.vacuumed:
        click.echo(f"What is gone went to vacuum: nothing kept {snapshot} any longer")
    bad = [one for one in report.shards if not one.ok and _format_state(report, one) != "gone"]
    if bad:
        command = render_next_command("check", str(snapshot), "--recheck")
        click.echo(f"Nothing was changed. To write it to the log, and unpublish it:\n  {command}")
    spoiled = [one for one in report.bases if _format_state(report, one) in {"damaged", "wrong"}]
    _print_recreation(snapshot, [one for one in bad if one.problems], lies_on=bool(spoiled))
    for one in {_get_version_name(one): one for one in spoiled}.values():
        way = get_dependency_hint(snapshot.store, str(snapshot), _get_version_name(one), one.shard)
        click.echo(f"{_get_version_name(one)} has damaged base shards. {render_hint(way)}")


def _print_recreation(
    snapshot: StoredSnapshot, damaged: list[ShardReport], *, lies_on: bool
) -> None:
    """What makes shards of a snapshot anew, or what to do if nothing does that for an old one."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import get_release_hint, get_repair_command

    version = StoredVersion(snapshot.store, snapshot.version)
    held = {shard.name for shard in version.latest().shards}
    mine = [one.shard for one in damaged if one.shard.name in held]
    if mine and not (lies_on and all(shard.base or shard.virtual for shard in mine)):
        command = get_repair_command(version, mine)
        if command:
            click.echo(f"To make anew what is damaged:\n  {render_command(command)}")
    old = {one.name for one in damaged if one.shard.name not in held}
    if old and (way := get_release_hint(version, snapshot.number, old)):
        click.echo(render_hint(way))


def _get_version_name(base: ShardReport) -> str:
    """The version that a base shard is of."""
    return f"{base.name.partition('/')[0]}/{base.shard.owner}"


def _print_shards(report: VersionReport) -> None:
    told = [(one, "") for one in report.shards]
    told += [(one, f" (a base shard, of {_get_version_name(one)})") for one in report.bases]
    bad = [(one, what) for one, what in told if not one.ok]
    for one, what in bad[:_SHOWN_PROBLEMS]:
        state = _format_state(report, one)
        mark = click.style(f"{state.upper():7}", fg="yellow" if state == "gone" else "red")
        click.echo(f"{mark} {one.name}{what}")
        for line in format_failures(one):
            click.echo(f"        {line}")
    if len(bad) > _SHOWN_PROBLEMS:
        more = format_count(len(bad) - _SHOWN_PROBLEMS, "more such shard")
        click.echo(f"        … and {more}; --json lists all")


def _print_log(version: str, log: LogReport) -> None:
    checkpoints = f", {format_count(log.checkpoints, 'checkpoint')}" if log.checkpoints else ""
    entries = format_count(log.entries, "entry", "entries")
    problems = f": {format_count(len(log.problems), 'problem')}" if log.problems else ""
    click.echo(
        f"{_format_mark(ok=not log.problems)} log of {version}: {entries}{checkpoints}{problems}"
    )
    for problem in log.problems[:_SHOWN_PROBLEMS]:
        click.echo(f"        entry {problem.entry}: {escape_text(problem.detail)}")
    if len(log.problems) > _SHOWN_PROBLEMS:
        more = format_count(len(log.problems) - _SHOWN_PROBLEMS, "more problem")
        click.echo(f"        … and {more}; --json lists all")


def _format_mark(*, ok: bool) -> str:
    return click.style("ok     ", fg="green") if ok else click.style("DAMAGED", fg="red")


_SHOWN_FAULTS = 20


@click.command(
    epilog="""\b
Examples:
  shardline verify train.tfrecord
  shardline verify data/ 'more/*.gz' --json
  shardline verify broken.tfrecord --all
  shardline verify digits/v1               the log and the published snapshot
  shardline verify digits/v1@7 --quick     only presence and sizes of shards

A file that is cut between two records looks intact. The log of a dataset has the record count.

"""
    + SNAPSHOT_HELP,
)
@click.argument("arguments", nargs=-1, required=True, metavar="FILE|NAME/VERSION[@SNAPSHOT]...")
@click.option("--examples", is_flag=True, help="Also check that each record is a valid Example.")
@click.option("every_fault", "--all", is_flag=True, help="Report every fault, not only the first.")
@click.option(
    "--quick", is_flag=True, help="For versions: check only presence and sizes of shards."
)
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
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Check every byte of TFRecord files or of a snapshot. Changes nothing.

    In a file, both checksums of every record must match, without missing or extra bytes. With
    --examples, each record must also be an Example or SequenceExample that protobuf and
    TensorFlow's parsers read alike.

    In a version, the whole log is verified, and each shard of the snapshot must be the committed
    file: length, record count and sha256. Arguments name files and folders first, then versions in
    the root. Exits with 1 if anything has a fault.
    """
    from shardline.operations.verify_files import verify_files

    paths, references = split_files_and_versions(arguments, root)
    _validate_options(paths, references, quick=quick, for_files=examples or every_fault)
    asked = limits(max_record, max_decompressed)
    told: dict[str, Any] = {"ok": True}
    if paths:
        began = time.perf_counter()
        with show_file_progress("verifying", paths) as progress:
            reports = verify_files(
                paths,
                examples=examples,
                every_fault=every_fault,
                limits=asked,
                workers=workers,
                progress=progress,
            )
        told["ok"] = all(report.ok for report in reports)
        told["files"] = [report.to_dict() for report in reports]
        if not as_json:
            _print_reports(reports, time.perf_counter() - began)
    for reference in references:
        report, seconds = verify_reference(
            root, reference, quick=quick, limits=asked, workers=workers
        )
        told["ok"] &= report.ok
        versions = told.setdefault("versions", [])
        versions.append({"version": reference.version, **report.to_dict()})
        if not as_json:
            print_version(reference, report, seconds)
    if as_json:
        click.echo(json.dumps(add_skipped_files(told)))
    raise SystemExit(0 if told["ok"] else 1)


def _validate_options(
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


def _print_reports(reports: list[FileReport], seconds: float) -> None:
    for report in reports:
        mark = click.style("ok     ", fg="green") if report.ok else click.style("DAMAGED", fg="red")
        if report.foreign:
            shown = escape_text(report.file)
            click.echo(
                f"{click.style('OTHER  ', fg='yellow')} {shown}: {report.foreign}, not TFRecord"
            )
            continue
        packed = "" if report.compression.value == "none" else f", {report.compression.value}"
        size = format_bytes(report.bytes)
        records = _format_records(report.records, complete=report.ok)
        click.echo(f"{mark} {escape_text(report.file)}: {records}, {size}{packed}")
        for fault in report.faults[:_SHOWN_FAULTS]:
            where = f"record {fault.record}, offset {fault.offset}"
            click.echo(f"        {fault.kind} at {where}: {fault.detail}")
        if len(report.faults) > _SHOWN_FAULTS:
            more = format_count(len(report.faults) - _SHOWN_FAULTS, "more fault")
            click.echo(f"        … and {more}; --json lists all")
    foreign = [report for report in reports if report.foreign]
    damaged = [report for report in reports if not report.ok and not report.foreign]
    others = f", {len(foreign)} not TFRecord" if foreign else ""
    total = sum(report.bytes for report in reports)
    records = _format_records(sum(report.records for report in reports), complete=not damaged)
    speed = f"{format_bytes(total / max(seconds, 1e-9))}/s"
    click.echo(
        f"{format_count(len(reports), 'file')}, {len(damaged)} damaged{others}; {records}, "
        f"{format_bytes(total)} in {seconds:.2f} s ({speed})"
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


def _format_records(count: int, *, complete: bool) -> str:
    """Return how many records there are; of a damaged file, there may be more."""
    return f"{'' if complete else 'at least '}{format_count(count, 'record')}"
