"""What `shardline extend` and `shardline migrate` share: where from, where to, and how."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.comparison import print_change_lines, print_planned_changes
from shardline.cli.errors import UsageError, raise_as_usage_error
from shardline.cli.options import (
    Share,
    expand_pattern,
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.output import (
    locate_object,
    print_dry_run_notice,
    print_json,
    serialize_schema_diff,
    serialize_snapshot,
)
from shardline.cli.output_file import validate_destination
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
from shardline.cli.snapshot_check import check_snapshot, print_next_steps, serialize_derived
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
    from shardline.tfrecord import Limits
    from shardline.udf.transform import Transform


def target_options(command: CommandFunction) -> CommandFunction:
    """What to read, and where to write."""
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
    """How to do it."""
    for option in (
        json_option,
        root_option,
        limit_options,
        workers_option,
        no_check_option,
        click.option("--dry-run", is_flag=True, help="Show the plan without writing."),
        click.option(
            "--max-quarantined",
            type=Share(),
            metavar="SHARE",
            help="With --into: quarantine up to this share of failing records, such as 1% "
            "or 0.01.  [default: 0]",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class TransformOptions:
    """What was asked for."""

    argument: str
    into: str | None
    output: Path | None
    overwrite: bool
    compression: str | None
    max_quarantined: float | None
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_decompressed: int
    root: str | None
    as_json: bool

    @property
    def limits(self) -> Limits:
        """The limits that were asked for."""
        return limits(self.max_record, self.max_decompressed)

    def writes(self, reads: int) -> int | None:
        """About how many bytes a rewrite of so many writes, besides new fields; None if unknown."""
        return reads if self.compression is None else None

    def refuse_mixed(self, **of_versions: object) -> None:
        """Refuse what is for files where versions are meant, and the other way round.

        `of_versions` are more options that a file has no use for, and what was given to them.
        """
        validate_destination(
            self.into,
            self.output,
            overwrite=self.overwrite,
            version="VERSION",
            **of_versions,
            max_quarantined=self.max_quarantined,
            no_check=self.no_check,
        )
        if self.output is not None:
            validate_output_path(self.argument)


_SHOWN = 10
_MODE_LABELS = {
    "overlay": ", as an overlay: only the new fields are written",
    "rewrite": ", rewritten: all fields of every record are written",
}


def validate_target(plan: TransformPlan) -> None:
    """Refuse a version that cannot become what is planned, before anything is done."""
    from shardline.operations.derive import validate_nothing_appended, validate_same_schema

    with raise_as_usage_error():
        validate_same_schema(plan.into, plan.transform.after)
    validate_nothing_appended(plan.into, plan.operation)


def serialize_plan(plan: TransformPlan) -> dict[str, Any]:
    """A plan for machines."""
    return {
        "ok": True,
        "dry_run": True,
        "version": plan.into.name,
        "new": not plan.into.exists,
        "source": serialize_snapshot(plan.source),
        "mode": plan.mode,
        "fields": serialize_schema_diff(_get_schema_diff(plan)),
        "schema": plan.schema.to_dict(),
        "compute_shards": plan.compute,
        "reuse_shards": plan.reuse,
        "records": plan.records,
        "read_bytes": plan.read_bytes,
    }


def print_plan(plan: TransformPlan, steps: list[str] | None = None) -> None:
    """A plan for people; a migration is told by its steps first."""
    new = "" if plan.into.exists else ", which is new"
    click.echo(
        f"{plan.source} → {plan.into.name}{new}{_MODE_LABELS[plan.mode] if steps is None else ''}"
    )
    if steps is not None:
        print_steps(steps)
    print_planned_changes(_get_schema_diff(plan))
    shards = f"{format_count(plan.compute, 'shard')} to compute, {plan.reuse:,} to use again"
    size = f"{format_count(plan.records, 'record')}, {format_bytes(plan.read_bytes)} to read"
    click.echo(f"work: {shards}" + (f"; {size}" if plan.compute else ""))
    print_unversioned_udfs(plan.transform.fields)


def print_steps(steps: list[str]) -> None:
    """What a migration does, step by step."""
    click.echo("steps:")
    for step in steps:
        click.echo(f"  {escape_text(step)}")


def serialize_report(
    report: TransformReport, plan: TransformPlan, checked: SnapshotCheck | None, seconds: float
) -> dict[str, Any]:
    """Return the report with the schema difference and the paths of quarantine files."""
    payload = serialize_derived(report, plan.into, checked, seconds)
    files = [locate_object(plan.into, name) for name in report.quarantine_files]
    return {
        **payload,
        "mode": plan.mode,
        "fields": serialize_schema_diff(_get_schema_diff(plan)),
        "quarantine": {**payload["quarantine"], "files": files},
    }


def print_report(report: TransformReport, plan: TransformPlan, seconds: float) -> None:
    """What was done, before any check."""
    source = report.source
    if report.entry is None:
        click.echo(f"{report.version} follows {source} already: nothing to do")
        return
    if report.created and plan.operation == "migrate":
        click.echo(f"created {report.version}")  # the plan has told its schema
    elif report.created:
        click.echo(f"created {report.version}, with the schema of {source.version} but for:")
        print_change_lines(_get_schema_diff(plan))
    made = f"{report.version}@{report.snapshot}"
    reused = format_reused_shards(report.recovered, len(report.reused))
    if not report.written:
        again = format_count(len(report.reused), "shard")
        click.echo(f"{made}: follows {source}, and nothing had to be computed: {again} used again")
    else:
        click.echo(
            f"{made}: {format_count(len(report.written), 'shard')} computed from {source}{reused}; "
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
    of = report.records + (report.quarantined_rows if plan.mode == "rewrite" else 0)
    be = "is" if report.quarantined_rows == 1 else "are"
    fate = f"{be} {'left out' if plan.mode == 'rewrite' else 'without the new fields'}"
    click.echo(
        f"{report.quarantined_rows:,} of {format_count(of, 'record')} {fate}, and went to "
        f"quarantine with the reasons ({report.quarantined_rows / max(of, 1):.2%}):"
    )
    for name in report.quarantine_files[:_SHOWN]:
        click.echo(f"  {escape_text(locate_object(plan.into, name))}")
    if len(report.quarantine_files) > _SHOWN:
        click.echo(f"  … and {len(report.quarantine_files) - _SHOWN:,} more; --json lists all")


def transform_version(
    asked: TransformOptions,
    into: str,
    make_plan: Callable[[StoredVersion, StoredSnapshot, StoredVersion], TransformPlan],
    steps: list[str] | None = None,
) -> NoReturn:
    """Plan and execute a transform of a version, given with its snapshot and the new version.

    The plan of a migration is printed with its `steps`.
    """
    wanted = parse_reference(asked.argument)
    version = open_version(open_root(asked.root), wanted)
    snapshot = find_snapshot(version, wanted)
    target = open_target_version(version, into)
    with show_activity("planning"), raise_as_usage_error():
        plan = make_plan(version, snapshot, target)
        validate_target(plan)
        is_shown = asked.dry_run or steps is not None
        if is_shown:
            plan.tasks  # noqa: B018 - finds wrong options
    more: dict[str, Any] = {} if steps is None else {"steps": steps}
    if is_shown and not asked.as_json:
        print_plan(plan, steps)
        _print_written_estimate(_estimate_written_bytes(asked, plan), plan)
    if asked.dry_run:
        if asked.as_json:
            size = _estimate_written_bytes(asked, plan)
            print_json({**serialize_plan(plan), "write_bytes": size, **more})
        else:
            print_dry_run_notice()
        raise SystemExit(0)
    began = time.perf_counter()
    # What a table is joined by, or a function reads, is looked for when the work begins.
    with raise_as_usage_error(), open_progress_executor(asked.workers) as executor:
        report = plan.execute(executor=executor)
    seconds = time.perf_counter() - began
    if not asked.as_json:
        print_report(report, plan, seconds)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(
            plan.into, report.snapshot, limits=asked.limits, workers=asked.workers
        )
    if asked.as_json:
        print_json({**serialize_report(report, plan, checked, seconds), **more})
    else:
        print_next_steps(plan.into, report.snapshot, checked, plain=plan.mode == "rewrite")
    raise SystemExit(0 if checked is None or checked.ok else 1)


def _estimate_written_bytes(asked: TransformOptions, plan: TransformPlan) -> int | None:
    """About how many bytes will be written, None if that cannot be told.

    Of a rewrite these are the old fields, of an overlay the new ones, at most.
    """
    if plan.mode == "overlay":
        from shardline.schema.schema import estimate_record_bytes

        most = estimate_record_bytes(plan.transform.new.features)
        return None if most is None else asked.writes(most * plan.records)
    # Pairs that were not written take more than the files that they are made of.
    virtual = any(shard.virtual for shard in plan.source.shards)
    return None if virtual else asked.writes(plan.read_bytes)


def _print_written_estimate(size: int | None, plan: TransformPlan) -> None:
    if plan.mode == "overlay" and plan.compute:
        told = "the new fields alone" if size is None else f"at most {format_bytes(size)}"
        click.echo(f"to write: {told}")
    elif size:
        new = ", and the new fields" if plan.operation == "extend" else ""
        click.echo(f"to write: about {format_bytes(size)}{new}")


def transform_standalone_file(
    asked: TransformOptions,
    output: Path,
    transform: Callable[[Schema], Transform],
    verb: tuple[str, str],
    steps: list[str] | None = None,
) -> None:
    """Write what `transform` makes of the records of a file, or tell what that would be.

    `verb` is what is being done, and what was. A migration is told by its `steps`, which are shown
    before it is done.
    """
    _FileTransform(asked, output, transform, *verb, steps).run()


@dataclass(frozen=True, slots=True)
class _FileTransform:
    asked: TransformOptions
    output: Path
    transform: Callable[[Schema], Transform]
    doing: str
    done: str
    steps: list[str] | None

    def run(self) -> None:
        from shardline.operations.transform import make_empty_transform
        from shardline.udf.transform import validate_side_names

        path = expand_pattern(self.asked.argument)
        self._refuse_output(path)
        records, schema = self._schema_of(path)
        with raise_as_usage_error():
            transform = self.transform(schema) if records else make_empty_transform()
            validate_side_names(transform)
        if not self.asked.as_json and (self.asked.dry_run or self.steps is not None):
            self._print_plan(path, transform, records)
        if self.asked.dry_run:
            if self.asked.as_json:
                print_json(self._plan_json(path, transform, records))
            else:
                print_dry_run_notice()
            return
        began = time.perf_counter()
        # What a table is joined by, or a function reads, is looked for when the work begins.
        with raise_as_usage_error():
            change = self._change(path, transform)
        seconds = time.perf_counter() - began
        if self.asked.as_json:
            print_json(self._done_json(change, transform, seconds))
        else:
            self._print_done(path, change, seconds)

    def _refuse_output(self, path: Path) -> None:
        output = self.output
        if output.is_dir():
            raise UsageError(
                f"{output} is a folder", code="output-is-folder", hint="name a file", path=output
            )
        if output.exists() and output.samefile(path):
            raise UsageError(
                f"{output} is the input file",
                code="output-is-input",
                hint="write to another file",
                path=output,
            )
        if output.exists() and not self.asked.overwrite:
            raise UsageError(
                f"{output} exists already",
                code="file-exists",
                hint="choose another name or add `--overwrite`",
                path=output,
            )

    def _schema_of(self, path: Path) -> tuple[int, Schema]:
        """How many records a file has, and the schema that they suggest."""
        from shardline.schema.file_schema import infer_schema, schema_of

        with show_file_progress("finding the schema", [path]) as progress:
            report = infer_schema(
                [path], limits=self.asked.limits, workers=self.asked.workers, progress=progress
            )
        return report.merged.records, schema_of(report.merged)

    def _change(self, path: Path, transform: Transform) -> FileTransformReport:
        from shardline.execution.executor import CancellationToken
        from shardline.operations.transform import transform_file
        from shardline.operations.transform_records import FIX_CAST_HINT, FIX_UDF_HINT

        cancellation = CancellationToken()
        with show_file_progress(self.doing, [path]) as progress:
            run = partial(
                transform_file,
                path,
                self.output,
                transform,
                hint=FIX_UDF_HINT if self.steps is None else FIX_CAST_HINT,
                compression=self.asked.compression,
                overwrite=self.asked.overwrite,
                limits=self.asked.limits,
                workers=self.asked.workers,
                progress=partial(make_cancellable(progress, cancellation), path),
            )
            return run_in_thread(run, cancellation)

    def _plan_json(self, path: Path, transform: Transform, records: int) -> dict[str, Any]:
        return {
            "ok": True,
            "dry_run": True,
            "output": str(self.output),
            "fields": serialize_schema_diff(_compare_schemas(transform)),
            "schema": transform.after.to_dict(),
            "records": records,
            "read_bytes": path.stat().st_size,
            "write_bytes": self.asked.writes(path.stat().st_size),
        }

    def _print_plan(self, path: Path, transform: Transform, records: int) -> None:
        click.echo(f"{escape_text(str(path))} → {escape_text(str(self.output))}")
        if self.steps is not None:
            print_steps(self.steps)
        print_planned_changes(_compare_schemas(transform))
        reads = path.stat().st_size
        click.echo(f"work: {format_count(records, 'record')}, {format_bytes(reads)} to read")
        if (size := self.asked.writes(reads)) is not None:
            new = "" if self.steps is not None else ", and the new fields"
            click.echo(f"to write: about {format_bytes(size)}{new}")

    def _done_json(
        self, change: FileTransformReport, transform: Transform, seconds: float
    ) -> dict[str, Any]:
        return {
            "ok": True,
            "dry_run": False,
            "output": str(change.file),
            "fields": serialize_schema_diff(_compare_schemas(transform)),
            "schema": transform.after.to_dict(),
            "records": change.records,
            "bytes": change.bytes,
            "compression": change.compression.value,
            "seconds": round(seconds, 6),
        }

    def _print_done(self, path: Path, change: FileTransformReport, seconds: float) -> None:
        packed = "" if change.compression.value == "none" else f", {change.compression.value}"
        click.echo(
            f"{escape_text(str(path))} {self.done} into {escape_text(str(change.file))}: "
            f"{format_count(change.records, 'record')}, {format_bytes(change.bytes)}{packed}"
        )
        if change.records:
            click.echo(f"  {format_rate(change.records, change.bytes, seconds)}")
        else:
            click.echo(f"  {escape_text(str(path))} has no records, so there was nothing to change")


def _compare_schemas(transform: Transform) -> SchemaDiff:
    from shardline.schema.comparison import compare

    return compare(transform.before, transform.after)
