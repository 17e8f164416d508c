"""`shardline verify`."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, print_hint
from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.output import add_skipped_files
from shardline.cli.progress import show_byte_progress, show_file_progress
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    raise_not_found,
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
    """Verify a version and return the report and the seconds that it took."""
    from shardline.errors import CorruptLogError, VersionNotFoundError
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_version import count_bytes_to_verify, verify_version

    store = open_root(root)
    version = StoredVersion(store, reference.version)
    began = time.perf_counter()
    try:
        total = count_bytes_to_verify(find_snapshot(version, reference)) if version.exists else 0
    except CorruptLogError:
        total = 0  # the report has the reason
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
    """Print the report on a version."""
    if report.log is not None:
        _print_log(reference.version, report.log)
    _print_shards(report)
    snapshot = report.snapshot
    if snapshot is None:
        click.echo(f"{reference}: shards unknown, the log is corrupt")
        print_hint("restore the corrupt entries from a copy of the root")
        return
    total = snapshot.bytes + sum(base.shard.bytes for base in report.bases)
    duration = f"in {seconds:.2f} s"
    if report.log is not None:
        duration += f" ({format_bytes(total / max(seconds, 1e-9))}/s)"
    bases = f"{_format_shard_counts(report, report.bases, 'base shard')}; " if report.bases else ""
    click.echo(
        f"{snapshot}: {_format_shard_counts(report, report.shards, 'shard')}; {bases}"
        f"{format_count(snapshot.records, 'record')}, {format_bytes(total)} {duration}"
    )
    _print_indexes(snapshot, report)
    _print_remedies(snapshot, report)


def _print_indexes(snapshot: StoredSnapshot, report: VersionReport) -> None:
    """Print the indexes that do not match their shards, and how to repair them."""
    shards = [shard for shard in (*report.shards, *report.bases) if shard.index_problem]
    for shard in shards[:_SHOWN_PROBLEMS]:
        click.echo(f"{click.style('INDEX  ', fg='red')} {escape_text(shard.index_problem)}")
    _print_rest(len(shards), "more index", "more indexes")
    for version in dict.fromkeys(map(_get_version_name, shards)):
        print_hint(
            f"the records of {snapshot} are intact; to rewrite the indexes, run ",
            Command.of("repair", version),
        )


def _format_shard_counts(report: VersionReport, shards: list[ShardReport], noun: str) -> str:
    states = Counter(_get_state(report, shard) for shard in shards)
    parts = [format_count(len(shards), noun), f"{states['corrupt']} corrupt"]
    parts += [f"{states[state]} {state}" for state in ("invalid", "deleted") if states[state]]
    return ", ".join(parts)


def _get_state(report: VersionReport, shard: ShardReport) -> str:
    """Return the state of a shard; `invalid` is the committed file with records that do not fit."""
    if shard.shard.name in report.vacuumed:
        return "deleted"
    if shard.problems:
        return "corrupt"
    return "invalid" if shard.violations else "ok"


def _print_remedies(snapshot: StoredSnapshot, report: VersionReport) -> None:
    from shardline.readers.read_errors import get_dependency_hint

    if report.vacuumed:
        click.echo(f"Vacuum deleted shards of {snapshot}, which was no longer in use")
    bad = [
        shard for shard in report.shards if not shard.ok and _get_state(report, shard) != "deleted"
    ]
    if bad:
        print_hint(
            "to record the result and unpublish the snapshot, run ",
            Command.of("check", str(snapshot), "--recheck"),
        )
    bad_bases = [
        shard for shard in report.bases if _get_state(report, shard) in {"corrupt", "invalid"}
    ]
    _print_recreation(
        snapshot, [shard for shard in bad if shard.problems], has_bad_bases=bool(bad_bases)
    )
    for version, shard in {_get_version_name(base): base for base in bad_bases}.items():
        click.echo(f"{version} has corrupt base shards")
        print_hint(get_dependency_hint(snapshot.store, str(snapshot), version, shard.shard))


def _print_recreation(
    snapshot: StoredSnapshot, corrupt: list[ShardReport], *, has_bad_bases: bool
) -> None:
    """Print how to recreate corrupt shards of a snapshot, or how to release an old one."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import get_release_hint, get_repair_command

    version = StoredVersion(snapshot.store, snapshot.version)
    live_names = {shard.name for shard in version.latest().shards}
    live = [report.shard for report in corrupt if report.shard.name in live_names]
    if live and not (has_bad_bases and all(shard.base or shard.virtual for shard in live)):
        command = get_repair_command(version, live)
        if command:
            print_hint("to recreate the corrupt shards, run ", command)
    old = {report.name for report in corrupt if report.shard.name not in live_names}
    if old and (hint := get_release_hint(version, snapshot.number, old)):
        print_hint(hint)


def _get_version_name(base: ShardReport) -> str:
    return f"{base.name.partition('/')[0]}/{base.shard.owner}"


def _print_shards(report: VersionReport) -> None:
    labels = [(shard, "") for shard in report.shards]
    labels += [(base, f" (base shard of {_get_version_name(base)})") for base in report.bases]
    bad = [(shard, label) for shard, label in labels if not shard.ok]
    for shard, label in bad[:_SHOWN_PROBLEMS]:
        state = _get_state(report, shard)
        mark = click.style(f"{state.upper():7}", fg="yellow" if state == "deleted" else "red")
        click.echo(f"{mark} {shard.name}{label}")
        for line in format_failures(shard):
            click.echo(f"        {line}")
    _print_rest(len(bad), "more shard")


def _print_rest(total: int, noun: str, nouns: str = "") -> None:
    """Print how many findings are not shown."""
    if total > _SHOWN_PROBLEMS:
        rest = format_count(total - _SHOWN_PROBLEMS, noun, nouns)
        click.echo(f"        … and {rest}; --json lists all")


def _print_log(version: str, log: LogReport) -> None:
    checkpoints = f", {format_count(log.checkpoints, 'checkpoint')}" if log.checkpoints else ""
    entries = format_count(log.entries, "entry", "entries")
    problems = f": {format_count(len(log.problems), 'problem')}" if log.problems else ""
    click.echo(
        f"{_format_mark(ok=not log.problems)} log of {version}: {entries}{checkpoints}{problems}"
    )
    for problem in log.problems[:_SHOWN_PROBLEMS]:
        click.echo(f"        entry {problem.entry}: {escape_text(problem.detail)}")
    _print_rest(len(log.problems), "more problem")


def _format_mark(*, ok: bool) -> str:
    return click.style("ok     ", fg="green") if ok else click.style("CORRUPT", fg="red")


@click.command(
    epilog="""\b
Examples:
  shardline verify train.tfrecord
  shardline verify data/ 'more/*.gz' --json
  shardline verify broken.tfrecord --all
  shardline verify digits/v1               the log and the published snapshot
  shardline verify digits/v1@7 --quick     only presence and sizes of shards

A file that was cut between two records looks intact. The log of a dataset has the record count.

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
    file: length, record count and sha256. An argument names a file or folder, if that exists, or
    else a version in the root. Exits with 1 if anything has a fault.
    """
    from shardline.operations.verify_files import verify_files

    paths, references = split_files_and_versions(arguments, root)
    _validate_options(paths, references, quick=quick, for_files=examples or every_fault)
    read_limits = limits(max_record, max_decompressed)
    payload: dict[str, Any] = {"ok": True}
    if paths:
        began = time.perf_counter()
        with show_file_progress("verifying", paths) as progress:
            reports = verify_files(
                paths,
                examples=examples,
                every_fault=every_fault,
                limits=read_limits,
                workers=workers,
                progress=progress,
            )
        payload["ok"] = all(report.ok for report in reports)
        payload["files"] = [report.to_dict() for report in reports]
        if not as_json:
            _print_reports(reports, time.perf_counter() - began)
    for reference in references:
        report, seconds = verify_reference(
            root, reference, quick=quick, limits=read_limits, workers=workers
        )
        payload["ok"] &= report.ok
        versions = payload.setdefault("versions", [])
        versions.append({"version": reference.version, **report.to_dict()})
        if not as_json:
            print_version(reference, report, seconds)
    if as_json:
        click.echo(json.dumps(add_skipped_files(payload)))
    raise SystemExit(0 if payload["ok"] else 1)


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
        file = escape_text(report.file)
        if report.foreign:
            click.echo(
                f"{click.style('OTHER  ', fg='yellow')} {file}: {report.foreign}, not TFRecord"
            )
            continue
        compression = "" if report.compression.value == "none" else f", {report.compression.value}"
        size = format_bytes(report.bytes)
        records = _format_records(report.records, complete=report.ok)
        click.echo(f"{_format_mark(ok=report.ok)} {file}: {records}, {size}{compression}")
        for fault in report.faults[:_SHOWN_PROBLEMS]:
            location = f"record {fault.record}, offset {fault.offset}"
            click.echo(f"        {fault.kind} at {location}: {fault.detail}")
        _print_rest(len(report.faults), "more fault")
    foreign = [report for report in reports if report.foreign]
    corrupt = [report for report in reports if not report.ok and not report.foreign]
    others = f", {len(foreign)} not TFRecord" if foreign else ""
    total = sum(report.bytes for report in reports)
    records = _format_records(sum(report.records for report in reports), complete=not corrupt)
    speed = f"{format_bytes(total / max(seconds, 1e-9))}/s"
    click.echo(
        f"{format_count(len(reports), 'file')}, {len(corrupt)} corrupt{others}; {records}, "
        f"{format_bytes(total)} in {seconds:.2f} s ({speed})"
    )
    hints = [
        hint
        for report in sorted(corrupt, key=lambda report: not report.records)
        if (hint := salvage_hint(report.file, report.faults[0].kind))
    ]
    if hints:
        rest = len(hints) - 1
        print_hint(hints[0], f" (and {rest} more)" if rest else "")
    if foreign:
        print_hint(foreign_hint(foreign[0].file, foreign[0].foreign or ""))


def _format_records(count: int, *, complete: bool) -> str:
    """Return the number of records; a corrupt file may have more."""
    return f"{'' if complete else 'at least '}{format_count(count, 'record')}"
