"""Options, execution and output of `shardline extend` and `shardline migrate`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.comparison import print_change_lines, print_planned_changes
from shardline.cli.errors import raise_as_usage_error
from shardline.cli.options import (
    Share,
    WriteOptions,
    expand_pattern,
    write_options,
)
from shardline.cli.output import (
    locate_object,
    print_dry_run_notice,
    print_json,
    print_limited,
    serialize_schema_diff,
    serialize_snapshot,
)
from shardline.cli.output_file import validate_destination, validate_transform_output
from shardline.cli.progress import (
    make_cancellable,
    open_progress_executor,
    run_in_thread,
    show_activity,
    show_file_progress,
)
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_target_version,
    open_version,
    parse_reference,
    validate_output_path,
)
from shardline.cli.snapshot_check import check_new_snapshot, print_next_steps, serialize_derived
from shardline.cli.udf_options import print_unversioned_udfs
from shardline.text import (
    escape_text,
    format_bytes,
    format_count,
    format_rate,
    format_reused_shards,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from shardline.cli.options import CommandFunction
    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.transform import (
        FileTransformReport,
        TransformPlan,
        TransformReport,
    )
    from shardline.schema.comparison import SchemaDiff
    from shardline.schema.schema import Schema
    from shardline.udf.transform import Transform


def target_options(command: CommandFunction) -> CommandFunction:
    """Add the input argument and the output options."""
    for option in (
        click.option("--overwrite", is_flag=True, help="With --output: replace an existing file."),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            metavar="OUT",
            help="Write the records of a file to this file.",
        ),
        click.option(
            "--into",
            metavar="VERSION",
            help="Write the records of a version to this version, new or existing: v2, or "
            "digits/v2.",
        ),
        click.argument("argument", metavar="NAME/VERSION[@SNAPSHOT]|FILE"),
    ):
        command = option(command)
    return command


def execution_options(command: CommandFunction) -> CommandFunction:
    """Add --max-quarantined and the options of `WriteOptions`."""
    return click.option(
        "--max-quarantined",
        type=Share(),
        metavar="SHARE",
        help="With --into: quarantine up to this share of failing records, such as 1% "
        "or 0.01.  [default: 0]",
    )(write_options(command))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOptions(WriteOptions):
    """Argument and options that extend and migrate share."""

    argument: str
    into: str | None
    output: Path | None
    overwrite: bool
    max_quarantined: float | None

    def estimate_written_bytes(self, read_bytes: int) -> int | None:
        """Estimate the bytes of a rewrite without new features. None if the size is unknown."""
        return read_bytes if self.compression is None else None

    def validate(self, **version_options: object) -> None:
        """Refuse options of files for versions, and options of versions for files.

        `version_options` are the values of further options that apply to versions only.
        """
        validate_destination(
            self.into,
            self.output,
            overwrite=self.overwrite,
            version="VERSION",
            **version_options,
            max_quarantined=self.max_quarantined,
            no_check=self.no_check,
        )
        if self.output is not None:
            validate_output_path(self.argument)


_MODE_LABELS = {
    "overlay": ", as an overlay with the new features only",
    "rewrite": ", rewritten with all features of every record",
}


def _validate_target(plan: TransformPlan) -> None:
    """Refuse a target version with another schema or with appended records."""
    from shardline.operations.derive import validate_nothing_appended, validate_same_schema

    with raise_as_usage_error():
        validate_same_schema(plan.into, plan.transform.after)
    validate_nothing_appended(plan.into, plan.operation)


def _serialize_plan(plan: TransformPlan) -> dict[str, Any]:
    return {
        "ok": True,
        "dry_run": True,
        "version": plan.into.name,
        "new": not plan.into.exists,
        "source": serialize_snapshot(plan.source),
        "mode": plan.mode,
        "schema_diff": serialize_schema_diff(_get_schema_diff(plan)),
        "schema": plan.schema.to_dict(),
        "compute_shards": plan.compute,
        "reuse_shards": plan.reuse,
        "records": plan.records,
        "read_bytes": plan.read_bytes,
    }


def _print_plan(plan: TransformPlan, steps: list[str] | None = None) -> None:
    """Print the plan of an extension, or that of a migration with its `steps`."""
    new = "" if plan.into.exists else " (new)"
    click.echo(
        f"{plan.source} → {plan.into.name}{new}{_MODE_LABELS[plan.mode] if steps is None else ''}"
    )
    if steps is not None:
        _print_steps(steps)
    print_planned_changes(_get_schema_diff(plan))
    shards = f"{format_count(plan.compute, 'shard')} to compute, {plan.reuse:,} to reuse"
    size = f"{format_count(plan.records, 'record')}, {format_bytes(plan.read_bytes)} to read"
    click.echo(f"work: {shards}" + (f"; {size}" if plan.compute else ""))
    print_unversioned_udfs(plan.transform.fields)


def _print_steps(steps: list[str]) -> None:
    click.echo("steps:")
    for step in steps:
        click.echo(f"  {escape_text(step)}")


def _serialize_report(
    report: TransformReport, plan: TransformPlan, check: SnapshotCheck | None, seconds: float
) -> dict[str, Any]:
    """Return the report with the schema difference and the paths of quarantine files."""
    payload = serialize_derived(report, plan.into, check, seconds)
    files = [locate_object(plan.into, name) for name in report.quarantine_files]
    return {
        **payload,
        "mode": plan.mode,
        "schema_diff": serialize_schema_diff(_get_schema_diff(plan)),
        "quarantine": {**payload["quarantine"], "files": files},
    }


def _print_report(report: TransformReport, plan: TransformPlan, seconds: float) -> None:
    source = report.source
    if report.entry is None:
        click.echo(f"{report.version}: up to date with {source}")
        return
    if report.created and plan.operation == "migrate":
        click.echo(f"created {report.version}")  # The plan shows the schema.
    elif report.created:
        click.echo(f"created {report.version} with the schema of {source.version}, changed:")
        print_change_lines(_get_schema_diff(plan))
    snapshot = f"{report.version}@{report.snapshot}"
    reused = format_reused_shards(report.recovered, len(report.reused))
    shards = format_count(len(report.written), "shard")
    if not report.written:
        click.echo(f"{snapshot}: follows {source}; {shards} computed{reused}")
    else:
        click.echo(
            f"{snapshot}: {shards} computed from {source}{reused}; "
            f"{format_count(report.records, 'record')}, {format_bytes(report.bytes)} written"
        )
        click.echo(f"  {format_rate(report.records, report.bytes, seconds)}")
        print_unversioned_udfs(plan.transform.fields)
    if report.quarantined_rows:
        _print_quarantine(report, plan)


def _get_schema_diff(plan: TransformPlan) -> SchemaDiff:
    from shardline.schema.comparison import compare

    return compare(plan.source.schema, plan.transform.after)


def _print_quarantine(report: TransformReport, plan: TransformPlan) -> None:
    total = report.records + (report.quarantined_rows if plan.mode == "rewrite" else 0)
    effect = "left out" if plan.mode == "rewrite" else "without the new features"
    click.echo(
        f"quarantined {report.quarantined_rows:,} of {format_count(total, 'record')} "
        f"({report.quarantined_rows / max(total, 1):.2%}), {effect}:"
    )
    files = (escape_text(locate_object(plan.into, name)) for name in report.quarantine_files)
    print_limited(files)


def transform_version(
    options: TransformOptions,
    into: str,
    make_plan: Callable[[StoredVersion, StoredSnapshot, StoredVersion], TransformPlan],
    steps: list[str] | None = None,
) -> NoReturn:
    """Plan and execute a transform of a version. Exits with 1 if the check fails.

    `make_plan` gets the version, its snapshot and the target version. The plan of a migration is
    printed with its `steps`.
    """
    base = parse_reference(options.argument)
    version = open_version(open_root(options.root), base)
    snapshot = find_snapshot(version, base)
    target = open_target_version(version, into)
    with show_activity("planning"), raise_as_usage_error():
        plan = make_plan(version, snapshot, target)
        _validate_target(plan)
        is_shown = options.dry_run or steps is not None
        if is_shown:
            plan.tasks  # noqa: B018 - validates the options
    extra: dict[str, Any] = {} if steps is None else {"steps": steps}
    if is_shown and not options.as_json:
        _print_plan(plan, steps)
        _print_written_estimate(_estimate_written_bytes(options, plan), plan)
    if options.dry_run:
        if options.as_json:
            size = _estimate_written_bytes(options, plan)
            print_json({**_serialize_plan(plan), "write_bytes": size, **extra})
        else:
            print_dry_run_notice()
        raise SystemExit(0)
    began = time.perf_counter()
    # Join keys and the features that functions read are validated at execution.
    with raise_as_usage_error(), open_progress_executor(options.workers) as executor:
        report = plan.execute(executor=executor)
    seconds = time.perf_counter() - began
    if not options.as_json:
        _print_report(report, plan, seconds)
    check = check_new_snapshot(plan.into, report.snapshot, options)
    if options.as_json:
        print_json({**_serialize_report(report, plan, check, seconds), **extra})
    else:
        print_next_steps(plan.into, report.snapshot, check, plain=plan.mode == "rewrite")
    raise SystemExit(0 if check is None or check.ok else 1)


def _estimate_written_bytes(options: TransformOptions, plan: TransformPlan) -> int | None:
    """Estimate the old features of a rewrite, or the most that an overlay writes."""
    if plan.mode == "overlay":
        from shardline.schema.schema import estimate_record_bytes

        record_bytes = estimate_record_bytes(plan.transform.new.features)
        if record_bytes is None:
            return None
        return options.estimate_written_bytes(record_bytes * plan.records)
    # The pairs of a virtual shard are larger than its input files.
    virtual = any(shard.virtual for shard in plan.source.shards)
    return None if virtual else options.estimate_written_bytes(plan.read_bytes)


def _print_written_estimate(size: int | None, plan: TransformPlan) -> None:
    if plan.mode == "overlay" and plan.compute:
        amount = "the new features only" if size is None else f"at most {format_bytes(size)}"
        click.echo(f"to write: {amount}")
    elif size:
        new = " plus the new features" if plan.operation == "extend" else ""
        click.echo(f"to write: about {format_bytes(size)}{new}")


def transform_standalone_file(
    options: TransformOptions,
    output: Path,
    transform: Callable[[Schema], Transform],
    verb: tuple[str, str],
    steps: list[str] | None = None,
) -> None:
    """Write the transformed records of a file, or show the plan.

    `verb` is the present and the past participle of the operation. The plan of a migration is
    printed with its `steps`.
    """
    _FileTransform(options, output, transform, *verb, steps).run()


@dataclass(frozen=True, slots=True)
class _FileTransform:
    options: TransformOptions
    output: Path
    transform: Callable[[Schema], Transform]
    present: str
    past: str
    steps: list[str] | None

    def run(self) -> None:
        from shardline.operations.transform import make_empty_transform
        from shardline.udf.transform import validate_side_names

        path = expand_pattern(self.options.argument)
        output = self.output
        is_input = output.exists() and output.samefile(path)
        validate_transform_output(output, is_input=is_input, overwrite=self.options.overwrite)
        records, schema = self._infer_schema(path)
        with raise_as_usage_error():
            transform = self.transform(schema) if records else make_empty_transform()
            validate_side_names(transform)
        if not self.options.as_json and (self.options.dry_run or self.steps is not None):
            self._print_plan(path, transform, records)
        if self.options.dry_run:
            if self.options.as_json:
                print_json(self._serialize_plan(path, transform, records))
            else:
                print_dry_run_notice()
            return
        began = time.perf_counter()
        # Join keys and the features that functions read are validated at execution.
        with raise_as_usage_error():
            report = self._execute(path, transform)
        seconds = time.perf_counter() - began
        if self.options.as_json:
            print_json(self._serialize_report(report, transform, seconds))
        else:
            self._print_report(path, report, seconds)

    def _infer_schema(self, path: Path) -> tuple[int, Schema]:
        """Return the number of records in a file, and their inferred schema."""
        from shardline.schema.file_schema import infer_schema, schema_of

        with show_file_progress("finding the schema", [path]) as progress:
            report = infer_schema(
                [path], limits=self.options.limits, workers=self.options.workers, progress=progress
            )
        return report.merged.records, schema_of(report.merged)

    def _execute(self, path: Path, transform: Transform) -> FileTransformReport:
        from shardline.execution.executor import CancellationToken
        from shardline.operations.transform import transform_file
        from shardline.operations.transform_records import FIX_CAST_HINT, FIX_UDF_HINT

        cancellation = CancellationToken()
        with show_file_progress(self.present, [path]) as progress:
            run = partial(
                transform_file,
                path,
                self.output,
                transform,
                hint=FIX_UDF_HINT if self.steps is None else FIX_CAST_HINT,
                compression=self.options.compression,
                overwrite=self.options.overwrite,
                limits=self.options.limits,
                workers=self.options.workers,
                progress=partial(make_cancellable(progress, cancellation), path),
            )
            return run_in_thread(run, cancellation)

    def _serialize_plan(self, path: Path, transform: Transform, records: int) -> dict[str, Any]:
        return {
            "ok": True,
            "dry_run": True,
            "output": str(self.output),
            "schema_diff": serialize_schema_diff(_compare_schemas(transform)),
            "schema": transform.after.to_dict(),
            "records": records,
            "read_bytes": path.stat().st_size,
            "write_bytes": self.options.estimate_written_bytes(path.stat().st_size),
        }

    def _print_plan(self, path: Path, transform: Transform, records: int) -> None:
        click.echo(f"{escape_text(str(path))} → {escape_text(str(self.output))}")
        if self.steps is not None:
            _print_steps(self.steps)
        print_planned_changes(_compare_schemas(transform))
        read_bytes = path.stat().st_size
        click.echo(f"work: {format_count(records, 'record')}, {format_bytes(read_bytes)} to read")
        if (size := self.options.estimate_written_bytes(read_bytes)) is not None:
            new = "" if self.steps is not None else " plus the new features"
            click.echo(f"to write: about {format_bytes(size)}{new}")

    def _serialize_report(
        self, report: FileTransformReport, transform: Transform, seconds: float
    ) -> dict[str, Any]:
        return {
            "ok": True,
            "dry_run": False,
            "output": str(report.file),
            "schema_diff": serialize_schema_diff(_compare_schemas(transform)),
            "schema": transform.after.to_dict(),
            "records": report.records,
            "bytes": report.bytes,
            "compression": report.compression.value,
            "seconds": round(seconds, 6),
        }

    def _print_report(self, path: Path, report: FileTransformReport, seconds: float) -> None:
        suffix = "" if report.compression.value == "none" else f", {report.compression.value}"
        click.echo(
            f"{escape_text(str(path))} {self.past} into {escape_text(str(report.file))}: "
            f"{format_count(report.records, 'record')}, {format_bytes(report.bytes)}{suffix}"
        )
        if report.records:
            click.echo(f"  {format_rate(report.records, report.bytes, seconds)}")
        else:
            click.echo(f"  {escape_text(str(path))} has no records: nothing to transform")


def _compare_schemas(transform: Transform) -> SchemaDiff:
    from shardline.schema.comparison import compare

    return compare(transform.before, transform.after)
