"""`shardline rebuild`."""

from __future__ import annotations

import glob
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError, raise_as_usage_error
from shardline.cli.options import (
    Size,
    compression_option,
    expand_patterns,
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.output import add_skipped_files
from shardline.cli.progress import (
    make_cancellable,
    open_progress_executor,
    run_in_thread,
    show_file_progress,
)
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    is_reference,
    open_root,
    open_target_version,
    open_version,
    parse_reference,
)
from shardline.cli.snapshot_check import (
    check_snapshot,
    print_check,
    print_check_command,
    print_files_command,
    serialize_derived,
)
from shardline.hints import Command, Hint
from shardline.text import escape_text, format_bytes, format_count, format_rate

if TYPE_CHECKING:
    from shardline.cli.references import Reference
    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.rebuild import RebuildReport
    from shardline.tfrecord import Limits


def rebuild_standalone_files(
    patterns: tuple[str, ...],
    output: Path,
    target_size: int | None,
    compression: str | None,
    limits: Limits,
    *,
    overwrite: bool,
    allow_mixed: bool,
    as_json: bool,
) -> None:
    """Copy the records of files to one file, or to several in a new folder."""
    from shardline.execution.executor import CancellationToken
    from shardline.operations.rebuild_files import rebuild_files

    if overwrite and target_size is not None:
        raise UsageError(
            "--overwrite and --target-size exclude each other",
            code="conflicting-options",
            hint="with `--target-size`, OUT is a new folder",
        )
    paths = expand_patterns(patterns, repeats=True)
    if resolve_path(output) in set(map(resolve_path, paths)):
        raise UsageError(
            f"{output} is an input file",
            code="output-is-input",
            hint="write to another file",
            path=output,
        )
    if output.is_dir() and target_size is None:
        raise UsageError(
            f"{output} is a folder",
            code="output-is-folder",
            hint="name a file or add `--target-size`",
            path=output,
        )
    start = time.perf_counter()
    cancellation = CancellationToken()
    with show_file_progress("rebuilding", paths) as progress:
        run = partial(
            rebuild_files,
            paths,
            output,
            target_bytes=target_size,
            compression=compression,
            overwrite=overwrite,
            allow_mixed=allow_mixed,
            limits=limits,
            progress=make_cancellable(progress, cancellation),
        )
        report = run_in_thread(run, cancellation)
    seconds = time.perf_counter() - start
    if as_json:
        payload = {
            "ok": True,
            "output": str(output),
            "files": [str(file) for file in report.files],
            "read_files": len(paths),
            "records": report.records,
            "bytes": report.bytes,
            "compression": report.compression.value,
            "seconds": round(seconds, 6),
        }
        click.echo(json.dumps(add_skipped_files(payload)))
        return
    compressed = "" if report.compression.value == "none" else f", {report.compression.value}"
    into = "" if target_size is None else f" into {format_count(len(report.files), 'file')}"
    click.echo(
        f"{escape_text(str(output))}: rebuilt {format_count(len(paths), 'file')}{into} "
        f"({format_count(report.records, 'record')}, {format_bytes(report.bytes)}{compressed})"
    )
    click.echo(f"  {format_rate(report.records, report.bytes, seconds)}")


@click.command(
    epilog="""\b
Examples:
  shardline rebuild digits/v1                         into a single shard
  shardline rebuild digits/v1 --target-size 256MB     into even shards
  shardline rebuild digits/v1@7 --into v2             into another version
  shardline rebuild 'train-*' -o train.tfrecord
  shardline rebuild data/ -o even/ --target-size 64MB

Older snapshots keep the old shards until 'shardline vacuum' deletes them.

"""
    + SNAPSHOT_HELP,
)
@click.argument("arguments", nargs=-1, required=True, metavar="NAME/VERSION[@SNAPSHOT]|FILE...")
@click.option(
    "--into",
    metavar="VERSION",
    help="Write to another version, new or existing: v2, or digits/v2.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Write files to this file, or with --target-size to this new folder.",
)
@click.option(
    "--target-size",
    type=Size(least=1),
    help="Decompressed size of a shard.  [default: a single shard]",
)
@compression_option(None, "  [default: as before]")
@click.option("--overwrite", is_flag=True, help="With --output: replace an existing file.")
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="With --output: join Examples, SequenceExamples and other payloads in one file.",
)
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def rebuild(
    arguments: tuple[str, ...],
    *,
    into: str | None,
    output: Path | None,
    target_size: int | None,
    compression: str | None,
    overwrite: bool,
    allow_mixed: bool,
    no_check: bool,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Merge or resize the shards of a version, or files (--output).

    Records are checked and copied byte for byte, in order. In a version, the new shards replace the
    old ones in a new snapshot, which is checked and published; concurrent appends are kept. With
    --into, they become the content of another version, and known shards are reused.

    Exits with 1 if a record is corrupt or the check fails. Nothing is written for a corrupt record.
    """
    from shardline.operations.rebuild import rebuild as run

    read_limits = limits(max_record, max_decompressed)
    if output is not None:
        if into is not None or no_check:
            raise UsageError(
                "--into and --no-check apply to versions only",
                code="option-not-applicable",
                hint="leave them out, or leave out `--output`",
            )
        rebuild_standalone_files(
            arguments,
            output,
            target_size,
            compression,
            read_limits,
            overwrite=overwrite,
            allow_mixed=allow_mixed,
            as_json=as_json,
        )
        return
    source = _parse_version(arguments)
    if overwrite or allow_mixed:
        option = "--overwrite" if overwrite else "--allow-mixed"
        raise UsageError(
            f"{option} applies to files only",
            code="option-not-applicable",
            hint="leave it out: a version is never overwritten, and has records of one kind",
        )
    version = open_version(open_root(root), source)
    snapshot = find_snapshot(version, source)
    target = open_target_version(version, into, "leave out `--into`") if into else None
    if target is None:
        _validate_snapshot(version, snapshot)
    start = time.perf_counter()
    with raise_as_usage_error(), open_progress_executor(workers) as executor:
        report = run(
            version,
            snapshot=snapshot.number,
            into=target,
            target_bytes=target_size,
            compression=compression,
            limits=read_limits,
            executor=executor,
        )
    seconds = time.perf_counter() - start
    output_version = target or version
    if not as_json:
        _print_report(report, seconds)
    check = None
    if report.snapshot is not None and not no_check:
        check = check_snapshot(output_version, report.snapshot, limits=read_limits, workers=workers)
    if as_json:
        click.echo(json.dumps(serialize_derived(report, output_version, check, seconds)))
    else:
        _print_check(report, check)
    raise SystemExit(0 if check is None or check.ok else 1)


def _parse_version(arguments: tuple[str, ...]) -> Reference:
    """Parse the version to rebuild. Raises UsageError for files."""
    first = arguments[0]
    is_file = not is_reference(first) and (Path(first).exists() or glob.has_magic(first))
    if len(arguments) > 1 or is_file:
        raise UsageError(
            "no output given",
            code="missing-option",
            hint="pass `--output OUT` for files, or name a single version",
        )
    return parse_reference(first)


def _validate_snapshot(version: StoredVersion, snapshot: StoredSnapshot) -> None:
    """Raise UsageError if the latest snapshot lacks shards of the rebuilt one."""
    latest = version.latest()
    if not {shard.name for shard in snapshot.shards} <= {shard.name for shard in latest.shards}:
        raise UsageError(
            f"{latest} no longer contains all of {snapshot}",
            code="stale-snapshot",
            hint=Hint.of(
                "run ", Command.of("rebuild", f"{version.name}@latest"), " or add `--into VERSION`"
            ),
            version=version.name,
            snapshot=snapshot.number,
        )


def _print_report(report: RebuildReport, seconds: float) -> None:
    source = report.source
    if report.created:
        click.echo(f"created {report.version}, with the schema of {source.version}")
    if report.entry is None:
        target = "" if report.version == source.version else f"{report.version} "
        click.echo(f"{source}: nothing to rebuild, {target}up to date")
        return
    snapshot = f"{report.version}@{report.snapshot}"
    if not report.written:
        click.echo(f"{snapshot}: updated from {source}, all shards reused")
        return
    click.echo(
        f"{snapshot}: rebuilt {format_count(report.read_shards, 'shard')} of {source} into "
        f"{len(report.written):,} "
        f"({format_count(report.records, 'record')}, {format_bytes(report.bytes)})"
    )
    click.echo(f"  {format_rate(report.records, report.bytes, seconds)}")


def _print_check(report: RebuildReport, check: SnapshotCheck | None) -> None:
    if check is not None:
        print_check(check)
        if check.snapshot.published:
            print_files_command(report.version)
    elif report.snapshot is not None:
        print_check_command(f"{report.version}@{report.snapshot}")
